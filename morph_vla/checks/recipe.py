"""A recipe held against its data, robots, tokenizer and weights before anything is trained, in seconds.

`check` returns every problem it finds, and raises for none. Values are read, videos are known by their
headers, parameters by their names: no video is decoded, nothing converted, downloaded or loaded. Of
pictures within tables a few are decoded.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from morph_vla import robots
from morph_vla.checks import dataset as problems
from morph_vla.checks import recipe_model as check_model
from morph_vla.checks import recipe_values as check_values
from morph_vla.checks import videos as video_problems
from morph_vla.checks.dataset import Problem
from morph_vla.data import layout as layouts
from morph_vla.data import lerobot, mixture, phases, presets, versions
from morph_vla.data.layout import Layout, Rows
from morph_vla.errors import MorphVlaError
from morph_vla.recipes.recipe import Dataset, Recipe
from morph_vla.robots.robot import Robot
from morph_vla.training import statistics


@dataclasses.dataclass(frozen=True)
class Checked:
    """One dataset of the recipe, as far as it could be read."""

    key: str  # in the recipe: data, or data.datasets.1
    dataset: str
    robot: str
    version: str = ""
    episodes: int = 0
    held_out: int = 0
    frames: int = 0
    fps: float = 0.0
    recorded_on: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """What there is, and what is wrong with it: errors first."""

    datasets: tuple[Checked, ...]
    problems: tuple[Problem, ...]

    def count(self, severity: str) -> int:
        """How many problems are of this severity."""
        return sum(problem.severity == severity for problem in self.problems)


def check(recipe: Recipe) -> Report:
    """Everything that is wrong with a recipe that has been read."""
    checked: list[Checked] = []
    found: list[Problem] = []
    rates: dict[str, tuple[float, str]] = {}
    for index, asked in enumerate(recipe.data.sources):
        key = f"data.datasets.{index}" if recipe.data.datasets else "data"
        one, said = _dataset(recipe, asked, key)
        checked.append(one)
        found += said
        rate, first = rates.setdefault(one.robot, (one.fps, one.dataset)) if one.fps else (one.fps, "")
        if rate != one.fps:
            text = f"recorded at {one.fps:g} Hz, and {first} of the same robot at {rate:g} Hz"
            remedy = "a robot's actions have one pace: resample one of them, or leave it out"
            found.append(Problem("error", one.dataset, text, remedy))
    found += check_model.check(recipe)
    order = {"error": 0, "warning": 1, "note": 2}
    kept = dict.fromkeys(sorted(found, key=lambda problem: order[problem.severity]))
    return Report(tuple(checked), tuple(kept))


def _dataset(recipe: Recipe, asked: Dataset, key: str) -> tuple[Checked, list[Problem]]:
    said: list[Problem] = []
    one = Checked(key, asked.dataset, asked.robot)
    robot = None
    try:
        robot = robots.load(asked.robot)
    except MorphVlaError as error:
        remedy = "`morph-vla robots check` has more on a robot's file"
        said.append(Problem("error", f"{key}.robot", str(error), remedy))
    try:
        found = layouts.read(versions.located(asked.dataset, fetch=False))
    except MorphVlaError as error:
        remedy = "name a LeRobot dataset's folder; `morph-vla stats USER/NAME` fetches one of the Hub"
        return one, [*said, Problem("error", f"{key}.dataset", str(error), remedy)]
    state, action = _keys(asked, robot)
    try:
        episodes = lerobot.chosen(found, asked.episodes, asked.share)
    except MorphVlaError as error:
        return one, [*said, Problem("error", f"{key}.share", str(error), "or record more")]
    judged = problems.of_values(found, tuple(dict.fromkeys((*state, *action))), episodes=episodes)
    said += judged.problems
    lengths = {entry.index: entry.length for entry in judged.entries if entry.length is not None}
    if judged.rows is not None:
        indices, counts = np.unique(judged.rows.episode, return_counts=True)
        lengths |= dict(zip(indices.tolist(), counts.tolist(), strict=True))
    cameras = tuple(asked.cameras.values())
    said += video_problems.of_cameras(found, judged.entries, cameras, lengths, judged.rows)
    if not asked.cameras:
        text = f"no camera of the dataset is used (it has {', '.join(found.cameras) or 'none'})"
        remedy = "name them with `cameras`; without one the policy is blind"
        said.append(Problem("warning", f"{key}.cameras", text, remedy))
    said += _version(found)
    held, problem = _held_out(recipe, judged.entries, key)
    said += problem
    if judged.rows is not None and robot is not None:
        said += _values(recipe, asked, robot, found, judged.rows, key)
    frames = len(judged.rows.episode) if judged.rows is not None else 0
    facts = found.version, len(judged.entries), held, frames, found.fps, found.robot_type
    return Checked(key, str(found.root), asked.robot, *facts), said


def _keys(asked: Dataset, robot: Robot | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dataset's keys of state and action: the entry's, the robot's, or LeRobot's."""
    if robot is None:
        return asked.state or ("observation.state",), asked.action or ("action",)
    features = robot.side.features
    return asked.state or features.state, asked.action or features.action


