"""A recipe's datasets, values alone: each held against its robot and the model, and their statistics."""

import dataclasses
import logging
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla import policies, robots
from morph_vla.data import (
    actions,
    idle,
    layout,
    lerobot,
    mixture,
    phases,
    presets,
    space,
    transforms,
    versions,
)
from morph_vla.data.stats import Stats, of_environment
from morph_vla.errors import MorphVlaError
from morph_vla.policies.config import ModelConfig, StateConfig, reads_numbers
from morph_vla.recipes.keys import Dataset, Recipe
from morph_vla.robots.robot import Robot
from morph_vla.robots.standpoint import Standpoint
from morph_vla.training import part as part_of
from morph_vla.training import statistics
from morph_vla.training.part import Part
from morph_vla.training.statistics import RobotStats

LOG = logging.getLogger(__name__)
DIRECTIONS = 16  # into which poses are turned before their ranges are measured, where training turns them
Angle = Float[np.ndarray, "b"] | None
"""[rad] by which each row is turned about the vertical; None: not at all"""


def read_parts(recipe: Recipe) -> list[Part]:
    """The recipe's datasets, values alone, each held against its robot and the model.

    Raises MorphVlaError where a dataset does not fit, for two robots of one name, for two rates of one, and
    for poses of objects in two orders.
    """
    parts = [_part(recipe, asked) for asked in recipe.data.sources]
    files: dict[str, Robot] = {}  # by the name that a checkpoint keeps them under
    for robot in (part.robot for part in parts):
        known = files.setdefault(robot.name, robot)
        if (known.urdf_sha256, known.side_sha256) != (robot.urdf_sha256, robot.side_sha256):
            raise MorphVlaError(
                f"{known.urdf_path} and {robot.urdf_path} are two robots of one name, and a checkpoint keeps "
                "one of each; rename a file"
            )
    rates: dict[str, Part] = {}
    for part in parts:
        first = rates.setdefault(part.robot.name, part)
        rate, other = first.recordings.fps, part.recordings.fps
        if rate != other:
            raise MorphVlaError(
                f"{first.asked.dataset} is at {rate:g} Hz and {part.asked.dataset} at {other:g} Hz, both of "
                f"robot '{part.robot.name}': a robot's actions have one pace; train on one of them, or "
                "register the robot under two names"
            )
    _check_held_out(parts)
    _check_order(parts)
    return parts


def _check_order(parts: Sequence[Part]) -> None:
    """Raise MorphVlaError for datasets that have the same poses in another order: one value would be two."""
    listed: dict[frozenset[str], Part] = {}
    for part in parts:
        names = part.recordings.environment_names
        first = listed.setdefault(frozenset(names), part)
        if (known := first.recordings.environment_names) != names:
            place = next(
                place for place, pair in enumerate(zip(known, names, strict=False)) if len({*pair}) > 1
            )
            raise MorphVlaError(
                f"'{lerobot.ENVIRONMENT}': value {place} is '{known[place]}' in {first.asked.dataset} and "
                f"'{names[place]}' in {part.asked.dataset}; write the poses of objects in one order"
            )


def check_there(recipe: Recipe, fetch: bool = True) -> None:
    """Raise MorphVlaError for a robot or a dataset that is not there, or a feature, a camera or the first
    episode's video that it lacks; no values are read. Without `fetch` the Hub's that are not here are passed.
    """
    more = (lerobot.ENVIRONMENT,) if reads_numbers(recipe.model) else ()
    for asked in recipe.data.sources:
        robot = robots.load(asked.robot)
        try:
            dataset = layout.read(versions.located(asked.dataset, fetch=fetch))
        except MorphVlaError:
            if not fetch and versions.is_hub_name(asked.dataset):
                continue
            raise
        features = robot.side.features
        for key in (*(asked.state or features.state), *(asked.action or features.action), *more):
            if key not in dataset.features:
                raise MorphVlaError(f"{dataset.root}: {dataset.no_feature(key)}")
        first = (
            asked.episodes[0] if asked.episodes else min((e.index for e in dataset.episodes), default=None)
        )
        for camera in (layout.named(own, dataset.cameras) for own in asked.cameras.values()):
            if camera not in dataset.cameras:
                raise MorphVlaError(lerobot.no_camera(dataset.root, camera, dataset.cameras))
            videos = {} if first is None or asked.share < 1 else dataset.entry(first).videos
            if camera in videos and not videos[camera].path.is_file():
                raise MorphVlaError(f"{videos[camera].path}: the file is missing")


