"""A side file filled in as far as a URDF allows: what a person starts from who drops a robot in.

What the URDF cannot say stands as a comment, with a guess where the names suggest one. The text is a side
file as it is: read back, it leads to the robot that the URDF alone gives.
"""

import json
import re
from collections.abc import Iterator

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.robots import limb
from morph_vla.robots.limb import GRIPPER
from morph_vla.robots.reach import way
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.robot import Robot
from morph_vla.robots.side import Attached

NEARER = 0.98  # fingertips that are nearer than this share of how far apart they were: a hand that closes


def side_file(robot: Robot) -> str:
    """The text of `<robot>.yaml` for a robot made from a URDF alone; every guess is a comment."""
    head = (
        f"# What {robot.urdf_path.name} cannot say. Lines that begin with # are guesses or empty:",
        "# check them against your dataset, then take the # away. Every key: docs/robots.md.",
    )
    return "\n".join([*head, *_joints(robot), *_grippers(robot), *_others(robot)]) + "\n"


def _joints(robot: Robot) -> Iterator[str]:
    """The action joints, one a line, with what helps to put them in the dataset's order."""
    yield "joints:                   # in the order of your dataset's action values"
    width = max(len(_word(joint.name)) for joint in robot.joints)
    for joint in robot.joints:
        si = "m" if joint.type == "prismatic" else "rad"
        limits = f"{joint.lower:.4g} to {joint.upper:.4g} {si}"
        followers = [name for name, index, *_ in robot.drives() if robot.names[index] == joint.name]
        followers.remove(joint.name)
        moves = f"; moves {', '.join(map(_word, followers))} too" if followers else ""
        yield f"  - {_word(joint.name):{width}}  # {joint.type}, {limits}{moves}"


def _grippers(robot: Robot) -> Iterator[str]:
    """A line for each joint that may be a gripper, open where its fingers are farther apart."""
    names = _guessed(robot)
    if not names:
        yield "# gripper: {joint: NAME, open: 0.04, closed: 0.0, dataset_open: 0, dataset_closed: 1}"
        if line := attached(robot):
            yield f"# {line}  # one of ours"
        return
    yield "# gripper:                # which end is open, and the dataset's value for each end"
    yield "#                         # (a guess; LeRobot's arms record 100 open, 0 closed)"
    for joint in (joint for joint in robot.joints if joint.name in names):
        limits = joint.lower, joint.upper
        opened, closed = limits if _closes_upwards(robot, joint.name) else limits[::-1]
        ends = f"open: {opened:.12g}, closed: {closed:.12g}"
        yield f"#   - {{joint: {_word(joint.name)}, {ends}, dataset_open: 0, dataset_closed: 1}}"


def _guessed(robot: Robot) -> list[str]:
    """The joints that may be grippers; none where they are fingers of a hand (over four, or among others)."""
    grippers = [joint.name for joint in robot.joints if GRIPPER.search(joint.name)]
    if any(_of_a_hand(robot, name) for name in grippers):
        return []
    grippers = grippers or [joint.name for joint in robot.joints[-1:] if joint.type == "prismatic"]
    return grippers if len(grippers) <= 4 else []


def _of_a_hand(robot: Robot, name: str) -> bool:
    """Whether what this joint's finger begins at carries two others that are driven and named otherwise."""
    urdf, first = robot.urdf, robot.urdf.by_name[name]
    parents = {joint.child: joint for joint in urdf.joints}
    while (above := parents.get(first.parent)) is not None and GRIPPER.search(above.name):
        first = above
    others = [joint for joint in urdf.below.get(first.parent, ()) if joint is not first]
    return sum(any(below.name in robot.names for below in _all_below(urdf, joint)) for joint in others) > 1


def _all_below(urdf: Urdf, joint: Joint) -> Iterator[Joint]:
    """A joint and all that its child carries, without those that are named like a gripper's."""
    if not GRIPPER.search(joint.name):
        yield joint
    for below in urdf.below.get(joint.child, ()):
        yield from _all_below(urdf, below)


def _closes_upwards(robot: Robot, name: str) -> bool:
    """Whether the links at the ends of a hand come nearer to each other as the joint's value grows.

    Where they tell nothing (one finger, or all in one place) it is taken to open upwards.
    """
    column, urdf = robot.names.index(name), robot.urdf
    fingers = {joint for joint, drives, *_ in robot.drives() if drives == column}
    ends = [joint.child for joint in urdf.joints if not urdf.below.get(joint.child)]
    tips = [end for end in ends if any(joint.name in fingers for joint in way(urdf, end))]
    apart = []
    for value in (robot.lower[column], robot.upper[column]):
        values = robot.rest.copy()
        values[column] = value
        poses = robot.forward_kinematics(values)
        places = np.array([poses[tip][:3, 3] for tip in tips])
        apart.append(np.linalg.norm(places[:, None] - places[None], axis=2).mean())
    return bool(apart[1] < NEARER * apart[0])


def attached(robot: Robot) -> str:
    """The line of a side file that gives a gripper of ours to an arm without a hand; "" for another."""
    try:
        arm = limb.find(robot.urdf)
        gripper = limb.propose(arm).gripper
    except MorphVlaError:  # no arm, or too short a one for a gripper
        return ""
    if arm.hand != "none" or not isinstance(gripper, Attached):
        return ""
    approach = ", ".join(f"{value:g}" for value in gripper.approach)
    size = f"approach: [{approach}], opening: {gripper.opening:g}"
    return f"gripper: {{attach: parallel_jaw, link: {_word(gripper.link)}, {size}}}"


def _others(robot: Robot) -> Iterator[str]:
    """The keys that are no lists of joints."""
    if any(joint.type != "prismatic" for joint in robot.joints):
        yield "# unit: degrees           # or percent (-100..100); without it, radians"
    if tools := [name for name in robot.side.grippers or _guessed(robot) if name not in robot.side.tools]:
        link = _word(robot.urdf.by_name[tools[0]].parent)
        frame = f"{{link: {link}, xyz: [0, 0, 0.1]}}"
        yield f"# tools: {{{_word(tools[0])}: {frame}}}   # where its fingers take hold, z out of the hand"
    first = _word(robot.names[0])
    yield f"# signs: {{{first}: -1}}   # joints whose dataset values grow the other way round"
    yield f"# zeros: {{{first}: 0.1}}  # [rad or m] where the dataset says 0"
    values = ", ".join(f"{value!r}" for value in robot.rest.tolist())
    mark = "" if robot.rest.any() else "# "
    yield f"{mark}rest: [{values}]  # [rad or m] the pose it starts from, in the order of joints"
    yield "# control_rate: 30        # [Hz] actions per second"
    names = ", ".join(_word(name) for name in robot.names)
    yield f"# names: [{names}]   # what the dataset calls these values"
    yield "# features: {state: [observation.state], action: [action]}   # the dataset's keys"
    yield "# cameras: [front, wrist]"
    if not any(link.contact for link in robot.urdf.links):
        yield "# contact: {stiffness: 30000, damping: 1000, lateral_friction: 1, spinning_friction: 0.1}"
    for key, about in (("source", "where the numbers are from"), ("licence", "of the URDF")):
        value = getattr(robot.side, key)
        yield f"{key}: {_quoted(value)}" if value else f"# {key}: {about}"


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_KEYWORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "infinity"}


def _word(name: str) -> str:
    """A name as YAML reads it back: quoted where it is no plain word."""
    if _PLAIN.match(name) and name.lower() not in _KEYWORDS:
        return name
    return _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
