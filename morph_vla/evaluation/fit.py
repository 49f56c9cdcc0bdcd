"""What a policy was trained with, held against what a suite gives it, before the first episode.

`found` is the suite's side and `expected` the policy's. An error means that every action would mean something
else than in training; a warning, that the policy can act, but perhaps not as well as it could. What an older
checkpoint does not say is not compared.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from morph_vla import robots
from morph_vla.engines import hands
from morph_vla.engines.engine import environment_names
from morph_vla.errors import nearest
from morph_vla.files.dropin import name_of
from morph_vla.findings import Finding, Source, in_order
from morph_vla.results.values import listing, mapping, numbers
from morph_vla.robots import Robot
from morph_vla.robots.standpoint import standpoint, told
from morph_vla.robots.tool import tool_space
from morph_vla.robots.views import apart, views
from morph_vla.suites.suite import Suite

ErrorCode = Literal[
    "robot",
    "joints",
    "units",
    "limits",
    "statistics",
    "control-rate",
    "actions",
    "camera",
    "frame-size",
    "environment",
]
WarningCode = Literal["task-text", "frame-size-unknown", "start-pose", "urdf-changed", "camera-side"]
Difference = tuple[ErrorCode | WarningCode, str, str, str, str]
"""Code, subject, found, expected, consequence."""
KINDS = ("absolute", "delta", "velocity")  # of actions that can be turned into absolute targets
ASPECT = 0.02  # frames whose width by height differs by more are another shape
SIDEWAYS = 30.0  # [deg] round what it looks at, from where on a camera shows another side of it
BEYOND = 2.0  # in units in which the trained range (q01 to q99) is -1 to 1


@runtime_checkable
class Trained(Protocol):
    """A policy that says what it was trained with, as `serving.policy.CheckpointPolicy` does."""

    robot_name: str
    trained: dict[str, Any]
    cameras: dict[str, str]
    image_size: int


@runtime_checkable
class Reads(Protocol):
    """A policy that says what of an observation it reads, as `hosts.lerobot.theirs.LerobotPolicy` does."""

    reads: Mapping[str, int]
    """Keys, and how many numbers there must be; 0 of an image"""
    executes: int | None
    """Actions of an answer that its own loop executes"""


def unshown(policy: Reads, label: str, shown: Mapping[str, int]) -> Iterator[Finding]:
    """What a policy reads that a suite does not show, or not as many; `shown` is as `reads` is."""
    for key, count in policy.reads.items():
        code = "camera" if key.startswith("images/") else "joints" if key == "state" else "environment"
        if key not in shown:
            has, needs = f"the suite shows {', '.join(sorted(shown))}", f"the policy reads '{key}'"
            yield Finding(code, "error", Source(label), (key,), has, needs + nearest(key, shown), "")
        elif count and shown[key] != count:
            has = f"{key}: the suite shows {shown[key]} values"
            yield Finding(code, "error", Source(label), (key,), has, f"the policy reads {count}", "")


def check(policy: Trained, suite: Suite) -> tuple[Finding, ...]:
    """What of a suite the policy was not trained with, errors first; empty when the two fit."""
    differences: list[Difference] = []
    if name_of("robots", suite.robot) == name_of("robots", policy.robot_name):
        trained, robot = policy.trained, robots.load(suite.robot)
        differences += [*_joints(trained, robot), *_statistics(trained, robot)]
        differences += [*_start(trained, robot, suite), *_urdf(trained, robot), *_sides(policy, robot, suite)]
    else:
        has, drives = f"robot: the suite has '{suite.robot}'", f"the policy drives '{policy.robot_name}'"
        differences.append(("robot", "", has, drives, ""))
    for rule in (_rate, _actions, _cameras, _environment, _text):
        differences += rule(policy, suite)
    where = Source(suite.label)
    return in_order(
        Finding(code, severity(code), where, (subject,), *words) for code, subject, *words in differences
    )


def severity(code: ErrorCode | WarningCode) -> Literal["error", "warning"]:
    """Whether what differs so keeps a policy from being evaluated."""
    return "error" if code in get_args(ErrorCode) else "warning"


def sentence(finding: Finding) -> str:
    """A finding of `check` in a sentence: both sides, and what follows."""
    sides = f"{finding.found}, {finding.expected}"
    return f"{sides}: {finding.consequence}" if finding.consequence else sides


def _joints(trained: dict[str, Any], robot: Robot) -> Iterator[Difference]:
    """Names and order, then units and limits joint by joint."""
    then, now = ", ".join(trained["joints"]), ", ".join(robot.names)
    if then != now:
        yield "joints", "", f"joints: the suite's robot has {now}", f"the policy was trained with {then}", ""
        return
    units = [(joint.scale, joint.zero) for joint in robot.joints]
    limits = [(joint.lower, joint.upper) for joint in robot.joints]
    both: tuple[tuple[ErrorCode, str, Any, Any], ...] = (
        ("units", "units (scale, zero)", units, trained.get("affine", units)),
        ("limits", "limits [rad or m]", limits, trained.get("limits", limits)),
    )
    for code, name, here, there in both:
        for joint, (a, b), (c, d) in zip(robot.names, here, there, strict=True):
            if not np.allclose((a, b), (c, d), rtol=1e-6, atol=1e-9):
                has = f"{name} of joint '{joint}': the suite's robot has ({a:g}, {b:g})"
                yield code, joint, has, f"the policy was trained with ({c:g}, {d:g})", ""


def _statistics(trained: dict[str, Any], robot: Robot) -> Iterator[Difference]:
    for name in ("states", "actions"):
        kept, problem = trained.get(f"{name[:-1]}_stats") or {}, ""
        ends = [kept.get(key, ()) for key in ("q01", "q99")]
        count = len(_names(trained, robot))
        if {len(end) for end in ends} != {count}:
            problem = f"have {' and '.join(str(len(end)) for end in ends)} values (q01 and q99)"
        elif not np.isfinite(ends).all():
            problem = "hold values that are not finite"
        if problem:
            what = "joints" if _of_joints(trained) else "values of tools and grippers"
            has = f"normalisation: the suite's robot has {count} {what}"
            yield "statistics", name, has, f"the policy's statistics of {name} {problem}", ""


def _of_joints(trained: dict[str, Any]) -> bool:
    """Whether a state and an action are joint values to the policy (`data.space`)."""
    return trained.get("space", "joints") == "joints"


def _names(trained: dict[str, Any], robot: Robot) -> tuple[str, ...]:
    """Of the values of a state or an action as the policy has them."""
    return robot.names if _of_joints(trained) else tool_space(robot).names


def _start(trained: dict[str, Any], robot: Robot, suite: Suite) -> Iterator[Difference]:
    """The pose in which episodes begin, against the range of states that the policy was trained on."""
    kept = trained.get("state_stats") or {}
    low, high = (np.asarray(kept.get(key, ()), np.float64) for key in ("q01", "q99"))
    names = _names(trained, robot)
    if not len(low) == len(high) == len(names):
        return
    start = robot.to_dataset(hands.start(robot, suite))
    if not _of_joints(trained):
        known = tool_space(robot)
        start = known.seen(start)
        if trained["space"] == "hand":
            start = told(known, start, standpoint(known, start))
    outside = np.flatnonzero(np.abs((start - low) / (high - low + 1e-6) * 2 - 1) > BEYOND)
    if outside.size:
        begins = ", ".join(f"{names[j]} {start[j]:.4g}" for j in outside)
        seen = ", ".join(f"{low[j]:.4g} to {high[j]:.4g}" for j in outside)
        yield "start-pose", "", f"start: episodes begin at {begins}", f"the policy was trained on {seen}", ""


def _sides(policy: Trained, robot: Robot, suite: Suite) -> Iterator[Difference]:
    """Cameras that look from another side than in training, as one on the other side of a hand."""
    cameras = {name: suite.cameras[name] for name in policy.cameras.values() if name in suite.cameras}
    stands = {name: (camera.link, camera.position, camera.look_at) for name, camera in cameras.items()}
    shown = views(robot, hands.start(robot, suite), stands, suite.table.center)
    for name, view in shown.items():
        known = _views_of(policy.trained, name)
        if known and (angle := apart(view, known)) > SIDEWAYS:
            has = f"camera '{name}': the suite has it {angle:.0f} degrees round what it looks at"
            trained = "from where it was nearest in training"
            yield "camera-side", name, has, trained, "it sees another side than the policy learnt to act on"


def _views_of(trained: Mapping[str, object], camera: str) -> list[list[float]]:
    """From where a camera looked in training; a stranger's word, of which only numbers count."""
    listed = map(numbers, listing(mapping(trained.get("views")).get(camera)))
    return [list(map(float, view)) for view in listed if view is not None and len(view) == 3]


