"""A camera's frames, scaled to the model's image size: kept in a memory map, or decoded when asked for.

Both give the same pixels. `Kept` decodes everything once and is quickest afterwards; `Video` needs no room
and no time before the first step, but each frame costs the decoding of all from where decoding can begin to
it: one or two for what LeRobot writes, up to hundreds for other videos.
"""

import contextlib
import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int, UInt8

from morph_vla.data import pool
from morph_vla.errors import MorphVlaError, require

Mode = Literal["auto", "cache", "video"]
CACHE_BYTES = 8 << 30  # of decoded frames that `auto` keeps; 57,000 of 224 x 224 pixels
RUN = 64  # least frames of one request when a whole file is decoded
SMALL = 500  # frames that are decoded in this process, before workers would have started


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


@dataclasses.dataclass(frozen=True)
class Kept:
    """Frames in memory, or in a memory map."""

    pictures: UInt8[np.ndarray, "n size size 3"]

    def ask(self, rows: Int[np.ndarray, "b"]) -> Callable[[], UInt8[np.ndarray, "b size size 3"]]:
        """Nothing to wait for."""
        return lambda: self.pictures[rows]


class Video:
    """Frames that are decoded when they are asked for, by `workers`.

    Raises MorphVlaError for a frame that cannot be decoded, with its file, episode and number.
    """

    def __init__(self, footage: Footage, workers: pool.Pool | pool.Here):
        self.footage, self.workers = footage, workers
        self._lock = threading.Lock()
        self._indices: dict[int, Future[dict[str, Any]]] = {}
        self._read: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def ask(self, rows: Int[np.ndarray, "b"]) -> Callable[[], UInt8[np.ndarray, "b size size 3"]]:
        """Begin to decode: frames near each other together, each frame once however often it is asked for."""
        once, place = np.unique(rows, return_inverse=True)
        wanted = self._sorted(once)
        out = np.empty((len(once), self.workers.size, self.workers.size, 3), np.uint8)
        pending = []
        for first in range(0, len(wanted), pool.UNIT):
            part = wanted[first : first + pool.UNIT]
            at = np.searchsorted(once, part)

            def receive(pictures: np.ndarray, at: np.ndarray = at) -> None:
                out[at] = pictures

            pending.append((part, self.workers.submit({"frames": self.locate(part)}, receive)))

        def wait() -> UInt8[np.ndarray, "b size size 3"]:
            for part, future in pending:
                self.check(part, future.result())
            return out[place]

        return wait

    def _sorted(self, rows: Int[np.ndarray, "b"]) -> Int[np.ndarray, "b"]:
        return rows[np.lexsort((self.footage.number[rows], self.footage.file_of[rows]))]

    def locate(self, rows: Int[np.ndarray, "b"]) -> list[list[Any]]:
        """Of each row: file, time shown, and where decoding can begin (`decoding.Wanted`); sorted by file."""
        files, first = np.unique(self.footage.file_of[rows], return_index=True)
        for file in files.tolist():
            self._begin_index(file)
        found = []
        for file, own in zip(files.tolist(), np.split(rows, first[1:]), strict=True):
            path = str(self.footage.files[file])
            found += [[path, *times] for times in self._times(file, own).tolist()]
        return found

    def runs(self) -> Iterator[Int[np.ndarray, "_"]]:
        """All rows, in parts that can be decoded apart from each other without decoding a frame twice."""
        rows = self._sorted(np.arange(self.footage.rows))
        files, first = np.unique(self.footage.file_of[rows], return_index=True)
        for place, own in enumerate(np.split(rows, first[1:])):
            for file in files[place : place + 2 * pool.MAX_WORKERS].tolist():
                self._begin_index(file)  # the later ones while this one is decoded
            keys = self._times(int(files[place]), own)[:, 1]
            begin = 0
            for cut in (np.flatnonzero(np.diff(keys)) + 1).tolist():
                if cut - begin >= RUN:
                    yield own[begin:cut]
                    begin = cut
            yield own[begin:]

    def check(self, rows: Int[np.ndarray, "_"], answer: dict[str, Any]) -> None:
        """Raise MorphVlaError when `answer` is not that all of `rows` were decoded."""
        if "error" in answer and "at" in answer:
            row = int(rows[answer["at"]])
            episode, frame = self.footage.place(row)
            raise MorphVlaError(
                f"{self.footage.files[self.footage.file_of[row]]}: episode {episode}, frame {frame} cannot "
                f"be decoded: {answer['error']}"
            )
        if "error" in answer:
            raise MorphVlaError(str(answer["error"]))

    def _begin_index(self, file: int) -> None:
        with self._lock:
            if file not in self._indices:
                self._indices[file] = self.workers.submit({"index": str(self.footage.files[file])})

    def _times(self, file: int, rows: Int[np.ndarray, "b"]) -> Int[np.ndarray, "b 3"]:
        """Of rows of one file: time shown, and the last place before at which decoding can begin."""
        times, keys = self._index(file)
        if len(times) <= self.footage.number[rows].max():
            raise self._truncated(file, len(times))
        shown = times[self.footage.number[rows]]
        key = np.maximum(np.searchsorted(keys[:, 0], shown, side="right") - 1, 0)
        return np.column_stack([shown, keys[key]])

    def _index(self, file: int) -> tuple[np.ndarray, np.ndarray]:
        """Times of all frames, and (shown, decoded) of those at which decoding can begin."""
        if file not in self._read:
            self._begin_index(file)
            answer = self._indices[file].result()
            self.check(np.arange(0), answer)
            times, keys = (np.asarray(values, np.int64) for values in answer["index"])
            if not len(keys):
                raise MorphVlaError(
                    f"{self.footage.files[file]}: the video cannot be decoded: it has no frames"
                )
            self._read[file] = times, keys
        return self._read[file]

    def _truncated(self, file: int, there: int) -> MorphVlaError:
        missing = np.flatnonzero((self.footage.file_of == file) & (self.footage.number >= there))
        episode = self.footage.place(int(missing[0]))[0]
        count = sum(self.footage.place(int(row))[0] == episode for row in missing)
        return MorphVlaError(
            f"{self.footage.files[file]}: the video ends before episode {episode} does ({count} frames are "
            "missing); the file is truncated"
        )


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
        with _own(path.with_suffix(".unfinished")) as unfinished:
            if not path.exists():
                _fill(footage, size, unfinished, progress or (lambda *_: None), workers)
                unfinished.replace(path)
            elif unfinished.exists():  # made by us while another's was being renamed
                unfinished.unlink()
    return np.load(path, mmap_mode="r")


@contextlib.contextmanager
def _own(path: Path) -> Iterator[Path]:
    """A file that no other process of this machine works on; the lock goes with the process that has it."""
    fcntl = require("fcntl", "lerobot")
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


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
    video, pending, done = Video(footage, workers), [], 0
    progress(0, footage.rows)
    try:
        for rows in video.runs():
            request = {"frames": video.locate(rows), "rows": rows.tolist(), "file": str(path)}
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
