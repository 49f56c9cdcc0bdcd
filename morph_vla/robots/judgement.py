"""Hold a URDF against the format: every problem at once, each with its line and what happens next.

Errors say that a file cannot be used, warnings that something was assumed, notes what a person may want to
know. What is said to be assumed is what `graph`, `descriptors`, `kinematics` and `robot` do.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from morph_vla.errors import nearest
from morph_vla.robots.descriptors import BOUNDLESS
from morph_vla.robots.markup import Finding
from morph_vla.robots.records import TYPES, Inertial, Joint, Link, Urdf

_HARMLESS = ("gazebo", "transmission", "mujoco", "ros2_control", "bullet")
_CANNOT = "the file cannot be used"
MAX_FINDINGS = 1000
MAX_JOINTS = 1000  # eight times what the largest public robot here has; distances take the square of it


def judge(urdf: Urdf) -> tuple[Finding, ...]:
    """Every finding on a URDF, those of the reader included, in the order of their lines.

    The file can be used when none of them is an error. Of more than MAX_FINDINGS, the gravest are listed.
    """
    order = {"error": 0, "warning": 1, "note": 2}
    findings = list(dict.fromkeys([*urdf.problems, *_Judge(urdf).findings()]))
    if len(findings) > MAX_FINDINGS:
        findings.sort(key=lambda f: order[f.severity])
        found, last = f"{len(findings) - MAX_FINDINGS} more findings", findings[MAX_FINDINGS - 1]
        expected, consequence = "expected fewer to be read by a person", "they are not listed"
        findings[MAX_FINDINGS:] = [Finding(last.severity, urdf.file, last.line, found, expected, consequence)]
    return tuple(sorted(findings, key=lambda f: (f.line, order[f.severity])))


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that keep a file from being used."""
    return tuple(finding for finding in findings if finding.severity == "error")


