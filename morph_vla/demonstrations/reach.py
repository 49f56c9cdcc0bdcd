"""Inverse kinematics of an arm of robosuite: damped least squares on a copy of its world's state.

With e the six numbers from the hand's pose to the wanted one (metres; the rotation vector between them [rad])
and J the hand's Jacobian, a step is

    dq = J' (J J' + d^2 I)^-1 e  +  (I - J' (J J' + d^2 I)^-1 J) g (rest - q)

The second term moves an arm of seven joints towards its rest pose where that does not move the hand.
"""

import numpy as np
from jaxtyping import Float

from morph_vla.engines.mujoco.scene import mujoco
from morph_vla.engines.robosuite.world import World
from morph_vla.robots.geometry import quaternion_of

DAMPING, TO_REST, LONGEST = 1e-2, 0.02, 0.25  # d; g; the most that a joint turns in a step [rad]
STEPS, CLOSE, MARGIN = 8, (5e-4, 5e-3), 0.02  # per pose; good enough [m, rad]; kept from the limits [rad]


class Reach:
    """Poses of the hand as joint values, each from those before; it starts where the world's arm stands."""

    def __init__(self, world: World):
        self._world, self._mj = world, mujoco()
        self._data = self._mj.MjData(world.model)
        self._data.qpos[:] = world.data.qpos
        self._rest = self._q = world.q()
        low, high = world.limits
        self._low, self._high = low + MARGIN, high - MARGIN

    def to(
        self, position: Float[np.ndarray, "3"], rotation: Float[np.ndarray, "3 3"]
    ) -> Float[np.ndarray, "j"]:
        """Joint values [rad] with the hand at a pose, in the frame of the arm's base; as near as it gets."""
        world, identity = self._world, np.eye(len(self._q))
        for _ in range(STEPS):
            self._data.qpos[world.positions] = self._q
            self._mj.mj_kinematics(world.model, self._data)
            self._mj.mj_comPos(world.model, self._data)
            here, axes = world.hand(self._data)
            error = np.concatenate([position - here, _rotation_vector(rotation @ axes.T)])
            if np.linalg.norm(error[:3]) < CLOSE[0] and np.linalg.norm(error[3:]) < CLOSE[1]:
                break
            jacobian = world.jacobian(self._data)
            inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + DAMPING**2 * np.eye(6))
            turn = inverse @ error + (identity - inverse @ jacobian) @ (TO_REST * (self._rest - self._q))
            turn *= min(1.0, LONGEST / max(float(np.abs(turn).max()), 1e-9))
            self._q = np.clip(self._q + turn, self._low, self._high)
        return self._q.copy()


def _rotation_vector(matrix: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3"]:
    """The axis of a rotation, as long as its angle [rad]."""
    w, *vector = quaternion_of(matrix)
    sine = float(np.linalg.norm(vector))
    return np.asarray(vector) * (2 * np.arctan2(sine, w) / sine if sine > 1e-9 else 2.0)
