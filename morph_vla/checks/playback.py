"""Play a recorded episode through a robot's kinematics, and say what does not look like this robot.

Order, sign, zero and units are what break runs before any modelling does, and a dataset's file does not say
them. So the values are placed on the joints (`name_match`), taken to radians and metres by the Robot, held
against its limits and velocities (`playback_rules`), and followed to the end effectors. What is only
likely is a warning that names the other reading; an error says that the episode cannot be played.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.checks import name_match, same_robot
from morph_vla.checks.rules import remark
from morph_vla.findings import Feature, Finding, in_order
from morph_vla.robots.examine import available
from morph_vla.robots.geometry import rotated, transform
from morph_vla.robots.kinematics import follow
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.robot import Robot

MOST_OF = 0.5
"""Of a robot's joints so many have a value of their name where a dataset is of it, but for some joints"""
_TOOL = ("tcp", "tool", "ee", "tip", "grasp", "frame", "effector", "flange")


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
    robot: Robot,
    feature: str,
    values: Float[np.ndarray, "n d"],
    names: Sequence[str],
    fps: float,
    recorded_on: str = "",
) -> tuple[Played | None, list[Finding]]:
    """A feature's values on the robot's joints, and what there is to say about names, widths and NaNs.

    `recorded_on` is the robot that the dataset says it is of.
    Played is None when the values cannot be placed, or no frame is finite.
    """
    match = name_match.match(robot, names, values.shape[1])
    findings = list(_names(robot, feature, names, values.shape[1], match, recorded_on))
    if match.columns is None:
        return None, findings
    chosen = values[:, list(match.columns)].astype(np.float64)
    bad = np.argwhere(~np.isfinite(chosen))
    if len(bad):
        frame, joint = bad[0].tolist()
        hit = tuple(robot.names[j] for j in np.unique(bad[:, 1]))
        found = f"{len(bad)} values are not finite, the first of '{robot.names[joint]}' in frame {frame}"
        findings.append(remark("not-finite", feature, hit, found))
    finite = np.asarray(np.isfinite(chosen).all(axis=1))
    if not finite.any():
        return None, findings
    native = robot.to_native(chosen)
    called = tuple(names[place] for place in match.columns) if len(names) == values.shape[1] else ()
    traces = tuple(Trace(link, follow_link(robot, link, native[finite]), fps) for link in tips(robot))
    return Played(robot, feature, match, called, chosen, native, finite, traces, fps), findings


