"""A robot that a simulator can build: what its URDF leaves out is filled in from its kinematics.

Links without a shape, or whose meshes are not at hand, get capsules along their joints; moving links without
a mass get that of their shapes; fingers that slide get pads. A URDF that lacks nothing stays as it is.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from morph_vla.findings import Finding
from morph_vla.robots import meshes
from morph_vla.robots.descriptors import limits
from morph_vla.robots.geometry import Transform, pose, transform
from morph_vla.robots.grasp import at, grasp, is_centre
from morph_vla.robots.kinematics import DRIVEN, follow, link_poses, motion
from morph_vla.robots.parallel_jaw import DARK, FINGER, box_inertial, facing
from morph_vla.robots.records import Geometry, Inertial, Joint, Limit, Link, Pose, Shape, Urdf
from morph_vla.robots.robot import Robot
from morph_vla.robots.text import urdf_text

REFUSED = ("impossible-inertia", "undeclared-link")
"""Findings that are no error to us, and with which MuJoCo builds nothing"""
NUMBERS = ("expression", "too-many-numbers", "wrong-number")
"""Findings of numbers, with which it builds nothing where it reads them"""
READ = (
    "origin", "axis", "dynamics", "mimic", "color", "mass", "inertia", "box", "cylinder", "sphere", "mesh"
)  # fmt: skip
"""Elements whose numbers it reads, beside a joint's limits"""
PRIMITIVES = ("box", "cylinder", "sphere", "capsule")
SLENDER, THICK = 0.25, 0.06  # the most a capsule's radius is: of its length, and of the robot's reach
LEAST = 0.01  # of the robot's reach: joints closer than this have no capsule between them
DENSITY = 500.0  # [kg/m^3] of a guessed link, motors and hollow tubes together
PAD_WIDTH, PAD_DEPTH = 0.25, 0.18  # of a finger, as shares of the gripper's opening
PALE = (0.82, 0.83, 0.85, 1.0)
# Inertias as files have them may be of no real body; MuJoCo repairs them instead of refusing the file.
COMPILER = (
    '<mujoco><compiler balanceinertia="true" boundmass="1e-4" boundinertia="1e-8" discardvisual="false"'
    ' strippath="false" fusestatic="false"/></mujoco>'
)


def scene_text(robot: Robot) -> str:
    """The URDF that MuJoCo builds the robot from: its own file where that lacks nothing."""
    if not lacks_something(robot):
        return robot.urdf_path.read_text("utf-8")
    return urdf_text(filled(robot)).replace("</robot>", f"{COMPILER}</robot>")


def lacks_something(robot: Robot) -> bool:
    """Whether a simulator would miss something, or refuse what the reader lets pass.

    Missed are meshes, shapes, masses, limits that are not in the file, the side file's own gripper, and where
    joints stand that follow none that is driven; refused is what `_is_refused` says, and another encoding
    than UTF-8. A `<mujoco>` block would change masses and gravity of all that is in the scene.
    """
    links = {link.name: link for link in robot.urdf.links}
    driven = [robot.urdf.by_name[name] for name, *_ in robot.drives()]
    carried = [links.get(joint.child) for joint in driven]
    shapes = [shape for link in robot.urdf.links for shape in (*link.visuals, *link.collisions)]
    return (
        FINGER in robot.urdf.by_name
        or not any(link.collisions for link in robot.urdf.links)
        or any(shape.geometry.kind not in PRIMITIVES for shape in shapes)
        or any(link is None or not _massive(link.inertial) for link in carried)
        or bool(frozen(robot) or robot.side.stands)
        or not all(map(_limited_as_used, driven))
        or any(tag == "mujoco" for tag, *_ in robot.urdf.other)
        or any(map(_is_refused, robot.findings))
        or not _is_utf8(robot.urdf_path)
    )


def _limited_as_used(joint: Joint) -> bool:
    """Whether a simulator reads the limits that we use, where a joint has some."""
    known = joint.limit
    return joint.type == "continuous" or (known is not None and (known.lower, known.upper) == limits(joint))


