"""What a checkpoint is, before anything is loaded: names, shapes and types alone are read."""

import dataclasses
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import Pi05Config
from morph_vla.weights import names, recognise
from morph_vla.weights.checkpoint import Checkpoint, Entry
from morph_vla.weights.load import differences, plan_of
from morph_vla.weights.names import PARTS
from morph_vla.weights.report import problems


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
    problems: tuple[str, ...]  # why it cannot be loaded (by the config that was asked for)

    @property
    def parameters(self) -> int:
        """Number of stored values."""
        return sum(part.parameters for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of stored values."""
        return sum(part.nbytes for part in self.parts)


def inspect(
    source: str | Path, config: Pi05Config | None = None, kind: recognise.Kind = "averaged"
) -> Inspection:
    """Format, counts, types and sizes of the checkpoint at `source`, and whether it fits `config`.

    Without a config it is held against the sizes that it has itself. Raises MorphVlaError when there is no
    checkpoint.
    """
    opened = recognise.open_checkpoint(source, kind)
    try:
        stored = opened.config(config)
    except (KeyError, ValueError):
        stored = None
    new: tuple[str, ...] = ()
    where: dict[str, str] = {}
    try:
        _, fresh, plan = plan_of(opened, config, None)
        found = problems(opened, plan)
        new = tuple(fresh)
        where = {piece.entry: leaf for leaf, pieces in plan.items() for piece in pieces}
        if config is not None and stored is not None:
            found = [*differences(stored, config), *found]
    except MorphVlaError as error:
        found = [str(error)]
    return Inspection(
        str(source),
        opened.path,
        opened.format,
        _parts(opened, where),
        stored,
        tuple(sorted(opened.unused)),
        new,
        tuple(found),
    )


def _parts(opened: Checkpoint, leaf_of: dict[str, str]) -> tuple[Part, ...]:
    groups: dict[str, list[Entry]] = {}
    for name, entry in opened.entries.items():
        leaf = leaf_of.get(name)
        part = "other" if leaf is None else names.part_of(leaf)
        groups.setdefault(part, []).append(entry)
    return tuple(
        Part(
            part,
            len(groups[part]),
            sum(entry.nbytes // entry.dtype.itemsize for entry in groups[part]),
            sum(entry.nbytes for entry in groups[part]),
            tuple(sorted({entry.dtype.name for entry in groups[part]})),
        )
        for part in (*PARTS, "other")
        if part in groups
    )
