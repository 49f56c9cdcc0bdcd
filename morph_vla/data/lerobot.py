"""A LeRobot dataset as a training run takes it: its values as arrays, and where its frames lie.

Values (state, action, episode bounds) come from the parquet files without decoding a pixel; `frames` decodes.
"""

import dataclasses
import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from morph_vla.data import layout as layouts
from morph_vla.data import mixture, versions, video_times
from morph_vla.data.frames import Footage
from morph_vla.data.layout import Entry, Layout, Rows
from morph_vla.errors import MorphVlaError

LOG = logging.getLogger(__name__)
STATE, ACTION = "observation.state", "action"
ENVIRONMENT = "observation.environment_state"
SAMPLES, SAMPLE = 17, 1 << 16  # parts of a table of pictures that stand for it, and their bytes


@dataclasses.dataclass(frozen=True)
class Recordings:
    """A dataset's values: n frames of all episodes, one after another."""

    root: Path  # of the v3.0 files, which for a v2.x dataset are a copy in the cache
    version: str  # the one found
    fps: float
    robot_type: str
    state: Float[np.ndarray, "n s"]
    action: Float[np.ndarray, "n a"]
    starts: Int[np.ndarray, "e"]  # first frame of each episode
    ends: Int[np.ndarray, "e"]  # one past its last
    task_of: Int[np.ndarray, "n"]
    tasks: tuple[str, ...]
    cameras: tuple[str, ...]  # names without 'observation.images.'
    entries: tuple[Entry, ...] = ()  # of each episode: its number in the dataset, its videos
    # camera -> column, of those within the tables
    pictures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # camera -> (height, width) [pixels] recorded
    sizes: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    rows: Rows | None = None  # where in the tables each frame is
    environment: Float[np.ndarray, "n p"] | None = None  # what is no joint's: the poses of objects
    environment_names: tuple[str, ...] = ()

    @property
    def frames(self) -> int:
        """Number of frames."""
        return int(self.state.shape[0])

    def first_of(self, rows: Int[np.ndarray, "b"]) -> Int[np.ndarray, "b"]:
        """The first row of each row's episode."""
        return self.starts[np.searchsorted(self.starts, rows, side="right") - 1]

    def last_of(self, rows: Int[np.ndarray, "b"]) -> Int[np.ndarray, "b"]:
        """The last row of each row's episode."""
        return self.ends[np.searchsorted(self.starts, rows, side="right") - 1] - 1

    def episode_of(self) -> Int[np.ndarray, "n"]:
        """Episode number of every frame."""
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)


def read(
    name: Path | str,
    state: Sequence[str] = (STATE,),
    action: Sequence[str] = (ACTION,),
    *,
    episodes: Sequence[int] = (),
    share: float | int = 1.0,
    environment: bool = False,
) -> Recordings:
    """Values of a LeRobot dataset of any version; those of several keys are joined in order.

    Args:
        name: A folder, or a dataset of the Hub (`user/name`). A v2.x one is converted into the cache.
        state: The features that hold the state.
        action: Those that hold the action.
        episodes: Read these alone; none means all. They are numbered anew from 0.
        share: Of them, about so many, chosen by a stable hash of their numbers.
        environment: Whether `observation.environment_state` is read too.

    Raises MorphVlaError when there is no dataset, it lacks a feature (the nearest is named) or an episode,
    its share is no episode, or it holds values that are not finite (episode, frame and value are named).
    """
    dataset = layouts.read(versions.located(name))
    size = f"{len(dataset.episodes)} episodes at {dataset.fps:g} Hz"
    LOG.info("%s: LeRobot %s, %s", dataset.root, dataset.version, size)
    known = {entry.index for entry in dataset.episodes}
    for index in episodes:
        if index not in known:
            dataset.entry(index)  # raises
    episodes = chosen(dataset, episodes, share)
    ready = versions.ready(dataset, episodes)
    numbers = _numbers(dataset, ready, episodes)
    more = (ENVIRONMENT,) if environment else ()
    if environment and ENVIRONMENT not in dataset.features:
        raise MorphVlaError(
            f"{dataset.root} has no {ENVIRONMENT}, the poses of objects that this model reads; record them "
            "with `morph-vla record SUITE 'cameras={}'`, or train a model that reads pictures"
        )
    keys = tuple(dict.fromkeys((*state, *action, *more)))
    picked = episodes if ready is dataset else ()  # a copy in the cache has no others
    rows = layouts.all_rows(ready, keys, np.float32, picked)
    entries = {entry.index: entry for entry in ready.episodes}
    for key, value in rows.values.items():
        _check_finite(dataset, key, value, rows, numbers)
    starts = np.flatnonzero(np.r_[True, np.diff(rows.episode) != 0])
    order = rows.episode[starts].tolist()
    _check_there(dataset, ready, order, picked or [*entries], numbers)
    _check_order(dataset, rows, starts, [entries[number].length for number in order], numbers)
    tasks, task_of = _tasks(ready, rows)
    return Recordings(
        root=ready.root,
        version=dataset.version,
        fps=dataset.fps,
        robot_type=dataset.robot_type,
        state=np.concatenate([rows.values[key] for key in state], axis=1),
        action=np.concatenate([rows.values[key] for key in action], axis=1),
        starts=starts,
        ends=np.r_[starts[1:], len(rows.episode)],
        task_of=task_of,
        tasks=tasks,
        cameras=ready.cameras,
        entries=tuple(dataclasses.replace(entries[index], index=numbers[index]) for index in order),
        pictures=ready.pictures,
        sizes=ready.sizes,
        rows=dataclasses.replace(rows, values={}),
        environment=rows.values.get(ENVIRONMENT),
        environment_names=ready.names(more),
    )


