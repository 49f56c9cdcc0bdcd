"""Which sample comes at which step: a pure function of (seed, step), over one dataset or several by weight.

Each dataset's order is grain's (`MapDataset`: shuffled passes without end, any place found at once), so a
resumed run, any number of loader threads and any number of processes see the same samples in the same places.
The interleaving is ours: grain's `mix` rounds the shares to a percent of the smallest, and mixes rows only.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from morph_vla.errors import MorphVlaError, require

By = Literal["batch", "row"]


@dataclasses.dataclass(frozen=True)
class Mixture:
    """An endless order of rows of several datasets.

    A place in it is one row; step s of a batch b takes the places s * b to s * b + b - 1. Make it with `mix`.
    """

    rows: tuple[Int[np.ndarray, "_"], ...]  # the rows of each dataset that are drawn
    weights: tuple[int, ...]  # whole numbers in the proportions asked for
    passes: tuple[Any, ...]  # grain's MapDataset of each dataset: place -> index into its rows
    batch: int
    by: By

    def at(
        self, step: int, process: int = 0, processes: int = 1
    ) -> tuple[Int[np.ndarray, "b"], Int[np.ndarray, "b"]]:
        """(dataset, row) of one step; of several processes each takes its share, in order.

        The shares joined are what one process would have drawn. Raises MorphVlaError when the batch cannot
        be shared evenly.
        """
        if self.batch % processes:
            raise MorphVlaError(f"a batch of {self.batch} cannot be shared by {processes} processes evenly")
        share = self.batch // processes
        inside = np.arange(process * share, (process + 1) * share)
        if self.by == "batch":
            dataset, turn = interleave(np.full(share, step), self.weights)
            place = turn * self.batch + inside
        else:
            dataset, place = interleave(step * self.batch + inside, self.weights)
        pairs = zip(dataset.tolist(), place.tolist(), strict=True)
        return dataset, np.array([self.rows[d][self.passes[d][p]] for d, p in pairs], np.int64)


def row_counts(mixture: Mixture, steps: int) -> list[int]:
    """How many rows of each dataset the first `steps` steps draw."""
    places = steps if mixture.by == "batch" else steps * mixture.batch
    counts, left, remaining = [], places, sum(mixture.weights)
    for weight in mixture.weights:  # as in `interleave`
        later = left * (remaining - weight) // remaining
        counts.append(left - later)
        left, remaining = later, remaining - weight
    return [count * (mixture.batch if mixture.by == "batch" else 1) for count in counts]


def interleave(
    places: Int[np.ndarray, "b"], weights: tuple[int, ...]
) -> tuple[Int[np.ndarray, "b"], Int[np.ndarray, "b"]]:
    """Which dataset each place of an endless mixture belongs to, and how many places it had before.

    Of the first k places that the datasets i, i+1, ... share, whose weights sum to R, dataset i has
    k - floor(k (R - w_i) / R), and the later ones the rest. Two datasets at 3 : 1, places 0 to 7:

        0 0 0 1 0 0 0 1
    """
    remaining = sum(weights)
    if len(places) and (int(np.max(places)) + 1) * remaining > np.iinfo(np.int64).max:
        places = places.astype(object)  # Python's whole numbers have no end
    dataset, before = np.full(len(places), -1), np.zeros(len(places), places.dtype)
    here, next_place = places, places + 1
    for index, weight in enumerate(weights):
        left_here, left_next = (k * (remaining - weight) // remaining for k in (here, next_place))
        its = (dataset < 0) & (next_place - left_next > here - left_here)
        dataset = np.where(its, index, dataset)
        before = np.where(its, here - left_here, before)
        here, next_place, remaining = left_here, left_next, remaining - weight
    return dataset, before.astype(np.int64)


def mix(
    rows: Sequence[Int[np.ndarray, "_"]],
    weights: Sequence[float | int],
    batch: int,
    seed: int,
    by: By = "row",
) -> Mixture:
    """The order in which the rows of several datasets are drawn, in the shares of `weights`.

    Each dataset is passed over again and again, every pass shuffled anew from the seed and the dataset's
    number. `by` "row" mixes rows within a batch; "batch" draws every batch from one dataset (the paper: 8:2).
    The shares are met as exactly as whole numbers allow at every point of the run.

    Raises MorphVlaError for a dataset without rows, and for weights that are not positive.
    """
    for index, (of_dataset, weight) in enumerate(zip(rows, weights, strict=True)):
        if len(of_dataset) == 0:
            raise MorphVlaError(f"dataset {index} of the mixture has no rows to draw")
        if not 0 < weight < float("inf"):
            raise MorphVlaError(f"dataset {index} of the mixture: weight must be more than 0, not {weight:g}")
    ordered = require("grain", "lerobot").MapDataset.range
    passes = tuple(
        ordered(len(of_dataset)).seed(_hashed(f"{seed}/{index}")).shuffle().repeat()
        for index, of_dataset in enumerate(rows)
    )
    shares = [_fraction(weight) for weight in weights]
    common = math.lcm(*(share.denominator for share in shares))
    whole = [int(share * common) for share in shares]  # divided, the smallest numbers in these proportions
    return Mixture(tuple(rows), tuple(n // math.gcd(*whole) for n in whole), passes, batch, by)


def ahead(at: Callable[[int], Any], start: int, steps: int, threads: int) -> Iterator[Any]:
    """at(start), ..., at(steps - 1) in order, made ahead by `threads` of grain's threads.

    So many are under way at once, and twice as many may lie ready; their number changes the pace alone.
    """
    if start >= steps:
        return iter(())
    grain = require("grain", "lerobot")

    def tried(step: int) -> tuple[Any, MorphVlaError | None]:
        """What a step gives, and what it raised: grain would add lines of its own to the sentence."""
        try:
            return at(step), None
        except MorphVlaError as error:
            return None, error

    def unwrapped() -> Iterator[Any]:
        """The items, until one raises."""
        for item, error in items:
            if error is not None:
                raise error
            yield item

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    items = iter(grain.MapDataset.range(start, steps).map(tried).to_iter_dataset(options))
    return unwrapped()


def _fraction(weight: float | int) -> Fraction:
    """A weight as it is written; a third is meant by 0.333333333, and a tiny one is not made nothing."""
    written = Fraction(repr(weight))
    short = written.limit_denominator(10**6)
    return short if abs(short - written) < written / 1000 else written


def _hashed(text: str) -> int:
    """32 bits that differ for every text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def shared(episodes: Sequence[int], share: float | int) -> tuple[int, ...]:
    """Of these numbers of episodes about `share`, by a stable hash: a larger share keeps a smaller's."""
    if share == 1:
        return tuple(episodes)
    marks = held_out(max(episodes, default=-1) + 1, share, "share")
    return tuple(index for index in episodes if marks[index])


HELD_TWICE = (
    "which are held out goes by their places among the chosen: give both entries the same episodes or "
    "different ones, or held_out: 0"
)


def held_otherwise(chosen: Iterable[tuple[Path, Mapping[int, bool]]]) -> tuple[int, int] | None:
    """(place, episode): the first that an entry of a mixture trains on and one before it holds out, or so.

    `chosen` are each entry's dataset and which of its episodes are held out. One folder may be spelled in
    two ways.
    """
    known: dict[Path, dict[int, bool]] = {}
    for place, (folder, episodes) in enumerate(chosen):
        before = known.setdefault(folder.resolve(), {})
        for episode, is_held in episodes.items():
            if before.setdefault(episode, is_held) != is_held:
                return place, episode
    return None


def held_out(episodes: int, share: float, salt: str = "") -> Bool[np.ndarray, "e"]:
    """Which episodes are held out: by a stable hash of their place, so that growing a dataset moves none.

    Where a recipe chooses episodes or a share of them, the place is among those that were chosen.
    """
    return np.asarray([_hashed(f"{salt}/{index}") / 2**32 < share for index in range(episodes)], bool)
