"""Play a recorded episode through a robot's kinematics, and say what does not look like this robot.

Order, sign, zero and units are what break runs before any modelling does, and a dataset's file does not say
them. So the values are placed on the joints (`name_match`), taken to radians and metres by the Robot, held
against its limits and velocities (`playback_rules`), and followed to the end effectors. What is only
likely is a warning that names the other reading; an error says that the episode cannot be played.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.checks import name_match
from morph_vla.robots.kinematics import follow, transform
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.robot import Robot

_TOOL = ("tcp", "tool", "ee", "tip", "grasp", "frame", "effector", "flange")


@dataclass(frozen=True)
class Remark:
    """One thing a person should know before training on a dataset with this robot."""

    severity: str
    """`"error"` (it cannot be played), `"warning"` (probably something else than assumed) or `"note"`"""
    feature: str
    """`action`, `observation.state`, or both; "" for what concerns the whole episode"""
    joints: tuple[str, ...]
    found: str
    expected: str
    consequence: str
    short: str = ""
    """A word or two for the table"""

    def __str__(self) -> str:
        """One line: `action: warning: this; expected that; what it leads to`."""
        where = f"{self.feature}: " if self.feature else ""
        return f"{where}{self.severity}: {self.found}; {self.expected}; {self.consequence}"


@dataclass(frozen=True, eq=False)
class Trace:
    """Where an end effector went, in the frame of the robot's root."""

    link: str
    points: Float[np.ndarray, "n 3"]
    """[m]"""
    fps: float

    @property
    def length(self) -> float:
        """Of the path [m]."""
        return float(np.linalg.norm(np.diff(self.points, axis=0), axis=1).sum())

    @property
    def extent(self) -> Float[np.ndarray, "3"]:
        """Of the box around the path [m]."""
        return np.ptp(self.points, axis=0)

    @property
    def speeds(self) -> Float[np.ndarray, "m"]:
        """Between frames [m/s]; m = n - 1."""
        return np.linalg.norm(np.diff(self.points, axis=0), axis=1) * self.fps


@dataclass(frozen=True, eq=False)
class Played:
    """One feature of an episode on the robot's J joints, n frames."""

    robot: Robot
    feature: str
    match: name_match.Match
    names: tuple[str, ...]
    """The dataset's names of the joints' values; () when it names none"""
    values: Float[np.ndarray, "n j"]
    """In the dataset's units, in the order of the robot's joints"""
    native: Float[np.ndarray, "n j"]
    """[rad] or [m]"""
    finite: Bool[np.ndarray, "n"]
    """Frames in which every value is finite"""
    traces: tuple[Trace, ...]
    """Of the finite frames"""
    fps: float

    def share(self, joint: int) -> float:
        """How much of the joint's limits the episode uses, 0..1 and more; NaN without limits."""
        low, high = self.robot.joints[joint].lower, self.robot.joints[joint].upper
        used = self.native[self.finite, joint]
        return float(np.ptp(used)) / (high - low) if len(used) and high > low else float("nan")


def play(
    robot: Robot, feature: str, values: Float[np.ndarray, "n d"], names: Sequence[str], fps: float
) -> tuple[Played | None, list[Remark]]:
    """A feature's values on the robot's joints, and what there is to say about names, widths and NaNs.

    Played is None when the values cannot be placed, or no frame is finite.
    """
    found = name_match.match(robot, names, values.shape[1])
    remarks = list(_names(robot, feature, names, values.shape[1], found))
    if found.columns is None:
        return None, remarks
    chosen = values[:, list(found.columns)].astype(np.float64)
    remarks += _not_finite(robot, feature, chosen)
    finite = np.asarray(np.isfinite(chosen).all(axis=1))
    if not finite.any():
        return None, remarks
    native = robot.to_native(chosen)
    called = tuple(names[place] for place in found.columns) if len(names) == values.shape[1] else ()
    traces = tuple(Trace(link, follow_link(robot, link, native[finite]), fps) for link in tips(robot))
    return Played(robot, feature, found, called, chosen, native, finite, traces, fps), remarks


def merged(remarks: Sequence[Remark]) -> list[Remark]:
    """Errors first, then warnings, then notes; what is said of several features is said once."""
    features: dict[Remark, list[str]] = {}
    for remark in remarks:
        features.setdefault(replace(remark, feature=""), []).append(remark.feature)
    one = [replace(remark, feature=", ".join(dict.fromkeys(said))) for remark, said in features.items()]
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(one, key=lambda remark: order[remark.severity])


