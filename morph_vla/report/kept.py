"""Image tokens that are kept: each camera's picture at some moments of an episode, a veil over the rest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isqrt

from markupsafe import Markup

from morph_vla.report.attention import which
from morph_vla.report.charts import el, svg
from morph_vla.report.reading import Evaluation, inner
from morph_vla.report.words import short
from morph_vla.results.record import Json, Study
from morph_vla.results.values import Real, integer, listing, mapping, number, numbers

SIDE = 160.0  # of a picture, in user units
VEIL = 0.8  # opacity over a patch of which nothing is kept
SHADES = 8  # of the veil: one path each
MOST = 12  # moments that are shown
WORDS = {
    "ranking": "those with the highest scores; a patch that it does not read is dark",
    "random": "at places drawn once, the same in every image; a patch that it does not read is dark",
    "average": "each the mean of one of the squares drawn; every patch counts the same, and none is left out",
    "learnt": "mixtures of all; the darker a patch, the shorter its column in the mixing matrix (bright: the "
    "longest of the episode)",
}
SEEN = "A token has seen the rest of its image before: the vision encoder's attention is over all patches."


@dataclass(frozen=True)
class Kept:
    """The section of a page."""

    words: str
    cameras: Sequence[object]
    moments: Sequence[tuple[str, Sequence[Markup]]]
    """When, and a picture a camera."""


def find(study: Study, evaluations: Sequence[Evaluation]) -> Kept | None:
    """That of the whole study, else of the last evaluation that has one; None where no file says it.

    Raises MorphVlaError for a file outside its folder.
    """
    return next(
        (
            section
            for content, _ in inner(study, evaluations, "image_tokens")
            if (section := _section(content))
        ),
        None,
    )


def _section(content: Json) -> Kept | None:
    how, keep, patches = content.get("how"), integer(content.get("keep")), integer(content.get("patches"))
    if keep is None or patches is None or not 1 <= keep <= patches:
        return None
    if how == "all":
        every = f"The language model reads all {patches} image tokens of each camera"
        return Kept(f"{every}: this policy has no `model.image_tokens`, and nothing is left out.", (), ())
    moments = [mapping(moment) for moment in listing(content.get("steps"))][:MOST]
    weights = [_weights(shown, patches) for moment in moments for shown in _shown(moment)]
    largest = max((max(known) for known in weights if known), default=0.0)
    cameras = listing(content.get("cameras"))
    rows = [(_when(moment), _pictures(moment, str(how), keep, patches, largest)) for moment in moments]
    rows = [(when, pictures) for when, pictures in rows if pictures and len(pictures) == len(cameras)]
    if str(how) not in WORDS or not rows:
        return None
    words = (
        f"The language model reads {keep} of each camera's {patches} image tokens, {WORDS[str(how)]}. {SEEN}"
    )
    episode = mapping(content.get("episode"))
    return Kept(words + (f" One episode{which(episode)}." if episode else ""), cameras, rows)


def _when(moment: Json) -> str:
    seconds = number(moment.get("time_s"))
    return f"step {moment.get('step')}" + ("" if seconds is None else f", {seconds:.1f} s")


def _shown(moment: Json) -> list[Json]:
    return [mapping(shown) for shown in listing(moment.get("cameras"))]


def _weights(shown: Json, patches: int) -> list[Real] | None:
    """Of a picture's patches; None where they are no whole square of them."""
    known = numbers(shown.get("weights"))
    return known if known and len(known) == patches == isqrt(patches) ** 2 else None


def _pictures(moment: Json, how: str, keep: int, patches: int, largest: Real) -> list[Markup]:
    """A picture a camera; fewer where one is malformed."""
    drawn = []
    for shown in _shown(moment):
        weights, picture = _weights(shown, patches), shown.get("picture")
        if weights and isinstance(picture, str) and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", picture):
            drawn.append(_picture(picture, weights, how, keep, largest))
    return drawn


def _picture(picture: str, weights: Sequence[Real], how: str, keep: int, largest: Real) -> Markup:
    side, read = isqrt(len(weights)), sum(weight > 0 for weight in weights)
    image = el("image", href=f"data:image/jpeg;base64,{picture}", width=SIDE, height=SIDE)
    title = f"{read} of {len(weights)} patches are read"
    over = [_squares(isqrt(keep))] if how == "average" else _veil(weights, side, largest)
    return svg(title, SIDE, image, *over, width=SIDE)


def _veil(weights: Sequence[Real], side: int, largest: Real) -> list[Markup]:
    """A path a shade; patches of one shade that follow each other in a row are one rectangle."""
    cell, paths = SIDE / side, dict[int, str]()
    for row in range(side):
        of_row = [_shade(weight, largest) for weight in weights[row * side : (row + 1) * side]]
        for shade, run in groupby(range(side), of_row.__getitem__):
            columns = list(run)
            x, y, width = short(cell * columns[0]), short(cell * row), short(cell * len(columns))
            paths[shade] = paths.get(shade, "") + f"M{x} {y}h{width}v{short(cell)}h-{width}z"
    return [
        el("path", d=d, class_="veil", fill_opacity=VEIL * shade / SHADES)
        for shade, d in sorted(paths.items())
        if shade
    ]


def _shade(weight: Real, largest: Real) -> int:
    """How dark a patch is: SHADES where nothing of it is kept, 0 at the largest weight."""
    return SHADES - max(0, min(SHADES, round(SHADES * weight / largest))) if largest > 0 else SHADES


def _squares(count: int) -> Markup:
    """The lines between `count` x `count` squares."""
    at = [short(SIDE * i / count) for i in range(1, count)]
    d = "".join(f"M{x} 0v{short(SIDE)}M0 {x}h{short(SIDE)}" for x in at)
    return el("path", d=d or "M0 0", class_="squares")
