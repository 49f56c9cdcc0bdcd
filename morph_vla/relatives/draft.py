"""A robot that is being changed: what can be asked for, what is drawn, and whether it is a robot still."""

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError
from morph_vla.findings import errors
from morph_vla.relatives import edits, hand
from morph_vla.robots import graph
from morph_vla.robots.examine import examine_text
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.robot import Robot, choose_joints
from morph_vla.robots.side import Gripper, side_text
from morph_vla.robots.template import GRIPPER
from morph_vla.robots.text import urdf_text

Ranges = tuple[tuple[float, float], ...]
"""One of them is drawn, then a value in it."""
FEWEST = 3
"""Joints an arm keeps: its tool can be moved in three directions."""
POSES, GOLDEN = 4, 0.6180339887498949
LEAST_SPREAD = 0.02
"""Of the tool's velocity in its slowest direction, a share of the reach for each rad/s of the joints."""
BALL, OPENINGS, FINGERS = 0.04, (0.05, 0.1), (0.035, 0.07)
"""An added joint's radius, another hand's opening and its fingers' length, as shares of the reach."""


@dataclass(frozen=True)
class Changes:
    """What is drawn. Without any, a relative is the robot under another name."""

    links: Ranges = ()
    """Factors of link lengths, one for each body that carries a joint of the arm"""
    base: float = math.inf
    """The largest factor of the body that stands still: on a tall one an arm comes down to no table"""
    limits: Ranges = ()
    """Shares of a joint's range that remain, at most 1"""
    remove: int = 0
    """Joints of the arm that are fixed where they rest"""
    add: int = 0
    twist: int = 0
    """Times that two neighbouring joints exchange the directions of their axes"""
    mirror: bool = False
    hand: bool = False
    structure: tuple[int, int] = (0, 0)
    """So many of the five above are drawn, at least and at most, beside those that are asked for"""

    def __post_init__(self) -> None:
        for key, low, high in (("links", 0.1, 10.0), ("limits", 0.05, 1.0)):
            for least, most in getattr(self, key):
                if not low <= least <= most <= high:
                    raise MorphVlaError(
                        f"--{key} {least:g}:{most:g}: expected LEAST:MOST within {low:g} and {high:g}"
                    )
        for key in ("remove", "add", "twist"):
            if getattr(self, key) < 0:
                raise MorphVlaError(f"--{key} must be at least 0, not {getattr(self, key)}")


@dataclass(frozen=True, eq=False)
class Relative:
    """One body that was drawn."""

    robot: Robot
    parent: str
    changes: tuple[str, ...]
    """What was done, in order, in words"""
    tool: str
    """The link that is farthest out on the arm's last body"""
    reach: float
    """From the arm's first joint to the tool, along the links [m]"""
    text: bytes
    """The URDF"""
    side: bytes
    """The side file"""

    @property
    def digest(self) -> str:
        """SHA-256 of both files."""
        return hashlib.sha256(self.text + b"\0" + self.side).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        known = {key: getattr(self, key) for key in ("parent", "changes", "tool", "reach", "digest")}
        return {"name": self.robot.name, "joints": list(self.robot.names), **known}


class Rejected(Exception):
    """This try gives no robot; the text says why."""


