"""What a played episode says against the robot it was played on: units, limits, signs, grippers, speed, rate.

Every rule yields findings and none of them decides alone: an episode is evidence, and a finding says what of.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.checks.playback import Played, some
from morph_vla.checks.playback_grippers import grippers, polarity
from morph_vla.checks.playback_units import ROOM, ends, fits, units
from morph_vla.findings import Feature, Finding
from morph_vla.robots.robot import ActionJoint, Robot

STILL = 1e-3
"""A joint that uses less of its limits than this never moves."""
TIP_SPEED = 5.0
"""[m/s] of an end effector, from which frames are more likely wrong than fast"""


def judge(
    robot: Robot, played: Sequence[Played], fps: float, timestamps: Float[np.ndarray, "n"] | None
) -> list[Finding]:
    """Every finding on the features of one episode that could be played."""
    findings = list(_rate(robot, fps, timestamps))
    for feature in played:
        unit = list(units(feature))
        hit = {name for finding in unit for name in finding.subject}
        findings += unit
        findings += _limits(feature, hit)
        findings += grippers(feature, hit)
        findings += _speed(feature, skip=bool(unit))
        findings += _still(feature)
    by_feature = {feature.feature: feature for feature in played}
    if {"action", "observation.state"} <= set(by_feature):
        action, state = by_feature["action"], by_feature["observation.state"]
        findings += _apart(action, state)
        findings += polarity(action, state)
    return findings


# ------------------------------------------------------------------------------------------------- rate


def _rate(robot: Robot, fps: float, timestamps: Float[np.ndarray, "n"] | None) -> Iterator[Finding]:
    if robot.control_rate is not None and abs(fps / robot.control_rate - 1) > 0.01:
        words = f"recorded at {fps:g} Hz", f"expected control_rate {robot.control_rate:g} Hz"
        consequence = "a policy trained on it acts at another pace than the robot is driven"
        yield Finding("control-rate", "warning", Feature(), (), *words, consequence)
    if timestamps is None or len(timestamps) < 3 or not np.isfinite(timestamps).all():
        return
    steps = np.diff(timestamps)
    typical = float(np.median(steps))
    if typical <= 0 or abs(typical * fps - 1) > 0.02:
        words = f"its time stamps are {typical:.4g} s apart", f"expected 1/{fps:g} s"
        consequence = "the dataset's fps or its time stamps are wrong"
        yield Finding("other-rate", "warning", Feature(), (), *words, consequence)
        return
    odd = np.flatnonzero((steps > 1.5 / fps) | (steps < 0.5 / fps))
    if len(odd):
        found = f"{len(odd)} gaps between time stamps, the first after frame {odd[0]}"
        words = f"expected a frame every {1 / fps:.4g} s", "frames were lost, and a policy learns the jumps"
        yield Finding("time-gaps", "warning", Feature(), (), found, *words)


# ----------------------------------------------------------------------------------------------- limits


def _limits(played: Played, skip: set[str]) -> Iterator[Finding]:
    """Joints that leave their limits, and the sign, the zero or the unit that would keep them inside."""
    for j, joint in enumerate(played.robot.joints):
        if joint.name in skip or joint.is_gripper:
            continue
        low, high = ends(played.native[played.finite, j])
        if fits(joint, low, high, room=1e-3):
            continue
        over = max(joint.lower - low, high - joint.upper)
        unit = "m" if joint.type == "prismatic" else "rad"
        found = f"'{joint.name}' goes from {low:.4g} to {high:.4g} {unit}, {over:.3g} beyond its limits"
        words = found, f"expected {joint.lower:.4g} to {joint.upper:.4g}"
        where, subject = Feature(played.feature), (joint.name,)
        if fits(joint, low, high):
            consequence = "a little beyond: calibration, or limits narrower than the real ones"
            yield Finding("a-little-beyond", "note", where, subject, *words, consequence)
        else:
            yield Finding("leaves-limits", "warning", where, subject, *words, _repair(joint, low, high))


def _repair(joint: ActionJoint, low: float, high: float) -> str:
    """The first reading of a joint's values that its limits would allow, nearest to what was assumed."""
    if high - low > (joint.upper - joint.lower) * (1 + 2 * ROOM):
        if joint.type == "prismatic" and low >= -ROOM and high <= 1 + ROOM:
            return "it looks like 0..1 of its travel: declare it under gripper: with its two ends"
        if joint.type == "prismatic" and fits(joint, low / 1000, high / 1000):
            return "in millimetres it would fit: divide by 1000"
        return (
            "it moves further than its limits are apart: no sign or zero repairs that; another unit or joint?"
        )
    mirrored = sorted((2 * joint.zero - low, 2 * joint.zero - high))
    if fits(joint, *mirrored):
        sign = -1 if joint.scale > 0 else 1
        return f"mirrored it would fit: signs: {{{joint.name}: {sign}}}"
    if joint.type != "prismatic":
        for quarter in (1, -1, 2, -2, 3, -3, 4, -4):
            shift = quarter * math.pi / 2
            if fits(joint, low + shift, high + shift):
                zero = f"zeros: {{{joint.name}: {joint.zero + shift:.6g}}}"
                return f"shifted by {90 * quarter} degrees it would fit: {zero}"
    shift = joint.lower - low if low < joint.lower else joint.upper - high
    return (
        f"shifted by {shift:.3g} or more it would fit: is zeros: missing, or are its limits another robot's?"
    )


