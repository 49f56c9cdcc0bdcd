"""LeRobot's own way to batches, to be measured against: its dataset under torch's DataLoader.

Nothing is trained from it; `morph-vla bench data` is its only user.
"""

import contextlib
import itertools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.errors import require
from morph_vla.pixels import resize_with_pad


class Resized:
    """A LeRobot dataset whose frames are scaled with padding as openpi does: uint8, channels last."""

    def __init__(self, dataset: Any, size: int):
        self.dataset, self.size = dataset, size

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        torch = require("torch", "lerobot")
        item = dict(self.dataset[index])
        for key in self.dataset.meta.camera_keys:
            picture = np.ascontiguousarray(item[key].permute(1, 2, 0).numpy())
            item[key] = torch.from_numpy(resize_with_pad(picture, self.size))
        return item


def dataset(root: Path, horizon: int) -> Any:
    """The LeRobotDataset at `root` with chunks of `horizon` actions; frames in uint8, as its trainer has."""
    with quiet():
        made = require("lerobot.datasets.lerobot_dataset", "lerobot").LeRobotDataset
        fps = made(f"local/{root.name}", root=root).meta.fps
        chunk = {"action": [step / fps for step in range(horizon)]}
        return made(f"local/{root.name}", root=root, delta_timestamps=chunk, return_uint8=True)


def batches(data: Any, batch: int, workers: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Batches without end, drawn at random, by torch's DataLoader with its own depth of prefetch."""
    torch = require("torch", "lerobot")
    sampler = torch.utils.data.RandomSampler(
        data, replacement=True, num_samples=1 << 30, generator=torch.Generator().manual_seed(seed)
    )
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=batch,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="spawn" if workers else None,
    )
    return iter(loader)


def backend() -> str:
    """What LeRobot decodes with on this machine."""
    with quiet():
        return require("lerobot.utils.import_utils", "lerobot").get_safe_default_video_backend()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what lerobot tells the root logger, such as the whole traceback of a codec it cannot load."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def write_example(root: Path, episodes: int, frames: int, height: int = 240, width: int = 320) -> None:
    """A dataset by LeRobot's own writer and video settings: two cameras, six joints, moving shapes."""
    made = require("lerobot.datasets.lerobot_dataset", "lerobot").LeRobotDataset
    vector = {"dtype": "float32", "shape": (6,), "names": [f"joint_{index}" for index in range(6)]}
    video = {"dtype": "video", "shape": (height, width, 3), "names": ["height", "width", "channels"]}
    cameras = ("observation.images.front", "observation.images.wrist")
    features = {"observation.state": vector, "action": vector} | dict.fromkeys(cameras, video)
    os.environ.setdefault("SVT_LOG", "1")  # errors alone
    require("av", "lerobot").logging.set_level(require("av", "lerobot").logging.ERROR)
    with quiet():
        data = made.create("local/example", 30, features, root=root, robot_type="example")
        down, across = np.mgrid[:height, :width].astype(np.float32)
        for number, frame in itertools.product(range(episodes), range(frames)):
            value = np.sin(np.arange(6) + 0.1 * frame + number).astype(np.float32)
            pictures = {key: _picture(down, across, frame + 31 * number, i) for i, key in enumerate(cameras)}
            data.add_frame({**pictures, "observation.state": value, "action": value, "task": "measure"})
            if frame == frames - 1:
                data.save_episode()
        data.finalize()


def _picture(down: np.ndarray, across: np.ndarray, time: int, camera: int) -> np.ndarray:
    waves = [np.sin(down / (9 + 5 * c) + across / (23 - 4 * c) + 0.2 * time + camera) for c in range(3)]
    picture = (127 + 90 * np.stack(waves, axis=-1)).astype(np.uint8)
    left = (7 * time) % (across.shape[1] - 40)
    picture[60:110, left : left + 40] = 255 - 200 * camera
    return picture
