"""Joint values as the poses of a robot's tools, and back: a space of actions that is the same for every arm.

A robot's values become, tool by tool, the nine numbers that TOOL names, in its root's frame, and then every
value that moves no tool: a gripper's as its share of closing, 0 open and 1 closed, any other as it is.

    joints   q1 .. q7  g        tool   x y z  ahead  across  closed

Forward kinematics is exact. Back is damped least squares from where the joints stand (`robots.reach`), so of
all joint values that bring the tool there those near the present ones; a pose out of reach is approached.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError
from morph_vla.robots.geometry import Transform, transform
from morph_vla.robots.grasp import at, grasp
from morph_vla.robots.kinematics import DRIVEN, link_poses
from morph_vla.robots.limb import GRIPPER
from morph_vla.robots.reach import Chain, chain, way
from morph_vla.robots.records import Pose
from morph_vla.robots.robot import Robot
from morph_vla.wording import table

TOOL = ("x", "y", "z", "ahead_x", "ahead_y", "ahead_z", "across_x", "across_y", "across_z")
"""A tool's place [m], the way its fingers point, and the way they open.

Of the two ways across it is the one nearer to the robot's left at rest (LEFT): a parallel hand that is turned
by half a turn is the same tool.
"""
ROWS = 1 << 15  # whose poses are computed at once: each needs about 2 kB
SAME_PLACE = 0.02  # [m] between tools, along an axis: where all are nearer, it tells none from another
SHORTEST = 1e-6  # [m] of a chain: from its second joint to the tool
ITERATIONS = 12  # of inverse kinematics: all actions of a chunk at once, each from where the joints stand

# Of two ways across the one nearer to it: left, a little forward, hardly up.
LEFT = np.array([0.1, 1.0, 0.01])


@dataclass(frozen=True, eq=False)
class Tool:
    """A frame that joints move, and which action values they are."""

    name: str
    """The gripper's joint; of an arm without a gripper its last joint"""
    chain: Chain
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ToolSpace:
    """A robot's tools. Values of joints are in its dataset's units, places in metres."""

    robot: Robot
    tools: tuple[Tool, ...]
    rest: tuple[int, ...]
    """The action values that move no tool"""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the values: `gripper x`, ..., then the joints that move no tool."""
        poses = [f"{tool.name} {value}" for tool in self.tools for value in TOOL]
        return (*poses, *(self.robot.names[column] for column in self.rest))

    @property
    def frames(self) -> dict[str, list[list[float]]]:
        """Each tool's pose with the robot at rest, in the root's frame, as three rows: for files."""
        at_rest = self.robot.rest[None]
        poses = {tool.name: tool.chain.forward(at_rest[:, tool.columns])[0][0] for tool in self.tools}
        return {name: np.round(pose[:3], 6).tolist() for name, pose in poses.items()}

    @property
    def of_poses(self) -> int:
        """How many of the values are of poses; they are the first."""
        return len(TOOL) * len(self.tools)

    @cached_property
    def _closing(self) -> tuple[Float[np.ndarray, "r"], Float[np.ndarray, "r"]]:
        """Of the values that move no tool: what is told as 0, and how much more as 1."""
        zero, span = np.zeros(len(self.rest)), np.ones(len(self.rest))
        for index, column in enumerate(self.rest):
            if (gripper := self.robot.side.grippers.get(self.robot.names[column])) is not None:
                zero[index] = gripper.dataset_open
                span[index] = gripper.dataset_closed - gripper.dataset_open
        return zero, span

    def seen(self, joints: Float[np.ndarray, "*b j"]) -> Float[np.ndarray, "*b v"]:
        """The values of joint values, float32. Raises MorphVlaError for another number of them."""
        rows = joints.reshape(-1, joints.shape[-1])
        seen = np.empty((len(rows), len(self.names)), np.float32)
        for start in range(0, len(rows), ROWS):
            some = slice(start, start + ROWS)
            native = self.robot.to_native(rows[some])
            for index, tool in enumerate(self.tools):
                pose, *_ = tool.chain.forward(native[:, tool.columns])
                values = (pose[:, :3, 3], pose[:, :3, 2], pose[:, :3, 1])
                seen[some, index * len(TOOL) : (index + 1) * len(TOOL)] = np.concatenate(values, axis=1)
        zero, span = self._closing
        seen[:, self.of_poses :] = (rows[:, self.rest] - zero) / span
        return seen.reshape(*joints.shape[:-1], -1)

    def joints(
        self, state: Float[np.ndarray, "b j"], chunk: Float[np.ndarray, "b h v"]
    ) -> Float[np.ndarray, "b h j"]:
        """Joint values, float32, that bring the tools to each row of `chunk`, each sought from `state`.

        Directions need neither be of length one nor at right angles. Joints stay within their limits.
        """
        rows = chunk.reshape(-1, chunk.shape[-1])
        native = np.repeat(self.robot.to_native(state), chunk.shape[1], axis=0)
        for index, tool in enumerate(self.tools):
            target = poses_of(rows[:, index * len(TOOL) : (index + 1) * len(TOOL)])
            start = native[:, tool.columns]
            native[:, tool.columns], *_ = tool.chain.solve(target, start, spin=True, iterations=ITERATIONS)
        joints = self.robot.to_dataset(native)
        zero, span = self._closing
        joints[:, self.rest] = rows[:, self.of_poses :] * span + zero
        return joints.reshape(*chunk.shape[:2], -1).astype(np.float32)


def poses_of(values: Float[np.ndarray, "b 9"]) -> Float[np.ndarray, "b 4 4"]:
    """The poses whose numbers TOOL names; directions are put right, `ahead` first (Gram and Schmidt)."""
    place, ahead, across = np.split(values.astype(np.float64), 3, axis=1)
    ahead = ahead / np.maximum(np.linalg.norm(ahead, axis=1, keepdims=True), 1e-9)
    across = across - ahead * np.sum(ahead * across, axis=1, keepdims=True)
    across = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-9)
    matrix = np.tile(np.eye(4), (len(values), 1, 1))
    matrix[:, :3, :3] = np.stack([np.cross(across, ahead), across, ahead], axis=2)
    matrix[:, :3, 3] = place
    return matrix


def tool_space(robot: Robot) -> ToolSpace:
    """The tools of a robot: its grippers, or the ends of its arms where it has none, the left one first.

    So the same numbers are the same arm's on every robot, in whatever order its joints or grippers are named.
    Where none is the left one (arms face to face) the one further back is the first, and of tools in one
    place the one named first. Grippers' values go as their tools do.

    Raises MorphVlaError for a robot of which a tool is moved by no joint, by one that slides or follows
    another, or of which two are moved by one (a waist): what to do with that joint, poses do not say.
    """
    tools: list[Tool] = []
    owner: dict[str, str] = {}
    for name in list(robot.side.grippers) or _ends(robot):
        link, link_from_tool = _frame(robot, name)
        names = _arm(robot, name, link)
        for joint in names:
            if joint in owner:
                raise _refused(robot, f"joint '{joint}' moves two tools, of '{owner[joint]}' and of '{name}'")
            owner[joint] = name
        columns = tuple(robot.names.index(joint) for joint in names)
        tools.append(Tool(name, _chain(robot, names, link, link_from_tool), columns))
    order = left_first([_place(robot, tool) for tool in tools])
    tools = [tools[index] for index in order]
    for tool in tools:
        if tool.chain.reach < SHORTEST:
            raise _refused(robot, f"between '{tool.chain.names[0]}' and the tool there is no length")
    others = [column for column, name in enumerate(robot.names) if name not in owner]
    closing = [robot.names.index(tool.name) for tool in tools]
    of_tools = iter([column for column in closing if column in others])
    others = [next(of_tools) if column in closing else column for column in others]
    return ToolSpace(robot, tuple(tools), tuple(others))


def left_first(places: Sequence[tuple[float, float]]) -> list[int]:
    """The order of tools at these x and y [m] of a robot at rest: numbers of places, the left one's first.

    Where they are all as far to the left, that further back is the first; else, or in one place, they stay.
    """
    numbers, sides = list(range(len(places))), [y for _, y in places]
    depths = [x for x, _ in places]
    if max(sides, default=0.0) - min(sides, default=0.0) >= SAME_PLACE:
        return sorted(numbers, key=lambda index: -sides[index])
    if max(depths, default=0.0) - min(depths, default=0.0) >= SAME_PLACE:
        return sorted(numbers, key=lambda index: depths[index])
    return numbers


def _place(robot: Robot, tool: Tool) -> tuple[float, float]:
    (pose,), *_ = tool.chain.forward(robot.rest[None][:, tool.columns])
    return float(pose[0, 3]), float(pose[1, 3])


def guessed(robot: Robot) -> tuple[str, ...]:
    """The grippers of which neither the side file nor their kinematics says where they take hold."""
    grippers = robot.side.grippers
    return tuple(name for name in grippers if name not in robot.side.tools and grasp(robot, name) is None)


def unnamed(robot: Robot) -> tuple[str, ...]:
    """The joints that end an arm and seem to close a hand, where the side file names no gripper: by their
    name, or because others follow them. They are taken for the arm's last.
    """
    if robot.side.grippers:
        return ()
    drives = [robot.names[column] for _, column, *_ in robot.drives()]
    return tuple(name for name in _ends(robot) if GRIPPER.search(name) or drives.count(name) > 1)


def listed(robot: Robot) -> str:
    """Where each tool stands at rest and which joints move it; or why there is none. For `robots show`."""
    try:
        space = tool_space(robot)
    except MorphVlaError as error:
        return str(error)
    values = space.seen(robot.to_dataset(robot.rest))
    rows = []
    for index, tool in enumerate(space.tools):
        parts = np.split(values[index * len(TOOL) : (index + 1) * len(TOOL)], 3)
        rows.append(
            (tool.name, *(" ".join(f"{value:.3f}" for value in np.round(part, 3) + 0.0) for part in parts))
        )
    head = (
        "tools (data.space: tool), at rest in the root's frame: place [m], where fingers point, how they open"
    )
    lines = [head, *table(("tool", "place", "ahead", "across"), rows)]
    if names := guessed(robot):
        lines.append(
            f"{', '.join(names)}: a guess, where fingers begin that turn; `tools` in the side file says it"
        )
    closing = {*robot.side.grippers, *unnamed(robot)}
    if others := [robot.names[column] for column in space.rest if robot.names[column] not in closing]:
        lines.append(f"{', '.join(others)}: move no tool, and stay joint values")
    if names := unnamed(robot):
        which = "is taken for an arm's last joint" if len(names) == 1 else "are taken for arms' last joints"
        lines.append(
            f"{', '.join(names)}: {which}; if it closes a hand, name it as `gripper` in the side file"
        )
    return "\n".join(lines)


def _refused(robot: Robot, why: str) -> MorphVlaError:
    return MorphVlaError(f"robot '{robot.name}' has no space of tools: {why}; choose data.space: joints")


def _arm(robot: Robot, tool: str, link: str) -> tuple[str, ...]:
    """The joints that move a tool on that link, from the root. Raises MorphVlaError as `tool_space`."""
    driven, names = {name for name, *_ in robot.drives()}, []
    for joint in way(robot.urdf, link):
        if joint.name not in driven or joint.type not in DRIVEN:
            continue
        if joint.name in robot.side.grippers:
            raise _refused(robot, f"'{joint.name}', which closes a hand, moves '{tool}'")
        if joint.name not in robot.names:
            raise _refused(robot, f"joint '{joint.name}', which moves '{tool}', follows another")
        if joint.type == "prismatic":
            raise _refused(robot, f"joint '{joint.name}', which moves '{tool}', slides")
        names.append(joint.name)
    if not names:
        raise _refused(robot, f"no joint moves '{tool}'")
    return tuple(names)


def _chain(robot: Robot, names: tuple[str, ...], link: str, link_from_tool: Transform) -> Chain:
    """The chain, in which joints without limits have none."""
    known = chain(robot, names, link, link_from_tool)
    endless = np.array([robot.urdf.by_name[name].type == "continuous" for name in names])
    lower, upper = (
        np.where(endless, end, ends) for end, ends in ((-np.inf, known.lower), (np.inf, known.upper))
    )
    return replace(known, lower=lower, upper=upper)


def _ends(robot: Robot) -> list[str]:
    """The action joints that carry no other."""
    urdf, ends = robot.urdf, list(robot.names)
    for name in robot.names:
        joint = urdf.above.get(urdf.by_name[name].parent)
        while joint is not None:
            if joint.name in ends:
                ends.remove(joint.name)
            joint = urdf.above.get(joint.parent)
    return ends


def _frame(robot: Robot, name: str) -> tuple[str, Transform]:
    """The link that carries a tool, and the tool in its frame: z ahead, y across."""
    joint, gripper = robot.urdf.by_name[name], name in robot.side.grippers
    link = joint.parent if gripper else joint.child
    poses = link_poses(robot.urdf, robot.positions(at(robot, name, "closed") if gripper else robot.rest))
    if name in robot.side.tools:
        stated = robot.side.tools[name]
        link, root_from_tool = stated.link, poses[stated.link] @ transform(Pose(stated.xyz, stated.rpy))
    elif gripper and (hold := grasp(robot, name)) is not None:
        root_from_tool = hold.pose.copy()
    else:
        root_from_tool = poses[link].copy()
        if gripper:  # fingers that turn: where they begin
            driven = [key for key, column, *_ in robot.drives() if robot.names[column] == name]
            frames = [poses[robot.urdf.by_name[key].child][:3, 3] for key in driven]
            root_from_tool[:3, 3] = np.mean(frames, axis=0)
    if root_from_tool[:3, 1] @ LEFT < 0:
        root_from_tool[:3, :2] *= -1
    return link, np.linalg.inv(poses[link]) @ root_from_tool
