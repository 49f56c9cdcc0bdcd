"""From which side a camera looks, in numbers that mean the same on every robot.

A camera fixed to a hand stands in that link's frame, which each maker lays otherwise; the side that it looks
from is told apart in the base's frame, in the pose that an episode begins in.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from morph_vla.robots.robot import Robot

Stands = tuple[str | None, Sequence[float], Sequence[float]]
"""The link a camera is fixed to (None: the base), its position and what it looks at [m], in that frame"""


def views(
    robot: Robot, posture: Float[np.ndarray, "j"], cameras: Mapping[str, Stands], middle: Sequence[float]
) -> dict[str, list[float]]:
    """For each camera the way to it from what it looks at, of length 1; x leads from the base to `middle`.

    `posture` [rad | m]: where an episode begins; `middle` [m]: of what the arm works on, (x, y) in the base's
    frame; z is up. A camera on a link that the robot does not have, or that looks nowhere, is left out.
    """
    poses = robot.forward_kinematics(posture)
    heading = math.atan2(middle[1], middle[0])
    cosine, sine = math.cos(heading), math.sin(heading)
    ahead_from_base = np.array([[cosine, sine, 0.0], [-sine, cosine, 0.0], [0.0, 0.0, 1.0]])
    known = {}
    for name, (link, position, look_at) in cameras.items():
        way = np.asarray(position, np.float64) - np.asarray(look_at, np.float64)
        length = float(np.linalg.norm(way))
        if (link is not None and link not in poses) or not np.isfinite(length) or not length:
            continue
        base_from_link = np.eye(3) if link is None else poses[link][:3, :3]
        known[name] = (ahead_from_base @ base_from_link @ way / length).tolist()
    return known


def apart(view: Sequence[float], others: Sequence[Sequence[float]]) -> float:
    """The angle [deg] between one view and the nearest of the others."""
    cosines = np.asarray(others, np.float64) @ np.asarray(view, np.float64)
    return float(np.degrees(np.arccos(np.clip(cosines.max(), -1.0, 1.0))))
