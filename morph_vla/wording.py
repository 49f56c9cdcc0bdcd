"""How results put themselves into words: aligned tables, counted nouns, time."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any


def count(number: int, noun: str) -> str:
    """`1 joint`, `2 joints`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def span(seconds: float | int) -> str:
    """Seconds as a person says them: `4 s`, `12 min 30 s`, `1 h 05 min`."""
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    if whole < 60:
        return f"{whole} s"
    return f"{minutes} min {whole % 60:02d} s" if whole < 3600 else f"{hours} h {minutes % 60:02d} min"


def table(
    header: Sequence[str], rows: Iterable[Any], *, before: str = "", right: Iterable[int] = ()
) -> list[str]:
    """Lines of aligned columns: numbers, and the columns `right`, to the right, words to the left.

    A row is a sequence of cells, or a dataclass whose first fields they are. Every line begins with `before`.
    """
    values = [_cells(row)[: len(header)] for row in rows]
    cells = [list(header), *([_cell(value) for value in row] for row in values)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    numbers = {
        column
        for column in range(len(header))
        if values and all(isinstance(row[column], int | float) for row in values)
    } | set(right)
    lines = []
    for row in cells:
        aligned = (f"{c:{'>' if i in numbers else '<'}{widths[i]}}" for i, c in enumerate(row))
        lines.append((before + "  ".join(aligned)).rstrip())
    return lines


def _cells(row: Any) -> Sequence[object]:
    if dataclasses.is_dataclass(row):
        return [getattr(row, field.name) for field in dataclasses.fields(row)]
    return row


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
