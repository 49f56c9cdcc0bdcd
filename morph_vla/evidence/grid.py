"""A grid: which conditions are trained on which bodies with which seeds, and what judges them.

A cell is one training and its evaluations. Its recipe is the grid's, with the grid's overrides, those of its
condition, the datasets of its split and its seed, so that cells of one split differ in nothing else.
"""

import dataclasses
import fnmatch
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.evaluation.sampler import Sampler
from morph_vla.files import dropin, typed_yaml
from morph_vla.files.plain import to_plain
from morph_vla.hosts.lerobot import options
from morph_vla.hosts.lerobot.options import Training
from morph_vla.recipes import ablations
from morph_vla.recipes import recipe as recipes
from morph_vla.recipes.keys import Evaluation, Recipe
from morph_vla.suites.environment import EnvironmentSuite, load_tasks
from morph_vla.suites.suite import Suite
from morph_vla.wording import count


@dataclasses.dataclass(frozen=True)
class Body:
    """A robot with its task: the suite names both. Or several, where the suite is a pattern."""

    suite: str
    """One task of it: `droid_panda:cube_in_bowl`. `panda_vary3_*` stands for a body for each suite that fits,
    which is called as its suite"""
    dataset: str = ""
    """Demonstrations; none for a body that is only judged. Of a pattern with `*` for the body's name"""
    cameras: dict[str, str] = dataclasses.field(default_factory=dict)
    """The model's name -> the dataset's; none: those of the recipe"""
    count: int = 0
    """Of a pattern the first so many by name, of which none may be missing; 0: all that there are"""


@dataclasses.dataclass(frozen=True)
class Split:
    """Bodies that are trained on, and bodies that the policy is judged on."""

    train: tuple[str, ...]
    judge: tuple[str, ...]
    episodes: dict[str, int] = dataclasses.field(default_factory=dict)
    """Of a body's demonstrations the first so many; of the others all"""
    weights: dict[str, float] = dataclasses.field(default_factory=dict)
    """A body's share of the mixture; 1 where none is given"""
    share: float = 1.0
    """Of every body's demonstrations"""


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """That one condition succeeds more often than another."""

    better: str
    than: str
    more_seeds: tuple[int, ...] = ()
    """Of its two conditions alone, beside the grid's: written here, once, after these left it undecided.
    Until they are all there it is undecided again"""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Every key of a grid's YAML file."""

    title: str
    question: str
    recipe: str
    conditions: dict[str, tuple[str, ...]]
    """Name -> overrides of the recipe, in order; `@table1.tokens` stands for those of a variant. With
    `recipe=body_state` as its first one a condition has a recipe of its own; with `lerobot=act` LeRobot
    trains it, and the others are options of its `lerobot-train`"""
    bodies: dict[str, Body]
    splits: dict[str, Split]
    seeds: tuple[int, ...]
    episodes: int = 300
    """Initial states that each body is judged on, the same for all conditions"""
    overrides: tuple[str, ...] = ()
    """Of every cell"""
    hypotheses: dict[str, Hypothesis] = dataclasses.field(default_factory=dict)
    primary: tuple[str, ...] = ()
    """The splits that hypotheses are tested on"""
    margin: float = 0.05
    """The least difference of success rates that counts as yes"""
    noise: float = Sampler.noise
    sampler_steps: int = Sampler.steps
    minutes: float = 0.0
    """About how long a cell takes, until one has been timed; 0: nothing is said"""


class Cell(NamedTuple):
    """One training with its evaluations."""

    seed: int
    split: str
    condition: str

    @property
    def name(self) -> str:
        """`SPLIT/CONDITION/SEED`, which is also where its files lie."""
        return f"{self.split}/{self.condition}/{self.seed}"


def load(given: Path | str) -> Grid:
    """The grid in a file, or of that name.

    Raises ConfigError with every problem of its keys, or as `checked`; MorphVlaError where there is none, as
    `dropin.find`.
    """
    path = dropin.find("grids", str(given))
    return checked(typed_yaml.read(path, Grid), str(path))


def checked(grid: Grid, where: str) -> Grid:
    """The grid, its names held against each other. Raises ConfigError with every problem."""
    if problems := list(_problems(grid)):
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems))
    return grid


def cells(grid: Grid, part: tuple[int, int] = (1, 1)) -> tuple[Cell, ...]:
    """Every cell, seed by seed; of several parts (k of n, from 1) every n-th seed of a split from k on.

    All conditions of a seed and split are of one part: what is compared was measured by one machine, and
    whenever the time ends most of what was run can be compared. Raises MorphVlaError for more parts than
    there are seeds of splits.
    """
    every_seed = dict.fromkeys(seed for name in grid.conditions for seed in seeds_of(grid, name))
    studies = [(seed, split) for seed in every_seed for split in grid.splits]
    if part[1] > len(studies):
        raise MorphVlaError(
            f"{part[1]} parts of {len(studies)}, the seeds of all splits: a part has all conditions of one; "
            f"cut the grid into {len(studies)} or fewer"
        )
    return tuple(
        Cell(seed, split, name)
        for seed, split in studies[part[0] - 1 :: part[1]]
        for name in grid.conditions
        if seed in seeds_of(grid, name)
    )


