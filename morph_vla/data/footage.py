"""Where a camera's frames lie, and how they are asked for: in videos, or as pictures within the tables."""

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from morph_vla.data import pool
from morph_vla.errors import MorphVlaError

RUN = 64  # least frames of one request when a whole file is decoded
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
        self._read: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def ask(self, rows: Int[np.ndarray, "b"]) -> Callable[[], UInt8[np.ndarray, "b size size 3"]]:
        """Begin to decode: frames near each other together, each frame once however often it is asked for."""
        once, place = np.unique(rows, return_inverse=True)
        wanted = self._sorted(once)
        out = np.empty((len(once), self.workers.size, self.workers.size, 3), np.uint8)
        pending = []
        for part in self.parts(wanted):
            at = np.searchsorted(once, part)

            def receive(pictures: np.ndarray, at: np.ndarray = at) -> None:
                out[at] = pictures

            pending.append((part, self.workers.submit(self.request(part), receive)))

        def wait() -> UInt8[np.ndarray, "b size size 3"]:
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
            of = f"camera '{self.footage.camera}', " if self.footage.column else ""
            raise MorphVlaError(
                f"{self.footage.files[self.footage.file_of[row]]}: {of}episode {episode}, frame {frame} "
                f"cannot be decoded: {answer['error']}"
            )
        if "error" in answer:
            raise MorphVlaError(str(answer["error"]))

    def _begin_index(self, file: int) -> None:
        with self._lock:
            if file not in self._indices:
                self._indices[file] = self.workers.submit(self._index_request(file))

    def _index_request(self, file: int) -> dict[str, Any]:
        return {"index": str(self.footage.files[file])}

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


class Pictures(Video):
    """Frames that are pictures within tables; rows of one row group are asked for together."""

    def parts(self, rows: Int[np.ndarray, "b"]) -> Iterator[Int[np.ndarray, "_"]]:
        """Sorted rows as what is asked for at once: of one row group, which is then read once."""
        for own in self._by_group(rows):
            yield from super().parts(own)

    def request(self, rows: Int[np.ndarray, "b"]) -> dict[str, Any]:
        """What a worker is asked for these rows' pictures; they are of one file."""
        one = self.footage
        return {
            "table": str(one.files[one.file_of[rows[0]]]),
            "column": one.column,
            "root": str(one.root),
            "at": one.number[rows].tolist(),
        }

    def runs(self) -> Iterator[Int[np.ndarray, "_"]]:
        """All rows, in parts that read no row group twice, unless it has more than MOST rows."""
        held: list[np.ndarray] = []
        for own in self._by_group(self._sorted(np.arange(self.footage.rows))):
            other = held and self.footage.file_of[own[0]] != self.footage.file_of[held[0][0]]
            if held and (other or sum(map(len, held)) >= RUN):
                yield np.concatenate(held)
                held = []
            for first in range(0, len(own), MOST):
                held.append(own[first : first + MOST])
                if len(held[-1]) == MOST:
                    yield np.concatenate(held)
                    held = []
        if held:
            yield np.concatenate(held)

    def _by_group(self, rows: Int[np.ndarray, "b"]) -> Iterator[Int[np.ndarray, "_"]]:
        files, first = np.unique(self.footage.file_of[rows], return_index=True)
        for file in files.tolist()[: 2 * pool.MAX_WORKERS]:
            self._begin_index(file)
        for file, own in zip(files.tolist(), np.split(rows, first[1:]), strict=True):
            number = self.footage.number[own]
            group = np.searchsorted(self._starts(file), number, side="right")
            yield from np.split(own, np.flatnonzero(np.diff(group)) + 1)

    def _starts(self, file: int) -> Int[np.ndarray, "_"]:
        """The first row of every row group of a file, and the number of its rows."""
        if file not in self._read:
            self._begin_index(file)
            answer = self._indices[file].result()
            self.check(np.arange(0), answer)
            starts = np.asarray(answer["index"], np.int64)
            self._read[file] = starts, starts
        return self._read[file][0]

    def _index_request(self, file: int) -> dict[str, Any]:
        return {"index": str(self.footage.files[file]), "column": self.footage.column}


def opened(footage: Footage, workers: pool.Pool | pool.Here) -> Video:
    """Frames that are decoded when they are asked for, whichever way they are kept."""
    return (Pictures if footage.column else Video)(footage, workers)
