"""Every key of a recipe, typed and frozen, with its default. `recipe` reads and checks them."""

import dataclasses
import math
from typing import Any, Literal

from morph_vla.data import presets
from morph_vla.data.actions import Kind
from morph_vla.data.frames import Mode
from morph_vla.data.mixture import By
from morph_vla.data.phases import AS_RECORDED, Shares
from morph_vla.data.space import Space
from morph_vla.errors import ConfigError
from morph_vla.files.dropin import name_of
from morph_vla.files.plain import to_plain
from morph_vla.pi05.config import Lora
from morph_vla.policies.config import ModelConfig, StateConfig

UNSET: Any = None  # a key that is left out: the preset's, or what stands in Preset


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One LeRobot dataset of one robot. Keys that are left out come from its preset, when it names one."""

    dataset: str = ""  # folder of a LeRobot dataset, or its name on the Hub (USER/NAME)
    robot: str = ""
    cameras: dict[str, str] = UNSET  # the model's name -> the dataset's
    weight: float = 1.0  # its share of the mixture
    actions: Kind = UNSET  # what is learnt: absolute targets (the default), deltas from the state, velocities
    state: tuple[str, ...] = UNSET  # the dataset's keys; none takes those of the robot's side file
    action: tuple[str, ...] = UNSET
    episodes: tuple[int, ...] = ()  # these alone, by their numbers; none means all
    share: float = 1.0  # of them, so many, chosen by a stable hash of their numbers
    idle: int = 0  # so many rows and more in which nothing moves are left out (openpi: 7); 0: none are
    phases: Shares = AS_RECORDED  # of the drawn rows, those before a grasp and a release; none: as recorded
    preset: str | None = ""  # `morph-vla recipes presets` lists them; null, as "", is none
    unit: presets.Unit = UNSET  # of the dataset's values, where it is not the robot's
    gripper: tuple[float, ...] = UNSET  # (open, closed) in the dataset, where it is not the robot's
    recorded: presets.Recorded = UNSET  # what the dataset's actions are: targets, or steps from the state
    step: float = UNSET  # [rad] that a recorded step of 1 stands for

    def __post_init__(self) -> None:
        """Raise ConfigError for an entry without a dataset or a robot, and as `fill`."""
        self.fill()
        for key in ("dataset", "robot"):
            if not getattr(self, key):
                raise ConfigError(f"{key} is missing; expected dataset and robot, or a preset that has one")

    def fill(self) -> None:
        """Take what is left out from the preset; raise ConfigError for an unknown preset or a wrong value."""
        object.__setattr__(self, "preset", self.preset or "")
        preset = presets.find(self.preset) if self.preset else presets.Preset("", "", {})
        object.__setattr__(self, "robot", self.robot or preset.robot)
        for key in ("cameras", "actions", "state", "action", "unit", "gripper", "recorded", "step"):
            if getattr(self, key) is UNSET:
                value = getattr(preset, key)
                object.__setattr__(self, key, dict(value) if key == "cameras" else value)
        is_finite = all(map(math.isfinite, self.gripper))
        if len(self.gripper) not in (0, 2) or len(set(self.gripper)) == 1 or not is_finite:
            raise ConfigError(
                f"gripper is {list(self.gripper)}; expected the dataset's values [open, closed]"
            )
        if not 0 < self.step < float("inf"):
            raise ConfigError(f"step is {self.step:g}; expected more than 0 rad")


@dataclasses.dataclass(frozen=True)
class Data(Dataset):
    """What is trained on: one dataset, written here, or several under `datasets`, each of one robot."""

    datasets: tuple[Dataset, ...] = ()
    by: By = "batch"  # a batch is of one dataset (the paper: 8:2), or its rows are mixed ("row")
    held_out: float = 0.02  # share of episodes that are never trained on
    # cache: decode all frames once into the run's folder; video: decode them as they are drawn, in processes
    # (videos, or pictures within the tables); auto: cache while they take up to 8 GiB (`frames.CACHE_BYTES`).
    # The pixels are the same.
    frames: Mode = "auto"
    workers: int = 0  # processes that decode video; 0: as many as there are cores, up to 16
    # own: measured; robot: from its URDF, so that a robot that was never recorded has them too;
    # dataset: its meta/stats.json; else a checkpoint or a file
    statistics: str = "own"
    degenerate: Literal["widen", "refuse"] = "widen"  # a value whose q99 - q01 is below 0.01
    # what a state and an action are: joint values, or poses of the robot's tools, which every arm has alike
    # (`robots.tool`); served, its actions are joint targets in both
    space: Space = "joints"

    def __post_init__(self) -> None:
        """Raise ConfigError for a dataset of its own beside `datasets`, and as `Dataset`."""
        if not self.datasets:
            return super().__post_init__()
        self.fill()
        given = self.dataset, self.robot, self.cameras, self.state, self.action, self.episodes, self.preset
        if any(given) or self.share != 1 or self.phases != AS_RECORDED or self.idle:
            raise ConfigError("has both datasets and a dataset of its own; put it into the list")
        return None

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys of one dataset that are said beside a list of several, which none of them hears."""
        if not self.datasets:
            return ()
        default, fields = presets.Preset("", "", {}), dataclasses.fields(Dataset)
        names = ((field.name, getattr(default, field.name, field.default)) for field in fields)
        return tuple(name for name, value in names if getattr(self, name) != value)

    @property
    def sources(self) -> tuple[Dataset, ...]:
        """The datasets, however they are written."""
        if self.datasets:
            return self.datasets
        return (Dataset(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Dataset)}),)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """AdamW with linear warm-up and cosine decay; or Muon for matrices, with AdamW for everything else."""

    kind: Literal["adamw", "muon"] = "adamw"  # muon: of models from scratch, see `optimizers`
    matrix_lr: float = 0.02  # of muon: the peak of the rate for matrices; peak_lr is that of all else
    peak_lr: float = 2.5e-5
    warmup: int = 1000
    final_lr_share: float = 0.1
    weight_decay: float = 1e-10
    clip: float = 1.0  # the gradient's norm above which it is scaled down; .inf: never
    clip_parts: Literal["together", "apart"] = "together"  # one norm of all, or each part's (`pi05.parts`)
    plugin_lr_share: float = 1.0  # the plugin's rate over the others'; below 1 it leaves its host more slowly
    b1: float = 0.9
    b2: float = 0.95
    eps: float = 1e-8


