"""A camera's frames, scaled to the model's image size: kept in a memory map, or decoded when asked for.

Both give the same pixels. `Kept` decodes everything once and is quickest afterwards; what is decoded when
asked for (`Video`, or `Pictures` within the tables) needs no room and no time before the first step, but each
frame costs the decoding of all from where decoding can begin to it: one or two for what LeRobot writes, up to
hundreds for other videos. A picture within a table costs the reading of its row group up to it.
"""

import collections
import contextlib
import dataclasses
import logging
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
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import locked

LOG = logging.getLogger(__name__)
Mode = Literal["auto", "cache", "video"]
CACHE_BYTES = 8 << 30  # of decoded frames that `auto` keeps; 57,000 of 224 x 224 pixels
SMALL = 500  # frames that are decoded in this process, before workers would have started
RUN = 64  # least frames of one request when a whole file is decoded
AHEAD = 2 * pool.MAX_WORKERS  # files whose indices are asked for before they are needed
MOST = 8192  # most of one request; more of one row group are read from its front again


@dataclasses.dataclass(frozen=True)
class Footage:
    """Where the n frames of one camera lie: which file, and which of its frames, for every row."""

    root: Path
    camera: str
    content: str  # a name for the dataset's content: values, episodes and videos
    files: tuple[Path, ...]
    file_of: Int[np.ndarray, "n"]  # the place in `files`
    number: Int[np.ndarray, "n"]  # of the frame in its file, from 0: in the order of showing, or of the rows
    starts: Int[np.ndarray, "e"]  # first row of each episode
    ends: Int[np.ndarray, "e"]  # one past its last
    column: str = ""  # of the pictures, where the files are tables
    indices: tuple[int, ...] = ()  # the dataset's numbers of the episodes; () where they are 0, 1, ...

    @property
    def rows(self) -> int:
        """Number of frames."""
        return len(self.number)

    def place(self, row: int) -> tuple[int, int]:
        """The number of a row's episode, and its frame in it."""
        episode = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.indices[episode] if self.indices else episode, row - int(self.starts[episode])


