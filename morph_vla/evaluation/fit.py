"""What a policy was trained with, held against what a suite gives it, before the first episode.

`mismatches` are reasons to refuse: with one of them every action would mean something else than it was learnt
as. `doubts` are reasons to look twice: the policy can act, but perhaps not as well as it could. Both give a
sentence each, with both sides. What an older checkpoint does not say is not compared.
"""

import hashlib
import math
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from morph_vla import robots
from morph_vla.errors import nearest
from morph_vla.robots import Robot

KINDS = ("absolute", "delta", "velocity")  # of actions that can be turned into absolute targets
ASPECT = 0.02  # frames whose width by height differs by more are another shape
BEYOND = 2.0  # in units in which the trained range (q01 to q99) is -1 to 1


@runtime_checkable
class Trained(Protocol):
    """A policy that says what it was trained with, as `serving.policy.CheckpointPolicy` does."""

    robot_name: str
    trained: dict[str, Any]
    cameras: dict[str, str]
    image_size: int


def mismatches(policy: Trained, suite: Any) -> list[str]:
    """What a suite gives and the policy was not trained with, one sentence each; empty when they fit."""
    problems: list[str] = []
    if suite.robot != policy.robot_name:
        problems.append(f"robot: the suite has '{suite.robot}', the policy drives '{policy.robot_name}'")
    else:
        robot = robots.load(suite.robot)
        problems += [*_joints(policy.trained, robot), *_statistics(policy.trained, robot)]
    if suite.control_rate != policy.trained["control_rate"]:
        problems.append(
            f"control rate: the suite runs at {suite.control_rate:g} Hz, "
            f"the policy was trained at {policy.trained['control_rate']:g} Hz"
        )
    return [*problems, *_actions(policy.trained), *_cameras(policy, suite)]


def doubts(policy: Trained, suite: Any) -> list[str]:
    """What the policy can act on, but has not seen in training: one sentence each."""
    problems = [*_text(policy.trained, suite.task), *_unsized(policy, suite)]
    if suite.robot == policy.robot_name:
        robot = robots.load(suite.robot)
        problems += [*_start(policy.trained, robot), *_file(policy.trained, robot)]
    return problems


def _joints(trained: dict[str, Any], robot: Robot) -> Iterator[str]:
    """Names and order, then units and limits joint by joint."""
    if list(robot.names) != list(trained["joints"]):
        yield (
            f"joints: the suite's robot has {', '.join(robot.names)}, "
            f"the policy was trained with {', '.join(trained['joints'])}"
        )
        return
    now = {
        "affine": [(joint.scale, joint.zero) for joint in robot.joints],
        "limits": [(joint.lower, joint.upper) for joint in robot.joints],
    }
    words = {"affine": "units (scale, zero)", "limits": "limits [rad or m]"}
    for key, name in words.items():
        for joint, here, there in zip(robot.names, now[key], trained.get(key, now[key]), strict=True):
            if not np.allclose(here, there, rtol=1e-6, atol=1e-9):
                yield (
                    f"{name} of joint '{joint}': the suite's robot has {_pair(here)}, "
                    f"the policy was trained with {_pair(there)}"
                )


def _pair(values: Any) -> str:
    return f"({', '.join(f'{value:g}' for value in values)})"


def _statistics(trained: dict[str, Any], robot: Robot) -> Iterator[str]:
    for kind in ("state_stats", "action_stats"):
        kept, name = trained.get(kind), kind.replace("_stats", "s")
        if not kept:
            yield f"normalisation: the policy has no statistics of {name} of '{robot.name}'"
            continue
        widths = {len(kept[key]) for key in ("q01", "q99")}
        if widths != {len(robot.joints)}:
            yield (
                f"normalisation: the suite's robot has {len(robot.joints)} joints, the policy's statistics "
                f"of {name} have {', '.join(map(str, sorted(widths)))} values"
            )
        elif not np.isfinite([*kept["q01"], *kept["q99"]]).all():
            yield f"normalisation: the policy's statistics of {name} hold values that are not finite"


