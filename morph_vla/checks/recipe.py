"""A recipe held against its data, robots, tokenizer and weights before anything is trained, in seconds.

`check` returns every problem it finds, and raises for none. Values are read, videos are known by their
headers, parameters by their names: nothing is converted, downloaded or loaded. A few pictures of every
camera are decoded.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from morph_vla import robots
from morph_vla.checks import cameras, recipe_model, recipe_values, same_robot
from morph_vla.checks import dataset as datasets
from morph_vla.checks.rules import problem
from morph_vla.data import layout as layouts
from morph_vla.data import lerobot, mixture, phases, presets, space, versions
from morph_vla.data.layout import Layout, Rows
from morph_vla.errors import MorphVlaError
from morph_vla.files import remote
from morph_vla.files.dropin import name_of
from morph_vla.files.home import expanded
from morph_vla.findings import Finding, in_order, tally
from morph_vla.policies.config import reads_numbers
from morph_vla.recipes.keys import Dataset, Recipe
from morph_vla.robots import tool
from morph_vla.robots.robot import Robot
from morph_vla.training import statistics
from morph_vla.wording import count


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

    def __str__(self) -> str:
        """What there is, on one line."""
        head = f"{self.key}: {self.dataset}: "
        if not self.version:
            return f"{head}not read; robot {self.robot}"
        episodes = f"{self.episodes} episodes ({self.held_out} held out)"
        recorded = f", recorded on '{self.recorded_on}'" if self.recorded_on else ""
        size = f"{episodes}, {self.frames} frames at {self.fps:g} Hz{recorded}"
        return f"{head}LeRobot {self.version}, {size}; robot {self.robot}"


@dataclasses.dataclass(frozen=True)
class Report:
    """What there is, and what is wrong with it: errors first."""

    datasets: tuple[Checked, ...]
    problems: tuple[Finding, ...]

    def __str__(self) -> str:
        """A line for each dataset, then every problem."""
        problems = ("", *self.problems) if self.problems else ()
        return "\n".join([*map(str, (*self.datasets, *problems)), f"\n{tally(self.problems)}"])


def check(recipe: Recipe) -> Report:
    """Everything that is wrong with a recipe that has been read."""
    checked: list[Checked] = []
    problems: list[Finding] = []
    rates: dict[str, tuple[float, str]] = {}
    chosen: list[tuple[Path, dict[int, bool]]] = []
    for index, asked in enumerate(recipe.data.sources):
        key = f"data.datasets.{index}" if recipe.data.datasets else "data"
        dataset = _dataset(recipe, asked, key, problems, chosen)
        checked.append(dataset)
        fps = dataset.fps
        rate, first = rates.setdefault(dataset.robot, (fps, dataset.dataset)) if fps else (fps, "")
        if rate != fps:
            found = f"recorded at {fps:g} Hz, and {first} of the same robot at {rate:g} Hz"
            problems.append(problem("rates", dataset.dataset, found))
    problems += _of_one_robot(recipe, chosen)
    if twice := mixture.held_otherwise(chosen):
        place, episode = twice
        found = f"episode {episode} of {chosen[place][0]} is held out by one entry and trained on by another"
        problems.append(problem("held-out-twice", "data.held_out", found, remedy=mixture.HELD_TWICE))
    problems += recipe_model.optimizer(recipe)
    problems += [*_space(recipe), *recipe_model.tokenizer(recipe), *recipe_model.weights(recipe)]
    problems += [*recipe_model.suites(recipe), *recipe_model.memory(recipe)]
    return Report(tuple(checked), in_order(problems))


def _of_one_robot(recipe: Recipe, chosen: Sequence[tuple[Path, dict[int, bool]]]) -> Iterator[Finding]:
    """Cameras that two entries of one robot name differently, and episodes that two of them read."""
    cameras: dict[tuple[str, str], str] = {}
    for index, source in enumerate(recipe.data.sources):
        for slot, camera in source.cameras.items():
            first = cameras.setdefault((name_of("robots", source.robot), slot), camera)
            if first != camera:
                found = (
                    f"'{slot}' of robot '{source.robot}' is '{camera}', and '{first}' in an entry before it"
                )
                yield problem("cameras-differ", f"data.datasets.{index}.cameras", found, subject=(slot,))
    seen: dict[tuple[Path, int], None] = {}
    for root, episodes in chosen:
        if again := [episode for episode in episodes if (root, episode) in seen]:
            found = f"two entries read {count(len(again), 'episode')} of {root}"
            yield problem("read-twice", "data.datasets", found)
        seen.update(dict.fromkeys((root, episode) for episode in episodes))


def _dataset(
    recipe: Recipe,
    asked: Dataset,
    key: str,
    problems: list[Finding],
    chosen: list[tuple[Path, dict[int, bool]]],
) -> Checked:
    """One dataset of the recipe; what is wrong with it is added to `problems`.

    Its folder, and which of its episodes are held out, are added to `chosen`.
    """
    unread = Checked(key, asked.dataset, asked.robot)
    robot = None
    try:
        robot = robots.load(asked.robot)
    except MorphVlaError as error:
        problems.append(problem("robot", f"{key}.robot", "; ".join(str(error).splitlines())))
    try:
        dataset = layouts.read(versions.located(asked.dataset, fetch=False))
    except MorphVlaError as error:
        problems.append(problem("dataset", f"{key}.dataset", str(error)))
        return unread
    usual = presets.find(asked.preset).robot if asked.preset else asked.robot
    if asked.robot != usual:
        found = f"robot: {asked.robot}, where the preset '{asked.preset}' is of {usual}"
        problems.append(problem("preset-robot", key, found))
    problems += _other_robot(asked.robot, dataset.robot_type, key)
    state, action = _keys(asked, robot)
    try:
        episodes = lerobot.chosen(dataset, asked.episodes, asked.share)
    except MorphVlaError as error:
        problems.append(problem("share", f"{key}.share", str(error)))
        return unread
    on_numbers = reads_numbers(recipe.model)
    more = (lerobot.ENVIRONMENT,) if on_numbers else ()
    keys = dict.fromkeys((*state, *action, *more))
    judged = datasets.of_values(dataset, tuple(keys), episodes=episodes)
    problems += judged.problems
    rows, entries = judged.rows, judged.entries
    lengths = {entry.index: entry.length for entry in entries if entry.length is not None}
    if rows is not None:
        indices, counts = np.unique(rows.episode, return_counts=True)
        lengths |= dict(zip(indices.tolist(), counts.tolist(), strict=True))
    states = _states(rows, state)
    problems += cameras.of_cameras(dataset, entries, tuple(asked.cameras.values()), lengths, rows, states)
    if not (asked.cameras or on_numbers):
        found = f"no camera of the dataset is used (it has {', '.join(dataset.cameras) or 'none'})"
        problems.append(problem("no-cameras", f"{key}.cameras", found))
    if not dataset.version.startswith("v3"):
        problems.append(problem("old-version", str(dataset.root), f"LeRobot {dataset.version}"))
    is_held = mixture.held_out(len(entries), recipe.data.held_out).tolist()
    chosen.append((dataset.root, {entry.index: held for entry, held in zip(entries, is_held, strict=True)}))
    held_out = sum(is_held)
    problems += _held_out(recipe.data.held_out, len(entries), held_out, key)
    if rows is not None and robot is not None:
        problems += _values(recipe, asked, robot, dataset, rows, key)
    frames = len(rows.episode) if rows is not None else 0
    facts = dataset.version, len(entries), held_out, frames, dataset.fps, dataset.robot_type
    return Checked(key, str(dataset.root), asked.robot, *facts)


def _states(rows: Rows | None, keys: Sequence[str]) -> Float[np.ndarray, "n j"] | None:
    """The values of these keys side by side; None where one could not be read."""
    if rows is None or any(key not in rows.values for key in keys):
        return None
    return np.concatenate([rows.values[key] for key in keys], axis=1)


def _other_robot(robot: str, recorded_on: str, key: str) -> Iterator[Finding]:
    """A dataset that says it was recorded on another robot than the entry's."""
    if not same_robot.says_which(recorded_on) or same_robot.same(name_of("robots", robot), recorded_on):
        return
    found = f"recorded on '{recorded_on}', and the entry's robot is '{robot}'"
    if ours := same_robot.known(recorded_on, robots.available()):
        remedy = f"name robot: {ours}"
    else:
        remedy = f"add the URDF of '{recorded_on}' with `morph-vla robots add` and name that robot"
    yield problem(
        "other-robot", key, found, subject=(robot,), remedy=f"{remedy}, or go on if they are one robot"
    )


