"""Which joints do a suite's task, and which links close on an object: the same for every engine."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.errors import MorphVlaError
from morph_vla.robots import Robot
from morph_vla.suites import on_robot
from morph_vla.suites.suite import InitialState, Suite


def grippers(robot: Robot) -> Bool[np.ndarray, "j"]:
    """Which action joints are grippers."""
    return np.asarray([joint.is_gripper for joint in robot.joints])


def _ancestors(robot: Robot, link: str) -> list[str]:
    """A link and what it hangs on, tip first; the root is left out: no joint moves it."""
    above = {joint.child: joint.parent for joint in robot.urdf.joints}
    chain = []
    while link in above:
        chain.append(link)
        link = above[link]
    return chain


def limb(robot: Robot, tool: str) -> Bool[np.ndarray, "j"]:
    """The action joints that do the task: those that carry the expert's tool, and their grippers.

    All of them where the robot has no such link: `experts` says so.
    """
    if tool not in {link for joint in robot.urdf.joints for link in (joint.parent, joint.child)}:
        return np.ones(len(robot.joints), dtype=bool)
    moved = {joint.name: joint.child for joint in robot.urdf.joints}
    links = [moved[name] for name in robot.names]
    carried, closing = set(_ancestors(robot, tool)), grippers(robot)
    arm = np.array([link in carried for link in links]) & ~closing
    holders = {link for link, of_arm in zip(links, arm, strict=True) if of_arm}
    hands = np.array([holders <= set(_ancestors(robot, link)) for link in links])
    return arm | (hands & closing)


def start(robot: Robot, suite: Suite) -> Float[np.ndarray, "j"]:
    """Where the joints begin [rad | m] but for an episode's own offset: at rest, or where `suite.start` says.

    Raises MorphVlaError where `suite.start` names a joint that no action drives, or a value outside its
    limits.
    """
    for problem in on_robot.of_start(suite, robot):
        raise MorphVlaError(f"{suite.path}: {problem}")
    posture = np.asarray(robot.rest, dtype=np.float64).copy()
    for name, value in suite.start.items():
        posture[robot.names.index(name)] = value
    return posture


def first_posture(robot: Robot, suite: Suite, state: InitialState) -> Float[np.ndarray, "j"]:
    """Where an episode begins [rad | m]: at `start`, plus `state.arm`; raises as `start` does.

    `state.arm` moves the limb that does the task, without its grippers.
    """
    moves = limb(robot, suite.expert.tool) & ~grippers(robot)
    return start(robot, suite) + np.where(moves, np.asarray(state.arm), 0.0)


def fingers(robot: Robot) -> list[frozenset[str]]:
    """The links that close on an object, per gripper; where one jaw moves, its carrier is the other."""
    joints = {joint.name: joint for joint in robot.urdf.joints}
    closing: dict[int, set[str]] = {}
    for name, action, _, _ in robot.drives():
        if robot.joints[action].is_gripper:
            closing.setdefault(action, set()).add(joints[name].child)
    for action, links in closing.items():
        if len(links) == 1:
            links.add(joints[robot.joints[action].name].parent)
    return [frozenset(links) for links in closing.values()]


def jaws(robot: Robot) -> list[tuple[frozenset[str], ...]]:
    """Of each gripper its jaws: the links of `fingers`, each with what is fixed to it, as a pad."""
    fixed = {joint.child: joint.parent for joint in robot.urdf.joints if joint.type == "fixed"}

    def root(link: str) -> str:
        while link in fixed and link not in closing:
            link = fixed[link]
        return link

    grippers_ = fingers(robot)
    closing = frozenset().union(*grippers_)
    of_root: dict[str, set[str]] = {link: {link} for link in closing}
    for link in fixed:
        if (holder := root(link)) in closing:
            of_root[holder].add(link)
    return [tuple(frozenset(of_root[link]) for link in sorted(links)) for links in grippers_]


def is_held(touched: Collection[Any], jaws: Sequence[Collection[Any]]) -> bool:
    """Whether a gripper's jaws touch an object from two sides; one that has a single jaw, from one."""
    return sum(any(link in jaw for link in touched) for jaw in jaws) >= min(2, len(jaws))


def opening(robot: Robot, native: Float[np.ndarray, "j"], which: Bool[np.ndarray, "j"]) -> float:
    """How far open the least open of the grippers `which` is: 0 closed .. 1 open; 1 where there is none."""
    shares = [1.0]
    for value, joint, counts in zip(native, robot.joints, which, strict=True):
        if counts and joint.opened is not None and joint.closed is not None and joint.opened != joint.closed:
            shares.append(float((value - joint.closed) / (joint.opened - joint.closed)))
    return float(np.clip(min(shares), 0.0, 1.0))
