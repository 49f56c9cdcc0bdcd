"""A recipe: which data, which model, how it is trained. YAML in `configs/`, typed, frozen, strict."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from morph_vla.data import presets
from morph_vla.data.actions import Kind
from morph_vla.data.frames import Mode
from morph_vla.data.mixture import By
from morph_vla.data.phases import AS_RECORDED, Shares
from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.files import dropin, typed_yaml
from morph_vla.files.plain import to_plain
from morph_vla.pi05.config import Lora, Pi05Config
from morph_vla.pi05.tokenizer import OFFLINE, check_vocab
from morph_vla.recipes import ablations

# Keys, or what is below them, in which a run that goes on may differ: they change no parameter.
PACE_KEYS = frozenset(
    {"training.mesh", "training.keep", "training.keep_every", "evaluation", "data.frames", "data.workers"}
)


UNSET: Any = None  # a key that is left out: the preset's, or what stands in Preset


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One LeRobot dataset of one robot. Keys that are left out come from its preset, when it names one."""

    dataset: str  # folder of a LeRobot dataset, or its name on the Hub (USER/NAME)
    robot: str = ""
    cameras: dict[str, str] = UNSET  # the model's name -> the dataset's
    weight: float = 1.0  # its share of the mixture
    actions: Kind = UNSET  # what is learnt: absolute targets (the default), deltas from the state, velocities
    state: tuple[str, ...] = UNSET  # the dataset's keys; none takes those of the robot's side file
    action: tuple[str, ...] = UNSET
    episodes: tuple[int, ...] = ()  # these alone, by their numbers; none means all
    share: float = 1.0  # of them, so many, chosen by a stable hash of their numbers
    phases: Shares = AS_RECORDED  # of the drawn rows, those before a grasp and a release; none: as recorded
    preset: str = ""  # `morph-vla recipes presets` lists them
    unit: presets.Unit = UNSET  # of the dataset's values, where it is not the robot's
    gripper: tuple[float, ...] = UNSET  # (open, closed) in the dataset, where it is not the robot's
    recorded: presets.Recorded = UNSET  # what the dataset's actions are: targets, or steps from the state
    step: float = UNSET  # [rad] that a recorded step of 1 stands for

    def __post_init__(self) -> None:
        _fill(self)
        if not self.robot:
            raise ConfigError("robot is missing; expected a robot's name, or a preset that has one")


def _fill(entry: "Dataset | Data") -> None:
    """What is left out, from the preset; raises ConfigError for a preset, gripper or step that cannot be."""
    preset = presets.find(entry.preset) if entry.preset else presets.Preset("", "", {})
    if not entry.robot:
        object.__setattr__(entry, "robot", preset.robot)
    for key in ("cameras", "actions", "state", "action", "unit", "gripper", "recorded", "step"):
        if getattr(entry, key) is UNSET:
            value = getattr(preset, key)
            object.__setattr__(entry, key, dict(value) if key == "cameras" else value)
    if len(entry.gripper) not in (0, 2) or len(set(entry.gripper)) == 1:
        raise ConfigError(f"gripper is {list(entry.gripper)}; expected the dataset's values [open, closed]")
    if not 0 < entry.step < float("inf"):
        raise ConfigError(f"step is {entry.step:g}; expected more than 0 rad")


