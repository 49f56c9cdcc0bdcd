"""A URDF as plain frozen records: what the file says, in document order, with line numbers.

Lengths [m], angles [rad], masses [kg], inertias [kg m^2]. None stands for what the file leaves out.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from morph_vla.findings import Finding

TYPES = ("fixed", "revolute", "continuous", "prismatic", "planar", "floating")

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Pose:
    """An `<origin>`: the rotation R_z(yaw) R_y(pitch) R_x(roll), then the shift; identity when left out."""

    xyz: Vector = (0.0, 0.0, 0.0)
    """[m]"""
    rpy: Vector = (0.0, 0.0, 0.0)
    """[rad]"""


@dataclass(frozen=True)
class Geometry:
    """A primitive or the name of a mesh, which is not opened."""

    kind: str
    """`"box"`, `"cylinder"`, `"sphere"`, `"capsule"`, `"mesh"`, or the tag the file has there."""
    size: tuple[float, ...]
    """box: full extents x y z; cylinder and capsule: radius, length; sphere: radius; mesh: scale [m]."""
    mesh: str | None = None


@dataclass(frozen=True)
class Shape:
    """A `<visual>` or `<collision>` of a link."""

    geometry: Geometry
    origin: Pose
    rgba: tuple[float, ...] | None
    """Red, green, blue, alpha in 0..1; None when neither the shape nor a material of that name says one."""
    line: int


@dataclass(frozen=True)
class Inertial:
    """Mass [kg], pose of the centre of mass, and ixx ixy ixz iyy iyz izz about it [kg m^2]."""

    mass: float | None
    origin: Pose
    inertia: tuple[float | None, ...]
    line: int


@dataclass(frozen=True)
class Contact:
    """Bullet's `<contact>` of a link; None for a value the file leaves out."""

    friction_anchor: bool
    stiffness: float | None
    damping: float | None
    lateral_friction: float | None
    spinning_friction: float | None
    line: int


@dataclass(frozen=True)
class Link:
    """A rigid body."""

    name: str
    inertial: Inertial | None
    visuals: tuple[Shape, ...]
    collisions: tuple[Shape, ...]
    contact: Contact | None
    line: int


@dataclass(frozen=True)
class Limit:
    """A `<limit>`: None for an attribute the file leaves out. [rad] or [m], [N m] or [N], per second."""

    lower: float | None
    upper: float | None
    effort: float | None
    velocity: float | None
    line: int


@dataclass(frozen=True)
class Mimic:
    """This joint's value is `multiplier` times the value of `joint`, plus `offset`."""

    joint: str
    multiplier: float
    offset: float
    line: int


@dataclass(frozen=True)
class Joint:
    """What connects a parent link to a child link."""

    name: str
    type: str
    parent: str
    child: str
    origin: Pose
    axis: Vector | None
    """As written, in the joint's frame; None when left out (the format's default is 1 0 0)."""
    limit: Limit | None
    mimic: Mimic | None
    damping: float | None
    friction: float | None
    soft_lower: float | None
    soft_upper: float | None
    line: int

    @property
    def unit_axis(self) -> Vector:
        """The axis as used: 1 0 0 when left out, and of length one."""
        largest = max(map(abs, self.axis or (0.0,)))
        if self.axis is None or largest == 0:
            return (1.0, 0.0, 0.0)
        x, y, z = (value / largest for value in self.axis)  # first, so that no square over- or underflows
        length = math.hypot(x, y, z)
        return (x / length, y / length, z / length)


@dataclass(frozen=True)
class Urdf:
    """A robot as its file says it, in document order."""

    name: str
    file: str
    """The file's name, for messages."""
    links: tuple[Link, ...]
    joints: tuple[Joint, ...]
    other: tuple[tuple[str, int, int], ...]
    """(tag, how many, line of the first) of the other children of `<robot>`, such as transmission."""
    hidden_joints: tuple[tuple[str, int, int], ...]
    """(where, how many, line of the first) of joint elements that are not children of `<robot>`."""
    problems: tuple[Finding, ...]

    @cached_property
    def by_name(self) -> dict[str, Joint]:
        """The joints by their names."""
        return {joint.name: joint for joint in self.joints}

    @cached_property
    def above(self) -> dict[str, Joint]:
        """Child link -> the joint that carries it."""
        return {joint.child: joint for joint in self.joints}

    @cached_property
    def below(self) -> dict[str, list[Joint]]:
        """Parent link -> the joints that it carries, in document order."""
        joints: dict[str, list[Joint]] = {}
        for joint in self.joints:
            joints.setdefault(joint.parent, []).append(joint)
        return joints

    @property
    def actuated(self) -> tuple[Joint, ...]:
        """The joints that move and follow no other: neither fixed nor mimicking."""
        return tuple(joint for joint in self.joints if joint.type != "fixed" and joint.mimic is None)

    @property
    def mimicking(self) -> tuple[Joint, ...]:
        """The joints that follow another one."""
        return tuple(joint for joint in self.joints if joint.mimic is not None)


def unused(name: str, names: Collection[str]) -> str:
    """The name, with as many `_` behind it as make it a new one."""
    while name in names:
        name += "_"
    return name
