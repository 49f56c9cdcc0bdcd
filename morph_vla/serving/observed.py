"""Whether a policy can act on an observation (`engines.engine`): what came beside what is expected. No JAX.

A model computes something of almost anything: a value that is not finite falls into a bin, a picture of the
wrong range is a dark one, and the answer looks as any other does.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from morph_vla.engines.engine import ENVIRONMENT
from morph_vla.errors import MorphVlaError
from morph_vla.findings import visible

COUNTS = ("episode", "step")
MOST = 2**32
"""Of episodes, and of steps: random numbers come from 32 bits of each"""


@dataclass(frozen=True)
class Expected:
    """What a policy was trained with."""

    cameras: Sequence[str]
    """The dataset's names"""
    joints: Sequence[str]
    poses: Sequence[str] = ()
    """Of `environment_state`; none of a policy that is not shown it"""
    robots: Sequence[str] = ()
    """The names that the robot goes by"""

    def check(self, observation: Mapping[str, Any]) -> None:
        """Raise MorphVlaError for the first thing of an observation that is missing or cannot be."""
        images = [f"images/{name}" for name in self.cameras]
        wanted = [*images, *([ENVIRONMENT] if self.poses else []), "state", "prompt"]
        if missing := [key for key in wanted if key not in observation]:
            raise MorphVlaError(
                f"the observation lacks {', '.join(missing)}; this policy was trained with "
                f"{', '.join(wanted)}, and was given {', '.join(sorted(observation))}"
            )
        self._check_state(observation["state"])
        for key in images:
            _check_picture(key, observation[key])
        if self.poses:
            self._check_poses(observation[ENVIRONMENT])
        self._check_words(observation)
        self._check_previous(observation)

    def _check_state(self, given: Any) -> None:
        state = np.asarray(given)
        if state.ndim == 1 and len(state) != len(self.joints):
            raise MorphVlaError(
                f"the observation's state has {len(state)} values; this policy was trained with "
                f"{len(self.joints)} ({', '.join(self.joints)})"
            )
        if state.ndim != 1 or not _is_finite(state):
            raise MorphVlaError(
                f"the observation's state has shape {list(state.shape)}; expected {len(self.joints)} finite "
                f"numbers ({', '.join(self.joints)})"
            )

    def _check_poses(self, given: Any) -> None:
        poses = np.asarray(given)
        if poses.shape != (len(self.poses),) or not _is_finite(poses):
            raise MorphVlaError(
                f"{ENVIRONMENT} has shape {list(poses.shape)}; this policy was trained on {len(self.poses)} "
                f"finite values ({', '.join(self.poses)})"
            )

    def _check_words(self, observation: Mapping[str, Any]) -> None:
        if not isinstance(prompt := observation["prompt"], str):
            raise MorphVlaError(f"the observation's prompt is a {type(prompt).__name__}; expected a text")
        robot = observation.get("robot")
        if robot and self.robots and robot not in self.robots:
            raise MorphVlaError(f"robot: this policy drives '{self.robots[0]}', not '{visible(str(robot))}'")
        for key in COUNTS:
            value = observation.get(key, 0)
            try:
                is_count = 0 <= operator.index(value) < MOST
            except TypeError:
                is_count = False
            if not is_count:
                raise MorphVlaError(f"{key} is {visible(str(value))}; expected a whole number from 0 on")

    def _check_previous(self, observation: Mapping[str, Any]) -> None:
        left = np.asarray(observation.get("previous_actions", np.zeros((0, len(self.joints)))))
        if left.ndim != 2 or left.shape[1] != len(self.joints) or not _is_finite(left):
            raise MorphVlaError(
                f"previous_actions have shape {list(left.shape)}; expected finite targets "
                f"[rows, {len(self.joints)}]"
            )
        if "previous_actions" in observation and observation.get("inference_delay", -1) < 0:
            raise MorphVlaError("previous_actions come with inference_delay, control steps from 0 on")


def _check_picture(key: str, given: Any) -> None:
    shape, kind = getattr(given, "shape", None), getattr(given, "dtype", None)
    if shape is None or len(shape) != 3 or shape[2] != 3 or 0 in shape or kind != np.uint8:
        what = f"{kind} {list(shape)}" if shape is not None else f"a {type(given).__name__}"
        raise MorphVlaError(f"{key} is {what}; expected uint8 [height, width, 3], RGB from 0 to 255")


def _is_finite(values: np.ndarray) -> bool:
    return values.dtype.kind in "fiub" and bool(np.isfinite(values).all())