def seeds_of(grid: Grid, condition: str) -> tuple[int, ...]:
    """The seeds that a condition is trained with: the grid's, and those that its hypotheses add."""
    of_its = (h.more_seeds for h in grid.hypotheses.values() if condition in (h.better, h.than))
    return tuple(dict.fromkeys((*grid.seeds, *(seed for seeds in of_its for seed in seeds))))


@dataclasses.dataclass(frozen=True)
class Plan:
    """A grid with its files read: the tasks of its bodies, and the recipe of each condition."""

    grid: Grid
    """Its patterns replaced by the bodies that they stand for"""
    tasks: Mapping[str, Suite | EnvironmentSuite]
    conditions: Mapping[str, Recipe | Training]
    """A `Training` is LeRobot's: a condition that no recipe of ours describes"""

    def recipe(self, cell: Cell) -> Recipe:
        """The recipe of a cell. Raises ConfigError where its parts do not fit together."""
        condition, split = self.conditions[cell.condition], self.grid.splits[cell.split]
        assert isinstance(condition, Recipe)
        like = condition.data.sources[0]
        entries = tuple(
            dataclasses.replace(
                like, robot=self.tasks[name].robot, dataset=self.grid.bodies[name].dataset,
                cameras=self.grid.bodies[name].cameras or like.cameras, preset="",
                weight=split.weights.get(name, 1.0), share=split.share,
                episodes=tuple(range(split.episodes[name])) if name in split.episodes else (),
            )
            for name in split.train
        )  # fmt: skip
        recipe = dataclasses.replace(
            recipes.on_datasets(condition, entries),
            training=dataclasses.replace(condition.training, seed=cell.seed),
            evaluation=Evaluation(),
        )
        recipes.check(recipe, cell.name)
        return recipe

    def settings(self, cell: Cell) -> dict[str, Any]:
        """All of a cell that its numbers can depend on, as plain values."""
        bodies, judged = self.grid.bodies, self.grid.splits[cell.split].judge
        judge = {
            "judge": {name: bodies[name].suite for name in judged},
            "episodes": self.grid.episodes,
        }
        condition = self.conditions[cell.condition]
        if isinstance(condition, Training):
            return {"lerobot": self._theirs(condition, cell.split), "seed": cell.seed, **judge}
        sampler = {"noise": self.grid.noise, "steps": self.grid.sampler_steps}
        return {"recipe": to_plain(self.recipe(cell)), **judge, "sampler": sampler}

    def _theirs(self, condition: Training, name: str) -> dict[str, Any]:
        """What LeRobot is asked for; its defaults are those of its version."""
        split = self.grid.splits[name]
        sources = [
            {"dataset": self.grid.bodies[body].dataset, "episodes": split.episodes.get(body)}
            for body in split.train
        ]
        version = options.versions().get("lerobot", "")
        return {**condition.settings(), "version": version, "datasets": sources, "share": split.share}


MANY = "*"
"""In a body's suite: any letters of a name"""
REPLACED = {
    "data.share": "splits.NAME.share",
    "data.episodes": "splits.NAME.episodes",
    "data.weight": "splits.NAME.weights",
    "data.dataset": "bodies.NAME.dataset",
    "data.datasets": "bodies",
    "data.robot": "bodies.NAME.suite",
    "data.preset": "bodies.NAME.suite and .cameras",
    "training.seed": "seeds",
    "evaluation": "judge, episodes, noise and sampler_steps",
}
"""Keys of a recipe that every cell has of its split and seed (`Plan.recipe`) -> where a grid says them"""
OTHER = "recipe="
"""Begins a condition whose recipe is not the grid's"""


def plan(grid: Grid, folders: Sequence[Path | str] = ()) -> Plan:
    """A grid with its files read. Raises as `expanded`, `task_of` and `condition_of`."""
    grid = expanded(grid, folders)
    tasks = {name: task_of(body, folders) for name, body in grid.bodies.items()}
    return Plan(grid, tasks, {name: condition_of(grid, name, folders) for name in grid.conditions})