class Video:
    """Frames of video that are decoded when they are asked for, by `workers`.

    Raises MorphVlaError for a frame that cannot be decoded, with its file, episode and number.
    """

    def __init__(self, footage: Footage, workers: pool.Pool | pool.Here):
        self.footage, self.workers = footage, workers
        self._lock = threading.Lock()
        self._indices: dict[int, Future[dict[str, Any]]] = {}
        self._read: dict[int, list[np.ndarray]] = {}

    def ask(self, rows: Int[np.ndarray, "b"]) -> Callable[[], UInt8[np.ndarray, "b size size 3"]]:
        """Begin to decode: frames near each other together, each frame once however often it is asked for."""
        once, place = np.unique(rows, return_inverse=True)
        wanted = self._sorted(once)
        out = np.empty((len(once), self.workers.size, self.workers.size, 3), np.uint8)
        pending = []
        for part in self.parts(wanted):
            at = np.searchsorted(once, part)

            def receive(pictures: np.ndarray, at: np.ndarray = at) -> None:
                """Copy what a worker decoded to its places."""
                out[at] = pictures

            pending.append((part, self.workers.submit(self.request(part), receive)))

        def wait() -> UInt8[np.ndarray, "b size size 3"]:
            """The frames, when all are there."""
            for part, future in pending:
                self.check(part, future.result())
            return out[place]

        return wait

    def _sorted(self, rows: Int[np.ndarray, "b"]) -> Int[np.ndarray, "b"]:
        return rows[np.lexsort((self.footage.number[rows], self.footage.file_of[rows]))]

    def parts(self, rows: Int[np.ndarray, "b"]) -> Iterator[Int[np.ndarray, "_"]]:
        """Sorted rows as what is asked for at once."""
        yield from (rows[first : first + pool.UNIT] for first in range(0, len(rows), pool.UNIT))

    def request(self, rows: Int[np.ndarray, "b"]) -> dict[str, Any]:
        """What a worker is asked for these rows' frames."""
        return {"frames": self.locate(rows)}

    def locate(self, rows: Int[np.ndarray, "b"]) -> list[list[Any]]:
        """Of each row: file, time shown, and where decoding can begin (`decoding.Wanted`); sorted by file."""
        located = []
        for file, part in self._by_file(rows, None):
            path = str(self.footage.files[file])
            located += [[path, *times] for times in self._times(file, part).tolist()]
        return located

    def _by_file(
        self, rows: Int[np.ndarray, "b"], ahead: int | None
    ) -> Iterator[tuple[int, Int[np.ndarray, "_"]]]:
        """Sorted rows file by file; the indices of the next `ahead` files are asked for, None: of all."""
        files, first = np.unique(self.footage.file_of[rows], return_index=True)
        for place, part in enumerate(np.split(rows, first[1:])):
            for file in files[place:][:ahead].tolist():
                self._ask_index(file)
            yield int(files[place]), part

    def runs(self) -> Iterator[Int[np.ndarray, "_"]]:
        """All rows, in parts that can be decoded apart from each other without decoding a frame twice."""
        for file, rows in self._by_file(self._sorted(np.arange(self.footage.rows)), AHEAD):
            keys = self._times(file, rows)[:, 1]
            begin = 0
            for cut in (np.flatnonzero(np.diff(keys)) + 1).tolist():
                if cut - begin >= RUN:
                    yield rows[begin:cut]
                    begin = cut
            yield rows[begin:]

    def check(self, rows: Int[np.ndarray, "_"], answer: dict[str, Any]) -> None:
        """Raise MorphVlaError when `answer` is not that all of `rows` were decoded."""
        if "error" in answer and "at" in answer:
            row = int(rows[answer["at"]])
            episode, frame = self.footage.place(row)
            of = f"camera '{self.footage.camera}', " if self.footage.column else ""
            raise MorphVlaError(
                f"{self.footage.files[self.footage.file_of[row]]}: {of}episode {episode}, frame {frame} "
                f"cannot be decoded: {answer['error']}"
            )
        if "error" in answer:
            raise MorphVlaError(str(answer["error"]))

    def _ask_index(self, file: int) -> Future[dict[str, Any]] | None:
        """The answer to come of a file's index; None where it has been read."""
        with self._lock:
            if file in self._read:
                return None
            if file not in self._indices:
                path, column = str(self.footage.files[file]), self.footage.column
                request = {"index": path, "column": column} if column else {"index": path}
                self._indices[file] = self.workers.submit(request)
            return self._indices[file]

    def _index(self, file: int) -> list[np.ndarray]:
        """Of a video the times of all frames, and (shown, decoded) of those at which decoding can begin.

        Of a table the first row of every row group, and the number of its rows.
        """
        asked = self._ask_index(file)
        if asked is not None:
            answer = asked.result()
            self.check(np.arange(0), answer)
            parts = [answer["index"]] if self.footage.column else answer["index"]
            with self._lock:
                self._read[file] = [np.asarray(part, np.int64) for part in parts]
                self._indices.pop(file, None)  # Python's lists: seven times as large
        return self._read[file]

    def _times(self, file: int, rows: Int[np.ndarray, "b"]) -> Int[np.ndarray, "b 3"]:
        """Of rows of one file: time shown, and the last place before at which decoding can begin."""
        times, keys = self._index(file)
        if not len(keys):
            path = self.footage.files[file]
            raise MorphVlaError(f"{path}: the video cannot be decoded: it has no frames")
        footage = self.footage
        if len(times) <= footage.number[rows].max():
            missing = np.flatnonzero((footage.file_of == file) & (footage.number >= len(times))).tolist()
            episodes = [footage.place(row)[0] for row in missing]
            lack = f"{episodes.count(episodes[0])} frames are missing"
            text = f"the video ends before episode {episodes[0]} does ({lack}); the file is truncated"
            raise MorphVlaError(f"{footage.files[file]}: {text}")
        shown = times[footage.number[rows]]
        key = np.maximum(np.searchsorted(keys[:, 0], shown, side="right") - 1, 0)
        return np.column_stack([shown, keys[key]])


