"""The charts of the page as plain SVG: they scale with it, and charts.css gives them their colours.

Coordinates are in user units, which are near the pixels of a phone, so that labels stay legible there. Every
label, and the title that a screen reader reads out, is escaped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, cos, floor, hypot, log10, pi, sin
from pathlib import Path

from markupsafe import Markup, escape

from morph_vla.report.reading import Evaluation, square
from morph_vla.report.words import bracket, count, percent, points, short
from morph_vla.results.comparison import RateDifference
from morph_vla.results.curves import Panel
from morph_vla.results.intervals import Mean, wilson
from morph_vla.results.record import Json
from morph_vla.results.statistics import Rates
from morph_vla.results.values import Real, listing, mapping, number

WIDTH = 460.0  # of a chart
ROW = 54.0  # height of a bar with its label
POINTS = 600  # of a curve; more cannot be told apart at this width
MOST = 3  # evaluations whose curves can be told apart

Points = Sequence[tuple[Real, Real]]
Words = Callable[[float], str]


def el(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element; children and values are escaped unless they are markup, and None is left out.

    An attribute's trailing underscore is dropped and the others become hyphens (`class_`, `text_anchor`); a
    float has two decimals.
    """
    known = {
        key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None
    }
    words = "".join(
        f' {key}="{escape(short(value) if isinstance(value, float) else value)}"'
        for key, value in known.items()
    )
    content = Markup().join(escape(child) for child in children if child is not None)
    return Markup(f"<{name}{words}>{content}</{name}>")


def svg(title: str, height: Real, *children: object, width: Real = WIDTH, **attributes: object) -> Markup:
    """A chart that is read out as its title."""
    box = f"0 0 {short(width)} {short(height)}"
    return el("svg", el("title", title), *children, viewBox=box, role="img", aria_label=title, **attributes)


def picture(chart: Markup) -> bytes:
    """A chart as a file of its own, for a page of the docs: its colours and letters are in it."""
    css = (Path(__file__).parent / "charts.css").read_text(encoding="utf-8")
    letters = "svg text { font-family: system-ui, sans-serif; }"
    style = el("style", Markup(f"\n{css}{letters}\n"))
    opening, _, rest = chart.partition(">")
    return f'{opening} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'.encode()