def expanded(grid: Grid, folders: Sequence[Path | str] = ()) -> Grid:
    """The grid with a body for each suite that a pattern stands for, in `bodies` and in `splits`.

    Raises ConfigError with every problem of `grouped`, and for one that judges a split under two names.
    """
    groups, problems = grouped(grid, folders)
    if problems:
        raise ConfigError("\n".join(f"bodies.{name}: {problem}" for name, problem in problems.items()))
    members = {name: tuple(group) for name, group in groups.items()}
    bodies = {name: body for group in groups.values() for name, body in group.items()}
    splits = {
        name: dataclasses.replace(
            split,
            train=tuple(body for group in split.train for body in members[group]),
            judge=tuple(body for group in split.judge for body in members[group]),
            episodes={body: n for group, n in split.episodes.items() for body in members[group]},
            weights={body: n for group, n in split.weights.items() for body in members[group]},
        )
        for name, split in grid.splits.items()
    }
    for name, split in splits.items():
        suites = [bodies[body].suite for body in split.judge]
        if twice := [body for body in split.judge if suites.count(bodies[body].suite) > 1]:
            raise ConfigError(f"splits.{name}.judge: '{twice[0]}' is judged under several names; give it one")
    return dataclasses.replace(grid, bodies=bodies, splits=splits)


def grouped(
    grid: Grid, folders: Sequence[Path | str] = ()
) -> tuple[dict[str, dict[str, Body]], dict[str, str]]:
    """By the grid's names the bodies that each stands for, and what is wrong with a pattern: too few suites
    of such a name, or bodies that are there already.
    """
    groups: dict[str, dict[str, Body]] = {}
    problems: dict[str, str] = {}
    for name, body in grid.bodies.items():
        pattern, colon, task = body.suite.partition(":")
        if MANY not in pattern:
            groups[name] = {name: body}
            continue
        fitting = fnmatch.filter(dropin.available("suites", folders), pattern)
        if not fitting or len(fitting) < body.count:
            asked = f", {body.count} are asked for" if body.count else ""
            searched = ", ".join(map(str, dropin.search_path("suites", folders)))
            problems[name] = (
                f"{count(len(fitting), 'suite')} of '{pattern}'{asked}: `morph-vla robots vary ... --suites` "
                f"draws more; MORPH_VLA_PATH says where they are (searched {searched})"
            )
        groups[name] = {
            suite: Body(f"{suite}{colon}{task}", body.dataset.replace(MANY, suite), body.cameras)
            for suite in fitting[: body.count or None]
        }
    known: set[str] = set()
    for name, group in groups.items():
        if twice := known & {*group}:
            problems[name] = f"{', '.join(sorted(twice))}: another body has that name"
        known |= {*group}
    return groups, problems


def condition_of(grid: Grid, name: str, folders: Sequence[Path | str] = ()) -> Recipe | Training:
    """The recipe of a condition, before split and seed; of one that LeRobot trains, what it is asked for.

    Raises ConfigError with its problems, the nearest valid key or variant named.
    """
    recipe, items = grid.recipe, grid.conditions[name]
    if options.is_theirs(items):
        held_out = recipes.load(recipe, grid.overrides, folders).data.held_out
        return options.parsed(items, held_out)
    if items and items[0].startswith(OTHER):
        recipe, items = items[0].removeprefix(OTHER), items[1:]
    bare = recipes.load(recipe, grid.overrides, folders)
    changes = [word for item in items for word in _spelled(recipe, item, bare)]
    return recipes.load(recipe, [*grid.overrides, *changes], folders)


def _spelled(recipe: str, item: str, bare: Recipe) -> Sequence[str]:
    """A condition's item as overrides of the recipe, which is `bare` without it."""
    if item.startswith(ablations.MARK):
        return recipes.changes_of(recipe, item.removeprefix(ablations.MARK), bare)
    return [item]


def task_of(body: Body, folders: Sequence[Path | str] = ()) -> Suite | EnvironmentSuite:
    """The task of a body. Raises MorphVlaError for an unknown suite, and for one of several tasks."""
    suite = body.suite
    task, *others = load_tasks(suite, (), folders)
    if others:
        several = ", ".join(f"{suite}:{each.task_name}" for each in (task, *others))
        raise MorphVlaError(f"suite '{suite}' has {len(others) + 1} tasks; name one of {several}")
    return task


def digest(settings: dict[str, Any]) -> str:
    """SHA-256 of a cell's settings: two records that share it measured the same thing."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def as_read_now(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A record's settings as this version writes them: keys that it has and they lack hold their defaults.

    A recipe that this version cannot read stays as it is, and is another one.
    """
    try:
        recipe = typed_yaml.of_plain(settings.get("recipe"), Recipe, "recipe")
    except ConfigError:
        return dict(settings)
    return {**settings, "recipe": to_plain(recipe)}


def is_seen(grid: Grid, split: str, body: str) -> bool:
    """Whether a body is trained on in a split, be it under another name (patterns replaced in `grid`)."""
    return grid.bodies[body].suite in {grid.bodies[name].suite for name in grid.splits[split].train}


