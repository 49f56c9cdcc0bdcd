"""Poses of tools from where a robot's tools are now: what `data.space: hand` has in place of its root.

The frame stands under the tools, at the height of the root, and looks the way the arm reaches:

      root o - - - - - - - - -> frame       x  from the root's axis to under the tools, level
           |                    |           y  to the left, z up
           | y                  | y         lengths as if the hand opened as far as a Panda's (METRE)

So values say neither where a robot is bolted down nor which way its base is turned, nor how large it is
beside what it can hold. Of the two ways in which a parallel hand's fingers open, it is the one to the left.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.robots.geometry import turned_about_z, vectors_turned_about_z
from morph_vla.robots.grasp import grasp
from morph_vla.robots.parallel_jaw import PANDA_OPENING
from morph_vla.robots.robot import Robot
from morph_vla.robots.tool import LEFT, TOOL, ToolSpace

NEAREST = 0.01  # [m] from the root's axis: nearer tools do not say which way the arm reaches


class Standpoint(NamedTuple):
    """Where values are told from, of any number of moments."""

    place: Float[np.ndarray, "*b 3"]
    """[m] of the frame's origin in the root's frame"""
    turn: Float[np.ndarray, "*b"]
    """[rad] of its x axis about the root's z"""
    other: Bool[np.ndarray, "*b t"]
    """Tools whose `across` is the other of the two ways in which the hand opens"""


@lru_cache(maxsize=64)
def metre(robot: Robot) -> float:
    """How long a metre is told to be: a Panda's opening over that of the robot's hand, 1 where none says."""
    hands = [hand for name in robot.side.grippers if (hand := grasp(robot, name)) is not None]
    opening = float(np.mean([hand.opening for hand in hands])) if hands else 0.0
    return PANDA_OPENING / opening if opening > 0 else 1.0


def standpoint(space: ToolSpace, seen: Float[np.ndarray, "*b v"]) -> Standpoint:
    """Where a robot whose values are `seen` (`ToolSpace.seen`) tells its own from."""
    poses = _poses(space, seen)
    place = poses[..., :3].mean(axis=-2)
    place[..., 2] = 0.0
    turn = np.arctan2(place[..., 1], place[..., 0])
    turn = np.where(np.hypot(place[..., 0], place[..., 1]) < NEAREST, 0.0, turn)
    across = vectors_turned_about_z(poses[..., 6:9], -turn[..., None])
    return Standpoint(place, turn, across @ LEFT < 0)


def told(space: ToolSpace, seen: Float[np.ndarray, "*b v"], at: Standpoint) -> Float[np.ndarray, "*b v"]:
    """Values of a robot's tools in its root's frame, told from `at`, float32; the other values stay."""
    poses = _poses(space, seen)
    place, ahead, across = (poses[..., start : start + 3] for start in range(0, len(TOOL), 3))
    turn = -at.turn[..., None]
    place = metre(space.robot) * vectors_turned_about_z(place - at.place[..., None, :], turn)
    across = np.where(at.other[..., None], -1.0, 1.0) * vectors_turned_about_z(across, turn)
    return _joined(space, seen, place, vectors_turned_about_z(ahead, turn), across)


def root_values(
    space: ToolSpace, values: Float[np.ndarray, "*b v"], at: Standpoint
) -> Float[np.ndarray, "*b v"]:
    """The inverse of `told`: from `at` back to the root's frame."""
    poses = _poses(space, values)
    place, ahead, across = (poses[..., start : start + 3] for start in range(0, len(TOOL), 3))
    turn = at.turn[..., None]
    place = vectors_turned_about_z(place, turn) / metre(space.robot) + at.place[..., None, :]
    across = np.where(at.other[..., None], -1.0, 1.0) * vectors_turned_about_z(across, turn)
    return _joined(space, values, place, vectors_turned_about_z(ahead, turn), across)


def of_chunk(at: Standpoint) -> Standpoint:
    """The same for every action of a chunk that begins there."""
    return Standpoint(at.place[..., None, :], at.turn[..., None], at.other[..., None, :])


def objects_told(
    robot: Robot, poses: Float[np.ndarray, "b o 7"], at: Standpoint, height: Float[np.ndarray, "b"]
) -> Float[np.ndarray, "b o 7"]:
    """Poses of objects (`geometry.POSE`, root's frame) told from `at`, counted from so high [m] above it."""
    origin = at.place + np.stack([0 * height, 0 * height, height], axis=-1)
    place = metre(robot) * vectors_turned_about_z(poses[..., :3] - origin[:, None], -at.turn[:, None])
    lies = turned_about_z(poses[..., 3:], -at.turn[:, None])
    return np.concatenate([place, lies], axis=-1).astype(np.float32)


def _poses(space: ToolSpace, values: Float[np.ndarray, "*b v"]) -> Float[np.ndarray, "*b t 9"]:
    """The numbers of each tool."""
    numbers = values[..., : space.of_poses].astype(np.float64)
    return numbers.reshape(*values.shape[:-1], len(space.tools), len(TOOL))


def _joined(
    space: ToolSpace, values: Float[np.ndarray, "*b v"], *parts: Float[np.ndarray, "*b t 3"]
) -> Float[np.ndarray, "*b v"]:
    poses = np.concatenate(parts, axis=-1).reshape(*values.shape[:-1], space.of_poses)
    return np.concatenate([poses, values[..., space.of_poses :]], axis=-1).astype(np.float32)
