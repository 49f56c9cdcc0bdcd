"""A recipe: which data, which model, how it is trained. YAML in `configs/`, typed, frozen, strict."""

import dataclasses
import json
import math
import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from morph_vla.data import presets
from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.files import dropin, typed_yaml
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.tokenizer import OFFLINE, check_vocab
from morph_vla.policies.config import ModelConfig, NearestConfig, StateConfig, WindowConfig
from morph_vla.recipes import ablations
from morph_vla.recipes.keys import Data, Dataset, Optimizer, Recipe, Training

# Keys, or what is below them, in which a run that goes on may differ: they change no parameter.
PACE_KEYS = frozenset(
    {
        "training.mesh", "training.keep", "training.keep_every", "training.checkpoint_every",
        "training.log_every", "training.held_out_every", "evaluation", "data.frames", "data.workers",
    }
)  # fmt: skip
# Whole numbers -> the least they may be.
LEAST = {
    "training.steps": 1, "training.batch": 1, "training.accumulate": 1, "training.flow_samples": 1,
    "training.prompt_bucket": 0,
    "training.log_every": 1, "training.held_out_every": 1, "training.checkpoint_every": 1, "training.keep": 1,
    "training.keep_every": 0, "training.mesh.data": 0, "training.mesh.fsdp": 1, "evaluation.every": 1,
    "evaluation.episodes": 1, "data.workers": 0, "optimizer.warmup": 0,
}  # fmt: skip
SEEDS = 2**32  # of JAX's random numbers
ONE_CAMERA = re.compile(r"\s*(?P<dataset>data(?:\.datasets\.\d+)?)\.cameras\.[^=]+=")
"""A change of one of a dataset's cameras"""
# Keys that a family on numbers has no use for -> why. Their defaults are no request.
UNUSED_ON_STATE = {
    "training.flow_samples": "draws no noise in training",
    "training.noise_share": "draws no noise in training",
    "training.prompt_bucket": "reads no prompt tokens",
    "training.shift_pixels": "sees no images",
    "training.brightness": "sees no images",
    "optimizer.plugin_lr_share": "has no plugin",
    "optimizer.kind": "has none of the matrices that muon is for",
    "optimizer.matrix_lr": "has none of the matrices that muon is for",
    "tokenizer": "reads a hash of the task's words, no tokens",
}
UNUSED_WITHOUT_LEARNING = {
    name: "remembers, and learns nothing in a step"
    for name in ("training.ema", *(f"optimizer.{field.name}" for field in dataclasses.fields(Optimizer)))
    if name != "optimizer.warmup"  # a run of one step warns of the default
}


def on_datasets(recipe: Recipe, datasets: Sequence[Dataset], **changes: Any) -> Recipe:
    """A recipe on other datasets; `changes` are what its data say of all of them (`OF_ALL`) otherwise."""
    shared = {key: getattr(recipe.data, key) for key in OF_ALL} | changes
    return dataclasses.replace(recipe, data=Data(datasets=tuple(datasets), **shared))


_OF_ONE = {"datasets", *(field.name for field in dataclasses.fields(Dataset))}
OF_ALL = tuple(field.name for field in dataclasses.fields(Data) if field.name not in _OF_ONE)
"""What a recipe's data say of all their datasets"""


def load(name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()) -> Recipe:
    """Read and check the recipe called `name` (or the file at that path), or a variant of it: `name@variant`.

    Raises ConfigError with every problem, each with the nearest valid key or variant, and for an override
    that would take back what the variant sets.
    """
    overrides = [overrides] if isinstance(overrides, str) else overrides  # a text is a sequence of letters
    base, variant = ablations.split(name, folders)
    path = dropin.find("recipes", base, folders)
    overrides = _with_other_cameras(path, overrides)
    recipe = typed_yaml.read(path, Recipe, overrides)
    if variant:
        lists = [change for change in overrides if change.partition("=")[0] == "data.datasets"]
        others = [change for change in overrides if change not in lists]
        changes = changes_of(base, variant, recipe)
        _check_beside(f"{base}@{variant}", changes, others)
        recipe = typed_yaml.read(path, Recipe, [*lists, *changes, *others])
    check(recipe, str(path), overrides)
    with _said_of(str(path), overrides):
        _check_heard(recipe, overrides)
        _check_used(recipe)
        _check_names(recipe)
    return recipe


