"""Pictures with what is there and what an estimator makes of it, on a sheet."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla.errors import MorphVlaError

TIMES, COLUMNS, MOST = 3, 4, 24  # a picture is drawn so many times as large, so many in a row and on a sheet
TRUE, GUESSED = (0, 190, 60), (230, 0, 200)
RADIUS = 7.0


def check(path: Path | None) -> None:
    """Raise MorphVlaError where a file's ending names no kind of picture that a sheet can be."""
    if path is not None and path.suffix.lower() not in (".png", ".jpg", ".webp"):
        raise MorphVlaError(f"{path}: a sheet is a .png, .jpg or .webp")


def sheet(
    images: UInt8[np.ndarray, "n s s 3"],
    true: Float[np.ndarray, "n r 2"],
    guessed: Float[np.ndarray, "n r 2"],
    path: Path,
) -> None:
    """Write pictures, at most MOST of them evenly taken: rings where things are, crosses where they are said.

    `true` and `guessed` are pixels (right, down) of each role. Raises MorphVlaError as `check`.
    """
    check(path)
    from PIL import Image, ImageDraw

    chosen = np.unique(np.linspace(0, len(images) - 1, min(MOST, len(images))).round().astype(int))
    side = TIMES * images.shape[1]
    whole = Image.new("RGB", (COLUMNS * side, -(-len(chosen) // COLUMNS) * side), "white")
    for place, index in enumerate(chosen):
        picture = Image.fromarray(images[index]).resize((side, side), Image.Resampling.NEAREST)
        draw = ImageDraw.Draw(picture)
        for there, here in zip(TIMES * true[index], TIMES * guessed[index], strict=True):
            draw.ellipse([*(there - RADIUS), *(there + RADIUS)], outline=TRUE, width=2)
            for slope in (1, -1):
                arm = np.array([RADIUS, slope * RADIUS])
                draw.line([*(here - arm), *(here + arm)], fill=GUESSED, width=2)
        whole.paste(picture, ((place % COLUMNS) * side, (place // COLUMNS) * side))
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.save(path)
