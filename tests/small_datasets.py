"""Small LeRobot datasets, written file by file: v2.0, v2.1 and v3.0, complete."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
from pyarrow import parquet

NUMBERS = ("frame_index", "episode_index", "index", "task_index")
V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V3 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


def encode_video(path: Path, frames: int, fps: int = 30, size: int = 16, colour: int = 0) -> Path:
    """A small H.264 video of plain pictures that grow brighter; the first is as bright as `colour`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=fps, options={"g": "2", "crf": "18"})
        stream.width, stream.height, stream.pix_fmt = size, size, "yuv420p"
        for number in range(frames):
            picture = np.full((size, size, 3), (colour + 7 * number) % 250, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


def table_of(episode: int, values: Mapping[str, Any], fps: float, offset: int) -> pa.Table:
    """The rows of one episode, the first of which is row `offset` of the dataset."""
    count = len(next(iter(values.values())))
    columns = {name: pa.array([list(map(float, row)) for row in rows]) for name, rows in values.items()}
    columns["timestamp"] = pa.array([frame / fps for frame in range(count)], pa.float32())
    columns["frame_index"] = pa.array(range(count), pa.int64())
    columns["episode_index"] = pa.array([episode] * count)
    columns["index"] = pa.array(range(offset, offset + count), pa.int64())
    columns["task_index"] = pa.array([0] * count)
    return pa.table(columns)


def write_v3(root: Path, tables: Sequence[pa.Table], cameras: Sequence[str], fps: int) -> None:
    """Data, videos and meta but info.json: two files of each kind, so that an episode's place matters."""
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    half, none = (len(tables) + 1) // 2, [0] * len(tables)
    file_of = [int(index >= half) for index in range(len(tables))]
    rows: dict[str, list] = {"episode_index": list(range(len(tables)))}
    rows |= {"length": [len(table) for table in tables], "tasks": [["wave"] for _ in tables]}
    rows |= {"data/chunk_index": none, "data/file_index": file_of}
    for file, part in enumerate((tables[:half], tables[half:])):
        if not part:
            continue
        full = [table for table in part if len(table)]  # an episode may be without a row
        parquet.write_table(pa.concat_tables(full), root / f"data/chunk-000/file-{file:03d}.parquet")
        for key in (f"videos/observation.images.{camera}" for camera in cameras):
            ends = list(itertools.accumulate(len(table) / fps for table in part))
            rows.setdefault(f"{key}/from_timestamp", []).extend([0.0, *ends[:-1]])
            rows.setdefault(f"{key}/to_timestamp", []).extend(ends)
            rows |= {f"{key}/chunk_index": none, f"{key}/file_index": file_of}
            path = root / key / f"chunk-000/file-{file:03d}.mp4"
            encode_video(path, sum(len(table) for table in part), fps, colour=100 * file)
    parquet.write_table(pa.table(rows), root / "meta/episodes/chunk-000/file-000.parquet")
    parquet.write_table(pa.table({"task_index": [0], "task": ["wave"]}), root / "meta/tasks.parquet")


def write_v2(root: Path, tables: Sequence[pa.Table], cameras: Sequence[str], fps: int) -> None:
    """Data, videos and meta but info.json: a file an episode, two episodes a folder."""
    lines = []
    for index, table in enumerate(tables):
        path = root / V2.format(episode_chunk=index // 2, episode_index=index)
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path)
        lines.append(json.dumps({"episode_index": index, "tasks": ["wave"], "length": len(table)}))
        for camera in cameras:
            folder = root / f"videos/chunk-{index // 2:03d}/observation.images.{camera}"
            encode_video(folder / f"episode_{index:06d}.mp4", len(table), fps, colour=40 * index)
    (root / "meta").mkdir(exist_ok=True)
    (root / "meta/episodes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "wave"}), encoding="utf-8")


def features_of(values: Mapping[str, Any], names: Mapping[str, Any], cameras: Sequence[str]) -> dict:
    """What info.json says of the features; `names` are those of their values."""
    features = {
        name: {"dtype": "float32", "shape": [len(rows[0])], "names": names.get(name)}
        for name, rows in values.items()
    }
    for name, dtype in (("timestamp", "float32"), *((name, "int64") for name in NUMBERS)):
        features[name] = {"dtype": dtype, "shape": [1], "names": None}
    for camera in cameras:
        axes = {"shape": [16, 16, 3], "names": ["height", "width", "channels"]}
        features[f"observation.images.{camera}"] = {"dtype": "video", **axes}
    return features


def write_dataset(
    root: Path,
    version: str,
    episodes: Sequence[Mapping[str, Any]],
    names: Mapping[str, Any] | None = None,
    fps: int = 30,
    info: Mapping[str, Any] | None = None,
    cameras: Sequence[str] = (),
) -> Path:
    """A dataset in the folder `root`, which is returned.

    `episodes`: for each a dict feature -> rows of values; `names`: feature -> what info.json holds; `info`:
    changes to info.json.
    """
    offset, tables = 0, []
    for index, values in enumerate(episodes):
        tables.append(table_of(index, values, fps, offset))
        offset += len(tables[-1])
    v3 = version.startswith("v3")
    (write_v3 if v3 else write_v2)(root, tables, cameras, fps)
    facts = {"codebase_version": version, "fps": fps, "chunks_size": 2, "data_path": V3 if v3 else V2}
    facts |= {"total_episodes": len(episodes), "total_frames": offset, "robot_type": "tiny"}
    facts |= {"features": features_of(episodes[0], names or {}, cameras), **(info or {})}
    (root / "meta/info.json").write_text(json.dumps(facts), encoding="utf-8")
    return root
