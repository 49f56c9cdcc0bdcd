"""From a dataset's name to a LeRobot v3.0 folder: the Hub, and LeRobot's own converter for v2.0 and v2.1.

A v2.x dataset is converted once, into the cache folder (`MORPH_VLA_CACHE`), under a name that follows from
its content; the original is never written to. The converter is given a folder of links. What it needs and the
dataset lacks is added there: v2.0's statistics per episode (from values; no video is decoded), and numbers
for episodes that have gaps in theirs. A camera that lacks an episode's video is left out, and that is logged.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.data import layout as layouts
from morph_vla.data import pictures
from morph_vla.data.layout import Entry, Layout
from morph_vla.data.tables import matrix, open_file, table_of
from morph_vla.errors import MorphVlaError, reason, require
from morph_vla.files.cache import cache_folder
from morph_vla.files.home import expanded
from morph_vla.files.writing import locked

LOG = logging.getLogger(__name__)
REVISIONS = ("v3.0", "v2.1", "v2.0", "main")  # of a dataset of the Hub, the first that it has
NUMBERS = ("frame_index", "episode_index", "index")  # columns that LeRobot wants of every table
TASK = "task_index"  # read where a table has it, whether info.json lists it or not
ENDS = 1 << 16  # bytes at both ends of a video that stand for it: its index, and where a cut shows


def is_hub_name(name: str | Path) -> bool:
    """Whether a dataset's name can be one of the Hub: no folder of this machine, and like `user/name`."""
    return not expanded(name).exists() and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", str(name)) is not None


def located(name: str | Path, fetch: bool = True) -> Path:
    """The folder of a dataset of any version: `name` itself, or a Hub id (`user/name`) in LeRobot's cache.

    Raises MorphVlaError, in one sentence, when it is neither; without `fetch` nothing is downloaded.
    """
    path, text = expanded(name), str(name)
    if path.exists():
        return path
    if not is_hub_name(name):
        raise MorphVlaError(f"{text}: no such folder (a dataset of the Hub is called USER/NAME)")
    errors: Any = require("huggingface_hub.errors", "lerobot")
    folder = require("lerobot.utils.constants", "lerobot").HF_LEROBOT_HOME / text
    if (folder / "meta" / "info.json").is_file():
        return folder
    why = "no copy of the Hub's dataset is on this machine"
    if fetch:
        LOG.info("fetching dataset %s from the Hub", text)
        try:
            if folder := _newest(text, errors.RevisionNotFoundError, local=False):
                return folder
            why = f"the Hub's dataset has none of the revisions {', '.join(REVISIONS)}"
        except errors.LocalEntryNotFoundError:
            why = "the Hub cannot be reached"
        except errors.RepositoryNotFoundError as error:
            why = "the Hub has no dataset of this name (or it is private)"
            raise MorphVlaError(f"{text}: no such folder, and {why}") from error
        except (OSError, ValueError) as error:
            why = reason(error)
    # Offline, the client says the same of a revision that the dataset lacks as of one that is not here.
    try:
        if folder := _newest(text, errors.LocalEntryNotFoundError, local=True):
            return folder
    except (OSError, ValueError) as error:  # a name that the client does not take
        why = reason(error)
    raise MorphVlaError(f"{text}: no such folder, and {why}")


def _newest(name: str, absent: type[Exception], local: bool) -> Path | None:
    """The Hub's dataset at the first revision that is there, in the cache alone where `local`."""
    constants, hub = require("lerobot.utils.constants", "lerobot"), require("huggingface_hub", "lerobot")
    options = {"repo_type": "dataset", "cache_dir": constants.HF_LEROBOT_HUB_CACHE, "local_files_only": local}
    for revision in REVISIONS:
        with contextlib.suppress(absent):
            return Path(hub.snapshot_download(name, revision=revision, **options))
    return None


def ready(dataset: Layout, episodes: Sequence[int] = ()) -> Layout:
    """The layout of a v3.0 dataset with the same frames; of a v2.x one, a converted copy in the cache.

    `episodes` are those wanted, numbered anew from 0 in a copy; none means all. Raises MorphVlaError for a
    dataset that cannot be converted.
    """
    if dataset.version.startswith("v3"):
        return dataset
    wanted = frozenset(episodes)
    chosen = tuple(entry for entry in dataset.episodes if not wanted or entry.index in wanted)
    final = cache_folder() / "datasets" / f"{dataset.root.resolve().name}-{content_key(dataset, chosen)}"
    if not final.is_dir():
        final.parent.mkdir(parents=True, exist_ok=True)
        with locked(final.with_name(f".{final.name}.lock")):
            if not final.is_dir():
                source = f"{dataset.root} from LeRobot {dataset.version}"
                LOG.info("converting %s to v3.0 into %s", source, final)
                _convert(dataset, chosen, final)
    else:
        LOG.info("%s: LeRobot %s, converted before into %s", dataset.root, dataset.version, final)
    return layouts.read(final)


