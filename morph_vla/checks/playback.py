"""Play a recorded episode through a robot's kinematics, and say what does not look like this robot.

Order, sign, zero and units are what break runs before any modelling does, and a dataset's file does not say
them. So the values are placed on the joints (`name_match`), taken to radians and metres by the Robot, held
against its limits and velocities (`playback_rules`), and followed to the end effectors. What is only
likely is a warning that names the other reading; an error says that the episode cannot be played.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.checks import name_match
from morph_vla.findings import Feature, Finding, Severity, in_order
from morph_vla.robots.geometry import rotated, transform
from morph_vla.robots.kinematics import follow
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.robot import Robot

Code = Literal[
    "not-finite",
    "wrong-number-of-names",
    "wrong-width",
    "values-left-over",
    "names-in-another-order",
    "names-nearer-to-others",
    "names-unlike",
    "no-names",
]
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
    robot: Robot, feature: str, values: Float[np.ndarray, "n d"], names: Sequence[str], fps: float
) -> tuple[Played | None, list[Finding]]:
    """A feature's values on the robot's joints, and what there is to say about names, widths and NaNs.

    Played is None when the values cannot be placed, or no frame is finite.
    """
    match = name_match.match(robot, names, values.shape[1])
    findings = _names(robot, feature, names, values.shape[1], match)
    if match.columns is None:
        return None, findings
    chosen = values[:, list(match.columns)].astype(np.float64)
    findings += _not_finite(robot, feature, chosen)
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


def _not_finite(robot: Robot, feature: str, values: Float[np.ndarray, "n j"]) -> list[Finding]:
    bad = np.asarray(~np.isfinite(values))
    if not bad.any():
        return []
    frame, joint = np.argwhere(bad)[0]
    hit = tuple(robot.names[j] for j in np.flatnonzero(bad.any(axis=0)))
    found = (
        f"{int(bad.sum())} values are not finite, the first of '{robot.names[joint]}' in frame {int(frame)}"
    )
    words = found, "expected numbers", "training refuses the dataset"
    return [Finding("not-finite", "error", Feature(feature), hit, *words)]


def _names(
    robot: Robot, feature: str, names: Sequence[str], width: int, match: name_match.Match
) -> list[Finding]:
    """Names and widths that do not fit, with the nearest order."""
    count, where = len(robot.joints), Feature(feature)
    findings: list[Finding] = []

    def report(code: Code, severity: Severity, subject: tuple[str, ...], *words: str) -> None:
        findings.append(Finding(code, severity, where, subject, *words))

    if names and len(names) != width:
        words = f"{len(names)} names for {width} values", "expected a name per value"
        report("wrong-number-of-names", "warning", (), *words, "the names are not used")
    near = [(j, place) for j, place in enumerate(match.by_name) if place is not None]
    if match.columns is None:
        report("wrong-width", "error", (), *_does_not_fit(robot, names, width, near))
        return findings
    taken = set(match.columns)
    if width > count:
        left = [name for place, name in enumerate(names) if place not in taken]
        words = f"{width} values for {count} joints; not played: {some(left)}", f"expected {count} values"
        consequence = "the joints are found by their names; training needs a value per joint"
        report("values-left-over", "warning", (), *words, consequence)
    if match.known and list(match.columns) != sorted(match.columns):
        order = ", ".join(robot.names[match.columns.index(place)] for place in sorted(taken))
        moved = tuple(robot.names[j] for j in range(count) if match.columns[j] != j)
        pairs = _pairs(robot, names, list(enumerate(match.columns)))
        words = f"the names are in another order than the joints: {pairs}", "expected one order"
        consequence = (
            f"played by name; training goes by place: write joints: [{order}] into the side file, and its"
            " other lists in that order"
        )
        report("names-in-another-order", "warning", moved, *words, consequence)
    elif not match.known and match.told and not match.in_order:
        off = [(j, place) for j, place in near if j != place]
        moved = tuple(robot.names[j] for j, _ in off)
        text = f"names nearest to other joints than those in their place: {_pairs(robot, names, off)}"
        consequence = "played by place, for not every joint has a name here; check the order"
        report("names-nearer-to-others", "warning", moved, text, "expected one order", consequence)
    elif not match.known and match.told:
        far = [(j, j) for j in range(count) if match.by_name[j] is None]
        unlike = tuple(robot.names[j] for j, _ in far)
        text = f"{len(far)} of {count} names are unlike the joints': {_pairs(robot, names, far)}"
        consequence = "played by place; is this the robot that was recorded?"
        expected = "expected the joints' names, or those of names: in the side file"
        report("names-unlike", "warning", unlike, text, expected, consequence)
    elif not match.told and not findings:
        words = f"the dataset does not say what its {width} values are", "expected the joints' names"
        report("no-names", "note", (), *words, "played in the robot's order")
    return findings


def _does_not_fit(
    robot: Robot, names: Sequence[str], width: int, near: Sequence[tuple[int, int]]
) -> tuple[str, str, str]:
    """What was found and expected, and the way out."""
    count = len(robot.joints)
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
    found = f"{width} values for {count} joints ({some(robot.names)})"
    return found, "expected a value per joint", consequence


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
    links = [*carried, *ends] or [by_name[joint.name].child for joint in robot.joints[-1:]]
    return tuple(dict.fromkeys(_tool(robot.urdf, link) for link in links))


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
    """What a joint does to points in its child's frame."""
    if joint.type == "prismatic":
        return points + value[:, None] * np.array(joint.unit_axis)
    if joint.type not in ("revolute", "continuous"):
        return points
    return rotated(points, joint.unit_axis, value)
