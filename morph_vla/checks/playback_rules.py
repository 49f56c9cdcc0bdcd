"""What a played episode says against the robot it was played on: units, limits, signs, grippers, speed, rate.

Every rule yields remarks and none of them decides alone: an episode is evidence, and its remark says what of.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.checks.playback import Played, Remark, some
from morph_vla.checks.playback_grippers import grippers, polarity
from morph_vla.checks.playback_units import ROOM, ends, fits, units
from morph_vla.robots.robot import ActionJoint, Robot

STILL = 1e-3
"""A joint that uses less of its limits than this never moves."""
TIP_SPEED = 5.0
"""[m/s] of an end effector, from which frames are more likely wrong than fast"""


def judge(
    robot: Robot, played: Sequence[Played], fps: float, timestamps: Float[np.ndarray, "n"] | None
) -> list[Remark]:
    """Every remark on the features of one episode that could be played."""
    remarks = list(_rate(robot, fps, timestamps))
    for feature in played:
        unit = list(units(feature))
        hit = {name for remark in unit for name in remark.joints}
        remarks += unit
        remarks += _limits(feature, hit)
        remarks += grippers(feature, hit)
        remarks += _speed(feature, skip=bool(unit))
        remarks += _still(feature)
    by_feature = {feature.feature: feature for feature in played}
    if {"action", "observation.state"} <= set(by_feature):
        action, state = by_feature["action"], by_feature["observation.state"]
        remarks += _apart(action, state)
        remarks += polarity(action, state)
    return remarks


# ------------------------------------------------------------------------------------------------- rate


def _rate(robot: Robot, fps: float, timestamps: Float[np.ndarray, "n"] | None) -> Iterator[Remark]:
    if robot.control_rate is not None and abs(fps / robot.control_rate - 1) > 0.01:
        yield Remark(
            "warning", "", (), f"recorded at {fps:g} Hz", f"expected control_rate {robot.control_rate:g} Hz",
            "a policy trained on it acts at another pace than the robot is driven",
        )  # fmt: skip
    if timestamps is None or len(timestamps) < 3 or not np.isfinite(timestamps).all():
        return
    steps = np.diff(timestamps)
    typical = float(np.median(steps))
    if typical <= 0 or abs(typical * fps - 1) > 0.02:
        yield Remark(
            "warning", "", (), f"its time stamps are {typical:.4g} s apart", f"expected 1/{fps:g} s",
            "the dataset's fps or its time stamps are wrong",
        )  # fmt: skip
        return
    odd = np.flatnonzero((steps > 1.5 / fps) | (steps < 0.5 / fps))
    if len(odd):
        yield Remark(
            "warning", "", (), f"{len(odd)} gaps between time stamps, the first after frame {odd[0]}",
            f"expected a frame every {1 / fps:.4g} s", "frames were lost, and a policy learns the jumps",
        )  # fmt: skip


# ----------------------------------------------------------------------------------------------- limits


def _limits(played: Played, skip: set[str]) -> Iterator[Remark]:
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
        expected = f"expected {joint.lower:.4g} to {joint.upper:.4g}"
        if fits(joint, low, high):
            consequence = "a little beyond: calibration, or limits narrower than the real ones"
            yield Remark(
                "note", played.feature, (joint.name,), found, expected, consequence, "beyond its limits"
            )
            continue
        consequence = _repair(joint, low, high)
        yield Remark(
            "warning", played.feature, (joint.name,), found, expected, consequence, "leaves its limits"
        )


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


def _still(played: Played) -> Iterator[Remark]:
    names = tuple(np.array(played.robot.names)[~_moves(played)].tolist())
    if names and played.finite.sum() > 1:
        found = f"{some(names)} never move{'s' if len(names) == 1 else ''}"
        if len(names) == len(played.robot.joints):
            found = "no joint ever moves"
        consequence = (
            "over many episodes, its statistics would be those of noise: leave it out, or check the order"
        )
        yield Remark(
            "warning", played.feature, names, found, "expected some motion", consequence, "never moves"
        )


def _apart(action: Played, state: Played) -> Iterator[Remark]:
    """A joint that is told to move and does not, or moves untold: two columns of different joints."""
    told, real = _moves(action), _moves(state)
    for first, second, what in (
        (told, real, "moves in the action and never in the state"),
        (real, told, "moves in the state and never in the action"),
    ):
        names = tuple(np.array(action.robot.names)[first & ~second].tolist())
        if names:
            verb = what if len(names) == 1 else what.replace("moves", "move")
            yield Remark(
                "warning", "", names, f"{some(names)} {verb}", "expected both or neither",
                "the order of action and state differs, or one was not recorded", "one of two moves",
            )  # fmt: skip


def _speed(played: Played, skip: bool) -> Iterator[Remark]:
    """Steps between frames that are faster than a joint can go, and an end effector that is."""
    if played.finite.sum() < 2 or skip:
        return
    frames = np.flatnonzero(played.finite)
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
        yield Remark(
            "warning", played.feature, (joint.name,), found,
            f"expected at most its velocity limit, {limit:.3g} {unit}", consequence, "too fast",
        )  # fmt: skip
    for trace in played.traces:
        fastest = float(trace.speeds.max())
        if fastest > TIP_SPEED:
            worst = frames[int(trace.speeds.argmax())]
            yield Remark(
                "warning", played.feature, (), f"'{trace.link}' goes {fastest:.3g} m/s after frame {worst}",
                f"expected less than {TIP_SPEED:g} m/s", "lost frames, another unit or another joint order",
            )  # fmt: skip