@dataclasses.dataclass(frozen=True)
class Data:
    """What is trained on: one dataset, written here, or several under `datasets`, each of one robot."""

    dataset: str = ""
    robot: str = ""
    cameras: dict[str, str] = UNSET
    actions: Kind = UNSET
    state: tuple[str, ...] = UNSET
    action: tuple[str, ...] = UNSET
    episodes: tuple[int, ...] = ()
    share: float = 1.0
    phases: Shares = AS_RECORDED
    preset: str = ""
    unit: presets.Unit = UNSET
    gripper: tuple[float, ...] = UNSET
    recorded: presets.Recorded = UNSET
    step: float = UNSET
    datasets: tuple[Dataset, ...] = ()
    by: By = "batch"  # a batch is of one dataset (the paper: 8:2), or its rows are mixed ("row")
    held_out: float = 0.02  # share of episodes that are never trained on
    # cache: decode all frames once into the run's folder; video: decode them as they are drawn, in processes
    # (videos, or pictures within the tables); auto: cache while they take up to 8 GiB (`frames.CACHE_BYTES`).
    # The pixels are the same.
    frames: Mode = "auto"
    workers: int = 0  # processes that decode video; 0: as many as there are cores, up to 16
    statistics: str = "own"  # own: measured; dataset: its meta/stats.json; else a checkpoint or a file
    degenerate: Literal["widen", "refuse"] = "widen"  # a value whose q99 - q01 is below 0.01

    def __post_init__(self) -> None:
        if self.datasets:
            own = self.dataset, self.robot, self.cameras, self.state, self.action, self.episodes, self.preset
            if any(own) or self.share != 1 or self.phases != AS_RECORDED:
                raise ConfigError("has both datasets and a dataset of its own; put it into the list")
        _fill(self)
        for key in () if self.datasets else ("dataset", "robot"):
            if not getattr(self, key):
                raise ConfigError(f"{key} is missing; expected dataset and robot, or a list of datasets")

    @property
    def sources(self) -> tuple[Dataset, ...]:
        """The datasets, however they are written."""
        if self.datasets:
            return self.datasets
        keys = [field.name for field in dataclasses.fields(Dataset) if field.name != "weight"]
        return (Dataset(**{key: getattr(self, key) for key in keys}),)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """AdamW with linear warm-up and cosine decay; or Muon for matrices, with AdamW for everything else."""

    kind: Literal["adamw", "muon"] = "adamw"  # muon: of models from scratch, see `optimizers`
    matrix_lr: float = 0.02  # of muon: the peak of the rate for matrices; peak_lr is that of all else
    peak_lr: float = 2.5e-5
    warmup: int = 1000
    final_lr_share: float = 0.1
    weight_decay: float = 1e-10
    clip: float = 1.0  # the gradient's norm above which it is scaled down
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
    flow_samples: int = 1  # noise draws per observation; they share one prefix
    noise_share: float = 0.0  # of them, at t = 1, where the observation is all there is to go by (step.draw)
    loss_over: Literal["real", "all"] = (
        "real"  # the robot's own action values, or all of the model's (openpi)
    )
    seed: int = 0
    ema: float = 0.99
    # shift: shift_pixels and brightness, of small models; openpi: crop, rotation and colours as pi0.5 had
    augmentation: Literal["none", "shift", "openpi"] = "shift"
    shift_pixels: int = 0
    brightness: float = 0.0
    log_every: int = 25
    held_out_every: int = 250
    checkpoint_every: int = 250
    keep: int = 2  # newest checkpoints that are kept, besides the first
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
    model: Pi05Config
    training: Training
    optimizer: Optimizer = Optimizer()
    tokenizer: str = "bytes"
    evaluation: Evaluation = Evaluation()
    weights: str = ""  # where parameters come from: pi05-base, a path, gs://, hf://; "" for random ones

    def __post_init__(self) -> None:
        """What learns through low-rank pairs is written once, in `training`; the model has those leaves."""
        lora = self.training.lora or Lora() if self.training.kind == "lora" else None
        if lora is None and self.training.lora is not None:
            raise ConfigError(
                f"training.lora means nothing to training.kind: {self.training.kind}; "
                "choose kind: lora, or leave it out"
            )
        if self.model.lora is not None and self.model.lora != lora:
            raise ConfigError("model.lora follows from training.kind and training.lora; write it there")
        object.__setattr__(self, "training", dataclasses.replace(self.training, lora=lora))
        object.__setattr__(self, "model", dataclasses.replace(self.model, lora=lora))

    def resolved(self) -> dict[str, Any]:
        """The dataset entries that name a preset, by their key, with everything that it fills in."""
        several = bool(self.data.datasets)
        return {
            f"data.datasets.{index}" if several else "data": to_plain(source)
            for index, source in enumerate(self.data.sources)
            if source.preset
        }


