"""A parallel gripper of ours, for an arm that has none: two fingers on one joint value.

```
            finger   finger         y, the way the fingers close
   link --- palm [   tcp   ]  --->  z, the approach
            finger   finger
```

Its frame stands at the origin of the link that carries it, z along `approach`. Lengths are shares of the
`opening`; `FINGER` moves from 0 (open) to half the opening (closed), and `OTHER` follows it.
"""

import math
from dataclasses import replace

import numpy as np

from morph_vla.errors import ConfigError, nearest
from morph_vla.robots.geometry import Rotation, pose
from morph_vla.robots.records import Geometry, Inertial, Joint, Limit, Link, Mimic, Pose, Shape, Urdf, Vector
from morph_vla.robots.side import Attached, Gripper, Side

PALM, TCP = "parallel_jaw", "parallel_jaw_tcp"
FINGER, OTHER = "parallel_jaw_joint", "parallel_jaw_follower"
GREY, DARK = (0.75, 0.76, 0.78, 1.0), (0.2, 0.2, 0.22, 1.0)
PANDA_OPENING = 0.08  # [m]
PALM_LENGTH, FINGER_LENGTH, TIP = 0.6, 0.75, 0.15
"""Shares of the opening: the palm, the fingers beyond it, and how far before their tips the tool is."""
TCP_AHEAD = PALM_LENGTH + FINGER_LENGTH - TIP
THICKNESS, WIDTH = 0.15, 0.3
GRIP = 250.0  # [N] of effort for each metre of the opening: 20 N at 8 cm
DENSITY = 1000.0  # [kg/m^3]


def attach(urdf: Urdf, link: str, approach: Vector, opening: float) -> Urdf:
    """The robot with the gripper at `link`, closing over `opening` [m]; what moved below `link` is gone.

    Where that was one jaw that turned, the link it turned on is the other jaw: its shapes are gone too.
    """
    gone = _moved_by(urdf, link)
    other_jaw = _fixed_jaw(urdf, gone)
    turned = np.eye(4)
    turned[:3, :3] = facing(approach)
    length = PALM_LENGTH * opening
    palm = (WIDTH * opening, (1.0 + 2 * THICKNESS) * opening, length)
    links = [
        _link(PALM, palm, (0.0, 0.0, length / 2), GREY),
        Link(TCP, None, (), (), None, 0),
        *(_finger(f"{PALM}_finger{index}", opening, side) for index, side in ((1, 1.0), (2, -1.0))),
    ]
    tip = (0.0, 0.0, TCP_AHEAD * opening)
    joints = [
        _joint("parallel_jaw_mount", link, PALM, pose(turned)),
        _joint("parallel_jaw_tcp_joint", PALM, TCP, Pose(tip)),
        _slide(FINGER, f"{PALM}_finger1", opening, 1.0),
        replace(_slide(OTHER, f"{PALM}_finger2", opening, -1.0), mimic=Mimic(FINGER, 1.0, 0.0, 0)),
    ]
    kept = [
        replace(item, visuals=(), collisions=()) if item.name == other_jaw else item
        for item in urdf.links
        if item.name not in gone
    ]
    return replace(
        urdf,
        links=(*kept, *links),
        joints=(*(joint for joint in urdf.joints if joint.child not in gone), *joints),
    )


def fitted(urdf: Urdf, side: Side) -> tuple[Urdf, Side]:
    """The robot with the gripper its side file attaches, and the side file that drives it, last by default.

    Raises ConfigError where the URDF has no such link.
    """
    asked = side.gripper
    if not isinstance(asked, Attached):
        return urdf, side
    links = dict.fromkeys([*(link.name for link in urdf.links), *urdf.above])
    if asked.link not in links:
        raise ConfigError(f"gripper.link: no link '{asked.link}' in {urdf.file}{nearest(asked.link, links)}")
    gripper = Gripper(FINGER, 0.0, asked.opening / 2, asked.dataset_open, asked.dataset_closed)
    joints, rest = side.joints, side.rest
    if joints and FINGER not in joints:
        joints = (*joints, FINGER)
        # Whoever gives its value too has counted it among the action's joints.
        rest = (*rest, gripper.open) if len(rest) == len(side.joints) else rest
    fitted_side = replace(side, gripper=gripper, joints=joints, rest=rest)
    return attach(urdf, asked.link, asked.approach, asked.opening), fitted_side


def facing(direction: Vector) -> Rotation:
    """A rotation whose z axis is along `direction`; x is as level as it can be."""
    z = np.asarray(direction, float) / np.linalg.norm(direction)
    other = np.eye(3)[int(np.argmin(np.abs(z)))]
    y = np.cross(z, other)
    y = y / np.linalg.norm(y)
    return np.stack([np.cross(y, z), y, z], axis=1)


def box_inertial(size: Vector, middle: Vector, density: float = DENSITY) -> Inertial:
    """Of a solid box [m] about its centre, along its own axes."""
    mass = density * math.prod(size)
    x, y, z = (edge * edge for edge in size)
    moments = (mass / 12 * (y + z), 0.0, 0.0, mass / 12 * (x + z), 0.0, mass / 12 * (x + y))
    return Inertial(mass, Pose(middle), moments, 0)


def _link(name: str, size: Vector, middle: Vector, rgba: tuple[float, ...]) -> Link:
    shape = Shape(Geometry("box", size), Pose(middle), rgba, 0)
    return Link(name, box_inertial(size, middle), (shape,), (shape,), None, 0)


def _finger(name: str, opening: float, side: float) -> Link:
    """A finger in its joint's frame, in the middle between both: its inner face is half the opening away."""
    size = (WIDTH * opening, THICKNESS * opening, FINGER_LENGTH * opening)
    middle = (0.0, side * (opening + size[1]) / 2, size[2] / 2)
    return _link(name, size, middle, DARK)


def _slide(name: str, child: str, opening: float, side: float) -> Joint:
    limit = Limit(0.0, opening / 2, effort=GRIP * opening, velocity=opening, line=0)
    joint = _joint(name, PALM, child, Pose((0.0, 0.0, PALM_LENGTH * opening)))
    return replace(joint, type="prismatic", axis=(0.0, -side, 0.0), limit=limit)


def _joint(name: str, parent: str, child: str, origin: Pose) -> Joint:
    return Joint(name, "fixed", parent, child, origin, None, None, None, None, None, None, None, 0)


def _fixed_jaw(urdf: Urdf, gone: set[str]) -> str | None:
    """The link a jaw closed against, where all that is gone was one jaw that turned on it, and no wrist."""
    moving = [joint for joint in urdf.joints if joint.child in gone and joint.type != "fixed"]
    if len(moving) != 1 or moving[0].type != "revolute" or (limit := moving[0].limit) is None:
        return None
    lower, upper = limit.lower or 0.0, limit.upper or 0.0
    return moving[0].parent if upper - lower < np.pi else None


def _moved_by(urdf: Urdf, link: str) -> set[str]:
    """The links that joints below `link` move; none where those are no tree, as the judge says then."""
    gone: set[str] = set()
    seen = {link}
    waiting = [(joint, False) for joint in urdf.below.get(link, ())]
    while waiting:
        joint, moved = waiting.pop()
        if joint.child in seen:
            return set()
        seen.add(joint.child)
        moved = moved or joint.type != "fixed"
        if moved:
            gone.add(joint.child)
        waiting += [(below, moved) for below in urdf.below.get(joint.child, ())]
    return gone
