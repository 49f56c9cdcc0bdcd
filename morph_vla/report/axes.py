"""Axes: values to user units of an SVG, and the labels along them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10

from morph_vla.report.markup import Markup, text
from morph_vla.results.values import Real

WIDTH = 460.0  # user units: near the pixels of a phone, so that the letters stay legible there


@dataclass(frozen=True)
class Axis:
    """A mapping from values to user units, with the values at which it is labelled."""

    place: Callable[[float], float]
    ticks: tuple[float, ...]


def linear_axis(low: Real, high: Real, start: Real, end: Real, about: int = 5) -> Axis:
    """A straight axis from `low` at `start` to `high` at `end`, with round labels inside it."""
    span = high - low or 1.0
    step = _round_step(span / about)
    ticks = tuple(step * i for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1))
    return Axis(lambda value: start + (value - low) / span * (end - start), ticks)


def log_axis(low: Real, high: Real, start: Real, end: Real) -> Axis:
    """A logarithmic axis of positive values, labelled at 1, 2 and 5 of a decade (at 1 when it spans many)."""
    first, last = log10(low), log10(high)
    span = last - first or 1.0
    digits = (1,) if span > 3 else (1, 2, 5)
    every = (digit * 10.0**power for power in range(floor(first), ceil(last) + 1) for digit in digits)
    ticks = tuple(tick for tick in every if low * 0.999 <= tick <= high * 1.001)
    return Axis(lambda value: start + (log10(value) - first) / span * (end - start), ticks)


def across(rate: Real) -> float:
    """Where a rate in [0, 1] stands on an axis over the whole width."""
    return rate * WIDTH


def rate_tick(rate: Real, y: Real, words: str) -> Markup:
    """A label under a rate axis; the outermost two stay inside the picture."""
    anchor = "start" if rate == 0 else "end" if rate == 1 else "middle"
    return text(across(rate), y, words, anchor, "tick")


def foot(x: Real, y: Real, words: str) -> Markup:
    """A label under an axis, centred."""
    return text(x, y, words, "middle", "tick")


def _round_step(rough: Real) -> float:
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
