"""A robot as the policy knows it: its action joints in order, their graph, features, units and rest pose.

Made from a URDF and, when there is one, the side file beside it. Values go between a dataset's units and
radians or metres here and nowhere else:

    dataset = (native - zero) * scale        native = dataset / scale + zero
"""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.findings import Finding
from morph_vla.robots import choose, graph, kinematics
from morph_vla.robots.descriptors import NAMES, descriptors, limits
from morph_vla.robots.kinematics import DRIVEN
from morph_vla.robots.parallel_jaw import FINGER
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.side import Side, judge, remarks, side_text
from morph_vla.wording import count, table


@dataclass(frozen=True)
class ActionJoint:
    """A joint that one value of an action drives."""

    name: str
    type: str
    """`"revolute"`, `"prismatic"` or `"continuous"`"""
    axis: tuple[float, float, float]
    """Of length one, in the joint's frame."""
    lower: float
    """[rad] or [m], as `descriptors.limits` gives it"""
    upper: float
    """[rad] or [m]"""
    effort: float | None
    """[N m] or [N]; None when the file does not say"""
    velocity: float | None
    """[rad/s] or [m/s]; None when the file does not say"""
    unit: str = ""
    """Of the dataset's values: `"rad"`, `"m"`, `"deg"`, `"%"`, `"1/57.3 rad"`, or a gripper's two ends."""
    scale: float = 1.0
    """dataset = (native - zero) * scale"""
    zero: float = 0.0
    """[rad] or [m]"""
    is_gripper: bool = False
    opened: float | None = None
    """A gripper's open end [rad] or [m]"""
    closed: float | None = None
    """A gripper's closed end [rad] or [m]"""


