"""The side file of a robot: what a URDF cannot say.

`panda.yaml` beside `panda.urdf`. Every key may be left out; an unknown one is refused with the nearest name.
docs/robots.md has a page on them.

    joints        the joints an action drives, in the order of the action's values
    drives        joint: [{joint, multiplier, offset}], one value for several joints, without <mimic>
    gripper       {joint, open, closed, dataset_open, dataset_closed}, or a list of them: the travel at which
                  the gripper is open and closed [rad or m], and the dataset's value for each;
                  {attach: parallel_jaw, link, approach, opening}: a gripper of ours on a link of the arm
    unit          radians, degrees or percent: of the dataset's values for turning joints that are no gripper;
                  percent is -100 at the lower limit and 100 at the upper
    scales        joint: the dataset's units in one rad or m, where `unit` does not say it (57.3: degrees)
    signs, zeros  joint: +1 or -1; joint: the native value [rad or m] at which the dataset says 0
    stands        joint: where it stands [rad or m], for joints that no action drives; 0 where it is not named
    tools         gripper's joint: {link, xyz, rpy}, the frame in which its fingers take hold: z points out of
                  the hand, y the way they open. Left out, fingers that slide say it, others do not
    rest          the pose the robot starts from, a value per joint [rad or m]
    control_rate  actions per second [Hz]
    contact       {stiffness, damping, lateral_friction, spinning_friction, friction_anchor}: the defaults
    cameras       the dataset's camera names
    features      {state, action}: the dataset's keys, each a list whose values are joined in order
    names         the dataset's names for the action's values
    source, licence
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from morph_vla.errors import ConfigError, nearest
from morph_vla.files.plain import infinite, to_plain
from morph_vla.files.typed_yaml import ByShape, dump
from morph_vla.findings import Finding, Line
from morph_vla.robots.descriptors import ContactDefaults, limits
from morph_vla.robots.kinematics import DRIVEN, follow
from morph_vla.robots.records import Urdf, Vector

Code = Literal[
    "no-joint", "cannot-be-driven", "mimics", "driven-twice", "not-of-the-action", "value-of-gripper",
    "wrong-count", "zero-in-percent", "percent-of-nothing", "beyond-limits", "no-link", "no-gripper",
]  # fmt: skip
SHORTEST, WIDEST = 1e-6, 10.0
"""An approach's length from which on it is a direction; the widest opening of a gripper [m]"""
NEAR = 1e-3
"""[rad or m] by which a follower may pass its limits: files round them"""
UNUSABLE = "the side file cannot be used"


@dataclass(frozen=True)
class Gripper:
    """A joint with two ends, and the dataset's value at each."""

    joint: str
    open: float
    """[rad] or [m]"""
    closed: float
    """[rad] or [m]"""
    dataset_open: float = 0.0
    dataset_closed: float = 1.0

    def __post_init__(self) -> None:
        if self.open == self.closed:
            raise ConfigError(f"open and closed are both {self.open:g}; expected two different values")
        _check_ends(self)


@dataclass(frozen=True)
class Attached:
    """A gripper of ours on a link of an arm that has none: `robots.parallel_jaw`."""

    attach: Literal["parallel_jaw"]
    link: str
    approach: Vector = (0.0, 0.0, 1.0)
    """The direction in which it points, in the link's frame"""
    opening: float = 0.08
    """[m] between its fingers"""
    dataset_open: float = 0.0
    dataset_closed: float = 1.0

    def __post_init__(self) -> None:
        if not SHORTEST < math.hypot(*self.approach) < math.inf:
            shown = " ".join(f"{value:g}" for value in self.approach)
            raise ConfigError(f"approach is {shown}; expected a direction")
        if not 0 < self.opening <= WIDEST:
            raise ConfigError(f"opening is {self.opening:g}; expected more than 0 m, at most {WIDEST:g}")
        _check_ends(self)


def _check_ends(gripper: Gripper | Attached) -> None:
    if gripper.dataset_open == gripper.dataset_closed:
        raise ConfigError("dataset_open and dataset_closed are equal; expected two different values")


@dataclass(frozen=True)
class ToolFrame:
    """Where a hand takes hold, in the frame of a link of its arm."""

    link: str
    xyz: Vector = (0.0, 0.0, 0.0)
    """[m]"""
    rpy: Vector = (0.0, 0.0, 0.0)
    """[rad]"""


