"""The changes that make one body into another: pure functions of a robot's records.

Each keeps the tree valid, names what it adds by the names that are there, and states its law. Frames are
those of `kinematics`; lengths [m], angles [rad].
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from morph_vla.robots.descriptors import limits
from morph_vla.robots.geometry import transform
from morph_vla.robots.kinematics import DRIVEN, link_poses
from morph_vla.robots.records import (
    Geometry,
    Inertial,
    Joint,
    Limit,
    Link,
    Pose,
    Shape,
    Urdf,
    Vector,
    unused,
)
from morph_vla.robots.side import ToolFrame
from morph_vla.robots.standing import fixed

DENSITY = 1000.0
"""Of links that are added [kg/m^3]: water's, and about that of an arm as a whole."""
BACKWARD = 0.1
"""A point belongs to the parent's length from this share of the way back to the parent's joint."""
ADDED_RANGE = 2.0
"""An added joint turns so far each way [rad]."""


def scaled(urdf: Urdf, factors: Mapping[str, float]) -> Urdf:
    """Every link that `factors` names is s times as large: a similar body of the same density.

    The places of the joints that it carries, its shapes and its centre of mass grow by s, its mass by s^3 and
    its inertia by s^5. What lies back along the way to the joint before it, where the parent's length is, has
    the parent's s: so an arm stays in one piece. With one factor for all links, forward kinematics at the
    same angles, and at s times the travel of sliding joints, gives the same rotations and s times the
    positions. Limits stay.
    """

    def factor_at(link: str, point: Vector) -> float:
        """Of the body that a point in the link's frame belongs to: behind the joint it is the parent's."""
        above = urdf.above.get(link)
        if above is not None:
            back = -transform(above.origin)[:3, :3].T @ np.array(above.origin.xyz)
            if back @ np.array(point) > BACKWARD * float(back @ back) > 0:
                return factors.get(above.parent, 1.0)
        return factors.get(link, 1.0)

    def longer(origin: Pose, factor: float) -> Pose:
        """The same pose so many times as far away."""
        x, y, z = (factor * value for value in origin.xyz)
        return Pose((x, y, z), origin.rpy)

    def larger(link: str, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Each shape in the size of its body."""
        result = []
        for shape in shapes:
            factor = factor_at(link, shape.origin.xyz)
            size = tuple(factor * value for value in shape.geometry.size)
            geometry = replace(shape.geometry, size=size)
            result.append(replace(shape, geometry=geometry, origin=longer(shape.origin, factor)))
        return tuple(result)

    def heavier(link: str, inertial: Inertial | None) -> Inertial | None:
        """Mass by the cube of the factor, moments by its fifth power: the density stays."""
        if inertial is None:
            return None
        factor = factor_at(link, inertial.origin.xyz)
        mass = None if inertial.mass is None else inertial.mass * factor**3
        moments = tuple(None if value is None else value * factor**5 for value in inertial.inertia)
        return replace(inertial, mass=mass, origin=longer(inertial.origin, factor), inertia=moments)

    def link(old: Link) -> Link:
        """The link in the size of its body."""
        shapes = larger(old.name, old.visuals), larger(old.name, old.collisions)
        inertial = heavier(old.name, old.inertial)
        return replace(old, inertial=inertial, visuals=shapes[0], collisions=shapes[1])

    def joint(old: Joint) -> Joint:
        """The joint as far from its parent's as that body is large."""
        return replace(old, origin=longer(old.origin, factors.get(old.parent, 1.0)))

    return _changed(urdf, link, joint)


def narrowed(urdf: Urdf, shares: Mapping[str, float], rest: Mapping[str, float]) -> Urdf:
    """Every joint that `shares` names keeps that share, 0 to 1, of its way to either side of its rest value.

    So the new limits lie within the old ones, and the rest value within the new. A joint without limits is
    taken as `descriptors.limits` takes it (half a turn either way of a rest value beyond that), and has
    limits then. Soft limits are dropped.
    """

    def joint(old: Joint) -> Joint:
        """The joint with the share of its range that is asked for."""
        if old.name not in shares:
            return old
        (low, high), still = limits(old), rest.get(old.name, 0.0)
        if old.type == "continuous" and not low <= still <= high:
            low, high = still + low, still + high  # half a turn either way of where it rests
        share, middle = shares[old.name], min(max(still, low), high)
        limit = old.limit or Limit(None, None, None, None, old.line)
        bounds = [max(low, middle + share * (low - middle)), min(high, middle + share * (high - middle))]
        return replace(
            old,
            type="revolute" if old.type == "continuous" else old.type,
            limit=replace(limit, lower=bounds[0], upper=bounds[1]),
            soft_lower=None,
            soft_upper=None,
        )

    return _changed(urdf, _same, joint)


def twisted(urdf: Urdf, first: str, second: str) -> Urdf:
    """The two joints exchange the directions that their axes have where every joint is at 0.

    No link moves in that pose, and doing it twice changes nothing but the last digits.
    """
    poses = link_poses(urdf, {})
    joints = [urdf.by_name[name] for name in (first, second)]
    turns = [poses[joint.child][:3, :3] for joint in joints]
    axes = {}
    for index, joint in enumerate(joints):
        axis = turns[index].T @ turns[1 - index] @ np.array(joints[1 - index].unit_axis)
        x, y, z = (float(value) for value in np.round(axis, 12))
        axes[joint.name] = (x, y, z)
    return _changed(urdf, _same, lambda old: replace(old, axis=axes.get(old.name, old.axis)))


def removed(urdf: Urdf, name: str, value: float) -> Urdf:
    """The joint is fixed at `value` [rad] or [m]: poses are those of the robot with the joint held there."""
    return _changed(urdf, _same, lambda old: fixed(old, value) if old.name == name else old)


def inserted(urdf: Urdf, before: str, radius: float) -> tuple[Urdf, str]:
    """One more joint, halfway to the joint `before` and at a right angle to it, and its name.

    It carries a ball of that radius [m], which then carries `before`; at 0 no other link has moved. Effort
    and velocity are those of `before`.
    """
    old = urdf.by_name[before]
    name = unused(f"{before}_added", urdf.by_name)
    link = unused(f"{old.parent}_added", [item.name for item in urdf.links])
    x, y, z = (value / 2 for value in old.origin.xyz)
    halfway = Pose((x, y, z))
    axis = _perpendicular(transform(old.origin)[:3, :3] @ np.array(old.unit_axis))
    effort, velocity = (old.limit.effort, old.limit.velocity) if old.limit else (None, None)
    ball = Shape(Geometry("sphere", (radius,)), Pose(), None, 0)
    mass = DENSITY * 4 / 3 * math.pi * radius**3
    moment = 0.4 * mass * radius**2
    body = Inertial(mass, Pose(), (moment, 0.0, 0.0, moment, 0.0, moment), 0)
    added = Joint(
        name, "revolute", old.parent, link, halfway, axis,
        Limit(-ADDED_RANGE, ADDED_RANGE, effort, velocity, 0), *[None] * 5, line=0,
    )  # fmt: skip
    carried = replace(old, parent=link, origin=Pose((x, y, z), old.origin.rpy))
    joints = [item for joint in urdf.joints for item in ((added, carried) if joint is old else (joint,))]
    links = (*urdf.links, Link(link, body, (ball,), (ball,), None, 0))
    return replace(urdf, links=links, joints=tuple(joints)), name


def mirrored_frame(tool: ToolFrame) -> ToolFrame:
    """Where a mirrored hand takes hold: as an origin's, its y, roll and yaw change their sign."""
    (x, y, z), (roll, pitch, yaw) = tool.xyz, tool.rpy
    return replace(tool, xyz=(x, -y, z), rpy=(-roll, pitch, -yaw))


def mirrored(urdf: Urdf) -> Urdf:
    """The robot in a mirror that stands on the x-z plane of its root.

    With M = diag(1, -1, 1), the pose of every link at the same joint values is M T M; so R_z(yaw) R_y(pitch)
    R_x(roll) becomes R_z(-yaw) R_y(pitch) R_x(-roll), a sliding axis M a, and a turning one -M a. Doing it
    twice is the identity.
    """

    def origin(old: Pose) -> Pose:
        """M T M of a pose."""
        (x, y, z), (roll, pitch, yaw) = old.xyz, old.rpy
        return Pose((x, -y, z), (-roll, pitch, -yaw))

    def shape(old: Shape) -> Shape:
        """The shape where its mirror image is."""
        geometry = old.geometry
        if geometry.kind == "mesh":  # the others look the same in this mirror
            x, y, z = geometry.size
            geometry = replace(geometry, size=(x, -y, z))
        return replace(old, geometry=geometry, origin=origin(old.origin))

    def inertial(old: Inertial | None) -> Inertial | None:
        """M I M: products with y change their sign."""
        if old is None:
            return None
        xx, xy, xz, yy, yz, zz = old.inertia
        moments = (xx, None if xy is None else -xy, xz, yy, None if yz is None else -yz, zz)
        return replace(old, origin=origin(old.origin), inertia=moments)

    def link(old: Link) -> Link:
        """The link with all that is on it."""
        visuals, collisions = (tuple(map(shape, shapes)) for shapes in (old.visuals, old.collisions))
        return replace(old, inertial=inertial(old.inertial), visuals=visuals, collisions=collisions)

    def joint(old: Joint) -> Joint:
        """The joint: a sliding axis is mirrored, a turning one turns the other way too."""
        axis = old.unit_axis if old.axis is None and old.type in DRIVEN else old.axis
        if axis is not None:
            x, y, z = axis
            axis = (x, -y, z) if old.type == "prismatic" else (-x, y, -z)
        return replace(old, origin=origin(old.origin), axis=axis)

    return _changed(urdf, link, joint)


def without(urdf: Urdf, joint: str) -> Urdf:
    """The robot without the joint and everything below it."""
    gone, waiting = {urdf.by_name[joint].child}, [urdf.by_name[joint].child]
    while waiting:
        children = [item.child for item in urdf.below.get(waiting.pop(), ())]
        gone |= {*children}
        waiting += children
    links = tuple(link for link in urdf.links if link.name not in gone)
    return replace(urdf, links=links, joints=tuple(item for item in urdf.joints if item.child not in gone))


def _changed(urdf: Urdf, link: Callable[[Link], Link], joint: Callable[[Joint], Joint]) -> Urdf:
    return replace(urdf, links=tuple(map(link, urdf.links)), joints=tuple(map(joint, urdf.joints)))


def _same(link: Link) -> Link:
    return link


def _perpendicular(axis: np.ndarray) -> Vector:
    """The unit vector at a right angle to `axis` that is nearest to one of the frame's own axes."""
    nearest = np.eye(3)[int(np.argmin(np.abs(axis)))]
    x, y, z = nearest - (nearest @ axis) * axis
    length = math.hypot(x, y, z)
    return float(x) / length, float(y) / length, float(z) / length
