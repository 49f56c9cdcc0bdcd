"""Where a LeRobot dataset keeps its episodes, and the values of all of them: v2.0, v2.1 and v3.0 alike.

    v2.x    meta/episodes.jsonl, meta/tasks.jsonl; a parquet file and a video per episode
    v3.0    meta/episodes/*/*.parquet, meta/tasks.parquet; many episodes to a file

No video is opened and LeRobot is not needed. What a file lacks is left out, or is one error for the whole of
that file, so that a check can go on with the others.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.data import info as info_file
from morph_vla.data import tables
from morph_vla.errors import MorphVlaError, nearest

IMAGES = "observation.images."
COLOURS = (1, 3, 4)  # grey, red green blue, and with alpha
MAX_META = 1 << 30  # bytes of one file of lines in meta
LONGEST = 1e9  # [s] of a video's time
MOST_AXES, WIDEST = 8, 1_000_000  # of a feature's shape


@dataclasses.dataclass(frozen=True)
class Video:
    """The part of a file that shows one episode to one camera."""

    path: Path
    begin: float | None  # [s]; None: the file holds this episode alone
    end: float | None

    def frames(self, fps: float) -> int | None:
        """How many are the episode's; None where the meta files do not say."""
        if self.begin is None or self.end is None:
            return None
        return round((self.end - self.begin) * fps)


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the meta files say of one episode."""

    index: int
    length: int | None  # frames
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, Video]  # by camera, without 'observation.images.'


def keys_of(features: Mapping[str, Any], *kinds: str) -> list[str]:
    """The features whose dtype is one of `kinds`."""
    return [key for key, value in features.items() if isinstance(value, dict) and value.get("dtype") in kinds]


def camera_of(key: str, features: Mapping[str, Any]) -> str:
    """A camera's name: its feature's without 'observation.images.', unless another feature has that name."""
    short = key.removeprefix(IMAGES)
    return key if short in features else short


def named(camera: str, cameras: Sequence[str]) -> str:
    """The one of `cameras` that is meant, with or without 'observation.images.'; else `camera` itself."""
    short = camera.removeprefix(IMAGES)
    return camera if camera in cameras or short not in cameras else short


def nearest_camera(camera: str, cameras: Sequence[str]) -> str:
    """`nearest` for a camera that is not there, with or without 'observation.images.'."""
    return nearest(camera.removeprefix(IMAGES), cameras)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A dataset as its meta files describe it."""

    root: Path
    version: str
    info: Mapping[str, Any]
    fps: float  # [Hz]
    robot_type: str
    episodes: tuple[Entry, ...]  # by index
    tasks: Mapping[int, str]

    @property
    def features(self) -> dict[str, Mapping[str, Any]]:
        """Feature -> what info.json says of it."""
        return {name: value for name, value in self.info["features"].items() if isinstance(value, dict)}

    def _by_camera(self, *kinds: str) -> dict[str, str]:
        """Camera -> feature, of the features of these dtypes."""
        return {camera_of(key, self.features): key for key in keys_of(self.features, *kinds)}

    @property
    def cameras(self) -> tuple[str, ...]:
        """The cameras' names, without 'observation.images.'."""
        return tuple(self._by_camera("video", "image"))

    @property
    def pictures(self) -> dict[str, str]:
        """Camera -> feature, of those whose pictures are within the table."""
        return self._by_camera("image")

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Camera -> (height, width) [pixels] of its frames as they were recorded, where info.json says."""
        features = self._by_camera("video", "image")
        sizes = {camera: size_of(self.features[key]) for camera, key in features.items()}
        return {camera: size for camera, size in sizes.items() if size is not None}

    @property
    def files(self) -> tuple[Path, ...]:
        """The parquet files that hold values, in the order of the episodes."""
        return tuple(dict.fromkeys(entry.data for entry in self.episodes))

    def entry(self, index: int) -> Entry:
        """What is known of an episode. Raises MorphVlaError for one that is not there."""
        entries = {entry.index: entry for entry in self.episodes}
        if index not in entries:
            have = f"{min(entries)} to {max(entries)}" if entries else "none"
            raise MorphVlaError(f"{self.root}: no episode {index}; its episodes are {have}")
        return entries[index]

    def no_feature(self, name: str) -> str:
        """The sentence on a feature that is not there: the nearest one, else what there is."""
        names = [f"'{known}'" for known in self.features]
        some = ", ".join([*names[:12], *(["..."] if len(names) > 12 else [])]) or "none"
        return f"no feature '{name}'{nearest(name, self.features) or f' (there are {some})'}"

    def key_of(self, camera: str) -> str:
        """The feature that a camera's name stands for."""
        return self._by_camera("video", "image").get(camera, f"{IMAGES}{camera}")

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """The names of the values of several features joined; () where one has none."""
        parts = [info_file.names_of(self.features[name].get("names")) for name in features]
        complete = [*map(len, parts)] == [width_of(self.features[name]) for name in features]
        return tuple(name for names in parts for name in names) if complete else ()


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one file, or of several; values that are not finite are kept."""

    files: tuple[Path, ...]
    file_of: Int[np.ndarray, "n"]  # the place in `files`
    number: Int[np.ndarray, "n"]  # of the row in its file
    values: Mapping[str, Float[np.ndarray, "n _"]]
    episode: Int[np.ndarray, "n"]
    frame: Int[np.ndarray, "n"]
    timestamp: Float[np.ndarray, "n"] | None  # [s]
    task: Int[np.ndarray, "n"] | None


def read(root: Path | str) -> Layout:
    """The layout of the dataset in a folder.

    Raises MorphVlaError when there is none, its version is not known, or its tables of episodes or tasks
    cannot be read.
    """
    root = Path(root)
    info = info_file.load(root)
    version, fps = info_file.version_of(root, info), info_file.fps_of(root, info)
    if version.startswith("v3"):
        episodes, tasks = _episodes_v3(root, info), _tasks_v3(root)
    else:
        episodes, tasks = _episodes_v2(root, info), _tasks_v2(root)
    by_index = tuple(sorted(episodes, key=lambda entry: entry.index))
    for entry, other in itertools.pairwise(by_index):
        if entry.index == other.index:
            raise MorphVlaError(
                f"{root}: the meta files list episode {entry.index} twice; remove one of them"
            )
    return Layout(root, version, info, fps, str(info.get("robot_type") or ""), by_index, tasks)


def rows(
    layout: Layout, features: Sequence[str], path: Path, dtype: Any = np.float64, index: int | None = None
) -> Rows:
    """The rows of one of the layout's files, in the order of the file; `dtype` is that of the values.

    With `index`, those of that episode alone; the others of its file are not kept in memory.

    Raises MorphVlaError, in one sentence with the file, if it is missing or truncated, lacks a feature (the
    nearest is named), or holds something other than numbers.
    """
    for name in features:
        if name not in layout.features:
            raise MorphVlaError(f"{layout.root}: {layout.no_feature(name)}")
    if not path.is_file():
        raise MorphVlaError(f"{path}: the file is missing")
    columns = [*features, "episode_index", "frame_index", "timestamp", "task_index"]
    table = tables.table_of(path, columns, [*features, "episode_index"], index)
    present = table.column_names
    episode = tables.whole(path, table, "episode_index")
    if "frame_index" in present:
        frame = tables.whole(path, table, "frame_index")
    else:  # GR00T's datasets have none
        starts = np.flatnonzero(np.r_[True, np.diff(episode) != 0])
        frame = np.arange(len(episode)) - np.repeat(starts, np.diff(np.r_[starts, len(episode)]))
    return Rows(
        (path,),
        np.zeros(len(episode), np.int64),
        np.arange(len(episode)),
        {name: tables.matrix(path, table, name).astype(dtype, copy=False) for name in features},
        episode,
        frame,
        tables.matrix(path, table, "timestamp")[:, :1].ravel() if "timestamp" in present else None,
        tables.whole(path, table, "task_index") if "task_index" in present else None,
    )


def joined(parts: Sequence[Rows]) -> Rows:
    """Several files' rows, one after another; a file that is wider than another is an error of ours."""
    before = np.cumsum([0, *(len(part.files) for part in parts)])

    def whole(key: str) -> np.ndarray | None:
        """A column of all parts; None where one lacks it."""
        columns = [getattr(part, key) for part in parts]
        return None if any(column is None for column in columns) else np.concatenate(columns)

    columns: dict[str, Any] = {key: whole(key) for key in ("number", "episode", "frame", "timestamp", "task")}
    return Rows(
        files=tuple(path for part in parts for path in part.files),
        file_of=np.concatenate([part.file_of + count for part, count in zip(parts, before, strict=False)]),
        values={key: np.concatenate([part.values[key] for part in parts]) for key in parts[0].values},
        **columns,
    )


