"""The arm of a robot: which joints carry its tool, what closes at their end, and which way that points."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError
from morph_vla.robots.descriptors import limits
from morph_vla.robots.geometry import Transform
from morph_vla.robots.graph import fixed_to
from morph_vla.robots.kinematics import DRIVEN, follow, link_poses
from morph_vla.robots.records import Joint, Urdf, Vector
from morph_vla.robots.side import Attached, Follower, Gripper, Side

GRIPPER = re.compile(r"grip|finger|jaw|claw|thumb|hand_(open|close)", re.IGNORECASE)
"""What the joint of a gripper is usually called."""
FEWEST = 4  # joints of an arm that can put a tool where it is asked to
LONGEST_FINGER = 5  # turning joints of a finger at most: a Shadow hand's thumb
MOUNTS = ("tool0", "flange", "ee_link", "tool", "ee")
"""What a frame is usually called where a hand is screwed on, the best first."""


@dataclass(frozen=True)
class Arm:
    """An arm of a URDF, at joint values of 0, in the frame of its root link."""

    urdf: Urdf
    joints: tuple[str, ...]
    """From base to tip"""
    hand: Literal["parallel", "other", "none"]
    """Fingers that slide; anything else that moves; nothing"""
    fingers: tuple[str, ...] = ()
    """Sliding joints that close: the one an action drives, then the other"""

    @cached_property
    def poses(self) -> dict[str, Transform]:
        """Every link's pose with all joints at 0."""
        return link_poses(self.urdf, {})

    @property
    def length(self) -> float:
        """From the second joint to the mount, along the links [m]."""
        link, steps = self.mount, []
        while link != self.urdf.by_name[self.joints[0]].child:
            joint = self.urdf.above[link]
            steps.append(float(np.linalg.norm(joint.origin.xyz)))
            link = joint.parent
        return sum(steps)

    @property
    def last(self) -> Joint:
        """The joint that carries the hand."""
        return self.urdf.by_name[self.joints[-1]]

    @property
    def mount(self) -> str:
        """The link to screw a hand on: one with a usual name behind the last joint, else the outermost."""
        below = fixed_to(self.urdf, self.last.child)
        for name in MOUNTS:
            for link in below:
                if re.search(rf"(^|[_-]){name}(_\d+)?$", link.lower()):
                    return link
        # Frames behind a hand that is replaced are that hand's.
        return max(below, key=self._outwards) if self.hand == "none" else below[0]

    def _outwards(self, link: str) -> float:
        """How far a link is along the last joint's axis [m]; 0 where it is beside that."""
        place = self.poses[self.last.child]
        way = place[:3, :3].T @ (self.poses[link][:3, 3] - place[:3, 3])
        along = abs(float(way @ np.array(self.last.unit_axis)))
        return along if along > 0.9 * float(np.linalg.norm(way)) else 0.0

    def approach(self) -> Float[np.ndarray, "3"]:
        """The direction the hand points in, of length one.

        The last joint's axis, outwards: towards what is behind it, or away from the joints before it. Where
        that joint turns the hand up and down instead, the direction from it to the mount.
        """
        place = self.poses[self.last.child]
        axis, origin = place[:3, :3] @ np.array(self.last.unit_axis), place[:3, 3]
        if self.fingers:
            ahead = np.mean([self._origin(name) for name in self.fingers], axis=0) - origin
        else:
            links = fixed_to(self.urdf, self.last.child)
            behind = [self.poses[link][:3, 3] - origin for link in links]
            ahead = max(behind, key=lambda way: abs(way @ axis))
        before = origin - self._origin(self.joints[-2])
        middle = next((link.inertial for link in self.urdf.links if link.name == self.last.child), None)
        centre = place[:3, :3] @ np.array(middle.origin.xyz) if middle else np.zeros(3)
        for way in (ahead, before, centre):
            length = float(np.linalg.norm(way))
            if length > 1e-3 and abs(way @ axis) > 0.5 * length and not self._across(axis):
                return axis * np.sign(way @ axis)
        way = next(way for way in (ahead, centre, before, axis) if np.linalg.norm(way) > 1e-3)
        return way / np.linalg.norm(way)

    def _across(self, axis: Float[np.ndarray, "3"]) -> bool:
        """Whether fingers slide along a direction, so that it is not the way to the object."""
        return bool(self.fingers) and abs(float(self.closing() @ axis)) > 0.5

    def closing(self) -> Float[np.ndarray, "3"]:
        """The axis along which the fingers slide."""
        joint = self.urdf.by_name[self.fingers[0]]
        return self.poses[joint.child][:3, :3] @ np.array(joint.unit_axis)

    def _origin(self, joint: str) -> Float[np.ndarray, "3"]:
        """Where a joint turns [m]."""
        return self.poses[self.urdf.by_name[joint].child][:3, 3]

    def in_link(self, link: str, direction: Float[np.ndarray, "3"]) -> Vector:
        """A direction in the axes of a link, rounded where it is one of them."""
        x, y, z = (round(float(value), 6) + 0.0 for value in self.poses[link][:3, :3].T @ direction)
        return x, y, z