@dataclass(frozen=True)
class Follower:
    """A joint that moves with an action joint: multiplier * value + offset."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Features:
    """The dataset's keys for what an action and a state hold; several are joined in order."""

    state: tuple[str, ...] = ("observation.state",)
    action: tuple[str, ...] = ("action",)

    def __post_init__(self) -> None:
        if not self.state or not self.action:
            raise ConfigError("state and action need at least one key each")


@dataclass(frozen=True)
class Side:
    """A side file; see the head of this module for the keys."""

    joints: tuple[str, ...] = ()
    drives: Mapping[str, tuple[Follower, ...]] = field(default_factory=dict)
    gripper: Annotated[Gripper | Attached | tuple[Gripper, ...], ByShape("attach")] = ()
    unit: Literal["radians", "degrees", "percent"] = "radians"
    scales: Mapping[str, float] = field(default_factory=dict)
    signs: Mapping[str, Literal[1, -1]] = field(default_factory=dict)
    zeros: Mapping[str, float] = field(default_factory=dict)
    stands: Mapping[str, float] = field(default_factory=dict)
    tools: Mapping[str, ToolFrame] = field(default_factory=dict)
    rest: tuple[float, ...] = ()
    control_rate: float | None = None
    contact: ContactDefaults = field(default_factory=ContactDefaults)
    cameras: tuple[str, ...] = ()
    features: Features = field(default_factory=Features)
    names: tuple[str, ...] = ()
    source: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        for key, value in infinite(to_plain(self)):
            raise ConfigError(f"{key}: {value:g}; expected a finite number")
        if isinstance(self.gripper, tuple) and len(self.grippers) < len(self.gripper):
            raise ConfigError("gripper: a joint is there twice; expected each once")
        if self.control_rate is not None and not 0 < self.control_rate < math.inf:
            raise ConfigError(f"control_rate is {self.control_rate:g}; expected more than 0 Hz")
        for name, scale in self.scales.items():
            if not 0 < scale < math.inf:
                raise ConfigError(
                    f"scales: {scale:g} for '{name}'; expected more than 0 (a sign goes into signs)"
                )

    @property
    def grippers(self) -> dict[str, Gripper]:
        """The grippers by their joint; one that is still to be attached has none."""
        several = self.gripper if isinstance(self.gripper, tuple) else (self.gripper,)
        return {gripper.joint: gripper for gripper in several if isinstance(gripper, Gripper)}


def side_text(side: Side) -> str:
    """The YAML of a side file: what differs from the defaults, to be read back as it is."""
    keys = [field.name for field in fields(Side) if getattr(side, field.name) != getattr(Side(), field.name)]
    plain = {key: to_plain(getattr(side, key)) for key in keys}
    return dump(plain)


def judge(side: Side, urdf: Urdf, action: tuple[str, ...], path: Path) -> tuple[Finding, ...]:
    """Everything in a side file that does not fit its URDF; `action` are the joints in action order."""
    problems = [*_joints(side, urdf), *_values(side, urdf, action)]
    return tuple(
        Finding(code, "error", Line(path.name), (key, name), f"{key}: {text}", "", UNUSABLE)
        for code, key, name, text in problems
    )


def remarks(side: Side, urdf: Urdf, path: Path) -> Iterator[Finding]:
    """A warning for what would stand beyond its limits.

    Followers that their leader takes there, as a wrong sign does, and joints that no action drives.
    """
    joints = urdf.by_name
    moved = {*side.joints, *follow(urdf), *(item.joint for items in side.drives.values() for item in items)}
    for joint in urdf.joints if side.joints else ():
        if joint.name in moved or joint.type not in ("revolute", "prismatic"):
            continue
        low, high = limits(joint)
        if not low - NEAR <= 0 <= high + NEAR:
            text = f"'{joint.name}' is driven by no action and stands at 0"
            expected = f"expected within its limits {low:g} to {high:g}"
            follows = "kinematics and descriptors are of a pose that it cannot have: "
            follows += "put it among `joints`, or its value in `stands`"
            yield Finding(
                "frozen-beyond-limits", "warning", Line(path.name), (joint.name,), text, expected, follows
            )
    for name, followers in side.drives.items():
        for follower in followers:
            if name not in joints or follower.joint not in joints:
                continue  # `judge` says it
            leader, driven = joints[name], joints[follower.joint]
            if "continuous" in (leader.type, driven.type):
                continue
            reached = sorted(follower.multiplier * end + follower.offset for end in limits(leader))
            low, high = limits(driven)
            if low - NEAR <= reached[0] and reached[1] <= high + NEAR:
                continue
            text = f"drives.{name}: '{name}' moves '{driven.name}' from {reached[0]:g} to {reached[1]:g}"
            expected = f"expected within its limits {low:g} to {high:g}"
            subject = (f"drives.{name}", driven.name)
            follows = "a simulator holds it at its limit, the kinematics do not"
            yield Finding(
                "follower-beyond-limits", "warning", Line(path.name), subject, text, expected, follows
            )