def frozen(robot: Robot) -> dict[str, Pose]:
    """Joints that follow none that is driven, at another value than 0 -> their origin, moved by it."""
    driven = {name for name, *_ in robot.drives()}
    origins = {}
    for name, (_, _, offset) in follow(robot.urdf).items():
        if name not in driven and offset:
            joint = robot.urdf.by_name[name]
            origins[name] = pose(transform(joint.origin) @ motion(joint, offset))
    return origins


def _is_refused(finding: Finding) -> bool:
    """Whether MuJoCo builds nothing of a file of which the reader says this."""
    if finding.code not in NUMBERS:
        return finding.code in REFUSED
    attribute = finding.subject[1]
    return attribute in ("limit lower", "limit upper") or attribute.partition(" ")[0] in READ


def _is_utf8(path: Path) -> bool:
    try:
        path.read_text("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def filled(robot: Robot) -> Urdf:
    """The robot with a shape and a mass for every link that needs one, and meshes by their full path.

    Limits are those in use (`descriptors.limits`), joints that no action can drive are fixed, and joints have
    neither friction nor damping of their own: servos are a suite's.
    """
    urdf, file = robot.urdf, robot.urdf_path
    guesses = {**capsules(urdf, link_poses(urdf, robot.positions(robot.rest))), **pads(robot)}
    declared = {link.name: link for link in urdf.links}
    named = [name for joint in urdf.joints for name in (joint.parent, joint.child)]
    moving = {joint.child for joint in urdf.joints if joint.type in DRIVEN}
    links = []
    for name in dict.fromkeys([*declared, *named]):
        link = declared.get(name, Link(name, None, (), (), None, 0))
        if name not in urdf.below and name not in moving and is_centre(name):
            # Some files mark the place between the fingers with a box.
            link = replace(link, visuals=(), collisions=())
        visuals, collisions = (tuple(_at_hand(shapes, file)) for shapes in (link.visuals, link.collisions))
        collisions = collisions or guesses.get(name, ()) or visuals
        inertial = link.inertial if _massive(link.inertial) else None
        if inertial is not None:  # MuJoCo wants all six
            inertial = replace(inertial, inertia=tuple(value or 0.0 for value in inertial.inertia))
        if inertial is None and (collisions or name in moving):
            inertial = _inertial(collisions)
        links.append(replace(link, visuals=visuals, collisions=collisions, inertial=inertial, contact=None))
    origins = frozen(robot)
    joints = tuple(_plain(joint, origins.get(joint.name)) for joint in urdf.joints)
    return replace(urdf, links=tuple(links), joints=joints)


def _plain(joint: Joint, origin: Pose | None) -> Joint:
    """The joint as the project uses it; one that is frozen is fixed at that `origin`."""
    plain = replace(joint, damping=None, friction=None, soft_lower=None, soft_upper=None)
    if origin is not None:
        return replace(plain, type="fixed", axis=None, limit=None, mimic=None, origin=origin)
    if joint.type not in DRIVEN:
        return replace(plain, type="fixed", axis=None, limit=None, mimic=None)
    (lower, upper), known = limits(joint), joint.limit
    effort, velocity = (known.effort or 0.0, known.velocity or 0.0) if known else (0.0, 0.0)
    return replace(plain, axis=joint.unit_axis, limit=Limit(lower, upper, effort, velocity, 0))


def capsules(urdf: Urdf, poses: dict[str, Transform]) -> dict[str, tuple[Shape, ...]]:
    """For every link, capsules from its origin to the joints that it carries; in the link's frame.

    Frames that carry nothing are no bodies. A link with joints that slide is a hand: its capsules end before
    them, and none goes on between the fingers.
    """
    reach = max((float(np.linalg.norm(matrix[:3, 3])) for matrix in poses.values()), default=1.0)
    bodies = {link.name for link in urdf.links if link.visuals or link.collisions}
    bodies |= {joint.child for joint in urdf.joints if joint.type != "fixed"} | set(urdf.below)
    hands = {joint.parent for joint in urdf.joints if joint.type == "prismatic"}
    shapes: dict[str, list[Shape]] = {}
    for joint in urdf.joints:
        if joint.parent in hands and joint.type != "prismatic":
            continue
        end = np.array(joint.origin.xyz)
        length = float(np.linalg.norm(end))
        if length < LEAST * reach or joint.child not in bodies:
            continue
        radius = min(SLENDER * length, THICK * reach)
        if joint.type == "prismatic":
            length -= 1.5 * radius
        middle = np.eye(4)
        middle[:3, :3] = facing((float(end[0]), float(end[1]), float(end[2])))
        middle[:3, 3] = middle[:3, 2] * length / 2
        straight = max(length - radius, 0.1 * length)
        capsule = Shape(Geometry("capsule", (radius, straight)), pose(middle), PALE, 0)
        shapes.setdefault(joint.parent, []).append(capsule)
    return {link: tuple(made) for link, made in shapes.items()}


def pads(robot: Robot) -> dict[str, tuple[Shape, ...]]:
    """A box for every sliding finger, in its link's frame; two of a pair meet where the gripper is closed."""
    shapes: dict[str, tuple[Shape, ...]] = {}
    for name in robot.side.grippers:
        hold = grasp(robot, name)
        if hold is None:
            continue
        poses = link_poses(robot.urdf, robot.positions(at(robot, name, "closed")))
        size = (PAD_WIDTH * hold.opening, PAD_DEPTH * hold.opening, hold.length)
        for link, side in hold.fingers:
            root_from_pad = hold.pose.copy()
            root_from_pad[:3, 3] += hold.pose[:3, 1] * side * size[1] / 2
            root_from_pad[:3, 3] += hold.pose[:3, 2] * (hold.tip - size[2] / 2)
            link_from_pad = np.linalg.inv(poses[link]) @ root_from_pad
            shapes[link] = (Shape(Geometry("box", size), pose(link_from_pad), DARK, 0),)
    return shapes


def _at_hand(shapes: tuple[Shape, ...], file: Path) -> Iterator[Shape]:
    """The primitives, and those meshes that are beside the URDF's `file` and sound, by their full path."""
    for shape in shapes:
        geometry = shape.geometry
        if geometry.kind in PRIMITIVES and min(geometry.size) > 0:
            yield shape
        elif geometry.kind == "mesh" and (path := meshes.file_of(geometry.mesh or "", geometry.size, file)):
            yield replace(shape, geometry=replace(geometry, mesh=str(path)))


def _massive(inertial: Inertial | None) -> bool:
    """Whether a body has a mass and an inertia that some body could have."""
    if inertial is None or not (inertial.mass or 0.0) > 0:
        return False
    ixx, ixy, ixz, iyy, iyz, izz = (value or 0.0 for value in inertial.inertia)
    moments = np.linalg.eigvalsh(np.array([[ixx, ixy, ixz], [ixy, iyy, iyz], [ixz, iyz, izz]]))
    return bool(moments.min() > 0)


def _inertial(shapes: tuple[Shape, ...]) -> Inertial:
    """Of the box around the largest primitive; of a small cube where there is none."""
    boxes = [(_edges(shape.geometry), shape) for shape in shapes if shape.geometry.kind in PRIMITIVES]
    if not boxes:
        return box_inertial((0.03, 0.03, 0.03), (0.0, 0.0, 0.0), DENSITY)
    edges, shape = max(boxes, key=lambda item: math.prod(item[0]))
    return replace(box_inertial(edges, shape.origin.xyz, DENSITY), origin=shape.origin)


def _edges(geometry: Geometry) -> tuple[float, float, float]:
    """The edges of the box around a primitive [m]."""
    size = geometry.size
    match geometry.kind:
        case "box":
            return size[0], size[1], size[2]
        case "sphere":
            return 2 * size[0], 2 * size[0], 2 * size[0]
        case _:
            return 2 * size[0], 2 * size[0], size[1]
