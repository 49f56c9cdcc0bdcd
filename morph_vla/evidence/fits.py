"""Whether a split can be trained on its datasets, and judged by its suites: asked before hours are spent.

What a checkpoint will say of its robots (`training.meaning`) follows from the datasets alone, so that the
very check that an evaluation begins with (`evaluation.fit`) can be made before there is a policy.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from morph_vla.checks import recipe as recipe_checks
from morph_vla.engines.engine import Answer, Observation
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import benchmark, fit
from morph_vla.evaluation.rollout import open_loop_at
from morph_vla.evidence.grid import Cell, Plan
from morph_vla.findings import Finding, Severity, Source, errors
from morph_vla.pi05.config import Pi05Config
from morph_vla.policies.config import ModelConfig, joint_lags, reads_poses
from morph_vla.recipes.keys import Recipe
from morph_vla.serving import policy
from morph_vla.serving.history import stride_of
from morph_vla.training import meaning
from morph_vla.training.datasets import read_parts
from morph_vla.training.part import Part
from morph_vla.wording import count

Code = Literal["dataset", "split", "unfit"]
MOST = 5  # problems of one dataset that are named
Parts = dict[tuple[str, ...], Part | tuple[str, ...]]
"""By what a dataset is read for: what was read, or why it cannot be trained on"""


@dataclasses.dataclass(frozen=True)
class Promised:
    """The policy of a cell that has not been trained, as far as `fit` asks for it."""

    robot_name: str
    trained: dict[str, Any]
    cameras: dict[str, str]
    image_size: int

    def infer(self, observation: Observation) -> Answer:
        """Nothing: it was never trained."""
        raise AssertionError("a policy that was never trained is not asked")


def unfit(planned: Plan, condition: str, split: str, known: Parts) -> Iterator[Finding]:
    """Every reason for which a condition cannot be trained in a split, or is not let into a suite of it.

    `known` keeps what was read, for the next condition or split.
    """
    grid = planned.grid
    try:
        recipe = planned.recipe(Cell(grid.seeds[0], split, condition))
    except MorphVlaError as error:
        yield _finding("split", f"splits.{split}", str(error))
        return
    read = dict(zip(grid.splits[split].train, _parts(recipe, known), strict=True))
    parts = [part for part in read.values() if isinstance(part, Part)]
    unread = {name: words for name, words in read.items() if not isinstance(words, Part)}
    for name, problems in unread.items():
        yield from (_finding("dataset", f"bodies.{name}", words) for words in problems)
    try:
        robots = meaning.of_recipe(recipe, parts) if parts else {}
    except MorphVlaError as error:
        yield _finding("split", f"splits.{split}", str(error))
        return
    for name in grid.splits[split].judge if parts else ():
        if name not in unread:
            yield from _of_suite(planned, recipe, robots, split, name)


def _parts(recipe: Recipe, known: Parts) -> Iterator[Part | tuple[str, ...]]:
    """Each dataset of a recipe, read once."""
    model = recipe.model
    for entry in recipe.data.sources:
        data = dataclasses.replace(recipe.data, datasets=(dataclasses.replace(entry, weight=1.0),))
        key = str(data), *_asked(recipe), str(reads_poses(model))
        if key not in known:
            known[key] = _read(dataclasses.replace(recipe, data=data))
        yield known[key]


def _asked(recipe: Recipe) -> tuple[str, ...]:
    """What of a recipe a dataset is held against beside its own entry; of a body what it looks back at."""
    model, history = recipe.model, None
    if isinstance(model, Pi05Config) and model.morphology is not None:
        history, model = model.morphology.history, dataclasses.replace(model, morphology=None)
    return recipe.weights, recipe.tokenizer, str(model), str(history)


def _read(recipe: Recipe) -> Part | tuple[str, ...]:
    """The one dataset of a recipe, or every reason for which it cannot be trained on."""
    if problems := errors(recipe_checks.check(recipe).problems):
        words = ["; ".join(filter(None, (p.found, p.expected, p.consequence))) for p in problems[:MOST]]
        left = len(problems) - len(words)
        return (*words, *([f"and {count(left, 'more problem')}: `morph-vla recipes check`"] if left else []))
    try:
        return read_parts(recipe)[0]
    except MorphVlaError as error:
        return (str(error),)


def _of_suite(
    planned: Plan, recipe: Recipe, robots: Mapping[str, dict[str, Any]], split: str, name: str
) -> Iterator[Finding]:
    """What the evaluation of a body would refuse, or warn of."""
    task, where = planned.tasks[name], f"splits.{split}: {name}"
    if words := _unseen_rows(recipe.model, task.control_rate):
        yield _finding("unfit", where, words)
    try:
        robot = _driven(task.robot, robots)
        trained = robots.get(robot) or meaning.unseen(robots, robot, Path("the policy"))[1]
        policy.check_poses(recipe.model, trained, f"robot '{robot}'")
        promised = Promised(robot, trained, trained["cameras"], recipe.model.image_size)
        judge = benchmark.of(task, policy=promised)
        judge.check()
        for finding in judge.findings(promised):
            yield _finding("unfit", where, fit.sentence(finding), finding.severity)
    except MorphVlaError as error:
        yield _finding("unfit", where, str(error))


def _unseen_rows(model: ModelConfig, control_rate: float) -> str:
    """Why a policy that looks back would not have been shown what it looks back at; nothing where it was."""
    stride, every = stride_of(model.lags or joint_lags(model)), open_loop_at(control_rate)
    if stride % every == 0:
        return ""
    return (
        f"the model looks back in strides of {stride} control steps and at {control_rate:g} Hz is asked "
        f"every {every} alone; its stride must be a multiple of {every}"
    )


def _driven(robot: str, robots: Mapping[str, dict[str, Any]]) -> str:
    """The robot of a suite, which may leave it out where there is one only."""
    if not robot and len(robots) > 1:
        raise MorphVlaError(f"the suite names no robot, and several are trained on: {', '.join(robots)}")
    return robot or next(iter(robots))


def _finding(code: Code, where: str, words: str, severity: Severity = "error") -> Finding:
    return Finding(code, severity, Source(where), (words,), words, "", "")
