"""Who attends to whom: a heat map a layer, at the suite's initial states or at each step of an episode."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from morph_vla.report.charts import el, svg, text
from morph_vla.report.episodes import Episode, Episodes
from morph_vla.report.reading import Evaluation, inner, square
from morph_vla.report.words import short
from morph_vla.results.record import Json, Study
from morph_vla.results.values import Real, integer, listing, mapping, number

SHADES = 16  # of a heat map: one path each, which keeps a page of 18 layers small
SIDE, MARGIN, TOP = 132.0, 16.0, 38.0  # of a map, in user units; report.js draws with the same
STEPS = 120  # of an episode; of more, evenly chosen ones are shown

Matrix = list[list[Real]]


@dataclass(frozen=True)
class Attention:
    """The section of a page."""

    when: str
    maps: list[Markup]
    steps: list[str]
    """What the slider says of each step; empty where there is none."""
    data: Markup
    """What the slider chooses from, as JSON: per step and layer a letter a cell, `a` empty to `q` full."""
    joints: str
    episode: Episode | None
    """The episode, where its video is on the page: it moves with the slider."""


def find(study: Study, evaluations: Sequence[Evaluation], episodes: Episodes) -> Attention | None:
    """That of the whole study, else of the last evaluation that has one; None when no file holds a map.

    Raises MorphVlaError for a file outside its folder.
    """
    for content, place in inner(study, evaluations, "attention"):
        if section := _section(study.robot, content, episodes[place]):
            return section
    return None


def _section(robot: Json, content: Json, episodes: Mapping[str, Sequence[Episode]]) -> Attention | None:
    layers = [mapping(layer) for layer in listing(content.get("layers"))]
    steps = _steps(content, len(layers))
    means = [square(layer.get("matrix")) for layer in layers]
    series = list(zip(*(matrices for _, matrices in steps or [("", means)]), strict=True))
    # The largest weight of a layer over the whole episode, which its map shows as full.
    largest = [max((max(map(max, matrix)) for matrix in of if matrix), default=0.0) or 1.0 for of in series]
    neighbours = square(robot.get("adjacency") or content.get("adjacency"))
    maps = [
        _heat_map(layer, matrices[0], full, neighbours)
        for layer, matrices, full in zip(layers, series, largest, strict=True)
        if matrices[0]
    ]
    shades = [[_letters(*pair) for pair in zip(matrices, largest, strict=True)] for _, matrices in steps]
    words = [words for words, _ in steps]
    data = json.dumps({"words": words, "shades": shades}).replace("<", "\\u003c")
    joints = ", ".join(f"{i} {name}" for i, name in enumerate(listing(content.get("joints")), start=1))
    about = mapping(content.get("episode"))
    same, number_of = episodes.get(str(about.get("task_key") or ""), []), integer(about.get("episode"))
    episode = next((each for each in same if each.trial.episode == number_of and each.path), None)
    when = "At the suite's initial states"
    if steps:
        when = "At each time the policy was asked in one episode" + (which(about) if about else "")
    return Attention(when, maps, words, Markup(data), joints, episode) if maps else None


def which(episode: Json) -> str:
    """Which episode a file is about, and how it ended, in brackets."""
    task = f"{episode['task']}, " if episode.get("task") else ""
    ended = {"success": ": success", "time": ": out of time"}.get(str(episode.get("ended")), "")
    return f" ({task}episode {episode.get('episode')}{ended})"


def _steps(content: Json, layers: int) -> list[tuple[str, list[Matrix]]]:
    """(words for the step, a matrix a layer) of every step that is well formed; empty below two."""
    rows = [mapping(row) for row in listing(content.get("steps"))]
    if len(rows) > STEPS:
        rows = [rows[round(i * (len(rows) - 1) / (STEPS - 1))] for i in range(STEPS)]
    steps = []
    for row in rows:
        matrices = [matrix for matrix in map(square, listing(row.get("layers"))) if matrix]
        if matrices and len(matrices) == layers:
            seconds = number(row.get("time_s"))
            after = f", {seconds:.1f} s" if seconds is not None else ""
            steps.append((f"step {row.get('step')}{after}", matrices))
    return steps if len(steps) > 1 else []


def _shade(value: Real, largest: Real) -> int:
    return min(SHADES, max(0, round(SHADES * value / largest)))


def _letters(matrix: Matrix, largest: Real) -> str:
    return "".join(chr(ord("a") + _shade(value, largest)) for row in matrix for value in row)


def _heat_map(layer: Json, matrix: Matrix, largest: Real, neighbours: Matrix | None) -> Markup:
    """One layer: row = the joint that asks, column = the joint it reads.

    In a masked layer the pairs that are no neighbours are hatched when the adjacency is known.
    """
    joints, kind = len(matrix), "masked" if layer.get("masked") else "free"
    cell = SIDE / joints
    closed = neighbours if kind == "masked" and neighbours and len(neighbours) == joints else None
    paths: dict[int, str] = {}  # shade -> its cells; -1 is hatched
    for row, column in ((row, column) for row in range(joints) for column in range(joints)):
        shade = _shade(matrix[row][column], largest)
        shade = -1 if closed and not closed[row][column] and shade == 0 else shade
        x, y, side = short(MARGIN + cell * column), short(TOP + cell * row), short(cell)
        paths[shade] = paths.get(shade, "") + f"M{x} {y}h{side}v{side}h-{side}z"
    hatched = el("path", d=paths[-1], class_="closed") if -1 in paths else None
    cells = [el("path", d=d, class_="heat", fill_opacity=i / SHADES) for i, d in paths.items() if i > 0]
    frame = el("rect", x=MARGIN, y=TOP, width=SIDE, height=SIDE, class_="frame")
    ticks = []
    for i in (i for i in range(joints) if joints <= 12 or (i + 1) % 5 == 0 or i == 0):
        ticks.append(text(MARGIN + cell * (i + 0.5), TOP - 4, str(i + 1), "middle", "tiny"))
        ticks.append(text(MARGIN - 4, TOP + cell * (i + 0.5) + 3, str(i + 1), "end", "tiny"))
    head = text(MARGIN, 16, f"layer {layer.get('layer')}", class_="label")
    badge = text(MARGIN + SIDE, 16, kind, "end", "badge" if kind == "masked" else "tick")
    peak, row, column = max((matrix[r][c], r, c) for r in range(joints) for c in range(joints))
    title = f"Attention in layer {layer.get('layer')} ({kind}): largest {peak:.2f}, "
    title += f"from joint {row + 1} to joint {column + 1}"
    scale = text(MARGIN + SIDE, TOP + SIDE + 14, f"full: {largest:.2g}", "end")
    parts = (frame, hatched, el("g", *cells, class_="shades"), *ticks, head, badge, scale)
    return svg(title, TOP + SIDE + 18, *parts, width=SIDE + 20, data_joints=str(joints))