def _check_held_out(parts: Sequence[Part]) -> None:
    """Raise MorphVlaError where an episode that one entry holds out is trained on by another entry."""
    chosen = []
    for part in parts:
        recordings, held = part.recordings, {*part.held_rows.tolist()}
        starts = zip(recordings.entries, recordings.starts, strict=True)
        chosen.append((recordings.root, {entry.index: int(start) in held for entry, start in starts}))
    if twice := mixture.held_otherwise(chosen):
        place, episode = twice
        raise MorphVlaError(
            f"data.held_out: episode {episode} of {parts[place].asked.dataset} is held out by one entry and "
            f"trained on by another: {mixture.HELD_TWICE}"
        )


def _part(recipe: Recipe, asked: Dataset) -> Part:
    """A dataset's values held against its robot and the model."""
    robot = robots.load(asked.robot)
    features = robot.side.features
    keys = asked.state or features.state, asked.action or features.action
    recorded = lerobot.read(
        asked.dataset,
        *keys,
        episodes=asked.episodes,
        share=asked.share,
        environment=reads_numbers(recipe.model),
    )
    units = presets.as_recorded(robot, asked.unit, asked.gripper)
    targets = presets.targets(units, asked.recorded, asked.step, recorded.state, recorded.action)
    state, action = (presets.brought(robot, units, values) for values in (recorded.state, targets))
    recordings = dataclasses.replace(recorded, state=state, action=action)
    names = robot.names
    for kind, values in (("actions have", action), ("a state has", state)):
        if values.shape[1] != len(names):
            raise MorphVlaError(
                f"{asked.dataset}: {kind} {values.shape[1]} values, robot '{robot.name}' has {len(names)} "
                f"joints ({', '.join(names)})"
            )
    space.check_width(robot, recipe.data.space, recipe.model.action_dim)
    part_of.check(recipe.model, asked.dataset, recordings)
    held = mixture.held_out(len(recordings.starts), recipe.data.held_out)[recordings.episode_of()]
    drawn = ~held & _moving(asked, robot, recordings)
    recordings = space.of_recordings(robot, recipe.data.space, recordings)
    if reads_numbers(recipe.model):
        _check_numbers(
            asked, recipe.model, recordings.state, recorded.environment, recorded.environment_names
        )
        recordings = _as_seen(recipe, robot, recordings)
    seen_from = space.standpoints(robot, recipe.data.space, recordings.state)
    state = space.values_told(robot, recordings.state, seen_from)
    recordings = dataclasses.replace(recordings, state=state)
    cameras = {name: layout.named(own, recordings.cameras) for name, own in asked.cameras.items()}
    return Part(
        dataclasses.replace(asked, cameras=cameras),
        robot,
        recordings,
        space.relative(robot, recipe.data.space),
        policies.of(recipe.model).body(recipe.model, robot),
        action,
        np.flatnonzero(drawn),
        np.flatnonzero(held),
        seen_from,
        units is not robot or targets is not recorded.action,
    )


def _check_numbers(
    asked: Dataset,
    model: ModelConfig,
    state: Float[np.ndarray, "n s"],
    environment: np.ndarray | None,
    names: Sequence[str],
) -> None:
    """Raise MorphVlaError where a dataset's numbers are not those that the model reads."""
    assert environment is not None
    if state.shape[1] > model.action_dim:
        raise MorphVlaError(
            f"{asked.dataset}: the state has {state.shape[1]} values, the model a place for "
            f"{model.action_dim}; raise model.action_dim"
        )
    if environment.shape[1] != model.environment:
        raise MorphVlaError(
            f"{asked.dataset}: '{lerobot.ENVIRONMENT}' has {environment.shape[1]} values; set "
            f"model.environment, which is {model.environment}"
        )
    if len(names) != environment.shape[1]:
        raise MorphVlaError(
            f"{asked.dataset}: meta/info.json does not name the {environment.shape[1]} values of "
            f"'{lerobot.ENVIRONMENT}', which a policy is told by name; list them there (features, names)"
        )


def _as_seen(recipe: Recipe, robot: Robot, recordings: lerobot.Recordings) -> lerobot.Recordings:
    """Poses as the model sees them: pi0.5, which may know several robots, from its base or its tool."""
    values = recordings.environment
    if values is None or isinstance(recipe.model, StateConfig):
        return recordings
    seen = space.poses_seen(robot, recipe.data.space, recordings.environment_names, values, recordings.state)
    return dataclasses.replace(recordings, environment=seen)


def _moving(asked: Dataset, robot: Robot, recordings: lerobot.Recordings) -> Bool[np.ndarray, "n"]:
    """The rows that are left where those in which nothing moves are left out; held-out ones stay."""
    if not asked.idle:
        return np.ones(recordings.frames, bool)
    moving = idle.moving(robot, recordings.action, recordings.starts, asked.idle)
    count = recordings.frames - int(moving.sum())
    LOG.info("%s: nothing moves in %d of %d rows: left out", asked.dataset, count, recordings.frames)
    return moving


