"""What is wrong with a dataset's videos, by their headers and the last packets of each: none is decoded.

Of a camera whose pictures are within the tables a few are (`picture_problems`).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from morph_vla.checks import pictures as picture_problems
from morph_vla.checks.dataset import Problem
from morph_vla.data import layout as layouts
from morph_vla.data.layout import Entry, Layout, Rows
from morph_vla.errors import require

THREADS = 8


@dataclasses.dataclass(frozen=True)
class Header:
    """What a video file says of itself, and how much of it is there."""

    broken: str  # why it cannot be opened; "" when it can
    frames: int = 0
    rate: float = 0.0  # [Hz]
    promised: float = 0.0  # [s] that the header speaks of
    there: float = 0.0  # [s] until the end of the last packet


def of_cameras(
    found: Layout,
    entries: Sequence[Entry],
    cameras: Sequence[str],
    lengths: Mapping[int, int],
    rows: Rows | None = None,
) -> Iterator[Problem]:
    """Problems of these episodes' and cameras' videos; `lengths`: the frames of each in the tables.

    `rows`: the tables' rows, as far as they could be read.
    """
    where = str(found.root)
    for asked in cameras:
        camera = layouts.named(asked, found.cameras)
        if camera not in found.cameras:
            others = f" (there are {', '.join(found.cameras) or 'none'})"
            near = layouts.nearest_camera(camera, found.cameras) or others
            yield Problem(
                "error", where, f"no camera '{camera}'{near}", "name the dataset's camera with `cameras`"
            )
            continue
        if camera in found.pictures:
            yield from picture_problems.of_camera(found, camera, rows) if rows is not None else ()
            continue
        videos = {entry.index: entry.videos[camera] for entry in entries if camera in entry.videos}
        without = [entry.index for entry in entries if camera not in entry.videos]
        if without:
            text = f"camera '{camera}' has no video of {len(without)} of {len(entries)} episodes"
            yield Problem("error", where, text, "repair the meta files, or leave the camera out", without[0])
        yield from _missing(found, camera, {index: video.path for index, video in videos.items()})
        files: dict[Path, list[int]] = {}
        for index, video in videos.items():
            if video.path.is_file() and video.path.stat().st_size:
                files.setdefault(video.path, []).append(index)
        with ThreadPoolExecutor(THREADS) as pool:
            headers = dict(zip(files, pool.map(header, files), strict=True))
        yield from _broken(found, camera, files, headers)
        yield from _short(found, camera, files, headers, videos, lengths)
        yield from _rates(found, camera, files, headers)


def header(path: Path) -> Header:
    """Open a video and read its last packets; no picture is decoded."""
    av = require("av", "lerobot")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                return Header("it holds no pictures")
            stream: Any = container.streams.video[0]
            base = float(stream.time_base)
            rate = float(stream.average_rate or 0)
            promised = float(stream.duration or 0) * base
            there, count = 0.0, 0
            if stream.duration:
                container.seek(int(stream.duration), stream=stream, backward=True)
            for packet in container.demux(stream):
                if packet.pts is not None and packet.size:
                    count += 1
                    there = max(
                        there, (packet.pts - (stream.start_time or 0) + (packet.duration or 0)) * base
                    )
            frames = stream.frames or round(promised * rate)
            return Header("", int(frames), rate, promised, there)
    except (av.error.FFmpegError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        return Header(str(reason))


def _missing(found: Layout, camera: str, paths: Mapping[int, Path]) -> Iterator[Problem]:
    absent = {index: path for index, path in paths.items() if not path.is_file()}
    empty = {index: path for index, path in paths.items() if path.is_file() and not path.stat().st_size}
    remedy = "fetch the videos, choose episodes that have theirs with `episodes`, or leave the camera out"
    for what, those in (("missing", absent), ("empty", empty)):
        if those:
            first, path = next(iter(those.items()))
            text = (
                f"camera '{camera}': {len(those)} of {len(paths)} episodes lack their video "
                f"({path.relative_to(found.root)} is {what})"
            )
            yield Problem("error", str(found.root), text, remedy, first)


def _broken(
    found: Layout, camera: str, files: Mapping[Path, list[int]], headers: Mapping[Path, Header]
) -> Iterator[Problem]:
    for path, known in headers.items():
        place = path.relative_to(found.root)
        if known.broken:
            text = f"camera '{camera}': {place} cannot be opened ({known.broken})"
            remedy = "an interrupted recording lacks the index at its end: fetch or record it again"
            yield Problem("error", str(found.root), text, remedy, files[path][0])
        elif known.promised - known.there > 1.5 / found.fps:
            text = (
                f"camera '{camera}': {place} is cut: its header speaks of {known.promised:.2f} s, and "
                f"the file ends after {known.there:.2f} s"
            )
            yield Problem("error", str(found.root), text, "fetch it again", files[path][0])


def _short(
    found: Layout,
    camera: str,
    files: Mapping[Path, list[int]],
    headers: Mapping[Path, Header],
    videos: Mapping[int, Any],
    lengths: Mapping[int, int],
) -> Iterator[Problem]:
    """Episodes that end after their video does, and videos that hold more than their one episode."""
    for path, indices in files.items():
        known = headers[path]
        if known.broken or not known.frames:
            continue
        for index in indices:
            begin = round((videos[index].begin or 0.0) * found.fps)
            wanted = lengths.get(index)
            if wanted is not None and begin + wanted > known.frames:
                place = path.relative_to(found.root)
                text = (
                    f"camera '{camera}': {place} has {known.frames} frames and this episode's are {begin} to "
                    f"{begin + wanted - 1}"
                )
                remedy = "the video is shorter than the table: leave the episode out with `episodes`"
                yield Problem("error", str(found.root), text, remedy, index)
                break
        alone = len(indices) == 1 and videos[indices[0]].begin is None
        if alone and lengths.get(indices[0], known.frames) < known.frames:
            place = path.relative_to(found.root)
            text = f"camera '{camera}': {place} has {known.frames} frames and the table {lengths[indices[0]]}"
            remedy = "pictures and values may be shifted against each other: look at the episode"
            yield Problem("warning", str(found.root), text, remedy, indices[0])


def _rates(
    found: Layout, camera: str, files: Mapping[Path, list[int]], headers: Mapping[Path, Header]
) -> Iterator[Problem]:
    odd = [p for p, known in headers.items() if not known.broken and abs(known.rate / found.fps - 1) > 0.02]
    if odd:
        path, more = odd[0], f" (and {len(odd) - 1} more videos like it)" if len(odd) > 1 else ""
        place, rate = path.relative_to(found.root), headers[path].rate
        text = f"camera '{camera}': {place} runs at {rate:.4g} Hz, and info.json says {found.fps:g} Hz{more}"
        remedy = "pictures and values drift apart: correct fps, or make the videos anew"
        yield Problem("error", str(found.root), text, remedy, files[path][0])
