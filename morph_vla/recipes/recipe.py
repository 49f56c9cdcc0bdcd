"""A recipe: which data, which model, how it is trained. YAML in `configs/`, typed, frozen, strict."""

import dataclasses
import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from morph_vla.data import presets
from morph_vla.data.actions import Kind
from morph_vla.data.frames import Mode
from morph_vla.data.mixture import By
from morph_vla.data.phases import AS_RECORDED, Shares
from morph_vla.data.space import Space
from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.files import dropin, typed_yaml
from morph_vla.files.plain import to_plain
from morph_vla.pi05.config import Lora, Pi05Config
from morph_vla.pi05.tokenizer import OFFLINE, check_vocab
from morph_vla.policies.config import ModelConfig, StateConfig, WindowConfig
from morph_vla.recipes import ablations

# Keys, or what is below them, in which a run that goes on may differ: they change no parameter.
PACE_KEYS = frozenset(
    {"training.mesh", "training.keep", "training.keep_every", "evaluation", "data.frames", "data.workers"}
)
# Whole numbers -> the least they may be.
LEAST = {
    "training.steps": 1, "training.batch": 1, "training.accumulate": 1, "training.flow_samples": 1,
    "training.prompt_bucket": 0,
    "training.log_every": 1, "training.held_out_every": 1, "training.checkpoint_every": 1, "training.keep": 1,
    "training.keep_every": 0, "training.mesh.data": 0, "training.mesh.fsdp": 1, "evaluation.every": 1,
    "evaluation.episodes": 1, "data.workers": 0, "optimizer.warmup": 0,
}  # fmt: skip
# Keys that a family on numbers has no use for -> why. Their defaults are no request.
UNUSED_ON_STATE = {
    "training.flow_samples": "draws no noise in training",
    "training.noise_share": "draws no noise in training",
    "training.prompt_bucket": "reads no prompt tokens",
    "training.shift_pixels": "sees no images",
    "training.brightness": "sees no images",
    "optimizer.plugin_lr_share": "has no plugin",
    "tokenizer": "reads a hash of the task's words, no tokens",
}
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
    preset: str = ""  # `morph-vla recipes presets` lists them
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
        preset = presets.find(self.preset) if self.preset else presets.Preset("", "", {})
        object.__setattr__(self, "robot", self.robot or preset.robot)
        for key in ("cameras", "actions", "state", "action", "unit", "gripper", "recorded", "step"):
            if getattr(self, key) is UNSET:
                value = getattr(preset, key)
                object.__setattr__(self, key, dict(value) if key == "cameras" else value)
        if len(self.gripper) not in (0, 2) or len(set(self.gripper)) == 1:
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
    weights: str = ""  # where parameters come from: pi05-base, pi05-nano, a path, gs://, hf://; "": random

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
            names = tuple(dict.fromkeys(Path(source.robot).stem for source in self.data.sources))
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


def on_datasets(recipe: Recipe, datasets: Sequence[Dataset], **changes: Any) -> Recipe:
    """A recipe on other datasets; `changes` are what its data say of all of them (`OF_ALL`) otherwise."""
    shared = {key: getattr(recipe.data, key) for key in OF_ALL} | changes
    return dataclasses.replace(recipe, data=Data(datasets=tuple(datasets), **shared))


OF_ALL = ("by", "held_out", "frames", "workers", "statistics", "degenerate", "space")
"""What a recipe's data say of all their datasets"""


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
    with _said_of(str(path)):
        _check_used(recipe)
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
    with _said_of(where):
        recipe.model.check()
        if isinstance(recipe.model, StateConfig):
            _check_of_state(recipe)
        elif recipe.tokenizer in OFFLINE:  # another one is a file, which training reads
            check_vocab(OFFLINE[recipe.tokenizer](), recipe.model.vocab)
        _check_augmentation(recipe.training)
        _check_numbers(recipe)
        _check_space(recipe)
        _check_head(recipe)
        for index, source in enumerate(recipe.data.sources):
            place = f"data.datasets.{index}" if recipe.data.datasets else "data"
            _check_dataset(source, recipe.model.cameras, place)
        kinds: dict[str, str] = {}
        for source in recipe.data.sources:
            if kinds.setdefault(source.robot, source.actions) != source.actions:
                raise ConfigError(
                    f"data.datasets: '{source.robot}' learns {kinds[source.robot]} actions from one dataset "
                    f"and {source.actions} ones from another; a robot's actions have one meaning"
                )


@contextmanager
def _said_of(where: str) -> Iterator[None]:
    """A ConfigError says which file or cell it is about."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_of_state(recipe: Recipe) -> None:
    """Raise ConfigError for what a family on numbers does not have."""
    family, kind = f"model.family '{recipe.model.family}'", recipe.training.kind
    if kind != "full":
        raise ConfigError(f"training.kind: '{kind}' freezes parts that {family} does not have; choose full")
    if recipe.weights:
        raise ConfigError(f"weights: {family} is trained from random parameters; leave weights out")
    for source in recipe.data.sources:
        if source.cameras:
            cameras = ", ".join(source.cameras)
            raise ConfigError(f"data.cameras: {family} looks through none; leave out {cameras}")


def _check_space(recipe: Recipe) -> None:
    """Raise ConfigError for what has no meaning where an action is a tool's pose."""
    if recipe.data.space == "joints":
        return
    model, where = recipe.model, f"data.space: {recipe.data.space}: an action is a pose of the tool"
    if isinstance(model, StateConfig):
        raise ConfigError(f"{where}, which model.family '{model.family}' does not know; choose pi05")
    if model.morphology is not None:
        raise ConfigError(
            f"{where}, and model.morphology has a token for every joint's action; set model.morphology: null"
        )
    for source in recipe.data.sources:
        if source.actions == "velocity":
            raise ConfigError(f"{where}; data.actions: velocity are of joints; choose delta or absolute")
    if recipe.data.space == "hand" and recipe.data.statistics != "robot":
        raise ConfigError(
            f"{where}, told from where the tool is; data.statistics: {recipe.data.statistics} would say "
            "where that was; choose robot"
        )
    if recipe.data.statistics not in ("own", "robot"):
        raise ConfigError(
            f"{where}; data.statistics: {recipe.data.statistics} are of joints; choose own or robot"
        )