def find(urdf: Urdf) -> Arm:
    """The longest arm of a robot; of two alike, that whose joints come first.

    Walks from the root along the most turning joints. An arm ends where its hand begins: where sliding joints
    end a limb, at a name such as `finger`, and where a limb parts into fingers. Joints that slide before it,
    such as a lift, stand still. A trunk that parts into arms is none, though four or more joints turn in it:
    they stand still too, where those of a shorter waist are the arm's.

    Raises MorphVlaError where fewer than four turning joints are in a row.
    """
    roots = [name for name in urdf.below if name not in urdf.above]
    arm, best = (), Arm(urdf, (), "none")
    depths = _depths(urdf, roots)
    body = max(roots, key=depths.__getitem__, default="")
    while body:
        below = _moving(urdf, body)
        # What carries limbs of more joints than itself, and than a finger, is a trunk: no arm, however many.
        most = max(LONGEST_FINGER, len(arm))
        limbs = sum(depths[joint.child] + (joint.type != "prismatic") > most for joint in below)
        if len(arm) >= FEWEST and limbs > 1:
            arm = ()
        # Of a short arm only what carries nothing further, and is called so, is a hand.
        ends = bool(arm) and not any(_moving(urdf, joint.child) for joint in below)
        is_over = len(arm) >= FEWEST or (ends and all(GRIPPER.search(joint.name) for joint in below))
        hand, fingers = _hand(urdf, below) if is_over else ("none", ())
        best = Arm(urdf, arm, hand, fingers)
        if hand != "none" or not below:
            break
        joint = max(below, key=lambda joint: depths[joint.child] + (joint.type != "prismatic"))
        body = joint.child
        if joint.mimic is None and joint.type != "prismatic":
            arm = (*arm, joint.name)
    if len(arm) < FEWEST:
        raise MorphVlaError(
            f"{urdf.file}: no arm: its longest limb has {len(arm)} turning joints; expected at least {FEWEST}"
        )
    return best


def _hand(urdf: Urdf, below: list[Joint]) -> tuple[Literal["parallel", "other", "none"], tuple[str, ...]]:
    """What kind of hand the joints are that a link carries."""
    ends = [joint for joint in below if not _moving(urdf, joint.child)]
    sliding = [joint for joint in ends if joint.type == "prismatic"]
    if len(ends) == len(below) and 0 < len(sliding) <= 2:
        first = sorted(sliding, key=lambda joint: joint.mimic is not None)
        driven = _driven(urdf, first)
        return ("parallel", tuple(joint.name for joint in first)) if driven else ("other", ())
    named = [joint for joint in below if GRIPPER.search(joint.name + joint.child * (joint in ends))]
    return ("other", ()) if named or len(below) > 1 or (ends == below and len(sliding) > 2) else ("none", ())


def _driven(urdf: Urdf, fingers: list[Joint]) -> bool:
    """Whether an action can move the first finger, and the other one with it."""
    first, *others = fingers
    lower, upper = limits(first)
    follows = follow(urdf)
    leaders = {follows[joint.name][0] for joint in others if joint.mimic is not None}
    return first.mimic is None and lower < upper and leaders <= {first.name}


def _moving(urdf: Urdf, link: str) -> list[Joint]:
    """The joints next below a rigid body that move."""
    joints, waiting = [], [link]
    while waiting:
        for joint in urdf.below.get(waiting.pop(), ()):
            if joint.type in DRIVEN:
                joints.append(joint)
            else:
                waiting.append(joint.child)
    return joints


def _depths(urdf: Urdf, roots: list[str]) -> dict[str, int]:
    """Of every link on which a rigid body begins, the most turning joints on a way down from it."""
    below, waiting = {}, [*roots]
    while waiting:
        link = waiting.pop()
        below[link] = _moving(urdf, link)
        waiting += [joint.child for joint in below[link]]
    depths: dict[str, int] = {}
    for link in reversed(below):  # what is further down comes first
        further = (depths[joint.child] + (joint.type != "prismatic") for joint in below[link])
        depths[link] = max(further, default=0)
    return depths


OPENING, WIDEST = 0.08, 0.14  # of a gripper of ours: as a share of the arm's length, and at most [m]


def propose(arm: Arm) -> Side:
    """What an arm's side file has to say for an action to drive it: its joints and a gripper at its end.

    Sliding fingers are used as they are; any other hand is replaced by a parallel gripper of ours.
    """
    if arm.hand != "parallel":
        approach = arm.in_link(arm.mount, arm.approach())
        opening = round(min(OPENING * arm.length, WIDEST), 3)
        return Side(joints=arm.joints, gripper=Attached("parallel_jaw", arm.mount, approach, opening))
    first, *others = (arm.urdf.by_name[name] for name in arm.fingers)
    (lower, upper), drives = limits(first), {}
    axis, slope = arm.closing(), 1.0
    for other in others:
        along = arm.poses[other.child][:3, :3] @ np.array(other.unit_axis)
        slope = -float(np.sign(along @ axis))
        if other.mimic is None:
            drives = {first.name: (Follower(other.name, slope),)}
    ends = {value: _apart(arm, value) for value in (lower, upper)}
    closed, opened = sorted(ends, key=lambda value: (ends[value], value))
    gripper = Gripper(first.name, opened, closed)
    return Side(joints=(*arm.joints, first.name), drives=drives, gripper=gripper)


def _apart(arm: Arm, value: float) -> float:
    """How far apart the fingers are [m] where the first one is at `value`."""
    if len(arm.fingers) < 2:
        return value
    first, other = (arm.urdf.by_name[name] for name in arm.fingers)
    values = {first.name: value, other.name: value if other.mimic is None else 0.0}
    if other.mimic is None:
        along = arm.poses[other.child][:3, :3] @ np.array(other.unit_axis)
        values[other.name] = -float(np.sign(along @ arm.closing())) * value
    poses = link_poses(arm.urdf, values)
    return float(np.linalg.norm(poses[first.child][:3, 3] - poses[other.child][:3, 3]))
