"""The door to `lerobot` for writing: a new dataset, parts merged into one, and a lean per-frame path.

By a profile, LeRobot 0.6 spends about 10 ms a frame (two 96 x 96 cameras, one core) on things that a
simulated recording does not need: histograms of 5,000 float bins for pixels that have 256 values, a
row-by-row map that embeds images into tables that hold none, and digests of tables by which `datasets` would
find files of its cache. `lean` replaces them for the length of a `with` block; the statistics stay those of
every pixel of every frame (the test holds them against LeRobot's own).
"""

import contextlib
import dataclasses
import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from morph_vla.errors import require

# LeRobot's dataset, running statistics and encoder settings; it is imported when it is first used.
Dataset = Any
Statistics = Any
EncoderConfig = Any
# x264's macroblock tree gives other packets for the same frames now and then, with one thread too: 219 of 800
# encodings beside three others, none of 800 without it.
REPEATABLE = {"x264-params": "no-mbtree=1"}
QUANTILES = (0.01, 0.10, 0.50, 0.90, 0.99)


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a task's dataset holds."""

    name: str
    robot: str
    joints: tuple[str, ...]
    cameras: Mapping[str, tuple[int, int]]
    """Name -> height, width [pixels]."""
    control_rate: float
    """[Hz]"""
    max_steps: int
    """The most frames of an episode."""
    poses: tuple[str, ...] = ()
    """What `observation.environment_state` is made of; none is not recorded."""


def create(layout: Layout, root: Path) -> Dataset:
    """An empty LeRobot v3.0 dataset at `root`: cameras as video, joints by name, poses where it has some."""
    dataset = _import("lerobot.datasets.lerobot_dataset").LeRobotDataset
    vector = {"dtype": "float32", "shape": (len(layout.joints),), "names": list(layout.joints)}
    features: dict[str, dict[str, object]] = {"observation.state": vector, "action": vector}
    if layout.poses:
        poses = {"dtype": "float32", "shape": (len(layout.poses),), "names": list(layout.poses)}
        features["observation.environment_state"] = poses
    for name, (height, width) in layout.cameras.items():
        features[f"observation.images.{name}"] = {
            "dtype": "video",
            "shape": (height, width, 3),
            "names": ["height", "width", "channels"],
        }
    return dataset.create(
        repo_id=f"local/{layout.name}",
        fps=round(layout.control_rate),
        features=features,
        root=root,
        robot_type=layout.robot,
        rgb_encoder=_encoder(),
        encoder_threads=1,
        streaming_encoding=True,
        encoder_queue_maxsize=layout.max_steps + 1,  # LeRobot drops frames when this queue is full
        video_files_size_in_mb=2,  # saving an episode rewrites the file it lands in
    )


def _encoder() -> EncoderConfig:
    """How videos are encoded: the same frames to the same bytes, whatever else the machine does."""
    config = _import("lerobot.configs.video").RGBEncoderConfig
    return config(vcodec="h264", crf=18, g=8, preset="veryfast", extra_options=REPEATABLE)


def merge(name: str, parts: Sequence[Path], folder: Path) -> None:
    """Merge complete datasets into a new one at `folder`, in order."""
    aggregate = _import("lerobot.datasets.aggregate")
    original = aggregate.tqdm
    aggregate.tqdm = SimpleNamespace(tqdm=lambda items, **_: items)  # no bars within our own progress
    try:
        aggregate.aggregate_datasets(
            repo_ids=[f"local/{name}-{part.name}" for part in parts],
            aggr_repo_id=f"local/{name}",
            roots=list(parts),
            aggr_root=folder,
        )
    finally:
        aggregate.tqdm = original
    path = folder / "meta" / "stats.json"  # its keys come from a set: in another order in every process
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4, sort_keys=True))


class PixelStatistics:
    """LeRobot's `RunningQuantileStats` for 8-bit pixels: the same answers from 256 counts per channel.

    Mean, std, min and max are exact; quantiles are exact too (LeRobot's are to within a bin). What is not of
    8 bits goes to `general`, LeRobot's own.
    """

    def __init__(self, general: Statistics, quantiles: Sequence[float] | None = None):
        self._general, self._quantiles = general, tuple(quantiles or QUANTILES)
        self._counts: np.ndarray | None = None

    def update(self, batch: np.ndarray) -> None:
        """Count the pixels of one frame, uint8 [pixels, channels]."""
        if batch.dtype != np.uint8:
            self._general.update(batch)
            return
        channels = batch.shape[-1]
        flat = batch.reshape(-1, channels).astype(np.intp) + 256 * np.arange(channels)
        counts = np.bincount(flat.ravel(), minlength=256 * channels).reshape(channels, 256)
        self._counts = counts if self._counts is None else self._counts + counts

    def get_statistics(self) -> dict[str, np.ndarray]:
        """min, max, mean, std, count and the quantiles, each [channels] (count: [1])."""
        if self._counts is None:
            return self._general.get_statistics()
        counts, values = self._counts, np.arange(256.0)
        total = counts.sum(axis=1)
        mean = counts @ values / total
        below = np.cumsum(counts, axis=1)
        statistics = {
            "min": np.argmax(counts > 0, axis=1).astype(np.float64),
            "max": 255.0 - np.argmax(counts[:, ::-1] > 0, axis=1),
            "mean": mean,
            "std": np.sqrt(np.maximum(counts @ values**2 / total - mean**2, 0.0)),
            "count": total[:1],
        }
        for q in self._quantiles:
            reached = below >= q * total[:, None]
            statistics[f"q{int(q * 100):02d}"] = np.argmax(reached, axis=1).astype(np.float64)
        return statistics


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """LeRobot writes frames without the costs named above; after the block all is as before."""
    statistics = _import("lerobot.datasets.compute_stats")
    writer = _import("lerobot.datasets.dataset_writer")
    hasher = _import("datasets.fingerprint").Hasher
    originals = statistics.RunningQuantileStats, writer.embed_images
    digest = hasher.__dict__["hash"]

    def tracker(quantile_list: Sequence[float] | None = None, num_quantile_bins: int = 5000) -> Statistics:
        return PixelStatistics(originals[0](quantile_list, num_quantile_bins), quantile_list)

    statistics.RunningQuantileStats, writer.embed_images = tracker, lambda dataset: dataset
    hasher.hash = classmethod(lambda *_: uuid.uuid4().hex[:16])  # no table is looked for in the cache
    try:
        yield
    finally:
        statistics.RunningQuantileStats, writer.embed_images = originals
        hasher.hash = digest


def _import(module: str) -> Any:
    # On a machine without FFmpeg's libraries its import tries torchcodec five times and logs five tracebacks,
    # in every process, to say that it goes on with PyAV. We only write, through PyAV.
    logging.getLogger("lerobot.utils.import_utils").setLevel(logging.ERROR)
    imported = require(module, "lerobot")
    # FFmpeg narrates every file it opens and closes; thousands of lines for a recording. LeRobot hands its
    # log back to the terminal after every video, so it is the library's own level that has to be raised.
    log = require("av", "lerobot").logging
    log.set_libav_level(log.ERROR)
    logging.getLogger("lerobot").setLevel(logging.WARNING)
    return imported