def _not_finite(robot: Robot, feature: str, values: Float[np.ndarray, "n j"]) -> list[Remark]:
    bad = np.asarray(~np.isfinite(values))
    if not bad.any():
        return []
    frame, joint = np.argwhere(bad)[0]
    hit = tuple(robot.names[j] for j in np.flatnonzero(bad.any(axis=0)))
    found = (
        f"{int(bad.sum())} values are not finite, the first of '{robot.names[joint]}' in frame {int(frame)}"
    )
    return [
        Remark("error", feature, hit, found, "expected numbers", "training refuses the dataset", "not finite")
    ]


def _names(
    robot: Robot, feature: str, names: Sequence[str], width: int, found: name_match.Match
) -> list[Remark]:
    """Names and widths that do not fit, with the nearest order."""
    count = len(robot.joints)
    remarks = []
    if names and len(names) != width:
        said = f"{len(names)} names for {width} values"
        remarks.append(
            Remark("warning", feature, (), said, "expected a name per value", "the names are not used")
        )
    near = [(j, place) for j, place in enumerate(found.by_name) if place is not None]
    if found.columns is None:
        return [*remarks, _does_not_fit(robot, feature, names, width, near)]
    taken = set(found.columns)
    if width > count:
        left = [name for place, name in enumerate(names) if place not in taken]
        said = f"{width} values for {count} joints; not played: {some(left)}"
        consequence = "the joints are found by their names; training needs a value per joint"
        remarks.append(Remark("warning", feature, (), said, f"expected {count} values", consequence))
    if found.known and list(found.columns) != sorted(found.columns):
        order = ", ".join(robot.names[found.columns.index(place)] for place in sorted(taken))
        moved = tuple(robot.names[j] for j in range(count) if found.columns[j] != j)
        pairs = _pairs(robot, names, list(enumerate(found.columns)))
        said = f"the names are in another order than the joints: {pairs}"
        consequence = (
            f"played by name; training goes by place: write joints: [{order}] into the side file, and its"
            " other lists in that order"
        )
        remarks.append(Remark("warning", feature, moved, said, "expected one order", consequence, "order"))
    elif not found.known and found.told and not found.in_order:
        off = [(j, place) for j, place in near if j != place]
        moved = tuple(robot.names[j] for j, _ in off)
        said = f"names nearest to other joints than those in their place: {_pairs(robot, names, off)}"
        consequence = "played by place, for not every joint has a name here; check the order"
        remarks.append(Remark("warning", feature, moved, said, "expected one order", consequence, "order"))
    elif not found.known and found.told:
        far = [(j, j) for j in range(count) if found.by_name[j] is None]
        unlike = tuple(robot.names[j] for j, _ in far)
        said = f"{len(far)} of {count} names are unlike the joints': {_pairs(robot, names, far)}"
        consequence = "played by place; is this the robot that was recorded?"
        expected = "expected the joints' names, or those of names: in the side file"
        remarks.append(Remark("warning", feature, unlike, said, expected, consequence, "name"))
    elif not found.told and not remarks:
        said = f"the dataset does not say what its {width} values are"
        remarks.append(
            Remark("note", feature, (), said, "expected the joints' names", "played in the robot's order")
        )
    return remarks


def _does_not_fit(
    robot: Robot, feature: str, names: Sequence[str], width: int, near: Sequence[tuple[int, int]]
) -> Remark:
    count = len(robot.joints)
    said = f"{width} values for {count} joints ({some(robot.names)})"
    if near:
        without = [name for j, name in enumerate(robot.names) if j not in dict(near)]
        order = ", ".join(robot.names[j] for j, _ in sorted(near, key=lambda pair: pair[1]))
        consequence = (
            f"it cannot be played: {len(near)} of them have a value of their name, not {some(without)};"
            f" to play those alone, write joints: [{order}] into a side file"
        )
    elif names:
        consequence = (
            f"it cannot be played: no joint is called like one of its values ({some(names)}); choose as many"
            " joints, in their order, with joints: in a side file"
        )
    else:
        consequence = (
            "it cannot be played, for its values have no names; choose as many joints, in their order, with"
            " joints: in a side file"
        )
    return Remark("error", feature, (), said, "expected a value per joint", consequence)


