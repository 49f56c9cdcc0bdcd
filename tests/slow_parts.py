"""`--slow-part K/N`: one part in N of the slow tests, so that a change waits for some of them.

A file is in a part as a whole, because its tests share fixtures and what was compiled.
"""

import zlib
from argparse import ArgumentTypeError
from collections.abc import Iterable
from typing import NamedTuple

import pytest


class Part(NamedTuple):
    """The `index`-th of `count`, from 1."""

    index: int
    count: int

    def holds(self, path: str) -> bool:
        """Whether a test file is in this part; the same on every machine."""
        return zlib.crc32(path.encode()) % self.count == self.index - 1


def part(text: str) -> Part:
    """`2/3`; refused in words, if it is none."""
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
        return Part(int(index), int(count))
    raise ArgumentTypeError(f"a part is K/N with K from 1 to N, as 2/3; got {text!r}")


def left_out(items: Iterable[pytest.Item], part: Part) -> list[pytest.Item]:
    """The slow tests of the other parts."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    return [item for item in slow if not part.holds(item.nodeid.partition("::")[0])]
