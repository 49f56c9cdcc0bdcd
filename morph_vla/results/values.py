"""Plain values of unknown kind, read leniently: what is not of the kind asked for counts as absent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

T = TypeVar("T")
LARGEST = 1e15  # of any number that a record has; a stranger's may have 400 digits
Real = float | int  # a coordinate or a rate: 0 and 1 are as good as 0.0 and 1.0


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def listing(value: object) -> Sequence[object]:
    """The value if it is a list or a tuple, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def real(value: object) -> Real | None:
    """The value if it is a number of at most LARGEST, integers kept as integers, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return value


def number(value: object) -> float | None:
    """The value as a float if it is a finite number, else None."""
    finite = real(value)
    return None if finite is None else float(finite)


def integer(value: object) -> int | None:
    """The value if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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
    str: lambda value: text(value) or "",
    bool: lambda value: value is True,
    Mapping[str, object]: mapping,
    Mapping[str, str]: lambda value: {str(name): str(item) for name, item in mapping(value).items()},
    Mapping[str, Real]: lambda value: {
        key: item for key, item in mapping(value).items() if real(item) is not None
    },
    tuple[str, ...]: lambda value: tuple(map(str, listing(value))),
    tuple[Mapping[str, object], ...]: lambda value: tuple(map(mapping, listing(value))),
    str | None: text,
    int | None: integer,
    bool | None: lambda value: value if isinstance(value, bool) else None,
    Real | None: real,
    list[Real] | None: numbers,
    tuple[str, ...] | None: lambda value: None if value is None else tuple(map(str, listing(value))),
    Mapping[str, object] | None: lambda value: value if isinstance(value, Mapping) else None,
}


def read_as(kind: type[T], plain: Mapping[str, object], **known: object) -> T:
    """A dataclass of `known` fields and of those of a simple type, by their names in `plain`.

    A field `others` holds what `plain` says beyond the fields.
    """
    types = {field.name: field.type for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    simple = {name: READERS[of](plain.get(name)) for name, of in types.items() if of in READERS}
    if "others" in types:
        simple["others"] = {name: value for name, value in plain.items() if name not in types}
    return kind(**{**simple, **known})
