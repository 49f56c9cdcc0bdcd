"""The unit of an episode's turning joints: radians, degrees, or percent (-100..100 of each joint's range).

A dataset does not say it. Values beyond a turn are no radians; values that all stay within a turn are no
degrees and no percent; values that end at 100 where the limits lie elsewhere are percent, and those beyond
100 are none. A joint with a scale of its own in the side file is left out.
"""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Float

from morph_vla.checks.name_match import HAND, words
from morph_vla.checks.playback import Played, some
from morph_vla.findings import Feature, Finding
from morph_vla.robots.robot import ActionJoint

Code = Literal["not-radians", "radians", "percent", "not-percent"]
ROOM = 0.03
"""What a recording may leave its limits by, as a part of them: real joints are calibrated by hand."""
FULL = (97.5, 100.5)
"""Where values in -100..100 end."""
TURNS = 6 * math.pi
"""[rad] that a joint without limits seldom leaves either way in an episode"""


def units(played: Played) -> Iterator[Finding]:
    """The turning joints that are no gripper, taken together: a dataset has one unit for them."""
    joints = played.robot.joints
    places = [j for j, joint in enumerate(joints) if not joint.is_gripper and joint.unit in _RULES]
    if not places:
        return
    turning = [joints[j] for j in places]
    signs = np.array([math.copysign(1.0, joint.scale) for joint in turning])
    values = played.values[played.finite][:, places] * signs
    yield from _RULES[turning[0].unit](played, turning, values)


def _not_radians(
    played: Played, turning: list[ActionJoint], values: Float[np.ndarray, "n t"]
) -> Iterator[Finding]:
    """Radians are expected: angles beyond a turn that the limits do not allow are degrees or percent."""
    reach = np.abs(values).max(axis=0)
    outside = [
        not fits(joint, *_ends(joint, values[:, j])) if joint.type != "continuous" else bool(reach[j] > TURNS)
        for j, joint in enumerate(turning)
    ]
    beyond = np.array(outside) & (reach > 2 * math.pi)
    if not beyond.any():
        return
    names = tuple(joint.name for joint, hit in zip(turning, beyond, strict=True) if hit)
    worst = int(np.argmax(reach * beyond))
    found = (
        f"values up to {reach[worst]:.4g} on {len(names)} of {len(turning)} turning joints ({some(names)})"
    )
    as_degrees = all(fits(joint, *_ends(joint, np.radians(values[:, j]))) for j, joint in enumerate(turning))
    percent = _percent_evidence(turning, values)
    if percent:
        consequence = f"they look like -100..100 of each joint's range, unit: percent: {percent}"
    elif as_degrees:
        consequence = "they look like degrees, in which every joint is within its limits: unit: degrees"
    elif reach.max() <= FULL[1]:
        consequence = "they look like unit: percent, for in degrees they would leave the limits"
    else:
        consequence = "they are no radians of this robot, nor degrees within its limits"
    grippers = [name for name in names if HAND & set(words(name))]
    if grippers:
        consequence += f"; '{grippers[0]}' is declared no gripper: say its two ends under gripper:"
    yield _unit("not-radians", played, names, found, "expected radians", consequence)


def _not_degrees(
    played: Played, turning: list[ActionJoint], values: Float[np.ndarray, "n t"]
) -> Iterator[Finding]:
    """Degrees are expected: tiny ones are radians; those that end at 100 whatever the limits are percent."""
    reach = np.abs(values).max(axis=0)
    names = tuple(joint.name for joint in turning)
    if _like_radians(turning, values):
        yield _radians(played, names, reach, "degrees")
        return
    evidence = _percent_evidence(turning, values)
    if evidence:
        off = _percent_off(turning, values)
        found = f"values that end at 100: {evidence}"
        consequence = f"they look like -100..100 of each joint's range, unit: percent; {off}"
        yield _unit("percent", played, names, found, "expected degrees", consequence)