def text(x: Real, y: Real, words: str, anchor: str = "start", class_: str = "tick") -> Markup:
    """A line of text; `anchor` is start, middle or end."""
    return el("text", words, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: Real, y1: Real, x2: Real, y2: Real, class_: str) -> Markup:
    """A straight line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` on user units from `start` to `end`, linear or logarithmic."""

    low: Real
    high: Real
    start: Real
    end: Real
    log: bool = False

    def __call__(self, value: Real) -> float:
        """Where a value stands, in user units."""
        low, high, at = (log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low or 1.0) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round values inside it; on a logarithmic one 1, 2 and 5 of a decade, or 1 alone."""
        if self.log:
            first, last = log10(self.low), log10(self.high)
            digits = (1,) if last - first > 3 else (1, 2, 5)
            values = (
                digit * 10.0**power for power in range(floor(first), ceil(last) + 1) for digit in digits
            )
            return [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]
        rough = (self.high - self.low or 1.0) / 5
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        return [step * i for i in range(ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9) + 1)]


# --- bars of rates


def success_bars(rows: Sequence[tuple[str, Rates]], of: str = "") -> Markup:
    """A bar for each success rate (its label and summary), with its Wilson interval as a whisker."""
    bottom, says = ROW * len(rows), []
    parts = _rate_axis(bottom)
    for place, (label, rates) in enumerate(rows):
        top, words = ROW * place, percent(rates.rate)
        bar = ""
        if rates.rate is not None and rates.low is not None and rates.high is not None:
            words += f" {bracket(rates.low, rates.high)}"
            bar = _box(0.0, rates.rate, top, "bar last" if place == len(rows) - 1 else "bar")
            bar += _whisker(WIDTH * rates.low, WIDTH * rates.high, top + 33)
        parts += [_row(top, label, words, "value"), bar]
        says.append(f"{label} {words}")
    title = f"Success rate{f' of {of}' if of else ''} with 95% Wilson interval: {'; '.join(says)}"
    return svg(title, bottom + 24, *parts)


def difference_bars(name: str, rows: Sequence[tuple[str, RateDifference]]) -> Markup | None:
    """Differences of success rates with their intervals, a row each, from -100 to +100 points."""
    known = [(label, row.difference, row.measured) for label, row in rows]
    known = [(label, value, bounds) for label, value, bounds in known if value is not None and bounds]
    if not known:
        return None
    bottom, says = 44.0 * len(known) + 4, []
    parts = _rate_axis(bottom, ("−100", "−50", "0", "+50", "+100"), top=0.0)
    for place, (label, difference, bounds) in enumerate(known):
        y = 44.0 * place + 31
        low, middle, high = (WIDTH * (value + 1) / 2 for value in (bounds.low, difference, bounds.high))
        words = f"[{points(bounds.low)}, {points(bounds.high)}]"
        says.append(f"{label} {points(difference)} points {words}".strip())
        parts.append(text(0.0, y - 14, label, class_="label"))
        parts.append(text(WIDTH, y - 14, f"{points(difference)} {words}", "end", "value"))
        parts += [_whisker(low, high, y), el("circle", cx=middle, cy=y, r=5, class_="dot")]
    return svg(f"{name}: {'; '.join(says)}", bottom + 22, *parts)


def outcome_bars(rows: Sequence[tuple[str, Rates]], clauses: Sequence[str]) -> Markup:
    """How the trials of each row ended, as shares of all of them: success, each clause, error.

    The n-th clause has the class `s-n`, the same in every row.
    """
    bottom, says = ROW * len(rows), []
    parts = _rate_axis(bottom)
    for place, (label, rates) in enumerate(rows):
        top, start = ROW * place, 0.0
        parts.append(_row(top, label, f"{rates.trials} trials" if rates.trials else "not measured", "tick"))
        counts = [("s-success", "success", rates.successes)]
        counts += [(f"s-{i}", name, rates.failed_clauses.get(name, 0)) for i, name in enumerate(clauses)]
        counts = [each for each in (*counts, ("s-error", "error", rates.errors)) if each[2]]
        for class_, name, trials in counts:
            share = trials / rates.trials
            parts.append(_box(start, share, top, class_, el("title", f"{name}: {trials} of {rates.trials}")))
            if share > 0.06:
                middle = WIDTH * (start + share / 2)
                parts.append(text(middle, top + 37.0, str(trials), "middle", f"on {class_}-text"))
            start += share
        says.append(f"{label}: " + ", ".join(f"{name} {trials}" for _, name, trials in counts))
    return svg(f"How the trials ended. {'; '.join(says)}", bottom + 24, *parts)


def mean_bars(name: str, rows: Sequence[tuple[str, float, Mean | None, Sequence[float]]]) -> Markup:
    """A bar for each mean of success rates, with Student's interval and a dot for each of its values."""
    bottom, says = ROW * len(rows), []
    parts = _rate_axis(bottom)
    for place, (label, rate, mean, values) in enumerate(rows):
        top, words = ROW * place, percent(rate)
        whisker = Markup()
        if mean is not None:
            low, high = max(0.0, mean.low), min(1.0, mean.high)
            words += f" {bracket(low, high)}"
            whisker = _whisker(WIDTH * low, WIDTH * high, top + 33)
        dots = [dot(WIDTH * value, top + 33, 3.0, "point c0") for value in values]
        parts += [_row(top, label, words, "value"), _box(0.0, rate, top, "bar"), whisker, *dots]
        says.append(f"{label} {words}")
    return svg(f"{name}, with 95% intervals over seeds: {'; '.join(says)}", bottom + 24, *parts)


