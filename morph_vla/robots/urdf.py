"""Read a URDF: XML in, plain frozen records out.

Reading keeps what the file says and never raises for what it says: text that is no number, XML that ends in
the middle or an entity declaration are put into `Urdf.problems`. The second step, `judgement.judge`, holds
the records against the format and returns those problems together with its own.

Format: the ROS URDF reference. Only direct children of `<robot>` are links and joints: `<joint>` inside
`<transmission>` or `<gazebo>` is about a joint and is none.
"""

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.findings import Line, Severity
from morph_vla.robots.markup import MAX_BYTES, Document, Node, parse_xml, walk
from morph_vla.robots.records import Contact, Geometry, Inertial, Joint, Limit, Link, Mimic, Pose, Shape, Urdf
from morph_vla.robots.rules import UNUSABLE, finding


def read(path: Path | str) -> Urdf:
    """Read the URDF at `path`.

    Raises MorphVlaError when there is no such file; everything about its content is in `Urdf.problems`.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MorphVlaError(f"{path}: cannot be read: {error.strerror}") from error
    return parse(data, path.name)


def parse(data: bytes, file: str = "<text>") -> Urdf:
    """Read the bytes of a URDF; `file` is the name used in messages."""
    return _Reader(file, parse_xml(data, file)).urdf()


# Each way to go on begins with another character: a long word that is no number is refused in one pass.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
_LARGEST = 1e30  # [m], [rad], [kg], ...: what is above it overflows somewhere, and no robot has it
_SIZES = {
    "box": ("size",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
    "sphere": ("radius",),
}


class _Reader:
    """Turns elements into records; what it cannot make sense of becomes a Finding."""

    def __init__(self, file: str, document: Document):
        self.file, self.document = file, document
        self.problems = list(document.problems)
        self.colours: dict[str, tuple[float, ...]] = {}

    def _say(self, code: str, line: int, subject: tuple[str, ...], found: str, *parts: str) -> None:
        """`parts`: what was expected and what follows, where the rule does not say it."""
        self.problems.append(finding(code, Line(self.file, line), subject, found, *parts))

    def urdf(self) -> Urdf:
        root = self.document.root
        if root is None or root.tag != "robot":
            if root is not None:
                self._say("no-robot", root.line, (root.tag,), f"the outermost element is <{root.tag}>")
            return Urdf("", self.file, (), (), (), (), tuple(self.problems))
        for node in root.all("material"):
            colour = self._colour(node)
            if colour:
                self.colours.setdefault(node.attributes.get("name", ""), colour)
        links = tuple(self._link(node) for node in root.all("link"))
        joints = tuple(self._joint(node) for node in root.all("joint"))
        count = Counter(node.tag for node in root.children)
        lines = {node.tag: node.line for node in reversed(root.children)}
        other = tuple(
            (tag, n, lines[tag]) for tag, n in count.items() if tag not in ("link", "joint", "material")
        )
        self._namespaces(root)
        name = root.attributes.get("name", "")
        return Urdf(name, self.file, links, joints, other, self._hidden(root), tuple(self.problems))

    def _namespaces(self, root: Node) -> None:
        if "xmlns" in root.attributes:
            space = root.attributes["xmlns"]
            self._say("namespace", root.line, (space,), f"a namespace on the root, '{space}'")
        bound = {"xml", "xmlns"}
        unbound: dict[str, Node] = {}
        for node in walk(root):
            bound |= {key.removeprefix("xmlns:") for key in node.attributes if key.startswith("xmlns:")}
            for name in (node.tag, *node.attributes):
                prefix, colon, _ = name.partition(":")
                if colon and prefix not in bound:
                    unbound.setdefault(prefix, node)
        for prefix, node in unbound.items():
            found = f"the prefix '{prefix}:' is bound to no namespace"
            self._say("unbound-prefix", node.line, (prefix,), found, f"expected xmlns:{prefix} on the root")

    def _hidden(self, root: Node) -> tuple[tuple[str, int, int], ...]:
        lines: dict[str, list[int]] = {}
        for top in root.children:
            for node in walk(top):
                if node.tag == "joint" and node is not top:
                    lines.setdefault(f"<{top.tag}>", []).append(node.line)
        if self.document.commented_joints:
            lines["comments"] = self.document.commented_joints
        return tuple((where, len(numbers), numbers[0]) for where, numbers in lines.items())

    def numbers(
        self, node: Node | None, key: str, count: int, owner: str, severity: Severity
    ) -> tuple[float, ...] | None:
        """The `count` numbers of an attribute; None, with a finding of that severity, if it holds others."""
        if node is None or key not in node.attributes:
            return None
        text, attribute = node.attributes[key], f"{node.tag} {key}"
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        subject = owner, attribute, shown  # the judge asks for the first two
        found, words = f"{owner}: {attribute} is '{shown}'", text.split()
        if "$(" in text or "${" in text:  # `$(optenv ...)` is left in public files that are used so
            is_error = severity == "error" and "${" in text
            self._say("expression", node.line, subject, found, "", UNUSABLE if is_error else "")
            self.problems[-1] = replace(self.problems[-1], severity="error" if is_error else "warning")
            return None
        all_numbers = all(_NUMBER.match(word) for word in words)
        if len(words) > count and all_numbers:
            found = f"{owner}: {attribute} holds {len(words)} numbers, '{shown}'"
            used = f"the first {count} are used; other programs may refuse the file"
            self._say("too-many-numbers", node.line, subject, found, f"expected {count}", used)
            words = words[:count]
        # Limits may be huge: it is how some programs write that there is none, and the judge says so.
        largest = sys.float_info.max if key in ("lower", "upper") else _LARGEST
        if len(words) != count or not all_numbers:
            expected = "expected one number" if count == 1 else f"expected {count} numbers"
        elif any(abs(float(word)) > largest for word in words):
            expected = f"expected a number of at most {largest:g}"
        else:
            return tuple(float(word) for word in words)
        self._say(
            "wrong-number", node.line, subject, found, expected, UNUSABLE if severity == "error" else ""
        )
        self.problems[-1] = replace(self.problems[-1], severity=severity)
        return None

    def number(self, node: Node | None, key: str, owner: str, severity: Severity = "warning") -> float | None:
        values = self.numbers(node, key, 1, owner, severity)
        return values[0] if values else None

    def _pose(self, node: Node, owner: str, severity: Severity) -> Pose:
        origin = node.first("origin")
        values = [self.numbers(origin, key, 3, owner, severity) for key in ("xyz", "rpy")]
        xyz, rpy = (value or (0.0, 0.0, 0.0) for value in values)
        return Pose((xyz[0], xyz[1], xyz[2]), (rpy[0], rpy[1], rpy[2]))

    def _link(self, node: Node) -> Link:
        name = node.attributes.get("name", "")
        owner = f"link '{name}'"
        return Link(
            name=name,
            inertial=self._inertial(node.first("inertial"), owner),
            visuals=tuple(self._shape(child, owner) for child in node.all("visual")),
            collisions=tuple(self._shape(child, owner) for child in node.all("collision")),
            contact=self._contact(node.first("contact"), owner),
            line=node.line,
        )

    def _inertial(self, node: Node | None, owner: str) -> Inertial | None:
        if node is None:
            return None
        tensor = node.first("inertia")
        moments = tuple(self.number(tensor, key, owner) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
        mass = self.number(node.first("mass"), "value", owner)
        return Inertial(mass, self._pose(node, owner, "warning"), moments, node.line)

    def _contact(self, node: Node | None, owner: str) -> Contact | None:
        if node is None:
            return None
        value = {
            key: self.number(node.first(key), "value", owner)
            for key in ("stiffness", "damping", "lateral_friction", "spinning_friction")
        }
        return Contact(node.first("friction_anchor") is not None, **value, line=node.line)

    def _shape(self, node: Node, owner: str) -> Shape:
        holder = node.first("geometry")
        shape = holder.children[0] if holder and holder.children else Node("nothing", {}, node.line)
        material = node.first("material")
        colour = None
        if material is not None:
            name = material.attributes.get("name", "")
            colour = self._colour(material) or self.colours.get(name)
            if colour:
                self.colours.setdefault(name, colour)
        return Shape(self._geometry(shape, owner), self._pose(node, owner, "warning"), colour, node.line)

    def _geometry(self, node: Node, owner: str) -> Geometry:
        if node.tag == "mesh":
            scale = self.numbers(node, "scale", 3, owner, "warning") or (1.0, 1.0, 1.0)
            return Geometry("mesh", scale, node.attributes.get("filename"))
        size: list[float] = []
        for key in _SIZES.get(node.tag, ()):
            count = 3 if key == "size" else 1
            size.extend(self.numbers(node, key, count, owner, "warning") or (0.0,) * count)
        return Geometry(node.tag, tuple(size))

    def _colour(self, node: Node) -> tuple[float, ...] | None:
        name = node.attributes.get("name", "")
        return self.numbers(node.first("color"), "rgba", 4, f"material '{name}'", "warning")

    def _joint(self, node: Node) -> Joint:
        name = node.attributes.get("name", "")
        owner = f"joint '{name}'"
        kind = node.attributes.get("type", "")
        severity: Severity = "warning" if kind == "fixed" else "error"
        axis = None if kind == "fixed" else self.numbers(node.first("axis"), "xyz", 3, owner, severity)
        dynamics, safety = node.first("dynamics"), node.first("safety_controller")
        ends = [
            child.attributes.get("link", "") if child else ""
            for child in (node.first("parent"), node.first("child"))
        ]
        return Joint(
            name=name,
            type=kind,
            parent=ends[0],
            child=ends[1],
            origin=self._pose(node, owner, "error"),
            axis=(axis[0], axis[1], axis[2]) if axis else None,
            limit=self._limit(node.first("limit"), owner, severity),
            mimic=self._mimic(node.first("mimic"), owner, severity),
            damping=self.number(dynamics, "damping", owner),
            friction=self.number(dynamics, "friction", owner),
            soft_lower=self.number(safety, "soft_lower_limit", owner),
            soft_upper=self.number(safety, "soft_upper_limit", owner),
            line=node.line,
        )

    def _limit(self, node: Node | None, owner: str, severity: Severity) -> Limit | None:
        if node is None:
            return None
        lower, upper = (self.number(node, key, owner, severity) for key in ("lower", "upper"))
        effort, velocity = (self.number(node, key, owner) for key in ("effort", "velocity"))
        return Limit(lower, upper, effort, velocity, node.line)

    def _mimic(self, node: Node | None, owner: str, severity: Severity) -> Mimic | None:
        if node is None:
            return None
        multiplier, offset = (self.number(node, key, owner, severity) for key in ("multiplier", "offset"))
        multiplier = 1.0 if multiplier is None else multiplier
        return Mimic(node.attributes.get("joint", ""), multiplier, offset or 0.0, node.line)
