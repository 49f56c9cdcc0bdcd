"""What is wrong with a dataset's cameras: with videos by their headers and last packets.

Of a camera whose pictures are within the tables a few are decoded, and the tables' footers are read. Of every
camera a few pictures are compared (`checks.still_cameras`).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.checks import still_cameras
from morph_vla.checks.dataset import place
from morph_vla.checks.rules import problem
from morph_vla.data import decoding, pictures, video_times
from morph_vla.data import layout as layouts
from morph_vla.data.layout import Entry, Layout, Rows, Video
from morph_vla.errors import MorphVlaError, require
from morph_vla.findings import Finding

THREADS = 8
SAMPLES = 5  # pictures of a camera that are decoded: the first and the last row, and between them
FAR = 64 << 20  # bytes of one row group from which on a single picture is far from a place to begin at


@dataclasses.dataclass(frozen=True)
class Header:
    """What a video file says of itself, and how much of it is there."""

    broken: str  # why it cannot be opened; "" when it can
    frames: int = 0
    rate: float = 0.0  # [Hz]
    promised: float = 0.0  # [s] that the header speaks of
    there: float = 0.0  # [s] until the end of the last packet
    size: tuple[int, int] = (0, 0)  # (height, width) [pixels]
    grey_bits: int = 0  # of depth


@dataclasses.dataclass(frozen=True)
class _Videos:
    """One camera's video files, their episodes and headers."""

    dataset: Layout
    camera: str
    videos: Mapping[int, Any]
    files: Mapping[Path, list[int]]
    headers: Mapping[Path, Header]

    def problem(self, code: str, path: Path, found: str, episode: int, *subject: str) -> Finding:
        """`found` is said of the video at `path`."""
        text = f"camera '{self.camera}': {path.relative_to(self.dataset.root)} {found}"
        where = str(self.dataset.root)
        return problem(code, where, text, episode, subject=(self.camera, *subject))


def of_cameras(
    dataset: Layout,
    entries: Sequence[Entry],
    cameras: Sequence[str],
    lengths: Mapping[int, int],
    rows: Rows | None = None,
    states: Float[np.ndarray, "n j"] | None = None,
) -> Iterator[Finding]:
    """Problems of these episodes' and cameras' videos; `lengths`: the frames of each in the tables.

    `rows`: the tables' rows, as far as they could be read, and their `states`.
    """
    where = str(dataset.root)
    for asked in cameras:
        camera = layouts.named(asked, dataset.cameras)
        if camera not in dataset.cameras:
            others = f" (there are {', '.join(dataset.cameras) or 'none'})"
            near = layouts.nearest_camera(camera, dataset.cameras) or others
            yield problem("no-camera", where, f"no camera '{camera}'{near}", subject=(camera,))
        elif camera in dataset.pictures:
            yield from of_pictures(dataset, camera, rows) if rows is not None else ()
        else:
            yield from _of_videos(dataset, camera, entries, lengths)
        if camera in dataset.cameras and rows is not None and states is not None:
            yield from still_cameras.of_camera(dataset, camera, entries, rows, states)


def _of_videos(
    dataset: Layout, camera: str, entries: Sequence[Entry], lengths: Mapping[int, int]
) -> Iterator[Finding]:
    where = str(dataset.root)
    videos = {entry.index: entry.videos[camera] for entry in entries if camera in entry.videos}
    without = [entry.index for entry in entries if camera not in entry.videos]
    if without:
        found = f"camera '{camera}' has no video of {len(without)} of {len(entries)} episodes"
        yield problem("no-video", where, found, without[0], subject=(camera,))
    files: dict[Path, list[int]] = {}
    lacking: dict[str, list[int]] = {"missing": [], "empty": []}
    for index, video in videos.items():
        if not video.path.is_file():
            lacking["missing"].append(index)
        elif not video.path.stat().st_size:
            lacking["empty"].append(index)
        else:
            files.setdefault(video.path, []).append(index)
    for what, episodes in lacking.items():
        if episodes:
            path = videos[episodes[0]].path.relative_to(dataset.root)
            number = f"{len(episodes)} of {len(videos)}"
            found = f"camera '{camera}': {number} episodes lack their video ({path} is {what})"
            yield problem("missing-video", where, found, episodes[0], subject=(camera, what))
    with ThreadPoolExecutor(THREADS) as pool:
        headers = dict(zip(files, pool.map(header, files), strict=True))
    of_camera = _Videos(dataset, camera, videos, files, headers)
    yield from _broken(of_camera)
    if wrong := video_times.unclear(videos, lengths, dataset.fps):
        index, words = wrong
        yield of_camera.problem("video-times", videos[index].path, words, index)
    yield from _lengths(of_camera, lengths)
    yield from _rates(of_camera)
    yield from _seen(of_camera)


