"""The unit of an episode's turning joints: radians, degrees, or percent (-100..100 of each joint's range).

A dataset does not say it. Values beyond a turn are no radians; values that all stay within a turn are no
degrees and no percent; values that end at 100 where the limits lie elsewhere are percent, and those beyond
100 are none. A joint with a scale of its own in the side file is left out.
"""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from morph_vla.checks.name_match import HAND, words
from morph_vla.checks.playback import Played, some
from morph_vla.checks.rules import remark
from morph_vla.findings import Finding
from morph_vla.robots.robot import ActionJoint

ROOM = 0.03
"""What a recording may leave its limits by, as a part of them: real joints are calibrated by hand."""
FULL = (97.5, 100.5)
"""Where values in -100..100 end."""
MOVES = 0.1
"""[rad] beyond which a joint moves in an episode"""
TURNS = 6 * math.pi
"""[rad] that a joint without limits seldom leaves either way in an episode"""
_DEGREES = "they look like degrees, which keep every joint within its limits: unit: degrees"


def units(played: Played) -> Iterator[Finding]:
    """The turning joints that are no gripper, taken together: a dataset has one unit for them.

    Radians are expected: angles beyond a turn that the limits do not allow are degrees or percent. Degrees:
    tiny ones are radians, and those that end at 100 whatever the limits are percent. Percent: there is none
    beyond 100, and tiny ones are radians.
    """
    joints = played.robot.joints
    places = [
        j for j, joint in enumerate(joints) if not joint.is_gripper and joint.unit in ("rad", "deg", "%")
    ]
    if not places:
        return
    turning = [joints[j] for j in places]
    signs = np.array([math.copysign(1.0, joint.scale) for joint in turning])
    values = played.values[played.finite][:, places] * signs
    reach, unit, feature = np.abs(values).max(axis=0), turning[0].unit, played.feature
    if unit == "rad":
        yield from _not_radians(feature, turning, values, reach)
    elif _like_radians(turning, values):
        found = f"no turning joint leaves {reach.max():.3g} either way"
        expected = "expected degrees" if unit == "deg" else "expected -100..100"
        yield remark("radians", feature, tuple(joint.name for joint in turning), found, expected)
    elif unit == "deg":
        evidence = _percent_evidence(turning, values)
        if evidence:
            names, off = tuple(joint.name for joint in turning), _percent_off(turning, values)
            consequence = f"they look like -100..100 of each joint's range, unit: percent; {off}"
            yield remark("percent", feature, names, f"values that end at 100: {evidence}", "", consequence)
    elif reach.max() > 100 * (1 + ROOM):
        names = tuple(turning[j].name for j in np.flatnonzero(reach > 100 * (1 + ROOM)))
        angles = np.radians(values)
        in_degrees = all(fits(joint, *_angles(joint, angles[:, j])) for j, joint in enumerate(turning))
        wrong = "neither percent nor degrees keep the joints within their limits"
        consequence = _DEGREES if in_degrees else wrong
        yield remark("not-percent", feature, names, _reach(turning, names, reach.max()), "", consequence)


def _not_radians(
    feature: str, turning: list[ActionJoint], values: Float[np.ndarray, "n t"], reach: Float[np.ndarray, "t"]
) -> Iterator[Finding]:
    beyond = reach > 2 * math.pi
    for j, joint in enumerate(turning):
        inside = (
            reach[j] <= TURNS if joint.type == "continuous" else fits(joint, *_angles(joint, values[:, j]))
        )
        beyond[j] &= not inside
    if not beyond.any():
        return
    names = tuple(joint.name for joint, hit in zip(turning, beyond, strict=True) if hit)
    ends = np.array([joint.type != "continuous" for joint in turning])
    if not beyond[ends].any() and (np.ptp(values[:, ends], axis=0) > MOVES).any():
        # The joints that have limits keep them, as radians.
        yield remark("counts-on", feature, names, _reach(turning, names, (reach * beyond).max()))
        return
    angles = np.radians(values)
    percent = _percent_evidence(turning, values)
    if percent:
        consequence = f"they look like -100..100 of each joint's range, unit: percent: {percent}"
    elif all(fits(joint, *_angles(joint, angles[:, j])) for j, joint in enumerate(turning)):
        consequence = _DEGREES
    elif reach.max() <= FULL[1]:
        consequence = "they look like unit: percent, for in degrees they would leave the limits"
    else:
        consequence = "neither radians nor degrees keep the joints within their limits"
    grippers = [name for name in names if HAND & set(words(name))]
    if grippers:
        consequence += f"; '{grippers[0]}' is declared no gripper: say its two ends under gripper:"
    found = _reach(turning, names, (reach * beyond).max())
    yield remark("not-radians", feature, names, found, "", consequence)


def _reach(turning: list[ActionJoint], names: tuple[str, ...], largest: float) -> str:
    return f"values up to {largest:.4g} on {len(names)} of {len(turning)} turning joints ({some(names)})"


def _like_radians(turning: list[ActionJoint], values: Float[np.ndarray, "n t"]) -> bool:
    """Several joints, none further than a turn, at least one moving, and all within their limits."""
    ends = [j for j, joint in enumerate(turning) if joint.type != "continuous"]
    if len(ends) > 1:  # a wheel that counts on says nothing of the others
        turning, values = [turning[j] for j in ends], values[:, ends]
    if len(turning) < 2 or np.abs(values).max() > 2 * math.pi or np.ptp(values, axis=0).max() <= MOVES:
        return False
    return all(fits(joint, *_angles(joint, values[:, j])) for j, joint in enumerate(turning))


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


def _angles(joint: ActionJoint, values_rad: Float[np.ndarray, "n"]) -> tuple[float, float]:
    """The ends of signed values from the joint's zero on; percent has its own, halfway between the limits."""
    low, high = ends(values_rad)
    zero_rad = 0.0 if joint.unit == "%" else joint.zero
    return low + zero_rad, high + zero_rad


def ends(values: Float[np.ndarray, "n"]) -> tuple[float, float]:
    """The smallest and the largest."""
    return float(values.min()), float(values.max())


def fits(joint: ActionJoint, low: float, high: float, room: float = ROOM) -> bool:
    """Whether a range [rad] or [m] lies within a joint's limits, with some room."""
    if joint.type == "continuous":
        return True
    slack = room * abs(joint.upper - joint.lower) + 1e-6
    return joint.lower - slack <= low and high <= joint.upper + slack