def mean_differences(name: str, rows: Sequence[tuple[str, Mean, str]], margin: Real) -> Markup | None:
    """Differences (label, mean with interval, verdict), a row each, and the margin as a dashed line."""
    if not rows:
        return None
    bottom, says = 44.0 * len(rows) + 4, []
    most = max(margin, *(abs(bound) for _, mean, _ in rows for bound in (mean.low, mean.high)))
    x = Axis(-most, most, 8.0, WIDTH - 8)
    parts = [line(x(0.0), 0.0, x(0.0), bottom, "axis"), line(x(margin), 0.0, x(margin), bottom, "margin")]
    parts += [text(x(value), bottom + 16, points(value), "middle") for value in x.ticks]
    for place, (label, mean, verdict) in enumerate(rows):
        y = 44.0 * place + 31
        words = f"{points(mean.mean)} [{points(mean.low)}, {points(mean.high)}] {verdict}".strip()
        says.append(f"{label} {words}")
        parts += [text(0.0, y - 14, label, class_="label"), text(WIDTH, y - 14, words, "end", "value")]
        middle = el("circle", cx=x(mean.mean), cy=y, r=5, class_="dot")
        parts += [_whisker(x(mean.low), x(mean.high), y), middle]
    return svg(f"{name}: {'; '.join(says)}", bottom + 22, *parts)


QUARTERS = ("0%", "25%", "50%", "75%", "100%")


def _rate_axis(bottom: Real, labels: Sequence[str] = QUARTERS, top: Real = 20.0) -> list[Markup]:
    """An axis over the whole width, labelled below; the outermost labels stay inside the chart."""
    parts = []
    for place, label in enumerate(labels):
        x, anchor = WIDTH * place / 4, ("start", "middle", "middle", "middle", "end")[place]
        parts.append(line(x, top, x, bottom, "axis" if label == "0" else "grid"))
        parts.append(text(x, bottom + 16, label, anchor))
    return parts


def _row(top: Real, label: str, words: str, class_: str) -> Markup:
    """What stands above a bar, and its empty track."""
    names = text(0.0, top + 16, shortened(label), class_="label"), text(WIDTH, top + 16, words, "end", class_)
    return Markup().join([*names, _box(0.0, 1.0, top, "track")])


def shortened(label: str, most: int = 40) -> str:
    """At most so many letters: what tells names apart is mostly at their ends, so the middle is left out."""
    if len(label) <= most:
        return label
    return f"{label[: (most - 1) // 2]}…{label[len(label) - most // 2 :]}"


def _box(start: Real, share: Real, top: Real, class_: str, *children: Markup) -> Markup:
    size = {"x": WIDTH * start, "y": top + 24.0, "width": WIDTH * share, "height": 18}
    return el("rect", *children, class_=class_, **size)


def _whisker(low: Real, high: Real, middle: Real) -> Markup:
    caps = (line(x, middle - 5, x, middle + 5, "whisker") for x in (low, high))
    return el("g", line(low, middle, high, middle, "whisker"), *caps)


# --- curves


def learning_curve(panel: Panel) -> Markup:
    """Success against training steps, a line and a 95% Wilson band a run (`results/curves.py`)."""
    steps = [point.step for run in panel.runs for point in run.points]
    x, y = Axis(min(steps), max(steps), 42.0, WIDTH - 8), Axis(0.0, 1.0, 250.0, 10.0)
    parts = frame(x, y, count, "{:.0%}".format, "training steps")
    for place, run in enumerate(panel.runs):
        color, series = f"c{place % 6}", run.points
        edge = [(p.step, p.high) for p in series] + [(p.step, p.low) for p in reversed(series)]
        parts.append(_path(edge, x, y, f"band {color}", "polygon"))
        parts.append(_path([(p.step, p.rate) for p in series], x, y, f"run {color}"))
        for p in series:
            says = f"{run.run}, step {p.step}: {percent(p.rate)} {bracket(p.low, p.high)}"
            parts.append(line(x(p.step), y(p.low), x(p.step), y(p.high), "hair"))
            parts.append(dot(x(p.step), y(p.rate), 4.0, f"point {color}", el("title", says)))
    last = ", ".join(f"{run.run} {percent(run.points[-1].rate)}" for run in panel.runs)
    title = f"Success rate on {panel.suite} against training steps; at each run's last step: {last}"
    return svg(title, 292, *parts)


