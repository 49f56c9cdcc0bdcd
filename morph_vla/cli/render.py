"""The one way a command answers: dataclasses as JSON, or lines of words and tables."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from morph_vla.files.plain import to_plain


def render(
    answer: Any, as_json: bool, lines: Callable[[Any], Iterable[str]], *properties: str, **more: object
) -> None:
    """Print an answer as JSON, or as the lines that `lines(answer)` makes of it.

    JSON has a dataclass's fields, the `properties` named and the values `more`; of a list, each item has.
    """
    if as_json:
        print_json(answer, *properties, **more)
    else:
        print("\n".join(lines(answer)))


def print_json(answer: Any, *properties: str, **more: object) -> None:
    """Print JSON that every reader accepts: what is not finite becomes null. See `render`."""
    if isinstance(answer, list | tuple) and (properties or more):
        plain = [_beside(item, properties, more) for item in answer]
    else:
        plain = _beside(answer, properties, more) if properties or more else to_plain(answer)
    print(json.dumps(_finite(plain), indent=2, ensure_ascii=False, allow_nan=False))


def _beside(item: Any, properties: Sequence[str], more: dict[str, object]) -> dict[str, Any]:
    return {**to_plain(item), **to_plain({name: getattr(item, name) for name in properties} | more)}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


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
