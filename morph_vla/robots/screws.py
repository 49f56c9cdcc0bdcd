"""Where a robot's joints lie and how they turn at rest, whatever frames its file uses.

A public URDF mostly gives every joint the axis (0, 0, 1) of a frame of its own, so that what makes one body
different from another, the joints' origins, is not among the paper's 12 features. Here a joint is a screw
[axis, place] in the robot's base frame, at its rest pose:

    axis   the direction it turns about, right-handed, or slides along
    place  the point of its axis nearest to the places of the next joints (their mean); of the last joint, to
           its tool. It is the same point of the arm in any pose: a Panda's are shoulder, elbow and wrist.
           A sliding joint has no line of its own and stands where the next joint does.
    tool   where the last joint's frame sits, the mean over all joints that its value drives: between the
           fingers of a gripper. How long a hand is no kinematics says, so this is the file's own word.

The base frame is the robot's, not the file's: its origin is the mean place of the joints that no other
carries; z is up, as the URDF's root has it and every simulator stands it; x is forward, the mean horizontal
way from the joints to the tool. Without one (an arm straight up) forward is where positive joint values
mostly move the tool, then right of the horizontal axes, then the root's own x. So neither frames, names nor
the base's place and heading change a feature; a tilted base does, for then the robot hangs otherwise.

Mirrored (same values, mirrored motion), directions of places and motions change their y, and axes of turning
joints, which are axial vectors, their x and z. Nothing else changes.
"""

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.robots import graph
from morph_vla.robots.geometry import transform
from morph_vla.robots.kinematics import DRIVEN
from morph_vla.robots.robot import Robot
from morph_vla.wording import table

GEOMETRY = (
    "type_pris", "type_rev", "endless", "gripper", "lower", "upper", "rest",
    "axis_x", "axis_y", "axis_z", "place_x", "place_y", "place_z", "move_x", "move_y", "move_z",
    "to_tool_x", "to_tool_y", "to_tool_z", "tool_distance", "from_parent_x", "from_parent_y", "from_parent_z",
    "to_child_x", "to_child_y", "to_child_z", "link_length", "mass", "mass_known", "reach_log",
)  # fmt: skip
"""Lengths are shares of the robot's reach unless said.

`type_pris`, `type_rev`, `endless` (turns without limits), `gripper`: 0 or 1
`lower`, `upper`, `rest`: half turns [rad / pi], or shares of the reach; endless joints from -1 to 1
`axis`: of length one
`place`: of the joint
`move`: of the tool, for a turn of 1 rad, or a slide of one: axis x `to_tool`, or axis
`to_tool`, `tool_distance`: from the joint's place, and its length
`from_parent`, `to_child`: from the place of the joint before, and to the next joints' (the tool, at the end)
`link_length`: of `to_child`, the same in any pose
`mass`: of the rigid body it carries up to the next joints, over that of all such; 0 where `mass_known` is 0
`reach_log`: natural logarithm of the reach in metres, what all lengths were divided by
"""
LEAST = 0.02  # a forward direction counts when its mean over the joints is longer, in shares of the reach


@dataclass(frozen=True)
class Screws:
    """N moving joints in the base frame at rest, the action's J first; others carry one of these.

    Vectors are in metres over `reach`.
    """

    names: tuple[str, ...]
    parents: Int[np.ndarray, "n"]
    """The next of them towards the base; -1 for those that none carries"""
    turning: Bool[np.ndarray, "n"]
    axes: Float[np.ndarray, "n 3"]
    places: Float[np.ndarray, "n 3"]
    next_places: Float[np.ndarray, "n 3"]
    """The mean place of the joints that it carries, or the tool"""
    tools: Float[np.ndarray, "n 3"]
    """The tool it moves, the mean where it carries several"""
    leaders: Int[np.ndarray, "n"]
    """The action value that drives it; it moves by `slopes` times as much"""
    slopes: Float[np.ndarray, "n"]
    reach: float
    """From the base through all places to the farthest tool [m]; 1 for a robot without any length"""
    base_from_root: Float[np.ndarray, "4 4"]
    """From the root link's frame [m] into the base frame, before lengths are divided by `reach`"""


def screws(robot: Robot) -> Screws:
    """The joints of a robot at its rest pose."""
    driven = {name: (leader, slope) for name, leader, slope, _ in robot.drives()}
    poses, joints = robot.forward_kinematics(robot.rest), robot.urdf.by_name
    frames = {name: poses[joints[name].parent] @ transform(joints[name].origin) for name in driven}
    names, parents = _moving(robot, driven)
    leaders, slopes = (np.array([driven[name][part] for name in names]) for part in (0, 1))
    turning = np.array([joints[name].type != "prismatic" for name in names])
    axes = np.array([frames[name][:3, :3] @ joints[name].unit_axis for name in names])
    origins = np.array([frames[name][:3, 3] for name in names])
    fingers = [[frames[name][:3, 3] for name in driven if driven[name][0] == leader] for leader in leaders]
    tools = np.array([np.mean(points, axis=0) for points in fingers])
    count, roots = len(robot.names), parents < 0
    chain = _chain(parents, turning, axes, origins, tools)
    origin = chain.places[roots].mean(axis=0)
    longest = (np.linalg.norm(chain.places[roots] - origin, axis=1) + chain.reach[roots]).max()
    reach = float(longest) if longest > 1e-6 else 1.0
    to_tools = (chain.tools - chain.places) / reach
    turn = _base_from_root(turning[:count], axes[:count], to_tools[:count])
    base_from_root = np.eye(4)
    base_from_root[:3, :3], base_from_root[:3, 3] = turn, -turn @ origin
    places, next_places, tools = (
        (points - origin) @ turn.T / reach for points in (chain.places, chain.next_places, chain.tools)
    )
    return Screws(
        names, parents, turning, axes @ turn.T, places, next_places, tools, leaders, slopes, reach,
        base_from_root,
    )  # fmt: skip


