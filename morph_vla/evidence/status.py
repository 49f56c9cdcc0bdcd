"""How a grid stands: done, missing and failed cells by split and condition, and the hours that are left."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from morph_vla.errors import MorphVlaError
from morph_vla.evidence.asked import require_same
from morph_vla.evidence.grid import Cell, Grid, cells
from morph_vla.results.cells import CellRecord, read
from morph_vla.wording import count, table

RECORDS, FAILED = "records", "failed"


@dataclass(frozen=True)
class Row:
    """The cells of one condition in one split."""

    split: str
    condition: str
    done: int
    failed: int
    missing: int
    """Not done, those that failed included"""
    minutes: float | None
    """Of a cell, mean of those that are done"""


@dataclass(frozen=True)
class Status:
    """All of a grid, or a part of it."""

    rows: tuple[Row, ...]
    failures: dict[str, str]
    """A cell's name -> why it failed"""
    hours_spent: float
    hours_left: float | None
    """None where no cell has been timed and the grid says nothing"""
    others: str = ""
    """Why `run` and `report` would refuse cells that count as done here"""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        head = ("split", "condition", "done", "failed", "missing", "minutes a cell")
        cells = [
            (
                row.split, row.condition, row.done, row.failed, row.missing,
                "–" if row.minutes is None else f"{row.minutes:.1f}",
            )
            for row in self.rows
        ]  # fmt: skip
        yield from table(head, cells, right=range(2, 6))
        if self.others:
            yield f"warning: {self.others}"
        yield from (f"failed: {name}: {why}" for name, why in self.failures.items())
        done, missing = (sum(getattr(row, key) for row in self.rows) for key in ("done", "missing"))
        left = "" if self.hours_left is None else f", about {self.hours_left:.1f} h left on one such machine"
        spent = f"{count(done, 'cell')} done in {self.hours_spent:.1f} h"
        yield f"{spent}, {missing} missing{left if missing else ''}"


def record_of(folder: Path, cell: Cell) -> Path:
    """Where the record of a cell lies."""
    return folder / RECORDS / f"{cell.name}.json"


def failure_of(folder: Path, cell: Cell) -> Path:
    """Where it is said why a cell failed."""
    return folder / FAILED / f"{cell.name}.txt"


def failures_of(asked: Iterable[Cell], known: Container[str], folder: Path) -> dict[str, str]:
    """Why those of the cells failed that are not `known` by their names, in a sentence each."""
    return {
        cell.name: failure_of(folder, cell).read_text(encoding="utf-8").partition("\n")[0]
        for cell in asked
        if cell.name not in known and failure_of(folder, cell).exists()
    }


def read_all(folder: Path) -> dict[str, CellRecord]:
    """The finished cells in a folder by name, also those of other grids; none in a folder that no study has
    begun in. Raises as `results.cells.read`, and MorphVlaError for a record in another's place.
    """
    records = {}
    for path in sorted((folder / RECORDS).glob("*/*/*.json")):
        record = read(path)
        if path != folder / RECORDS / f"{record.name}.json":
            raise MorphVlaError(f"{path}: holds the record of {record.name}, whose place is another")
        records[record.name] = record
    return records


def require_study(folder: Path) -> None:
    """Raise MorphVlaError for a folder in which no cell has ended: likely another one was meant."""
    if not any((folder / part).is_dir() for part in (RECORDS, FAILED)):
        missing = f"it has no '{RECORDS}'" if folder.is_dir() else "there is no such folder"
        raise MorphVlaError(f"{folder} holds no cells of a study: {missing}")


def status(grid: Grid, folder: Path, part: tuple[int, int] = (1, 1)) -> Status:
    """How the cells of a grid (or of one part) stand in a folder."""
    asked, known = cells(grid, part), read_all(folder)
    failures = failures_of(asked, known, folder)
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in asked:
        groups.setdefault((cell.split, cell.condition), []).append(cell)
    seconds = {cell.name: _seconds(known[cell.name]) for cell in asked if cell.name in known}
    rows = []
    for (split, condition), group in groups.items():
        done = [seconds[cell.name] for cell in group if cell.name in known]
        failed = sum(cell.name in failures for cell in group)
        minutes = fmean(done) / 60 if done else None
        rows.append(Row(split, condition, len(done), failed, len(group) - len(done), minutes))
    usual = fmean(seconds.values()) / 60 if seconds else grid.minutes
    left = sum(row.missing * (row.minutes or usual) for row in rows) / 60 if usual else None
    hours = sum(seconds.values()) / 3600
    return Status(tuple(rows), failures, hours, left, _others(grid, [known[name] for name in seconds]))


def _others(grid: Grid, done: Sequence[CellRecord]) -> str:
    """What keeps finished cells from being this grid's, in a sentence; nothing where they are."""
    try:
        require_same(grid, done)
    except MorphVlaError as error:
        return str(error)
    return ""


def _seconds(record: CellRecord) -> float:
    return float(sum(record.seconds.values()))
