"""Whether records were measured under what a grid asks for now."""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from morph_vla.errors import MorphVlaError
from morph_vla.evidence.grid import MANY, Grid, Split, as_read_now, condition_of
from morph_vla.files.plain import to_plain
from morph_vla.hosts.lerobot.options import Training
from morph_vla.recipes.keys import Recipe
from morph_vla.recipes.recipe import OF_ALL
from morph_vla.results.cells import CellRecord
from morph_vla.results.values import listing, mapping

NOTHING = "nothing"


class Difference(NamedTuple):
    """One key whose value in a record is not the grid's."""

    key: str
    measured: object
    asked: object


def require_same(grid: Grid, records: Sequence[CellRecord]) -> None:
    """Raise MorphVlaError where a record's settings are not those that the grid asks for now.

    A condition's recipe, the episodes and the sampler; what a split trains on and is judged on, and how much
    of it. Where datasets lie is a machine's matter, and what they hold is told by their digests.
    """
    judged = {"episodes": grid.episodes, "sampler": {"noise": grid.noise, "steps": grid.sampler_steps}}
    asked: dict[str, dict[str, object]] = {}
    for record in records:
        if record.condition not in asked:
            asked[record.condition] = {**_of_condition(condition_of(grid, record.condition)), **judged}
        of_keys = _of_keys(record.settings, asked[record.condition])
        for key, measured, wanted in (*of_keys, *_of_split(grid, record)):
            raise MorphVlaError(
                f"{record.name} was measured under other settings than this grid's: {key} was {measured}, "
                f"and the grid asks for {wanted}; report on it with the grid that it was run with"
            )


def _of_condition(condition: Recipe | Training) -> dict[str, object]:
    """What a condition says of every cell's settings."""
    if isinstance(condition, Training):
        return {"lerobot": condition.settings()}
    recipe = mapping(to_plain(condition))
    training = {key: value for key, value in mapping(recipe["training"]).items() if key != "seed"}
    data = {key: mapping(recipe["data"])[key] for key in OF_ALL}
    model = mapping(recipe["model"])
    if body := mapping(model.get("morphology")):
        # The robots of `descriptors: robot` are those that a split trains on.
        model = {**model, "morphology": {key: value for key, value in body.items() if key != "robots"}}
    about = {"model": model, "optimizer": recipe["optimizer"], "training": training, "data": data}
    return {"recipe": about}


def _of_keys(measured: object, asked: object, at: str = "") -> Iterator[Difference]:
    """Keys that both have, with the two values; keys of one alone came or went with a version."""
    if isinstance(measured, Mapping) and isinstance(asked, Mapping):
        for key in measured:
            if key in asked:
                yield from _of_keys(measured[key], asked[key], f"{at}.{key}".strip("."))
    elif measured != asked:
        yield Difference(at, measured, asked)


def _of_split(grid: Grid, record: CellRecord) -> Iterator[Difference]:
    """Bodies that were trained on and judged, and how much of their demonstrations.

    Earlier records do not name the bodies that they were trained on.
    """
    split, at = grid.splits[record.split], f"splits.{record.split}"
    suites = {name: str(suite) for name, suite in mapping(record.settings.get("judge")).items()}
    if suites:
        yield from _of_bodies(grid, f"{at}.judge", suites, split.judge)
        judged = {body.body for body in record.judged}
        for name, suite in suites.items():
            if name not in judged:
                yield Difference(f"{at}.judge.{name}", NOTHING, suite)
    if trained := list(dict.fromkeys(what.partition("/")[0] for what in record.datasets)):
        yield from _of_bodies(grid, f"{at}.train", dict.fromkeys(trained, ""), split.train)
        for name, amount in zip(trained, _amounts(record), strict=False):
            group = _group(grid, name, "", split.train) or name
            asked = _asked_amount(split, group)
            yield from (
                Difference(f"{at}.{key} of '{name}'", value, asked[key])
                for key, value in amount.items()
                if value != asked[key]
            )


def _of_bodies(grid: Grid, at: str, suites: Mapping[str, str], asked: Sequence[str]) -> Iterator[Difference]:
    """Bodies that are of no name of a split, and names of it that too few bodies are of."""
    groups = {name: _group(grid, name, suite, asked) for name, suite in suites.items()}
    for name, group in groups.items():
        if group is None:
            wanted = grid.bodies[name].suite if name in asked else NOTHING
            yield Difference(f"{at}.{name}", suites[name] or "there", wanted)
    for name in asked:
        count, wanted = [*groups.values()].count(name), _count(grid, name)
        if count < 1 or wanted not in (0, count):
            yield Difference(f"{at}.{name}", count or NOTHING, wanted if count else grid.bodies[name].suite)


def _group(grid: Grid, name: str, suite: str, asked: Sequence[str]) -> str | None:
    """The name in a split that stands for a body, whose suite is not held against it where none is given."""
    for each in asked:
        body = grid.bodies[each]
        if MANY in body.suite and fnmatch.fnmatch(suite or name, body.suite):
            return each
        if each == name and suite in ("", body.suite):
            return each
    return None


def _count(grid: Grid, name: str) -> int:
    """How many bodies a name stands for; 0: as many as there are."""
    return grid.bodies[name].count if MANY in grid.bodies[name].suite else 1


def _amounts(record: CellRecord) -> Iterator[dict[str, object]]:
    """Of each dataset how much was trained on: `episodes` (0: all), `share`, and `weights` in a mixture."""
    settings = as_read_now(record.settings)
    if theirs := mapping(settings.get("lerobot")):
        for entry in map(mapping, listing(theirs.get("datasets"))):
            yield {"episodes": entry.get("episodes") or 0, "share": theirs.get("share", 1.0)}
        return
    data = mapping(mapping(settings.get("recipe")).get("data"))
    for entry in map(mapping, listing(data.get("datasets")) or [data]):
        if "episodes" in entry:
            yield {
                "episodes": len(listing(entry["episodes"])),
                "share": entry.get("share"),
                "weights": entry.get("weight"),
            }


def _asked_amount(split: Split, name: str) -> dict[str, object]:
    return {
        "episodes": split.episodes.get(name, 0),
        "share": split.share,
        "weights": split.weights.get(name, 1.0),
    }
