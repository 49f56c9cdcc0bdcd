"""The charts with axes: success with intervals, the difference, and the training curve."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from morph_vla.sim.report.markup import (
    Markup,
    Real,
    bracket,
    count,
    el,
    line,
    mapping,
    number,
    percent,
    points,
    svg,
    text,
)
from morph_vla.sim.report.reading import Evaluation

WIDTH = 460.0  # user units: near the pixels of a phone, so that the letters stay legible there
POINTS = 600  # of a curve; more cannot be told apart at this width


def success_bars(evaluations: Sequence[Evaluation]) -> Markup:
    """A bar for each evaluation's success rate, with its Wilson interval as a whisker."""
    gap = 58
    height = gap * len(evaluations) + 26
    says = "; ".join(
        f"{e.label} {percent(e.summary['rate'])} {bracket(e.summary['low'], e.summary['high'])}"
        for e in evaluations
    )
    rows = [_success_row(e, gap * place, last=e is evaluations[-1]) for place, e in enumerate(evaluations)]
    bottom = height - 20
    grid = [
        (
            line(_across(tick), 20, _across(tick), bottom, "grid"),
            _rate_tick(tick, height - 6, f"{tick:.0%}"),
        )
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    return svg(f"Success rate with 95% Wilson interval: {says}", WIDTH, height, grid, rows)


def difference_bar(comparison: Mapping[str, Any]) -> Markup | None:
    """The difference of two success rates with its Newcombe interval, on an axis from -100 to +100 points."""
    if comparison["difference"] is None:
        return None
    low, middle, high = (_across((comparison[key] + 1) / 2) for key in ("low", "difference", "high"))
    bounds = ", ".join(points(comparison[key]) for key in ("low", "high"))
    ticks = [
        (line(_across(x), 8, _across(x), 38, "axis" if x == 0.5 else "grid"), _rate_tick(x, 54, words))
        for x, words in ((0.0, "−100"), (0.25, "−50"), (0.5, "0"), (0.75, "+50"), (1.0, "+100"))
    ]
    dot = el("circle", cx=middle, cy=23.0, r=5, class_="dot")
    says = f"{points(comparison['difference'])} points [{bounds}]"
    title = f"{comparison['b']} minus {comparison['a']}: {says}"
    return svg(title, WIDTH, 60, ticks, _whisker(low, high, 23.0), dot)


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


def training_curve(curve: Sequence[object]) -> Markup | None:
    """Loss and held-out loss against steps, logarithmic, the learning rate below; None without a loss."""
    loss, held, rate = (_series(curve, key) for key in ("loss", "held_out_loss", "lr"))
    values = [value for _, value in loss + held]
    if len(loss) < 2 or min(values) <= 0:
        return None
    left, right, bottom = 52.0, WIDTH - 6.0, 230.0
    steps = [step for step, _ in loss + held + rate]
    across = linear_axis(min(steps), max(steps), left, right)
    up = log_axis(min(values) / 1.1, max(values) * 1.1, bottom, 10.0)
    parts = [
        [
            (line(left, up.place(t), right, up.place(t), "grid"), _side(left, up.place(t), t))
            for t in up.ticks
        ],
        _path(loss, across, up, "raw") if len(loss) > 20 else None,
        _path(_smooth(loss), across, up, "curve"),
        _path(held, across, up, "held") if len(held) > 1 else None,
        [
            el("circle", cx=across.place(x), cy=up.place(y), r=3, class_="held-dot")
            for x, y in _thin(held, 40)
        ],
    ]
    height = 300.0 if rate else 262.0
    if rate:
        parts.append(_rate_panel(rate, across, left, right))
    below = height - 20
    for tick in across.ticks:
        parts.append([line(across.place(tick), below, across.place(tick), below + 4, "axis")])
        parts.append(_tick(across.place(tick), height - 4, count(tick)))
    axes = (line(left, bottom, right, bottom, "axis"), line(left, 10, left, bottom, "axis"))
    title = (
        f"Training: loss {loss[0][1]:.3g} at step {loss[0][0]:g}, {loss[-1][1]:.3g} at step {loss[-1][0]:g}"
    )
    if held:
        title += f"; held-out loss {held[-1][1]:.3g} at step {held[-1][0]:g}"
    return svg(title, WIDTH, height, parts, axes)


def _rate_panel(rate: list[tuple[float, float]], across: Axis, left: Real, right: Real) -> list[Markup]:
    top = max(value for _, value in rate) or 1.0
    up = linear_axis(0.0, top, 280.0, 246.0)
    return [
        line(left, 280, right, 280, "axis"),
        _side(left, 249.0, top),
        _path(rate, across, up, "rate"),
        text(right, 246, "learning rate", "end", "tick"),
    ]


def _success_row(evaluation: Evaluation, top: Real, last: bool) -> list[Markup]:
    summary, middle = evaluation.summary, top + 34.0
    rate = summary["rate"]
    words = percent(rate) if rate is None else f"{percent(rate)}  {bracket(summary['low'], summary['high'])}"
    parts = [
        text(_across(0), top + 16, evaluation.label[:34], class_="label"),
        text(_across(1), top + 16, words, "end", "value"),
        el("rect", x=_across(0), y=middle - 9, width=_across(1) - _across(0), height=18, class_="track"),
    ]
    if rate is not None:
        kind = "bar last" if last else "bar"
        parts.append(
            el("rect", x=_across(0), y=middle - 9, width=_across(rate) - _across(0), height=18, class_=kind)
        )
        parts.append(_whisker(_across(summary["low"]), _across(summary["high"]), middle))
    return parts


def _whisker(low: Real, high: Real, middle: Real) -> Markup:
    caps = (line(x, middle - 5, x, middle + 5, "whisker") for x in (low, high))
    return el("g", line(low, middle, high, middle, "whisker"), caps)


def _across(rate: Real) -> float:
    return rate * WIDTH


def _rate_tick(rate: Real, y: Real, words: str) -> Markup:
    """A label under a rate axis; the outermost two stay inside the picture."""
    anchor = "start" if rate == 0 else "end" if rate == 1 else "middle"
    return text(_across(rate), y, words, anchor, "tick")


def _tick(x: Real, y: Real, words: str) -> Markup:
    return text(x, y, words, "middle", "tick")


def _side(left: Real, y: Real, value: Real) -> Markup:
    return text(left - 6, y + 4, f"{value:.3g}".replace("e-0", "e-"), "end", "tick")


def _series(curve: Sequence[object], key: str) -> list[tuple[float, float]]:
    """(step, value) of every entry that has both as finite numbers."""
    pairs = [(number(mapping(entry).get("step")), number(mapping(entry).get(key))) for entry in curve]
    return _thin(sorted((x, y) for x, y in pairs if x is not None and y is not None), POINTS)


def _thin(series: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most about `most` points: means over equal runs, the last point kept."""
    run = ceil(len(series) / most) if series else 1
    if run == 1:
        return series
    runs = [series[i : i + run] for i in range(0, len(series), run)]
    means = [(sum(x for x, _ in r) / len(r), sum(y for _, y in r) / len(r)) for r in runs]
    return [*means[:-1], series[-1]]


def _smooth(series: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A centred running mean over a twentieth of a long curve; a short one as it is."""
    if len(series) <= 20:
        return series
    reach = max(1, len(series) // 40)
    windows = [series[max(0, i - reach) : i + reach + 1] for i in range(len(series))]
    return [(series[i][0], sum(y for _, y in window) / len(window)) for i, window in enumerate(windows)]


def _path(series: list[tuple[float, float]], across: Axis, up: Axis, class_: str) -> Markup:
    coordinates = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in series)
    return el("polyline", points=coordinates, class_=class_)


def _round_step(rough: Real) -> float:
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
