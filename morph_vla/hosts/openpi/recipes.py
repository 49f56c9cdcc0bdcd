"""The ready-made configurations, as data: what `configs` makes openpi's TrainConfigs of. Needs no openpi."""

import dataclasses
from typing import Literal

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.morphology import MorphologyConfig

BASE = "gs://openpi-assets/checkpoints/pi05_base"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One configuration. `cameras` are the dataset's columns in the order of openpi's three cameras."""

    name: str
    summary: str
    robot: str
    data: Literal["droid", "lerobot", "fake"]
    morphology: MorphologyConfig = dataclasses.field(default_factory=MorphologyConfig)
    horizon: int = 16
    cameras: tuple[str | None, str | None, str | None] = (None, None, None)
    state: str = "observation.state"
    actions: str = "action"
    grippers: int = 1  # the last joints, whose actions stay absolute where those of the others become deltas
    steps: int = 20_000
    batch: int = 32


RECIPES = (
    Recipe(
        "pi05_morph_droid",
        "Panda on a DROID dataset in LeRobot's format (joint velocities), from pi05_base",
        "panda",
        "droid",
    ),
    Recipe(
        "pi05_morph_g1",
        "Unitree G1 with Dex1 grippers on a LeRobot dataset of Unitree's, from pi05_base",
        "g1_dex1",
        "lerobot",
        cameras=(
            "observation.images.cam_left_high",
            "observation.images.cam_left_wrist",
            "observation.images.cam_right_wrist",
        ),
        grippers=2,
    ),
    Recipe(
        "pi05_morph_so101",
        "SO-101 on a LeRobot dataset with cameras front and wrist, from pi05_base",
        "so101",
        "lerobot",
        cameras=("observation.images.front", "observation.images.wrist", None),
    ),
    Recipe(
        "pi05_morph_debug",
        "Panda, a small model from random weights on openpi's fake data: no download, no dataset",
        "panda",
        "fake",
        MorphologyConfig(max_joints=8, chunks=2),
        steps=10,
        batch=2,
    ),
)


def check_name(name: str, known: list[str]) -> None:
    """Raise MorphVlaError, naming the nearest, for a configuration that is not `known`."""
    if name not in known:
        raise MorphVlaError(
            f"no configuration '{name}'{nearest(name, known)} "
            "(see python -m morph_vla.hosts.openpi list, and openpi's own)"
        )