def _pairs(robot: Robot, names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> str:
    """`value 3 'a' for joint 0 'b'` for the first few that are out of place."""
    moved = [(j, place) for j, place in pairs if j != place] or pairs
    shown = [f"value {place} '{names[place]}' for joint {j} '{robot.names[j]}'" for j, place in moved[:4]]
    return ", ".join(shown) + (f" and {len(moved) - 4} more" if len(moved) > 4 else "")


def some(names: Sequence[str]) -> str:
    """The first few of a list of names."""
    shown = ", ".join(f"'{name}'" for name in names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"


# -------------------------------------------------------------------------------------------- kinematics


def tips(robot: Robot) -> tuple[str, ...]:
    """The links whose paths show what an episode did, one per branch.

    The body that carries a gripper, else the last body that an action moves; of the links fixed to that body
    one that is called tool, tip, frame or the like, when there is one.
    """
    by_name = {joint.name: joint for joint in robot.urdf.joints}
    above = {joint.child: joint for joint in robot.urdf.joints}
    hands = {by_name[joint.name].parent for joint in robot.joints if joint.is_gripper}
    moved = [by_name[joint.name] for joint in robot.joints if not joint.is_gripper]
    carriers: set[str] = set()
    for joint in moved or [by_name[joint.name] for joint in robot.joints]:
        carriers |= set(_links_above(above, joint.parent))
    ends = [joint.child for joint in moved if joint.child not in carriers]
    # A gripper's body lies below the last arm joint, or is that joint's child.
    ends = [link for link in ends if not any(link in _links_above(above, hand) for hand in hands)]
    carried = [hand for hand in sorted(hands) if set(_links_above(above, hand)) & {j.child for j in moved}]
    found = [*carried, *ends] or [by_name[joint.name].child for joint in robot.joints[-1:]]
    return tuple(dict.fromkeys(_tool(robot.urdf, link) for link in found))


def _links_above(above: Mapping[str, Joint], link: str) -> list[str]:
    """A link, its parent, and so on to the root."""
    links = [link]
    while links[-1] in above:
        links.append(above[links[-1]].parent)
    return links


def _tool(urdf: Urdf, link: str) -> str:
    """The link itself, or one fixed to it that is called a tool."""
    waiting, fixed = [link], []
    while waiting:
        here = waiting.pop(0)
        below = [joint.child for joint in urdf.joints if joint.parent == here and joint.type == "fixed"]
        fixed += below
        waiting += below
    for word in _TOOL:
        for name in fixed:
            if word in name_match.words(name) and "camera" not in name.casefold():
                return name
    return link


def follow_link(robot: Robot, link: str, native: Float[np.ndarray, "n j"]) -> Float[np.ndarray, "n 3"]:
    """The origin of one link in the root's frame [m]: `forward_kinematics` of n poses at once."""
    above = {joint.child: joint for joint in robot.urdf.joints}
    driven = {name: (place, slope, start) for name, place, slope, start in robot.drives()}
    frozen = {name: start for name, (leader, _, start) in follow(robot.urdf).items() if leader is None}
    points = np.zeros((len(native), 3))
    here = link
    while here in above:
        joint = above[here]
        place, slope, start = driven.get(joint.name, (0, 0.0, frozen.get(joint.name, 0.0)))
        points = _moved(joint, slope * native[:, place] + start, points)
        fixed = transform(joint.origin)
        points = points @ fixed[:3, :3].T + fixed[:3, 3]
        here = joint.parent
    return points


def _moved(
    joint: Joint, value: Float[np.ndarray, "n"], points: Float[np.ndarray, "n 3"]
) -> Float[np.ndarray, "n 3"]:
    """What a joint does to points in its child's frame: Rodrigues' formula, or a shift along its axis."""
    axis = np.array(joint.unit_axis)
    if joint.type == "prismatic":
        return points + value[:, None] * axis
    if joint.type not in ("revolute", "continuous"):
        return points
    across = np.cross(np.broadcast_to(axis, points.shape), points)
    along = (points @ axis)[:, None] * axis
    cos, sin = np.cos(value)[:, None], np.sin(value)[:, None]
    return points * cos + across * sin + along * (1 - cos)