def _version(found: Layout) -> Iterator[Problem]:
    if not found.version.startswith("v3"):
        text = f"LeRobot {found.version}"
        remedy = "training converts it to v3.0 once, with LeRobot's converter, into the cache folder"
        yield Problem("note", str(found.root), text, remedy)


def _held_out(recipe: Recipe, entries: Sequence[layouts.Entry], key: str) -> tuple[int, list[Problem]]:
    held, count = mixture.held_out(len(entries), recipe.data.held_out), len(entries)
    number = int(held.sum())
    text = f"{recipe.data.held_out:g} of {count} episode{'' if count == 1 else 's'} is {number}"
    if count and number == count:
        remedy = "no episode is left to train on: lower it, or record more"
        return number, [Problem("error", "data.held_out", f"{key}: {text}", remedy)]
    if count and not number and recipe.data.held_out > 0:
        remedy = "this dataset will have no held-out loss: raise it to have one"
        return number, [Problem("warning", "data.held_out", f"{key}: {text}", remedy)]
    return number, []


def _statistics(recipe: Recipe, asked: Dataset, robot: Robot) -> Iterator[Problem]:
    """Statistics of somebody else that are asked for and are not there, or not of what is learnt."""
    source = recipe.data.statistics
    if source == "dataset" and asked.actions != "absolute":
        text = f"a dataset's own statistics are of absolute values, and {asked.actions} ones are learnt"
        yield Problem("error", "data.statistics", text, "choose `own`")
    elif source not in ("own", "dataset"):
        try:
            statistics.of_file(Path(source).expanduser(), asked.robot, asked.actions, robot.names)
        except MorphVlaError as error:
            text = str(error).removeprefix("data.statistics: ")
            remedy = "`morph-vla stats --output` writes such a file"
            yield Problem("error", "data.statistics", text, remedy)


def _values(
    recipe: Recipe, asked: Dataset, robot: Robot, found: Layout, rows: Rows, key: str
) -> Iterator[Problem]:
    """What the values say against the robot, the model, the kind of actions and the prompt's length."""
    keys = dict(zip(("state", "action"), _keys(asked, robot), strict=True))
    if not all(name in rows.values for names in keys.values() for name in names):
        return
    state, action = (np.concatenate([rows.values[n] for n in names], axis=1) for names in keys.values())
    width, joints = action.shape[1], len(robot.joints)
    where = str(found.root)
    if width != joints:
        has = f"robot '{robot.name}' has {joints} joints ({', '.join(robot.names)})"
        text = f"actions have {width} values, {has}"
        remedy = "choose the robot that was recorded, or its joints with `joints` in a side file"
        yield Problem("error", where, text, remedy)
    if width > recipe.model.action_dim:
        text = f"actions have {width} values, the model {recipe.model.action_dim}"
        yield Problem("error", "model.action_dim", text, "raise it")
    plugin = recipe.model.morphology
    if plugin is not None and joints > plugin.max_joints:
        text = f"robot '{robot.name}' has {joints} joints, the model room for {plugin.max_joints}"
        yield Problem("error", "model.morphology.max_joints", text, "raise it")
    if asked.actions != "absolute" and state.shape[1] != width:
        text = (
            f"{asked.actions} actions are differences from the state, which has {state.shape[1]} values "
            f"where an action has {width}"
        )
        yield Problem("error", f"{key}.actions", text, "learn absolute ones, or name other keys with `state`")
    try:
        told = presets.as_recorded(robot, asked.unit, asked.gripper)
        action = presets.targets(robot, asked.recorded, asked.step, state, action)
    except MorphVlaError as error:
        yield Problem("error", key, str(error), "correct unit, gripper or recorded of this dataset")
        return
    names = {"action": found.names(keys["action"]), "observation.state": found.names(keys["state"])}
    yield from check_values.played(told, where, names, action, state, rows, found.fps, asked.actions)
    yield from check_values.kinds(asked.actions, robot, where, action, state, rows, found.fps)
    yield from check_values.still(robot, where, names, action, state, recipe.data.degenerate)
    yield from _statistics(recipe, asked, robot)
    if asked.phases != phases.AS_RECORDED and width == joints:
        last = np.searchsorted(rows.episode, rows.episode, side="right") - 1
        try:
            ahead = phases.of_robot(robot, presets.brought(robot, told, action), last)
            phases.drawn(np.arange(len(last)), ahead, asked.phases)
        except MorphVlaError as error:
            yield Problem("error", f"{key}.phases", f"{where}: {error}", "leave it out")
    tasks = (
        {int(t): found.tasks.get(int(t), "") for t in np.unique(rows.task)} if rows.task is not None else {}
    )
    yield from check_model.prompts(recipe, where, state, rows, tasks)
