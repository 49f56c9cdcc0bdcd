"""Films on one sheet, a name below each: what several robots did, at a glance.

    python scripts/film_sheet.py UR5e=runs/ur5e/videos/000.mp4 XArm7=runs/xarm7/videos/000.mp4 -o sheet.jpg
    python scripts/film_sheet.py UR5e=runs/ur5e/videos/000.mp4 XArm7=runs/xarm7/videos/000.mp4 -o sheet.webp

A picture has the last frames. A .webp moves: each film from its beginning, then it stands until the longest
has ended. `--top 190` keeps the upper 190 pixels of each, `--width 180` makes each as wide as that.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import av
from PIL import Image, ImageDraw, ImageFont

COLUMNS, LABEL = 3, 26  # of the sheet; pixels below a frame
GROUND, INK = "white", "black"
RATE, HOLD = 7.5, 1.5  # of a sheet that moves: frames per second; seconds that its last frame stays


def frames(film: Path) -> tuple[list[Image.Image], float]:
    """Every frame of a film, and how many there are in a second."""
    container = av.open(str(film))
    try:
        pictures = [frame.to_image() for frame in container.decode(video=0)]
        return pictures, float(container.streams.video[0].average_rate or RATE)
    finally:
        container.close()


def sheet(
    pictures: dict[str, Image.Image],
    top: int | None = None,
    width: int | None = None,
    columns: int = COLUMNS,
) -> Image.Image:
    """Pictures in rows, as large as the first; of each the upper `top` pixels, made `width` pixels wide."""
    whole, height = next(iter(pictures.values())).size
    height = min(height, top or height)
    width = width or whole
    scaled = round(height * width / whole)
    rows = -(-len(pictures) // columns)
    page = Image.new("RGB", (min(columns, len(pictures)) * width, rows * (scaled + LABEL)), GROUND)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(LABEL - 10)
    for place, (name, picture) in enumerate(pictures.items()):
        x, y = place % columns * width, place // columns * (scaled + LABEL)
        page.paste(picture.crop((0, 0, whole, height)).resize((width, scaled)), (x, y))
        draw.text((x + width / 2, y + scaled + LABEL / 2), name, INK, font, anchor="mm")
    return page


def moments(films: dict[str, Path]) -> list[dict[str, Image.Image]]:
    """The frames of films at RATE, side by side; one that is over shows its last."""
    decoded = {name: frames(film) for name, film in films.items()}
    seconds = max(len(pictures) / rate for pictures, rate in decoded.values())
    return [
        {
            name: pictures[min(round(step / RATE * rate), len(pictures) - 1)]
            for name, (pictures, rate) in decoded.items()
        }
        for step in range(round(seconds * RATE) + 1)
    ]


def write(
    films: dict[str, Path],
    path: Path,
    top: int | None = None,
    width: int | None = None,
    columns: int = COLUMNS,
) -> None:
    """The sheet, moving where the path ends in .webp; the others as in `sheet`."""
    if path.suffix != ".webp":
        ends = {name: frames(film)[0][-1] for name, film in films.items()}
        sheet(ends, top, width, columns).save(path, quality=82)
        return
    pages = [sheet(pictures, top, width, columns) for pictures in moments(films)]
    durations = [round(1000 / RATE)] * (len(pages) - 1) + [round(1000 * HOLD)]
    pages[0].save(
        path, save_all=True, append_images=pages[1:], duration=durations, loop=0, quality=45, method=4
    )


def main(words: Sequence[str] | None = None) -> None:
    """Write the sheet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("films", nargs="+", metavar="NAME=FILM")
    parser.add_argument("--top", type=int, metavar="PIXELS")
    parser.add_argument("--width", type=int, metavar="PIXELS")
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(words)
    pairs = [item.partition("=") for item in given.films]
    if unnamed := [item for item, equals, _ in pairs if not equals]:
        parser.error(f"'{unnamed[0]}' has no name: NAME=FILM")
    films = {name: Path(film) for name, _, film in pairs}
    write(films, given.output, top=given.top, width=given.width, columns=given.columns)
    print(given.output)


if __name__ == "__main__":
    main()