def merged(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes; what is the same of several features is said once."""
    features: dict[Finding, list[str]] = {}
    for finding in findings:
        features.setdefault(replace(finding, where=Feature()), []).append(str(finding.where))
    once = {f: Feature(", ".join(dict.fromkeys(names))) for f, names in features.items()}
    return in_order(replace(finding, where=where) for finding, where in once.items())


def _names(
    robot: Robot,
    feature: str,
    names: Sequence[str],
    width: int,
    match: name_match.Match,
    recorded_on: str,
) -> Iterator[Finding]:
    """Names and widths that do not fit, with the nearest order."""
    count = len(robot.joints)
    if names and len(names) != width:
        yield remark("wrong-number-of-names", feature, (), f"{len(names)} names for {width} values")
    near = [(j, place) for j, place in enumerate(match.by_name) if place is not None]
    if match.columns is None:
        found = f"{width} values for {count} joints ({some(robot.names)})"
        yield remark("wrong-width", feature, (), found, "", _way_out(robot, names, near, recorded_on))
        return
    taken = sorted(match.columns)
    if width > count:
        left = [name for place, name in enumerate(names) if place not in taken]
        found = f"{width} values for {count} joints; not played: {some(left)}"
        yield remark("values-left-over", feature, (), found, f"expected {count} values")
    if match.known and list(match.columns) != taken:
        order = ", ".join(robot.names[match.columns.index(place)] for place in taken)
        moved = tuple(robot.names[j] for j in range(count) if match.columns[j] != j)
        pairs = _pairs(robot, names, list(enumerate(match.columns)))
        found = f"the names are in another order than the joints: {pairs}"
        wrong = name_match.other_sides(robot.names, names)
        converter = (
            ", as those that openpi's ALOHA converter writes" if 2 * len(wrong) > count == width else ""
        )
        consequence = (
            f"played by name; training goes by place: write joints: [{order}] into the side file, and its"
            f" other lists in that order; if only the names are wrong{converter}, write them as its names:"
        )
        yield remark("names-in-another-order", feature, moved, found, "", consequence)
    elif not match.known and match.named and not match.in_order:
        off = [(j, place) for j, place in near if j != place]
        moved = tuple(robot.names[j] for j, _ in off)
        found = f"names nearest to other joints than those in their place: {_pairs(robot, names, off)}"
        yield remark("names-nearer-to-others", feature, moved, found)
    elif not match.known and match.named and (wrong := name_match.other_sides(robot.names, names)):
        pairs = _pairs(robot, names, [(j, j) for j in wrong])
        found = f"{len(wrong)} of {count} names are of the other side than the joint in their place: {pairs}"
        yield remark("names-of-the-other-side", feature, tuple(robot.names[j] for j in wrong), found)
    elif not match.known and match.named:
        far = [(j, j) for j in range(count) if match.by_name[j] is None]
        unlike = tuple(robot.names[j] for j, _ in far)
        found = f"{len(far)} of {count} names are unlike the joints': {_pairs(robot, names, far)}"
        yield remark("names-unlike", feature, unlike, found)
    elif not match.named and len(names) in (0, width):
        yield remark("no-names", feature, (), f"the dataset does not say what its {width} values are")


def _way_out(robot: Robot, names: Sequence[str], near: Sequence[tuple[int, int]], recorded_on: str) -> str:
    """What to do about values that cannot be placed."""
    if same_robot.says_which(recorded_on) and not same_robot.same(robot.name, recorded_on):
        ours = same_robot.known(recorded_on, available())
        check = (
            f"try `morph-vla robots check {ours}`" if ours else "add that robot with `morph-vla robots add`"
        )
        return f"it cannot be played: the dataset says it was recorded on '{recorded_on}'; {check}"
    if near and len(near) >= MOST_OF * len(robot.joints):
        without = [name for j, name in enumerate(robot.names) if j not in dict(near)]
        order = ", ".join(robot.names[j] for j, _ in sorted(near, key=lambda pair: pair[1]))
        return (
            f"it cannot be played: {len(near)} of them have a value of their name, not {some(without)};"
            f" to play those alone, write joints: [{order}] into a side file"
        )
    reason = ", for its values have no names"
    if near:
        own = "has a value of its name" if len(near) == 1 else "have a value of their name"
        reason = f": only {len(near)} of the joints {own}"
    elif names:
        reason = f": no joint is called like one of its values ({some(names)})"
    choose = "choose as many joints, in their order, with joints: in a side file"
    return f"it cannot be played{reason}; {choose}"


def _pairs(robot: Robot, names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> str:
    """`value 3 'a' for joint 0 'b'` for the first few that are out of place."""
    moved = [(j, place) for j, place in pairs if j != place] or pairs
    shown = [f"value {place} '{names[place]}' for joint {j} '{robot.names[j]}'" for j, place in moved[:4]]
    return ", ".join(shown) + (f" and {len(moved) - 4} more" if len(moved) > 4 else "")


def some(names: Sequence[str]) -> str:
    """The first few of a list of names."""
    shown = ", ".join(f"'{name}'" for name in names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"


def tips(robot: Robot) -> tuple[str, ...]:
    """The links whose paths show what an episode did, one per branch.

    The body that carries a gripper, else the last body that an action moves; of the links fixed to that body
    one that is called tool, tip, frame or the like, when there is one.
    """
    urdf, by_name = robot.urdf, robot.urdf.by_name
    hands = {by_name[joint.name].parent for joint in robot.joints if joint.is_gripper}
    moved = [by_name[joint.name] for joint in robot.joints if not joint.is_gripper]
    carriers: set[str] = set()
    for joint in moved or [by_name[joint.name] for joint in robot.joints]:
        carriers |= set(_links_above(urdf, joint.parent))
    ends = [joint.child for joint in moved if joint.child not in carriers]
    # A gripper's body lies below the last arm joint, or is that joint's child.
    ends = [link for link in ends if not any(link in _links_above(urdf, hand) for hand in hands)]
    children = {joint.child for joint in moved}
    carried = [hand for hand in sorted(hands) if not children.isdisjoint(_links_above(urdf, hand))]
    links = [*carried, *ends] or [by_name[joint.name].child for joint in robot.joints[-1:]]
    return tuple(dict.fromkeys(_tool(urdf, link) for link in links))


def _links_above(urdf: Urdf, link: str) -> list[str]:
    """A link, its parent, and so on to the root."""
    links = [link]
    while links[-1] in urdf.above:
        links.append(urdf.above[links[-1]].parent)
    return links


def _tool(urdf: Urdf, link: str) -> str:
    """The link itself, or one fixed to it that is called a tool."""
    fixed = [link]
    for here in fixed:
        fixed += [joint.child for joint in urdf.below.get(here, ()) if joint.type == "fixed"]
    for word in _TOOL:
        for name in fixed[1:]:
            if word in name_match.words(name) and "camera" not in name.casefold():
                return name
    return link


def follow_link(robot: Robot, link: str, native: Float[np.ndarray, "n j"]) -> Float[np.ndarray, "n 3"]:
    """The origin of one link in the root's frame [m]: `forward_kinematics` of n poses at once."""
    driven = {name: (place, slope, start) for name, place, slope, start in robot.drives()}
    frozen = {name: start for name, (_, _, start) in follow(robot.urdf).items()}  # of leaders that stand at 0
    points = np.zeros((len(native), 3))
    while link in robot.urdf.above:
        joint = robot.urdf.above[link]
        place, slope, start = driven.get(joint.name, (0, 0.0, frozen.get(joint.name, 0.0)))
        points = _moved(joint, slope * native[:, place] + start, points)
        parent_from_joint = transform(joint.origin)
        points = points @ parent_from_joint[:3, :3].T + parent_from_joint[:3, 3]
        link = joint.parent
    return points


def _moved(
    joint: Joint, value: Float[np.ndarray, "n"], points: Float[np.ndarray, "n 3"]
) -> Float[np.ndarray, "n 3"]:
    """What a joint does to points in its child's frame."""
    if joint.type == "prismatic":
        return points + value[:, None] * np.array(joint.unit_axis)
    if joint.type not in ("revolute", "continuous"):
        return points
    return rotated(points, joint.unit_axis, value)
