"""A grid held against recipes, suites, datasets and robots before hours are spent; nothing is trained."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax

from morph_vla import policies, robots
from morph_vla.data import space
from morph_vla.errors import MorphVlaError
from morph_vla.evidence import fits, theirs
from morph_vla.evidence.grid import Body, Cell, Grid, Plan, condition_of, digest, grouped, plan, task_of
from morph_vla.findings import Finding, Severity, Source, errors, in_order, tally
from morph_vla.hosts.lerobot import options
from morph_vla.hosts.lerobot.options import Training
from morph_vla.recipes.keys import Recipe
from morph_vla.results.values import mapping
from morph_vla.wording import table

Code = Literal["body", "suite", "dataset", "robot", "condition", "parameters"]
ALIKE = 0.01  # a difference of parameters that needs no word


@dataclass(frozen=True)
class Checked:
    """What was found, and the parameters of each condition."""

    findings: tuple[Finding, ...]
    parameters: dict[str, int]

    def __str__(self) -> str:
        first = next(iter(self.parameters.values()), 1)
        rows = [(name, f"{n:,}", f"{n / first - 1:+.1%}") for name, n in self.parameters.items()]
        head = ("condition", "parameters", "to the first")
        of_conditions = table(head, rows, right=(1, 2)) if rows else ()
        return "\n".join([*map(str, self.findings), *of_conditions, tally(self.findings)])


def check(grid: Grid, folders: Sequence[Path | str] = ()) -> Checked:
    """Every problem of a grid: a suite, dataset or robot that is not there, a condition that makes no recipe,
    and what a training or an evaluation would refuse (`fits`).

    A condition whose parameters differ from the first one's by more than 1% is a warning.
    """
    groups, problems = grouped(grid, folders)
    findings = [_finding("body", f"bodies.{name}", problem) for name, problem in problems.items()]
    for name, body in {name: body for group in groups.values() for name, body in group.items()}.items():
        findings += _of_body(name, body, folders)
    conditions: dict[str, Recipe | Training] = {}
    for condition in grid.conditions:
        try:
            conditions[condition] = asked = condition_of(grid, condition, folders)
            if isinstance(asked, Training):
                options.check(asked)
        except MorphVlaError as error:
            findings += (
                _finding("condition", f"conditions.{condition}", line) for line in str(error).splitlines()
            )
    recipes = {name: asked for name, asked in conditions.items() if isinstance(asked, Recipe)}
    parameters = {name: _count(recipe) for name, recipe in recipes.items()}
    if not findings:
        planned = plan(grid, folders)
        narrow = {name: list(_of_robots(planned, name, recipe)) for name, recipe in recipes.items()}
        findings += [finding for of_condition in narrow.values() for finding in of_condition]
        findings += _alike(planned, list(recipes))
        findings += _of_splits(planned, [name for name, of_condition in narrow.items() if not of_condition])
        for name, asked in conditions.items():
            if isinstance(asked, Training):
                findings += _of_theirs(planned, name, asked, parameters)
    parameters = {name: parameters[name] for name in grid.conditions if name in parameters}
    first = next(iter(parameters.values()), 0)
    for condition, number in parameters.items():
        if abs(number - first) > ALIKE * first:
            words = f"{number:,} parameters, the first condition has {first:,}; say so beside its numbers"
            findings.append(_finding("parameters", f"conditions.{condition}", words, "warning"))
    return Checked(in_order(findings), parameters)


def require_sound(grid: Grid, folders: Sequence[Path | str] = ()) -> None:
    """Raise MorphVlaError with every error of `check`, a line each."""
    if problems := errors(check(grid, folders).findings):
        raise MorphVlaError("\n".join(map(str, problems)))


def _of_body(name: str, body: Body, folders: Sequence[Path | str]) -> Iterator[Finding]:
    """Its suite and its dataset."""
    where = f"bodies.{name}"
    rate = None  # unknown, as its suite is
    try:
        rate = task_of(body, folders).control_rate
    except MorphVlaError as error:
        yield _finding("suite", where, str(error))
    if not body.dataset:
        return
    path = Path(body.dataset) / "meta" / "info.json"
    try:
        fps = mapping(json.loads(path.read_text(encoding="utf-8"))).get("fps")
    except OSError:
        made = f"`morph-vla record {body.suite} -o {body.dataset}` makes one"
        yield _finding("dataset", where, f"no dataset in {body.dataset}: {made}")
        return
    except (ValueError, RecursionError) as error:
        yield _finding("dataset", where, f"{path} cannot be read: {error}")
        return
    if rate is not None and fps != rate:
        yield _finding("dataset", where, f"{body.dataset} has {fps} frames a second, the suite {rate:g}")


def _of_robots(planned: Plan, condition: str, recipe: Recipe) -> Iterator[Finding]:
    """Robots that a condition's model has no places for."""
    model = recipe.model
    for task in planned.tasks.values():
        robot = robots.load(task.robot)
        try:
            space.check_width(robot, recipe.data.space, model.action_dim)
            policies.of(model).body(model, robot)
        except MorphVlaError as error:
            yield _finding("robot", f"conditions.{condition}", str(error))


def _of_splits(planned: Plan, among: Sequence[str]) -> Iterator[Finding]:
    """What a training or an evaluation of these conditions would refuse, and of which it would."""
    known: fits.Parts = {}
    conditions: dict[Finding, list[str]] = {}
    for split in planned.grid.splits:
        for condition in among:
            for finding in fits.unfit(planned, condition, split, known):
                conditions.setdefault(finding, []).append(condition)
    for finding, of_it in conditions.items():
        some = len(set(of_it)) < len(among)
        which = f"of {', '.join(dict.fromkeys(of_it))}" if some else ""
        yield dataclasses.replace(finding, consequence=which)


def _alike(planned: Plan, names: Sequence[str]) -> Iterator[Finding]:
    """Conditions whose cells are those of an earlier one: a difference of nothing would be reported."""
    seed, known = planned.grid.seeds[0], dict[str, str]()
    split = next(iter(planned.grid.splits))
    for name in names:
        other = known.setdefault(digest(planned.settings(Cell(seed, split, name))), name)
        if other != name:
            words = f"its recipe is that of '{other}', to the last key; leave one of them out"
            yield _finding("condition", f"conditions.{name}", words)


def _of_theirs(
    planned: Plan, condition: str, asked: Training, parameters: dict[str, int]
) -> Iterator[Finding]:
    """What LeRobot would refuse of a condition; `parameters` gets its number of them, where it says so."""
    where = f"conditions.{condition}"
    problems = [
        finding for split in planned.grid.splits for finding in theirs.unfit(planned, condition, split)
    ]
    yield from dict.fromkeys(problems)
    if planned.grid.overrides:
        words = f"overrides are of recipes: LeRobot is not told {', '.join(planned.grid.overrides)}"
        yield _finding("condition", where, words, "warning")
    if errors(problems):
        return
    try:
        if number := theirs.parameters(planned, asked):
            parameters[condition] = number
    except MorphVlaError as error:
        yield _finding("condition", where, str(error))


def _count(recipe: Recipe) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(policies.shapes(recipe.model)))


def _finding(code: Code, where: str, words: str, severity: Severity = "error") -> Finding:
    return Finding(code, severity, Source(where), (), words, "", "")