def load(name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()) -> Recipe:
    """Read and check the recipe called `name` (or the file at that path), or a variant of it: `name@variant`.

    Raises ConfigError with every problem, each with the nearest valid key or variant.
    """
    base, variant = ablations.split(name)
    path = dropin.find("recipes", base, folders)
    recipe = typed_yaml.read(path, Recipe, overrides)
    if variant:
        changes = ablations.overrides_of(base, variant, recipe.training.steps)
        recipe = typed_yaml.read(path, Recipe, [*changes, *overrides])
    check(recipe, str(path))
    return recipe


def of_run(folder: Path) -> Recipe:
    """The recipe of the run in `folder`. Raises MorphVlaError when there is none."""
    path = folder / "recipe.json"
    if not path.exists():
        raise MorphVlaError(f"{folder}: no run to go on with (recipe.json is missing)")
    recipe = typed_yaml.read(path, Recipe)
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
    if recipe.tokenizer in OFFLINE:  # another one is a file, which training reads
        try:
            check_vocab(OFFLINE[recipe.tokenizer](), recipe.model.vocab)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
    _check_data(recipe, where)
    counted = (
        "steps",
        "batch",
        "accumulate",
        "flow_samples",
        "log_every",
        "held_out_every",
        "checkpoint_every",
    )
    for key in (*counted, "keep"):
        if getattr(recipe.training, key) < 1:
            raise ConfigError(
                f"{where}: training.{key}: must be at least 1, not {getattr(recipe.training, key)}"
            )
    for name, value, least in (
        ("training.keep_every", recipe.training.keep_every, 0),
        ("training.mesh.data", recipe.training.mesh.data, 0),
        ("training.mesh.fsdp", recipe.training.mesh.fsdp, 1),
        ("evaluation.every", recipe.evaluation.every, 1),
        ("evaluation.episodes", recipe.evaluation.episodes, 1),
    ):
        if value < least:
            raise ConfigError(f"{where}: {name}: must be at least {least}, not {value}")
    if recipe.training.batch % recipe.training.accumulate:
        batch = recipe.training.batch
        divisors = [n for n in range(1, batch + 1) if batch % n == 0]
        raise ConfigError(
            f"{where}: training.accumulate: {recipe.training.accumulate} does not divide the batch {batch}; "
            f"choose one of {', '.join(map(str, divisors))}"
        )
    if not 0 <= recipe.training.noise_share < 1:
        share = recipe.training.noise_share
        raise ConfigError(f"{where}: training.noise_share: must lie in [0, 1), not {share:g}")
    if not 0 < recipe.optimizer.plugin_lr_share < float("inf"):
        share = recipe.optimizer.plugin_lr_share
        raise ConfigError(f"{where}: optimizer.plugin_lr_share: must be more than 0, not {share:g}")
    if not 0 <= recipe.training.ema < 1:
        raise ConfigError(f"{where}: training.ema: must lie in [0, 1), not {recipe.training.ema}")


def _check_data(recipe: Recipe, where: str) -> None:
    known = recipe.model.cameras
    for index, source in enumerate(recipe.data.sources):
        place = f"data.datasets.{index}" if recipe.data.datasets else "data"
        for name in source.cameras:
            if name not in known:
                raise ConfigError(
                    f"{where}: {place}.cameras: '{name}' is not one of the model's cameras "
                    f"{', '.join(known)}{nearest(name, known)}"
                )
        if not 0 < source.weight < float("inf"):
            raise ConfigError(f"{where}: {place}.weight: must be more than 0, not {source.weight:g}")
        if not 0 < source.share <= 1:
            raise ConfigError(f"{where}: {place}.share: must lie in (0, 1], not {source.share:g}")
        source.phases.check(f"{where}: {place}.phases")
    if recipe.data.workers < 0:
        raise ConfigError(f"{where}: data.workers: must be at least 0, not {recipe.data.workers}")
    if not 0 <= recipe.data.held_out < 1:
        raise ConfigError(f"{where}: data.held_out: must lie in [0, 1), not {recipe.data.held_out}")
    kinds: dict[str, str] = {}
    for source in recipe.data.sources:
        if kinds.setdefault(source.robot, source.actions) != source.actions:
            raise ConfigError(
                f"{where}: data.datasets: '{source.robot}' learns {kinds[source.robot]} actions from one "
                f"dataset and {source.actions} ones from another; a robot's actions have one meaning"
            )