def _urdf(trained: dict[str, Any], robot: Robot) -> Iterator[Difference]:
    then, now = trained.get("urdf_sha256"), robot.urdf_sha256
    if then and then != now:
        changed = f"robot: the URDF of '{robot.name}' has changed since training (sha256 {now[:12]}"
        yield "urdf-changed", "", changed, f"was {then[:12]})", "joints, limits and units are the same"


def _rate(policy: Trained, suite: Suite) -> Iterator[Difference]:
    here, there = suite.control_rate, policy.trained["control_rate"]
    if here != there:
        has = f"control rate: the suite runs at {here:g} Hz"
        yield "control-rate", "", has, f"the policy was trained at {there:g} Hz", ""


def _actions(policy: Trained, suite: Suite) -> Iterator[Difference]:
    kind, takes = policy.trained.get("actions", "absolute"), "actions: the suite takes absolute joint targets"
    if kind not in KINDS:
        near = f"{nearest(str(kind), KINDS)} ({', '.join(KINDS)})"
        yield "actions", "kind", takes, f"the policy was trained on '{kind}' ones{near}", ""
    mask, joints = policy.trained.get("relative"), len(policy.trained["joints"])
    if mask is not None and len(mask) != joints and _of_joints(policy.trained):
        says = f"the policy says for {len(mask)} values whether they are relative, and has {joints} joints"
        yield "actions", "relative", takes, says, ""


