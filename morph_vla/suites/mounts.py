"""Where `suites new` puts the cameras: one beyond the table, which looks back, and one on the hand."""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import Transform

CameraSide = Literal["ahead", "hand"]
"""Which side of the hand its camera is on, in the pose that the arm begins from.

`ahead`: that which the arm reaches to, on every arm; `hand`: that of the hand's own x axis, which on a
mirrored arm may be the side of its base (docs/evidence.md, "Why used fails on mirrored arms from pictures").
"""
HEADER: dict[CameraSide, tuple[str, ...]] = {
    "ahead": ("# The hand's camera is on the side that the arm reaches to.",),
    "hand": (),
}
"""What a suite's file says of it; none said anything before 2026-11-30"""
FRAME = {"width": 96, "height": 96}
BESIDE, AHEAD = (0.09, -0.1), (0.02, 0.02)
"""[m] At a scale of 1, beside and ahead of the tool: the hand's camera, and what it looks at"""
SIDEWAYS = 0.01  # of a unit vector: a hand that is so nearly across has no side ahead, and keeps its own


def exterior(x: float, y: float, top: float, heading: float, size: float) -> dict[str, object]:
    """One that looks back at the middle (x, y) of a field at the height `top` [m], for an arm of `size` [m].

    `heading` [rad] is the way from the base to the field, about z.
    """
    eye = (x + 0.6 * size * math.cos(heading), y + 0.6 * size * math.sin(heading), top + 0.72 * size)
    return {"position": eye, "look_at": (x, y, top + 0.05 * size), "fovy": 45, **FRAME}


def wrist(palm: str, palm_from_frame: Transform, scale: float) -> dict[str, object]:
    """One on the link `palm`, on the side of the frame's x axis, that looks at what the fingers hold."""
    beside, ahead = (
        (palm_from_frame @ np.array([scale * side, 0.0, scale * further, 1.0]))[:3]
        for side, further in (BESIDE, AHEAD)
    )
    return {"link": palm, "position": beside, "look_at": ahead, "fovy": 75, **FRAME}


def facing(
    palm_from_frame: Transform, root_from_palm: Transform, heading: float, side: CameraSide = "ahead"
) -> Transform:
    """A hand's frame; `ahead`, turned half round its z axis where its x axis would point back to the base.

    `root_from_palm` is the palm's pose where the arm begins, `heading` [rad] the way it reaches, about z.
    """
    way: Float[np.ndarray, "3"] = np.array([math.cos(heading), math.sin(heading), 0.0])
    ahead = float(way @ root_from_palm[:3, :3] @ palm_from_frame[:3, 0])
    turned = side == "ahead" and ahead < -SIDEWAYS
    return palm_from_frame @ np.diag([-1.0, -1.0, 1.0, 1.0]) if turned else palm_from_frame
