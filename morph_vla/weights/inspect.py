"""What a checkpoint is, before anything is loaded: names, shapes and types alone are read."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding
from morph_vla.pi05.config import Pi05Config
from morph_vla.weights import names, recognise
from morph_vla.weights.checkpoint import Checkpoint
from morph_vla.weights.load import NO_SIZES, differences, plan_of
from morph_vla.weights.report import problem, problems
from morph_vla.wording import table


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a checkpoint."""

    name: str
    entries: int  # stored arrays
    parameters: int
    nbytes: int
    types: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What `inspect` found."""

    source: str
    path: Path
    format: str
    parts: tuple[Part, ...]
    config: Pi05Config | None  # the host's sizes; None when it is no pi0.5
    unused: tuple[str, ...]  # entries no leaf is made of
    new: tuple[str, ...]  # leaves that would be new
    problems: tuple[Finding, ...]  # why it cannot be loaded (by the config that was asked for)

    @property
    def parameters(self) -> int:
        """Number of stored values."""
        return sum(part.parameters for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of stored values."""
        return sum(part.nbytes for part in self.parts)

    def __str__(self) -> str:
        """The format, a row for each part, the host's sizes, and every entry that does not fit."""
        size = f"{self.parameters:,} values, {self.nbytes / 1e6:,.1f} MB"
        rows = [
            (p.name, p.entries, f"{p.parameters:,}", f"{p.nbytes / 1e6:,.1f}", ", ".join(p.types))
            for p in self.parts
        ]
        lines = [
            f"{self.path}: {self.format}, {size}",
            *table(["part", "arrays", "values", "MB", "type"], rows),
        ]
        if self.config is not None:
            lines.append(f"sizes: {_sizes(self.config)}")
        misfits = [problem.found for problem in self.problems]
        for title, entries in {"new": self.new, "unused": self.unused, "does not fit": misfits}.items():
            lines += [f"{title}: {entry}" for entry in entries]
        return "\n".join(lines)


def inspect(
    source: str | Path,
    config: Pi05Config | None = None,
    kind: recognise.Kind = "averaged",
    new: Callable[[Checkpoint], Sequence[str] | None] = lambda _: None,
) -> Inspection:
    """Format, counts, types and sizes of the checkpoint at `source`, and whether it fits `config`.

    Without a config it is held against the sizes that it has itself. `new` says which leaves may begin anew,
    as `load` takes it. Raises MorphVlaError when there is no checkpoint, and as `new`.
    """
    opened = recognise.open_checkpoint(source, kind)
    try:
        stored = opened.config(config)
    except NO_SIZES:
        stored = None
    fresh, allowed = [], new(opened)
    part_of: dict[str, str] = {}
    try:
        _, fresh, plan = plan_of(opened, config, allowed)
        findings = problems(opened, plan, names.left_out(config))
        part_of = {piece.entry: names.part_of(leaf) for leaf, pieces in plan.items() for piece in pieces}
        if config is not None and stored is not None:
            findings = [*differences(stored, config), *findings]
    except MorphVlaError as error:
        findings = [problem("unreadable", opened.path, "", str(error))]
    parts, unused = _parts(opened, part_of), tuple(sorted(opened.unused))
    return Inspection(
        str(source), opened.path, opened.format, parts, stored, unused, tuple(fresh), tuple(findings)
    )


def _sizes(config: Pi05Config) -> str:
    transformer = f"{config.depth} layers, {config.heads} heads of {config.head_dim}"
    widths = f"widths {config.prefix.width} and {config.expert.width}"
    images = config.image_size if config.cameras else "none"
    return f"{transformer}, {widths}, images {images}, actions {config.action_dim}, vocabulary {config.vocab}"


def _parts(opened: Checkpoint, part_of: dict[str, str]) -> tuple[Part, ...]:
    """What is stored of each part; `part_of` has the part of every entry that a leaf is made of."""
    parts = []
    for part in (*names.ALL, "other"):
        entries = [entry for name, entry in opened.entries.items() if part_of.get(name, "other") == part]
        if entries:
            types = tuple(sorted({entry.dtype.name for entry in entries}))
            sizes = sum(e.nbytes // e.dtype.itemsize for e in entries), sum(e.nbytes for e in entries)
            parts.append(Part(part, len(entries), *sizes, types))
    return tuple(parts)
