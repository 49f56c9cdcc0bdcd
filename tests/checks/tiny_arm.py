"""An arm of three joints and a finger, what it does, and what is said of a recording of it."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from morph_vla import robots
from morph_vla.checks import playback, playback_rules
from morph_vla.findings import Finding
from morph_vla.robots.side import Gripper, Side

FRAMES, FPS = 211, 30.0
NAMES = ("left_shoulder_joint", "left_elbow_joint", "left_wrist_joint", "left_finger_joint")
LIMITS = ((-1.7, 1.7), (0.2, 2.9), (-2.9, 2.9), (0.0, 0.04))


def urdf() -> robots.Urdf:
    """Three turning joints and a sliding finger."""
    text = "".join(f"<link name='link{i}'/>" for i in range(5))
    kinds = ("revolute", "revolute", "revolute", "prismatic")
    for i, (name, kind, (low, high)) in enumerate(zip(NAMES, kinds, LIMITS, strict=True)):
        text += (
            f"<joint name='{name}' type='{kind}'><parent link='link{i}'/><child link='link{i + 1}'/>"
            f"<origin xyz='0 0 0.2'/><axis xyz='0 1 0'/>"
            f"<limit lower='{low}' upper='{high}' effort='5' velocity='{0.2 if i == 3 else 3}'/></joint>"
        )
    return robots.parse(f"<robot name='tiny'>{text}</robot>".encode(), "tiny.urdf")


GRIPPER = Gripper("left_finger_joint", open=0.04, closed=0.0, dataset_open=100.0, dataset_closed=0.0)


def robot(**keys) -> robots.Robot:
    side = Side(gripper=GRIPPER, control_rate=FPS)
    return robots.build(urdf(), replace(side, **keys), Path("tiny.urdf"))


def motion(seconds: float = FRAMES / FPS) -> np.ndarray:
    """A slow motion well within the limits [rad, m], the finger from open to closed and back."""
    t = np.linspace(0, 1, round(seconds * FPS))[:, None]
    middle = np.array([0.1, 1.4, -0.2, 0.02])
    return middle + np.array([0.9, 0.8, 1.6, 0.02]) * np.cos(2 * math.pi * t + np.array([0, 1, 2, 0]))


def remarks(body, values, names=None, state=None, fps=FPS, timestamps=None) -> tuple[Finding, ...]:
    """Everything said of an action, or of an action and a state."""
    names = [name.removesuffix("_joint") for name in body.names] if names is None else names
    lines, played = [], []
    features = {"action": values} | ({} if state is None else {"observation.state": state})
    for feature, array in features.items():
        piece, more = playback.play(body, feature, array, names, fps)
        lines += more
        played += [piece] if piece is not None else []
    return playback.merged([*lines, *playback_rules.judge(body, played, fps, timestamps)])


def sentences(*arguments, **keys) -> str:
    return "\n".join(map(str, remarks(*arguments, **keys)))
