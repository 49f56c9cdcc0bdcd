"""Forward kinematics: where every link is, given the joints.

The pose of a child link in its parent's frame is T(origin) T(joint), with

    T(origin) = [R_z(yaw) R_y(pitch) R_x(roll), xyz]
    T(joint)  = [exp(q [axis]x), 0]   for a revolute or continuous joint, q [rad]
              = [I, q axis]           for a prismatic joint, q [m]
"""

from collections.abc import Mapping

import numpy as np

from morph_vla.robots.geometry import Transform, rotation, transform
from morph_vla.robots.records import Joint, Urdf

DRIVEN = ("revolute", "continuous", "prismatic")
"""Types of joints that an action can drive: they have one value"""


def motion(joint: Joint, value: float) -> Transform:
    """What a joint adds at `value` [rad] or [m]; the identity for types that no action drives."""
    matrix = np.eye(4)
    if joint.type in ("revolute", "continuous"):
        matrix[:3, :3] = rotation(joint.unit_axis, value)
    elif joint.type == "prismatic":
        matrix[:3, 3] = value * np.array(joint.unit_axis)
    return matrix


def follow(urdf: Urdf) -> dict[str, tuple[str | None, float, float]]:
    """What every mimicking joint that can move follows, chains folded: name -> (leader, multiplier, offset).

    value = multiplier * value of the leader + offset. The leader is None when the file has none that moves:
    the joint is frozen at its offset.
    """
    followed: dict[str, tuple[str | None, float, float]] = {}
    for joint in urdf.mimicking:
        if joint.type not in DRIVEN:
            continue
        leader, multiplier, offset, seen = joint, 1.0, 0.0, set()
        # One that is frozen leads nobody, whatever it is said to follow itself.
        while leader is not None and leader.type in DRIVEN and leader.mimic and leader.name not in seen:
            seen.add(leader.name)
            offset += multiplier * leader.mimic.offset
            multiplier *= leader.mimic.multiplier
            leader = urdf.by_name.get(leader.mimic.joint)
        moves = leader is not None and leader.type in DRIVEN
        name = leader.name if leader is not None and moves and multiplier else None
        followed[joint.name] = (name, multiplier, offset)
    return followed


def link_poses(urdf: Urdf, values: Mapping[str, float]) -> dict[str, Transform]:
    """The pose of every link in the frame of its root, for joint values [rad] or [m] by name.

    Mimicking joints follow their leader, whether `values` holds them or not; joints that are not named stand
    at 0.
    """
    state = {joint.name: float(values.get(joint.name, 0.0)) for joint in urdf.joints}
    for name, (leader, multiplier, offset) in follow(urdf).items():
        state[name] = offset if leader is None else multiplier * state[leader] + offset
    names = dict.fromkeys([*(link.name for link in urdf.links), *urdf.below])
    root_from_link = {name: np.eye(4) for name in names if name not in urdf.above}
    waiting = list(root_from_link)
    while waiting:
        parent = waiting.pop()
        for joint in urdf.below.get(parent, ()):
            root_from_joint = root_from_link[parent] @ transform(joint.origin)
            root_from_link[joint.child] = root_from_joint @ motion(joint, state[joint.name])
            waiting.append(joint.child)
    return root_from_link
