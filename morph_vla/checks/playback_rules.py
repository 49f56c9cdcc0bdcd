"""What a played episode says against the robot it was played on: units, limits, signs, grippers, speed, rate.

Every rule yields findings and none of them decides alone: an episode is evidence, and a finding says what of.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.checks import name_match
from morph_vla.checks.playback import Played, some
from morph_vla.checks.playback_units import ROOM, ends, fits, units
from morph_vla.checks.rules import remark
from morph_vla.findings import Finding
from morph_vla.robots.robot import ActionJoint, Robot

STILL = 1e-3
FINGERS = 3  # of one side and more are one hand's; two may be two hands
"""A joint that uses less of its limits than this never moves."""
GRIPPER_STILL = 0.02
"""A gripper that has moved by less of its way over four frames stands still."""
GRIPPER_APART = 0.04
"""How far from where it was sent, as a part of its way, a gripper is held off rather than only lagging."""
GRIPPER_FRAMES = 8
"""Fewer frames are no evidence."""
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
        findings += _grippers(feature, hit)
        findings += _speed(feature, skip=bool(unit))
        findings += _still(feature)
    by_feature = {feature.feature: feature for feature in played}
    if {"action", "observation.state"} <= set(by_feature):
        action, state = by_feature["action"], by_feature["observation.state"]
        findings += _apart(action, state)
        findings += _polarity(action, state)
    return findings


def _rate(robot: Robot, fps: float, timestamps: Float[np.ndarray, "n"] | None) -> Iterator[Finding]:
    if robot.control_rate is not None and abs(fps / robot.control_rate - 1) > 0.01:
        expected = f"expected control_rate {robot.control_rate:g} Hz"
        yield remark("control-rate", "", (), f"recorded at {fps:g} Hz", expected)
    if timestamps is None or len(timestamps) < 3 or not np.isfinite(timestamps).all():
        return
    steps = np.diff(timestamps)
    typical = float(np.median(steps))
    if typical <= 0 or abs(typical * fps - 1) > 0.02:
        found = f"its time stamps are {typical:.4g} s apart"
        yield remark("other-rate", "", (), found, f"expected 1/{fps:g} s")
        return
    odd = np.flatnonzero((steps > 1.5 / fps) | (steps < 0.5 / fps))
    if len(odd):
        found = f"{len(odd)} gaps between time stamps, the first after frame {odd[0]}"
        yield remark("time-gaps", "", (), found, f"expected a frame every {1 / fps:.4g} s")


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
        expected = f"expected {joint.lower:.4g} to {joint.upper:.4g}"
        code, repair = "a-little-beyond", ""
        if not fits(joint, low, high):
            code, repair = "leaves-limits", _repair(joint, low, high)
        yield remark(code, played.feature, (joint.name,), found, expected, repair)


def _repair(joint: ActionJoint, low: float, high: float) -> str:
    """The first reading of a joint's values that its limits would allow, nearest to what was assumed."""
    if high - low > (joint.upper - joint.lower) * (1 + 2 * ROOM):
        if joint.type == "prismatic" and low >= -ROOM and high <= 1 + ROOM:
            return "it looks like 0..1 of its travel: declare it under gripper: with its two ends"
        if joint.type == "prismatic" and fits(joint, low / 1000, high / 1000):
            return "in millimetres it would fit: divide by 1000"
        return "it moves further than its limits allow: is this another unit or joint?"
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


def _moves(played: Played) -> Bool[np.ndarray, "j"]:
    """Which joints use more than STILL of their limits."""
    spans = played.robot.upper - played.robot.lower
    return np.ptp(played.native[played.finite], axis=0) > STILL * np.where(spans > 0, spans, 1.0)


def _still(played: Played) -> Iterator[Finding]:
    names = tuple(np.array(played.robot.names)[~_moves(played)].tolist())
    if names and played.finite.sum() > 1:
        found = f"{some(names)} never move{'s' if len(names) == 1 else ''}"
        if len(names) == len(played.robot.joints):
            found = "no joint ever moves"
        yield remark("never-moves", played.feature, names, found)


def _apart(action: Played, state: Played) -> Iterator[Finding]:
    """A joint that moves in only one of action and state: two columns of different joints."""
    in_action, in_state = _moves(action), _moves(state)
    for moving, first, second in (
        (in_action & ~in_state, "action", "state"),
        (in_state & ~in_action, "state", "action"),
    ):
        names = tuple(np.array(action.robot.names)[moving].tolist())
        if names:
            verb = f"move{'s' if len(names) == 1 else ''} in the {first} and never in the {second}"
            yield remark("one-of-two-moves", "", names, f"{some(names)} {verb}")


def _speed(played: Played, skip: bool) -> Iterator[Finding]:
    """Steps between frames that are faster than a joint can go, and an end effector that is."""
    if played.finite.sum() < 2 or skip:
        return
    frames = np.flatnonzero(played.finite)
    steps = np.abs(np.diff(played.native[played.finite], axis=0))
    for j, joint in enumerate(played.robot.joints):
        limit = joint.velocity or math.inf
        speed = steps[:, j] * played.fps
        worst = int(speed.argmax())
        wraps = joint.type != "prismatic" and abs(steps[worst, j] - 2 * math.pi) < 0.2
        fast = speed > min(limit * 1.02, math.pi * played.fps if wraps else math.inf)
        if not fast.any():
            continue
        unit = "m/s" if joint.type == "prismatic" else "rad/s"
        found = (
            f"'{joint.name}' goes {speed[worst]:.3g} {unit} after frame {frames[worst]}"
            f" ({int(fast.sum())} of {len(speed)} steps are too fast)"
        )
        consequence = (
            "a full turn between two frames: the values wrap, and a policy would learn the jump"
            if wraps
            else "lost frames, another unit or another frame rate"
        )
        known = f"at most its velocity limit, {limit:.3g} {unit}"
        expected = f"expected {known if math.isfinite(limit) else 'less than half a turn'}"
        yield remark("too-fast", played.feature, (joint.name,), found, expected, consequence)
    for trace in played.traces:
        fastest = float(trace.speeds.max())
        if fastest > TIP_SPEED:
            worst = frames[int(trace.speeds.argmax())]
            found = f"'{trace.link}' goes {fastest:.3g} m/s after frame {worst}"
            expected = f"expected less than {TIP_SPEED:g} m/s"
            yield remark("tip-too-fast", played.feature, (trace.link,), found, expected)


