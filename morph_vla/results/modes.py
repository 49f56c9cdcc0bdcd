"""In which of its several ways a task was done, and how evenly: the entropy of the modes.

Where n objects may go into any of n targets, in any order, there are n! x n! ways. Demonstrations that take
all of them alike have an entropy of log2 of that many bits; a policy that has kept one way has none.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from morph_vla.results.trial import Trial

Placed = Sequence[tuple[str, str]]
"""(object, target), in the order in which the objects came to lie there"""


def label(placed: Placed) -> str:
    """`red_block in near_square, green_block in far_square`: the first one first."""
    return ", ".join(f"{thing} in {target}" for thing, target in placed)


@dataclass(frozen=True)
class Modes:
    """How often each way was taken."""

    counts: Mapping[str, int]
    """`label` -> episodes, most frequent first."""
    entropy: float
    """[bit] of these counts."""
    most: float
    """[bit] where all ways are taken alike."""

    def __str__(self) -> str:
        """`modes of 6 episodes: red in near, green in far 4; ...; entropy 0.92 of 2.00 bits`."""
        each = "; ".join(f"{name} {count}" for name, count in self.counts.items())
        total = sum(self.counts.values())
        return f"modes of {total} episodes: {each}; entropy {self.entropy:.2f} of {self.most:.2f} bits"


def modes(labels: Iterable[str]) -> Modes | None:
    """Of the labels of successful episodes; None without any."""
    counts = dict(Counter(labels).most_common())
    if not counts:
        return None
    total, objects = sum(counts.values()), next(iter(counts)).count(", ") + 1
    entropy = -sum(count / total * math.log2(count / total) for count in counts.values())
    return Modes(counts, entropy + 0.0, 2 * math.log2(math.factorial(objects)))


@dataclass(frozen=True)
class Sorting:
    """How far trials with several objects came, and which way those took that succeeded."""

    placed: Mapping[int, int]
    """How many targets have an object in them at the end -> trials, the most first."""
    modes: Modes | None
    """None where nothing succeeded."""

    def __str__(self) -> str:
        """`objects placed at the end: 2 in 7, 1 in 2, 0 in 1 of 10 episodes`, and the modes."""
        each = ", ".join(f"{number} in {count}" for number, count in self.placed.items())
        text = f"objects placed at the end: {each} of {sum(self.placed.values())} episodes"
        return f"{text}\n{self.modes}" if self.modes else text


def sorting(trials: Sequence[Trial]) -> Sorting | None:
    """Of the trials of one task; None where no trial says where several objects lie."""
    if not any(trial.placed for trial in trials):
        return None
    counts = Counter(len({target for _, target in trial.placed}) for trial in trials)
    placed = dict(sorted(counts.items(), reverse=True))
    return Sorting(placed, modes(label(trial.placed) for trial in trials if trial.success))