def _actions(trained: dict[str, Any]) -> Iterator[str]:
    kind = trained.get("actions", "absolute")
    if kind not in KINDS:
        yield (
            "actions: the suite takes absolute joint targets, the policy learnt "
            f"'{kind}' ones{nearest(str(kind), KINDS)} ({', '.join(KINDS)})"
        )
    mask, joints = trained.get("relative"), trained["joints"]
    if mask is not None and len(mask) != len(joints):
        yield (
            f"actions: the policy says of {len(mask)} values whether they are relative, and has "
            f"{len(joints)} joints"
        )


def _cameras(policy: Trained, suite: Any) -> Iterator[str]:
    """Every camera is there, its frames have the shape they had in training, and no fewer pixels."""
    for name in policy.cameras.values():
        if name not in suite.cameras:
            yield f"camera: the policy needs '{name}', the suite has {', '.join(suite.cameras)}"
            continue
        size = policy.trained.get("sizes", {}).get(name)
        if size is None:
            continue
        (height, width), spec = size, suite.cameras[name]
        both = (
            f"camera '{name}': the suite's frames are {spec.width} x {spec.height} pixels, the policy was "
            f"trained on {width} x {height}"
        )
        if abs(math.log(spec.width * height / (spec.height * width))) > ASPECT:
            yield f"{both}: another shape, so that what it sees would be scaled otherwise"
        elif max(spec.width, spec.height) < min(policy.image_size, max(height, width)):
            yield f"{both}, and looks at {policy.image_size}: it would see less than it learnt from"


def _unsized(policy: Trained, suite: Any) -> Iterator[str]:
    """For a checkpoint that does not say how large its frames were: at least as large as the model looks."""
    for name in policy.cameras.values():
        spec = suite.cameras.get(name)
        if spec is None or name in policy.trained.get("sizes", {}):
            continue
        if max(spec.width, spec.height) < policy.image_size:
            yield (
                f"camera '{name}': the suite's frames are {spec.width} x {spec.height} pixels and the policy "
                f"looks at {policy.image_size}; it does not say what size it was trained on"
            )


def _text(trained: dict[str, Any], text: str) -> Iterator[str]:
    known = trained.get("tasks") or []
    if known and text not in known:
        near = nearest(text, known)
        shown = ", ".join(f"'{task}'" for task in known[:3]) + (", ..." if len(known) > 3 else "")
        yield f"text: the suite says '{text}', the policy was trained with {shown}{near}"


def _start(trained: dict[str, Any], robot: Robot) -> Iterator[str]:
    """The pose in which episodes begin, against the range of states that the policy was trained on."""
    kept = trained.get("state_stats") or {}
    low, high = (np.asarray(kept.get(key, ()), np.float64) for key in ("q01", "q99"))
    if not len(low) == len(high) == len(robot.joints):
        return
    start = robot.to_dataset(np.asarray(robot.rest, np.float64))
    away = np.abs((start - low) / (high - low + 1e-6) * 2 - 1)
    if (away > BEYOND).any():
        outside = [
            f"{robot.names[j]} {start[j]:.4g} (trained on {low[j]:.4g} to {high[j]:.4g})"
            for j in np.flatnonzero(away > BEYOND)
        ]
        yield f"normalisation: episodes begin outside of what the policy was trained on: {', '.join(outside)}"


def _file(trained: dict[str, Any], robot: Robot) -> Iterator[str]:
    then, now = trained.get("urdf_sha256"), hashlib.sha256(robot.urdf_path.read_bytes()).hexdigest()
    if then and then != now:
        yield (
            f"robot: the URDF of '{robot.name}' has changed since training (sha256 {now[:12]}, was "
            f"{then[:12]}); joints, limits and units are the same"
        )
