"""The pictures of where: initial states seen from above, and the joint graph."""

from collections.abc import Sequence
from math import cos, hypot, pi, sin

from morph_vla.report.axes import WIDTH, linear_axis
from morph_vla.report.markup import Markup, el, line, short, svg, text
from morph_vla.results.record import Json
from morph_vla.results.trial import Trial
from morph_vla.results.values import Real, mapping, numbers

Trials = Sequence[Trial]
OUTCOMES = ("success", "failure", "error")


def start_maps(trials: Trials, everyone: Sequence[Trials]) -> list[Markup]:
    """For each object its initial (x, y) [m] in the robot's base frame, marked by how the episode ended.

    All maps of a report share one scale, which spans the initial states of `everyone`.
    """
    all_places = [xy for other in everyone for places in _places(other).values() for xy, _ in places]
    if not all_places:
        return []
    corners = tuple(f(xy[i] for xy in all_places) for i in (0, 1) for f in (min, max))
    return [_start_map(name, places, corners) for name, places in _places(trials).items()]


def _places(trials: Trials) -> dict[str, list[tuple[list[Real], str]]]:
    """Object -> ((x, y), outcome) of each trial that says where the object began."""
    objects: dict[str, list[tuple[list[Real], str]]] = {}
    for trial in trials:
        for name, pose in (trial.initial or {}).items():
            if len(pose) >= 2:
                objects.setdefault(name, []).append((pose[:2], trial.outcome))
    return objects


def _start_map(name: str, places: list[tuple[list[Real], str]], corners: tuple[Real, ...]) -> Markup:
    """Seen from behind the robot: x runs up, y to the left, both at one scale."""
    x_low, x_high, y_low, y_high = corners
    margin = 0.06 * max(x_high - x_low, y_high - y_low, 0.05)
    x_low, x_high, y_low, y_high = x_low - margin, x_high + margin, y_low - margin, y_high + margin
    left, top = 44.0, 24.0
    scale = min((WIDTH - 6 - left) / (y_high - y_low), 300 / (x_high - x_low))  # user units per metre
    right, bottom = left + scale * (y_high - y_low), top + scale * (x_high - x_low)
    up = linear_axis(x_low, x_high, bottom, top, 3)
    across = linear_axis(y_low, y_high, right, left, 5)
    frame = el("rect", x=left, y=top, width=right - left, height=bottom - top, class_="frame")
    sides = [
        (line(left, up.place(t), right, up.place(t), "grid"), _tick(left - 6, up.place(t) + 4, t, "end"))
        for t in up.ticks
    ]
    feet = [
        (line(across.place(t), top, across.place(t), bottom, "grid"), _tick(across.place(t), bottom + 15, t))
        for t in across.ticks
    ]
    # Failures lie on top: they are what one looks for among many successes.
    order = sorted(places, key=lambda place: OUTCOMES.index(place[1]))
    marks = [_mark(across.place(xy[1]), up.place(xy[0]), how) for xy, how in order]
    counts = ", ".join(f"{sum(how == kind for _, how in places)} {kind}" for kind in OUTCOMES)
    title = f"Initial x and y of {name} in metres: {counts}"
    names = (text(left, 15, name, class_="label"), text(right, 15, "x up, y to the left [m]", "end", "tick"))
    return svg(title, WIDTH, bottom + 20, frame, sides, feet, marks, names)


def _tick(x: Real, y: Real, value: Real, anchor: str = "middle") -> Markup:
    return text(x, y, short(value).replace("-", "−"), anchor, "tick")


def _mark(x: Real, y: Real, how: str) -> Markup:
    """A filled dot, a cross or a ring, so that the outcome does not hang on colour alone."""
    if how == "success":
        return el("circle", cx=x, cy=y, r=3.2, class_="m-success")
    if how == "error":
        return el("circle", cx=x, cy=y, r=3.2, class_="m-error")
    near, far = (short(x - 3.2), short(y - 3.2)), (short(x + 3.2), short(y + 3.2))
    path = f"M{near[0]} {near[1]}L{far[0]} {far[1]}M{near[0]} {far[1]}L{far[0]} {near[1]}"
    return el("path", d=path, class_="m-failure")


def square(matrix: object) -> list[list[Real]] | None:
    """The matrix as rows of finite numbers when it is square and not empty, else None."""
    if not isinstance(matrix, list | tuple) or not matrix:
        return None
    as_numbers = [
        [float(c) if isinstance(c, bool) else c for c in row] for row in matrix if isinstance(row, list)
    ]
    rows = [row for row in map(numbers, as_numbers) if row is not None]
    return rows if len(rows) == len(matrix) and all(len(row) == len(matrix) for row in rows) else None


def joint_graph(robot: Json) -> Markup | None:
    """The joint graph on a circle, for a record with an adjacency but no picture; None without one."""
    adjacency, joints = square(robot.get("adjacency")), robot.get("joints")
    if adjacency is None or not isinstance(joints, list) or len(joints) != len(adjacency):
        return None
    names = [str(mapping(joint).get("name")) for joint in joints]
    angle = [2 * pi * i / len(names) - pi / 2 for i in range(len(names))]
    places = [(230 + 120 * cos(a), 150 + 110 * sin(a)) for a in angle]
    edges = [
        line(*places[i], *places[k], "edge") for i in range(len(names)) for k in range(i) if adjacency[i][k]
    ]
    dots = [el("circle", cx=x, cy=y, r=5, class_="dot") for x, y in places]
    labels = [_around(x, y, name) for (x, y), name in zip(places, names, strict=True)]
    return svg(f"Joint graph: {len(names)} joints, {len(edges)} edges", 460, 300, edges, dots, labels)


def _around(x: Real, y: Real, name: str) -> Markup:
    """A joint's name outside its dot, away from the middle."""
    away_x, away_y = (x - 230) / 120, (y - 150) / 110
    reach = 12 / max(hypot(away_x, away_y), 1e-9)
    anchor = "middle" if abs(away_x) < 0.2 else "start" if away_x > 0 else "end"
    return text(x + reach * away_x, y + reach * away_y + 4, name, anchor, "tick")
