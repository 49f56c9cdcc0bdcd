"""The picture of a played episode: where the end effectors went, from above and from the side.

Colour runs with time; a ring marks the start and a square the end. The robot stands behind it as it rests, in
thin lines. Drawn with matplotlib's Figure, without pyplot's global state and without a display.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from morph_vla.checks.playback import Played
from morph_vla.errors import require
from morph_vla.robots import draw
from morph_vla.robots.draw import INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT, BONE = "#e3e8ed", "#b6c0ca"
VIEWS = (("from above", 0, 1, "x [m]", "y [m]"), ("from the side", 0, 2, "x [m]", "z [m]"))
MAX_POINTS = 4000
"""Drawn of a path; longer ones are thinned evenly."""


def write(played: Sequence[Played], path: Path | str) -> Path:
    """Draw the features of an episode, a row for each, into an image file; returns its path.

    Raises MissingExtraError without matplotlib, and MorphVlaError when the file cannot be written.
    """
    return draw.save(figure(played), path, dpi=130)


def figure(played: Sequence[Played]) -> "Figure":
    """A row for each feature, its two views side by side, as a matplotlib Figure."""
    require("matplotlib", "draw")
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(12.0, 1.0 + 5.0 * len(played)), layout="constrained")
    panels: Any = drawn.subplots(len(played), 2, squeeze=False)
    painted = None
    for row, feature in zip(panels, played, strict=True):
        bones = draw.skeleton(feature.robot)
        for axes, view in zip(row, VIEWS, strict=True):
            painted = _view(axes, feature, bones, view) or painted
    if painted is not None:
        bar = drawn.colorbar(painted, ax=panels.ravel().tolist(), shrink=0.6, pad=0.02)
        bar.set_label("time [s]", color=SOFT)
        bar.outline.set_visible(False)
    frames = f"{int(played[0].finite.sum())} frames at {played[0].fps:g} Hz"
    drawn.suptitle(f"{played[0].robot.name}: paths of the end effectors, {frames}", color=INK, fontsize=14)
    return drawn


def _view(axes: "Axes", played: Played, bones: Float[np.ndarray, "b 2 3"], view: tuple[Any, ...]) -> Any:
    from matplotlib.collections import LineCollection

    title, across, up, right, above = view
    flat = [across, up]
    axes.add_collection(LineCollection(list(bones[:, :, flat]), colors=BONE, linewidths=2.4, zorder=1))
    painted = None
    for trace in played.traces:
        count = len(trace.points)
        kept = np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).astype(int))
        points = trace.points[kept][:, flat]
        if count > 1:
            pieces = np.stack([points[:-1], points[1:]], axis=1)
            painted = LineCollection(list(pieces), cmap="viridis", linewidths=2.0, zorder=3)
            painted.set_array(kept[:-1] / played.fps)
            painted.set_clim(0, max((count - 1) / played.fps, 1e-9))
            axes.add_collection(painted)
        axes.plot(*points[0], "o", ms=9, mfc="none", mec=INK, mew=1.6, zorder=4)
        axes.plot(*points[-1], "s", ms=7, color=INK, zorder=4)
        axes.annotate(
            trace.link, points[-1], xytext=(6, 6), textcoords="offset points", fontsize=8, color=SOFT
        )
    seen = np.concatenate([bones.reshape(-1, 3), *(trace.points for trace in played.traces)])[:, flat]
    low, high = seen.min(axis=0), seen.max(axis=0)
    middle, half = (low + high) / 2, 0.56 * float(max((high - low).max(), 0.02))
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    axes.set_aspect("equal")
    axes.set_title(
        f"{played.feature}, {title}   (ring: start, square: end)", fontsize=10, color=INK, loc="left"
    )
    axes.set_xlabel(right, color=SOFT)
    axes.set_ylabel(above, color=SOFT)
    axes.grid(color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_color(FAINT)
    axes.tick_params(colors=SOFT, labelsize=8)
    return painted