def _check_used(recipe: Recipe) -> None:
    """Raise ConfigError for what is asked for and changes nothing; a run that began with it goes on."""
    _check_stride(recipe.model)
    if not isinstance(recipe.model, StateConfig):
        return
    family = f"model.family '{recipe.model.family}'"
    if recipe.training.augmentation == "openpi":
        raise ConfigError(
            f"training.augmentation: 'openpi' has no effect with {family}, which sees no images; set it to "
            "none, or leave it out"
        )
    for name, why in UNUSED_ON_STATE.items():
        owner, _, key = name.rpartition(".")
        part = getattr(recipe, owner) if owner else recipe
        value, default = getattr(part, key), getattr(type(part), key)
        if value != default:
            text = isinstance(value, str)
            given, unset = (f"'{value}'", default) if text else (f"{value:g}", f"{default:g}")
            what = f"{given} has no effect with {family}, which {why}"
            raise ConfigError(f"{name}: {what}; set it to {unset}, or leave it out")


def _check_stride(model: ModelConfig) -> None:
    """Raise ConfigError for the distance between rows of the past where there are none."""
    history = model.morphology.history if isinstance(model, Pi05Config) and model.morphology else None
    windows = (
        ("model", "window", model if isinstance(model, WindowConfig) else None),
        ("model.morphology.history", "steps", history),
    )
    for place, rows, window in windows:
        if window is None or getattr(window, rows) > 1 or window.stride == type(window).stride:
            continue
        raise ConfigError(
            f"{place}.stride: {window.stride} has no effect with {place}.{rows} 1, which has no earlier row; "
            f"set it to {type(window).stride} (the default), or {place}.{rows} to 2 or more"
        )


def _check_head(recipe: Recipe) -> None:
    """Raise ConfigError for draws of noise where nothing is denoised."""
    if not isinstance(recipe.model, Pi05Config) or recipe.model.head is None:
        return
    for key, none in (("flow_samples", 1), ("noise_share", 0)):
        value = getattr(recipe.training, key)
        if value != none:
            raise ConfigError(
                f"training.{key}: {value:g} has no effect with model.head, which draws no noise; set it to "
                f"{none}, or leave model.head out"
            )


def _check_augmentation(training: Training) -> None:
    for key in ("shift_pixels", "brightness"):
        amount = getattr(training, key)
        if amount and training.augmentation != "shift":
            raise ConfigError(
                f"training.{key}: {amount} says how far training.augmentation 'shift' goes; it means nothing "
                f"to '{training.augmentation}'"
            )


def _check_numbers(recipe: Recipe) -> None:
    for name, least in LEAST.items():
        value = operator.attrgetter(name)(recipe)
        if value < least:
            raise ConfigError(f"{name}: must be at least {least}, not {value}")
    for name in ("data.held_out", "training.noise_share", "training.ema", "optimizer.b1", "optimizer.b2"):
        share = operator.attrgetter(name)(recipe)
        if not 0 <= share < 1:
            raise ConfigError(f"{name}: must lie in [0, 1), not {share:g}")
    for name in ("peak_lr", "matrix_lr", "plugin_lr_share", "eps", "weight_decay", "final_lr_share"):
        value, may_be_zero = getattr(recipe.optimizer, name), name in ("weight_decay", "final_lr_share")
        if not 0 <= value < math.inf or (value == 0 and not may_be_zero):
            bound = "at least 0" if may_be_zero else "more than 0"
            raise ConfigError(f"optimizer.{name}: must be {bound}, not {value:g}")
    if not recipe.optimizer.clip > 0:
        clip = recipe.optimizer.clip
        raise ConfigError(f"optimizer.clip: must be more than 0, not {clip:g}; .inf scales no gradient down")
    batch, accumulate = recipe.training.batch, recipe.training.accumulate
    if batch % accumulate:
        divisors = ", ".join(str(n) for n in range(1, batch + 1) if batch % n == 0)
        text = f"{accumulate} does not divide the batch {batch}; choose one of {divisors}"
        raise ConfigError(f"training.accumulate: {text}")


def _check_dataset(source: Dataset, known: Sequence[str], place: str) -> None:
    """`known` are the model's cameras, `place` the dataset's key in the recipe."""
    for name in source.cameras:
        if name not in known:
            cameras = f"the model's cameras {', '.join(known)}{nearest(name, known)}"
            raise ConfigError(f"{place}.cameras: '{name}' is not one of {cameras}")
    if not 0 < source.weight < float("inf"):
        raise ConfigError(f"{place}.weight: must be more than 0, not {source.weight:g}")
    if not 0 < source.share <= 1:
        raise ConfigError(f"{place}.share: must lie in (0, 1], not {source.share:g}")
    if source.idle < 0:
        raise ConfigError(f"{place}.idle: must be at least 0, not {source.idle}")
    source.phases.check(f"{place}.phases")
