"""A policy asked in other units than it was trained in: LeIsaac, for one, speaks percent of a joint's range.

Units are (scale, zero) of each joint, dataset = (native - zero) * scale, as a checkpoint has them (`affine`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.engines.engine import BatchPolicy, Observation
from morph_vla.robots.robot import Robot

Affine = Sequence[Sequence[float]]
JOINTS = "state", "previous_actions"  # what an observation says of joints


class InUnits:
    """Takes states, and gives actions, in the units `there`; the policy has its own, `here`."""

    def __init__(self, policy: BatchPolicy, here: Affine, there: Affine):
        self._policy, self._here, self._there = policy, here, there

    def infer(self, observation: Observation) -> Mapping[str, Any]:
        """Actions for one observation."""
        return self.infer_batch([observation])[0]

    def infer_batch(self, observations: Sequence[Observation]) -> list[Mapping[str, Any]]:
        """Actions for several observations, in order."""
        asked = [
            {**observation, **{key: self._asked(observation[key]) for key in JOINTS if key in observation}}
            for observation in observations
        ]
        return [
            {**answer, "actions": converted(np.asarray(answer["actions"]), self._here, self._there)}
            for answer in self._policy.infer_batch(asked)
        ]

    def _asked(self, values: object) -> np.ndarray:
        return converted(np.asarray(values), self._there, self._here)


def affine_of(robot: Robot) -> list[list[float]]:
    """(scale, zero) of each joint of a robot."""
    return [[joint.scale, joint.zero] for joint in robot.joints]


def affine_in(trained: Mapping[str, Any], robot: Robot) -> Affine:
    """The units that a policy was trained in; where an earlier checkpoint does not say, its robot's."""
    return trained.get("affine") or affine_of(robot)


def of(policy: BatchPolicy, here: Affine, there: Affine) -> BatchPolicy:
    """The policy in the units `there`: itself where they are its own."""
    return policy if np.array_equal(here, there) else InUnits(policy, here, there)


def stats_in(kept: Mapping[str, Any], here: Affine, there: Affine) -> dict[str, Any]:
    """Plain statistics of states (`data.stats`), one value a joint, in the units `there`."""
    ratio = np.abs(np.asarray(there, np.float64)[:, 0] / np.asarray(here, np.float64)[:, 0])
    stats = dict(kept)
    for key in ("mean", "q01", "q99"):
        if key in kept:
            stats[key] = converted(np.asarray(kept[key], np.float64), here, there)
    if {"q01", "q99"} <= stats.keys():  # a joint may count the other way
        stats["q01"], stats["q99"] = (
            np.minimum(stats["q01"], stats["q99"]),
            np.maximum(stats["q01"], stats["q99"]),
        )
    if "std" in kept:
        stats["std"] = np.asarray(kept["std"], np.float64) * ratio
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in stats.items()}


def converted(values: Float[np.ndarray, "*b j"], here: Affine, there: Affine) -> Float[np.ndarray, "*b j"]:
    """Values of J joints in the units `there`, in their own type."""
    (scale, zero), (other, origin) = np.asarray(here, np.float64).T, np.asarray(there, np.float64).T
    return ((values / scale + zero - origin) * other).astype(values.dtype)
