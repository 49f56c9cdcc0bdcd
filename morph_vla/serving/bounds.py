"""What goes out to a robot stays within its limits, and begins near where it is. No JAX.

Of joint i, with limits l and u, measured value s and speed v from the URDF, in the dataset's units:

    target k of a chunk    l <= a_k <= u        |a_k - s| <= v (jump_s + k / rate)

Of a joint that turns without end both may have wrapped: where s and a_k lie within a turn, the way is the
short one. Values beyond a turn count on, and 5 turns away is 5 turns away.

A target runs ahead of the joint, so that the bound on the jump is not v / rate: `jump_s` says how many
seconds of motion at full speed the first target may be away.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.robots.robot import Robot

JUMP_S = 0.5
STRAY = 0.5  # of a joint's range beyond its limits, or beyond what was recorded: no robot stands there


@dataclasses.dataclass(frozen=True)
class Limited:
    """Where the bounds changed a chunk."""

    position: tuple[str, ...]
    """The joints that were asked to leave their limits"""
    jump: tuple[str, ...]
    """Those that were asked for more than they can move"""
    values: int
    """How many targets were changed"""


@dataclasses.dataclass(frozen=True, eq=False)
class Bounds:
    """The bounds of J joints in the dataset's units; infinite where nothing is known."""

    names: tuple[str, ...]
    lower: Float[np.ndarray, "j"]
    upper: Float[np.ndarray, "j"]
    speed: Float[np.ndarray, "j"]
    """Per second"""
    rate: float
    """Targets per second [Hz]"""
    turn: Float[np.ndarray, "j"]
    """A full turn of joints that turn without end, whose values may wrap; infinite of others"""
    jump_s: float = JUMP_S
    recorded: Float[np.ndarray, "2 j"] | None = None
    """The lowest and highest values that were trained on; where they are beyond the limits, the URDF errs"""

    def strays(self, state: Float[np.ndarray, "j"]) -> Bool[np.ndarray, "j"]:
        """Which joints are said to stand where none can, half a range beyond their limits and all data."""
        room = STRAY * (self.upper - self.lower)
        low, high = self.lower - room, self.upper + room
        if self.recorded is not None:
            low, high = np.minimum(low, self.recorded[0] - room), np.maximum(high, self.recorded[1] + room)
        return np.isfinite(room) & (room > 0) & ((state < low) | (state > high))

    def apply(
        self, actions: Float[np.ndarray, "h j"], state: Float[np.ndarray, "j"]
    ) -> tuple[Float[np.ndarray, "h j"], Limited | None]:
        """The chunk within the bounds, unchanged bit for bit where it was; and what had to be changed."""
        seconds = self.jump_s + np.arange(len(actions))[:, None] / self.rate
        # A joint of unknown speed may be anywhere, also at once: infinity times 0 s would be no number.
        known = np.isfinite(self.speed)
        reach = np.where(known, np.where(known, self.speed, 0.0) * seconds, np.inf)
        # 3.13 and -3.13 may be neighbours; 0 and 20 are none.
        wraps = np.isfinite(self.turn) & (np.abs(state) <= self.turn) & (np.abs(actions) <= self.turn)
        around = np.clip(np.round((actions - state) / self.turn), -1.0, 1.0)
        turns = np.where(wraps, np.where(wraps, self.turn, 0.0) * around, 0.0)
        near = _clip(actions, state + turns - reach, state + turns + reach)
        sent = _clip(near, self.lower, self.upper)
        if np.array_equal(sent, actions):
            return actions, None
        outside = _clip(actions, self.lower, self.upper) != actions
        return sent, Limited(
            self._named(outside.any(axis=0)),
            self._named((near != actions).any(axis=0)),
            int((sent != actions).sum()),
        )

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The joints whose speed nobody knows: their jumps are not bounded."""
        return self._named(~np.isfinite(self.speed))

    def _named(self, marked: np.ndarray) -> tuple[str, ...]:
        return tuple(self.names[index] for index in np.flatnonzero(marked))


def of(robot: Robot, affine: Sequence[Sequence[float]], rate: float, jump_s: float = JUMP_S) -> Bounds:
    """A robot's bounds; `affine` are (scale, zero) of each joint, dataset = (native - zero) * scale."""
    scale, zero = np.asarray(affine, np.float64).reshape(-1, 2).T
    ends = (np.stack(robot.stops) - zero) * scale
    speeds = np.array([joint.velocity or np.inf for joint in robot.joints])
    return Bounds(
        robot.names,
        ends.min(axis=0),
        ends.max(axis=0),
        speeds * np.abs(scale),
        rate,
        np.where([joint.type == "continuous" for joint in robot.joints], 2 * math.pi * np.abs(scale), np.inf),
        jump_s,
    )


def _clip(
    values: Float[np.ndarray, "h j"], lower: Float[np.ndarray, "*b j"], upper: Float[np.ndarray, "*b j"]
) -> Float[np.ndarray, "h j"]:
    """Within the bounds in the values' own type, to which they are rounded inwards."""
    kind = values.dtype.type
    low, high = np.asarray(lower, kind), np.asarray(upper, kind)
    low = np.where(low < lower, np.nextafter(low, kind(np.inf)), low)
    high = np.where(high > upper, np.nextafter(high, kind(-np.inf)), high)
    return np.clip(values, low, high)
