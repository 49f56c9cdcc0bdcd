"""What a check has to say, one thing at a time: the only kind of finding, sorted and rendered here.

Whoever judges has a Literal of its own codes. What is done about a finding goes by its code, its severity and
its place, never by its words: a sentence can be rewritten, and nothing but text changes.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from morph_vla.wording import count

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""`error`: it cannot be used; `warning`: something was assumed, look at it; `note`: good to know."""
MAX_PART = 300
"""Letters of one part of a finding on a file: a stranger's name may fill a screen."""


@dataclass(frozen=True)
class Line:
    """A line of a file, counted from 1; 0 for the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Feature:
    """A feature of a recording, or several (`action, observation.state`); "" for the whole recording."""

    name: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Source:
    """A dataset, with the episode and the frame where it begins; or a key of a recipe."""

    name: str
    episode: int | None = None
    frame: int | None = None

    def __str__(self) -> str:
        numbers = (("episode", self.episode), ("frame", self.frame))
        place = ", ".join(f"{word} {number}" for word, number in numbers if number is not None)
        return f"{self.name}: {place}" if place else self.name


@dataclass(frozen=True)
class Finding:
    """One thing a person should know: where, what was found and expected, and what follows from it."""

    code: str
    """What kind of thing it is, a constant of the judge that raises it; the only word that logic may ask"""
    severity: Severity
    where: Line | Feature | Source
    subject: tuple[str, ...]
    """The joints, links, keys or cameras it is about"""
    found: str
    expected: str
    """"" where the consequence says it"""
    consequence: str
    """What happens next, or what to do"""

    @property
    def identity(self) -> tuple[object, ...]:
        """All but the words: two findings of one identity are one."""
        return self.code, self.severity, self.where, self.subject

    def __str__(self) -> str:
        """One line, the place first as a compiler prints it; of datasets and recipes the severity first.

            panda.urdf:12: warning: this; expected that; what happens
            action: warning: this; expected that; what it leads to
            error: DATASET: episode 3, frame 7: this; what to do

        A stranger's words cannot make it two lines, or steer a terminal, or fill it.
        """
        most = MAX_PART if isinstance(self.where, Line) else 10 * MAX_PART
        parts = [visible(part, most) for part in (self.found, self.expected, self.consequence) if part]
        head = [self.severity, str(self.where)]
        head = head if isinstance(self.where, Source) else head[::-1]
        return f"{': '.join(filter(None, head))}: {'; '.join(parts)}"


def visible(text: str, most: int = MAX_PART) -> str:
    """The text on one line of at most `most` characters; those that do not print by their code points."""
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def printable(text: str) -> str:
    """The same lines; what does not print is shown by its code point, so that no words steer a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or _is_shown(c) else ascii(c)[1:-1] for c in text)


def _is_shown(character: str) -> bool:
    """Whether it prints; also the spaces that are not the usual one."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each once: file by file and line by line, and at one place the gravest first."""
    files: dict[str, int] = {}

    def place(finding: Finding) -> tuple[int, int, int]:
        where = finding.where if isinstance(finding.where, Line) else Line("")
        return (files.setdefault(where.file, len(files)), where.line, SEVERITIES.index(finding.severity))

    unique: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        unique.setdefault(finding.identity, finding)
    return tuple(sorted(unique.values(), key=place))


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that keep something from being used."""
    return tuple(finding for finding in findings if finding.severity == "error")


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """How many there are of each severity: `errors`, `warnings` and `notes`."""
    number = Counter(finding.severity for finding in findings)
    return {f"{severity}s": number[severity] for severity in SEVERITIES}


def tally(findings: Iterable[Finding]) -> str:
    """`1 error, 0 warnings, 2 notes`."""
    return ", ".join(count(number, nouns[:-1]) for nouns, number in counts(findings).items())