def _cameras(policy: Trained, suite: Suite) -> Iterator[Difference]:
    """Every camera is there, its frames have the shape they had in training, and no fewer pixels."""
    for name in policy.cameras.values():
        if name not in suite.cameras:
            has = f"camera: the suite has {', '.join(suite.cameras) or 'none'}"
            yield "camera", name, has, f"the policy needs '{name}'", ""
            continue
        yield from frames(policy, name, suite.cameras[name].width, suite.cameras[name].height)


def frames(policy: Trained, camera: str, width: int, height: int) -> Iterator[Difference]:
    """What of a suite's frames [pixels] differs from those that a policy was trained on."""
    size = policy.trained.get("sizes", {}).get(camera)
    has = f"camera '{camera}': the suite's frames are {width} x {height} pixels"
    looks, most = f"the policy looks at {policy.image_size}", max(width, height)
    if size is None:
        if most < policy.image_size:
            yield "frame-size-unknown", camera, has, looks, "it does not say what size it was trained on"
        return
    trained = f"the policy was trained on {size[1]} x {size[0]}"
    if abs(math.log(width * size[0] / (height * size[1]))) > ASPECT:
        scaled = "another shape, so that what it sees would be scaled otherwise"
        yield "frame-size", camera, has, trained, scaled
    elif most < min(policy.image_size, max(size)):
        yield "frame-size", camera, has, trained, f"{looks}, and would see less than in training"


def _environment(policy: Trained, suite: Suite) -> Iterator[Difference]:
    """The poses that a policy without cameras is shown, name by name."""
    known = policy.trained.get("environment") or []
    shown = environment_names(suite.success)
    if known and list(known) != list(shown):
        has = f"environment state: the suite shows {', '.join(shown)}"
        yield "environment", "", has, f"the policy was trained with {', '.join(map(str, known))}", ""


def _text(policy: Trained, suite: Suite) -> Iterator[Difference]:
    known = policy.trained.get("tasks") or []
    if known and suite.task not in known:
        shown = ", ".join(f"'{task}'" for task in known[:3]) + (", ..." if len(known) > 3 else "")
        trained = f"the policy was trained with {shown}{nearest(suite.task, known)}"
        yield "task-text", "", f"text: the suite says '{suite.task}'", trained, ""
