"""Cameras that show the same while the robot moves: frozen, covered, not plugged in, or turned away.

Of a few episodes two pictures are decoded, in which the states are farthest apart. What cannot be decoded is
left to the other rules (`checks.cameras`).
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla.checks.rules import problem
from morph_vla.data import pictures
from morph_vla.data.layout import Entry, Layout, Rows, Video
from morph_vla.errors import MorphVlaError, require
from morph_vla.findings import Finding

EPISODES = 5  # that are looked at, from the first to the last
MOVED = 0.1  # of the range of a value over the dataset: less is no motion that a picture must show
BLOCKS = 16  # a picture is compared as so many means by as many: noise and compression go
SAME = 6.0  # levels of 255 that these may differ by
FLAT = 12.0  # levels between the darkest and the brightest of them: one colour
MOST = 500  # frames decoded on the way to one


@dataclasses.dataclass(frozen=True)
class _Pair:
    """Two rows of an episode between which the robot moved, and what a camera showed: means, 0 to 255."""

    episode: int
    frames: tuple[int, int]
    shown: tuple[Float[np.ndarray, "r c 3"], Float[np.ndarray, "r c 3"]]

    @property
    def is_same(self) -> bool:
        """Whether both pictures show the same, but for compression."""
        return float(np.abs(self.shown[0] - self.shown[1]).max()) <= SAME

    @property
    def is_flat(self) -> bool:
        """Whether that is one colour."""
        return self.is_same and float(np.ptp(self.shown[0], axis=(0, 1)).max()) <= FLAT


def of_camera(
    dataset: Layout, camera: str, entries: Sequence[Entry], rows: Rows, states: Float[np.ndarray, "n j"]
) -> Iterator[Finding]:
    """Whether pictures of one camera stay the same while `states`, of the same rows, change."""
    pairs = list(_pairs(dataset, camera, entries, rows, states))
    same = [pair for pair in pairs if pair.is_same]
    if not same:
        return
    first, flat = same[0], [pair for pair in same if pair.is_flat]
    counted = f"of {len(pairs)} episodes looked at"
    if len(flat) == len(same):
        found = f"camera '{camera}': one colour, and no more, in {len(flat)} {counted}"
        yield problem("flat-camera", str(dataset.root), found, first.episode, subject=(camera,))
        return
    found = (
        f"camera '{camera}': frames {first.frames[0]} and {first.frames[1]} show the same, and the robot "
        f"moved between them (so in {len(same)} {counted})"
    )
    yield problem("still-camera", str(dataset.root), found, first.episode, subject=(camera,))


def farthest(states: Float[np.ndarray, "n j"], span: Float[np.ndarray, "j"]) -> int | None:
    """The row that is farthest from the first in any value, in shares of its `span`; None below `MOVED`."""
    finite = np.asarray(np.isfinite(states).all(axis=1))
    if not len(states) or not finite[0]:
        return None
    moved = np.abs(states - states[0]) / np.where(span > 0, span, np.inf)
    largest = np.where(finite, moved.max(axis=1, initial=0.0), 0.0)
    return int(largest.argmax()) if largest.max() >= MOVED else None


def means(picture: UInt8[np.ndarray, "h w 3"]) -> Float[np.ndarray, "r c 3"]:
    """A picture as at most `BLOCKS` by `BLOCKS` means of its parts, each 0 to 255."""
    height, width = picture.shape[:2]
    edges = [np.linspace(0, size, min(size, BLOCKS) + 1).astype(int)[:-1] for size in (height, width)]
    sums = np.add.reduceat(np.add.reduceat(picture.astype(np.float64), edges[0], axis=0), edges[1], axis=1)
    heights, widths = np.diff([*edges[0], height]), np.diff([*edges[1], width])
    return sums / (heights[:, None] * widths[None])[..., None]


def _pairs(
    dataset: Layout, camera: str, entries: Sequence[Entry], rows: Rows, states: Float[np.ndarray, "n j"]
) -> Iterator[_Pair]:
    there = [entry for entry in entries if camera in dataset.pictures or _has_video(entry, camera)]
    finite = states[np.isfinite(states).all(axis=1)]
    span = np.ptp(finite, axis=0) if len(finite) else np.zeros(states.shape[1])
    for place in np.unique(np.linspace(0, len(there) - 1, EPISODES).astype(int)) if there else ():
        entry = there[place]
        own = np.flatnonzero(rows.episode == entry.index)
        second = farthest(states[own], span)
        if second is None:
            continue
        try:
            if camera in dataset.pictures:
                shown = [_of_table(dataset, camera, rows, int(own[frame])) for frame in (0, second)]
            else:
                shown = [_of_video(entry.videos[camera], frame, dataset.fps) for frame in (0, second)]
        except (MorphVlaError, pictures.PictureError, LookupError, OSError):
            continue
        yield _Pair(entry.index, (0, second), (means(shown[0]), means(shown[1])))


def _has_video(entry: Entry, camera: str) -> bool:
    return camera in entry.videos and entry.videos[camera].path.is_file()


def _of_table(dataset: Layout, camera: str, rows: Rows, row: int) -> UInt8[np.ndarray, "h w 3"]:
    table = pictures.Table(rows.files[rows.file_of[row]], dataset.pictures[camera])
    try:
        return pictures.decode(pictures.data_of(table.cell(int(rows.number[row])), dataset.root))
    finally:
        table.close()


def _of_video(video: Video, frame: int, fps: float) -> UInt8[np.ndarray, "h w 3"]:
    """An episode's frame; raises LookupError where the file does not show it within `MOST` frames."""
    av = require("av", "lerobot")
    try:
        with av.open(str(video.path.absolute())) as container:
            stream = container.streams.video[0]
            start = float((stream.start_time or 0) * stream.time_base)
            wanted = start + (video.begin or 0.0) + frame / fps
            container.seek(int(wanted / stream.time_base), stream=stream, backward=True)
            for number, picture in enumerate(container.decode(stream)):
                if picture.time is not None and picture.time > wanted - 0.5 / fps:
                    return picture.to_ndarray(format="rgb24")
                if number == MOST:
                    break
    except av.error.FFmpegError as error:
        raise LookupError(str(error)) from error
    raise LookupError(f"{video.path} does not show frame {frame}")