@dataclass(frozen=True, eq=False)
class Robot:
    """J action joints in action order, and everything the policy and the simulators need to know of them."""

    name: str
    urdf_path: Path
    urdf: Urdf
    side: Side
    joints: tuple[ActionJoint, ...]
    adjacency: Bool[np.ndarray, "j j"]
    """True on the diagonal and for neighbours"""
    distances: Int[np.ndarray, "j j"]
    """Steps over the joint graph; graph.UNREACHABLE between parts that nothing joins"""
    descriptors: Float[np.ndarray, "j 12"]
    """The features named by descriptors.NAMES, float32"""
    rest: Float[np.ndarray, "j"]
    """The pose it starts from [rad] or [m]"""
    control_rate: float | None
    """Actions per second [Hz]; None when no side file says"""
    findings: tuple[Finding, ...]
    """Every warning and note on its file"""

    @property
    def names(self) -> tuple[str, ...]:
        """The action joints' names in action order."""
        return tuple(joint.name for joint in self.joints)

    @property
    def files(self) -> tuple[Path, ...]:
        """Its URDF, and the side file where there is one."""
        return tuple(filter(Path.is_file, (self.urdf_path, self.urdf_path.with_suffix(".yaml"))))

    @property
    def urdf_sha256(self) -> str:
        """Of the file's bytes."""
        return hashlib.sha256(self.urdf_path.read_bytes()).hexdigest()

    @property
    def side_sha256(self) -> str:
        """Of what its side file says: not of comments, of the source, or of a key that says its default."""
        return hashlib.sha256(side_text(replace(self.side, source="", licence="")).encode()).hexdigest()

    @property
    def lower(self) -> Float[np.ndarray, "j"]:
        """Lower limits [rad] or [m]."""
        return np.array([joint.lower for joint in self.joints])

    @property
    def upper(self) -> Float[np.ndarray, "j"]:
        """Upper limits [rad] or [m]."""
        return np.array([joint.upper for joint in self.joints])

    @property
    def stops(self) -> tuple[Float[np.ndarray, "j"], Float[np.ndarray, "j"]]:
        """Where each joint stops, `lower` and `upper`; a continuous one does not: infinities."""
        endless = np.array([joint.type == "continuous" for joint in self.joints])
        return np.where(endless, -np.inf, self.lower), np.where(endless, np.inf, self.upper)

    def to_native(self, values_dataset: Float[np.ndarray, "*b j"]) -> Float[np.ndarray, "*b j"]:
        """Dataset units to [rad] or [m], per joint, in float64.

        float32 values come back from `to_dataset` bit for bit, once they are float32 again.
        """
        values_dataset = np.asarray(values_dataset)
        self._check_width(values_dataset, "to_native")
        scale, zero = self._affine()
        return values_dataset.astype(np.float64) / scale + zero

    def to_dataset(self, values_native: Float[np.ndarray, "*b j"]) -> Float[np.ndarray, "*b j"]:
        """[rad] or [m] to dataset units, per joint, in float64: the inverse of `to_native`."""
        values_native = np.asarray(values_native)
        self._check_width(values_native, "to_dataset")
        scale, zero = self._affine()
        return (values_native.astype(np.float64) - zero) * scale

    def _affine(self) -> tuple[Float[np.ndarray, "j"], Float[np.ndarray, "j"]]:
        return np.array([j.scale for j in self.joints]), np.array([j.zero for j in self.joints])

    def _check_width(self, values: np.ndarray, where: str) -> None:
        if values.ndim == 0 or values.shape[-1] != len(self.joints):
            shape = "x".join(map(str, values.shape)) or "a single number"
            raise MorphVlaError(
                f"{self.name}: {where} expects {len(self.joints)} values on the last axis, one per joint"
                f" ({', '.join(self.names)}), got {shape}"
            )

    def drives(self) -> tuple[tuple[str, int, float, float], ...]:
        """Every URDF joint that an action value drives: (joint, index of the value, multiplier, offset).

        value of the joint = multiplier * native[index] + offset: the action joints themselves, those that
        mimic them, and those the side file lets them drive; in document order.
        """
        driven = {name: (index, 1.0, 0.0) for index, name in enumerate(self.names)}
        for name, followers in self.side.drives.items():
            for item in followers:
                driven[item.joint] = (driven[name][0], item.multiplier, item.offset)
        for name, (leader, multiplier, offset) in kinematics.follow(self.urdf).items():
            if leader in driven:
                index, slope, start = driven[leader]
                driven[name] = (index, multiplier * slope, multiplier * start + offset)
        return tuple((joint.name, *driven[joint.name]) for joint in self.urdf.joints if joint.name in driven)

    def positions(self, native: Float[np.ndarray, "j"]) -> dict[str, float]:
        """The value [rad] or [m] of every driven URDF joint, by name."""
        native = np.asarray(native)
        self._check_width(native, "positions")
        if native.ndim != 1:
            shape = "x".join(map(str, native.shape))
            raise MorphVlaError(f"{self.name}: expected one pose of {len(self.joints)} values, got {shape}")
        return {name: slope * float(native[i]) + start for name, i, slope, start in self.drives()}

    def forward_kinematics(self, native: Float[np.ndarray, "j"]) -> dict[str, Float[np.ndarray, "4 4"]]:
        """The pose of every link in the base's frame; joints that no action drives stand at 0."""
        return kinematics.link_poses(self.urdf, self.positions(native))

    def __str__(self) -> str:
        """What a policy is told about it: joints with limits and units, the 12 features, what is unusual."""
        return "\n".join(_lines(self))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the joints with units and features by name, the graph, the rest pose."""
        rows = []
        for index, joint in enumerate(self.joints):
            features = dict(zip(NAMES, self.descriptors[index].tolist(), strict=True))
            neighbours = [
                self.names[other] for other in np.flatnonzero(self.adjacency[index]) if other != index
            ]
            rows.append({"index": index, **to_plain(joint), "neighbours": neighbours, "features": features})
        return {
            "name": self.name,
            "joints": rows,
            "adjacency": self.adjacency.astype(int).tolist(),
            "distances": self.distances.tolist(),
            "rest": self.rest.tolist(),
            "control_rate": self.control_rate,
            "drives": [list(item) for item in self.drives()],
            "stands": dict(self.side.stands),
            "source": self.side.source,
            "licence": self.side.licence,
        }


def _lines(robot: Robot) -> Iterator[str]:
    rate = "" if robot.control_rate is None else f", {robot.control_rate:g} Hz"
    yield f"{robot.name}: {len(robot.joints)} action joints{rate}, from {robot.urdf_path}\n"
    header = ("#", "joint", "type", "axis", "lower", "upper", "rest", "dataset unit", "zero", "scale", "near")
    yield from table(header, [_cells(robot, index) for index in range(len(robot.joints))])
    yield "\nlimits, rest and zero in rad (revolute) or m (prismatic); dataset value = (value - zero) * scale"
    yield "near: the joints on the same rigid body\n"
    yield from table(("#", *NAMES), [(index, *row) for index, row in enumerate(robot.descriptors.tolist())])
    followers = [
        f"{name} = {slope:g} * {robot.names[index]} + {start:g}"
        for name, index, slope, start in robot.drives()
        if name not in robot.names
    ]
    if followers:
        yield f"\njoints that follow others: {'; '.join(followers)}"
    if robot.side.stands:
        places = (f"{name} = {value:g}" for name, value in robot.side.stands.items())
        yield f"\njoints that stand: {', '.join(places)}"
    warnings = [finding for finding in robot.findings if finding.severity == "warning"]
    if warnings:
        number = count(len(warnings), "warning")
        yield f"\n{number} (`morph-vla robots check` prints every finding); the first:\n  {warnings[0]}"
    if more := choose.too_many(robot.urdf, robot.names):
        yield f"\n{more}"


def _cells(robot: Robot, index: int) -> tuple[object, ...]:
    joint = robot.joints[index]
    axis = " ".join(f"{component:g}" for component in joint.axis)
    near = " ".join(str(j) for j, edge in enumerate(robot.adjacency[index]) if edge and j != index)
    kind = f"{joint.type}, gripper" if joint.is_gripper else joint.type
    lower, upper, rest = float(joint.lower), float(joint.upper), float(robot.rest[index])
    unit = joint.unit, float(joint.zero), float(joint.scale)
    return index, joint.name, kind, axis, lower, upper, rest, *unit, near


def assemble(urdf: Urdf, side: Side, path: Path, findings: tuple[Finding, ...]) -> Robot:
    """The robot of a URDF without errors and a side file that fits it (`examine` sees to both).

    `path` names it, and `findings` are what was found on the URDF.
    """
    chosen = default_joints(urdf, side)
    steps = graph.distances(urdf, chosen)
    features, more = descriptors(urdf, chosen, side.contact)
    joints = tuple(_action_joint(urdf.by_name[name], side) for name in chosen)
    rest = np.array(side.rest or [min(max(0.0, j.lower), j.upper) for j in joints], dtype=np.float64)
    near = graph.adjacency(steps)
    for array in (steps, features, rest, near):
        array.setflags(write=False)
    return Robot(
        name=path.stem,
        urdf_path=path,
        urdf=urdf,
        side=side,
        joints=joints,
        adjacency=near,
        distances=steps,
        descriptors=features,
        rest=rest,
        control_rate=side.control_rate,
        findings=(*findings, *more, *remarks(side, urdf, path.with_suffix(".yaml"))),
    )


def with_side(robot: Robot, side: Side) -> Robot:
    """The robot with other units, signs, zeros and gripper values; its joints and its rest pose stay.

    Raises ConfigError for a side file that does not fit it.
    """
    problems = judge(side, robot.urdf, robot.names, robot.urdf_path.with_suffix(".yaml"))
    if problems:
        raise ConfigError.of(problems)
    joints = tuple(_action_joint(robot.urdf.by_name[name], side) for name in robot.names)
    return replace(robot, side=side, joints=joints)


def action_order(urdf: Urdf) -> tuple[str, ...]:
    """The joints an action drives when no side file says which, and in what order.

    All that move and follow no other, from base to tip: depth first from the root, and where a link carries
    several joints, those in the order of their names (numbers by value). It does not depend on the order of
    the document.
    """
    roots = sorted(urdf.below.keys() - urdf.above.keys(), key=_natural)
    waiting = [joint for root in roots for joint in _sorted(urdf.below[root])][::-1]
    order = []
    while waiting:
        joint = waiting.pop()
        if joint.type in DRIVEN and joint.mimic is None:
            order.append(joint.name)
        waiting.extend(_sorted(urdf.below.get(joint.child, []))[::-1])
    return tuple(order)


def default_joints(urdf: Urdf, side: Side) -> tuple[str, ...]:
    """The joints an action drives: those that the side file names, or all that follow none of another's."""
    if side.joints:
        return side.joints
    followers = {item.joint for items in side.drives.values() for item in items}
    names = tuple(name for name in action_order(urdf) if name not in followers)
    if FINGER in names:  # of a gripper of ours: the last, wherever it was put
        names = (*(name for name in names if name != FINGER), FINGER)
    return names