def chosen(dataset: Layout, episodes: Sequence[int], share: float | int) -> Sequence[int]:
    """The numbers of the episodes that are read; none means all. Raises MorphVlaError for a share of none.

    One that is not there stays among them, for whoever reads them to name.
    """
    if share == 1:
        return episodes
    there = [entry.index for entry in dataset.episodes]
    known = {*there}
    unknown = [index for index in episodes if index not in known]
    given = [index for index in episodes or there if index in known]
    kept = (*unknown, *mixture.shared(given, share))
    if given and not kept:
        few = f"a share of {share:g} of {len(given)} episodes selects none"
        raise MorphVlaError(f"{dataset.root}: {few}; raise `share` or name `episodes`")
    return kept


def _tasks(dataset: Layout, rows: Rows) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """The tasks in the order of their numbers, and the place of every row's among them."""
    if rows.task is None:
        raise MorphVlaError(f"{dataset.root}: no column 'task_index'; every frame needs its task")
    numbers = np.array(sorted(dataset.tasks), np.int64)
    unknown = np.flatnonzero(~np.isin(rows.task, numbers))
    if len(unknown):
        row = unknown[0]
        where = f"{dataset.root}: episode {rows.episode[row]}, frame {rows.frame[row]}"
        known = f"one of the dataset's {len(numbers)} tasks"
        raise MorphVlaError(f"{where} has task {rows.task[row]}, which is not {known}")
    return tuple(dataset.tasks[int(number)] for number in numbers), np.searchsorted(numbers, rows.task)


def _numbers(dataset: Layout, ready: Layout, episodes: Sequence[int]) -> dict[int, int]:
    """Number of an episode in what is read -> its number in the dataset that was given, which people know."""
    if ready is dataset:
        return {entry.index: entry.index for entry in dataset.episodes}
    wanted = {*episodes}
    given = [entry.index for entry in dataset.episodes if not wanted or entry.index in wanted]
    return {entry.index: number for entry, number in zip(ready.episodes, given, strict=True)}


def _check_finite(
    dataset: Layout, name: str, value: np.ndarray, rows: Rows, numbers: Mapping[int, int]
) -> None:
    bad = np.argwhere(~np.isfinite(value))
    if len(bad):
        row, column = bad[0]
        names = dataset.names((name,))
        called = f" ('{names[column]}')" if len(names) == value.shape[1] else ""
        raise MorphVlaError(
            f"{dataset.root}: '{name}' holds {len(bad)} values that are not finite, the first in episode "
            f"{numbers.get(int(rows.episode[row]), rows.episode[row])}, frame {rows.frame[row]}, "
            f"value {column}{called}"
        )


def _check_there(
    dataset: Layout, ready: Layout, order: Sequence[int], wanted: Sequence[int], numbers: Mapping[int, int]
) -> None:
    """Raise MorphVlaError where the episodes whose rows were read are not those that are wanted."""
    entries, there = {entry.index: entry for entry in ready.episodes}, {*order}
    if len(there) != len(order) or not there <= {*entries}:
        raise MorphVlaError(f"{dataset.root}: the rows of its episodes do not follow meta/episodes")
    for number in wanted:
        if number not in there and entries[number].length:
            file = entries[number].data.relative_to(ready.root)
            raise MorphVlaError(
                f"{dataset.root}: episode {numbers[number]} has no row in {file}, where it is said to be"
            )


def _check_order(
    dataset: Layout,
    rows: Rows,
    starts: Int[np.ndarray, "e"],
    lengths: Sequence[int | None],
    numbers: Mapping[int, int],
) -> None:
    """Raise MorphVlaError where frames are out of order, or an episode has not the frames it is said to have.

    What is learnt of a row is what follows it, and its picture is found by its number.
    """
    counts = np.diff(np.r_[starts, len(rows.frame)])
    expected = np.arange(len(rows.frame)) - np.repeat(starts, counts)
    if len(odd := np.flatnonzero(rows.frame != expected)):
        row = odd[0]
        given = f"frame_index is {rows.frame[row]} where {expected[row]} is expected"
        raise MorphVlaError(
            f"{dataset.root}: episode {numbers[int(rows.episode[row])]}: {given}; leave it out with "
            "`episodes`, or fetch or write the dataset anew"
        )
    for start, count, length in zip(starts, counts, lengths, strict=True):
        if length is not None and length != count:
            raise MorphVlaError(
                f"{dataset.root}: episode {numbers[int(rows.episode[start])]} has {count} rows, and its meta "
                f"files say {length}; leave it out with `episodes`, or fetch or write the dataset anew"
            )


