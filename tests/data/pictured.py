"""Datasets whose tables hold encoded pictures: what is in them, and pictures that are none."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.pixels import resize_with_pad

SIZE, HEIGHT, WIDTH = 19, 13, 23
LENGTHS = (7, 5, 3)
COUNT = sum(LENGTHS)
EXTERIOR, WRIST, FRONT = "exterior_image_1_left", "wrist_image_left", "observation.images.front"
KEYS = (EXTERIOR, WRIST, FRONT)


def pixels(row: int, key: str, size: tuple[int, ...] = (HEIGHT, WIDTH, 3)) -> np.ndarray:
    return np.random.default_rng([row, len(key)]).integers(0, 256, size, np.uint8)


def encoded(array: np.ndarray, kind: str = "PNG", mode: str = "RGB") -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(array).convert(mode).save(out, kind)
    return out.getvalue()


def cell_of(row: int, key: str) -> dict[str, Any]:
    """What openpi's conversion leaves in the table: the bytes, and the name they once had."""
    kind = "JPEG" if key == WRIST else "PNG"
    return {"bytes": encoded(pixels(row, key), kind), "path": f"frame_{row:06d}.png"}


def pillow(data: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def wanted(key: str, size: int = SIZE) -> np.ndarray:
    """All frames, by pillow alone."""
    return np.stack([resize_with_pad(pillow(cell_of(row, key)["bytes"]), size) for row in range(COUNT)])


def files_of(root: Path) -> list[Path]:
    return sorted((root / "data").rglob("*.parquet"))


def edit(path: Path, key: str, change, group: int | None = None) -> None:
    """Write a table anew with each cell of a column as `change(place in file, cell)` has it."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(path)
    at = table.schema.get_field_index(key)
    cells = [change(place, cell) for place, cell in enumerate(table.column(at).to_pylist())]
    parquet.write_table(table.set_column(at, key, pa.array(cells, CELL())), path, row_group_size=group)


def CELL():
    import pyarrow as pa

    return pa.struct({"bytes": pa.binary(), "path": pa.string()})


def bomb() -> bytes:
    """A small PNG whose header speaks of 8209 x 4099 pixels."""
    import struct
    import zlib

    data = bytearray(encoded(pixels(0, "x")))
    data[16:24] = struct.pack(">II", 8209, 4099)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


def deep() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.full((5, 7), 30000, np.uint16)).save(out, "PNG")
    return out.getvalue()


def gif() -> bytes:
    return encoded(pixels(0, "x"), "GIF")


BROKEN = {
    "junk": (lambda: b"\x80\x04K*.", r"its 5 bytes are neither PNG nor JPEG"),
    "another format": (gif, r"its \d+ bytes are neither PNG nor JPEG"),
    "cut PNG": (lambda: encoded(pixels(0, "x"))[:299], r"image file is truncated.*"),
    "cut JPEG": (lambda: encoded(pixels(0, "x"), "JPEG")[:-99], r"image file is truncated.*"),
    "bomb": (bomb, r"it has 8209 x 4099 pixels, more than 32 million"),
    "depth": (deep, r"its pixels are I;16; expected colours of eight bits"),
    "no bytes": (lambda: b"", r"it has no bytes"),
}
