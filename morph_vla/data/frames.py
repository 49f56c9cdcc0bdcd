"""A camera's frames: decoded once, scaled to the model's image size and kept as a memory map.

A training run visits each frame many times. The cache appears whole or not at all.
"""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from morph_vla.errors import MorphVlaError, require
from morph_vla.pi05.observation import resize_with_pad


@dataclasses.dataclass(frozen=True)
class Footage:
    """Where the n frames of one camera lie: which video file, and which of its frames, for every row."""

    root: Path
    camera: str
    content: str  # a name for the dataset's content: values, episodes and videos
    files: tuple[Path, ...]
    file_of: Int[np.ndarray, "n"]  # the place in `files`
    number: Int[np.ndarray, "n"]  # of the frame in its file, in the order of showing, from 0
    starts: Int[np.ndarray, "e"]  # first row of each episode
    ends: Int[np.ndarray, "e"]  # one past its last

    @property
    def rows(self) -> int:
        """Number of frames."""
        return len(self.number)

    def place(self, row: int) -> tuple[int, int]:
        """Episode of a row, and its frame in the episode."""
        episode = int(np.searchsorted(self.starts, row, side="right")) - 1
        return episode, row - int(self.starts[episode])


def cached(
    footage: Footage, size: int, cache: Path, progress: Callable[[int, int], None] | None = None
) -> UInt8[np.ndarray, "n size size 3"]:
    """Every frame of one camera, scaled with padding to `size`, as a read-only memory map in `cache`.

    Raises MorphVlaError for a video that cannot be decoded, and for one with fewer frames than the table
    (its episode is named).
    """
    path = cache / f"{footage.content}-{footage.camera.replace('/', '_')}-{size}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        shape = (footage.rows, size, size, 3)
        out = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=shape)
        for done, (row, image) in enumerate(_decode(footage)):
            out[row] = resize_with_pad(image, size)
            if progress and done % 500 == 0:
                progress(done, footage.rows)
        out.flush()
        del out
        unfinished.replace(path)
    return np.load(path, mmap_mode="r")


def clear_cache(cache: Path) -> None:
    """Remove what `cached` keeps."""
    shutil.rmtree(cache, ignore_errors=True)


def _decode(footage: Footage) -> Iterator[tuple[int, UInt8[np.ndarray, "h w 3"]]]:
    """(row, frame) of all rows, each video file decoded once from front to back."""
    for index, path in enumerate(footage.files):
        rows = np.flatnonzero(footage.file_of == index)
        yield from _decode_file(footage, path, rows[np.argsort(footage.number[rows], kind="stable")].tolist())


def _decode_file(
    footage: Footage, path: Path, rows: list[int]
) -> Iterator[tuple[int, UInt8[np.ndarray, "h w 3"]]]:
    """(row, frame) of the rows in one video, which are in the order of its frames."""
    left = list(reversed(rows))
    for number, image in enumerate(_images(path)):
        while left and number == footage.number[left[-1]]:
            yield left.pop(), image
        if not left:
            return
    if left:
        raise _truncated(footage, path, left)


def _truncated(footage: Footage, path: Path, missing: list[int]) -> MorphVlaError:
    episode = min(footage.place(row)[0] for row in missing)
    count = sum(footage.place(row)[0] == episode for row in missing)
    return MorphVlaError(
        f"{path}: the video ends before episode {episode} does ({count} frames are missing); "
        "the file is truncated"
    )


def _images(path: Path) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    av = require("av", "lerobot")
    try:
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                yield frame.to_ndarray(format="rgb24")
    except av.error.FFmpegError as error:
        raise MorphVlaError(f"{path}: the video cannot be decoded: {error}") from error