class Draft:
    """A robot that is being changed: its records, its arm's joints from base to tip, its rest pose."""

    def __init__(self, robot: Robot, rng: random.Random, sound: bool = True):
        """`sound`: whether a relative's limbs have to be sound, as its parent's are."""
        self.parent, self.rng, self.sound, self.urdf = robot, rng, sound, robot.urdf
        self.rest = dict(zip(robot.names, robot.rest.tolist(), strict=True))
        self.order = list(robot.names)
        grippers = [*robot.side.grippers] or [name for name in robot.names if GRIPPER.search(name)]
        self.grippers = grippers
        self.gripper: Gripper | None = None
        self.arm = self._base_first([name for name in robot.names if name not in grippers])
        self.is_mirrored = False
        self.notes: list[str] = []
        if len(self.arm) < FEWEST:
            raise MorphVlaError(
                f"{robot.name} has {len(self.arm)} joints beside its gripper; expected at least {FEWEST}"
            )
        self.held_by = None  # the joint that the hand hangs on, where there is one hand
        if len(grippers) == 1:
            self.held_by = hand.fixed_on(robot.urdf, grippers[0], self.arm)

    def _base_first(self, names: Sequence[str]) -> list[str]:
        """The same joints, each behind those that carry it: actions may come in any order."""
        placed: dict[str, None] = {}
        for name in names:
            way = [self.urdf.above[link].name for link in self._way(self.urdf.by_name[name].child, "")]
            placed |= dict.fromkeys(above for above in reversed(way) if above in names)
        return list(placed)

    def change(self, changes: Changes) -> None:
        """Draw every change, always in the same order."""
        drawn = self._structure(changes)
        for _ in range(drawn["remove"]):
            self._remove()
        for _ in range(drawn["add"]):
            self._add()
        for _ in range(drawn["twist"]):
            self._twist()
        if changes.links:
            self._scale(changes.links, changes.base)
        if changes.limits:
            self._narrow(changes.limits)
        if drawn["hand"]:
            self._hand()
        if drawn["mirror"]:
            self.urdf, self.is_mirrored = edits.mirrored(self.urdf), True
            self.notes.append("mirrored")

    def _structure(self, changes: Changes) -> dict[str, int]:
        drawn = {key: int(getattr(changes, key)) for key in ("remove", "add", "twist", "mirror", "hand")}
        possible = {
            "remove": bool(self._free()),
            "add": bool(self._places()),
            "twist": bool(self._pairs()),
            "mirror": True,
            "hand": not self.grippers or self.held_by is not None,
        }
        for key, needs in (
            ("add", "joints in a row"),
            ("twist", "two neighbouring joints that can be exchanged"),
        ):
            if drawn[key] and not possible[key]:
                raise MorphVlaError(f"--{key}: {self.parent.name} has no {needs}")
        most = min(len(self.arm) - FEWEST, len(self._free()))
        if drawn["remove"] > most:
            raise MorphVlaError(
                f"--remove {drawn['remove']}: {self.parent.name}'s arm has {len(self.arm)} joints and keeps"
                f" {FEWEST} at least; {most} can be removed"
            )
        if drawn["hand"] and not possible["hand"]:
            why = "hand is one with its arm and cannot be taken off"
            if len(self.grippers) > 1:
                why = f"hands are {len(self.grippers)}, and another hand takes the place of the only one"
            raise MorphVlaError(f"--hand: {self.parent.name}'s {why}")
        choices = [key for key in drawn if possible[key] and not drawn[key]]
        least, most = changes.structure
        if len(choices) < least:
            raise MorphVlaError(
                f"{least} changes of its structure are asked for, and of {self.parent.name} {len(choices)} "
                f"can be made ({', '.join(choices) or 'none'})"
            )
        for key in self.rng.sample(choices, min(self.rng.randint(least, most), len(choices))):
            drawn[key] = 1
        return drawn

    def _free(self) -> list[str]:
        """The joints of the arm that no other follows; of an arm that can do with one less."""
        parent = self.parent
        led = {parent.names[index] for name, index, *_ in parent.drives() if name not in parent.names}
        return [name for name in self.arm if name not in led] if len(self.arm) > FEWEST else []

    def _remove(self) -> None:
        name = self.rng.choice(self._free())
        self.urdf = edits.removed(self.urdf, name, self.rest.pop(name))
        self.arm.remove(name)
        self.order.remove(name)
        self.notes.append(f"{name} removed")

    def _places(self) -> list[str]:
        """The joints of the arm that another of its joints carries: before them a joint can be added."""
        pairs = graph.ends(self.urdf, self.arm).tolist()
        carried = {child for _, child in pairs}
        return [name for name, (parent, _) in zip(self.arm, pairs, strict=True) if parent in carried]

    def _add(self) -> None:
        places = self._places()
        if not places:
            raise Rejected("no joints in a row")
        before = self.rng.choice(places)
        self.urdf, name = edits.inserted(self.urdf, before, round(BALL * self._reach(self.arm), 4))
        for names in (self.arm, self.order):
            names.insert(names.index(before), name)
        self.rest[name] = 0.0
        self.notes.append(f"a joint added before {before}")

    def _pairs(self) -> list[tuple[str, str]]:
        """Neighbouring turning joints of the arm whose axes are not parallel, base first."""
        pairs, poses = graph.ends(self.urdf, self.arm).tolist(), link_poses(self.urdf, {})
        ways = {}
        for name in self.arm:
            joint = self.urdf.by_name[name]
            if joint.type != "prismatic":
                ways[name] = poses[joint.child][:3, :3] @ np.array(joint.unit_axis)
        return [
            (upper, lower)
            for upper, (_, child) in zip(self.arm, pairs, strict=True)
            for lower, (parent, _) in zip(self.arm, pairs, strict=True)
            if child == parent and {upper, lower} <= ways.keys() and abs(ways[upper] @ ways[lower]) < 0.99
        ]

    def _twist(self) -> None:
        pairs = self._pairs()
        if not pairs:
            raise Rejected("no two neighbouring axes differ")
        first, second = self.rng.choice(pairs)
        self.urdf = edits.twisted(self.urdf, first, second)
        self.notes.append(f"axes of {first} and {second} exchanged")

    def _value(self, ranges: Ranges) -> float:
        """Uniform in its logarithm, so that twice and half are as likely; three digits, to be read."""
        low, high = ranges[self.rng.randrange(len(ranges))]
        return round(math.exp(self.rng.uniform(math.log(low), math.log(high))), 3)

    def _scale(self, ranges: Ranges, base: float) -> None:
        """A factor for each body that carries a joint of the arm; the body with the hand keeps its size."""
        body, ends = graph.bodies(self.urdf, self.arm), graph.ends(self.urdf, self.arm)
        factors = {number: self._value(ranges) for number in dict.fromkeys(ends[:, 0].tolist())}
        for number in factors.keys() - set(ends[:, 1].tolist()):
            factors[number] = min(factors[number], base)
        self.urdf = edits.scaled(
            self.urdf, {link: factors[number] for link, number in body.items() if number in factors}
        )
        self.notes.append(f"links {' '.join(f'{factor:g}' for factor in factors.values())}")

    def _narrow(self, ranges: Ranges) -> None:
        shares = {name: self._value(ranges) for name in self.arm}
        # A wheel has no range of which a share could remain, and moves no tool.
        carrying = {name for limb in self._limbs() if len(limb) >= FEWEST for name in limb}
        wheels = {name for name in shares if self.urdf.by_name[name].type == "continuous"} - carrying
        shares = {name: share for name, share in shares.items() if name not in wheels}
        self.urdf = edits.narrowed(self.urdf, shares, self.rest)
        self.notes.append(f"limits {' '.join(f'{share:g}' for share in shares.values())}")

    def _hand(self) -> None:
        limb = self._holding()
        reach, tool = self._reach(limb), self._tool(limb[-1])
        opening, length = (round(reach * self.rng.uniform(*shares), 4) for shares in (OPENINGS, FINGERS))
        contact = next((link.contact for link in self.urdf.links if link.contact), None)
        old = None
        if self.grippers:
            old = self.parent.side.grippers.get(self.grippers[0])
            self.order.remove(self.grippers[0])
            self.rest.pop(self.grippers[0])
        self.urdf, name = hand.rehanded(self.urdf, self.held_by, tool, opening, length, contact)
        ends = (old.dataset_open, old.dataset_closed) if old else (0.0, 1.0)
        self.gripper = Gripper(name, opening / 2, 0.0, *ends)
        self.order.append(name)
        self.rest[name] = opening / 2
        self.notes.append(f"a hand that opens {1000 * opening:.0f} mm, fingers of {1000 * length:.0f} mm")

    def _holding(self) -> list[str]:
        """The arm's joints that carry the only hand; without one those of the last limb."""
        name = self.gripper.joint if self.gripper else self.grippers[0] if len(self.grippers) == 1 else None
        link = self.urdf.by_name[name].parent if name else ""
        above = {self.urdf.above[each].name for each in self._way(link, "")}
        return [name for name in self.arm if name in above] or [*self._limbs()][-1]

    def _tool(self, last: str) -> str:
        """The link farthest from a limb's last joint, of those that are fixed to it [m]."""
        poses, top = link_poses(self.urdf, {}), self.urdf.by_name[last].child
        links = graph.fixed_to(self.urdf, top)
        return max(links, key=lambda link: round(float(np.linalg.norm((poses[link] - poses[top])[:3, 3])), 9))

    def _way(self, link: str, top: str) -> Iterator[str]:
        """The link and those above it, below `top`."""
        while link != top and link in self.urdf.above:
            yield link
            link = self.urdf.above[link].parent

    def _reach(self, limb: Sequence[str]) -> float:
        """From a limb's first joint to its tool, along the links [m]."""
        way = self._way(self._tool(limb[-1]), self.urdf.by_name[limb[0]].child)
        return sum((math.hypot(*self.urdf.above[link].origin.xyz) for link in way), 0.0)

    def finished(self, name: str) -> Relative:
        """The relative, or Rejected where its files are no usable robot or its arm cannot move its tool."""
        parent = self.parent
        side = choose_joints(replace(parent.side, joints=parent.names), tuple(self.order))
        changes = "; ".join(self.notes) or "no change"
        side = replace(
            side,
            rest=tuple(self.rest[joint] for joint in self.order),
            names=(),
            stands={},  # these joints are fixed in the relative's own URDF
            gripper=self.gripper or side.gripper,
            tools={name: edits.mirrored_frame(frame) for name, frame in side.tools.items()}
            if self.is_mirrored
            else side.tools,
            source=f"a relative of {parent.name}, drawn by morph-vla robots vary: {changes}",
        )
        text = urdf_text(replace(self.urdf, name=name)).encode()
        examination = examine_text(text, side, Path(f"{name}.urdf"))
        if problems := errors(examination.findings):
            raise Rejected(str(problems[0]))
        robot, limb = examination.loaded(), self._holding()
        if self.sound and (why := self.unsound(robot)):
            raise Rejected(why)
        measures = self._tool(limb[-1]), self._reach(limb)
        return Relative(robot, parent.name, tuple(self.notes), *measures, text, side_text(side).encode())

    def _limbs(self) -> Iterator[list[str]]:
        """For every tip of the arm, the arm's joints from the base to it."""
        pairs = graph.ends(self.urdf, self.arm).tolist()
        carrying = {parent for parent, _ in pairs}
        for tip, (_, child) in zip(self.arm, pairs, strict=True):
            if child not in carrying:
                way = {self.urdf.above[link].name for link in self._way(self.urdf.by_name[tip].child, "")}
                yield [name for name in self.arm if name in way]

    def unsound(self, robot: Robot) -> str:
        """What is wrong with a limb: it moves no tool in three directions, or two joints are one; else ""."""
        for limb in self._limbs():
            tool, reach = self._tool(limb[-1]), self._reach(limb)
            for upper, lower in pairwise(_lines(robot, limb, robot.rest)):
                (place, axis, kind), (there, other, kind_there) = upper, lower
                on_one_line = np.linalg.norm(np.cross(there - place, axis)) <= 1e-6 * reach
                if kind == kind_there and np.linalg.norm(np.cross(axis, other)) < 1e-6 and on_one_line:
                    return "two neighbouring joints turn about one line"
            spread = max(_spread(robot, limb, tool, pose) for pose in _poses(robot))
            if len(limb) >= FEWEST and spread <= LEAST_SPREAD * reach:
                return "its tool cannot be moved in three directions"
        return ""