def success_by_time(evaluations: Sequence[Evaluation]) -> Markup | None:
    """By when which share of the trials had succeeded; None without such a time, and for more than MOST.

    None too where an evaluation does not say when each of its successes was: it would seem to fail.

    Every trial is followed to the end of its episode, so that the share of all trials that have succeeded is
    what Kaplan and Meier's estimate comes to. A trial that ended in an error never succeeds. The last
    evaluation has a band: its 95% Wilson interval at each time.
    """
    series = [success_times(evaluation) for evaluation in evaluations]
    if any(len(times) != e.summary.successes for e, times in zip(evaluations, series, strict=True)):
        return None
    if not any(series) or len(series) > MOST:
        return None
    tasks = [task for evaluation in evaluations for task in evaluation.suite.tasks.values()]
    end = max([task.episode_seconds or 0.0 for task in tasks] + [times[-1] for times in series if times])
    x, y = Axis(0.0, end, 42.0, WIDTH - 8), Axis(0.0, 1.0, 230.0, 10.0)
    parts, says = frame(x, y, "{:g}".format, "{:.0%}".format, "seconds"), []
    for place, (evaluation, times) in enumerate(zip(evaluations, series, strict=True)):
        trials, color = len(evaluation.trials), time_color(place, len(series))
        corners = [(0.0, 0)]  # flat to each success, up there, flat to the end
        for number_of, seconds in enumerate(times):
            corners += [(seconds, number_of), (seconds, number_of + 1)]
        corners.append((end, len(times)))
        if place == len(series) - 1:
            edges = [(seconds, wilson(successes, trials)) for seconds, successes in corners]
            ring = [(t, bound.high) for t, bound in edges] + [(t, bound.low) for t, bound in edges[::-1]]
            parts.append(_path(ring, x, y, f"band {color}", "polygon"))
        parts.append(_path([(t, successes / trials) for t, successes in corners], x, y, f"run {color}"))
        last = f"{percent(len(times) / trials)}, the last after {times[-1]:.1f} s" if times else "none"
        says.append(f"{evaluation.label}: {last}")
    return svg(f"Share of the trials that had succeeded, against time. {'; '.join(says)}", 272, *parts)


def success_times(evaluation: Evaluation) -> list[float]:
    """When each successful trial succeeded, in order [s]."""
    return sorted(float(t.time_s) for t in evaluation.trials if t.success and t.time_s is not None)


def time_color(place: int, many: int) -> str:
    """The class of a curve: the last has the green of its bar, the others take turns among the rest."""
    return "c2" if place == many - 1 else ("c4", "c0")[place % 2]


