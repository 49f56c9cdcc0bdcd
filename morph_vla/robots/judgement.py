"""Hold a URDF against the format: every problem at once, each with its line and what happens next.

Errors say that a file cannot be used, warnings that something was assumed, notes what a person may want to
know. What is said to be assumed is what `graph`, `descriptors`, `kinematics` and `robot` do.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import numpy as np

from morph_vla.errors import nearest
from morph_vla.findings import SEVERITIES, Finding, Line, in_order
from morph_vla.robots.descriptors import BOUNDLESS
from morph_vla.robots.records import TYPES, Inertial, Joint, Link, Urdf

Code = Literal[
    "no-elements", "too-many-joints", "more-findings",
    "robot-without-name", "no-name", "second-name", "odd-names",
    "xacro", "prefixed-element", "loop-joint", "other-element", "hidden-joints",
    "no-end", "undeclared-link", "self-joint", "two-parents", "link-loop", "several-roots",
    "frozen-type", "unknown-type", "no-axis", "zero-axis", "long-axis",
    "continuous-limits", "no-limit", "no-bound", "no-effort-or-velocity",
    "crossed-limits", "equal-limits", "boundless-limits", "limits-in-degrees", "limits-in-millimetres",
    "fixed-mimic", "mimic-of-none", "mimic-of-frozen", "mimic-chain", "mimic-of-zero", "mimic-reversed",
    "mimic-loop", "no-inertial", "no-mass", "impossible-inertia", "unknown-shape", "meshes",
]  # fmt: skip
_HARMLESS = ("gazebo", "transmission", "mujoco", "ros2_control", "bullet")
MAX_FINDINGS = 1000
MAX_JOINTS = 1000  # eight times what the largest public robot here has; distances take the square of it


def judge(urdf: Urdf) -> tuple[Finding, ...]:
    """Every finding on a URDF, those of the reader included, in the order of their lines.

    The file can be used when none of them is an error. Of more than MAX_FINDINGS, the gravest are listed.
    """
    findings = [*in_order([*urdf.problems, *_Judge(urdf).findings()])]
    if len(findings) > MAX_FINDINGS:
        findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
        last, more = findings[MAX_FINDINGS - 1], f"{len(findings) - MAX_FINDINGS} more findings"
        words = more, "expected fewer to be read by a person", "they are not listed"
        findings[MAX_FINDINGS:] = [Finding("more-findings", last.severity, last.where, (), *words)]
    return in_order(findings)


class _Judge:
    """One method per subject; each yields findings."""

    def __init__(self, urdf: Urdf):
        self.urdf = urdf
        self.joints = {joint.name: joint for joint in urdf.joints}
        self.links = {link.name: link for link in urdf.links}
        # What the reader refused is there, if not to be used: it is not missing as well.
        self.refused = {problem.subject[:2] for problem in urdf.problems if problem.severity == "error"}
        self.hints = 20  # comparing words is slow: a file of thousands of wrong names gets no more than these

    def findings(self) -> Iterator[Finding]:
        urdf = self.urdf
        if not urdf.links and not urdf.joints:
            if not urdf.problems:
                yield self._error(
                    "no-elements", 1, (), "no <link> and no <joint> in <robot>", "expected a robot"
                )
            return
        if len(urdf.joints) > MAX_JOINTS:
            found, line = f"{len(urdf.joints)} joints", urdf.joints[MAX_JOINTS].line
            yield self._error("too-many-joints", line, (), found, f"expected at most {MAX_JOINTS}")
            return
        yield from self._names()
        yield from self._elements()
        yield from self._tree()
        for joint in urdf.joints:
            yield from self._type(joint)
            if joint.type in TYPES:
                yield from self._ends(joint)
                yield from self._axis(joint)
                yield from self._limit(joint)
                yield from self._mimic(joint)
        yield from self._mimic_loops()
        moving = {joint.child for joint in urdf.joints if joint.type != "fixed"}
        for link in urdf.links:
            yield from self._inertial(link, link.name in moving)
        yield from self._shapes()

    def _error(self, code: Code, line: int, subject: tuple[str, ...], found: str, expected: str) -> Finding:
        where = Line(self.urdf.file, line)
        return Finding(code, "error", where, subject, found, expected, "the file cannot be used")

    def _warning(self, code: Code, line: int, subject: tuple[str, ...], *words: str) -> Finding:
        """`words`: what was found and expected, and what follows."""
        return Finding(code, "warning", Line(self.urdf.file, line), subject, *words)

    def _note(self, code: Code, line: int, subject: tuple[str, ...], *words: str) -> Finding:
        return Finding(code, "note", Line(self.urdf.file, line), subject, *words)

    def _near(self, name: str, choices: Collection[str]) -> str:
        self.hints -= 1
        return nearest(name, choices) if self.hints >= 0 and len(name) < 100 and len(choices) < 1000 else ""

    # --------------------------------------------------------------------------------- names and elements

    def _names(self) -> Iterator[Finding]:
        if not self.urdf.name:
            words = "the robot has no name", "expected <robot name=...>", "the file's name is used"
            yield self._warning("robot-without-name", 1, (), *words)
        for kind, items in (("link", self.urdf.links), ("joint", self.urdf.joints)):
            first: dict[str, int] = {}
            for item in items:
                if not item.name:
                    found = f"a {kind} without a name"
                    yield self._error("no-name", item.line, (kind,), found, "expected name=...")
                elif item.name in first:
                    found = f"a second {kind} '{item.name}' (the first is on line {first[item.name]})"
                    subject = kind, item.name
                    yield self._error("second-name", item.line, subject, found, "expected every name once")
                first.setdefault(item.name, item.line)
        named = [*self.urdf.links, *self.urdf.joints]
        yield from self._odd_names("white space", [i for i in named if any(c.isspace() for c in i.name)])
        yield from self._odd_names("letters beyond ASCII", [i for i in named if not i.name.isascii()])

    def _odd_names(self, what: str, items: Sequence[Link | Joint]) -> Iterator[Finding]:
        if items:
            found = f"{_count(len(items), 'name')} with {what}, such as '{items[0].name}'"
            words = found, "expected plain words", "kept as they are; quote them in YAML"
            yield self._note("odd-names", items[0].line, (what,), *words)

    def _elements(self) -> Iterator[Finding]:
        for tag, count, line in self.urdf.other:
            found = f"{_count(count, f'<{tag}>', '')}"
            prefix, colon, name = tag.rpartition(":")
            if prefix == "xacro":
                expected = "expected none: xacro has not been run on this file"
                missing = "what it would expand to is missing here"
                yield self._warning("xacro", line, (tag,), found, expected, missing)
            elif colon and name in ("joint", "link"):
                expected = f"expected <{name}>"
                yield self._warning("prefixed-element", line, (tag,), found, expected, "it is not read")
            elif tag == "loop_joint":
                words = found, "expected a tree", "the loop stays open: only the tree is read"
                yield self._warning("loop-joint", line, (tag,), *words)
            elif tag not in _HARMLESS:
                words = found, "expected links and joints", "it is not read"
                yield self._note("other-element", line, (tag,), *words)
        for where, count, line in self.urdf.hidden_joints:
            found = f"{_count(count, '<joint>', '')} inside {where}"
            words = found, "expected joints as children of <robot>", "not counted as joints of the robot"
            yield self._note("hidden-joints", line, (where,), *words)

    # ------------------------------------------------------------------------------------------- the tree

    def _ends(self, joint: Joint) -> Iterator[Finding]:
        for end, name in (("parent", joint.parent), ("child", joint.child)):
            if not name:
                found = f"joint '{joint.name}' has no {end} link"
                expected = f"expected <{end} link=...>"
                yield self._error("no-end", joint.line, (joint.name, end), found, expected)
            elif name not in self.links:
                found = (
                    f"joint '{joint.name}': {end} link '{name}' is not declared{self._near(name, self.links)}"
                )
                expected = f"expected a <link name='{name}'>"
                words = found, expected, "it is taken as a link without a body"
                yield self._warning("undeclared-link", joint.line, (joint.name, end), *words)
        if joint.parent and joint.parent == joint.child:
            found = f"joint '{joint.name}' connects link '{joint.parent}' to itself"
            yield self._error("self-joint", joint.line, (joint.name,), found, "expected two different links")

    def _tree(self) -> Iterator[Finding]:
        parent: dict[str, Joint] = {}
        for joint in self.urdf.joints:
            if joint.child in parent and joint.child:
                first = parent[joint.child]
                found = f"link '{joint.child}' is the child of '{first.name}' and of '{joint.name}'"
                expected = "expected one parent for every link: a URDF is a tree"
                yield self._error("two-parents", joint.line, (joint.child, joint.name), found, expected)
            parent.setdefault(joint.child, joint)
        yield from self._loops(parent)
        names = dict.fromkeys([*self.links, *(j.parent for j in self.urdf.joints)])
        roots = [name for name in names if name and name not in parent]
        if len(roots) > 1:
            lines = [self.links[name].line for name in roots if name in self.links]
            found = f"{len(roots)} links without a parent: {_some(roots)}"
            consequence = "the parts stand beside each other, and no path joins their joints"
            line = (lines or [1])[0]
            yield self._warning("several-roots", line, (), found, "expected one root", consequence)

    def _loops(self, parent: dict[str, Joint]) -> Iterator[Finding]:
        """A link reached from itself by going up, each loop once."""
        state: dict[str, int] = {}
        for start in range(len(self.urdf.joints)):
            link, path = self.urdf.joints[start].child, []
            while link in parent and link not in state:
                state[link] = start
                path.append(link)
                link = parent[link].parent
            if link in state and state[link] == start and link in path and parent[link].parent != link:
                loop = path[path.index(link) :]
                found = f"the links {_some(loop)} form a loop"
                expected = "expected a tree: a path to every link from one root"
                yield self._error("link-loop", parent[link].line, (link,), found, expected)

    # --------------------------------------------------------------------------------------------- joints

    def _type(self, joint: Joint) -> Iterator[Finding]:
        if joint.type in ("planar", "floating"):
            found = f"joint '{joint.name}' is {joint.type}"
            expected = "expected revolute, continuous or prismatic for a joint that an action drives"
            yield self._warning("frozen-type", joint.line, (joint.name,), found, expected, "it is frozen")
        elif joint.type not in TYPES:
            found = f"joint '{joint.name}' has the type '{joint.type}'{self._near(joint.type, TYPES)}"
            expected = f"expected one of {', '.join(TYPES)}"
            yield self._error("unknown-type", joint.line, (joint.name,), found, expected)

    def _axis(self, joint: Joint) -> Iterator[Finding]:
        owner, subject = f"joint '{joint.name}'", (joint.name,)
        if joint.type in ("fixed", "floating"):
            return
        if joint.axis is None:
            if (owner, "axis xyz") not in self.refused:
                words = f"{owner} has no <axis>", "expected an axis", "the format's default 1 0 0 is used"
                yield self._warning("no-axis", joint.line, subject, *words)
            return
        length = math.hypot(*joint.axis)
        numbers = " ".join(f"{value:g}" for value in joint.axis)
        if length == 0:
            found = f"{owner}: axis is {numbers}"
            yield self._error("zero-axis", joint.line, subject, found, "expected a direction")
        elif abs(length - 1) > 1e-3:
            found = f"{owner}: axis {numbers} has the length {length:.4g}"
            words = found, "expected a unit vector", "it is scaled to length one"
            yield self._warning("long-axis", joint.line, subject, *words)

    def _limit(self, joint: Joint) -> Iterator[Finding]:
        limit, owner, subject = joint.limit, f"joint '{joint.name}'", (joint.name,)
        if joint.type == "continuous" and limit and limit.lower is not None and limit.upper is not None:
            found = f"{owner} is continuous and has the limits {limit.lower:g} to {limit.upper:g}"
            words = found, "expected none: it turns without end", "-pi to pi is used"
            yield self._note("continuous-limits", limit.line, subject, *words)
        if joint.type not in ("revolute", "prismatic"):
            return
        assumed = "-pi to pi [rad] is assumed" if joint.type == "revolute" else "-1 to 1 [m] is assumed"
        if limit is None:
            words = f"{owner} has no <limit>", "expected lower and upper", assumed
            yield self._warning("no-limit", joint.line, subject, *words)
            return
        for key, value in (("lower", limit.lower), ("upper", limit.upper)):
            if value is None and (owner, f"limit {key}") not in self.refused:
                words = f"{owner}: <limit> has no {key}", f"expected {key}=..."
                default = "the format's default 0 is used"
                yield self._warning("no-bound", limit.line, (joint.name, key), *words, default)
        for key, value in (("effort", limit.effort), ("velocity", limit.velocity)):
            if value is None:
                words = f"{owner}: <limit> has no {key}", f"expected {key}=...", "none is known"
                yield self._note("no-effort-or-velocity", limit.line, (joint.name, key), *words)
        yield from self._range(joint, limit.lower or 0.0, limit.upper or 0.0, limit.line, assumed)

    def _range(self, joint: Joint, lower: float, upper: float, line: int, assumed: str) -> Iterator[Finding]:
        owner, subject, largest = f"joint '{joint.name}'", (joint.name,), max(-lower, upper)
        both = f"{owner}: limits {lower:g} to {upper:g}"
        if lower > upper:
            found = f"{owner}: lower {lower:g} is above upper {upper:g}"
            expected = "expected lower < upper (in PyBullet this means no limit)"
            yield self._warning("crossed-limits", line, subject, found, expected, assumed)
        elif lower == upper and joint.mimic is None:
            found = f"{owner}: lower and upper are both {lower:g}"
            words = found, "expected lower < upper", "it counts as movable but cannot move"
            yield self._warning("equal-limits", line, subject, *words)
        elif largest > BOUNDLESS:
            words = f"{both} stand for none", "expected a range that the joint has", assumed
            yield self._warning("boundless-limits", line, subject, *words)
        elif joint.type == "revolute" and largest > 4 * math.pi:
            found = f"{both} are more than two turns each way"
            words = found, "expected radians; are these degrees?", "they are taken as radians"
            yield self._warning("limits-in-degrees", line, subject, *words)
        elif joint.type == "prismatic" and largest > 10:
            words = both, "expected metres; are these millimetres?", "they are taken as metres"
            yield self._warning("limits-in-millimetres", line, subject, *words)

    def _mimic(self, joint: Joint) -> Iterator[Finding]:
        mimic, subject = joint.mimic, (joint.name,)
        if mimic is None:
            return
        leader, frozen = self.joints.get(mimic.joint), "it is frozen at its offset"
        mimics = f"joint '{joint.name}' mimics '{mimic.joint}'"
        if joint.type == "fixed":
            found = f"joint '{joint.name}' is fixed and mimics '{mimic.joint}'"
            words = found, "expected a joint that moves", "it stays fixed"
            yield self._warning("fixed-mimic", mimic.line, subject, *words)
        elif leader is None:
            found = f"{mimics}, which is not there{self._near(mimic.joint, self.joints)}"
            words = found, "expected a joint of this file", frozen
            yield self._warning("mimic-of-none", mimic.line, subject, *words)
        elif leader.type in ("fixed", "planar", "floating"):
            words = f"{mimics}, which is {leader.type}", "expected a joint that moves", frozen
            yield self._warning("mimic-of-frozen", mimic.line, subject, *words)
        elif leader.mimic is not None and leader.name != joint.name:
            found = f"{mimics}, which mimics '{leader.mimic.joint}'"
            words = found, "expected one step", "the chain is followed to its leader"
            yield self._note("mimic-chain", mimic.line, subject, *words)
        if joint.type != "fixed" and mimic.multiplier == 0:
            words = f"{mimics} with the multiplier 0", "expected a number that is not 0", frozen
            yield self._warning("mimic-of-zero", mimic.line, subject, *words)
        elif joint.type != "fixed" and mimic.multiplier < 0:
            found = f"{mimics} with the multiplier {mimic.multiplier:g}"
            words = found, "a positive one is usual", "it moves the other way round"
            yield self._note("mimic-reversed", mimic.line, subject, *words)

    def _mimic_loops(self) -> Iterator[Finding]:
        seen: set[str] = set()
        for joint in self.urdf.joints:
            path: list[str] = []
            here: Joint | None = joint
            while here is not None and here.mimic is not None and here.name not in seen:
                seen.add(here.name)
                path.append(here.name)
                here = self.joints.get(here.mimic.joint)
            if here is not None and here.name in path:
                found = f"the joints {_some(path[path.index(here.name) :])} mimic each other"
                expected = "expected a chain that ends at a joint of its own"
                yield self._error("mimic-loop", here.line, (here.name,), found, expected)

    # ---------------------------------------------------------------------------------------------- links

    def _inertial(self, link: Link, moving: bool) -> Iterator[Finding]:
        inertial, owner, subject = link.inertial, f"link '{link.name}'", (link.name,)
        consequence = "of no matter for graph and kinematics; a simulator may refuse it"
        if inertial is None:
            if moving:
                words = f"{owner} moves and has no <inertial>", "expected a mass", consequence
                yield self._note("no-inertial", link.line, subject, *words)
        elif inertial.mass is None or inertial.mass < 0 or (moving and inertial.mass == 0):
            mass = "missing" if inertial.mass is None else f"{inertial.mass:g} kg"
            words = f"{owner}: its mass is {mass}", "expected more than 0", consequence
            yield self._warning("no-mass", inertial.line, subject, *words)
        elif inertial.mass and not _possible(inertial):
            found = f"{owner}: no body has its inertia tensor"
            expected = "expected positive principal moments, each at most the sum of the other two"
            yield self._warning("impossible-inertia", inertial.line, subject, found, expected, consequence)

    def _shapes(self) -> Iterator[Finding]:
        meshes = Counter[str]()
        line = 0
        for link in self.urdf.links:
            for shape in (*link.visuals, *link.collisions):
                if shape.geometry.kind == "mesh":
                    meshes[shape.geometry.mesh or ""] += 1
                    line = line or shape.line
                elif shape.geometry.kind not in ("box", "cylinder", "sphere", "capsule"):
                    found = f"link '{link.name}': its shape is '{shape.geometry.kind}'"
                    expected = "expected box, cylinder, sphere, capsule or mesh"
                    subject = link.name, shape.geometry.kind
                    yield self._note(
                        "unknown-shape", shape.line, subject, found, expected, "the shape is passed over"
                    )
        if meshes:
            found = f"{_count(len(meshes), 'mesh', 'es')}, such as '{next(iter(meshes))}'"
            expected = "primitive shapes are read from the file alone"
            yield self._note("meshes", line, (), found, expected, "meshes are not opened")


def _possible(inertial: Inertial) -> bool:
    """Whether a rigid body can have this tensor: positive principal moments, a + b >= c."""
    if any(value is None for value in inertial.inertia):
        return False
    xx, xy, xz, yy, yz, zz = (value or 0.0 for value in inertial.inertia)
    low, middle, high = np.linalg.eigvalsh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    return bool(low > 0 and low + middle >= high * (1 - 1e-3))


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
