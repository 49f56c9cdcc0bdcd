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
from morph_vla.checks import dataset as datasets
from morph_vla.checks import recipe_model as check_model
from morph_vla.checks import recipe_values as check_values
from morph_vla.checks import videos as video_problems
from morph_vla.checks.dataset import problem
from morph_vla.data import layout as layouts
from morph_vla.data import lerobot, mixture, phases, presets, versions
from morph_vla.data.layout import Layout, Rows
from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding, in_order
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
    problems: tuple[Finding, ...]

    def count(self, severity: str) -> int:
        """How many problems are of this severity."""
        return sum(finding.severity == severity for finding in self.problems)


def check(recipe: Recipe) -> Report:
    """Everything that is wrong with a recipe that has been read."""
    checked: list[Checked] = []
    problems: list[Finding] = []
    rates: dict[str, tuple[float, str]] = {}
    for index, asked in enumerate(recipe.data.sources):
        key = f"data.datasets.{index}" if recipe.data.datasets else "data"
        dataset, on_dataset = _dataset(recipe, asked, key)
        checked.append(dataset)
        problems += on_dataset
        fps = dataset.fps
        rate, first = rates.setdefault(dataset.robot, (fps, dataset.dataset)) if fps else (fps, "")
        if rate != fps:
            text = f"recorded at {fps:g} Hz, and {first} of the same robot at {rate:g} Hz"
            remedy = "a robot's actions have one pace: resample one of them, or leave it out"
            problems.append(problem("rates", "error", dataset.dataset, text, remedy))
    problems += check_model.check(recipe)
    return Report(tuple(checked), in_order(problems))


def _dataset(recipe: Recipe, asked: Dataset, key: str) -> tuple[Checked, list[Finding]]:
    problems: list[Finding] = []
    unread = Checked(key, asked.dataset, asked.robot)
    robot = None
    try:
        robot = robots.load(asked.robot)
    except MorphVlaError as error:
        remedy = "`morph-vla robots check` has more on a robot's file"
        lines = "; ".join(str(error).splitlines())
        problems.append(problem("robot", "error", f"{key}.robot", lines, remedy))
    try:
        dataset = layouts.read(versions.located(asked.dataset, fetch=False))
    except MorphVlaError as error:
        remedy = "name a LeRobot dataset's folder; `morph-vla stats USER/NAME` fetches one of the Hub"
        return unread, [*problems, problem("dataset", "error", f"{key}.dataset", str(error), remedy)]
    state, action = _keys(asked, robot)
    try:
        episodes = lerobot.chosen(dataset, asked.episodes, asked.share)
    except MorphVlaError as error:
        words = str(error), "or record more"
        return unread, [*problems, problem("share", "error", f"{key}.share", *words)]
    judged = datasets.of_values(dataset, tuple(dict.fromkeys((*state, *action))), episodes=episodes)
    problems += judged.problems
    lengths = {entry.index: entry.length for entry in judged.entries if entry.length is not None}
    if judged.rows is not None:
        indices, counts = np.unique(judged.rows.episode, return_counts=True)
        lengths |= dict(zip(indices.tolist(), counts.tolist(), strict=True))
    cameras = tuple(asked.cameras.values())
    problems += video_problems.of_cameras(dataset, judged.entries, cameras, lengths, judged.rows)
    if not asked.cameras:
        text = f"no camera of the dataset is used (it has {', '.join(dataset.cameras) or 'none'})"
        remedy = "name them with `cameras`; without one the policy is blind"
        problems.append(problem("no-cameras", "warning", f"{key}.cameras", text, remedy))
    problems += _version(dataset)
    held, on_held = _held_out(recipe, judged.entries, key)
    problems += on_held
    if judged.rows is not None and robot is not None:
        problems += _values(recipe, asked, robot, dataset, judged.rows, key)
    frames = len(judged.rows.episode) if judged.rows is not None else 0
    facts = dataset.version, len(judged.entries), held, frames, dataset.fps, dataset.robot_type
    return Checked(key, str(dataset.root), asked.robot, *facts), problems


