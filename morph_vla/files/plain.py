"""Dataclasses as plain values, for JSON and YAML."""

import dataclasses
import enum
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError


def to_plain(value: Any) -> Any:
    """A dataclass (or any nesting of them) as dicts, lists, words and numbers, for JSON and YAML.

    NumPy scalars and arrays become numbers and lists, paths become words. Raises MorphVlaError for
    anything else.
    """
    if isinstance(value, enum.Enum):
        return to_plain(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        item = getattr(value, "item", None)  # NumPy's float64 is a float too
        return item() if item else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(to_plain(item) for item in value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    tolist = getattr(value, "tolist", None)  # an array or scalar of NumPy, without importing it
    if tolist:
        return tolist()
    raise MorphVlaError(f"a {type(value).__name__} cannot be written as JSON or YAML")


def as_typed(path: Path) -> str:
    """A path as a person would type it: relative to the current folder where it lies below, else its name."""
    absolute, here = path.resolve(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else path.name


def numbers(plain: Any, at: str = "") -> Iterator[tuple[str, float]]:
    """The numbers with a fraction among plain values, by their keys."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from numbers(value, f"{at}.{key}".strip("."))
    elif isinstance(plain, list):
        for value in plain:
            yield from numbers(value, at)
    elif isinstance(plain, float):
        yield at, plain


def infinite(plain: Any) -> Iterator[tuple[str, float]]:
    """Those that are not finite."""
    return ((key, value) for key, value in numbers(plain) if not math.isfinite(value))
