"""Poses of objects as a body sees them: in its own base frame, lengths as shares of its reach.

So an object stands where `robots.screws` and `morphology.poses` would put a joint at the same place, and a
model that knows several robots can compare the two.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import POSE, turned_about_z
from morph_vla.robots.robot import Robot
from morph_vla.robots.screws import screws


def is_poses(names: Sequence[str]) -> bool:
    """Whether values of these names are whole poses, one after another, as our suites record them.

    >>> is_poses([f"cup {value}" for value in POSE])
    True
    """
    last = tuple(name.rpartition(" ")[2] for name in names)
    return bool(last) and len(last) % len(POSE) == 0 and last == POSE * (len(last) // len(POSE))


def in_body_frame(
    robot: Robot, names: Sequence[str], values: Float[np.ndarray, "b g"]
) -> Float[np.ndarray, "b g"]:
    """Poses in the robot's root frame [m] as its body sees them; values that are no poses stay."""
    if not is_poses(names):
        return values
    matrix, reach = _frame(robot)
    result = values.astype(np.float64)
    # The frames differ by a shift and a turn about the vertical.
    turn = float(np.arctan2(matrix[1, 0], matrix[0, 0]))
    for start in range(0, len(names), len(POSE)):
        position, quaternion = slice(start, start + 3), slice(start + 3, start + 7)
        result[:, position] = (result[:, position] @ matrix[:3, :3].T + matrix[:3, 3]) / reach
        result[:, quaternion] = turned_about_z(result[:, quaternion], turn)
    return result.astype(np.float32)


@lru_cache(maxsize=64)
def _frame(robot: Robot) -> tuple[Float[np.ndarray, "4 4"], float]:
    """From the root link's frame into the body's [m], and the reach [m]."""
    known = screws(robot)
    return known.base_from_root, known.reach