class Pictures(Video):
    """Frames that are pictures within tables; rows of one row group are asked for together."""

    def parts(self, rows: Int[np.ndarray, "b"]) -> Iterator[Int[np.ndarray, "_"]]:
        """Sorted rows as what is asked for at once: of one row group, which is then read once."""
        for part in self._by_group(rows):
            yield from super().parts(part)

    def request(self, rows: Int[np.ndarray, "b"]) -> dict[str, Any]:
        """What a worker is asked for these rows' pictures; they are of one file."""
        footage = self.footage
        table = str(footage.files[footage.file_of[rows[0]]])
        at = footage.number[rows].tolist()
        return {"table": table, "column": footage.column, "root": str(footage.root), "at": at}

    def runs(self) -> Iterator[Int[np.ndarray, "_"]]:
        """All rows, in parts that read no row group twice, unless it has more than MOST rows."""
        held: list[np.ndarray] = []
        for part in self._by_group(self._sorted(np.arange(self.footage.rows))):
            other = held and self.footage.file_of[part[0]] != self.footage.file_of[held[0][0]]
            if held and (other or sum(map(len, held)) >= RUN):
                yield np.concatenate(held)
                held = []
            for first in range(0, len(part), MOST):
                held.append(part[first : first + MOST])
                if len(held[-1]) == MOST:
                    yield np.concatenate(held)
                    held = []
        if held:
            yield np.concatenate(held)

    def _by_group(self, rows: Int[np.ndarray, "b"]) -> Iterator[Int[np.ndarray, "_"]]:
        for file, part in self._by_file(rows, AHEAD):
            (starts,) = self._index(file)
            group = np.searchsorted(starts, self.footage.number[part], side="right")
            yield from np.split(part, np.flatnonzero(np.diff(group)) + 1)


def opened(footage: Footage, workers: pool.Pool | pool.Here) -> Video:
    """Frames that are decoded when they are asked for, whichever way they are kept."""
    return (Pictures if footage.column else Video)(footage, workers)


@dataclasses.dataclass(frozen=True)
class Kept:
    """Frames in memory, or in a memory map."""

    pictures: UInt8[np.ndarray, "n size size 3"]

    def ask(self, rows: Int[np.ndarray, "b"]) -> Callable[[], UInt8[np.ndarray, "b size size 3"]]:
        """Nothing to wait for."""
        return lambda: self.pictures[rows]


def fit(footage: Iterable[Footage], size: int) -> bool:
    """Whether all these cameras' frames at `size` may be kept by `auto`."""
    return sum(camera.rows for camera in footage) * size * size * 3 <= CACHE_BYTES


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
                try:
                    _fill(footage, size, unfinished, progress or (lambda *_: None), workers)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.truncate(unfinished, 0)  # gigabytes; the file stays, for others wait for its lock
                    raise
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
    _make(path, (footage.rows, size, size, 3))
    started = None
    if footage.rows <= SMALL:
        started = workers = pool.Here(size)
    elif workers is None:
        started = workers = pool.Pool(pool.default_workers(), size)
    pending: collections.deque[tuple[np.ndarray, Future[dict[str, Any]]]] = collections.deque()
    video, done = opened(footage, workers), 0
    progress(0, footage.rows)

    def finish() -> None:
        """Wait for the oldest request."""
        nonlocal done
        rows, future = pending.popleft()
        video.check(rows, future.result())
        done += len(rows)
        progress(done, footage.rows)

    try:
        for rows in video.runs():
            request = {**video.request(rows), "rows": rows.tolist(), "file": str(path)}
            pending.append((rows, workers.submit(request)))
            while len(pending) > 4 * pool.MAX_WORKERS or (pending and pending[0][1].done()):
                finish()
        while pending:
            finish()
    finally:
        if started is not None:
            started.close()


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


def telling(what: str, every: float = 10.0) -> Callable[[int, int], None]:
    """A `progress` for `cached` that logs how far `what` is, its rate and the time left, now and then."""
    began = last = time.monotonic()

    def progress(done: int, total: int) -> None:
        """Log, unless that was less than `every` seconds ago."""
        nonlocal last
        now = time.monotonic()
        if now - last >= every and done > 0:
            last, rate = now, done / (now - began)
            left = (total - done) / rate
            LOG.info("%s: %d of %d frames, %.0f/s, %.0f s left", what, done, total, rate, left)

    return progress