def _not_percent(
    played: Played, turning: list[ActionJoint], values: Float[np.ndarray, "n t"]
) -> Iterator[Finding]:
    """Percent is expected: beyond 100 there is none, and tiny ones are radians."""
    reach = np.abs(values).max(axis=0)
    if _like_radians(turning, values):
        yield _radians(played, tuple(joint.name for joint in turning), reach, "-100..100")
        return
    beyond = reach > 100 * (1 + ROOM)
    if beyond.any():
        names = tuple(turning[j].name for j in np.flatnonzero(beyond))
        found = (
            f"values up to {reach.max():.4g} on {len(names)} of {len(turning)} turning joints ({some(names)})"
        )
        in_degrees = [
            fits(joint, *ends(np.radians(values[:, j]) + _degrees_zero(joint)))
            for j, joint in enumerate(turning)
        ]
        consequence = (
            "they look like degrees, in which every joint is within its limits: unit: degrees"
            if all(in_degrees)
            else "they are no percent of this robot's range, nor degrees within its limits"
        )
        yield _unit("not-percent", played, names, found, "expected -100..100", consequence)


def _like_radians(turning: list[ActionJoint], values: Float[np.ndarray, "n t"]) -> bool:
    """Several joints, none further than a turn, at least one moving, and all within their limits."""
    if len(turning) < 2 or np.abs(values).max() > 2 * math.pi or np.ptp(values, axis=0).max() <= 0.1:
        return False
    return all(fits(joint, *ends(values[:, j] + _degrees_zero(joint))) for j, joint in enumerate(turning))


def _radians(played: Played, names: tuple[str, ...], reach: Float[np.ndarray, "t"], unit: str) -> Finding:
    words = f"no turning joint leaves {reach.max():.3g} either way", f"expected {unit}"
    return _unit("radians", played, names, *words, "they look like radians: leave unit: out of the side file")


def _unit(code: Code, played: Played, joints: tuple[str, ...], *words: str) -> Finding:
    return Finding(code, "warning", Feature(played.feature), joints, *words)


def _degrees_zero(joint: ActionJoint) -> float:
    """The joint's zero in angles; percent has its own, halfway between the limits."""
    return 0.0 if joint.unit == "%" else joint.zero


def _percent_evidence(turning: list[ActionJoint], values: Float[np.ndarray, "n t"]) -> str:
    """Joints that stop at 100 though their limits in degrees lie elsewhere, when nothing goes beyond 100.

    One joint beyond its limit is enough; of joints that could go further than 100 degrees it takes two.
    """
    if np.abs(values).max() > FULL[1]:
        return ""
    beyond, short = [], []
    for j, joint in enumerate(turning):
        for sign, end in ((-1, values[:, j].min()), (1, values[:, j].max())):
            limit = math.degrees(joint.lower if sign < 0 else joint.upper)
            if not FULL[0] <= sign * end <= FULL[1] or joint.type == "continuous":
                continue
            text = f"'{joint.name}' ends at {end:.4g}, its limit is {limit:.4g} degrees"
            if sign * end > sign * limit + 0.5:
                beyond.append(text)
            elif sign * limit > FULL[1] + 1:
                short.append(text)
    return "; ".join([*beyond, *short][:3]) if beyond or len(short) > 1 else ""


def _percent_off(turning: list[ActionJoint], values: Float[np.ndarray, "n t"]) -> str:
    """How far the two readings are apart over the episode."""
    worst, name = 0.0, turning[0].name
    for j, joint in enumerate(turning):
        as_percent = joint.lower + (values[:, j] + 100) / 200 * (joint.upper - joint.lower)
        apart = float(np.abs(as_percent - (np.radians(values[:, j]) + joint.zero)).max())
        if apart > worst:
            worst, name = apart, joint.name
    return f"read so, '{name}' stands up to {math.degrees(worst):.0f} degrees from where degrees put it"


def _ends(joint: ActionJoint, values: Float[np.ndarray, "n"]) -> tuple[float, float]:
    """Of signed values read as radians, from the joint's zero on."""
    return float(values.min()) + joint.zero, float(values.max()) + joint.zero


def ends(values: Float[np.ndarray, "n"]) -> tuple[float, float]:
    """The smallest and the largest."""
    return float(values.min()), float(values.max())


def fits(joint: ActionJoint, low: float, high: float, room: float = ROOM) -> bool:
    """Whether a range [rad] or [m] lies within a joint's limits, with some room."""
    if joint.type == "continuous":
        return True
    slack = room * abs(joint.upper - joint.lower) + 1e-6
    return joint.lower - slack <= low and high <= joint.upper + slack


_RULES = {"rad": _not_radians, "deg": _not_degrees, "%": _not_percent}
"""By the unit that the robot expects of its turning joints; a scale of a joint's own is none of them."""
