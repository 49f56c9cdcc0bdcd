"""`morph-vla stats DATASET | RECIPE`."""

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla.cli.common import add, add_folders, add_json, add_overrides
from morph_vla.cli.render import render, table
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text

if TYPE_CHECKING:
    from morph_vla.data.stats import Stats
    from morph_vla.training.measured import Measured

EXAMPLES = """
  morph-vla stats runs/demo/dataset
  morph-vla stats runs/demo/dataset --json
  morph-vla stats panda_demo data.dataset=runs/demos data.actions=delta --output stats.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla stats`."""
    dataset = "a LeRobot dataset of any version (a folder, or USER/NAME on the Hub): its values as recorded"
    about = f"{dataset}; or a recipe: the values that each of its robots learns, over all its datasets"
    add(parser, "source", about, "DATASET|RECIPE")
    add_overrides(parser, "recipe")
    about = "also write them as JSON, for `data.statistics` in a recipe"
    add(parser, "--output", about, "FILE", type=Path)
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Quantiles, mean and standard deviation of states and actions; no video is decoded."""
    begun, given = time.perf_counter(), Path(arguments.source).expanduser()
    if given.is_dir() or ("/" in arguments.source and given.suffix not in (".yaml", ".yml")):
        from morph_vla.training.measured import measure

        if arguments.overrides:
            raise MorphVlaError(f"{arguments.overrides[0]}: KEY=VALUE needs a recipe, and this is a dataset")
        measured = measure(arguments.source)
        plain, lines = measured.plain(), lines_of_dataset(measured)
    else:
        from morph_vla.recipes import recipe as recipes
        from morph_vla.training import source, statistics

        recipe = recipes.load(arguments.source, arguments.overrides, arguments.folders)
        robots = source.statistics_of(recipe)
        plain, lines = statistics.plain(robots), lines_of_robots(robots, recipe.model.horizon)
    if arguments.output:
        write_text(arguments.output, json.dumps(plain, indent=2))
    took = f"measured in {time.perf_counter() - begun:.1f} s; no image was decoded"
    render(plain, arguments.json, lambda _: (*lines, took))


def _table(features: "Iterable[tuple[str, Stats, Sequence[str]]]") -> list[str]:
    """A row for each value; names are left out where there is not one for each."""
    rows = []
    for feature, stats, names in features:
        named = names if len(names) == len(stats.mean) else [""] * len(stats.mean)
        numbers = zip(named, stats.q01, stats.q99, stats.mean, stats.std, strict=True)
        rows += [(feature, value, *row) for value, row in enumerate(numbers)]
    return table(["feature", "value", "name", "q01", "q99", "mean", "std"], rows)


def lines_of_dataset(measured: "Measured") -> Iterator[str]:
    """The table, how the dataset's own statistics differ, and what hardly moves."""
    from morph_vla.data import stats

    size = f"{measured.episodes} episodes, {measured.frames} frames, {measured.fps:g} Hz"
    yield f"{measured.root}: LeRobot {measured.version}, {size}"
    features = measured.features.items()
    yield from _table((word, feature.stats, feature.names) for word, feature in features)
    if not measured.has_own:
        yield "the dataset has no statistics of its own (meta/stats.json)"
    for word, feature in features if measured.has_own else ():
        theirs = f"the dataset's own statistics of '{feature.key}'"
        if feature.own is None:
            yield f"{theirs} have no q01 and q99"
            continue
        for d in feature.apart:
            ends = f"{feature.own.q01[d]:.4g} .. {feature.own.q99[d]:.4g}"
            yield f"{word} '{feature.name(d)}': the dataset's own statistics say {ends}"
        if not feature.apart:
            yield f"{theirs} agree (no end differs by more than a quarter of the range)"
    for word, feature in features:
        for d in stats.narrow(feature.stats):
            rule = f"training widens its range to {stats.MIN_SPAN:g}, or refuses it (data.degenerate)"
            yield f"{word} '{feature.name(d)}' hardly moves: {rule}"


def lines_of_robots(robots: dict[str, Any], horizon: int) -> Iterator[str]:
    """For each robot, whose statistics they are, and the table."""
    from morph_vla.training import statistics

    for name, (joints, kind, known) in robots.items():
        yield ""
        told: list[str] = []
        statistics.tell(name, known, told.append)
        yield from told
        yield f"{name}: {kind} actions, chunks of {horizon}, {known.frames} frames"
        yield from _table((("state", known.state, joints), ("action", known.action, joints)))
    yield ""
