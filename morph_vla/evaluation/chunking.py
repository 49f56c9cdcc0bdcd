"""Which actions of which answer an episode executes, and how far its targets jump where an answer takes over.

The policy is asked every `open_loop` control steps, and answers `latency` steps later; meanwhile the robot
goes on with the answer that it has. The clock of an episode begins once the first answer is there.
open_loop 4, latency 2:

    control step   0  1  2  3  4  5  6  7  8  9
    asked          a           b           c
    executed       a0 a1 a2 a3 a4 a5 b2 b3 b4 b5      at 6 b takes over, its third action first

Without real-time chunking b knows nothing of a (`naive`). With it b is told a4, a5, ..., of which the first
two will be executed whatever it answers (`pi05.realtime`). Pure functions.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError
from morph_vla.results.trial import Jumps


@dataclasses.dataclass(frozen=True)
class Chunking:
    """How answers are executed. Raises MorphVlaError where one would be replaced before it is there."""

    open_loop: int
    """Control steps from one question to the next"""
    latency: int = 0
    """Control steps from a question to its answer"""
    real_time: bool = False
    """Whether the policy is told what is executed meanwhile"""

    def __post_init__(self) -> None:
        if self.latency > self.open_loop:
            raise MorphVlaError(
                f"with a latency of {self.latency} control steps the next question would come before the "
                f"answer: ask every {self.latency} steps at least, not every {self.open_loop} (--open-loop)"
            )

    def facts(self) -> dict[str, Any]:
        """The fields of a record; where answers are there at once, each for itself, `open_loop` alone."""
        late = {"latency": self.latency, "real_time": self.real_time}
        return {"open_loop": self.open_loop, **(late if self.latency or self.real_time else {})}

    def check(self, rows: int) -> None:
        """Raise MorphVlaError for an answer of so many actions that the robot would run out of them."""
        if self.latency and rows < self.open_loop + self.latency:
            raise MorphVlaError(
                f"the policy answers with {rows} actions; {self.open_loop} are executed until it is asked "
                f"again, and {self.latency} more until it has answered: lower --open-loop or --latency"
            )

    def remaining(self, chunk: Float[np.ndarray, "h a"]) -> Float[np.ndarray, "r a"]:
        """What is left of a chunk when the next question is asked."""
        return chunk[self.open_loop :]

    def next(
        self, chunk: Float[np.ndarray, "h a"], before: Float[np.ndarray, "r a"] | None
    ) -> Float[np.ndarray, "n a"]:
        """The actions from a question to the next one; `before` are those left of the chunk before."""
        if before is None:
            return chunk[: self.open_loop]
        return np.concatenate([before[: self.latency], chunk[self.latency : self.open_loop]])

    def borders(self, counts: Sequence[int]) -> list[int]:
        """The control steps at which an answer took over; `counts` actions followed each question."""
        return [asked + self.latency for asked in itertools.accumulate(counts[:-1])]


def jumps(targets: Float[np.ndarray, "n j"], borders: Sequence[int]) -> Jumps | None:
    """How far the targets of an episode jump at its borders, and at all other steps; None without borders.

    The jump at step k is a_k - (2 a_{k-1} - a_{k-2}): how far the target lies from where the last two led,
    so that motion at a constant speed has none. In the units of the targets.
    """
    bends = np.diff(targets.astype(np.float64), n=2, axis=0)  # row k is of step k + 2
    at_border = np.isin(np.arange(len(bends)) + 2, list(borders))
    there, elsewhere = bends[at_border], bends[~at_border]
    if not there.size:
        return None
    rms = _rms(elsewhere) if elsewhere.size else 0.0
    return Jumps(len(there), _rms(there), float(np.abs(there).max()), len(elsewhere), rms)


def _rms(values: Float[np.ndarray, "n j"]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
