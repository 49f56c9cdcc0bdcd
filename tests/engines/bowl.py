"""A cube that belongs into a bowl: a criterion of prime sizes, for scripts that move the cube."""

import numpy as np

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
)
TARGET = np.array([0.5, 0.125, 0.25])
