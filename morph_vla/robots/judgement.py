"""Hold a URDF against the format: every problem at once, each with its line and what happens next."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from morph_vla.errors import nearest
from morph_vla.findings import SEVERITIES, Finding, Line, in_order
from morph_vla.robots.descriptors import BOUNDLESS
from morph_vla.robots.records import TYPES, Inertial, Joint, Link, Urdf
from morph_vla.robots.rules import finding

_HARMLESS = ("gazebo", "transmission", "mujoco", "ros2_control", "bullet")
MAX_FINDINGS = 1000
MAX_JOINTS = 1000  # eight times what the largest public robot here has; distances take the square of it


def judge(urdf: Urdf) -> tuple[Finding, ...]:
    """Every finding on a URDF, those of the reader included, in the order of their lines.

    The file can be used when none of them is an error. Of more than MAX_FINDINGS, the gravest are listed.
    """
    findings = [*in_order([*urdf.problems, *_Judge(urdf).findings()])]
    if len(findings) > MAX_FINDINGS:
        findings.sort(key=lambda item: SEVERITIES.index(item.severity))
        last, more = findings[MAX_FINDINGS - 1], f"{len(findings) - MAX_FINDINGS} more findings"
        rest = finding("more-findings", Line(urdf.file), (), more)
        findings[MAX_FINDINGS:] = [replace(rest, severity=last.severity, where=last.where)]
    return in_order(findings)


class _Judge:
    """One method per subject; each yields findings."""

    def __init__(self, urdf: Urdf):
        self.urdf = urdf
        self.links = {link.name: link for link in urdf.links}
        # What the reader refused is there, if not to be used: it is not missing as well.
        self.refused = {problem.subject[:2] for problem in urdf.problems if problem.severity == "error"}
        self.hints = 20  # comparing words is slow: a file of thousands of wrong names gets no more than these

    def findings(self) -> Iterator[Finding]:
        """Everything there is to say of the file, part by part."""
        urdf = self.urdf
        if not urdf.links and not urdf.joints:
            yield from self._elements()
            if not urdf.problems:
                yield self._say("no-elements", 1, (), "no <link> and no <joint> in <robot>")
            return
        if len(urdf.joints) > MAX_JOINTS:
            found, line = f"{len(urdf.joints)} joints", urdf.joints[MAX_JOINTS].line
            yield self._say("too-many-joints", line, (), found, f"expected at most {MAX_JOINTS}")
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

    def _say(self, code: str, line: int, subject: tuple[str, ...], found: str, *parts: str) -> Finding:
        """`parts`: what was expected and what follows, where the rule does not say it."""
        return finding(code, Line(self.urdf.file, line), subject, found, *parts)

    def _near(self, name: str, choices: Collection[str]) -> str:
        self.hints -= 1
        return nearest(name, choices) if self.hints >= 0 and len(name) < 100 and len(choices) < 1000 else ""

    def _names(self) -> Iterator[Finding]:
        if not self.urdf.name:
            yield self._say("robot-without-name", 1, (), "the robot has no name")
        for kind, items in (("link", self.urdf.links), ("joint", self.urdf.joints)):
            first: dict[str, int] = {}
            for item in items:
                if not item.name:
                    yield self._say("no-name", item.line, (kind,), f"a {kind} without a name")
                elif item.name in first:
                    found = f"a second {kind} '{item.name}' (the first is on line {first[item.name]})"
                    yield self._say("second-name", item.line, (kind, item.name), found)
                first.setdefault(item.name, item.line)
        named = [*self.urdf.links, *self.urdf.joints]
        for what, odd in (
            ("white space", [item for item in named if any(map(str.isspace, item.name))]),
            ("letters beyond ASCII", [item for item in named if not item.name.isascii()]),
        ):
            if odd:
                found = f"{_count(len(odd), 'name')} with {what}, such as '{odd[0].name}'"
                yield self._say("odd-names", odd[0].line, (what,), found)

    def _elements(self) -> Iterator[Finding]:
        for tag, count, line in self.urdf.other:
            prefix, colon, name = tag.rpartition(":")
            expected = ""
            if prefix == "xacro":
                code = "xacro"
            elif colon and name in ("joint", "link"):
                code, expected = "prefixed-element", f"expected <{name}>"
            elif tag == "loop_joint":
                code = "loop-joint"
            elif tag in _HARMLESS:
                continue
            else:
                code = "other-element"
            yield self._say(code, line, (tag,), f"{count} <{tag}>", expected)
        for where, count, line in self.urdf.hidden_joints:
            yield self._say("hidden-joints", line, (where,), f"{count} <joint> inside {where}")

    def _ends(self, joint: Joint) -> Iterator[Finding]:
        owner = f"joint '{joint.name}'"
        for end, name in (("parent", joint.parent), ("child", joint.child)):
            subject = joint.name, end
            if not name:
                found = f"{owner} has no {end} link"
                yield self._say("no-end", joint.line, subject, found, f"expected <{end} link=...>")
            elif name not in self.links:
                found = f"{owner}: {end} link '{name}' is not declared{self._near(name, self.links)}"
                expected = f"expected a <link name='{name}'>"
                yield self._say("undeclared-link", joint.line, subject, found, expected)
        if joint.parent and joint.parent == joint.child:
            found = f"{owner} connects link '{joint.parent}' to itself"
            yield self._say("self-joint", joint.line, (joint.name,), found)

    def _tree(self) -> Iterator[Finding]:
        parent: dict[str, Joint] = {}
        for joint in self.urdf.joints:
            if joint.child in parent and joint.child:
                first = parent[joint.child]
                found = f"link '{joint.child}' is the child of '{first.name}' and of '{joint.name}'"
                yield self._say("two-parents", joint.line, (joint.child, joint.name), found)
            parent.setdefault(joint.child, joint)
        yield from self._loops(parent)
        names = dict.fromkeys([*self.links, *(joint.parent for joint in self.urdf.joints)])
        roots = [name for name in names if name and name not in parent]
        if len(roots) > 1:
            line = next((self.links[name].line for name in roots if name in self.links), 1)
            found = f"{len(roots)} links without a parent: {_some(roots)}"
            yield self._say("several-roots", line, (), found)

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
                found = f"the links {_some(path[path.index(link) :])} form a loop"
                yield self._say("link-loop", parent[link].line, (link,), found)

    def _type(self, joint: Joint) -> Iterator[Finding]:
        if joint.type in ("planar", "floating"):
            found = f"joint '{joint.name}' is {joint.type}"
            yield self._say("frozen-type", joint.line, (joint.name,), found)
        elif joint.type not in TYPES:
            found = f"joint '{joint.name}' has the type '{joint.type}'{self._near(joint.type, TYPES)}"
            expected = f"expected one of {', '.join(TYPES)}"
            yield self._say("unknown-type", joint.line, (joint.name,), found, expected)

    def _axis(self, joint: Joint) -> Iterator[Finding]:
        owner, subject = f"joint '{joint.name}'", (joint.name,)
        if joint.type in ("fixed", "floating"):
            return
        if joint.axis is None:
            if (owner, "axis xyz") not in self.refused:
                yield self._say("no-axis", joint.line, subject, f"{owner} has no <axis>")
            return
        length = math.hypot(*joint.axis)
        numbers = " ".join(f"{value:g}" for value in joint.axis)
        if length == 0:
            yield self._say("zero-axis", joint.line, subject, f"{owner}: axis is {numbers}")
        elif abs(length - 1) > 1e-3:
            found = f"{owner}: axis {numbers} has the length {length:.4g}"
            yield self._say("long-axis", joint.line, subject, found)

    def _limit(self, joint: Joint) -> Iterator[Finding]:
        limit, owner, subject = joint.limit, f"joint '{joint.name}'", (joint.name,)
        if joint.type == "continuous" and limit and limit.lower is not None and limit.upper is not None:
            found = f"{owner} is continuous and has the limits {limit.lower:g} to {limit.upper:g}"
            yield self._say("continuous-limits", limit.line, subject, found)
        if joint.type not in ("revolute", "prismatic"):
            return
        assumed = "-pi to pi [rad] is assumed" if joint.type == "revolute" else "-1 to 1 [m] is assumed"
        if limit is None:
            yield self._say("no-limit", joint.line, subject, f"{owner} has no <limit>", "", assumed)
            return
        for key in ("lower", "upper", "effort", "velocity"):
            if getattr(limit, key) is None and (owner, f"limit {key}") not in self.refused:
                code = "no-bound" if key in ("lower", "upper") else "no-effort-or-velocity"
                found = f"{owner}: <limit> has no {key}"
                yield self._say(code, limit.line, (joint.name, key), found, f"expected {key}=...")
        for key, bound in (("effort", limit.effort), ("velocity", limit.velocity)):
            if bound is not None and bound < 0:
                found = f"{owner}: its {key} limit is {bound:g}"
                yield self._say("negative-bound", limit.line, (joint.name, key), found)
            elif bound == 0 and key == "velocity":
                found = f"{owner}: its {key} limit is 0"
                expected = "expected more than 0"
                yield self._say("no-effort-or-velocity", limit.line, (joint.name, key), found, expected)
        yield from self._range(joint, limit.lower or 0.0, limit.upper or 0.0, limit.line, assumed)

    def _range(self, joint: Joint, lower: float, upper: float, line: int, assumed: str) -> Iterator[Finding]:
        owner, subject, largest = f"joint '{joint.name}'", (joint.name,), max(-lower, upper)
        both = f"{owner}: limits {lower:g} to {upper:g}"
        if lower > upper:
            found = f"{owner}: lower {lower:g} is above upper {upper:g}"
            yield self._say("crossed-limits", line, subject, found, "", assumed)
        elif lower == upper and joint.mimic is None:
            yield self._say("equal-limits", line, subject, f"{owner}: lower and upper are both {lower:g}")
        elif largest > BOUNDLESS:
            yield self._say("boundless-limits", line, subject, f"{both} mean no limit", "", assumed)
        elif joint.type == "revolute" and largest > 4 * math.pi:
            yield self._say("limits-in-degrees", line, subject, f"{both} are more than two turns each way")
        elif joint.type == "prismatic" and largest > 10:
            yield self._say("limits-in-millimetres", line, subject, both)

    def _mimic(self, joint: Joint) -> Iterator[Finding]:
        mimic = joint.mimic
        if mimic is None:
            return
        leader, code = self.urdf.by_name.get(mimic.joint), None
        mimics = found = f"joint '{joint.name}' mimics '{mimic.joint}'"
        if joint.type == "fixed":
            code, found = "fixed-mimic", f"joint '{joint.name}' is fixed and mimics '{mimic.joint}'"
        elif leader is None:
            near = self._near(mimic.joint, self.urdf.by_name)
            code, found = "mimic-of-none", f"{mimics}, which does not exist{near}"
        elif leader.type in ("fixed", "planar", "floating"):
            code, found = "mimic-of-frozen", f"{mimics}, which is {leader.type}"
        elif leader.mimic is not None and leader.name != joint.name:
            code, found = "mimic-chain", f"{mimics}, which mimics '{leader.mimic.joint}'"
        if code is not None:
            yield self._say(code, mimic.line, (joint.name,), found)
        if joint.type != "fixed" and mimic.multiplier <= 0:
            code = "mimic-reversed" if mimic.multiplier else "mimic-of-zero"
            found = f"{mimics} with the multiplier {mimic.multiplier or 0:g}"
            yield self._say(code, mimic.line, (joint.name,), found)

    def _mimic_loops(self) -> Iterator[Finding]:
        seen: set[str] = set()
        for joint in self.urdf.joints:
            path: list[str] = []
            here: Joint | None = joint
            while here is not None and here.mimic is not None and here.name not in seen:
                seen.add(here.name)
                path.append(here.name)
                here = self.urdf.by_name.get(here.mimic.joint)
            if here is not None and here.name in path:
                found = f"the joints {_some(path[path.index(here.name) :])} mimic each other"
                yield self._say("mimic-loop", here.line, (here.name,), found)

    def _inertial(self, link: Link, moving: bool) -> Iterator[Finding]:
        inertial, owner, subject = link.inertial, f"link '{link.name}'", (link.name,)
        if inertial is None:
            if moving:
                yield self._say("no-inertial", link.line, subject, f"{owner} moves and has no <inertial>")
        elif inertial.mass is None or inertial.mass < 0 or (moving and inertial.mass == 0):
            mass = "missing" if inertial.mass is None else f"{inertial.mass:g} kg"
            yield self._say("no-mass", inertial.line, subject, f"{owner}: its mass is {mass}")
        elif inertial.mass and not _possible(inertial):
            names = zip(("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), inertial.inertia, strict=True)
            lacks = ", ".join(name for name, value in names if value is None)
            found = (
                f"{owner}: no rigid body can have its inertia tensor{f', which lacks {lacks}' * bool(lacks)}"
            )
            yield self._say("impossible-inertia", inertial.line, subject, found)

    def _shapes(self) -> Iterator[Finding]:
        meshes = Counter[str]()
        line = 0
        for link in self.urdf.links:
            for shape in (*link.visuals, *link.collisions):
                kind = shape.geometry.kind
                if kind == "mesh":
                    meshes[shape.geometry.mesh or ""] += 1
                    line = line or shape.line
                elif kind not in ("box", "cylinder", "sphere", "capsule"):
                    found = f"link '{link.name}': its shape is '{kind}'"
                    yield self._say("unknown-shape", shape.line, (link.name, kind), found)
        if meshes:
            found = f"{_count(len(meshes), 'mesh', 'es')}, such as '{next(iter(meshes))}'"
            yield self._say("meshes", line, (), found)


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
