"""Frames out of video files: any of them, in any order, exactly those that reading from the front gives.

`index` lists when each frame is shown and where decoding can begin; `Films` seeks to the last such place
before a frame and decodes to it, and goes on from where it stands when that is nearer. It runs in the
workers of `pool`: it imports neither JAX nor lerobot, and decodes with one thread.
"""

import collections
import dataclasses
import json
import mmap
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from morph_vla.data.pictures import Tables, UndecodableError
from morph_vla.errors import MorphVlaError, require
from morph_vla.pixels import resize_with_pad

MAX_OPEN = 16  # video files that a worker keeps open
SKIP = ("h264", "hevc")  # decoders that take a change of what to skip at any frame; dav1d keeps the first
ORPHAN_S = 5.0  # how often an idle worker looks whether its parent is there [s]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """One frame of a file: when it is shown, and where decoding can begin, in the file's units of time."""

    path: str
    pts: int
    key_pts: int
    key_dts: int


def index(path: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The time each frame is shown at, in order, and (shown, decoded) of those that need none before them.

    Nothing is decoded. Raises MorphVlaError if the file is not a video, has no time stamps, or shows depth.
    """
    av = require("av", "lerobot")
    try:
        with av.open(_whole(path)) as container:
            stream = _video(container, path)
            if bits := grey_bits(stream):
                raise MorphVlaError(f"{path}: {bits} bits of grey: depth is no colour; leave the camera out")
            shown, keys = [], []
            for packet in container.demux(stream):  # kept whole they would be the file in memory
                if not packet.size or packet.is_discard:
                    continue
                if packet.pts is None:
                    lack = "its frames have no time stamps"
                    raise MorphVlaError(f"{path}: the video cannot be decoded: {lack}")
                shown.append((packet.pts, packet.dts if packet.dts is not None else packet.pts))
                if packet.is_keyframe:
                    keys.append(shown[-1])
            return sorted(pts for pts, _ in shown), sorted(keys or shown[:1])  # damaged files mark none
    except (av.error.FFmpegError, OSError) as error:
        raise MorphVlaError(f"{path}: the video cannot be decoded: {error}") from error


def grey_bits(stream: Any) -> int:
    """Of a video of depth, as LeRobot writes it: more than eight bits of one grey. 0 of every other."""
    kind = stream.codec_context.format
    bits = [component.bits for component in kind.components] if kind is not None else []
    return bits[0] if len(bits) == 1 and bits[0] > 8 else 0


def _whole(path: str) -> str:
    """From the root on: of a relative one FFmpeg reads `a:` as a protocol."""
    return str(Path(path).absolute())


def _video(container: Any, path: str) -> Any:
    if not container.streams.video:
        raise MorphVlaError(f"{path}: the file has no video stream")
    return container.streams.video[0]


class Film:
    """One open video file, and where its decoder stands."""

    def __init__(self, path: str):
        av = require("av", "lerobot")
        from av.video.reformatter import VideoReformatter

        self.container = av.open(_whole(path))
        self.stream = _video(self.container, path)
        # Processes share the cores; a second thread per file would only add to the way to its first frame.
        self.stream.codec_context.thread_count = 1
        self._colours = VideoReformatter()  # kept: a new one per frame costs as much as a small frame
        self._pictures: Iterator[Any] = iter(())
        self._skip_before, self._stands, self._passed = 0, None, None

    def picture(self, wanted: Wanted) -> UInt8[np.ndarray, "h w 3"]:
        """The frame shown at `wanted.pts`. Raises LookupError when there is none, FFmpegError when broken."""
        stands, passed = self._stands, self._passed
        near = stands is not None and wanted.key_pts <= stands < wanted.pts
        if not near or (passed is not None and passed >= wanted.pts):
            self.container.seek(min(wanted.key_dts, wanted.key_pts), stream=self.stream, backward=True)
            self._stands, self._passed, self._pictures = None, None, self._decode()
        self._skip_before = wanted.pts
        for frame in self._pictures:
            self._stands = frame.pts
            if frame.pts == wanted.pts:
                return self._colours.reformat(frame, format="rgb24").to_ndarray()
            if frame.pts is not None and frame.pts > wanted.pts:
                break
        self._stands = None
        raise LookupError("the decoder does not give it")

    def _decode(self) -> Iterator[Any]:
        """Frames as they are shown; of those before the wanted one, what no other refers to is left out."""
        context = self.stream.codec_context
        skips = context.name in SKIP
        for packet in self.container.demux(self.stream):
            shown = packet.pts if packet.pts is not None else self._skip_before
            early = skips and shown < self._skip_before
            if skips:
                context.skip_frame = "NONREF" if early else "DEFAULT"
            if early:
                self._passed = max(shown, shown if self._passed is None else self._passed)
            yield from packet.decode()

    def close(self) -> None:
        """Close the file and forget where decoding stood."""
        self._pictures = iter(())
        self.container.close()


class Films:
    """The files a worker has open: the `most` videos that were used last, and as many tables of pictures."""

    def __init__(self, most: int = MAX_OPEN):
        self._most, self.tables = most, Tables(most)
        self._open: collections.OrderedDict[str, Film] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def pictures(self, wanted: Sequence[Wanted]) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        """The frames in the order asked for. Raises UndecodableError."""
        av = require("av", "lerobot")
        for at, frame in enumerate(wanted):
            try:
                picture = self._film(frame.path).picture(frame)
            except (av.error.FFmpegError, OSError, LookupError, MorphVlaError) as error:
                if frame.path in self._open:  # where its decoder stands is not known any more
                    self._open.pop(frame.path).close()
                raise UndecodableError(at, str(error)) from error
            yield picture

    def _film(self, path: str) -> Film:
        if path not in self._open:
            while len(self._open) >= self._most:
                self._open.popitem(last=False)[1].close()
            self._open[path] = Film(path)
        self._open.move_to_end(path)
        return self._open[path]

    def close(self) -> None:
        """Close every video and table that is open."""
        self.tables.close()
        while self._open:
            self._open.popitem()[1].close()


def serve(pipe: int, memory: int, size: int, parent: int) -> None:
    """A worker's loop: answer requests on the socket `pipe` until the parent closes it or is gone.

    Frames go into the shared memory behind `memory` where a request names no file.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent answers them; it then closes the pipe
        signal.signal(number, signal.SIG_IGN)
    av = require("av", "lerobot")
    av.logging.set_level(av.logging.PANIC)
    films, nbytes = Films(), size * size * 3  # of one frame
    shared = mmap.mmap(memory, os.fstat(memory).st_size)
    pictures = np.frombuffer(shared, np.uint8)[: len(shared) // nbytes * nbytes].reshape(-1, size, size, 3)
    with Connection(pipe) as connection:
        while os.getppid() == parent:
            if not select.select([pipe], [], [], ORPHAN_S)[0]:
                continue
            try:
                request = json.loads(connection.recv_bytes())
                connection.send_bytes(json.dumps(answer(request, films, pictures, size)).encode())
            except (EOFError, OSError):
                return


def answer(request: dict[str, Any], films: Films, pictures: np.ndarray, size: int) -> dict[str, Any]:
    """Answer a request: {"index": path}, or {"frames": [[path, pts, key_pts, key_dts], ...]}.

    For images stored in a table it is {"index": path, "column": name}, answered by the first rows of its row
    groups, or {"table": path, "column": name, "root": path of the dataset, "at": [rows]}. With "file" and
    "rows" the frames go into those rows of that .npy file, else into `pictures`. The answer is {"index":
    [times, keys]}, {"done": count}, or {"error": reason}, with "at", the place of a frame among those asked
    for, where it is about one.
    """
    try:
        if "index" in request and "column" in request:
            return {"index": films.tables.starts(request["index"], request["column"]).tolist()}
        if "index" in request:
            return {"index": index(request["index"])}
        if "table" in request:
            keys = ("table", "column", "root", "at")
            count, frames = len(request["at"]), films.tables.pictures(*(request[key] for key in keys))
        else:
            wanted = [Wanted(*item) for item in request["frames"]]
            count, frames = len(wanted), films.pictures(wanted)
        out, rows = pictures, range(count)
        if "file" in request:
            out, rows = np.load(Path(request["file"]), mmap_mode="r+"), request["rows"]
        for row, picture in zip(rows, frames, strict=True):
            out[row] = resize_with_pad(picture, size)
        return {"done": count}
    except UndecodableError as error:
        return {"error": str(error), "at": error.at}
    except Exception as error:  # whatever it is, the parent must hear of it
        return {"error": str(error) or type(error).__name__}


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:5]))