def chosen(rows: Rows, kept: Bool[np.ndarray, "n"]) -> Rows:
    """Some of the rows."""
    keys = ("file_of", "number", "episode", "frame", "timestamp", "task")
    columns = {key: getattr(rows, key) for key in keys}
    columns = {key: column if column is None else column[kept] for key, column in columns.items()}
    return dataclasses.replace(rows, values={k: v[kept] for k, v in rows.values.items()}, **columns)


def all_rows(
    layout: Layout, features: Sequence[str], dtype: Any = np.float64, episodes: Collection[int] = ()
) -> Rows:
    """The rows of the dataset, or of these episodes alone, whose files are the only ones that are read.

    Raises MorphVlaError for the first file that is not as it should be.
    """
    if not layout.files:
        raise MorphVlaError(f"{layout.root}: the dataset has no episode")
    wanted = frozenset(episodes)
    in_file: dict[Path, list[int]] = {}
    for entry in layout.episodes:
        if not wanted or entry.index in wanted:
            in_file.setdefault(entry.data, []).append(entry.index)
    parts: dict[Path, Rows] = {}
    for path, indices in in_file.items():
        part = rows(layout, features, path, dtype)
        if wanted:
            part = chosen(part, np.isin(part.episode, indices))
        if len(part.episode):
            parts[path] = part
    if not parts:
        which = "the episodes that are chosen hold" if wanted else "the dataset has"
        raise MorphVlaError(f"{layout.root}: {which} no frame")
    for name in features:
        widths = {part.values[name].shape[1]: path for path, part in parts.items()}
        if len(widths) > 1:
            (first, here), (second, there) = list(widths.items())[:2]
            raise MorphVlaError(f"{here}: '{name}' has {first} values, and {second} in {there.name}")
    return joined([*parts.values()])


