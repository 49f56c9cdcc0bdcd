"""The cells that LeRobot trains: what of a split it is given, and what it would refuse.

LeRobot has no notion of a body: one policy is of one robot, and several recordings are one dataset to it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from morph_vla.data import layout, lerobot, mixture, versions
from morph_vla.engines.engine import Answer, Observation
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.evaluation import benchmark
from morph_vla.evidence.grid import Cell, Plan
from morph_vla.findings import Finding, Severity, Source
from morph_vla.hosts.lerobot import options, training
from morph_vla.hosts.lerobot.options import Training
from morph_vla.hosts.lerobot.training import Demonstrations, Trained
from morph_vla.suites.suite import Suite

Code = Literal["split", "condition", "unfit"]
CAMERAS = "observation.images."
COMPARED = ("dtype", "shape", "names")
"""Of a feature that several recordings have"""


@dataclass(frozen=True)
class Promised:
    """The policy of a cell that has not been trained, as far as a suite asks for it."""

    cameras: dict[str, str]

    def infer(self, observation: Observation) -> Answer:
        """Nothing: it was never trained."""
        raise AssertionError("a policy that was never trained is asked")


def train(planned: Plan, cell: Cell, folder: Path, on_report: Any) -> Trained:
    """Train a cell's policy; an interrupted training goes on. Raises as `hosts.lerobot.training.train`."""
    condition = planned.conditions[cell.condition]
    assert isinstance(condition, Training)
    parts = demonstrations(planned, condition, cell.split)
    return training.train(condition, parts, cell.seed, folder, on_report)


def demonstrations(planned: Plan, condition: Training, name: str) -> list[Demonstrations]:
    """The episodes of a split that are trained on: those that a recipe of ours would be.

    Raises MorphVlaError for a dataset that is not there or lacks an episode.
    """
    split, parts = planned.grid.splits[name], []
    for body in split.train:
        dataset = layout.read(versions.located(planned.grid.bodies[body].dataset))
        asked = tuple(range(split.episodes.get(body, 0)))
        for index in asked:
            dataset.entry(index)
        given = lerobot.chosen(dataset, asked, split.share) or [entry.index for entry in dataset.episodes]
        held = mixture.held_out(len(given), condition.held_out)
        kept = tuple(index for index, is_held in zip(given, held, strict=True) if not is_held)
        parts.append(Demonstrations(dataset.root, kept, len(dataset.episodes)))
    return parts


def unfit(planned: Plan, condition: str, name: str) -> Iterator[Finding]:
    """Every reason for which LeRobot cannot train a condition in a split, or is not let into its suites."""
    asked, where = planned.conditions[condition], f"splits.{name}"
    assert isinstance(asked, Training)
    problems = [*_of_robots(planned, name), *_of_features(planned, name)]
    if problems:
        yield from (_finding("split", where, words) for words in problems)
        return
    try:
        demonstrations(planned, asked, name)
    except MorphVlaError as error:
        yield _finding("split", where, str(error))
        return
    split = planned.grid.splits[name]
    if len(split.train) > 1 and not asked.reads_text:
        words = f"LeRobot's '{asked.policy}' is not told the task's text, and must see which of "
        words += f"{len(split.train)} it is at; say so beside its numbers"
        yield _finding("condition", where, words, "warning")
    features = _features(planned, next(iter(split.train)))
    promised = Promised({key.removeprefix(CAMERAS): key for key in features if key.startswith(CAMERAS)})
    for body in split.judge:
        yield from _of_suite(planned, body, f"{where}: {body}", promised)


def parameters(planned: Plan, condition: Training) -> int | None:
    """Of a condition's policy, on the first recording; None where only LeRobot's trainer finds out."""
    split = next(iter(planned.grid.splits.values()))
    return options.parameters(condition, Path(planned.grid.bodies[split.train[0]].dataset))


def _of_robots(planned: Plan, name: str) -> Iterator[str]:
    """Why a policy without a body cannot be of a split's robots, or of its shares."""
    split, tasks = planned.grid.splits[name], planned.tasks
    robots = {body: tasks[body].robot for body in split.train}
    if len(set(robots.values())) > 1:
        those = ", ".join(f"{robot} ({body})" for body, robot in robots.items())
        yield f"LeRobot trains a policy of one robot, and the split has several: {those}"
        return
    robot = next(iter(robots.values()))
    for body in split.judge:
        if tasks[body].robot != robot:
            yield f"a policy of LeRobot's drives '{robot}' alone, and '{body}' is of '{tasks[body].robot}'"
    if len({split.weights.get(body, 1.0) for body in split.train}) > 1:
        yield "LeRobot draws all frames alike and knows no weights; leave them out, or the condition"


def _of_features(planned: Plan, name: str) -> Iterator[str]:
    """Why the recordings of one robot are no one dataset."""
    first, *others = planned.grid.splits[name].train
    robot = planned.tasks[first].robot
    for other in (body for body in others if planned.tasks[body].robot == robot):
        one, two = _info(planned, first), _info(planned, other)
        differing = [key for key in ("fps", "robot_type") if one.get(key) != two.get(key)]
        a, b = _features(planned, first), _features(planned, other)
        differing += [key for key in sorted({*a, *b}) if _compared(a.get(key)) != _compared(b.get(key))]
        if differing:
            both = f"the recordings of '{first}' and '{other}' differ in {', '.join(differing)}"
            yield f"LeRobot trains on one dataset, and {both}"


def _of_suite(planned: Plan, body: str, where: str, promised: Promised) -> Iterator[Finding]:
    """What the evaluation of a body would refuse."""
    task = planned.tasks[body]
    cameras = list(task.cameras if isinstance(task, Suite) else task.images)
    for camera in promised.cameras:
        if camera not in cameras:
            words = f"the recordings have a camera '{camera}', and the suite none{nearest(camera, cameras)}"
            yield _finding("unfit", where, words)
    try:
        benchmark.of(task, policy=promised).check()
    except MorphVlaError as error:
        yield _finding("unfit", where, str(error))


def _info(planned: Plan, body: str) -> Mapping[str, Any]:
    path = Path(planned.grid.bodies[body].dataset) / "meta" / "info.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _features(planned: Plan, body: str) -> Mapping[str, Any]:
    return _info(planned, body)["features"]


def _compared(feature: Mapping[str, Any] | None) -> Sequence[Any]:
    return [] if feature is None else [feature.get(key) for key in COMPARED]


def _finding(code: Code, where: str, words: str, severity: Severity = "error") -> Finding:
    return Finding(code, severity, Source(where), (words,), words, "", "")