# ---------------------------------------------------------------------------------------- motion, speed


def _moves(played: Played) -> Bool[np.ndarray, "j"]:
    """Which joints use more than STILL of their limits."""
    spans = np.array([
        joint.upper - joint.lower if joint.upper > joint.lower else 1.0 for joint in played.robot.joints
    ])  # fmt: skip
    return np.ptp(played.native[played.finite], axis=0) > STILL * spans


def _still(played: Played) -> Iterator[Finding]:
    names = tuple(np.array(played.robot.names)[~_moves(played)].tolist())
    if names and played.finite.sum() > 1:
        found = f"{some(names)} never move{'s' if len(names) == 1 else ''}"
        if len(names) == len(played.robot.joints):
            found = "no joint ever moves"
        consequence = (
            "over many episodes, its statistics would be those of noise: leave it out, or check the order"
        )
        words = found, "expected some motion", consequence
        yield Finding("never-moves", "warning", Feature(played.feature), names, *words)


def _apart(action: Played, state: Played) -> Iterator[Finding]:
    """A joint that is told to move and does not, or moves untold: two columns of different joints."""
    told, real = _moves(action), _moves(state)
    for first, second, what in (
        (told, real, "moves in the action and never in the state"),
        (real, told, "moves in the state and never in the action"),
    ):
        names = tuple(np.array(action.robot.names)[first & ~second].tolist())
        if names:
            verb = what if len(names) == 1 else what.replace("moves", "move")
            words = f"{some(names)} {verb}", "expected both or neither"
            consequence = "the order of action and state differs, or one was not recorded"
            yield Finding("one-of-two-moves", "warning", Feature(), names, *words, consequence)


def _speed(played: Played, skip: bool) -> Iterator[Finding]:
    """Steps between frames that are faster than a joint can go, and an end effector that is."""
    if played.finite.sum() < 2 or skip:
        return
    where, frames = Feature(played.feature), np.flatnonzero(played.finite)
    steps = np.abs(np.diff(played.native[played.finite], axis=0))
    for j, joint in enumerate(played.robot.joints):
        limit = joint.velocity or math.inf
        speed = steps[:, j] * played.fps
        fast = speed > limit * 1.02
        if not fast.any():
            continue
        unit = "m/s" if joint.type == "prismatic" else "rad/s"
        worst = int(speed.argmax())
        wraps = joint.type != "prismatic" and abs(steps[worst, j] - 2 * math.pi) < 0.2
        found = (
            f"'{joint.name}' goes {speed[worst]:.3g} {unit} after frame {frames[worst]}"
            f" ({int(fast.sum())} of {len(speed)} steps are too fast)"
        )
        consequence = (
            "a full turn between two frames: the values wrap, and a policy would learn the jump"
            if wraps
            else "lost frames, another unit or another frame rate"
        )
        words = found, f"expected at most its velocity limit, {limit:.3g} {unit}", consequence
        yield Finding("too-fast", "warning", where, (joint.name,), *words)
    for trace in played.traces:
        fastest = float(trace.speeds.max())
        if fastest > TIP_SPEED:
            worst = frames[int(trace.speeds.argmax())]
            words = f"'{trace.link}' goes {fastest:.3g} m/s after frame {worst}"
            expected = f"expected less than {TIP_SPEED:g} m/s"
            consequence = "lost frames, another unit or another joint order"
            yield Finding("tip-too-fast", "warning", where, (trace.link,), words, expected, consequence)
