"""Charts against training steps: the loss, and success with a band."""

from collections.abc import Sequence
from math import ceil

from morph_vla.report.axes import WIDTH, Axis, foot, linear_axis, log_axis
from morph_vla.report.markup import Markup, bracket, count, el, line, percent, svg, text
from morph_vla.results.curves import Panel
from morph_vla.results.values import Real, mapping, number

POINTS = 600  # of a curve; more cannot be told apart at this width


def learning_curve(panel: Panel) -> Markup:
    """Success against training steps, a line and a 95% Wilson band a run (`results/curves.py`)."""
    left, right, top, bottom = 42.0, WIDTH - 8.0, 10.0, 250.0
    steps = [point.step for run in panel.runs for point in run.points]
    across, up = linear_axis(min(steps), max(steps), left, right), linear_axis(0.0, 1.0, bottom, top)
    parts: list[object] = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(left, up.place(tick), right, up.place(tick), "grid"))
        parts.append(text(left - 6, up.place(tick) + 4, f"{tick:.0%}", "end", "tick"))
    for tick in across.ticks:
        parts.append(line(across.place(tick), bottom, across.place(tick), bottom + 4, "axis"))
        parts.append(foot(across.place(tick), bottom + 18, count(tick)))
    for place, run in enumerate(panel.runs):
        series = run.points
        edge = [(p.step, p.high) for p in series] + [(p.step, p.low) for p in reversed(series)]
        band = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in edge)
        parts.append(el("polygon", points=band, class_=f"band c{place % 6}"))
        parts.append(_path([(float(p.step), p.rate) for p in series], across, up, f"run c{place % 6}"))
        for p in series:
            says = f"{run.run}, step {p.step}: {percent(p.rate)} {bracket(p.low, p.high)}"
            place_of = {"cx": across.place(p.step), "cy": up.place(p.rate)}
            whisker = line(place_of["cx"], up.place(p.low), place_of["cx"], up.place(p.high), "hair")
            parts += [whisker, el("circle", el("title", says), r=4, class_=f"point c{place % 6}", **place_of)]
    name = text(right, bottom + 36, "training steps", "end", "tick")
    axes = (line(left, bottom, right, bottom, "axis"), name)
    last = ", ".join(f"{run.run} {percent(run.points[-1].rate)}" for run in panel.runs)
    title = f"Success rate on {panel.suite} against training steps; at each run's last step: {last}"
    return svg(title, WIDTH, bottom + 42, parts, axes)


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
        parts.append(foot(across.place(tick), height - 4, count(tick)))
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