def width_of(feature: Mapping[str, Any]) -> int | None:
    """How many values info.json says a feature has; None when it does not."""
    shape = feature.get("shape")
    if not isinstance(shape, list | tuple) or len(shape) > MOST_AXES:
        return None
    if not all(type(size) is int and 0 <= size <= WIDEST for size in shape):
        return None
    return math.prod(shape)


def size_of(feature: Mapping[str, Any]) -> tuple[int, int] | None:
    """(height, width) [pixels] of a camera's feature by info.json; None where it does not say.

    By the names of its axes; without names the colours' axis is the one of 1, 3 or 4, and the last of two.
    """
    shape, names = feature.get("shape"), feature.get("names")
    if not isinstance(shape, list | tuple) or len(shape) != 3 or not all(isinstance(n, int) for n in shape):
        return None
    colours_first = shape[0] in COLOURS and shape[2] not in COLOURS
    if isinstance(names, list | tuple) and len(names) == 3 and all(isinstance(name, str) for name in names):
        if {"height", "width"} <= set(names):
            return shape[names.index("height")], shape[names.index("width")]
        colours_first = names[0].startswith("c")
    return (shape[1], shape[2]) if colours_first else (shape[0], shape[1])


def _episodes_v3(root: Path, info: Mapping[str, Any]) -> Iterator[Entry]:
    paths = info_file.listed(root / "meta" / "episodes", "*/*.parquet")
    if not paths:
        raise MorphVlaError(f"{root}: v3.0 without the table of its episodes (meta/episodes is missing)")
    data = info.get("data_path", "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet")
    video = info.get("video_path") or "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    keys = keys_of(info["features"], "video")
    needed = ["episode_index", "data/chunk_index", "data/file_index"]
    words = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
    columns = [*needed, "length", "tasks", *(f"videos/{key}/{word}" for key in keys for word in words)]
    rows = ((path, row) for path in paths for row in tables.table_of(path, columns, needed).to_pylist())
    for table, row in rows:
        index, *places = (_number(table, row, name) for name in needed)
        videos = {}
        for key in keys:
            chunk, file = (row.get(f"videos/{key}/{word}") for word in words[:2])
            if all(value is not None and value == value for value in (chunk, file)):  # NaN is none, too
                chunk, file = (_number(table, row, f"videos/{key}/{word}") for word in words[:2])
                path = _video_path(root, video, key, chunk_index=chunk, file_index=file)
                begin, end = (_seconds(table, row, f"videos/{key}/{word}") for word in words[2:])
                videos[camera_of(key, info["features"])] = Video(path, begin, end)
        length, tasks = row.get("length"), row.get("tasks")
        length = None if length is None or length != length else _number(table, row, "length")
        tasks = tuple(map(str, tasks)) if isinstance(tasks, list) else ()
        path = info_file.expand(root, data, dict(zip(("chunk_index", "file_index"), places, strict=True)))
        yield Entry(index, length, tasks, path, videos)


def _number(table: Path, row: Mapping[str, Any], name: str) -> int:
    """The whole number in a column of the table of episodes."""
    value, episode = row[name], row["episode_index"]
    if isinstance(value, float) and value.is_integer():  # pandas makes them of whole numbers
        value = int(value)
    if not isinstance(value, int) or value < 0:
        of_episode = "" if name == "episode_index" else f" of episode {episode}"
        raise MorphVlaError(f"{table}: {name}{of_episode} is {value!r}; expected a whole number from 0")
    return value