def _problems(grid: Grid) -> Iterator[str]:
    """What is wrong with the names and numbers of a grid."""
    for kind in ("conditions", "bodies", "splits", "seeds"):
        if not getattr(grid, kind):
            yield f"{kind}: none are given"
    for kind in ("conditions", "bodies", "splits"):
        for name in getattr(grid, kind):
            if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name[0] == ".":
                yield f"{kind}: '{name}' names files; expected letters, digits, '-', '_' and '.'"
    for name, items in {"overrides": grid.overrides, **grid.conditions}.items():
        place = name if items is grid.overrides else f"conditions.{name}"
        yield from () if options.is_theirs(items) else _replaced(place, items)
    for name, body in grid.bodies.items():
        yield from _problems_of_body(f"bodies.{name}", body)
    if len(set(grid.seeds)) < len(grid.seeds):
        yield "seeds: one is given twice"
    if grid.episodes < 1:
        yield f"episodes: must be at least 1, not {grid.episodes}"
    yield from (f"seeds: must be at least 0, not {seed}" for seed in grid.seeds if seed < 0)
    for name, hypothesis in grid.hypotheses.items():
        yield from _problems_of_hypothesis(grid, f"hypotheses.{name}", hypothesis)
    if not 0 <= grid.margin <= 1:
        yield f"margin: a difference of success rates is from 0 to 1 (0.05 is 5 points), not {grid.margin:g}"
    steps, noise = partial(Sampler, steps=grid.sampler_steps), partial(Sampler, noise=grid.noise)
    for key, sampler in (("sampler_steps", steps), ("noise", noise)):
        try:
            sampler()
        except MorphVlaError as error:
            yield f"{key}: {error}"
    for name, split in grid.splits.items():
        yield from _problems_of_split(grid, f"splits.{name}", split)
    for name in grid.primary:
        yield from _unknown("primary", "split", name, grid.splits)
    if grid.hypotheses and not grid.primary:
        yield "primary: name the splits that the hypotheses are tested on"


def _replaced(place: str, items: Sequence[str]) -> Iterator[str]:
    """Overrides that every cell would lose: two conditions that differ in one alone would be the same."""
    for item in items:
        key = item.partition("=")[0]
        for replaced, where in REPLACED.items():
            if key == replaced or key.startswith(f"{replaced}."):
                yield f"{place}: {key} is of no condition, every cell has its own; a grid says it in {where}"


def _problems_of_hypothesis(grid: Grid, place: str, hypothesis: Hypothesis) -> Iterator[str]:
    for key, condition in (("better", hypothesis.better), ("than", hypothesis.than)):
        yield from _unknown(f"{place}.{key}", "condition", condition, grid.conditions)
    if hypothesis.better == hypothesis.than:
        yield f"{place}: a condition is not better than itself"
    seeds = hypothesis.more_seeds
    yield from (f"{place}.more_seeds: must be at least 0, not {seed}" for seed in seeds if seed < 0)
    if len(set(seeds)) < len(seeds) or set(seeds) & set(grid.seeds):
        yield f"{place}.more_seeds: one is given twice; they come beside seeds"


def _problems_of_body(place: str, body: Body) -> Iterator[str]:
    if body.count < 0:
        yield f"{place}.count: must be at least 0, not {body.count}"
    if MANY in body.suite and body.dataset and MANY not in body.dataset:
        yield f"{place}.dataset: needs '{MANY}', which stands for the name of each body"
    if MANY not in body.suite and (body.count or MANY in body.dataset):
        yield f"{place}: '{MANY}' and count are for several bodies, whose suite is a pattern ('arm_{MANY}')"


def _problems_of_split(grid: Grid, place: str, split: Split) -> Iterator[str]:
    for key in ("train", "judge"):
        names = getattr(split, key)
        if not names:
            yield f"{place}.{key}: no body is given"
        if len(set(names)) < len(names):
            yield f"{place}.{key}: a body is given twice"
        for name in names:
            yield from _unknown(f"{place}.{key}", "body", name, grid.bodies)
    for name in split.train:
        if name in grid.bodies and not grid.bodies[name].dataset:
            yield f"{place}.train: body '{name}' has no dataset; name one in bodies.{name}"
    for key in ("episodes", "weights"):
        for name, value in getattr(split, key).items():
            yield from _unknown(f"{place}.{key}", "trained body", name, split.train)
            if not value > 0:
                yield f"{place}.{key}.{name}: must be more than 0, not {value:g}"


def _unknown(place: str, kind: str, name: str, known: Sequence[str] | dict[str, Any]) -> Iterator[str]:
    if name not in known:
        yield f"{place}: no {kind} '{name}'{nearest(name, known)} ({', '.join(known)})"