class _Judge:
    """One method per subject; each yields findings."""

    def __init__(self, urdf: Urdf):
        self.urdf = urdf
        self.joints = {joint.name: joint for joint in urdf.joints}
        self.links = {link.name: link for link in urdf.links}
        # What the reader refused is there, if not to be used: it is not missing as well.
        self.refused = {found.found.split(" is '")[0] for found in urdf.problems if found.severity == "error"}
        self.hints = 20  # comparing words is slow: a file of thousands of wrong names gets no more than these

    def findings(self) -> Iterator[Finding]:
        urdf = self.urdf
        if not urdf.links and not urdf.joints:
            if not urdf.problems:
                yield self._error(1, "no <link> and no <joint> in <robot>", "expected a robot", _CANNOT)
            return
        if len(urdf.joints) > MAX_JOINTS:
            found, line = f"{len(urdf.joints)} joints", urdf.joints[MAX_JOINTS].line
            yield self._error(line, found, f"expected at most {MAX_JOINTS}", _CANNOT)
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

    def _finding(self, severity: str, line: int, found: str, expected: str, consequence: str) -> Finding:
        return Finding(severity, self.urdf.file, line, found, expected, consequence)

    def _error(self, line: int, found: str, expected: str, consequence: str) -> Finding:
        return self._finding("error", line, found, expected, consequence)

    def _warning(self, line: int, found: str, expected: str, consequence: str) -> Finding:
        return self._finding("warning", line, found, expected, consequence)

    def _note(self, line: int, found: str, expected: str, consequence: str) -> Finding:
        return self._finding("note", line, found, expected, consequence)

    def _near(self, name: str, choices: Collection[str]) -> str:
        self.hints -= 1
        return nearest(name, choices) if self.hints >= 0 and len(name) < 100 and len(choices) < 1000 else ""

    # --------------------------------------------------------------------------------- names and elements

    def _names(self) -> Iterator[Finding]:
        if not self.urdf.name:
            yield self._warning(
                1, "the robot has no name", "expected <robot name=...>", "the file's name is used"
            )
        for kind, items in (("link", self.urdf.links), ("joint", self.urdf.joints)):
            first: dict[str, int] = {}
            for item in items:
                if not item.name:
                    yield self._error(item.line, f"a {kind} without a name", "expected name=...", _CANNOT)
                elif item.name in first:
                    found = f"a second {kind} '{item.name}' (the first is on line {first[item.name]})"
                    yield self._error(item.line, found, "expected every name once", _CANNOT)
                first.setdefault(item.name, item.line)
        named = [*self.urdf.links, *self.urdf.joints]
        yield from self._odd_names("white space", [i for i in named if any(c.isspace() for c in i.name)])
        yield from self._odd_names("letters beyond ASCII", [i for i in named if not i.name.isascii()])

    def _odd_names(self, what: str, items: Sequence[Link | Joint]) -> Iterator[Finding]:
        if items:
            found = f"{_count(len(items), 'name')} with {what}, such as '{items[0].name}'"
            yield self._note(
                items[0].line, found, "expected plain words", "kept as they are; quote them in YAML"
            )

    def _elements(self) -> Iterator[Finding]:
        for tag, count, line in self.urdf.other:
            found = f"{_count(count, f'<{tag}>', '')}"
            prefix, colon, name = tag.rpartition(":")
            if prefix == "xacro":
                expected = "expected none: xacro has not been run on this file"
                yield self._warning(line, found, expected, "what it would expand to is missing here")
            elif colon and name in ("joint", "link"):
                yield self._warning(line, found, f"expected <{name}>", "it is not read")
            elif tag == "loop_joint":
                yield self._warning(
                    line, found, "expected a tree", "the loop stays open: only the tree is read"
                )
            elif tag not in _HARMLESS:
                yield self._note(line, found, "expected links and joints", "it is not read")
        for where, count, line in self.urdf.hidden_joints:
            found = f"{_count(count, '<joint>', '')} inside {where}"
            expected = "expected joints as children of <robot>"
            yield self._note(line, found, expected, "not counted as joints of the robot")

    # ------------------------------------------------------------------------------------------- the tree

    def _ends(self, joint: Joint) -> Iterator[Finding]:
        for end, name in (("parent", joint.parent), ("child", joint.child)):
            if not name:
                found = f"joint '{joint.name}' has no {end} link"
                yield self._error(joint.line, found, f"expected <{end} link=...>", _CANNOT)
            elif name not in self.links:
                found = (
                    f"joint '{joint.name}': {end} link '{name}' is not declared{self._near(name, self.links)}"
                )
                expected = f"expected a <link name='{name}'>"
                yield self._warning(joint.line, found, expected, "it is taken as a link without a body")
        if joint.parent and joint.parent == joint.child:
            found = f"joint '{joint.name}' connects link '{joint.parent}' to itself"
            yield self._error(joint.line, found, "expected two different links", _CANNOT)

    def _tree(self) -> Iterator[Finding]:
        parent: dict[str, Joint] = {}
        for joint in self.urdf.joints:
            if joint.child in parent and joint.child:
                first = parent[joint.child]
                found = f"link '{joint.child}' is the child of '{first.name}' and of '{joint.name}'"
                expected = "expected one parent for every link: a URDF is a tree"
                yield self._error(joint.line, found, expected, _CANNOT)
            parent.setdefault(joint.child, joint)
        yield from self._loops(parent)
        names = dict.fromkeys([*self.links, *(j.parent for j in self.urdf.joints)])
        roots = [name for name in names if name and name not in parent]
        if len(roots) > 1:
            lines = [self.links[name].line for name in roots if name in self.links]
            found = f"{len(roots)} links without a parent: {_some(roots)}"
            consequence = "the parts stand beside each other, and no path joins their joints"
            yield self._warning((lines or [1])[0], found, "expected one root", consequence)

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
                yield self._error(parent[link].line, found, expected, _CANNOT)

    # --------------------------------------------------------------------------------------------- joints

    def _type(self, joint: Joint) -> Iterator[Finding]:
        if joint.type in ("planar", "floating"):
            found = f"joint '{joint.name}' is {joint.type}"
            expected = "expected revolute, continuous or prismatic for a joint that an action drives"
            yield self._warning(joint.line, found, expected, "it is frozen")
        elif joint.type not in TYPES:
            found = f"joint '{joint.name}' has the type '{joint.type}'{self._near(joint.type, TYPES)}"
            yield self._error(joint.line, found, f"expected one of {', '.join(TYPES)}", _CANNOT)

    def _axis(self, joint: Joint) -> Iterator[Finding]:
        if joint.type in ("fixed", "floating"):
            return
        if joint.axis is None and f"joint '{joint.name}': axis xyz" in self.refused:
            return
        if joint.axis is None:
            found = f"joint '{joint.name}' has no <axis>"
            yield self._warning(joint.line, found, "expected an axis", "the format's default 1 0 0 is used")
            return
        length = math.hypot(*joint.axis)
        numbers = " ".join(f"{value:g}" for value in joint.axis)
        if length == 0:
            yield self._error(
                joint.line, f"joint '{joint.name}': axis is {numbers}", "expected a direction", _CANNOT
            )
        elif abs(length - 1) > 1e-3:
            found = f"joint '{joint.name}': axis {numbers} has the length {length:.4g}"
            yield self._warning(joint.line, found, "expected a unit vector", "it is scaled to length one")

    def _limit(self, joint: Joint) -> Iterator[Finding]:
        limit, owner = joint.limit, f"joint '{joint.name}'"
        if joint.type == "continuous" and limit and limit.lower is not None and limit.upper is not None:
            found = f"{owner} is continuous and has the limits {limit.lower:g} to {limit.upper:g}"
            yield self._note(limit.line, found, "expected none: it turns without end", "-pi to pi is used")
        if joint.type not in ("revolute", "prismatic"):
            return
        assumed = "-pi to pi [rad] is assumed" if joint.type == "revolute" else "-1 to 1 [m] is assumed"
        if limit is None:
            yield self._warning(joint.line, f"{owner} has no <limit>", "expected lower and upper", assumed)
            return
        for key, value in (("lower", limit.lower), ("upper", limit.upper)):
            if value is None and f"{owner}: limit {key}" not in self.refused:
                found = f"{owner}: <limit> has no {key}"
                yield self._warning(
                    limit.line, found, f"expected {key}=...", "the format's default 0 is used"
                )
        for key, value in (("effort", limit.effort), ("velocity", limit.velocity)):
            if value is None:
                yield self._note(
                    limit.line, f"{owner}: <limit> has no {key}", f"expected {key}=...", "none is known"
                )
        yield from self._range(joint, limit.lower or 0.0, limit.upper or 0.0, limit.line, assumed)

    def _range(self, joint: Joint, lower: float, upper: float, line: int, assumed: str) -> Iterator[Finding]:
        owner = f"joint '{joint.name}'"
        if lower > upper:
            found = f"{owner}: lower {lower:g} is above upper {upper:g}"
            expected = "expected lower < upper (in PyBullet this means no limit)"
            yield self._warning(line, found, expected, assumed)
        elif lower == upper and joint.mimic is None:
            found = f"{owner}: lower and upper are both {lower:g}"
            yield self._warning(line, found, "expected lower < upper", "it counts as movable but cannot move")
        elif max(-lower, upper) > BOUNDLESS:
            found = f"{owner}: limits {lower:g} to {upper:g} stand for none"
            yield self._warning(line, found, "expected a range that the joint has", assumed)
        elif joint.type == "revolute" and max(-lower, upper) > 4 * math.pi:
            found = f"{owner}: limits {lower:g} to {upper:g} are more than two turns each way"
            yield self._warning(
                line, found, "expected radians; are these degrees?", "they are taken as radians"
            )
        elif joint.type == "prismatic" and max(-lower, upper) > 10:
            found = f"{owner}: limits {lower:g} to {upper:g}"
            yield self._warning(
                line, found, "expected metres; are these millimetres?", "they are taken as metres"
            )

    def _mimic(self, joint: Joint) -> Iterator[Finding]:
        mimic = joint.mimic
        if mimic is None:
            return
        owner, leader = f"joint '{joint.name}'", self.joints.get(mimic.joint)
        if joint.type == "fixed":
            found = f"{owner} is fixed and mimics '{mimic.joint}'"
            yield self._warning(mimic.line, found, "expected a joint that moves", "it stays fixed")
        elif leader is None:
            found = (
                f"{owner} mimics '{mimic.joint}', which is not there{self._near(mimic.joint, self.joints)}"
            )
            yield self._warning(
                mimic.line, found, "expected a joint of this file", "it is frozen at its offset"
            )
        elif leader.type in ("fixed", "planar", "floating"):
            found = f"{owner} mimics '{mimic.joint}', which is {leader.type}"
            yield self._warning(
                mimic.line, found, "expected a joint that moves", "it is frozen at its offset"
            )
        elif leader.mimic is not None and leader.name != joint.name:
            found = f"{owner} mimics '{mimic.joint}', which mimics '{leader.mimic.joint}'"
            yield self._note(mimic.line, found, "expected one step", "the chain is followed to its leader")
        if joint.type != "fixed" and mimic.multiplier == 0:
            found = f"{owner} mimics '{mimic.joint}' with the multiplier 0"
            yield self._warning(
                mimic.line, found, "expected a number that is not 0", "it is frozen at its offset"
            )
        elif joint.type != "fixed" and mimic.multiplier < 0:
            found = f"{owner} mimics '{mimic.joint}' with the multiplier {mimic.multiplier:g}"
            yield self._note(mimic.line, found, "a positive one is usual", "it moves the other way round")

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
                loop = path[path.index(here.name) :]
                expected = "expected a chain that ends at a joint of its own"
                yield self._error(here.line, f"the joints {_some(loop)} mimic each other", expected, _CANNOT)

    # ---------------------------------------------------------------------------------------------- links

    def _inertial(self, link: Link, moving: bool) -> Iterator[Finding]:
        inertial, owner = link.inertial, f"link '{link.name}'"
        consequence = "of no matter for graph and kinematics; a simulator may refuse it"
        if inertial is None:
            if moving:
                yield self._note(
                    link.line, f"{owner} moves and has no <inertial>", "expected a mass", consequence
                )
            return
        if inertial.mass is None or inertial.mass < 0 or (moving and inertial.mass == 0):
            mass = "missing" if inertial.mass is None else f"{inertial.mass:g} kg"
            yield self._warning(
                inertial.line, f"{owner}: its mass is {mass}", "expected more than 0", consequence
            )
        elif inertial.mass and not _possible(inertial):
            found = f"{owner}: no body has its inertia tensor"
            expected = "expected positive principal moments, each at most the sum of the other two"
            yield self._warning(inertial.line, found, expected, consequence)

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
                    yield self._note(shape.line, found, expected, "the shape is passed over")
        if meshes:
            found = f"{_count(len(meshes), 'mesh', 'es')}, such as '{next(iter(meshes))}'"
            yield self._note(
                line, found, "primitive shapes are read from the file alone", "meshes are not opened"
            )


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