def _poses(robot: Robot) -> Iterator[Float[np.ndarray, "j"]]:
    """The rest pose, and some with every joint elsewhere in its range: an arm may rest stretched out."""
    yield robot.rest
    for pose in range(1, POSES):
        shares = (np.arange(1, len(robot.joints) + 1) * GOLDEN * pose) % 1.0
        yield robot.lower + shares * (robot.upper - robot.lower)


def _lines(
    robot: Robot, names: Sequence[str], native: Float[np.ndarray, "j"]
) -> list[tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"], str]]:
    """Of each joint a point on its axis [m], the axis, both in the root's frame, and its type."""
    poses, lines = robot.forward_kinematics(native), []
    for joint in map(robot.urdf.by_name.__getitem__, names):
        pose = poses[joint.child]
        lines.append((pose[:3, 3], pose[:3, :3] @ np.array(joint.unit_axis), joint.type))
    return lines


def _spread(robot: Robot, names: Sequence[str], tool: str, native: Float[np.ndarray, "j"]) -> float:
    """The least singular value of the tool's translational Jacobian [m/rad]."""
    place = robot.forward_kinematics(native)[tool][:3, 3]
    columns = [
        axis if kind == "prismatic" else np.cross(axis, place - point)
        for point, axis, kind in _lines(robot, names, native)
    ]
    return float(np.linalg.svd(np.stack(columns, axis=1), compute_uv=False)[-1])