def _moving(robot: Robot, drives: Container[str]) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """The action joints, then other driven joints that carry one; and the next of these towards the base."""
    above = {}
    waiting = list(robot.names)
    for name in waiting:
        joint = robot.urdf.above.get(robot.urdf.by_name[name].parent)
        while joint is not None and not (joint.name in drives and joint.type in DRIVEN):
            joint = robot.urdf.above.get(joint.parent)
        above[name] = None if joint is None else joint.name
        if joint is not None and joint.name not in waiting:
            waiting.append(joint.name)
    return tuple(waiting), np.array([-1 if name is None else waiting.index(name) for name in above.values()])


@dataclass(frozen=True)
class _Chain:
    """What is found from the tips to the base, in the root's frame [m]."""

    places: Float[np.ndarray, "n 3"]
    next_places: Float[np.ndarray, "n 3"]
    tools: Float[np.ndarray, "n 3"]
    reach: Float[np.ndarray, "n"]
    """From each joint through the next places to the farthest tool"""


def _chain(
    parents: Int[np.ndarray, "n"],
    turning: Bool[np.ndarray, "n"],
    axes: Float[np.ndarray, "n 3"],
    origins: Float[np.ndarray, "n 3"],
    tools: Float[np.ndarray, "n 3"],
) -> _Chain:
    """Each joint's place and tool; `origins` are points of the axes, `tools` those of the last joints."""
    chain = _Chain(origins.copy(), tools.copy(), tools.copy(), np.zeros(len(parents)))
    order = np.flatnonzero(parents < 0).tolist()
    for index in order:
        order.extend(np.flatnonzero(parents == index).tolist())
    for index in order[::-1]:
        carried = parents == index
        if carried.any():
            chain.next_places[index] = chain.places[carried].mean(axis=0)
            chain.tools[index] = chain.tools[carried].mean(axis=0)
        target, axis = chain.next_places[index], axes[index]
        along = axis * (axis @ (target - origins[index]))
        chain.places[index] = origins[index] + along if turning[index] else target
        ends = chain.places[carried] if carried.any() else target[None]
        steps = np.linalg.norm(ends - chain.places[index], axis=1)
        chain.reach[index] = (steps + (chain.reach[carried] if carried.any() else 0.0)).max()
    return chain


def _base_from_root(
    turning: Bool[np.ndarray, "j"], axes: Float[np.ndarray, "j 3"], to_tools: Float[np.ndarray, "j 3"]
) -> Float[np.ndarray, "3 3"]:
    """The rotation whose rows are forward, left and up."""
    up = np.array([0.0, 0.0, 1.0])
    right = np.where(turning[:, None], np.cross(up, axes), 0.0)  # a vector that mirrors as places do
    for candidate in (to_tools, _moves(turning, axes, to_tools), right):
        way = candidate.mean(axis=0) * (1, 1, 0)
        length = np.linalg.norm(way)
        if length > LEAST:
            return np.array([way / length, np.cross(up, way / length), up])
    return np.eye(3)


def _moves(
    turning: Bool[np.ndarray, "n"], axes: Float[np.ndarray, "n 3"], to_tools: Float[np.ndarray, "n 3"]
) -> Float[np.ndarray, "n 3"]:
    """How the tool moves with each joint: a column of its Jacobian."""
    return np.where(turning[:, None], np.cross(axes, to_tools), axes)


def features(robot: Robot) -> Float[np.ndarray, "j 30"]:
    """The features named by GEOMETRY, rows in action order, float32."""
    known, count = screws(robot), len(robot.names)
    places, parents, turning = known.places[:count], known.parents[:count], known.turning[:count]
    to_tool, to_child = known.tools[:count] - places, known.next_places[:count] - places
    from_parent = np.where(parents[:, None] < 0, 0.0, places - known.places[parents])
    unit = np.where(turning, np.pi, known.reach)
    mass, mass_known = _masses(robot)
    columns = (
        ~turning, turning, [joint.type == "continuous" for joint in robot.joints],
        [joint.is_gripper for joint in robot.joints],
        robot.lower / unit, robot.upper / unit, robot.rest / unit,
        *known.axes[:count].T, *places.T, *_moves(turning, known.axes[:count], to_tool).T,
        *to_tool.T, np.linalg.norm(to_tool, axis=1), *from_parent.T,
        *to_child.T, np.linalg.norm(to_child, axis=1),
        mass, mass_known, np.full(count, np.log(known.reach)),
    )  # fmt: skip
    return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)


def _masses(robot: Robot) -> tuple[Float[np.ndarray, "j"], Bool[np.ndarray, "j"]]:
    """The share of each joint's rigid body in the mass that moves, and whether the file says it."""
    body, kilograms = graph.bodies(robot.urdf, robot.names), {}
    for link in robot.urdf.links:
        if link.inertial is not None and link.inertial.mass is not None:
            number = body[link.name]
            kilograms[number] = kilograms.get(number, 0.0) + max(link.inertial.mass, 0.0)
    carried = [body[robot.urdf.by_name[name].child] for name in robot.names]
    masses = np.array([kilograms.get(number, 0.0) for number in carried])
    return masses / max(masses.sum(), 1e-12), masses > 0


def listed(robot: Robot) -> str:
    """A table of the features, a column for each joint."""
    rows = [(name, *row) for name, row in zip(GEOMETRY, features(robot).T.tolist(), strict=True)]
    head = "geometry at rest, in the base frame, lengths over the reach (docs/method.md)"
    return "\n".join([head, *table(("feature", *map(str, range(len(robot.names)))), rows)])
