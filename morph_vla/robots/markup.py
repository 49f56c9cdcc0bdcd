"""XML from a stranger, as plain elements with their line numbers.

Document types and entities are refused (they can expand without end and name other files), size, depth and
the number of elements are bounded, and nothing is opened. What stops the reading becomes a Finding, never an
exception.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from morph_vla.findings import Finding, Line
from morph_vla.robots.rules import finding

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
MAX_ELEMENTS = 50_000  # ten times what the largest public humanoids have


@dataclass
class Node:
    """An element with the line on which it starts."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Node"] = field(default_factory=list)

    def all(self, tag: str) -> Iterator["Node"]:
        """Its children of this tag, in the file's order."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Node | None":
        """Its first child of this tag."""
        return next(self.all(tag), None)


@dataclass
class Document:
    """The elements as far as the text is XML, what stopped the reading, and the lines of commented joints."""

    root: Node | None
    problems: list[Finding]
    commented_joints: list[int]


class _Refused(Exception):
    """Raised inside the parser's callbacks to stop it."""


class _Builder:
    """Collects elements from expat's callbacks, within bounds."""

    def __init__(self, parser: expat.XMLParserType, first_line: int):
        self.parser, self.first_line = parser, first_line
        self.root: Node | None = None
        self.stack: list[Node] = []
        self.elements = 0
        self.commented_joints: list[int] = []
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CommentHandler = self.comment
        parser.StartDoctypeDeclHandler = self.refuse_doctype
        parser.EntityDeclHandler = self.refuse_doctype

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber + self.first_line

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        if self.elements > MAX_ELEMENTS:
            raise _Refused(f"more than {MAX_ELEMENTS} elements", "expected a robot description")
        if len(self.stack) >= MAX_DEPTH:
            raise _Refused(f"elements nested more than {MAX_DEPTH} deep", "expected a robot description")
        node = Node(tag, attributes, self.line)
        if self.stack:
            self.stack[-1].children.append(node)
        else:
            self.root = node
        self.stack.append(node)

    def end(self, tag: str) -> None:
        self.stack.pop()

    def comment(self, text: str) -> None:
        if "<joint" in text:
            self.commented_joints.append(self.line)

    def refuse_doctype(self, *_: object) -> None:
        raise _Refused("a document type or entity declaration", "expected plain XML without <!DOCTYPE ...>")


def parse_xml(data: bytes, file: str) -> Document:
    """Elements as far as the text is XML, and what stopped the reading."""
    if len(data) > MAX_BYTES:
        found = f"more than {MAX_BYTES >> 20} MiB"
        return Document(None, [finding("file-too-large", Line(file, 1), (), found)], [])
    problems: list[Finding] = []
    body = data.lstrip(b" \t\r\n")
    if body.startswith(codecs.BOM_UTF8):  # what some editors put first, and what it may hide
        body = body.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n")
    first_line = data[: len(data) - len(body)].count(b"\n")
    if first_line and body.startswith(b"<?xml"):
        found = "white space before the XML declaration"
        problems.append(finding("space-before-xml", Line(file, first_line + 1), (), found))
    parser = expat.ParserCreate()
    builder = _Builder(parser, first_line)
    try:
        parser.Parse(body, True)
    except expat.ExpatError as error:
        where, reason = Line(file, error.lineno + first_line), expat.ErrorString(error.code)
        if builder.root is not None and not builder.stack:
            found = f"text after the end of the description ({reason})"
            expected = f"expected the file to end with </{builder.root.tag}>"
            problems.append(finding("text-after-end", where, (), found, expected))
        else:
            problems.append(finding("not-xml", where, (), f"text that is not XML ({reason})"))
    except (_Refused, ValueError, LookupError) as error:  # an unknown encoding ends in one of the latter two
        found, expected = error.args if isinstance(error, _Refused) else (str(error), "expected UTF-8")
        problems.append(finding("refused-xml", Line(file, builder.line), (), found, expected))
        return Document(None, problems, [])
    return Document(builder.root, problems, builder.commented_joints)


def walk(root: Node) -> Iterator[Node]:
    """Every element, in document order."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))
