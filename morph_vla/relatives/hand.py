"""Another hand: where a robot's own is fixed on, and a parallel gripper of any size in its place.

palm     a box on the mount, along its z axis
fingers  two boxes that slide along y; one value moves both, from 0 (closed) to half the opening
tool     a frame between the finger tips
"""

from collections.abc import Collection
from dataclasses import replace

from morph_vla.relatives.edits import DENSITY, without
from morph_vla.robots.parallel_jaw import box_inertial
from morph_vla.robots.records import (
    Contact,
    Geometry,
    Joint,
    Limit,
    Link,
    Mimic,
    Pose,
    Shape,
    Urdf,
    Vector,
    unused,
)

EFFORT, VELOCITY = 20.0, 0.2
"""Of a finger [N] [m/s]: those of the Panda's hand."""
_PALM, _FINGER = (0.35, 1.4, 0.6), (0.25, 0.12)
"""The palm's edges, and a finger's width and depth, as shares of the opening."""


def fixed_on(urdf: Urdf, gripper: str, arm: Collection[str]) -> str | None:
    """The fixed joint that holds the hand with the joint `gripper`, below the nearest joint of `arm`.

    Where several lie in a row, the first whose link has a body. None where the gripper's joint sits on the
    arm itself: that hand cannot be taken off.
    """
    fixed, link = [], urdf.by_name[gripper].parent
    while link in urdf.above and urdf.above[link].name not in arm:
        if urdf.above[link].type == "fixed":
            fixed.append(urdf.above[link])
        link = urdf.above[link].parent
    bodies = {item.name for item in urdf.links if item.inertial or item.visuals or item.collisions}
    solid = [joint for joint in reversed(fixed) if joint.child in bodies]
    return (solid or fixed)[0].name if fixed else None


def rehanded(
    urdf: Urdf, old: str | None, link: str, opening: float, length: float, contact: Contact | None
) -> tuple[Urdf, str]:
    """The robot with a gripper of this opening and finger length [m], and the name of its joint.

    It hangs where the fixed joint `old` held another hand, which is gone with all below it; without one, on
    `link`. `contact` is that of its fingers.
    """
    parent, origin = link, Pose()
    if old is not None:
        parent, origin = urdf.by_name[old].parent, urdf.by_name[old].origin
        urdf = without(urdf, old)
    taken = [item.name for item in (*urdf.links, *urdf.joints)]
    palm, left, right, tool = (
        unused(name, taken) for name in ("jaw_palm", "jaw_left", "jaw_right", "jaw_tool")
    )
    width, depth = (share * opening for share in _FINGER)
    x, y, z = (share * opening for share in _PALM)
    links = [
        _box(palm, (x, y, z), (0.0, 0.0, z / 2), None),
        _box(left, (width, depth, length), (0.0, depth / 2, length / 2), contact),
        _box(right, (width, depth, length), (0.0, -depth / 2, length / 2), contact),
        Link(tool, None, (), (), None, 0),
    ]
    leader = _slide(left, palm, z, 1.0, opening)
    joints = [
        _fixed(unused("jaw_mount", taken), parent, palm, origin),
        leader,
        replace(_slide(right, palm, z, -1.0, opening), mimic=Mimic(leader.name, 1.0, 0.0, 0)),
        _fixed(unused("jaw_tool_joint", taken), palm, tool, Pose((0.0, 0.0, z + 0.8 * length))),
    ]
    return replace(urdf, links=(*urdf.links, *links), joints=(*urdf.joints, *joints)), leader.name


def _box(name: str, size: Vector, middle: Vector, contact: Contact | None) -> Link:
    shape = Shape(Geometry("box", size), Pose(middle), None, 0)
    return Link(name, box_inertial(size, middle, DENSITY), (shape,), (shape,), contact, 0)


def _fixed(name: str, parent: str, child: str, origin: Pose) -> Joint:
    return Joint(name, "fixed", parent, child, origin, *[None] * 7, line=0)


def _slide(finger: str, palm: str, height: float, side: float, opening: float) -> Joint:
    joint = _fixed(f"{finger}_joint", palm, finger, Pose((0.0, 0.0, height)))
    limit = Limit(0.0, opening / 2, EFFORT, VELOCITY, 0)
    return replace(joint, type="prismatic", axis=(0.0, side, 0.0), limit=limit)
