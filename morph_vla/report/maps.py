"""Maps of a task's episodes: where the objects began and where those of failures ended, seen from above."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist

from markupsafe import Markup

from morph_vla.report.charts import WIDTH, Axis, dot, el, frame, line, svg, text
from morph_vla.report.episodes import Episode
from morph_vla.report.reading import Evaluation
from morph_vla.report.words import short
from morph_vla.results.trial import OUTCOMES, Trial
from morph_vla.results.values import Real

MARGIN = 0.12  # around the initial states, in their longer side: room for what was pushed
MOVED = 0.01  # [m] from which on an object is drawn to have moved
SIDE = 5.6  # of a square, in user units

Place = tuple[Real, Real]  # x and y in the robot's base frame [m]


@dataclass(frozen=True)
class TaskMap:
    """The map of one task."""

    chart: Markup
    moved: str
    """The object that is to be moved."""
    others: list[str]
    """The other objects, such as the target."""
    shows_ends: bool
    """Whether it shows where an object ended."""
    outside: int
    """Failures whose object ended beyond it."""


@dataclass(frozen=True)
class _Ground:
    """The part of the table that the map shows."""

    x: Axis  # runs up
    y: Axis  # runs to the left: seen from behind the robot

    def at(self, place: Place) -> tuple[float, float]:
        """A place in user units."""
        return self.y(place[1]), self.x(place[0])

    def reach(self, start: Place, end: Place) -> float:
        """The share of the way from `start` to `end` that lies on the map: 1 where `end` does."""
        share = 1.0
        for axis, a, b in ((self.x, start[0], end[0]), (self.y, start[1], end[1])):
            if not axis.low <= b <= axis.high:
                edge = axis.high if b > axis.high else axis.low
                share = min(share, max(0.0, (edge - a) / (b - a)))
        return share


def task_map(
    evaluation: Evaluation,
    task: str,
    episodes: Sequence[Episode],
    clauses: Sequence[str],
    everyone: Sequence[Evaluation],
) -> TaskMap | None:
    """The map of the `episodes` of a task; None where no record says where anything began.

    Failures have the colour of their clause, the n-th of `clauses` the class `t-n`. Maps of a task share one
    scale, which spans the initial states of `everyone`.
    """
    poses = [pose for other in everyone for t in other.tasks.get(task, []) for pose in _poses(t).values()]
    names = list(dict.fromkeys(name for episode in episodes for name in _poses(episode.trial)))
    if not poses or not names:
        return None
    facts = evaluation.suite.tasks.get(task)
    moved = facts.object if facts and facts.object in names else names[0]
    ground = _ground(poses)
    parts = frame(ground.y, ground.x, _signed, _signed)
    # Failures lie on top: they are what one looks for among many successes.
    on_top = sorted(episodes, key=lambda episode: OUTCOMES.index(episode.trial.outcome))
    parts += [_trip(episode, moved, clauses, ground) for episode in on_top]
    parts.append(text(ground.y.start, 15, "x up, y to the left [m]", "end"))
    ended = [end for episode in episodes if (end := _end(episode.trial, moved))]
    outside = sum(ground.reach(*end) < 1 for end in ended)
    outcomes = [episode.trial.outcome for episode in episodes]
    counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in OUTCOMES)
    title = f"Where {' and '.join(names)} began, x and y in metres: {counts}"
    chart = svg(title, ground.x.start + 22, *parts, class_="map")
    return TaskMap(chart, moved, [name for name in names if name != moved], bool(ended), outside)


def _poses(trial: Trial) -> dict[str, Place]:
    """Object -> where it began."""
    return {name: (pose[0], pose[1]) for name, pose in (trial.initial or {}).items() if len(pose) >= 2}


def _end(trial: Trial, moved: str) -> tuple[Place, Place] | None:
    """Where a failure's object began and ended; None where it stayed, or the record does not say it."""
    start, end = _poses(trial).get(moved), trial.final_object
    if trial.success or start is None or end is None or len(end) < 2 or dist(start, end[:2]) < MOVED:
        return None
    return start, (end[0], end[1])


def _ground(places: Sequence[Place]) -> _Ground:
    corners = [(min(values), max(values)) for values in zip(*places, strict=True)]
    margin = MARGIN * max(0.05, *(high - low for low, high in corners))
    (x_low, x_high), (y_low, y_high) = ((low - margin, high + margin) for low, high in corners)
    scale = min((WIDTH - 50) / (y_high - y_low), 300 / (x_high - x_low))  # user units per metre
    across = Axis(y_low, y_high, 44 + scale * (y_high - y_low), 44.0)
    return _Ground(Axis(x_low, x_high, 24 + scale * (x_high - x_low), 24.0), across)


def _trip(episode: Episode, moved: str, clauses: Sequence[str], ground: _Ground) -> Markup:
    """One episode: its objects, joined when it is chosen, and the way that a failure's object went."""
    trial, poses = episode.trial, _poses(episode.trial)
    others = [ground.at(place) for name, place in poses.items() if name != moved]
    parts = [
        el("rect", x=x - SIDE / 2, y=y - SIDE / 2, width=SIDE, height=SIDE, class_="m-other")
        for x, y in others
    ]
    clause = trial.failed_clause or "unknown"
    known = trial.outcome == "failure" and clause in clauses
    color = f"t-{clauses.index(clause)}" if known else f"t-{trial.outcome}"
    if moved in poses:
        x, y = ground.at(poses[moved])
        parts += [line(x, y, *other, "joined") for other in others]
        if end := _end(trial, moved):
            share, (to_x, to_y) = ground.reach(*end), ground.at(end[1])
            class_ = f"went {color}" if share == 1 else f"went beyond {color}"
            parts.append(line(x, y, x + share * (to_x - x), y + share * (to_y - y), class_))
            parts += [dot(to_x, to_y, 2.2, f"ended {color}")] if share == 1 else []
        parts.append(_mark(x, y, trial.outcome, color))
    return el("g", el("title", episode.words), *parts, class_="trip", data_trip=episode.anchor)


def _mark(x: Real, y: Real, outcome: str, color: str) -> Markup:
    """A filled dot, a cross or a ring, so that the outcome can be told without colours."""
    if outcome != "failure":
        return dot(x, y, 3.2, f"m-{outcome}")
    near, far = (short(x - 3.2), short(y - 3.2)), (short(x + 3.2), short(y + 3.2))
    path = f"M{near[0]} {near[1]}L{far[0]} {far[1]}M{near[0]} {far[1]}L{far[0]} {near[1]}"
    return el("path", d=path, class_=f"m-failure {color}")


def _signed(value: Real) -> str:
    return short(value).replace("-", "−")
