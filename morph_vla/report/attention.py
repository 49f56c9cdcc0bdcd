"""Who attends to whom: a heat map a layer, at the suite's initial states or at each step of an episode."""

import json
from collections.abc import Iterable, Sequence

from morph_vla.report.maps import square
from morph_vla.report.markup import Markup, el, short, svg, text
from morph_vla.results.record import Json
from morph_vla.results.values import Real, listing, mapping, number

SHADES = 16  # of a heat map: one path each, which keeps a page of 18 layers small
SIDE, MARGIN, TOP = 132.0, 16.0, 38.0  # of a map, in user units; report.js draws with the same
STEPS = 120  # of an episode; of more, evenly chosen ones are shown

Matrix = list[list[Real]]


def section(robot: Json, read: Json, film: tuple[str, str] | None = None) -> Markup | None:
    """Attention between joints, layer by layer, of what `reading.attention` read; None when it holds no map.

    Where the file has `steps`, a slider chooses one, and the maps show it; `film` is the id of a video on the
    page, which then moves along, and what it shows.
    """
    steps = _steps(read)
    layers = [mapping(layer) for layer in listing(read["layers"])]
    matrices = [square(layer.get("matrix")) for layer in layers]
    if steps:
        matrices = list(steps[0][1])
    largest = [
        _largest(m for m in (matrix, *(own[place] for _, own in steps)) if m)
        for place, matrix in enumerate(matrices)
    ]
    neighbours = square(robot.get("adjacency") or read.get("adjacency"))
    maps = [
        _heat_map(layer, matrix, most, neighbours)
        for layer, matrix, most in zip(layers, matrices, largest, strict=True)
        if matrix
    ]
    if not maps:
        return None
    return el(
        "section",
        el("h2", "Attention between joints"),
        el("p", _words(bool(steps), read), class_="note"),
        el("svg", el("defs", _hatch()), width="0", height="0", aria_hidden="true", style="position:absolute"),
        _slider(steps, largest) if steps else None,
        el(
            "div",
            el("div", maps, class_="layers"),
            _beside(film, bool(steps)),
            class_="seen" if film else None,
        ),
        _joints(read),
        class_="attention",
    )


def _words(steps: bool, read: Json) -> str:
    episode = mapping(read.get("episode"))
    when = "At each time the policy was asked in one episode" if steps else "At the suite's initial states"
    if steps and episode:
        task = f"{episode['task']}, " if episode.get("task") else ""
        ended = {"success": ": success", "time": ": out of time"}.get(str(episode.get("ended")), "")
        when += f" ({task}episode {episode.get('episode')}{ended})"
    return (
        f"{when}: mean attention weight between kinematic tokens. A row is the joint that asks, a column the "
        "joint it reads, stronger is more, up to each layer's own largest weight. In masked layers the "
        "hatched pairs are no neighbours and cannot see each other."
    )


def _largest(matrices: Iterable[Matrix]) -> float:
    """The largest weight of a layer over the whole episode, which its map shows as full."""
    return max((max(map(max, matrix)) for matrix in matrices), default=0.0) or 1.0


def _beside(film: tuple[str, str] | None, steps: bool) -> Markup | None:
    """The episode's film beside its maps: report.js lends it the video that is on the page already."""
    if film is None:
        return None
    name, words = film
    video = el("video", muted=True, playsinline=True, loop=True, aria_label=words, data_of=name)
    says = "It moves with the slider." if steps else ""
    return el("figure", video, el("figcaption", f"{words}. {says}".strip()), class_="clip along")


def _joints(read: Json) -> Markup | None:
    key = ", ".join(f"{place + 1} {name}" for place, name in enumerate(listing(read.get("joints"))))
    return el("p", f"Joints: {key}.", class_="note") if key else None


def _steps(read: Json) -> list[tuple[str, list[Matrix]]]:
    """(words for the step, a matrix a layer) of every step that is well formed."""
    rows = [mapping(row) for row in listing(read.get("steps"))]
    if len(rows) > STEPS:
        rows = [rows[round(i * (len(rows) - 1) / (STEPS - 1))] for i in range(STEPS)]
    steps = []
    for row in rows:
        matrices = [square(matrix) for matrix in listing(row.get("layers"))]
        whole = [matrix for matrix in matrices if matrix]
        if whole and len(whole) == len(listing(read["layers"])):
            seconds = number(row.get("time_s"))
            after = f", {seconds:.1f} s" if seconds is not None else ""
            steps.append((f"step {row.get('step')}{after}", whole))
    return steps if len(steps) > 1 else []


