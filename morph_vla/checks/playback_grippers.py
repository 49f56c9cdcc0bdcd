"""What an episode says about grippers: values beyond the ends, ends never reached, the two confused."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.checks.playback import Played
from morph_vla.checks.playback_units import ROOM
from morph_vla.findings import Feature, Finding
from morph_vla.robots.robot import ActionJoint

STILL = 0.02
"""A gripper that has moved by less of its way over four frames stands still."""
APART = 0.04
"""How far from where it was sent, as a part of its way, a gripper is held off rather than only lagging."""
FRAMES = 8
"""Fewer frames are no evidence."""


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


def grippers(played: Played, skip: set[str]) -> Iterator[Finding]:
    """Values beyond a gripper's two ends, and ends that it never comes near."""
    for j, joint in enumerate(played.robot.joints):
        if not joint.is_gripper or joint.name in skip:
            continue
        values = played.values[played.finite, j]
        at = openness(joint, played.native[played.finite, j])
        native_ends = np.array([joint.opened, joint.closed], dtype=np.float64)
        both = sorted(((native_ends - joint.zero) * joint.scale).tolist())
        low, high = float(values.min()), float(values.max())
        words = f"'{joint.name}' has values from {low:.4g} to {high:.4g}", f"expected {joint.unit}"
        where, subject = Feature(played.feature), (joint.name,)
        span = both[1] - both[0]
        if low < both[0] - ROOM * span or high > both[1] + ROOM * span:
            consequence = _other_ends(low, high, both)
            yield Finding("gripper-beyond", "warning", where, subject, *words, consequence)
        elif span >= 10 and high <= 1.05 and np.ptp(values) > 0.05:
            consequence = "they look like 0..1: say so with dataset_open and dataset_closed"
            yield Finding("gripper-unit", "warning", where, subject, *words, consequence)
        elif at.min() > 0.1 and np.ptp(at) > STILL:
            consequence = (
                f"it stays {at.min():.0%} open at the least: it holds a thing, or its closed end is another"
            )
            yield Finding("never-closed", "note", where, subject, *words, consequence)


def _other_ends(low: float, high: float, known: Sequence[float]) -> str:
    for name, (start, end) in {
        "0..1": (0, 1), "0..100": (0, 100), "-1..1": (-1, 1), "0..1000": (0, 1000),
    }.items():  # fmt: skip
        room = ROOM * (end - start)
        inside = start - room <= low and high <= end + room
        if inside and (end - start) / 5 < max(abs(low), abs(high)) and [start, end] != list(known):
            return f"they look like {name}: say so with dataset_open and dataset_closed"
    return "its two ends are others: see dataset_open and dataset_closed"


def polarity(action: Played, state: Played) -> Iterator[Finding]:
    """A thing between the jaws keeps them more open than they are told to be, never more closed.

    So in frames in which both stand still and the gripper has not come where it was sent, state minus action
    points to the open end. If it points the other way in most of them, open and closed are probably confused.
    """
    both = action.finite & state.finite
    for j, joint in enumerate(action.robot.joints):
        if not joint.is_gripper:
            continue
        sent, real = openness(joint, action.native[both, j]), openness(joint, state.native[both, j])
        held = _both_still(sent, real) & (np.abs(real - sent) > APART)
        if held.sum() < FRAMES:
            continue
        opened = float((real > sent)[held].mean())
        about = f"'{joint.name}' stands still and off its target in {int(held.sum())} frames,"
        if opened < 0.2:
            found = f"{about} more closed than it is told in {1 - opened:.0%} of them"
            expected = "expected more open: a thing between the jaws stops them from closing"
            consequence = "it seems inverted: exchange dataset_open and dataset_closed, or look at the video"
            words = found, expected, consequence
            yield Finding("gripper-inverted", "warning", Feature(), (joint.name,), *words)
        elif opened > 0.8:
            found = f"{about} more open than it is told in {opened:.0%} of them"
            expected = "expected so of a thing between the jaws, or of the jaws themselves"
            consequence = "its open and closed ends are probably right"
            yield Finding("gripper-right", "note", Feature(), (joint.name,), found, expected, consequence)


def _both_still(sent: Float[np.ndarray, "n"], real: Float[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Frames in which neither has moved by more than 2% of the gripper's way since 3 frames before."""
    still = np.zeros(len(sent), dtype=bool)
    if len(sent) > 3:
        still[3:] = (np.abs(sent[3:] - sent[:-3]) < STILL) & (np.abs(real[3:] - real[:-3]) < STILL)
    return still
