"""What is wrong with a dataset's videos, by their headers and the last packets of each: none is decoded.

Of a camera whose pictures are within the tables a few are (`picture_problems`).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from morph_vla.checks import pictures as picture_problems
from morph_vla.checks.dataset import problem
from morph_vla.data import layout as layouts
from morph_vla.data.layout import Entry, Layout, Rows
from morph_vla.errors import require
from morph_vla.findings import Finding

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
    dataset: Layout,
    entries: Sequence[Entry],
    cameras: Sequence[str],
    lengths: Mapping[int, int],
    rows: Rows | None = None,
) -> Iterator[Finding]:
    """Problems of these episodes' and cameras' videos; `lengths`: the frames of each in the tables.

    `rows`: the tables' rows, as far as they could be read.
    """
    where = str(dataset.root)
    for asked in cameras:
        camera = layouts.named(asked, dataset.cameras)
        if camera not in dataset.cameras:
            others = f" (there are {', '.join(dataset.cameras) or 'none'})"
            near = layouts.nearest_camera(camera, dataset.cameras) or others
            words = f"no camera '{camera}'{near}", "name the dataset's camera with `cameras`"
            yield problem("no-camera", "error", where, *words, subject=(camera,))
            continue
        if camera in dataset.pictures:
            yield from picture_problems.of_camera(dataset, camera, rows) if rows is not None else ()
            continue
        videos = {entry.index: entry.videos[camera] for entry in entries if camera in entry.videos}
        without = [entry.index for entry in entries if camera not in entry.videos]
        if without:
            text = f"camera '{camera}' has no video of {len(without)} of {len(entries)} episodes"
            remedy = "repair the meta files, or leave the camera out"
            yield problem("no-video", "error", where, text, remedy, without[0], subject=(camera,))
        yield from _missing(dataset, camera, {index: video.path for index, video in videos.items()})
        files: dict[Path, list[int]] = {}
        for index, video in videos.items():
            if video.path.is_file() and video.path.stat().st_size:
                files.setdefault(video.path, []).append(index)
        with ThreadPoolExecutor(THREADS) as pool:
            headers = dict(zip(files, pool.map(header, files), strict=True))
        yield from _broken(dataset, camera, files, headers)
        yield from _short(dataset, camera, files, headers, videos, lengths)
        yield from _rates(dataset, camera, files, headers)


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


def _missing(dataset: Layout, camera: str, paths: Mapping[int, Path]) -> Iterator[Finding]:
    absent = {index: path for index, path in paths.items() if not path.is_file()}
    empty = {index: path for index, path in paths.items() if path.is_file() and not path.stat().st_size}
    remedy = "fetch the videos, choose episodes that have theirs with `episodes`, or leave the camera out"
    for what, those in (("missing", absent), ("empty", empty)):
        if those:
            first, path = next(iter(those.items()))
            text = (
                f"camera '{camera}': {len(those)} of {len(paths)} episodes lack their video "
                f"({path.relative_to(dataset.root)} is {what})"
            )
            subject = camera, what
            yield problem("missing-video", "error", str(dataset.root), text, remedy, first, subject=subject)


def _broken(
    dataset: Layout, camera: str, files: Mapping[Path, list[int]], headers: Mapping[Path, Header]
) -> Iterator[Finding]:
    where = str(dataset.root)
    for path, known in headers.items():
        place, first = path.relative_to(dataset.root), files[path][0]
        subject = camera, str(place)
        if known.broken:
            text = f"camera '{camera}': {place} cannot be opened ({known.broken})"
            remedy = "an interrupted recording lacks the index at its end: fetch or record it again"
            yield problem("broken-video", "error", where, text, remedy, first, subject=subject)
        elif known.promised - known.there > 1.5 / dataset.fps:
            text = (
                f"camera '{camera}': {place} is cut: its header speaks of {known.promised:.2f} s, and "
                f"the file ends after {known.there:.2f} s"
            )
            yield problem("cut-video", "error", where, text, "fetch it again", first, subject=subject)


def _short(
    dataset: Layout,
    camera: str,
    files: Mapping[Path, list[int]],
    headers: Mapping[Path, Header],
    videos: Mapping[int, Any],
    lengths: Mapping[int, int],
) -> Iterator[Finding]:
    """Episodes that end after their video does, and videos that hold more than their one episode."""
    where, subject = str(dataset.root), (camera,)
    for path, indices in files.items():
        known = headers[path]
        if known.broken or not known.frames:
            continue
        for index in indices:
            begin = round((videos[index].begin or 0.0) * dataset.fps)
            wanted = lengths.get(index)
            if wanted is not None and begin + wanted > known.frames:
                place = path.relative_to(dataset.root)
                text = (
                    f"camera '{camera}': {place} has {known.frames} frames and this episode's are {begin} to "
                    f"{begin + wanted - 1}"
                )
                remedy = "the video is shorter than the table: leave the episode out with `episodes`"
                yield problem("short-video", "error", where, text, remedy, index, subject=subject)
                break
        alone = len(indices) == 1 and videos[indices[0]].begin is None
        if alone and lengths.get(indices[0], known.frames) < known.frames:
            place = path.relative_to(dataset.root)
            text = f"camera '{camera}': {place} has {known.frames} frames and the table {lengths[indices[0]]}"
            remedy = "pictures and values may be shifted against each other: look at the episode"
            yield problem("long-video", "warning", where, text, remedy, indices[0], subject=subject)


def _rates(
    dataset: Layout, camera: str, files: Mapping[Path, list[int]], headers: Mapping[Path, Header]
) -> Iterator[Finding]:
    odd = [p for p, known in headers.items() if not known.broken and abs(known.rate / dataset.fps - 1) > 0.02]
    if odd:
        path, more = odd[0], f" (and {len(odd) - 1} more videos like it)" if len(odd) > 1 else ""
        place, rate = path.relative_to(dataset.root), headers[path].rate
        text = (
            f"camera '{camera}': {place} runs at {rate:.4g} Hz, and info.json says {dataset.fps:g} Hz{more}"
        )
        remedy = "pictures and values drift apart: correct fps, or make the videos anew"
        where, first = str(dataset.root), files[path][0]
        yield problem("video-rate", "error", where, text, remedy, first, subject=(camera,))
