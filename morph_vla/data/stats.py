"""Statistics of states and actions, from values alone: no pixel is decoded."""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.wording import table

LOG = logging.getLogger(__name__)
MIN_SPAN = 1e-2  # a dimension whose q99 - q01 is smaller is widened: at 1e-6 a loss of 40,000 was reported
LARGEST = 1e15  # of a robot's values and what they are normalised by: float32 reckons with no more
POSE_SPAN = 0.2  # [m], or of a quaternion's value: see `of_environment`


@dataclasses.dataclass(frozen=True)
class Stats:
    """Per-dimension statistics of one feature, in dataset units."""

    q01: tuple[float, ...]
    q99: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, x: Float[np.ndarray, "*b d"]) -> Float[np.ndarray, "*b d"]:
        """(x - q01) / (q99 - q01 + 1e-6) * 2 - 1, not clipped (openpi: `transforms.py`)."""
        low, span = self._range()
        return ((x - low) / span * 2 - 1).astype(np.float32)

    def restore(self, x: Float[np.ndarray, "*b d"]) -> Float[np.ndarray, "*b d"]:
        """The inverse of `normalise`."""
        low, span = self._range()
        return ((x + 1) / 2 * span + low).astype(np.float32)

    def _range(self) -> tuple[np.ndarray, np.ndarray]:
        low = np.asarray(self.q01, np.float64)
        return low, np.asarray(self.q99, np.float64) - low + 1e-6


def measure(values: Float[np.ndarray, "n d"]) -> Stats:
    """Exact quantiles, mean and standard deviation per dimension, in float64, as they are."""
    wide = values.astype(np.float64)
    mean, std = wide.mean(axis=0), wide.std(axis=0)
    low, high = np.quantile(wide, [0.01, 0.99], axis=0, overwrite_input=True)  # spares a copy of all values
    return Stats(*(tuple(float(v) for v in x) for x in (low, high, mean, std)))


def narrow(stats: Stats) -> list[int]:
    """The dimensions that hardly move: narrower than MIN_SPAN between their quantiles."""
    return np.flatnonzero(np.subtract(stats.q99, stats.q01) < MIN_SPAN).tolist()


def widened(stats: Stats, names: tuple[str, ...] = ()) -> Stats:
    """Dimensions that hardly move are widened to MIN_SPAN about their middle, and named in one warning.

    Divided by its own width, noise in such a one would outweigh every other joint.
    """
    low, high, named = list(stats.q01), list(stats.q99), []
    for d in narrow(stats):
        name = names[d] if d < len(names) else f"value {d}"
        named.append(f"{name} (q01 {low[d]:.4g}, q99 {high[d]:.4g})")
        middle = (low[d] + high[d]) / 2
        low[d], high[d] = middle - MIN_SPAN / 2, middle + MIN_SPAN / 2
    if named:
        words = "hardly moves: its range is" if len(named) == 1 else "hardly move: their ranges are"
        LOG.warning("%s %s widened to %g", ", ".join(named), words, MIN_SPAN)
    return dataclasses.replace(stats, q01=tuple(low), q99=tuple(high))


def rows_of(features: Iterable[tuple[str, Stats, Sequence[str]]]) -> list[str]:
    """A table with a row for each value; names are left out where there is not one for each."""
    rows = []
    for feature, stats, names in features:
        named = names if len(names) == len(stats.mean) else [""] * len(stats.mean)
        numbers = zip(named, stats.q01, stats.q99, stats.mean, stats.std, strict=True)
        rows += [(feature, value, *row) for value, row in enumerate(numbers)]
    return table(["feature", "value", "name", "q01", "q99", "mean", "std"], rows)


def of_environment(values: Float[np.ndarray, "n e"]) -> Stats:
    """Statistics of poses [m, or a quaternion's], no range narrower than POSE_SPAN.

    Most objects stand upright, and one that falls over must not be a hundred ranges away.
    """
    known = measure(values)
    low, high = np.asarray(known.q01), np.asarray(known.q99)
    more = np.maximum(POSE_SPAN - (high - low), 0) / 2
    return dataclasses.replace(known, q01=tuple((low - more).tolist()), q99=tuple((high + more).tolist()))


def joined(parts: Sequence[Stats]) -> Stats:
    """The dimensions of several, side by side."""
    keys = [field.name for field in dataclasses.fields(Stats)]
    return Stats(**{key: tuple(v for part in parts for v in getattr(part, key)) for key in keys})


def from_plain(kept: Mapping[str, Any]) -> Stats:
    """Statistics read from JSON; raises KeyError, TypeError or ValueError if they are malformed."""
    keys = [field.name for field in dataclasses.fields(Stats)]
    try:
        values = {key: tuple(float(value) for value in kept[key]) for key in keys}
    except OverflowError as error:  # an integer of 400 digits
        raise ValueError(str(error)) from error
    if len({*map(len, values.values())}) != 1 or not np.isfinite([*values.values()]).all():
        raise ValueError("expected one finite number per dimension")
    if (largest := np.abs([*values.values()]).max(initial=0.0)) > LARGEST:
        raise ValueError(f"{largest:g} is no value of a robot's")
    for index, (low, high, std) in enumerate(zip(values["q01"], values["q99"], values["std"], strict=True)):
        if high < low:
            raise ValueError(f"q99 of value {index}, {high:g}, is below its q01, {low:g}")
        if std < 0:
            raise ValueError(f"std of value {index} is {std:g}")
    return Stats(**values)
