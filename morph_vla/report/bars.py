"""Charts of rates: success with intervals, differences, and how the trials ended."""

from collections.abc import Sequence

from morph_vla.report.axes import WIDTH, across, rate_tick
from morph_vla.report.markup import Markup, bracket, el, line, percent, points, svg, text
from morph_vla.results.comparison import RateDifference
from morph_vla.results.statistics import Rates
from morph_vla.results.values import Real


def success_bars(rows: Sequence[tuple[str, Rates]], of: str = "") -> Markup:
    """A bar for each success rate (its label and summary), with its Wilson interval as a whisker."""
    gap = 58
    height = gap * len(rows) + 26
    says = "; ".join(f"{label} {percent(s.rate)} {bracket(s.low, s.high)}" for label, s in rows)
    bars = [
        _success_row(label, s, gap * place, last=place == len(rows) - 1)
        for place, (label, s) in enumerate(rows)
    ]
    bottom = height - 20
    grid = [
        (
            line(across(tick), 20, across(tick), bottom, "grid"),
            rate_tick(tick, height - 6, f"{tick:.0%}"),
        )
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    title = f"Success rate{f' of {of}' if of else ''} with 95% Wilson interval: {says}"
    return svg(title, WIDTH, height, grid, bars)


def difference_bars(name: str, rows: Sequence[tuple[str, RateDifference]]) -> Markup | None:
    """Differences of success rates with their intervals, a row each, from -100 to +100 points."""
    known = [
        (label, row.difference, row.measured)
        for label, row in rows
        if row.difference is not None and row.measured
    ]
    if not known:
        return None
    single = len(known) == 1
    gap, top = (30, 8) if single else (44, 0)
    bottom = top + gap * len(known) + (0 if single else 4)
    parts, says = [], []
    for place, (label, difference, bounds) in enumerate(known):
        y = top + gap * (place + 0.5) + (0 if single else 9)
        low, middle, high = (across((value + 1) / 2) for value in (bounds.low, difference, bounds.high))
        words = f"[{points(bounds.low)}, {points(bounds.high)}]"
        says.append(f"{label} {points(difference)} points {words}".strip())
        if not single:
            parts.append(text(across(0), y - 14, label, class_="label"))
            parts.append(text(across(1), y - 14, f"{points(difference)}  {words}", "end", "value"))
        parts += [_whisker(low, high, y), el("circle", cx=middle, cy=y, r=5, class_="dot")]
    ticks = [
        (
            line(across(x), top, across(x), bottom, "axis" if x == 0.5 else "grid"),
            rate_tick(x, bottom + 16, words),
        )
        for x, words in ((0.0, "−100"), (0.25, "−50"), (0.5, "0"), (0.75, "+50"), (1.0, "+100"))
    ]
    return svg(f"{name}: {'; '.join(says)}", WIDTH, bottom + 22, ticks, parts)


def outcome_bars(rows: Sequence[tuple[str, Rates]], clauses: Sequence[str]) -> Markup:
    """How the trials of each row ended, as shares of all of them: success, each clause, error.

    The n-th clause has the class `s-n`, the same in every row.
    """
    gap, height = 48, 48 * len(rows) + 24
    parts, says = [], []
    for place, (label, s) in enumerate(rows):
        top, at = gap * place, 0.0
        counts = [("s-success", "success", s.successes)]
        counts += [(f"s-{i}", name, s.failed_clauses.get(name, 0)) for i, name in enumerate(clauses)]
        counts.append(("s-error", "error", s.errors))
        parts.append(text(across(0), top + 14, label[:40], class_="label"))
        words = f"{s.trials} trials" if s.trials else "not measured"
        parts.append(text(across(1), top + 14, words, "end", "tick"))
        parts.append(el("rect", x=0.0, y=top + 20.0, width=WIDTH, height=20, class_="track"))
        for class_, name, number in counts if s.trials else ():
            share = number / s.trials
            box = {"x": across(at), "y": top + 20.0, "width": across(share), "height": 20}
            if number:
                says_it = el("title", f"{name}: {number} of {s.trials}")
                parts.append(el("rect", says_it, class_=class_, **box))
            if share > 0.06:
                middle = across(at + share / 2)
                parts.append(text(middle, top + 34.0, str(number), "middle", f"on {class_}-text"))
            at += share
        says.append(f"{label}: " + ", ".join(f"{name} {number}" for _, name, number in counts if number))
    feet = [rate_tick(x, height - 4, f"{x:.0%}") for x in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return svg(f"How the trials ended. {'; '.join(says)}", WIDTH, height, parts, feet)


def _success_row(label: str, rates: Rates, top: Real, last: bool) -> list[Markup]:
    rate, low, high, middle = rates.rate, rates.low, rates.high, top + 34.0
    words = percent(rate) if rate is None else f"{percent(rate)}  {bracket(low, high)}"
    parts = [
        text(across(0), top + 16, label[:34], class_="label"),
        text(across(1), top + 16, words, "end", "value"),
        el("rect", x=across(0), y=middle - 9, width=across(1), height=18, class_="track"),
    ]
    if rate is None or low is None or high is None:
        return parts
    kind = "bar last" if last else "bar"
    bar = el("rect", x=across(0), y=middle - 9, width=across(rate), height=18, class_=kind)
    return [*parts, bar, _whisker(across(low), across(high), middle)]


def _whisker(low: Real, high: Real, middle: Real) -> Markup:
    caps = (line(x, middle - 5, x, middle + 5, "whisker") for x in (low, high))
    return el("g", line(low, middle, high, middle, "whisker"), caps)