def _seconds(table: Path, row: Mapping[str, Any], name: str) -> float | None:
    """A time in the table of episodes; None where it is none."""
    value = row.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if abs(value) > LONGEST:
        raise MorphVlaError(f"{table}: {name} of episode {row['episode_index']} is {value:g} s")
    return float(value)


def _tasks_v3(root: Path) -> dict[int, str]:
    path = root / "meta" / "tasks.parquet"
    if not path.is_file():
        return {}
    names = ["task_index", "task", "__index_level_0__"]
    table = tables.table_of(path, names, ["task_index"])
    column = next((name for name in names[1:] if name in table.column_names), None)
    if column is None:
        raise MorphVlaError(f"{path}: no column 'task'")
    numbers = tables.whole(path, table, "task_index").tolist()
    return _texts(path, zip(numbers, table.column(column).to_pylist(), strict=True))


def _texts(path: Path, tasks: Iterable[tuple[int, Any]]) -> dict[int, str]:
    """Number -> text. Raises MorphVlaError for two texts of one number, and for what is none."""
    texts: dict[int, str] = {}
    for number, text in tasks:
        if not isinstance(text, str):
            raise MorphVlaError(f"{path}: task {number} is {text!r:.60}; expected a text")
        if texts.setdefault(number, text) != text:
            raise MorphVlaError(
                f"{path}: lists task {number} twice, as '{texts[number]:.60}' and '{text:.60}'"
            )
    return texts


def _episodes_v2(root: Path, info: Mapping[str, Any]) -> Iterator[Entry]:
    """Of meta/episodes.jsonl; without it, as many as info.json says."""
    size = info.get("chunks_size")
    size = size if isinstance(size, int) and size > 0 else 1000
    folder, name = "chunk-{episode_chunk:03d}", "episode_{episode_index:06d}"
    data = info.get("data_path", f"data/{folder}/{name}.parquet")
    video = info.get("video_path") or f"videos/{folder}/{{video_key}}/{name}.mp4"
    lines = lines_of(root / "meta" / "episodes.jsonl")
    if lines is None:
        total = info.get("total_episodes")
        total = total if isinstance(total, int) else 0
        if total > info_file.MAX_FILES:
            raise MorphVlaError(
                f"{root}: meta/episodes.jsonl is missing, and info.json says {total:,} episodes; without it "
                f"no more than {info_file.MAX_FILES:,} are looked for"
            )
        lines = [{"episode_index": index} for index in range(total)]
    chunks, video_chunks = info_file.listed(root / "data"), info_file.listed(root / "videos")
    for line in lines:
        index, length, tasks = line.get("episode_index"), line.get("length"), line.get("tasks")
        if not isinstance(index, int) or index < 0:
            raise MorphVlaError(f"{root / 'meta' / 'episodes.jsonl'}: an episode has the index {index!r}")
        fields = {"episode_chunk": index // size, "episode_index": index}
        path = info_file.expand(root, data, fields)
        path = _existing(path, (chunk / path.name for chunk in chunks))
        videos = {}
        for key in keys_of(info["features"], "video"):
            file = _video_path(root, video, key, **fields)
            file = _existing(file, (chunk / key / file.name for chunk in video_chunks))
            videos[camera_of(key, info["features"])] = Video(file, None, None)
        tasks = tuple(map(str, tasks)) if isinstance(tasks, list) else ()
        yield Entry(index, length if isinstance(length, int) else None, tasks, path, videos)


def _existing(path: Path, others: Iterable[Path]) -> Path:
    """The first of these that is a file; else `path`. The others are asked for where it is none."""
    return next((candidate for candidate in itertools.chain([path], others) if candidate.is_file()), path)


def _tasks_v2(root: Path) -> dict[int, str]:
    path = root / "meta" / "tasks.jsonl"
    known = [line for line in lines_of(path) or [] if type(line.get("task_index")) is int]
    return _texts(path, ((line["task_index"], line.get("task")) for line in known))


def lines_of(path: Path) -> list[dict[str, Any]] | None:
    """A file of JSON objects, one a line; None when there is none."""
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_META:
        raise MorphVlaError(f"{path}: larger than {MAX_META >> 20} MiB")
    values = []
    # Not splitlines: U+2028 and its like may stand within a task.
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise MorphVlaError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(value, dict):
            raise MorphVlaError(f"{path}:{number}: expected an object")
        values.append(value)
    return values


def _video_path(root: Path, template: Any, key: str, **fields: int) -> Path:
    """As `info.expand`, for a template that names the camera too."""
    if not isinstance(template, str):
        raise MorphVlaError(f"{root / 'meta' / 'info.json'}: video_path is {template!r}; expected a path")
    return info_file.expand(root, template.replace("{video_key}", key), fields)