def content_key(dataset: Layout, chosen: Sequence[Entry]) -> str:
    """A name for what would be converted: meta files and values whole, of videos their size and both ends.

    Of pictures beside the tables their sizes and times: there may be a million.
    """
    digest = hashlib.sha256(f"morph_vla 1 {[entry.index for entry in chosen]}".encode())
    meta = [path for path in sorted((dataset.root / "meta").rglob("*")) if path.is_file()]
    for path in (*meta, *(entry.data for entry in chosen)):
        digest.update(f"{path.name}\n".encode())
        if path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    for video in (video for entry in chosen for _, video in sorted(entry.videos.items())):
        size = video.path.stat().st_size if video.path.is_file() else -1
        digest.update(f"{video.path.name} {size}\n".encode())
        if size > 0:
            with video.path.open("rb") as file:
                digest.update(file.read(ENDS))
                file.seek(max(0, size - ENDS))
                digest.update(file.read(ENDS))
    columns = sorted(set(dataset.pictures.values()))
    within = [(entry.data, column) for entry in chosen for column in columns if entry.data.is_file()]
    for picture in (path for place in within for path in pictures.beside(*place, dataset.root)):
        stat = picture.stat()
        digest.update(f"{picture.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _convert(dataset: Layout, chosen: Sequence[Entry], final: Path) -> None:
    """Links beside the final place, LeRobot's converter on them, and a rename when it is done."""
    unfinished = final.with_name(f".{final.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    stage = unfinished / "dataset"
    if not dataset.tasks:
        raise MorphVlaError(f"{dataset.root}: meta/tasks.jsonl names no task; every frame needs its task")
    try:
        cameras = _complete(dataset, chosen)
        _write_meta(dataset, chosen, cameras, stage)
        _link(dataset, chosen, cameras, stage)
        with _quiet():
            converter = require("lerobot.scripts.convert_dataset_v21_to_v30", "lerobot")
            converter.convert_dataset(f"local/{final.name}", root=stage, push_to_hub=False)
        columns = [dataset.pictures[camera] for camera in cameras if camera in dataset.pictures]
        for path in sorted((stage / "data").rglob("*.parquet")) if columns else ():
            pictures.regroup(path, columns, dataset.root)
        if dataset.fps != int(dataset.fps):  # the converter cuts a rate to a whole number
            path = stage / "meta" / "info.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "fps": dataset.fps}, indent=2))
        stage.rename(final)
    except MorphVlaError:
        raise
    except Exception as error:  # of LeRobot's converter, and of what it reads with
        raise MorphVlaError(
            f"{dataset.root}: LeRobot's converter from {dataset.version} to v3.0 fails: {reason(error)}; "
            "`morph-vla recipes check` says what is wrong with a dataset"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _complete(dataset: Layout, chosen: Sequence[Entry]) -> tuple[str, ...]:
    """The cameras that have a video of every episode (or keep their images in the table)."""
    kept = []
    for camera in dataset.cameras:
        videos = [entry.videos[camera].path for entry in chosen if camera in entry.videos]
        missing = sum(not path.is_file() or path.stat().st_size == 0 for path in videos)
        if missing:
            lack = f"{missing} of {len(videos)} videos are missing"
            LOG.warning("%s: camera '%s' is left out of the copy, for %s", dataset.root, camera, lack)
        else:
            kept.append(camera)
    return tuple(kept)


def _write_meta(dataset: Layout, chosen: Sequence[Entry], cameras: Sequence[str], stage: Path) -> None:
    """The meta files of a v2.1 dataset with these episodes and cameras."""
    meta = stage / "meta"
    meta.mkdir(parents=True)
    left_out = {dataset.key_of(camera) for camera in dataset.cameras if camera not in cameras}
    features = {name: value for name, value in dataset.features.items() if name not in left_out}
    for name in NUMBERS:
        features.setdefault(name, {"dtype": "int64", "shape": [1], "names": None})
    lengths = [_length(entry) for entry in chosen]
    if all(TASK in _columns(entry) for entry in chosen):
        features.setdefault(TASK, {"dtype": "int64", "shape": [1], "names": None})
    filmed = [camera for camera in cameras if camera not in dataset.pictures]
    info = {
        **dataset.info,
        "codebase_version": "v2.1",
        "features": features,
        "total_episodes": len(chosen),
        "total_frames": sum(lengths),
        "total_tasks": len(dataset.tasks),
        "total_videos": len(chosen) * len(filmed),
        "total_chunks": 1,
        "chunks_size": max(1000, len(chosen)),
        "splits": {"train": f"0:{len(chosen)}"},
        "video_path": "videos/chunk-000/{video_key}/episode_{episode_index:06d}.mp4" if filmed else None,
        "data_path": "data/chunk-000/episode_{episode_index:06d}.parquet",
    }
    (meta / "info.json").write_text(json.dumps(info), encoding="utf-8")
    tasks = [{"task_index": index, "task": task} for index, task in sorted(dataset.tasks.items())]
    episodes = [
        {"episode_index": number, "tasks": list(entry.tasks), "length": length}
        for number, (entry, length) in enumerate(zip(chosen, lengths, strict=True))
    ]
    kept = layouts.lines_of(dataset.root / "meta" / "episodes_stats.jsonl") or []
    by_index = {line.get("episode_index"): line.get("stats") for line in kept}
    recorded = [by_index.get(entry.index) for entry in chosen]
    if all(isinstance(each, dict) for each in recorded):
        stats = [{name: v for name, v in (each or {}).items() if name not in left_out} for each in recorded]
    else:
        lack = "no statistics per episode (v2.1 has them)"
        LOG.info("%s: %s; computing them from the values", dataset.root, lack)
        stats = [_episode_stats(features, entry) for entry in chosen]
    numbered = [{"episode_index": number, "stats": each} for number, each in enumerate(stats)]
    for name, lines in (("tasks", tasks), ("episodes", episodes), ("episodes_stats", numbered)):
        text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
        (meta / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _length(entry: Entry) -> int:
    """Frames of an episode by its own file; what meta says of it may be wrong."""
    if not entry.data.is_file():
        raise MorphVlaError(f"{entry.data}: the file of episode {entry.index} is missing")
    return int(open_file(entry.data).metadata.num_rows)


def _columns(entry: Entry) -> list[str]:
    """The columns of an episode's own file."""
    return require("pyarrow.parquet", "lerobot").read_schema(entry.data.absolute()).names


def _is_nested(table: Any, name: str) -> bool:
    """Whether a column holds lists of lists, as a pose as a matrix."""
    kinds = require("pyarrow", "lerobot").types
    kind = table.schema.field(name).type
    lists = kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list
    return any(check(kind) for check in lists) and any(check(kind.value_type) for check in lists)


def _episode_stats(features: dict[str, Any], entry: Entry) -> dict[str, Any]:
    """LeRobot's statistics of one episode's numbers; none of its pictures."""
    computing = require("lerobot.datasets.compute_stats", "lerobot")
    kinds = ("float", "int", "uint", "bool")
    wanted = [name for name, value in features.items() if str(value.get("dtype", "")).startswith(kinds)]
    table = table_of(entry.data, wanted, [])
    numbers = {}
    for name in table.column_names:
        # Nested lists are nothing that is read here; LeRobot copies them as they are.
        if "bool" not in str(features[name].get("dtype")) and not _is_nested(table, name):
            value = matrix(entry.data, table, name)
            numbers[name] = value[:, 0] if value.shape[1] == 1 else value
    statistics = computing.compute_episode_stats(numbers, features)
    return {
        name: {key: np.asarray(value).tolist() for key, value in values.items()}
        for name, values in statistics.items()
    }


def _link(dataset: Layout, chosen: Sequence[Entry], cameras: Sequence[str], stage: Path) -> None:
    """Data and videos as links, numbered from 0; a table is written anew only where it must change."""
    kept = {name for name, value in dataset.features.items() if value.get("dtype") != "video"}
    offset, columns = 0, kept | {*NUMBERS, TASK}
    for number, entry in enumerate(chosen):
        place = stage / "data" / "chunk-000" / f"episode_{number:06d}.parquet"
        offset += _place_table(entry, number, offset, place, columns)
        for camera in cameras:
            if camera in entry.videos:
                place = stage / "videos" / "chunk-000" / dataset.key_of(camera) / f"episode_{number:06d}.mp4"
                _place(entry.videos[camera].path, place)


def _place_table(entry: Entry, number: int, offset: int, place: Path, columns: set[str]) -> int:
    """Link an episode's table, or write it with new numbers and these columns; returns its frames."""
    parquet, arrow = require("pyarrow.parquet", "lerobot"), require("pyarrow", "lerobot")
    count = _length(entry)
    present = _columns(entry)
    _check_own(entry, present, count)
    if number == entry.index and {*present, TASK} == columns:
        _place(entry.data, place)
        return count
    kept = [name for name in present if name in columns and name not in NUMBERS]
    table, frame = parquet.read_table(entry.data.absolute(), columns=kept), np.arange(count)
    for name, column in zip(NUMBERS, (frame, np.full(count, number), offset + frame), strict=True):
        table = table.append_column(name, arrow.array(column.astype(np.int64)))
    place.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, place)
    return count


def _check_own(entry: Entry, present: Sequence[str], count: int) -> None:
    """Raise MorphVlaError for a file of another episode, or one whose rows are out of order.

    In the copy numbers are written anew, and nobody would see it any more.
    """
    expected = {"episode_index": np.full(count, entry.index), "frame_index": np.arange(count)}
    names = [name for name in expected if name in present]
    table = table_of(entry.data, names, [])
    for name in names:
        values = matrix(entry.data, table, name)[:, 0]
        if len(odd := np.flatnonzero(values != expected[name])):
            row = odd[0]
            given = f"{name} is {values[row]:g} in row {row}, where {expected[name][row]} is expected"
            raise MorphVlaError(
                f"{entry.data}: {given}; leave the episode out with `episodes`, or fetch or write the "
                "dataset anew"
            )


def _place(source: Path, place: Path) -> None:
    """A hard link, or a symbolic one where the cache is on another disk."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), place)
    except OSError:
        place.symlink_to(source.resolve())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The converter's bars and log lines are for its own command line."""
    datasets = require("datasets", "lerobot")
    level = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        datasets.disable_progress_bars()
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
            datasets.enable_progress_bars()
