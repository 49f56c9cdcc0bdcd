"""Success against training steps, with a band: evaluations of several checkpoints of one run, or of several.

As in the paper's Figure 8: a line a run, a picture a suite, and around each checkpoint's success rate its own
95% Wilson interval. A band says how well a checkpoint was measured, not how much another seed would differ.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla.errors import MorphVlaError, require
from morph_vla.files.writing import write_bytes
from morph_vla.results.comparison import suite_difference
from morph_vla.results.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2a5d8f", "#b5731b", "#1e7b4f", "#8a4f9e", "#5b6670", "#c0432f")


@dataclass(frozen=True)
class Point:
    """A checkpoint's success rate, with Wilson's interval."""

    step: int
    rate: float
    low: float
    high: float
    half_width: float
    trials: int
    successes: int


@dataclass(frozen=True)
class Run:
    """The checkpoints of one training run, in the order of their steps."""

    run: str
    points: list[Point]


@dataclass(frozen=True)
class Panel:
    """One picture: the runs that were evaluated on a suite."""

    suite: str
    runs: list[Run]


def curves(records: Sequence[Record]) -> list[Panel]:
    """A panel for each suite with a run that has two checkpoints or more.

    Evaluations without a step or a trial have no point. The same run in two engines is two lines.
    Raises MorphVlaError where one run has two evaluations at one step, and where suites of one name measure
    different things.
    """
    suites: dict[str, dict[str, list[Point]]] = {}
    firsts: dict[str, Record] = {}
    differing: dict[str, str] = {}
    for record in records:
        point = _point(record)
        if point is not None:
            suite = suite_label(record)
            suites.setdefault(suite, {}).setdefault(_line(record, records), []).append(point)
            if difference := suite_difference(firsts.setdefault(suite, record), record):
                differing[suite] = difference
    panels = []
    for suite, runs in suites.items():
        for run, points in runs.items():
            points.sort(key=lambda point: point.step)
            twice = [a.step for a, b in pairwise(points) if a.step == b.step]
            if twice and any(len({point.step for point in each}) > 1 for each in runs.values()):
                raise MorphVlaError(
                    f"{run} was evaluated twice on {suite} at step {twice[0]}: a curve needs one "
                    "evaluation per step; merge them with `morph-vla merge`, or leave one out"
                )
        if any(len({point.step for point in points}) > 1 for points in runs.values()):
            if suite in differing:
                raise MorphVlaError(f"{suite}: {differing[suite]}; a curve needs evaluations of one suite")
            panels.append(Panel(suite, [Run(run, points) for run, points in runs.items()]))
    return panels


def curves_if_any(records: Sequence[Record]) -> list[Panel]:
    """The same, and none where it raises, as for one run's evaluations at one step under two conditions."""
    try:
        return curves(records)
    except MorphVlaError:
        return []


def run_of(record: Record) -> str:
    """The training run that a record's checkpoint is of: `runs/first` for `runs/first/checkpoints/1400`.

    A checkpoint whose folder is not called by its step, such as one of a hub, is a run of its own, whatever
    its revision. Where the record does not say where the checkpoint lay, the policy's name.
    """
    address = (record.policy.checkpoint or "").rstrip("/")
    if "://" in address:
        address = address.partition("@")[0]
    above, _, last = address.rpartition("/")
    if last.isdecimal():
        address = above.removesuffix("/checkpoints")
    return address or record.policy.label


def suite_label(record: Record) -> str:
    """The suite's name, or "suite" where the record has none."""
    return record.suite.name or "suite"


def write(panels: Sequence[Panel], path: Path) -> Path:
    """Draw the curves into an image file, whose suffix says which kind (svg, png, pdf); returns its path.

    Raises MissingExtraError without matplotlib, and MorphVlaError for nothing to draw or an unknown suffix.
    """
    if not panels:
        raise MorphVlaError(
            "no curve to draw: it needs evaluations of at least two checkpoints of one run, told apart by "
            "`policy.step` in their records"
        )
    require("matplotlib", "draw")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.2 * len(panels), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, start=1):
        _panel(figure.add_subplot(1, len(panels), place), panel)
    metadata, content = {"Software": None} if path.suffix == ".png" else None, io.BytesIO()
    try:
        figure.savefig(content, format=path.suffix[1:], dpi=150, metadata=metadata)
        write_bytes(path, content.getvalue())
    except (OSError, ValueError) as error:  # ValueError: a suffix that matplotlib does not know
        raise MorphVlaError(f"{path}: cannot be drawn: {error}") from error
    return path


def _panel(axes: "Axes", panel: Panel) -> None:
    for place, run in enumerate(panel.runs):
        colour, steps = COLOURS[place % len(COLOURS)], [point.step for point in run.points]
        low, high = [100 * point.low for point in run.points], [100 * point.high for point in run.points]
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        rates = [100 * point.rate for point in run.points]
        axes.plot(steps, rates, color=colour, marker="o", markersize=4, label=run.run)
    axes.set(title=panel.suite, xlabel="training steps", ylabel="success rate [%]", ylim=(0, 100))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def _point(record: Record) -> Point | None:
    if record.policy.step is None or not record.trials:
        return None
    measured = {field.name: getattr(record.summary, field.name, None) for field in fields(Point)}
    return Point(**{**measured, "step": record.policy.step})


def _line(record: Record, records: Sequence[Record]) -> str:
    """The run, with its engine where the records are of several."""
    engines = {other.engine and other.engine.name for other in records}
    run = run_of(record)
    return f"{run}, {record.engine.name}" if len(engines) > 1 and record.engine else run
