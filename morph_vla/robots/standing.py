"""Joints that no action drives and that stand elsewhere than at 0: `stands` of a side file.

Each becomes a fixed joint, moved by where it stands, before anything else looks at the robot: kinematics,
descriptors and simulators then agree. What mimics it stands where it takes it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from morph_vla.errors import ConfigError, nearest
from morph_vla.findings import Finding, Line
from morph_vla.robots.descriptors import limits
from morph_vla.robots.geometry import pose, transform
from morph_vla.robots.kinematics import DRIVEN, follow, motion
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.side import NEAR, UNUSABLE, Code, Side


def stood(urdf: Urdf, side: Side, path: Path) -> Urdf:
    """The robot with every joint of `side.stands` fixed there; `path` is the side file's, for messages.

    Raises ConfigError for a joint that is not there, has no value of its own, or cannot stand there.
    """
    if not side.stands:
        return urdf
    if problems := list(_problems(urdf, side)):
        findings = [
            Finding(code, "error", Line(path.name), ("stands", name), f"stands: {text}", "", UNUSABLE)
            for code, name, text in problems
        ]
        raise ConfigError.of(findings)
    values = dict(side.stands)
    for name, (leader, multiplier, offset) in follow(urdf).items():
        if leader is not None and leader in side.stands:
            values[name] = multiplier * side.stands[leader] + offset
    joints = (fixed(joint, values[joint.name]) if joint.name in values else joint for joint in urdf.joints)
    return replace(urdf, joints=tuple(joints))


def fixed(joint: Joint, value: float) -> Joint:
    """The joint held at `value` [rad] or [m]: fixed, and its origin moved there."""
    origin = pose(transform(joint.origin) @ motion(joint, value))
    nothing = dict.fromkeys(("axis", "limit", "mimic", "damping", "friction", "soft_lower", "soft_upper"))
    return replace(joint, type="fixed", origin=origin, **nothing)


def _problems(urdf: Urdf, side: Side) -> Iterator[tuple[Code, str, str]]:
    """Code, joint and sentence of what cannot stand where the side file says."""
    joints, following = urdf.by_name, follow(urdf)
    followers = {item.joint for items in side.drives.values() for item in items}
    for name, value in side.stands.items():
        joint = joints.get(name)
        if joint is None:
            yield "no-joint", name, f"no joint '{name}' in {urdf.file}{nearest(name, joints)}"
        elif joint.type not in DRIVEN:
            yield "cannot-be-driven", name, f"joint '{name}' is {joint.type}; it has no value to stand at"
        elif name in following:
            leader = following[name][0] or (joint.mimic and joint.mimic.joint)
            yield (
                "mimics",
                name,
                f"joint '{name}' mimics '{leader}' in {urdf.file}; say where that one stands",
            )
        elif name in side.joints or name in followers:
            key = "joints" if name in side.joints else "drives"
            yield "driven-twice", name, f"joint '{name}' is under {key} too: an action drives it"
        elif joint.type != "continuous":
            low, high = limits(joint)
            if not low - NEAR <= value <= high + NEAR:
                text = f"{value:.10g} for '{name}' is outside its limits {low:.10g} to {high:.10g}"
                yield "beyond-limits", name, text
