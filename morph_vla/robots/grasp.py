"""Where a gripper whose fingers slide takes hold of an object, from its kinematics alone."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import Transform
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.parallel_jaw import PANDA_OPENING
from morph_vla.robots.robot import Robot

CENTRE = ("tcp", "grasp", "end_effector", "fingertip")
"""Parts of the name of a frame between the fingers."""
TIP = 0.012 / PANDA_OPENING  # from the middle of what is held to the fingers' ends, as a share of the opening
LENGTH, SHORTEST = 0.6, 0.03  # of fingers that no frame says: a share of the opening, and at least [m]


@dataclass(frozen=True, eq=False)
class Grasp:
    """A closed gripper, in the frame of the robot's root with all else at rest.

    ```
        | finger |
        |   o -> | y     o: the pose, z out of the hand
        | finger |
    ```
    """

    pose: Transform
    """Between the fingers' ends: z is the approach, y the way the first finger opens"""
    fingers: tuple[tuple[str, float], ...]
    """Links, and 1 for those that open along y, -1 for the others"""
    opening: float
    """[m] between the fingers when they are open"""
    length: float
    """[m] of a finger, from its joint to its end"""

    @property
    def tip(self) -> float:
        """From the pose to the fingers' ends [m]."""
        return TIP * self.opening


def grasp(robot: Robot, gripper: str) -> Grasp | None:
    """The grasp of the gripper that the action joint `gripper` closes; None where a finger turns.

    Two fingers are taken to meet where the gripper is closed, and one that moves alone to meet the hand.
    """
    urdf = robot.urdf
    names = [name for name, index, *_ in robot.drives() if robot.names[index] == gripper]
    joints = [urdf.by_name[name] for name in (gripper, *(name for name in names if name != gripper))]
    if any(joint.type != "prismatic" for joint in joints):
        return None
    closed, opened = (
        link_poses(urdf, robot.positions(at(robot, gripper, end))) for end in ("closed", "open")
    )
    ways = {joint.child: opened[joint.child][:3, 3] - closed[joint.child][:3, 3] for joint in joints}
    first = joints[0].child
    y = ways[first] / np.linalg.norm(ways[first])
    middle = np.mean([closed[link][:3, 3] for link in ways], axis=0)
    opening = float(sum(np.linalg.norm(way) for way in ways.values()))
    z = _approach(robot, closed, first, y, middle)
    length = max(LENGTH * opening, SHORTEST)
    for name, pose in closed.items():
        ahead = pose[:3, 3] - middle
        central = abs(ahead @ y) < 0.01 < ahead @ z < 0.25
        if central and is_centre(name):
            length = float(ahead @ z) + TIP * opening
            break
    pose = np.eye(4)
    pose[:3, :3] = np.stack([np.cross(y, z), y, z], axis=1)
    pose[:3, 3] = middle + z * (length - TIP * opening)
    fingers = tuple((link, 1.0 if way @ y > 0 else -1.0) for link, way in ways.items())
    return Grasp(pose, fingers, opening, length)


def is_centre(link: str) -> bool:
    """Whether a frame is called what the place between fingers usually is."""
    return any(part in link.lower() for part in CENTRE)


def at(robot: Robot, gripper: str, end: str) -> Float[np.ndarray, "j"]:
    """The rest pose with one gripper at its `open` or `closed` end [rad | m]."""
    values = robot.rest.copy()
    values[robot.names.index(gripper)] = getattr(robot.side.grippers[gripper], end)
    return values


def _approach(
    robot: Robot,
    poses: dict[str, Transform],
    finger: str,
    y: Float[np.ndarray, "3"],
    middle: Float[np.ndarray, "3"],
) -> Float[np.ndarray, "3"]:
    """The direction in which fingers point: the axis of the joint that rolls the hand, else away from it."""
    above, link = robot.urdf.above, finger
    while link in above:
        joint, link = above[link], above[link].parent
        if joint.type not in ("revolute", "continuous"):
            continue
        axis = poses[joint.child][:3, :3] @ np.array(joint.unit_axis)
        away = middle - poses[joint.child][:3, 3]
        rolls = abs(axis @ y) < 0.3 and abs(away @ axis) > 0.3 * float(np.linalg.norm(away)) > 0
        z = axis * np.sign(away @ axis) if rolls else away
        z = z - (z @ y) * y
        if np.linalg.norm(z) > 1e-3:
            return z / np.linalg.norm(z)
    z = np.cross(y, np.eye(3)[int(np.argmin(np.abs(y)))])
    return z / np.linalg.norm(z)
