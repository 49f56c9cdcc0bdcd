"""Plain values of unknown kind, read leniently: what is not of the kind asked for counts as absent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import isfinite
from typing import Any

Real = float | int  # a coordinate or a rate: 0 and 1 are as good as 0.0 and 1.0


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def listing(value: object) -> Sequence[object]:
    """The value if it is a list or a tuple, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def real(value: object) -> Real | None:
    """The value if it is a finite number, integers kept as integers, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return value


def number(value: object) -> float | None:
    """The value as a float if it is a finite number, else None."""
    finite = real(value)
    return None if finite is None else float(finite)


def integer(value: object) -> int | None:
    """The value if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def boolean(value: object) -> bool | None:
    """The value if it is true or false, else None."""
    return value if isinstance(value, bool) else None


def text(value: object) -> str | None:
    """The value if it is a text, else None."""
    return value if isinstance(value, str) else None


def numbers(value: object) -> list[Real] | None:
    """The value if it is a list of finite numbers, else None."""
    if not isinstance(value, list | tuple):
        return None
    finite = [item for item in map(real, value) if item is not None]
    return finite if len(finite) == len(value) else None


READERS: dict[object, Callable[[object], object]] = {
    str | None: text,
    int | None: integer,
    bool | None: boolean,
    Real | None: real,
    list[Real] | None: numbers,
    Mapping[str, object] | None: lambda value: value if isinstance(value, Mapping) else None,
}


def optional_fields(kind: type, plain: Mapping[str, object]) -> dict[str, Any]:
    """The values of those fields of a dataclass that may be None and are of a simple type, by name."""
    return {
        field.name: READERS[field.type](plain.get(field.name))
        for field in fields(kind)
        if field.type in READERS
    }
