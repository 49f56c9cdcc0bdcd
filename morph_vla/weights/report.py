"""What became of every leaf: loaded, new, or the reason for a refusal."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.findings import Finding, Source
from morph_vla.weights.checkpoint import Checkpoint
from morph_vla.weights.names import ALL, Piece, Shape, part_of

MAX_NAMED = 20  # problems spelled out; the rest are counted

Code = Literal["missing", "shape", "type", "unexpected", "not-finite", "size", "unreadable"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One leaf of the model."""

    leaf: str
    shape: Shape
    stored: str  # type in the checkpoint; "" for a new leaf
    dtype: str  # type in memory
    nbytes: int  # in memory

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint has no such leaf, and it begins as the model initialises it."""
        return not self.stored


@dataclasses.dataclass(frozen=True)
class Report:
    """What `weights.load` did, leaf by leaf."""

    source: str
    format: str
    rows: tuple[Row, ...]
    unused: tuple[str, ...]  # entries of the checkpoint that no leaf was made of
    merged: tuple[str, ...] = ()  # low-rank pairs that went into their weights

    @property
    def loaded(self) -> tuple[Row, ...]:
        """The leaves that come from the checkpoint."""
        return tuple(row for row in self.rows if not row.is_new)

    @property
    def new(self) -> tuple[Row, ...]:
        """The leaves that do not."""
        return tuple(row for row in self.rows if row.is_new)

    @property
    def parameters(self) -> int:
        """Number of parameters, loaded and new."""
        return count(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves in memory."""
        return sum(row.nbytes for row in self.rows)

    def parts(self) -> list[tuple[str, int, int, int, float, str]]:
        """By part: name, leaves loaded, leaves new, parameters, MB in memory, types (stored > loaded)."""
        table = []
        for part in ALL:
            rows = [row for row in self.rows if part_of(row.leaf) == part]
            types = {
                row.dtype if row.stored in ("", row.dtype) else f"{row.stored} > {row.dtype}" for row in rows
            }
            new, megabytes = sum(row.is_new for row in rows), sum(row.nbytes for row in rows) / 1e6
            if rows:
                table.append((part, len(rows) - new, new, count(rows), megabytes, ", ".join(sorted(types))))
        return table

    def summary(self) -> str:
        """One line: how many leaves were loaded, are new, or were left out."""
        words = [f"{len(self.loaded)} leaves loaded ({count(self.loaded):,} parameters)"]
        if self.new:
            words.append(f"{len(self.new)} new ({count(self.new):,})")
        if self.merged:
            words.append(f"{len(self.merged) // 2} low-rank pairs merged into their weights")
        if self.unused:
            words.append(f"{len(self.unused)} stored entries unused")
        return f"{self.source} ({self.format}): {', '.join(words)}; {self.nbytes / 1e6:,.1f} MB"

    def __str__(self) -> str:
        """The summary, a line per part, and every new or unused leaf by name."""
        lines = [self.summary(), f"  {'part':<15}{'loaded':>7}{'new':>5}{'parameters':>16}{'MB':>11}  type"]
        for part, loaded, new, parameters, size, kinds in self.parts():
            lines.append(f"  {part:<15}{loaded:>7}{new:>5}{parameters:>16,}{size:>11,.1f}  {kinds}")
        lines += [f"  new     {row.leaf} {row.shape} {row.dtype}" for row in self.new]
        lines += [f"  unused  {name}" for name in self.unused]
        return "\n".join(lines)


def count(rows: Sequence[Row]) -> int:
    """Number of parameters in some leaves."""
    return sum(int(np.prod(row.shape, dtype=np.int64)) for row in rows)


def is_under(name: str, prefixes: Sequence[str]) -> bool:
    """Whether a leaf is one of `prefixes` or lies under one of them."""
    return any(name == prefix or name.startswith(f"{prefix.rstrip('/')}/") for prefix in prefixes)


def problem(code: Code, where: object, subject: str, text: str) -> Finding:
    """An error about one leaf, entry or size of the checkpoint at `where`."""
    return Finding(code, "error", Source(str(where)), (subject,), text, "", "")


def problems(
    opened: Checkpoint, wanted: Mapping[str, Sequence[Piece]], ignored: Sequence[str] = ()
) -> list[Finding]:
    """Every reason why the checkpoint does not fit: missing, of another shape or type, unexpected.

    `wanted` has the pieces of each leaf that is to be loaded.
    """
    return [problem(code, opened.path, *words) for code, *words in _misfits(opened, wanted, ignored)]


def _misfits(
    opened: Checkpoint, wanted: Mapping[str, Sequence[Piece]], ignored: Sequence[str]
) -> Iterator[tuple[Code, str, str]]:
    """Code, entry and sentence of each."""
    entries, used = opened.entries, {}
    for leaf, piece in ((leaf, piece) for leaf, pieces in wanted.items() for piece in pieces):
        entry = used[piece.entry] = entries.get(piece.entry)
        name = piece.entry if piece.entry == leaf else f"{piece.entry} (of {leaf})"
        if entry is None:
            yield "missing", piece.entry, f"missing: {name}, shape {piece.entry_shape}"
        elif entry.shape != piece.entry_shape:
            sizes = f"{entry.shape}, the model has {piece.entry_shape}"
            yield "shape", piece.entry, f"shape: {name} is {sizes}"
        elif entry.dtype.kind != "f" and entry.dtype.name != "bfloat16":  # which NumPy does not know
            types = f"{entry.dtype}, the model has floating-point numbers"
            yield "type", piece.entry, f"type: {name} holds {types}"
    missing = [name for name, entry in used.items() if entry is None]
    for name in sorted(entries.keys() - used.keys() - opened.unused):
        if not is_under(name, ignored):
            yield "unexpected", name, f"unexpected: {name} {entries[name].shape}{nearest(name, missing)}"


def refuse(opened: Checkpoint, findings: Sequence[Finding], hint: str = "") -> None:
    """Raise MorphVlaError that lists the findings, if there are any."""
    if not findings:
        return
    lines = [finding.found for finding in findings[:MAX_NAMED]]
    if len(findings) > MAX_NAMED:
        lines.append(f"... and {len(findings) - MAX_NAMED} more")
    subject = "1 leaf does" if len(findings) == 1 else f"{len(findings)} leaves do"
    head = f"{opened.path} ({opened.format}): {subject} not fit this model{hint}"
    raise MorphVlaError("\n  ".join([head, *lines]))