def _with_other_cameras(path: Path, overrides: Sequence[str]) -> list[str]:
    """Before a change of one camera (`data.cameras.base_0_rgb=top`) all of the preset's: the others stay."""
    others = [change for change in overrides if not ONE_CAMERA.match(change)]
    if len(others) == len(overrides):
        return others
    try:
        data = typed_yaml.read(path, Recipe, others).data
    except ConfigError:
        return [*overrides]  # read with all of them it says so, too
    cameras = {f"data.datasets.{index}": source.cameras for index, source in enumerate(data.datasets)}
    cameras["data"] = data.cameras
    spelt_out = []
    for change in overrides:
        match = ONE_CAMERA.match(change)
        if match and (known := cameras.pop(match["dataset"], {})):  # once
            spelt_out.append(f"{match['dataset']}.cameras={json.dumps(known)}")
        spelt_out.append(change)
    return spelt_out


def _check_beside(name: str, changes: Sequence[str], others: Sequence[str]) -> None:
    """Raise ConfigError for an override that would make another variant of this one, under its name."""
    for other in others:
        key = other.partition("=")[0].strip()
        for change in changes:
            ours, _, value = change.partition("=")
            if value == "null" and key.startswith(f"{ours}."):
                raise ConfigError(
                    f"override '{other}': {name} has {ours}: null, and no keys in it; leave it out"
                )
            if ours.startswith(f"{key}."):
                raise ConfigError(
                    f"override '{other}' replaces {ours}, which {name} sets; give the keys below {key}, each "
                    "with its value"
                )


def changes_of(base: str, variant: str, recipe: Recipe) -> list[str]:
    """A variant's changes of the recipe called `base`; what one dataset says is said of each of several.

    Raises ConfigError as `ablations.overrides_of`.
    """
    changes = []
    for change in ablations.overrides_of(base, variant, recipe.training.steps):
        name, _, value = change.partition("=")
        owner, _, key = name.rpartition(".")
        if owner == "data" and key not in OF_ALL and recipe.data.datasets:
            places = range(len(recipe.data.datasets))
            changes += [f"data.datasets.{place}.{key}={value}" for place in places]
        else:
            changes.append(change)
    return changes


def of_run(folder: Path) -> Recipe:
    """The recipe of the run in `folder`. Raises MorphVlaError when there is none."""
    path = folder / "recipe.json"
    if not path.exists():
        raise MorphVlaError(f"{folder}: no run to go on with (recipe.json is missing)")
    recipe = typed_yaml.read(path, Recipe)
    check(recipe, str(path))
    return recipe


def check(recipe: Recipe, where: str, overrides: Sequence[str] = ()) -> None:
    """Raise ConfigError for a recipe whose parts do not fit together."""
    with _said_of(where, overrides):
        recipe.model.check()
        if isinstance(recipe.model, StateConfig):
            _check_of_state(recipe)
        elif recipe.tokenizer in OFFLINE:  # another one is a file, which training reads
            check_vocab(OFFLINE[recipe.tokenizer](), recipe.model.vocab)
        _check_augmentation(recipe.training)
        _check_numbers(recipe)
        _check_space(recipe)
        _check_turn(recipe)
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
def _said_of(where: str, overrides: Sequence[str] = ()) -> Iterator[None]:
    """A ConfigError says which file or cell it is about, and what was said beside it."""
    try:
        yield
    except ConfigError as error:
        beside = f" with {' '.join(overrides)}" if overrides else ""
        raise ConfigError(f"{where}{beside}: {error}") from error


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


def _check_turn(recipe: Recipe) -> None:
    """Raise ConfigError for a turn of what does not turn."""
    degrees, data = recipe.training.turn_degrees, recipe.data
    if not 0 <= degrees <= 180:
        raise ConfigError(f"training.turn_degrees: must lie in [0, 180], not {degrees:g}")
    if not degrees:
        return
    where = f"training.turn_degrees: {degrees:g} turns poses of the hand and of objects"
    if data.space == "joints":
        raise ConfigError(f"{where}, which data.space: joints does not have; choose tool or hand, or 0")
    if any(source.cameras for source in data.sources):
        raise ConfigError(f"{where}, and pictures would not turn; leave out data.cameras, or choose 0")
    if data.statistics != "robot":
        of_recorded = f"data.statistics: {data.statistics} are of poses as recorded"
        raise ConfigError(f"{where}; {of_recorded}; choose robot")


def _check_heard(recipe: Recipe, overrides: Sequence[str]) -> None:
    """Raise ConfigError for an override of one dataset beside a list of several, also one to the default."""
    keys = {field.name for field in dataclasses.fields(Dataset)} if recipe.data.datasets else set()
    for change in overrides:
        owner, _, key = change.partition("=")[0].partition(".")
        if owner == "data" and key.partition(".")[0] in keys:
            raise ConfigError(
                f"data.{key}: there are several datasets, and none hears it; say it of one of them "
                f"(data.datasets.0.{key})"
            )


