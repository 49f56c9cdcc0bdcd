"""The door to `lerobot` for reading: a dataset's values as arrays, and where its frames lie.

Values (state, action, episode bounds) come from the parquet files without decoding a pixel; `frames` decodes.
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from morph_vla.data.frames import Footage
from morph_vla.errors import MorphVlaError, nearest, require

STATE, ACTION = "observation.state", "action"


@dataclasses.dataclass(frozen=True)
class Recordings:
    """A dataset's values: n frames of all episodes, one after another."""

    root: Path
    version: str
    fps: float
    robot_type: str
    state: Float[np.ndarray, "n s"]
    action: Float[np.ndarray, "n a"]
    starts: Int[np.ndarray, "e"]  # first frame of each episode
    ends: Int[np.ndarray, "e"]  # one past its last
    task_of: Int[np.ndarray, "n"]
    tasks: tuple[str, ...]
    cameras: tuple[str, ...]  # names without 'observation.images.'

    @property
    def frames(self) -> int:
        """Number of frames."""
        return int(self.state.shape[0])

    def last_of(self, rows: Int[np.ndarray, "b"]) -> Int[np.ndarray, "b"]:
        """The last row of each row's episode."""
        return self.ends[np.searchsorted(self.starts, rows, side="right") - 1] - 1

    def episode_of(self) -> Int[np.ndarray, "n"]:
        """Episode number of every frame."""
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)


def read(root: Path, state: Sequence[str] = (STATE,), action: Sequence[str] = (ACTION,)) -> Recordings:
    """Values of the LeRobot v3.0 dataset in the folder `root`; those of several keys are joined in order.

    Raises MorphVlaError when the folder holds no dataset, is of another version, lacks a feature (the nearest
    is named), or holds values that are not finite (episode and frame are named).
    """
    info = root / "meta" / "info.json"
    if not info.exists():
        raise MorphVlaError(f"{root}: no LeRobot dataset here (meta/info.json is missing)")
    try:
        version = str(json.loads(info.read_text(encoding="utf-8")).get("codebase_version", "unknown"))
    except ValueError as error:
        raise MorphVlaError(f"{info}: not JSON: {error}") from error
    if not version.startswith("v3"):
        raise MorphVlaError(
            f"{root}: LeRobot {version}; this reader takes v3.0, convert it with lerobot first"
        )
    dataset = _import("lerobot.datasets.lerobot_dataset").LeRobotDataset(f"local/{root.name}", root=root)
    meta, table = dataset.meta, dataset.hf_dataset.data
    for name in (*state, *action):
        if name not in meta.features:
            raise MorphVlaError(f"{root}: no feature '{name}'{nearest(name, meta.features)}")
    episode, frame, task = (table.column(f"{name}_index").to_numpy() for name in ("episode", "frame", "task"))
    values = {name: _matrix(table, name) for name in (*state, *action)}
    for name, value in values.items():
        _check_finite(root, name, value, episode, frame)
    starts = np.flatnonzero(np.r_[True, np.diff(episode) != 0])
    return Recordings(
        root=root,
        version=version,
        fps=float(meta.fps),
        robot_type=str(meta.robot_type or ""),
        state=np.concatenate([values[name] for name in state], axis=1),
        action=np.concatenate([values[name] for name in action], axis=1),
        starts=starts,
        ends=np.r_[starts[1:], len(episode)],
        task_of=task.astype(np.int64),
        tasks=tuple(str(task) for task in meta.tasks.sort_values("task_index").index),
        cameras=tuple(key.removeprefix("observation.images.") for key in meta.camera_keys),
    )


def _matrix(table: Any, name: str) -> Float[np.ndarray, "n d"]:
    column = table.column(name).combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, np.float32).reshape(len(column), -1)


def _check_finite(root: Path, name: str, value: np.ndarray, episode: np.ndarray, frame: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(value))
    if len(bad):
        row, column = bad[0]
        raise MorphVlaError(
            f"{root}: '{name}' holds {len(bad)} values that are not finite, the first in episode "
            f"{episode[row]}, frame {frame[row]}, value {column}"
        )


def footage(recordings: Recordings, camera: str) -> Footage:
    """Where every frame of one camera lies, by what meta/episodes says.

    Raises MorphVlaError for a camera that is not there; the nearest is named.
    """
    if camera not in recordings.cameras:
        raise MorphVlaError(f"{recordings.root}: no camera '{camera}'{nearest(camera, recordings.cameras)}")
    meta = _import("lerobot.datasets.lerobot_dataset").LeRobotDatasetMetadata(
        f"local/{recordings.root.name}", root=recordings.root
    )
    key = f"observation.images.{camera}"
    files: dict[Path, int] = {}
    file_of, number = np.empty(recordings.frames, np.int64), np.empty(recordings.frames, np.int64)
    for episode, (start, end) in enumerate(zip(recordings.starts, recordings.ends, strict=True)):
        begin = meta.episodes[episode][f"videos/{key}/from_timestamp"]
        path = recordings.root / meta.get_video_file_path(episode, key)
        file_of[start:end] = files.setdefault(path, len(files))
        number[start:end] = round(begin * recordings.fps) + np.arange(end - start)
    return Footage(
        root=recordings.root,
        camera=camera,
        content=_content_key(recordings, camera),
        files=tuple(files),
        file_of=file_of,
        number=number,
        starts=recordings.starts,
        ends=recordings.ends,
    )


def _content_key(recordings: Recordings, camera: str) -> str:
    """A name for the dataset's content: its values, where each episode begins, and the sizes of its videos.

    The sizes tell apart two recordings of the same motion through different cameras.
    """
    digest = hashlib.sha256(recordings.state.tobytes())
    digest.update(recordings.action.tobytes())
    digest.update(recordings.starts.tobytes())
    videos = recordings.root / "videos" / f"observation.images.{camera}"
    for path in sorted(videos.rglob("*.mp4")):
        digest.update(f"{path.relative_to(videos).as_posix()} {path.stat().st_size}\n".encode())
    return digest.hexdigest()[:16]


def _import(module: str) -> Any:
    found = require(module, "lerobot")
    logging.getLogger("lerobot").setLevel(logging.WARNING)
    return found
