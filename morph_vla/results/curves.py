"""Success against training steps, with a band: evaluations of several checkpoints of one run, or of several.

As in the paper's Figure 8: a line a run, a picture a suite, and around each checkpoint's success rate its own
95% Wilson interval. A band says how well a checkpoint was measured, not how much another seed would differ.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from morph_vla.errors import MorphVlaError, require
from morph_vla.results.statistics import policy_label, summarise, trials_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2a5d8f", "#b5731b", "#1e7b4f", "#8a4f9e", "#5b6670", "#c0432f")


def curves(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each suite with a run that has two checkpoints or more: {suite, runs: [{run, points}]}.

    A point is {step, rate, low, high, half_width, trials, successes}, in the order of steps; evaluations
    without a step or a trial have none. The same run in two engines is two lines.
    Raises MorphVlaError where one run has two evaluations at one step.
    """
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        point = _point(record)
        if point is not None:
            found.setdefault(suite_label(record), {}).setdefault(_line(record, records), []).append(point)
    panels = []
    for suite, runs in found.items():
        for run, points in runs.items():
            points.sort(key=lambda point: point["step"])
            twice = [a["step"] for a, b in pairwise(points) if a["step"] == b["step"]]
            if twice and len(points) > 2:
                raise MorphVlaError(
                    f"{run} was evaluated twice on {suite} at step {twice[0]}: a curve takes one "
                    "evaluation a step; merge them with `morph-vla merge`, or leave one out"
                )
        if any(len({point["step"] for point in points}) > 1 for points in runs.values()):
            panels.append(
                {"suite": suite, "runs": [{"run": run, "points": points} for run, points in runs.items()]}
            )
    return panels


def run_of(record: Mapping[str, Any]) -> str:
    """The training run that a record's checkpoint is of: `runs/first` for `runs/first/checkpoints/1500`.

    Where the record does not say where the checkpoint lay, the policy's name.
    """
    policy = record.get("policy")
    checkpoint = policy.get("checkpoint") if isinstance(policy, Mapping) else None
    parts = PurePosixPath(str(checkpoint or "")).parts
    above = parts[:-2] if len(parts) > 1 and parts[-2] == "checkpoints" else parts[:-1]
    return "/".join(above) or policy_label(record)


def suite_label(record: Mapping[str, Any]) -> str:
    """The suite's name, or "suite" where the record has none."""
    suite = record.get("suite")
    return str((suite.get("name") if isinstance(suite, Mapping) else None) or "suite")


def write(panels: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw the curves into an image file, whose suffix says which kind (svg, png, pdf); returns its path.

    Raises MissingExtraError without matplotlib, and MorphVlaError for nothing to draw or an unknown suffix.
    """
    if not panels:
        raise MorphVlaError(
            "no curve to draw: it takes evaluations of at least two checkpoints of one run, told apart by "
            "`policy.step` in their records"
        )
    require("matplotlib", "draw")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.2 * len(panels), 4.2), layout="constrained")
    FigureCanvasAgg(drawn)
    for place, panel in enumerate(panels, start=1):
        _panel(drawn.add_subplot(1, len(panels), place), panel)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        drawn.savefig(path, dpi=150, metadata={"Software": None} if path.suffix == ".png" else None)
    except (OSError, ValueError) as error:  # ValueError: a suffix that matplotlib does not know
        raise MorphVlaError(f"{path}: cannot be drawn: {error}") from error
    return path


def _panel(axes: "Axes", panel: Mapping[str, Any]) -> None:
    for place, run in enumerate(panel["runs"]):
        colour, points = COLOURS[place % len(COLOURS)], run["points"]
        steps = [point["step"] for point in points]
        low, high = ([100 * point[key] for point in points] for key in ("low", "high"))
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        rates = [100 * point["rate"] for point in points]
        axes.plot(steps, rates, color=colour, marker="o", markersize=4, label=run["run"])
    axes.set(title=panel["suite"], xlabel="training steps", ylabel="success rate [%]", ylim=(0, 100))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def _point(record: Mapping[str, Any]) -> dict[str, Any] | None:
    policy = record.get("policy")
    step = policy.get("step") if isinstance(policy, Mapping) else None
    summary = summarise(trials_of(record))
    if not isinstance(step, int) or isinstance(step, bool) or summary["rate"] is None:
        return None
    keys = ("rate", "low", "high", "half_width", "trials", "successes")
    return {"step": step, **{key: summary[key] for key in keys}}


def _line(record: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    """The run, with its engine where the records are of several."""
    engine, several = _engine(record), len({_engine(other) for other in records}) > 1
    return f"{run_of(record)}, {engine}" if several and engine else run_of(record)


def _engine(record: Mapping[str, Any]) -> str | None:
    engine = record.get("engine")
    return str(engine.get("name")) if isinstance(engine, Mapping) and engine.get("name") else None