def training_curve(training: Json) -> Markup | None:
    """Loss and held-out loss against steps, logarithmic, the learning rate below; None without a loss."""
    curve = listing(training.get("curve"))
    loss, held, rate = (_series(curve, key) for key in ("loss", "held_out_loss", "lr"))
    values = [value for _, value in loss + held]
    if len(loss) < 2 or min(values) <= 0:
        return None
    steps, height = [step for step, _ in loss + held + rate], 300.0 if rate else 262.0
    x = Axis(min(steps), max(steps), 52.0, WIDTH - 6)
    y = Axis(min(values) / 1.1, max(values) * 1.1, 230.0, 10.0, log=True)
    parts = frame(x, y, count, _compact, gap=height - 250)
    if len(loss) > 20:
        parts.append(_path(loss, x, y, "raw"))
    parts.append(_path(_smooth(loss), x, y, "curve"))
    if len(held) > 1:
        parts.append(_path(held, x, y, "held"))
    parts += [dot(x(step), y(value), 3.0, "held-dot") for step, value in _thin(held, 40)]
    if rate:
        top = max(value for _, value in rate) or 1.0
        parts.append(_path(rate, x, Axis(0.0, top, 280.0, 246.0), "rate"))
        parts += [line(x.start, 280, x.end, 280, "axis"), text(x.start - 6, 253, _compact(top), "end")]
        parts.append(text(x.end, 246, "learning rate", "end"))
    says = [("Training: loss", loss[0]), ("", loss[-1]), ("; held-out loss", held[-1] if held else None)]
    words = [f"{name} {at[1]:.3g} at step {at[0]:g}" for name, at in says if at]
    return svg(f"{words[0]},{''.join(words[1:])}", height, *parts)


def frame(x: Axis, y: Axis, x_words: Words, y_words: Words, name: str = "", gap: Real = 0) -> list[Markup]:
    """The grid, the labels of both axes, those of x by `gap` below the bottom, and the name of x."""
    feet, left = y.start + gap, min(x.start, x.end)
    parts = [line(x.start, y.start, x.end, y.start, "axis")]
    for tick in y.ticks:
        parts.append(line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(text(left - 6, y(tick) + 4, y_words(tick), "end"))
    for tick in x.ticks:
        parts.append(line(x(tick), y.end, x(tick), y.start, "grid"))
        parts.append(text(x(tick), feet + 17, x_words(tick), "middle"))
    return [*parts, text(x.end, feet + 36, name, "end")] if name else parts


def _path(series: Points, x: Axis, y: Axis, class_: str, kind: str = "polyline") -> Markup:
    coordinates = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in series)
    return el(kind, points=coordinates, class_=class_)


def dot(x: Real, y: Real, radius: Real, class_: str, *children: Markup) -> Markup:
    """A disc; its class fills or rings it."""
    return el("circle", *children, cx=x, cy=y, r=radius, class_=class_)


def _compact(value: Real) -> str:
    return f"{value:.3g}".replace("e-0", "e-")


def _series(curve: Sequence[object], key: str) -> list[tuple[float, float]]:
    """(step, value) of every entry that has both as finite numbers."""
    pairs = [(number(mapping(entry).get("step")), number(mapping(entry).get(key))) for entry in curve]
    return _thin(sorted((x, y) for x, y in pairs if x is not None and y is not None), POINTS)


def _thin(series: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most about `most` points: means over equal runs, the last point kept."""
    run = ceil(len(series) / most)
    if run <= 1:
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


# --- the joint graph


def joint_graph(robot: Json) -> Markup | None:
    """The joint graph on a circle, for a record with an adjacency but no picture; None without one."""
    adjacency, joints = square(robot.get("adjacency")), robot.get("joints")
    if adjacency is None or not isinstance(joints, list) or len(joints) != len(adjacency):
        return None
    many = len(joints)
    away = [
        (cos(angle), 110 / 120 * sin(angle)) for angle in (2 * pi * i / many - pi / 2 for i in range(many))
    ]
    places = [(230 + 120 * x, 150 + 120 * y) for x, y in away]
    edges = [(i, k) for i in range(many) for k in range(i) if adjacency[i][k]]
    parts = [line(*places[i], *places[k], "edge") for i, k in edges]
    for (x, y), (away_x, away_y), joint in zip(places, away, joints, strict=True):
        reach = 12 / hypot(away_x, away_y)
        anchor = "middle" if abs(away_x) < 0.2 else "start" if away_x > 0 else "end"
        name = str(mapping(joint).get("name"))
        parts.append(dot(x, y, 5.0, "dot"))
        parts.append(text(x + reach * away_x, y + reach * away_y + 4, name, anchor))
    return svg(f"Joint graph: {many} joints, {len(edges)} edges", 300, *parts)