def _check_names(recipe: Recipe) -> None:
    """Raise ConfigError for two robots of one name: statistics and checkpoints know robots by their names."""
    spelled: dict[str, str] = {}
    for source in recipe.data.sources:
        name = dropin.name_of("robots", source.robot)
        if spelled.setdefault(name, source.robot) != source.robot:
            raise ConfigError(
                f"data.datasets: '{spelled[name]}' and '{source.robot}' are both called '{name}'; spell one "
                "robot alike in all datasets, or rename the file of the other one"
            )


def _check_used(recipe: Recipe) -> None:
    """Raise ConfigError for what is asked for and changes nothing; a run that began with it goes on."""
    _check_stride(recipe.model)
    _check_kept(recipe)
    for source in recipe.data.sources:
        unset = presets.find(source.preset).step if source.preset else presets.Preset.step
        if source.recorded != "steps" and source.step != unset:
            raise ConfigError(f"data: step: {source.step:g} has no effect without recorded: steps")
    if unused := recipe.data.unused:
        raise ConfigError(
            f"data: has both datasets and a dataset of its own ({', '.join(unused)}); put it into the list"
        )
    if not isinstance(recipe.model, StateConfig):
        _check_used_by_pi05(recipe.training, recipe.model)
        return
    family = f"model.family '{recipe.model.family}'"
    if recipe.training.augmentation == "openpi":
        raise ConfigError(
            f"training.augmentation: 'openpi' has no effect with {family}, which sees no images; set it to "
            "none, or leave it out"
        )
    unused = UNUSED_ON_STATE
    if isinstance(recipe.model, NearestConfig):
        if recipe.training.steps != 1:
            raise ConfigError(
                f"training.steps: in {recipe.training.steps} steps {family} learns no more than in one; set "
                "it to 1"
            )
        unused = unused | UNUSED_WITHOUT_LEARNING
    for name, why in unused.items():
        owner, _, key = name.rpartition(".")
        part = getattr(recipe, owner) if owner else recipe
        value, default = getattr(part, key), getattr(type(part), key)
        if value != default:
            text = isinstance(value, str)
            given, unset = (f"'{value}'", default) if text else (f"{value:g}", f"{default:g}")
            what = f"{given} has no effect with {family}, which {why}"
            raise ConfigError(f"{name}: {what}; set it to {unset}, or leave it out")


def _check_kept(recipe: Recipe) -> None:
    """Raise ConfigError where checkpoints are to be kept of steps at which none is written."""
    training, kept = recipe.training, recipe.training.keep_every
    periods = [training.checkpoint_every, *[recipe.evaluation.every] * bool(recipe.evaluation.suites)]
    if kept and all(math.lcm(kept, every) > training.steps for every in periods):
        raise ConfigError(
            f"training.keep_every: no checkpoint of {training.steps} steps would be kept by {kept}: they are "
            f"written every {' and every '.join(map(str, periods))}; choose a multiple of that"
        )


def _check_used_by_pi05(training: Training, model: Pi05Config) -> None:
    changed = training.augmentation == "openpi" or training.shift_pixels or training.brightness
    if changed and not model.cameras:
        raise ConfigError(
            f"training.augmentation: '{training.augmentation}' changes pictures, and model.cameras has none; "
            "set it to none"
        )
    if (plugin := model.morphology) is None:
        return
    is_read = {"max_distance": plugin.bias == "spd-soft", "theta_max": plugin.exponential}
    for key, reads in is_read.items():
        value, default = getattr(plugin, key), getattr(type(plugin), key)
        if not reads and value != default:
            raise ConfigError(
                f"model.morphology.{key}: {value:g} has no effect with bias: {plugin.bias}; set it to "
                f"{default:g} (the default), or leave it out"
            )


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
        if not 0 <= amount < math.inf:
            raise ConfigError(f"training.{key}: must be at least 0, not {amount:g}")
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
    if not 0 <= recipe.training.seed < SEEDS:
        raise ConfigError(f"training.seed: must lie in [0, 2**32), not {recipe.training.seed}")
    if not 0 <= recipe.training.mesh.whole_below_mib < math.inf:
        bound = recipe.training.mesh.whole_below_mib
        raise ConfigError(f"training.mesh.whole_below_mib: must be at least 0, not {bound:g}")
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
