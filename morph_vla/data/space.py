"""What a state and an action are to the model: joint values, or the poses of a robot's tools.

`tool` has poses in the root's frame (`robots.tool`); `hand` has them told from where the tools are at the
time (`robots.standpoint`), so that neither where a robot is bolted down nor its size is in them.

Poses make one task one motion on every arm, whatever its joints; they say nothing of how the arm gets there,
which kinematics does. Recordings and what is served are joint values in both.
"""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.data.environment import in_body_frame, is_poses
from morph_vla.data.lerobot import Recordings
from morph_vla.errors import MorphVlaError
from morph_vla.robots.geometry import POSE, turned_about_z, vectors_turned_about_z
from morph_vla.robots.robot import Robot
from morph_vla.robots.standpoint import Standpoint, objects_told, of_chunk, root_values, standpoint, told
from morph_vla.robots.tool import TOOL, ToolSpace, tool_space

Space = Literal["joints", "tool", "hand"]


@lru_cache(maxsize=64)
def tools_of(robot: Robot) -> ToolSpace:
    """`tool_space`, once for each robot. Raises as it does."""
    return tool_space(robot)


def names(robot: Robot, space: Space) -> tuple[str, ...]:
    """Of the values of a state or an action."""
    return robot.names if space == "joints" else tools_of(robot).names


def relative(robot: Robot, space: Space) -> Bool[np.ndarray, "v"]:
    """Which values a difference from the state is taken of: not those of grippers."""
    arm = np.array([not joint.is_gripper for joint in robot.joints])
    if space == "joints":
        return arm
    known = tools_of(robot)
    return np.concatenate([np.ones(known.of_poses, bool), arm[list(known.rest)]])


def check_width(robot: Robot, space: Space, most: int) -> None:
    """Raise MorphVlaError for more values than a model has places for."""
    count = len(names(robot, space))
    if count > most:
        has = f"{count} joints" if space == "joints" else f"{count} values in data.space: {space}"
        raise MorphVlaError(
            f"robot '{robot.name}' has {has}, the model {most} action values; raise model.action_dim, or, "
            "since a trained model keeps its own, give it fewer joints to drive (`joints` in the side file: "
            "one arm's)"
        )


def of_recordings(robot: Robot, space: Space, recordings: Recordings) -> Recordings:
    """States and actions as values of the space, in the root's frame; `values_told` and `chunk_told` go on.

    Raises MorphVlaError for states that are no joint values.
    """
    if space == "joints":
        return recordings
    known, width = tools_of(robot), recordings.state.shape[1]
    if width != len(robot.names):
        raise MorphVlaError(
            f"{recordings.root}: data.space: {space} needs where each joint is, but a state has {width} "
            f"values where robot '{robot.name}' has {len(robot.names)} joints"
        )
    state, action = known.seen(recordings.state), known.seen(recordings.action)
    return dataclasses.replace(recordings, state=state, action=action)


def standpoints(robot: Robot, space: Space, state: Float[np.ndarray, "*b v"]) -> Standpoint | None:
    """Where states (in the root's frame) are told from; None where that is the root."""
    return standpoint(tools_of(robot), state) if space == "hand" else None


def values_told(
    robot: Robot, values: Float[np.ndarray, "*b v"], at: Standpoint | None
) -> Float[np.ndarray, "*b v"]:
    """States as the model has them, from those in the root's frame."""
    return values if at is None else told(tools_of(robot), values, at)


def chunk_told(
    robot: Robot, chunk: Float[np.ndarray, "*b h v"], at: Standpoint | None
) -> Float[np.ndarray, "*b h v"]:
    """Action chunks as the model has them, each told from where its state is."""
    return chunk if at is None else told(tools_of(robot), chunk, of_chunk(at))


def chunk_in_root(
    robot: Robot, chunk: Float[np.ndarray, "*b h v"], at: Standpoint | None
) -> Float[np.ndarray, "*b h v"]:
    """The inverse of `chunk_told`."""
    return chunk if at is None else root_values(tools_of(robot), chunk, of_chunk(at))


def poses_seen(
    robot: Robot,
    space: Space,
    names: Sequence[str],
    values: Float[np.ndarray, "b g"],
    state: Float[np.ndarray, "b v"],
) -> Float[np.ndarray, "b g"]:
    """Poses of objects as the model sees them, from the robot's root frame [m]; values of no poses stay.

    With joint values in the body's frame (`in_body_frame`). With tools their places are counted from the
    tool, of several from their mean; which way they lie stays, but for `hand`, which turns them too.

    `state` is of values in the root's frame.
    """
    if space == "joints":
        return in_body_frame(robot, names, values)
    if not is_poses(names):
        return values
    known, seen = tools_of(robot), values.copy()
    of_tools = state[:, : known.of_poses].reshape(len(state), len(known.tools), len(TOOL))
    if (at := standpoints(robot, space, state)) is not None:
        poses = values.reshape(len(values), -1, len(POSE))
        return objects_told(robot, poses, at, of_tools[:, :, 2].mean(axis=1)).reshape(values.shape)
    for start in range(0, len(names), len(POSE)):
        seen[:, start : start + 3] -= of_tools[:, :, :3].mean(axis=1)
    return seen


def values_turned(
    robot: Robot, values: Float[np.ndarray, "b *h v"], angle_rad: Float[np.ndarray, "b"]
) -> Float[np.ndarray, "b *h v"]:
    """States, targets or moves of the tools, as if the robot and all around were turned about its root's z.

    A turn is linear, so a difference turns as its ends do. Values that move no tool stay.
    """
    turned, of_poses = values.copy(), tools_of(robot).of_poses
    angle_rad = angle_rad.reshape(-1, *(1,) * (values.ndim - 2))
    for start in range(0, of_poses, 3):  # a place, and the two directions of each tool
        axes = slice(start, start + 3)
        turned[..., axes] = vectors_turned_about_z(values[..., axes], angle_rad)
    return turned


def poses_turned(
    names: Sequence[str], values: Float[np.ndarray, "b g"], angle_rad: Float[np.ndarray, "b"]
) -> Float[np.ndarray, "b g"]:
    """Poses of objects counted from the tool (`poses_seen`), turned alike; values of no poses stay."""
    if not is_poses(names):
        return values
    turned = values.copy()
    for start in range(0, len(names), len(POSE)):
        place, lies = slice(start, start + 3), slice(start + 3, start + len(POSE))
        turned[:, place] = vectors_turned_about_z(values[:, place], angle_rad)
        turned[:, lies] = turned_about_z(values[:, lies], angle_rad)
    return turned
