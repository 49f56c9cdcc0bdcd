"""A camera's frames, scaled to the model's image size: kept in a memory map, or decoded when asked for.

Both give the same pixels. `Kept` decodes everything once and is quickest afterwards; what is decoded when
asked for (`footage`) needs no room and no time before the first step, but each frame costs the decoding of
all from where decoding can begin to it: one or two for what LeRobot writes, up to hundreds for other videos.
A picture within a table costs the reading of its row group up to it.
"""

import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int, UInt8

from morph_vla.data import pool
from morph_vla.data.footage import Footage, Video, opened
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import locked

Mode = Literal["auto", "cache", "video"]
CACHE_BYTES = 8 << 30  # of decoded frames that `auto` keeps; 57,000 of 224 x 224 pixels
SMALL = 500  # frames that are decoded in this process, before workers would have started


@dataclasses.dataclass(frozen=True)
class Kept:
    """Frames in memory, or in a memory map."""

    pictures: UInt8[np.ndarray, "n size size 3"]

    def ask(self, rows: Int[np.ndarray, "b"]) -> Callable[[], UInt8[np.ndarray, "b size size 3"]]:
        """Nothing to wait for."""
        return lambda: self.pictures[rows]


def fit(footage: Iterable[Footage], size: int) -> bool:
    """Whether all these cameras' frames at `size` may be kept by `auto`."""
    return sum(one.rows for one in footage) * size * size * 3 <= CACHE_BYTES


# ------------------------------------------------------------------------------------------------ the cache


def cached(
    footage: Footage,
    size: int,
    cache: Path,
    progress: Callable[[int, int], None] | None = None,
    workers: pool.Pool | pool.Here | None = None,
) -> UInt8[np.ndarray, "n size size 3"]:
    """Every frame of one camera, scaled with padding to `size`, as a read-only memory map in `cache`.

    It is decoded by several processes and appears whole or not at all; who comes while another decodes it
    waits. `progress` is told (frames done, of how many). Raises MorphVlaError for a video that cannot be
    decoded, one with fewer frames than the table (its episode is named), and too little room.
    """
    path = cache / f"{footage.content}-{footage.camera.replace('/', '_')}-{size}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        with locked(unfinished):
            if not path.exists():
                _fill(footage, size, unfinished, progress or (lambda *_: None), workers)
                unfinished.replace(path)
            elif unfinished.exists():  # made by us while another's was being renamed
                unfinished.unlink()
    return np.load(path, mmap_mode="r")


def _fill(
    footage: Footage,
    size: int,
    path: Path,
    progress: Callable[[int, int], None],
    workers: pool.Pool | pool.Here | None,
) -> None:
    """Decode all of `footage` into the .npy file at `path`."""
    shape = (footage.rows, size, size, 3)
    _make(path, shape)
    own = None
    if footage.rows <= SMALL or workers is None:
        own = workers = pool.Here(size) if footage.rows <= SMALL else pool.Pool(pool.default_workers(), size)
    video, pending, done = opened(footage, workers), [], 0
    progress(0, footage.rows)
    try:
        for rows in video.runs():
            request = {**video.request(rows), "rows": rows.tolist(), "file": str(path)}
            pending.append((rows, workers.submit(request)))
            while len(pending) > 4 * pool.MAX_WORKERS or (pending and pending[0][1].done()):
                done += _finish(video, *pending.pop(0))
                progress(done, footage.rows)
        for rows, future in pending:
            done += _finish(video, rows, future)
            progress(done, footage.rows)
    finally:
        if own is not None:
            own.close()


def _finish(video: Video, rows: np.ndarray, future: "Future[dict[str, Any]]") -> int:
    video.check(rows, future.result())
    return len(rows)


def _make(path: Path, shape: tuple[int, ...]) -> None:
    """An empty .npy file with its room claimed: a disk that fills up under a map kills the process."""
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape).flush()
    length = path.stat().st_size
    try:
        if hasattr(os, "posix_fallocate"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, length)
    except OSError as error:
        path.unlink()
        free = shutil.disk_usage(path.parent).free
        raise MorphVlaError(
            f"{path.parent}: no room for {length / 1e9:.2f} GB of decoded frames ({free / 1e9:.2f} GB are "
            f"free: {error.strerror}); data.frames=video needs none"
        ) from error


def telling(say: Callable[[str], None], what: str, every: float = 10.0) -> Callable[[int, int], None]:
    """A `progress` for `cached` that says how far `what` is, its rate and the time left, now and then."""
    began = last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every and done > 0:
            last, rate = now, done / (now - began)
            say(f"{what}: {done} of {total} frames, {rate:.0f}/s, {(total - done) / rate:.0f} s left")

    return progress


def clear_cache(cache: Path) -> None:
    """Remove what `cached` keeps."""
    shutil.rmtree(cache, ignore_errors=True)
