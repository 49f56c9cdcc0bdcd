"""Success against time: by when which share of the trials had succeeded."""

from collections.abc import Sequence

from morph_vla.report.axes import WIDTH, Axis, foot, linear_axis
from morph_vla.report.markup import Markup, el, join, line, percent, svg, text
from morph_vla.report.reading import Evaluation
from morph_vla.results.intervals import wilson

Points = list[tuple[float, int]]
MOST = 3  # evaluations whose curves can be told apart; of checkpoints of a run the learning curve says more


def success_by_time(evaluations: Sequence[Evaluation]) -> Markup | None:
    """A step curve an evaluation; None where no success says when it was, and for more than MOST.

    Every trial is followed to the end of its episode, so that the share of all trials that have succeeded is
    what Kaplan and Meier's estimate comes to. A trial that ended in an error never succeeds.
    """
    measured = [evaluation for evaluation in evaluations if evaluation.trials]
    curves = [(evaluation, steps_of(evaluation)) for evaluation in measured]
    if not any(steps for _, steps in curves) or len(curves) > MOST:
        return None
    end = max(_seconds(evaluation) for evaluation in measured)
    end = max([end, *(steps[-1][0] for _, steps in curves if steps)])
    left, right, top, bottom = 42.0, WIDTH - 8.0, 10.0, 230.0
    across, up = linear_axis(0.0, end, left, right), linear_axis(0.0, 1.0, bottom, top)
    parts: list[object] = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(left, up.place(tick), right, up.place(tick), "grid"))
        parts.append(text(left - 6, up.place(tick) + 4, f"{tick:.0%}", "end", "tick"))
    for tick in across.ticks:
        parts.append(line(across.place(tick), bottom, across.place(tick), bottom + 4, "axis"))
        parts.append(foot(across.place(tick), bottom + 18, f"{tick:g}"))
    for place, (evaluation, steps) in enumerate(curves):
        of, last = len(evaluation.trials), place == len(curves) - 1
        corners = _corners(steps, end)
        if last:
            edges = [(t, wilson(count, of)) for t, count in corners]
            ring = [(t, bound.high) for t, bound in edges] + [(t, bound.low) for t, bound in edges[::-1]]
            parts.append(_shape("polygon", ring, across, up, f"band c{_color(place, len(curves))}"))
        shares = [(t, count / of) for t, count in corners]
        parts.append(_shape("polyline", shares, across, up, f"run c{_color(place, len(curves))}"))
    axes = (line(left, bottom, right, bottom, "axis"), text(right, bottom + 36, "seconds", "end", "tick"))
    title = "Share of the trials that had succeeded, against time. " + "; ".join(
        _in_words(evaluation, steps) for evaluation, steps in curves
    )
    keys = [
        join(el("i", class_=f"key c{_color(place, len(curves))}"), el("span", evaluation.label))
        for place, (evaluation, _) in enumerate(curves)
    ]
    words = "By when which share of all trials had succeeded, to the end of the episode; "
    words += f"the band is {measured[-1].label}'s 95% Wilson interval at each time."
    return el(
        "figure",
        el("figcaption", "Success against time", class_="over"),
        svg(title, WIDTH, bottom + 42, parts, axes),
        el("figcaption", keys, el("br"), words),
    )


def steps_of(evaluation: Evaluation) -> Points:
    """(seconds, successes so far) at each time at which a trial succeeded."""
    times = sorted(float(t.time_s) for t in evaluation.trials if t.success and t.time_s is not None)
    return [(seconds, place + 1) for place, seconds in enumerate(times)]


def _corners(steps: Points, end: float) -> Points:
    """The step curve from 0 s on: flat to each success, up there, flat to the end."""
    corners, count = [(0.0, 0)], 0
    for seconds, reached in steps:
        corners += [(seconds, count), (seconds, reached)]
        count = reached
    return [*corners, (end, count)]


def _seconds(evaluation: Evaluation) -> float:
    """How long its longest episode may last, where its record says."""
    known = [task.episode_seconds for task in evaluation.suite.tasks.values() if task.episode_seconds]
    return float(max(known, default=0.0))


def _color(place: int, many: int) -> int:
    """The last is the page's green, as its bar is; the others take turns among the rest."""
    return 2 if place == many - 1 else (4, 0)[place % 2]


def _in_words(evaluation: Evaluation, steps: Points) -> str:
    if not steps:
        return f"{evaluation.label}: none"
    share = percent(steps[-1][1] / len(evaluation.trials))
    return f"{evaluation.label}: {share}, the last after {steps[-1][0]:.1f} s"


def _shape(kind: str, places: Sequence[tuple[float, float]], across: Axis, up: Axis, class_: str) -> Markup:
    where = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in places)
    return el(kind, points=where, class_=class_)
