"""A cube that belongs into a bowl: a criterion of prime sizes, for scripts that move the two."""

import math
from collections.abc import Iterable

import numpy as np

from morph_vla.engines.success import Progress, Reading, begin, update
from morph_vla.robots.geometry import Quaternion
from morph_vla.suites.suite import Success

RATE = 11.0  # [Hz]
DWELL = 5  # control steps
SUCCESS = Success(
    object="cube",
    target="bowl",
    low=(-0.06, -0.05, 0.0),
    high=(0.06, 0.05, 0.07),
    dwell_seconds=DWELL / RATE,
    max_speed=0.02,
    max_spin=0.3,
    min_opening=0.6,
    min_upright=0.9,
)
TARGET = np.array([0.5, 0.125, 0.25])
TABLE_HEIGHT = 0.24  # [m]
UPRIGHT: Quaternion = (1.0, 0.0, 0.0, 0.0)


def about(axis: tuple[float, float, float], angle_rad: float) -> Quaternion:
    """The rotation about a unit axis."""
    x, y, z = (math.sin(angle_rad / 2) * part for part in axis)
    return math.cos(angle_rad / 2), x, y, z


def reading(
    offset: tuple[float, float, float] = (0.0, 0.0, 0.03),
    *,
    turn: Quaternion = UPRIGHT,
    dragged: tuple[float, float, float] = (0.0, 0.0, 0.0),
    speed: float = 0.001,
    spin: float = 0.01,
    opening: float = 1.0,
    touching: bool = False,
    grasping: bool = False,
) -> Reading:
    """By default at rest in the bowl and released; `offset` is from where the bowl first stood."""
    place, target = TARGET + np.array(offset), TARGET + np.array(dragged)
    return Reading(place, target, turn, speed, spin, opening, touching, grasping)


TABLE = reading((0.3, -0.2, 0.02))


def run(readings: Iterable[Reading], success: Success = SUCCESS, start: Reading = TABLE) -> Progress:
    """The progress of an episode that begins at `start`, after these readings."""
    progress = begin(start, TABLE_HEIGHT)
    for measured in readings:
        progress = update(progress, measured, success, RATE)
    return progress