def _keys(asked: Dataset, robot: Robot | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dataset's keys of state and action: the entry's, the robot's, or LeRobot's."""
    if robot is None:
        return asked.state or ("observation.state",), asked.action or ("action",)
    features = robot.side.features
    return asked.state or features.state, asked.action or features.action


def _held_out(share: float, episodes: int, held_out: int, key: str) -> Iterator[Finding]:
    found = f"{key}: {share:g} of {count(episodes, 'episode')} is {held_out}"
    if episodes and held_out == episodes:
        yield problem("nothing-left", "data.held_out", found, subject=(key,))
    elif episodes and not held_out and share > 0:
        yield problem("nothing-held-out", "data.held_out", found, subject=(key,))


def _space(recipe: Recipe) -> Iterator[Finding]:
    """Poses of tools that are not counted alike on every robot, or too coarsely."""
    if recipe.data.space == "joints":
        return
    if recipe.data.statistics == "own":
        found = "own counts one motion by another number on each robot, and an unseen robot cannot be driven"
        yield problem("tool-own", "data.statistics", found)
    elif absolute := [source.robot for source in recipe.data.sources if source.actions == "absolute"]:
        found = f"absolute poses ({', '.join(dict.fromkeys(absolute))}) are counted over 1 m either way"
        yield problem("tool-absolute", "data.actions", f"{found}, moves of a chunk over 0.2 m")


def _statistics(recipe: Recipe, asked: Dataset, robot: Robot) -> Iterator[Finding]:
    """Statistics of somebody else that are asked for and are not there, or not of what is learnt."""
    source = recipe.data.statistics
    if source == "dataset":
        found = ""
        of_robot = [other for other in recipe.data.sources if other.robot == asked.robot]
        if asked.actions != "absolute":
            found = f"a dataset's own statistics are of absolute values, and {asked.actions} ones are learnt"
        elif len(of_robot) > 1:
            found = (
                f"robot '{robot.name}' has {len(of_robot)} datasets, and their own cannot be merged exactly"
            )
        elif _is_converted(robot, asked):
            found = "a dataset's own statistics are of its units, and values in other units are learnt"
        if found:
            yield problem(
                "statistics", "data.statistics", found, subject=(robot.name,), remedy="choose `own`"
            )
    elif source not in ("own", "dataset"):
        try:
            if source == "robot":
                statistics.of_body(robot, asked.actions, recipe.data.space, recipe.data.degenerate)
                return
            place = remote.kept(source)
            if place is None and "://" in remote.address_of(source):
                yield problem("statistics-not-here", "data.statistics", f"{source} is not on this machine")
                return
            statistics.of_file(
                place or expanded(source), asked.robot, asked.actions, robot.names, recipe.model.horizon
            )
        except MorphVlaError as error:
            found = str(error).removeprefix("data.statistics: ")
            yield problem("statistics", "data.statistics", found, subject=(robot.name,))


def _is_converted(robot: Robot, asked: Dataset) -> bool:
    try:
        return presets.as_recorded(robot, asked.unit, asked.gripper) is not robot
    except MorphVlaError:  # `_values` says it
        return False


def _tools(robot: Robot) -> Iterator[Finding]:
    """What a robot's files do not say of its hands, where poses of them are learnt."""
    for name in tool.guessed(robot):
        found = f"robot '{robot.name}': fingers of '{name}' turn, and their tool is taken where they begin"
        yield problem("tool-guessed", "data.space", found, subject=(robot.name, name))
    for name in tool.unnamed(robot):
        found = f"robot '{robot.name}': '{name}' is taken for an arm's last joint"
        yield problem("tool-unnamed", "data.space", found, subject=(robot.name, name))


def _values(
    recipe: Recipe, asked: Dataset, robot: Robot, dataset: Layout, rows: Rows, key: str
) -> Iterator[Finding]:
    """What the values say against the robot, the model, the kind of actions and the prompt's length."""
    keys = dict(zip(("state", "action"), _keys(asked, robot), strict=True))
    if not all(name in rows.values for names in keys.values() for name in names):
        return
    state, action = (np.concatenate([rows.values[n] for n in names], axis=1) for names in keys.values())
    width, joints = action.shape[1], len(robot.joints)
    where, subject = str(dataset.root), (robot.name,)
    if width != joints:
        has = f"robot '{robot.name}' has {joints} joints ({', '.join(robot.names)})"
        yield problem("action-width", where, f"actions have {width} values, {has}", subject=subject)
    try:
        learnt = width if recipe.data.space == "joints" else len(space.names(robot, recipe.data.space))
    except MorphVlaError as error:
        yield problem("no-tool", "data.space", str(error).partition(";")[0], subject=subject)
        return
    yield from _tools(robot) if recipe.data.space != "joints" else ()
    if learnt > recipe.model.action_dim:
        found = f"actions have {learnt} values, the model {recipe.model.action_dim}"
        yield problem("model-width", "model.action_dim", found, subject=(where,))
    plugin = recipe.model.morphology
    if plugin is not None and joints > plugin.max_joints:
        found = f"robot '{robot.name}' has {joints} joints, the model room for {plugin.max_joints}"
        yield problem("max-joints", "model.morphology.max_joints", found, subject=subject)
    of_joints = recipe.data.space == "joints"
    if state.shape[1] != joints:
        found = f"a state has {state.shape[1]} values, robot '{robot.name}' has {joints} joints"
        yield problem("state-width", f"{key}.state", found)
    try:
        recorded_robot = presets.as_recorded(robot, asked.unit, asked.gripper)
        targets = presets.targets(recorded_robot, asked.recorded, asked.step, state, action)
    except MorphVlaError as error:
        yield problem("units", key, str(error))
        return
    names = {"action": dataset.names(keys["action"]), "observation.state": dataset.names(keys["state"])}
    recorded = recipe_values.Recorded(
        recorded_robot, where, names, targets, state, rows, dataset.fps, dataset.robot_type
    )
    if asked.recorded == "steps":
        yield from recipe_values.positions(dataclasses.replace(recorded, action=action), asked.step)
    yield from recipe_values.played(recorded, asked.actions)
    yield from recipe_values.kinds(recorded, asked.actions)
    if of_joints:
        yield from recipe_values.still(recorded, recipe.data.degenerate)
    yield from _statistics(recipe, asked, robot)
    if asked.phases != phases.AS_RECORDED and width == joints:
        last = np.searchsorted(rows.episode, rows.episode, side="right") - 1
        try:
            ahead = phases.of_robot(robot, presets.brought(robot, recorded_robot, targets), last)
            phases.drawn(np.arange(len(last)), ahead, asked.phases)
        except MorphVlaError as error:
            yield problem("phases", f"{key}.phases", f"{where}: {error}")
    numbers = [] if rows.task is None else np.unique(rows.task).tolist()
    tasks = {number: dataset.tasks.get(number, "") for number in numbers}
    if not of_joints and state.shape[1] == joints:
        state = space.tools_of(robot).seen(presets.brought(robot, recorded_robot, state))
        seen_from = space.standpoints(robot, recipe.data.space, state)
        if seen_from is not None:
            yield from recipe_values.turning(where, seen_from.turn, rows.episode)
        state = space.values_told(robot, state, seen_from)
    yield from recipe_model.prompts(recipe, where, state, rows, tasks)