def _keys(asked: Dataset, robot: Robot | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dataset's keys of state and action: the entry's, the robot's, or LeRobot's."""
    if robot is None:
        return asked.state or ("observation.state",), asked.action or ("action",)
    features = robot.side.features
    return asked.state or features.state, asked.action or features.action


def _version(dataset: Layout) -> Iterator[Finding]:
    if not dataset.version.startswith("v3"):
        text = f"LeRobot {dataset.version}"
        remedy = "training converts it to v3.0 once, with LeRobot's converter, into the cache folder"
        yield problem("old-version", "note", str(dataset.root), text, remedy)


def _held_out(recipe: Recipe, entries: Sequence[layouts.Entry], key: str) -> tuple[int, list[Finding]]:
    held, count = mixture.held_out(len(entries), recipe.data.held_out), len(entries)
    number = int(held.sum())
    text = f"{recipe.data.held_out:g} of {count} episode{'' if count == 1 else 's'} is {number}"
    if count and number == count:
        remedy = "no episode is left to train on: lower it, or record more"
        words = f"{key}: {text}", remedy
        return number, [problem("nothing-left", "error", "data.held_out", *words, subject=(key,))]
    if count and not number and recipe.data.held_out > 0:
        remedy = "this dataset will have no held-out loss: raise it to have one"
        words = f"{key}: {text}", remedy
        return number, [problem("nothing-held-out", "warning", "data.held_out", *words, subject=(key,))]
    return number, []


def _statistics(recipe: Recipe, asked: Dataset, robot: Robot) -> Iterator[Finding]:
    """Statistics of somebody else that are asked for and are not there, or not of what is learnt."""
    source = recipe.data.statistics
    if source == "dataset" and asked.actions != "absolute":
        text = f"a dataset's own statistics are of absolute values, and {asked.actions} ones are learnt"
        yield problem("statistics", "error", "data.statistics", text, "choose `own`", subject=(robot.name,))
    elif source not in ("own", "dataset"):
        try:
            statistics.of_file(Path(source).expanduser(), asked.robot, asked.actions, robot.names)
        except MorphVlaError as error:
            text = str(error).removeprefix("data.statistics: ")
            remedy = "`morph-vla stats --output` writes such a file"
            yield problem("statistics", "error", "data.statistics", text, remedy, subject=(robot.name,))


def _values(
    recipe: Recipe, asked: Dataset, robot: Robot, dataset: Layout, rows: Rows, key: str
) -> Iterator[Finding]:
    """What the values say against the robot, the model, the kind of actions and the prompt's length."""
    keys = dict(zip(("state", "action"), _keys(asked, robot), strict=True))
    if not all(name in rows.values for names in keys.values() for name in names):
        return
    state, action = (np.concatenate([rows.values[n] for n in names], axis=1) for names in keys.values())
    width, joints = action.shape[1], len(robot.joints)
    where = str(dataset.root)
    if width != joints:
        has = f"robot '{robot.name}' has {joints} joints ({', '.join(robot.names)})"
        text = f"actions have {width} values, {has}"
        remedy = "choose the robot that was recorded, or its joints with `joints` in a side file"
        yield problem("action-width", "error", where, text, remedy, subject=(robot.name,))
    if width > recipe.model.action_dim:
        text = f"actions have {width} values, the model {recipe.model.action_dim}"
        yield problem("model-width", "error", "model.action_dim", text, "raise it", subject=(where,))
    plugin = recipe.model.morphology
    if plugin is not None and joints > plugin.max_joints:
        text = f"robot '{robot.name}' has {joints} joints, the model room for {plugin.max_joints}"
        key_of = "model.morphology.max_joints"
        yield problem("max-joints", "error", key_of, text, "raise it", subject=(robot.name,))
    if asked.actions != "absolute" and state.shape[1] != width:
        text = (
            f"{asked.actions} actions are differences from the state, which has {state.shape[1]} values "
            f"where an action has {width}"
        )
        remedy = "learn absolute ones, or name other keys with `state`"
        yield problem("state-width", "error", f"{key}.actions", text, remedy)
    try:
        told = presets.as_recorded(robot, asked.unit, asked.gripper)
        action = presets.targets(robot, asked.recorded, asked.step, state, action)
    except MorphVlaError as error:
        remedy = "correct unit, gripper or recorded of this dataset"
        yield problem("units", "error", key, str(error), remedy)
        return
    names = {"action": dataset.names(keys["action"]), "observation.state": dataset.names(keys["state"])}
    yield from check_values.played(told, where, names, action, state, rows, dataset.fps, asked.actions)
    yield from check_values.kinds(asked.actions, robot, where, action, state, rows, dataset.fps)
    yield from check_values.still(robot, where, names, action, state, recipe.data.degenerate)
    yield from _statistics(recipe, asked, robot)
    if asked.phases != phases.AS_RECORDED and width == joints:
        last = np.searchsorted(rows.episode, rows.episode, side="right") - 1
        try:
            ahead = phases.of_robot(robot, presets.brought(robot, told, action), last)
            phases.drawn(np.arange(len(last)), ahead, asked.phases)
        except MorphVlaError as error:
            yield problem("phases", "error", f"{key}.phases", f"{where}: {error}", "leave it out")
    numbers = [] if rows.task is None else np.unique(rows.task).tolist()
    tasks = {number: dataset.tasks.get(number, "") for number in numbers}
    yield from check_model.prompts(recipe, where, state, rows, tasks)