def _slider(steps: Sequence[tuple[str, list[Matrix]]], largest: Sequence[Real]) -> Markup:
    """The slider, and what it chooses from: per step and layer a letter a cell, `a` empty to `q` full."""
    shades = [
        ["".join(_letters(matrix, most)) for matrix, most in zip(own, largest, strict=True)]
        for _, own in steps
    ]
    words = [words for words, _ in steps]
    data = json.dumps({"words": words, "shades": shades}).replace("<", "\\u003c")
    control = el(
        "input",
        type="range",
        min="0",
        max=str(len(steps) - 1),
        value="0",
        step="1",
        aria_label="step of the episode",
    )
    return el(
        "div",
        el("label", el("span", "step"), control, el("output", steps[0][0])),
        el("script", Markup(data), type="application/json"),
        class_="slider",
    )


def _letters(matrix: Matrix, largest: Real) -> list[str]:
    return [chr(ord("a") + _shade(value, largest)) for row in matrix for value in row]


def _shade(value: Real, largest: Real) -> int:
    return min(SHADES, max(0, round(SHADES * value / largest)))


def _hatch() -> Markup:
    return el(
        "pattern",
        el("line", x1=0, y1=0, x2=0, y2=5, class_="hatch"),
        id="hatch",
        width="4",
        height="5",
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )


def _heat_map(layer: Json, matrix: Matrix, largest: Real, neighbours: Matrix | None) -> Markup:
    """One layer: row = the joint that asks, column = the joint it reads.

    In a masked layer the pairs that are no neighbours are hatched when the adjacency is known.
    """
    joints = len(matrix)
    cell = SIDE / joints
    masked = bool(layer.get("masked"))
    closed = neighbours if masked and neighbours and len(neighbours) == joints else None
    shades: dict[int | str, list[str]] = {}
    for row in range(joints):
        for column in range(joints):
            shade = _shade(matrix[row][column], largest)
            kind = "closed" if closed and not closed[row][column] and shade == 0 else shade
            x, y, side = short(MARGIN + cell * column), short(TOP + cell * row), short(cell)
            shades.setdefault(kind, []).append(f"M{x} {y}h{side}v{side}h-{side}z")
    hatched = el("path", d="".join(shades["closed"]), class_="closed") if "closed" in shades else None
    cells = [
        el("path", d="".join(parts), class_="heat", fill_opacity=kind / SHADES)
        for kind, parts in shades.items()
        if isinstance(kind, int) and kind
    ]
    frame = el("rect", x=MARGIN, y=TOP, width=SIDE, height=SIDE, class_="frame")
    every = 1 if joints <= 12 else 5
    ticks = [
        (
            text(MARGIN + cell * (i + 0.5), TOP - 4, str(i + 1), "middle", "tiny"),
            text(MARGIN - 4, TOP + cell * (i + 0.5) + 3, str(i + 1), "end", "tiny"),
        )
        for i in range(joints)
        if (i + 1) % every == 0 or i == 0
    ]
    head = text(MARGIN, 16, f"layer {layer.get('layer')}", class_="label")
    badge = text(MARGIN + SIDE, 16, "masked" if masked else "free", "end", "badge" if masked else "tick")
    peak, row, column = max((matrix[r][c], r, c) for r in range(joints) for c in range(joints))
    title = (
        f"Attention in layer {layer.get('layer')} ({'masked' if masked else 'free'}): "
        f"largest {peak:.2f}, from joint {row + 1} to joint {column + 1}"
    )
    scale = text(MARGIN + SIDE, TOP + SIDE + 14, f"full: {largest:.2g}", "end", "tick")
    body = (frame, hatched, el("g", cells, class_="shades"), ticks, head, badge, scale)
    return svg(title, SIDE + 20, TOP + SIDE + 18, *body, data_joints=str(joints))
