"""Rows of a recording in which nothing moves: a policy that learns many of them learns to stand still.

DROID's operators pause often; openpi leaves runs of 7 and more still frames out (`idle: 7` in a recipe).
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.robots.robot import Robot

STILL = 1e-3  # [rad] or [m] by which a joint's target changes at most in a still row


def moving(
    robot: Robot, commands: Float[np.ndarray, "n j"], starts: Int[np.ndarray, "e"], least: int
) -> Bool[np.ndarray, "n"]:
    """False for the rows of every run of at least `least` in which no joint's target changes.

    `commands` are in dataset units, `starts` the first rows of the episodes; a first row is never still.
    Drawn for `least` = 3, of one episode:

        target   0 1 1 1 2 2 2 2 2 3
        still    . . s s . s s s s .
        moving   x x x x x . . . . x
    """
    targets = robot.to_native(commands)
    still = np.zeros(len(commands), bool)
    still[1:] = (np.abs(np.diff(targets, axis=0)) < STILL).all(axis=1)
    still[starts] = False
    edges = np.flatnonzero(np.diff(np.r_[False, still, False].astype(np.int8)))
    rows = np.ones(len(commands), bool)
    for begin, end in edges.reshape(-1, 2):
        if end - begin >= least:
            rows[begin:end] = False
    return rows