def no_camera(root: Path, camera: str, cameras: Sequence[str]) -> str:
    """The sentence on a camera that a dataset does not have: the nearest one, if any."""
    return f"{root}: no camera '{camera}'{layouts.nearest_camera(camera, cameras)}"


def footage(recordings: Recordings, camera: str) -> Footage:
    """Where every frame of one camera lies: by what meta/episodes says, or within the tables.

    `camera` may have its 'observation.images.' or not. Raises MorphVlaError for one that is not there; the
    nearest is named.
    """
    camera = layouts.named(camera, recordings.cameras)
    if camera not in recordings.cameras:
        raise MorphVlaError(no_camera(recordings.root, camera, recordings.cameras))
    rows = recordings.rows if camera in recordings.pictures else None
    if rows is not None:
        files, file_of, number = rows.files, rows.file_of, rows.number
    else:
        files, file_of, number = _within_videos(recordings, camera)
    return Footage(
        root=recordings.root,
        camera=camera,
        content=_content_key(recordings, camera, file_of, number),
        files=tuple(files),
        file_of=file_of,
        number=number,
        starts=recordings.starts,
        ends=recordings.ends,
        column=recordings.pictures.get(camera, ""),
        indices=tuple(entry.index for entry in recordings.entries),
    )


def _within_videos(recordings: Recordings, camera: str) -> tuple[dict[Path, int], np.ndarray, np.ndarray]:
    """The video files, which of them shows each row, and which of its frames."""
    files: dict[Path, int] = {}
    file_of, number = np.empty((2, recordings.frames), np.int64)
    lengths = (recordings.ends - recordings.starts).tolist()
    rows = {entry.index: length for entry, length in zip(recordings.entries, lengths, strict=True)}
    videos = {entry.index: entry.videos[camera] for entry in recordings.entries if camera in entry.videos}
    if wrong := video_times.unclear(videos, rows, recordings.fps):
        raise MorphVlaError(f"{recordings.root}: camera '{camera}' {wrong[1]}; write the dataset anew")
    for entry, start, end in zip(recordings.entries, recordings.starts, recordings.ends, strict=True):
        if camera not in entry.videos:
            raise MorphVlaError(f"{recordings.root}: camera '{camera}' has no video of episode {entry.index}")
        video = entry.videos[camera]
        shown = video.frames(recordings.fps)
        if shown is not None and shown < end - start:
            raise MorphVlaError(
                f"{recordings.root}: camera '{camera}' shows {shown} frames of episode {entry.index}, which "
                f"has {end - start}; leave it out with `episodes`, or fetch or write the dataset anew"
            )
        file_of[start:end] = files.setdefault(video.path, len(files))
        number[start:end] = round((video.begin or 0.0) * recordings.fps) + np.arange(end - start)
    return files, file_of, number


def _content_key(
    recordings: Recordings, camera: str, file_of: Int[np.ndarray, "n"], number: Int[np.ndarray, "n"]
) -> str:
    """A name for the dataset's content: its values, where each episode begins, which frames show it, and the
    sizes of its videos.

    The sizes tell apart two recordings of the same motion through different cameras. Of tables that hold
    pictures it has samples too: one that was mended may be as large as before.
    """
    digest = hashlib.sha256(recordings.state.tobytes())
    digest.update(recordings.action.tobytes())
    digest.update(recordings.starts.tobytes())
    begun = np.flatnonzero(np.r_[True, np.diff(file_of) != 0])
    in_order = np.arange(len(number)) - np.repeat(begun, np.diff(np.r_[begun, len(number)]))
    if not np.array_equal(number, in_order):  # not every file from its front on: other frames, other content
        for places in (file_of, number):
            digest.update(places.tobytes())
    videos = [entry.videos[camera].path for entry in recordings.entries if camera in entry.videos]
    tables = recordings.rows.files if camera in recordings.pictures and recordings.rows is not None else ()
    for path in (*dict.fromkeys(videos), *tables):
        size = path.stat().st_size if path.is_file() else 0
        digest.update(f"{path.relative_to(recordings.root).as_posix()} {size}\n".encode())
        if path in tables:
            with path.open("rb") as file:
                for place in np.linspace(0, max(0, size - SAMPLE), SAMPLES).astype(int).tolist():
                    file.seek(place)
                    digest.update(file.read(SAMPLE))
    return digest.hexdigest()[:16]