@dataclasses.dataclass(frozen=True)
class Mesh:
    """How all devices share the work, see `sharding.py`; it changes no sample and no noise."""

    data: int = 0  # groups of devices that hold the parameters; 0 is what fsdp leaves
    fsdp: int = 1  # devices that hold the parameters between them
    whole_below_mib: float = 4.0  # a smaller leaf is on every device in full (openpi's bound)


@dataclasses.dataclass(frozen=True)
class Training:
    """How long, in which batches, what learns."""

    steps: int
    batch: int = 32
    kind: Literal["full", "expert", "lora"] = "full"
    lora: Lora | None = None  # of kind lora: which parts, ranks, targets; none takes openpi's
    accumulate: int = 1  # microbatches that a batch is computed in, one after the other: memory, not result
    # a batch's tokens are cut to its longest prompt, in whole buckets of so many: padding costs nothing, each
    # length is compiled once; 0 keeps model.max_tokens. The same losses to rounding
    prompt_bucket: int = 0
    flow_samples: int = 1  # noise draws per observation; they share one prefix
    noise_share: float = 0.0  # of them, at t = 1, where the observation is all there is to go by (step.draw)
    loss_over: Literal["real", "all"] = "real"  # the robot's own action values, or all the model's (openpi)
    seed: int = 0
    ema: float = 0.99
    # shift: shift_pixels and brightness, of small models; openpi: crop, rotation and colours as pi0.5 had
    augmentation: Literal["none", "shift", "openpi"] = "shift"
    shift_pixels: int = 0
    brightness: float = 0.0
    # rows are turned about the robot's vertical by up to so much either way: hand, objects and moves as one,
    # so that an unseen arm's hand may begin elsewhere; for data.space: tool or hand, without cameras
    turn_degrees: float = 0.0
    log_every: int = 25
    held_out_every: int = 250
    checkpoint_every: int = 250
    keep: int = 2  # newest checkpoints that are kept, besides the first of a run from random weights
    keep_every: int = 0  # and those of every so many steps; 0 keeps none
    mesh: Mesh = Mesh()


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Suites in which the policy is tried while it is trained."""

    suites: tuple[str, ...] = ()
    every: int = 5000  # steps
    episodes: int = 20


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Every key of a recipe's YAML file."""

    data: Data
    model: ModelConfig
    training: Training
    optimizer: Optimizer = Optimizer()
    tokenizer: str = "bytes"
    evaluation: Evaluation = Evaluation()
    weights: str = ""  # where parameters come from: pi05-base, pi05-arms, a path, gs://, hf://; "": random

    def __post_init__(self) -> None:
        """What is written once, in `training` or in `data`, and what the model has of it.

        What learns through low-rank pairs is leaves of the model; the robots of the data are what
        `descriptors: robot` tells apart.
        """
        lora = self.training.lora or Lora() if self.training.kind == "lora" else None
        if lora is None and self.training.lora is not None:
            raise ConfigError(
                f"training.lora means nothing to training.kind: {self.training.kind}; "
                "choose kind: lora, or leave it out"
            )
        object.__setattr__(self, "training", dataclasses.replace(self.training, lora=lora))
        if isinstance(self.model, StateConfig):
            return
        if self.model.lora is not None and self.model.lora != lora:
            raise ConfigError("model.lora follows from training.kind and training.lora; write it there")
        plugin = self.model.morphology
        if plugin is not None and plugin.descriptors == "robot":
            names = tuple(dict.fromkeys(name_of("robots", source.robot) for source in self.data.sources))
            plugin = dataclasses.replace(plugin, robots=names)
        object.__setattr__(self, "model", dataclasses.replace(self.model, lora=lora, morphology=plugin))

    def resolved(self) -> dict[str, Any]:
        """The dataset entries that name a preset, by their key, with everything that it fills in."""
        several = bool(self.data.datasets)
        return {
            f"data.datasets.{index}" if several else "data": to_plain(source)
            for index, source in enumerate(self.data.sources)
            if source.preset
        }