def _joints(side: Side, urdf: Urdf) -> Iterator[tuple[Code, str, str, str]]:
    """Joints that are not there, cannot be driven, or are driven twice: code, key, joint, sentence."""
    joints, following = urdf.by_name, follow(urdf)
    driven: dict[str, str] = {}
    named = [("joints", name) for name in side.joints]
    named += [(f"drives.{name}", item.joint) for name, items in side.drives.items() for item in items]
    for key, name in named:
        joint, owner = joints.get(name), f"joint '{name}'"
        if joint is None:
            yield "no-joint", key, name, f"no {owner} in {urdf.file}{nearest(name, joints)}"
        elif name in side.stands:
            yield "driven-twice", key, name, f"{owner} stands where `stands` says: leave it out of one"
        elif joint.type not in DRIVEN:
            drives = f"an action drives {', '.join(DRIVEN)} joints"
            yield "cannot-be-driven", key, name, f"{owner} is {joint.type}; {drives}"
        elif name in following:
            leader = following[name][0] or (joint.mimic and joint.mimic.joint)
            yield "mimics", key, name, f"{owner} mimics '{leader}' in {urdf.file}; leave it out"
        elif name in driven:
            yield "driven-twice", key, name, f"{owner} is driven twice (first under {driven[name]})"
        driven.setdefault(name, key)


def _values(side: Side, urdf: Urdf, action: tuple[str, ...]) -> Iterator[tuple[Code, str, str, str]]:
    """Values for joints that an action does not drive, in the wrong number, or out of range."""
    for key in ("drives", "gripper", "scales", "signs", "zeros", "tools"):
        for name in side.grippers if key == "gripper" else getattr(side, key):
            if name not in action:
                text = f"'{name}' is not one of the action's joints{nearest(name, action)}"
                yield "not-of-the-action", key, name, text
            elif key in ("scales", "signs", "zeros") and name in side.grippers:
                text = f"'{name}' is a gripper; its two ends say its scale, sign and zero"
                yield "value-of-gripper", key, name, text
    links = {name for joint in urdf.joints for name in (joint.parent, joint.child)}
    for name, tool in side.tools.items():
        if side.grippers and name not in side.grippers and name in action:
            yield "no-gripper", "tools", name, f"'{name}' is no gripper{nearest(name, side.grippers)}"
        if tool.link not in links:
            yield "no-link", "tools", name, f"no link '{tool.link}' in {urdf.file}{nearest(tool.link, links)}"
    for key, values in (("rest", side.rest), ("names", side.names)):
        if values and len(values) != len(action):
            yield "wrong-count", key, "", f"{len(values)} values for {len(action)} joints"
    joints = urdf.by_name
    for name in action if side.unit == "percent" else ():
        if name not in joints or joints[name].type == "prismatic" or name in {**side.scales, **side.grippers}:
            continue
        if name in side.zeros:
            text = f"'{name}' is in percent, which is 0 halfway between its limits; leave it out"
            yield "zero-in-percent", "zeros", name, text
        low, high = limits(joints[name])
        if low == high:
            text = f"percent of '{name}' has no meaning: its limits are both {low:g}; give it a scale"
            yield "percent-of-nothing", "unit", name, text
    known = {n: limits(joints[n]) for n in action if n in joints and joints[n].type != "continuous"}
    wanted = [("rest", name, value) for name, value in zip(action, side.rest, strict=False)]
    for gripper in side.grippers.values():
        wanted += [(f"gripper.{end}", gripper.joint, getattr(gripper, end)) for end in ("open", "closed")]
    for key, name, value in wanted:
        low, high = known.get(name, (-math.inf, math.inf))
        if not low - 1e-9 <= value <= high + 1e-9:
            text = f"{value:.10g} for '{name}' is outside its limits {low:.10g} to {high:.10g}"
            yield "beyond-limits", key, name, text
