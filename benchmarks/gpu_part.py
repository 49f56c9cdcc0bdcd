"""What one part of `make gpu` is asked for, and what it gives back."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Work, take_turns

Row = dict[str, Any]
BATCHES = {"small": (1, 2, 3), "mid": (1, 2, 4), "full": (8, 32, 64)}


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    folder: Path
    size: str
    repeats: int
    openpi: Path | None
    dataset: Path | None

    @property
    def batch(self) -> int:
        """The batch of a step where one is measured."""
        return BATCHES[self.size][1]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a part measured; or why it did not, in a sentence."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    note: str = ""
    not_possible: str = ""
    failed: str = ""
    seconds: float = 0.0


def milliseconds(run: Work, repeats: int) -> float:
    """The median time of a call, the first one left out."""
    return 1e3 * take_turns({"": run}, repeats)[""]


Part = Callable[[Asked], Result]