def openness(joint: ActionJoint, native: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """How open a gripper is: 0 at its closed end, 1 at its open end."""
    closed, opened = joint.closed or 0.0, joint.opened or 0.0
    return (native - closed) / (opened - closed)


def mostly(played: Played, joint: int) -> float:
    """How open a gripper is most of the time: the middle of the fullest twentieth of the way, 0..1."""
    at = openness(played.robot.joints[joint], played.native[played.finite, joint])
    counts, edges = np.histogram(np.clip(at, 0, 1), bins=20, range=(0, 1))
    most = int(counts.argmax())
    return float(edges[most] + edges[most + 1]) / 2


def _grippers(played: Played, skip: set[str]) -> Iterator[Finding]:
    """Values beyond a gripper's two ends, and ends that it never comes near."""
    for j, joint in enumerate(played.robot.joints):
        if not joint.is_gripper or joint.name in skip:
            continue
        values = played.values[played.finite, j]
        at = openness(joint, played.native[played.finite, j])
        native_ends = np.array([joint.opened, joint.closed], dtype=np.float64)
        both = sorted(((native_ends - joint.zero) * joint.scale).tolist())
        low, high = float(values.min()), float(values.max())
        span, code, consequence = both[1] - both[0], "", ""
        if low < both[0] - ROOM * span or high > both[1] + ROOM * span:
            code, consequence = "gripper-beyond", _other_ends(low, high, both)
        elif span >= 10 and high <= 1.05 and np.ptp(values) > 0.05:
            code = "gripper-unit"
        elif at.min() > 0.1 and np.ptp(at) > GRIPPER_STILL:
            least = f"it stays {at.min():.0%} open at the least"
            code, consequence = "never-closed", f"{least}: it holds a thing, or its closed end is another"
        if code:
            found = f"'{joint.name}' has values from {low:.4g} to {high:.4g}"
            expected = f"expected {joint.unit}"
            yield remark(code, played.feature, (joint.name,), found, expected, consequence)


def _other_ends(low: float, high: float, known: Sequence[float]) -> str:
    for start, end in ((0, 1), (0, 100), (-1, 1), (0, 1000)):
        room = ROOM * (end - start)
        inside = start - room <= low and high <= end + room
        if inside and (end - start) / 5 < max(abs(low), abs(high)) and [start, end] != list(known):
            return f"they look like {start}..{end}: say so with dataset_open and dataset_closed"
    return "its two ends are others: see dataset_open and dataset_closed"


def _polarity(action: Played, state: Played) -> Iterator[Finding]:
    """A thing between the jaws keeps them more open than their target, never more closed.

    So in frames in which both stand still and the gripper has not come where it was sent, state minus action
    points to the open end. If it points the other way in most of them, open and closed are probably confused.
    The fingers of one hand are judged together: one that only lags, or a thumb that turns, is no evidence.
    """
    hands: dict[frozenset[str], list[Finding | None]] = {}
    for joint, verdict in _fingers(action, state):
        hands.setdefault(name_match.side(joint.name), []).append(verdict)
    for verdicts in hands.values():
        clear = [verdict for verdict in verdicts if verdict is not None]
        agree = len({verdict.code for verdict in clear}) == 1 and 2 * len(clear) >= len(verdicts)
        if agree or len(verdicts) < FINGERS:
            yield from clear


def _fingers(action: Played, state: Played) -> Iterator[tuple[ActionJoint, Finding | None]]:
    """Every gripper's joint, with what its frames say of its ends, if anything."""
    both = action.finite & state.finite
    for j, joint in enumerate(action.robot.joints):
        if not joint.is_gripper:
            continue
        sent, real = openness(joint, action.native[both, j]), openness(joint, state.native[both, j])
        held = _both_still(sent, real) & (np.abs(real - sent) > GRIPPER_APART)
        opened = float((real > sent)[held].mean()) if held.sum() >= GRIPPER_FRAMES else 0.5
        about = f"'{joint.name}' stands still and off its target in {int(held.sum())} frames,"
        if opened < 0.2:
            found = f"{about} more closed than its target in {1 - opened:.0%} of them"
            yield joint, remark("gripper-inverted", "", (joint.name,), found)
        elif opened > 0.8:
            found = f"{about} more open than its target in {opened:.0%} of them"
            yield joint, remark("gripper-right", "", (joint.name,), found)
        else:
            yield joint, None


def _both_still(sent: Float[np.ndarray, "n"], real: Float[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Frames in which neither has moved by more than 2% of the gripper's way since 3 frames before."""
    still = np.zeros(len(sent), dtype=bool)
    if len(sent) > 3:
        moved = np.maximum(np.abs(sent[3:] - sent[:-3]), np.abs(real[3:] - real[:-3]))
        still[3:] = moved < GRIPPER_STILL
    return still
