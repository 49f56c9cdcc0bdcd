"""A recipe: which data, which model, how it is trained. YAML in `configs/`, typed, frozen, strict."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from morph_vla.errors import ConfigError, nearest
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.tokenizer import BytesTokenizer, check_vocab
from morph_vla.robots import dropin


@dataclasses.dataclass(frozen=True)
class Data:
    """One LeRobot dataset of one robot."""

    dataset: str  # folder of a LeRobot dataset
    robot: str
    cameras: dict[str, str]  # the model's camera name -> the dataset's
    held_out: float = 0.02  # share of episodes that are never trained on


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """AdamW with linear warm-up and cosine decay."""

    peak_lr: float = 2.5e-5
    warmup: int = 1000
    final_lr_share: float = 0.1
    weight_decay: float = 1e-10
    clip: float = 1.0
    b1: float = 0.9
    b2: float = 0.95
    eps: float = 1e-8


@dataclasses.dataclass(frozen=True)
class Training:
    """How long, in which batches, what learns."""

    steps: int
    batch: int = 32
    kind: Literal["full", "expert"] = "full"
    flow_samples: int = 1  # noise draws per observation; they share one prefix
    seed: int = 0
    ema: float = 0.99
    # shift: shift_pixels and brightness, of small models; openpi: crop, rotation and colours as pi0.5 had
    augmentation: Literal["none", "shift", "openpi"] = "shift"
    shift_pixels: int = 0
    brightness: float = 0.0
    log_every: int = 25
    held_out_every: int = 250
    checkpoint_every: int = 250


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Every key of a recipe's YAML file."""

    data: Data
    model: Pi05Config
    training: Training
    optimizer: Optimizer = Optimizer()
    tokenizer: str = "bytes"


def load(name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()) -> Recipe:
    """Read and check the recipe called `name` (or the file at that path).

    Raises ConfigError with every problem, each with the nearest valid key.
    """
    path = dropin.find("recipes", str(name), folders)
    recipe = dropin.read(path, Recipe, overrides)
    check(recipe, str(path))
    return recipe


def check(recipe: Recipe, where: str) -> None:
    """Raise ConfigError for a recipe whose parts do not fit together."""
    try:
        recipe.model.check()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    amounts = {key: getattr(recipe.training, key) for key in ("shift_pixels", "brightness")}
    given = [key for key, amount in amounts.items() if amount]
    if given and recipe.training.augmentation != "shift":
        raise ConfigError(
            f"{where}: training.{given[0]}: {amounts[given[0]]} says how far training.augmentation 'shift' "
            f"goes; it means nothing to '{recipe.training.augmentation}'"
        )
    if recipe.tokenizer == "bytes":  # another one is a file, which training reads
        try:
            check_vocab(BytesTokenizer(), recipe.model.vocab)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
    for name in recipe.data.cameras:
        if name not in recipe.model.cameras:
            known = recipe.model.cameras
            raise ConfigError(
                f"{where}: data.cameras: '{name}' is not one of the model's cameras "
                f"{', '.join(known)}{nearest(name, known)}"
            )
    for key in ("steps", "batch", "flow_samples", "log_every", "held_out_every", "checkpoint_every"):
        if getattr(recipe.training, key) < 1:
            raise ConfigError(
                f"{where}: training.{key}: must be at least 1, not {getattr(recipe.training, key)}"
            )
    if not 0 <= recipe.data.held_out < 1:
        raise ConfigError(f"{where}: data.held_out: must lie in [0, 1), not {recipe.data.held_out}")
    if not 0 <= recipe.training.ema < 1:
        raise ConfigError(f"{where}: training.ema: must lie in [0, 1), not {recipe.training.ema}")