def _sorted(joints: list[Joint]) -> list[Joint]:
    return sorted(joints, key=lambda joint: _natural(joint.name))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts joint2 before joint10; only equal names have equal keys.

    Numbers go by their length and then digit by digit: Python makes no int of more than 4,300 digits.
    """
    key = []
    for place, part in enumerate(re.split(r"([0-9]+)", name)):  # every second part is a number
        digits = part.lstrip("0")
        key.append((1, len(digits), digits) if place % 2 else (0, 0, part))
    return [*key, (2, 0, name)]


def choose_joints(side: Side, joints: tuple[str, ...]) -> Side:
    """The side file, which names its joints, with others: what it says of those that remain is kept.

    `rest` and `names` stay where there is a value for every one.
    """
    rest, names = (dict(zip(side.joints, values, strict=False)) for values in (side.rest, side.names))
    tables = {key: getattr(side, key) for key in ("drives", "scales", "signs", "zeros", "tools")}
    return replace(
        side,
        joints=joints,
        names=tuple(names[name] for name in joints) if set(joints) <= set(names) else (),
        rest=tuple(rest[name] for name in joints) if set(joints) <= set(rest) else (),
        gripper=tuple(gripper for name, gripper in side.grippers.items() if name in joints),
        **{key: {name: table[name] for name in table if name in joints} for key, table in tables.items()},
    )


def _action_joint(joint: Joint, side: Side) -> ActionJoint:
    lower, upper = limits(joint)
    gripper, si = side.grippers.get(joint.name), "m" if joint.type == "prismatic" else "rad"
    sign, zero = side.signs.get(joint.name, 1), side.zeros.get(joint.name, 0.0)
    if gripper is not None:
        scale = (gripper.dataset_closed - gripper.dataset_open) / (gripper.closed - gripper.open)
        unit = f"{gripper.dataset_open:g} open, {gripper.dataset_closed:g} closed"
        zero = gripper.open - gripper.dataset_open / scale
    elif joint.name in side.scales:
        unit, scale = f"1/{side.scales[joint.name]:g} {si}", sign * side.scales[joint.name]
    elif si == "rad" and side.unit == "percent":
        unit, scale, zero = "%", sign * 200.0 / (upper - lower), (lower + upper) / 2
    elif si == "rad" and side.unit == "degrees":
        unit, scale = "deg", sign * 180.0 / math.pi
    else:
        unit, scale = si, float(sign)
    bounds = (joint.limit.effort, joint.limit.velocity) if joint.limit else (None, None)
    effort, velocity = (None if bound is None or bound < 0 else bound for bound in bounds)
    ends = (gripper.open, gripper.closed) if gripper else (None, None)
    known = joint.name, joint.type, joint.unit_axis, lower, upper, effort, velocity
    return ActionJoint(*known, unit, scale, zero, gripper is not None, *ends)