def drawn_rows(part: Part) -> Int[np.ndarray, "_"]:
    """The rows of one pass over a dataset, those before a grasp or a release in the recipe's shares.

    Raises MorphVlaError where that is asked of a robot or a dataset that grasps nothing.
    """
    rows, shares, recordings = part.train_rows, part.asked.phases, part.recordings
    if shares == phases.AS_RECORDED:
        return rows
    last = recordings.last_of(np.arange(recordings.frames))
    try:
        ahead = phases.of_robot(part.robot, part.targets, last)
        return phases.drawn(rows, ahead, shares)
    except MorphVlaError as error:
        raise MorphVlaError(f"data.phases: {part.asked.dataset}: {error}; leave it out") from error


def state_of(part: Part, rows: Int[np.ndarray, "b"], angle_rad: Angle) -> Float[np.ndarray, "b v"]:
    """The states of rows, in dataset units, turned about the vertical (`training.turn_degrees`)."""
    state = part.recordings.state[rows]
    return state if angle_rad is None else space.values_turned(part.robot, state, angle_rad)


def environment_of(part: Part, rows: Int[np.ndarray, "b"], angle_rad: Angle) -> Float[np.ndarray, "b g"]:
    """The poses of objects in rows, turned as `state_of` does. Only of a dataset that has them."""
    recordings = part.recordings
    assert recordings.environment is not None
    poses = recordings.environment[rows]
    return poses if angle_rad is None else space.poses_turned(recordings.environment_names, poses, angle_rad)


def to_learn(
    part: Part, rows: Int[np.ndarray, "b"], horizon: int, angle_rad: Angle = None
) -> Float[np.ndarray, "b h n"]:
    """The actions from each row on, as the model learns them, in dataset units; turned as `state_of` does."""
    seen_from = None if part.seen_from is None else Standpoint(*(values[rows] for values in part.seen_from))
    chunks = transforms.chunks(part.recordings, rows, horizon)
    recorded = space.chunk_told(part.robot, chunks, seen_from)
    state = part.recordings.state[rows]
    learnt = actions.to_learn(part.asked.actions, recorded, state, part.relative, part.recordings.fps)
    return learnt if angle_rad is None else space.values_turned(part.robot, learnt, angle_rad)


def robot_stats(recipe: Recipe, name: str, parts: Sequence[Part]) -> RobotStats:
    """The statistics of one robot over all its datasets, as the recipe wants them."""
    parts = [part for part in parts if part.asked.robot == name]
    robot = parts[0].robot
    features = robot.side.features
    if recipe.data.statistics == "robot":
        rows = sum(part.recordings.frames for part in parts)
        kind, degenerate = parts[0].asked.actions, recipe.data.degenerate
        own = statistics.of_body(robot, kind, recipe.data.space, degenerate)
        return dataclasses.replace(own, frames=rows)
    recorded = [
        statistics.Recorded(
            part.asked.dataset,
            part.recordings,
            part.asked.actions,
            part.relative,
            part.converted,
            part.asked.state or features.state,
            part.asked.action or features.action,
        )
        for part in parts
    ]
    return statistics.of_robot(
        name,
        space.names(robot, recipe.data.space),
        recorded,
        recipe.model.horizon,
        statistics=recipe.data.statistics,
        degenerate=recipe.data.degenerate,
        before=recipe.weights,
    )


def pose_stats(recipe: Recipe, name: str, parts: Sequence[Part]) -> Stats | None:
    """The statistics of the poses of objects in one robot's datasets; None where none are read.

    Where poses are in the body's own frame they are those of all robots: one place has one value.
    """
    together = not isinstance(recipe.model, StateConfig)
    most = np.radians(recipe.training.turn_degrees)
    angles = np.linspace(-most, most, DIRECTIONS) if most else (None,)
    poses = []
    for part in parts:
        if part.recordings.environment is not None and (together or part.asked.robot == name):
            rows = np.arange(part.recordings.frames)
            turns = [None if angle is None else np.full(len(rows), angle) for angle in angles]
            poses += [environment_of(part, rows, turn) for turn in turns]
    return of_environment(np.concatenate(poses)) if poses else None


def statistics_of(recipe: Recipe) -> dict[str, tuple[tuple[str, ...], actions.Kind, RobotStats]]:
    """Of every robot of a recipe: its joints' names, what of actions is learnt, and the statistics."""
    parts = read_parts(recipe)
    # What is learnt of a robot's actions is the same in all its datasets.
    of_robot = {part.asked.robot: part for part in parts}
    return {
        name: (
            space.names(part.robot, recipe.data.space),
            part.asked.actions,
            robot_stats(recipe, name, parts),
        )
        for name, part in of_robot.items()
    }