def header(path: Path) -> Header:
    """Open a video and read its last packets; no picture is decoded."""
    av = require("av", "lerobot")
    try:
        with av.open(str(path.absolute())) as container:  # of a relative one FFmpeg reads `a:` as a protocol
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
            # Matroska says neither; without a duration all packets were read.
            frames = stream.frames or round(promised * rate) or (0 if stream.duration else count)
            size = stream.height, stream.width
            return Header("", int(frames), rate, promised, there, size, decoding.grey_bits(stream))
    except (av.error.FFmpegError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        return Header(str(reason))


def _broken(camera: _Videos) -> Iterator[Finding]:
    for path, known in camera.headers.items():
        first, name = camera.files[path][0], str(path.relative_to(camera.dataset.root))
        if known.broken:
            yield camera.problem("broken-video", path, f"cannot be opened ({known.broken})", first, name)
        elif known.promised - known.there > 1.5 / camera.dataset.fps:
            ends = f"and the file ends after {known.there:.2f} s"
            found = f"is cut: its header speaks of {known.promised:.2f} s, {ends}"
            yield camera.problem("cut-video", path, found, first, name)


def _lengths(camera: _Videos, lengths: Mapping[int, int]) -> Iterator[Finding]:
    """Episodes that their video does not show whole, and those that it shows more of than there is."""
    for path, indices in camera.files.items():
        frames = camera.headers[path].frames
        if camera.headers[path].broken or not frames:
            continue
        known = {index: (camera.videos[index], lengths[index]) for index in indices if index in lengths}
        for code, judged in (("short-video", _cut_short), ("long-video", _too_much)):
            words = {index: judged(*shown, frames, camera.dataset.fps) for index, shown in known.items()}
            first = next((index for index in words if words[index]), None)
            if first is not None:
                yield camera.problem(code, path, words[first], first)


def _cut_short(video: Video, rows: int, frames: int, fps: float) -> str:
    begin, shown = round((video.begin or 0.0) * fps), video.frames(fps)
    if begin + rows > frames:
        return f"has {frames} frames and this episode's are {begin} to {begin + rows - 1}"
    if shown is not None and shown < rows:
        return f"shows {shown} frames of this episode and the table has {rows}: the rest are the next one's"
    return ""


def _too_much(video: Video, rows: int, frames: int, fps: float) -> str:
    shown = frames if video.begin is None else video.frames(fps)
    return f"has {shown} frames of this episode and the table {rows}" if shown and shown > rows else ""


def _rates(camera: _Videos) -> Iterator[Finding]:
    fps, headers = camera.dataset.fps, camera.headers
    odd = [path for path in headers if not headers[path].broken and abs(headers[path].rate / fps - 1) > 0.02]
    if odd:
        more = f" (and {len(odd) - 1} more videos like it)" if len(odd) > 1 else ""
        found = f"runs at {headers[odd[0]].rate:.4g} Hz, and info.json says {fps:g} Hz{more}"
        yield camera.problem("video-rate", odd[0], found, camera.files[odd[0]][0])


def _seen(camera: _Videos) -> Iterator[Finding]:
    """Depth, which is no picture; frames of another size than info.json says or the first video has."""
    whole = {path: known for path, known in camera.headers.items() if not known.broken}
    for path, known in whole.items():
        if known.grey_bits:
            words = f"has {known.grey_bits} bits of grey: it shows depth, which is no colour"
            yield camera.problem("depth-video", path, words, camera.files[path][0])
            return
    recorded = camera.dataset.sizes.get(camera.camera)
    height, width = recorded or next((known.size for known in whole.values()), (0, 0))
    who = "info.json says" if recorded else "the first video has"
    for path, known in whole.items():
        if known.size != (height, width) and any(known.size):
            words = "has frames of {} x {} pixels, and {} {} x {}".format(*known.size, who, height, width)
            yield camera.problem("picture-size", path, words, camera.files[path][0])
            return


def of_pictures(dataset: Layout, camera: str, rows: Rows) -> Iterator[Finding]:
    """Problems of one camera whose pictures are within the tables; `rows`: those that training reads."""
    wanted = np.unique(np.linspace(0, len(rows.number) - 1, SAMPLES).astype(int))
    severities: set[str] = set()  # of those reported: the first of each is
    lost: list[MorphVlaError] = []
    empty, most, largest = -1, 0, None
    bounds = np.searchsorted(rows.file_of, np.arange(len(rows.files) + 1))  # rows lie file by file
    for number, path in enumerate(rows.files):
        try:
            table = pictures.Table(path, dataset.pictures[camera])
        except MorphVlaError as error:
            lost.append(error)
            continue
        chosen = [int(row) for row in wanted[rows.file_of[wanted] == number]]
        if empty < 0:
            empty = _first_empty(table, rows, np.arange(*bounds[number : number + 2]))
            chosen = chosen if empty < 0 else sorted({empty, *chosen})
        for row in chosen:
            for finding in _of_one(dataset, camera, table, rows, row):
                if finding.severity not in severities:
                    severities.add(finding.severity)
                    yield finding
        size = max((column.total_uncompressed_size for _, column in _columns(table)), default=0)
        most, largest = (size, path) if size > most else (most, largest)
        table.close()
    if lost:
        many = f" in {len(lost)} files" if len(lost) > 1 else ""
        found = f"camera '{camera}'{many}: {lost[0]}"
        yield problem("no-pictures", str(dataset.root), found, subject=(camera,))
    if largest is not None and most > FAR and dataset.version.startswith("v3"):  # ours have small ones
        file = largest.relative_to(dataset.root)
        found = f"camera '{camera}': {file} has up to {most >> 20} MiB of pictures in one row group"
        yield problem("large-row-groups", str(dataset.root), found, subject=(camera,))


def _of_one(dataset: Layout, camera: str, table: pictures.Table, rows: Rows, row: int) -> Iterator[Finding]:
    where, file = str(dataset.root), table.path.relative_to(dataset.root)
    try:
        picture = pictures.decode(pictures.data_of(table.cell(int(rows.number[row])), dataset.root))
    except (pictures.PictureError, MorphVlaError) as error:
        missing, reason = isinstance(error, pictures.MissingError), str(error).removeprefix(f"{table.path}: ")
        code = "missing-picture" if missing else "broken-picture"
        what = f"is missing in {file}" if missing else f"in {file} cannot be decoded"
        found = f"camera '{camera}': its picture {what}: {reason}"
        yield problem(code, where, found, *place(rows, row), subject=(camera,))
        return
    size, (height, width) = dataset.sizes.get(camera), picture.shape[:2]
    if size is not None and size != (height, width):
        found = f"camera '{camera}': its picture has {height} x {width} pixels, "
        found += f"and info.json says {size[0]} x {size[1]}"
        yield problem("picture-size", where, found, *place(rows, row), subject=(camera,))


def _columns(table: pictures.Table) -> Iterator[tuple[int, Any]]:
    """Of every row group: its number, and what the footer says of the pictures' bytes."""
    for number in range(table.file.metadata.num_row_groups):
        group = table.file.metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in (table.column, f"{table.column}.bytes"):
                yield number, column


def _first_empty(table: pictures.Table, rows: Rows, in_file: np.ndarray) -> int:
    """The first of a file's rows `in_file` whose bytes are missing; -1 if the footers report none.

    Only row groups whose footer reports some are read.
    """
    for group, column in _columns(table):
        known = column.statistics
        if known is None or not known.has_null_count or not known.null_count:
            continue
        first, last = table.starts[group : group + 2]
        for row in in_file[(rows.number[in_file] >= first) & (rows.number[in_file] < last)].tolist():
            try:
                if not table.cell(int(rows.number[row]))[0]:
                    return row
            except MorphVlaError:  # that part of the file is broken: decoding the row reports it
                return row
    return -1
