"""The last frames of films on one sheet, a name below each: what several robots did, at a glance.

    python scripts/film_sheet.py UR5e=runs/ur5e/videos/000.mp4 XArm7=runs/xarm7/videos/000.mp4 -o sheet.jpg

`--top 190` keeps the upper 190 pixels of each.
"""

import argparse
from pathlib import Path

import av
from PIL import Image, ImageDraw, ImageFont

COLUMNS, LABEL = 3, 26  # of the sheet; pixels below a frame
GROUND, INK = "white", "black"


def last_frame(film: Path) -> Image.Image:
    """The last frame of a film."""
    container = av.open(str(film))
    try:
        *_, frame = container.decode(video=0)
    finally:
        container.close()
    return frame.to_image()


def sheet(films: dict[str, Path], top: int | None = None) -> Image.Image:
    """Frames in rows of COLUMNS, as large as the first; of each the upper `top` pixels."""
    frames = {name: last_frame(film) for name, film in films.items()}
    width, height = next(iter(frames.values())).size
    height = min(height, top or height)
    rows = -(-len(frames) // COLUMNS)
    page = Image.new("RGB", (min(COLUMNS, len(frames)) * width, rows * (height + LABEL)), GROUND)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(LABEL - 10)
    for place, (name, frame) in enumerate(frames.items()):
        x, y = place % COLUMNS * width, place // COLUMNS * (height + LABEL)
        page.paste(frame.crop((0, 0, width, height)), (x, y))
        draw.text((x + width / 2, y + height + LABEL / 2), name, INK, font, anchor="mm")
    return page


def main() -> None:
    """Write the sheet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("films", nargs="+", metavar="NAME=FILM")
    parser.add_argument("--top", type=int, metavar="PIXELS")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    pairs = [item.partition("=") for item in arguments.films]
    if unnamed := [item for item, equals, _ in pairs if not equals]:
        parser.error(f"'{unnamed[0]}' has no name: NAME=FILM")
    sheet({name: Path(film) for name, _, film in pairs}, arguments.top).save(arguments.output, quality=82)
    print(arguments.output)


if __name__ == "__main__":
    main()
