"""Statistics and settings in the files of openpi and LeRobot, without either."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.data.stats import Stats
from morph_vla.errors import MorphVlaError, reason
from morph_vla.files.home import expanded
from morph_vla.findings import visible
from morph_vla.recipes.keys import Dataset
from morph_vla.robots.robot import Robot
from morph_vla.training import statistics
from morph_vla.weights import tensors
from morph_vla.weights.lerobot_processors import ACTION, EMPTY_CAMERA, POSTPROCESSOR, PREPROCESSOR, STATE

OPENPI = "norm_stats.json"
OF_THE_MODEL = (
    *("type", "dtype", "paligemma_variant", "action_expert_variant"),
    *("chunk_size", "max_state_dim", "max_action_dim", "tokenizer_max_length"),
)
"""Keys of LeRobot's config.json that parameters and recipe decide"""
MAX_FILE = 16 << 20  # bytes of a file of settings
MOST = 2**20  # of actions in a chunk, or of tokens
IMAGES = "observation.images."
Table = Mapping[str, Any]
# A feature's statistics -> the two values that become -1 and 1: all of LeRobot's ways are straight lines.
ENDS: dict[str, Callable[[Table], tuple[Any, Any]]] = {
    "QUANTILES": lambda table: (table["q01"], table["q99"]),
    "QUANTILE10": lambda table: (table["q10"], table["q90"]),
    "MIN_MAX": lambda table: (table["min"], table["max"]),
    "MEAN_STD": lambda table: (table["mean"] - table["std"], table["mean"] + table["std"]),
}


@dataclasses.dataclass(frozen=True)
class Processor:
    """What LeRobot's JSON files say of a policy; of openpi's, nothing is known."""

    horizon: int | None = None
    max_tokens: int | None = None
    dtype: str | None = None
    cameras: tuple[str, ...] = ()
    """In the order in which the model sees them"""
    actions: str = ""
    """`absolute` or `delta`; empty where the files do not say, as those of openpi's PyTorch trainer"""
    relative: tuple[bool, ...] | None = None
    """Of which values a delta is taken, and of all that follow; None: of those that are no gripper"""
    state: Stats | None = None
    action: Stats | None = None


def processor(folder: Path) -> Processor:
    """LeRobot's config.json and preprocessor, as far as they are there.

    openpi's examples/convert_jax_model_to_pytorch.py has names of its own for two of the settings, and says
    nothing of cameras or actions.

    Raises MorphVlaError for damaged ones.
    """
    folder = _inner(folder)
    config, steps = read_json(folder / "config.json"), read_json(folder / PREPROCESSOR).get("steps", [])
    try:
        features = [
            name
            for name in config.get("input_features", {})
            if name.startswith(IMAGES) and not EMPTY_CAMERA.fullmatch(name)
        ]
        known = {step.get("registry_name"): step for step in steps}
        relative = known.get("relative_actions_processor", {}).get("config", {})
        is_relative = bool(relative.get("enabled", config.get("use_relative_actions", False)))
        is_known = bool(known) or "use_relative_actions" in config
        kind = "delta" if is_relative else "absolute"
        measured = _normalizer(folder, known.get("normalizer_processor", {}))
        return Processor(
            _count(config, "chunk_size") or _count(config, "action_horizon"),
            _count(config, "tokenizer_max_length"),
            _word(config, "dtype") or _word(config, "precision"),
            tuple(name.removeprefix(IMAGES) for name in features),
            kind if is_known else "",
            _relative(relative) if is_relative else None,
            measured.get(STATE),
            measured.get(ACTION),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        what = "LeRobot's files beside the weights cannot be read"
        raise MorphVlaError(f"{folder}: {what}: {reason(error)}") from error


def _count(config: Table, key: str) -> int | None:
    """A number of config.json that counts something. Raises ValueError for another value."""
    value = config.get(key)
    if value is not None and (type(value) is not int or not 0 < value < MOST):
        raise ValueError(f"{key} is {visible(str(value))}; expected a number from 1 on")
    return value


def _word(config: Table, key: str) -> str | None:
    value = config.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} is {visible(str(value))}; expected a word")
    return value


def _relative(settings: Table) -> tuple[bool, ...]:
    """Of which values a delta is taken: of all but those whose name has an excluded word in it."""
    excluded = [str(word).lower() for word in settings.get("exclude_joints") or () if word]
    names = [str(name).lower() for name in settings.get("action_names") or ()]
    return tuple(not any(word in name for word in excluded) for name in names)


def processor_files(folder: Path) -> dict[str, bytes]:
    """LeRobot's processors and the files of their steps, as they are, by name; {} where one is missing.

    Raises MorphVlaError for a damaged or very large one.
    """
    folder, files = _inner(folder), {}
    for pipeline in (PREPROCESSOR, POSTPROCESSOR):
        if not (folder / pipeline).is_file():
            return {}
        states = [step.get("state_file") for step in read_json(folder / pipeline).get("steps", [])]
        for name in (pipeline, *(Path(str(state)).name for state in states if state)):
            file = folder / name
            if not file.is_file() or file.stat().st_size > MAX_FILE:
                raise MorphVlaError(f"{file}, of LeRobot's processors, is not there or is too large")
            files[name] = file.read_bytes()
    return files


def kept_settings(folder: Path) -> dict[str, Any]:
    """What LeRobot's config.json says beside the model: the robot's values, normalization, how it acts."""
    config = read_json(_inner(folder) / "config.json")
    return {key: value for key, value in config.items() if key not in OF_THE_MODEL}


def _inner(folder: Path) -> Path:
    """The policy's own folder: LeRobot's trainer puts it into one within a checkpoint."""
    return folder if (folder / "config.json").is_file() else folder / "pretrained_model"


def _normalizer(folder: Path, step: Table) -> dict[str, Stats]:
    """The statistics of LeRobot's normalizer, as ends that become -1 and 1."""
    file = folder / Path(str(step.get("state_file"))).name  # never another folder's
    if not step.get("state_file") or not file.is_file():
        return {}
    header, _ = tensors.read_header(file)
    tables: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in header.items():
        feature, _, key = name.rpartition(".")
        tables.setdefault(feature, {})[key] = tensor.read().astype(np.float64)
    modes = step["config"]["norm_map"]
    stats = {}
    for feature, kind in ((STATE, "STATE"), (ACTION, "ACTION")):
        if feature in tables:
            mode = str(modes.get(kind))
            if mode not in ENDS:
                raise ValueError(f"{feature} is normalised by '{mode}'")
            stats[feature] = _stats(*ENDS[mode](tables[feature]), tables[feature])
    return stats


def _stats(low: Any, high: Any, table: Table) -> Stats:
    """Of two ends: what a policy needs to act. Mean and deviation are the table's, or between the ends."""
    low, high = np.asarray(low, np.float64).reshape(-1), np.asarray(high, np.float64).reshape(-1)
    if low.shape != high.shape or not np.isfinite([low, high]).all():
        raise ValueError("expected one finite number per value at both ends")
    mean, std = (low + high) / 2, (high - low) / 2
    if "mean" in table and "std" in table:
        given = [np.asarray(table[key], np.float64).reshape(-1) for key in ("mean", "std")]
        if all(column.shape == low.shape and np.isfinite(column).all() for column in given):
            mean, std = given
    return Stats(*(tuple(column.tolist()) for column in (low, high, mean, std)))


def of(
    folder: Path, robot: Robot, asked: Dataset, kept: Processor, given: str, preset: str
) -> tuple[Stats, Stats, str]:
    """(state, action) of the robot's joints, and whose they are; `given` is a file or a folder with them.

    Raises MorphVlaError where there are none, several, or of fewer or more values than the robot has joints;
    what follows these may be padding.
    """
    if given:
        source = expanded(given)
        state, action = _given(source, robot, asked)
    elif kept.state is not None and kept.action is not None:
        source, state, action = folder / PREPROCESSOR, kept.state, kept.action
    else:
        source = _asset(folder, {asset for asset in (preset, robot.name) if asset})
        state, action = openpi(source)
    joints = robot.names
    for feature, stats in (("states", state), ("actions", action)):
        if len(stats.q01) < len(joints):
            raise MorphVlaError(
                f"{source}: statistics of {len(stats.q01)} values of the {feature}; robot '{robot.name}' has "
                f"{len(joints)} joints ({', '.join(joints)}), whose positions a policy answers with"
            )
        if values := _beyond(stats, len(joints)):
            raise MorphVlaError(
                f"{source}: statistics of {len(joints) + values} values of the {feature}, and robot "
                f"'{robot.name}' has {len(joints)} joints ({', '.join(joints)}); give --robot the one that "
                "they are of"
            )
    return _first(state, len(joints)), _first(action, len(joints)), str(source)


def _beyond(stats: Stats, count: int) -> int:
    """How many values follow the first `count` up to the last that is no padding.

    Padding never changes: its ends are equal, or those of a mean of 0 and a deviation of 1.
    """
    ends = list(zip(stats.q01, stats.q99, strict=True))[count:]
    measured = [index for index, (low, high) in enumerate(ends, 1) if low != high and (low, high) != (-1, 1)]
    return max(measured, default=0)


def _first(stats: Stats, count: int) -> Stats:
    """The first values; what follows is padding."""
    return Stats(**{key: value[:count] for key, value in vars(stats).items()})


def _given(path: Path, robot: Robot, asked: Dataset) -> tuple[Stats, Stats]:
    file = path / OPENPI if (path / OPENPI).is_file() else path
    if file.name == OPENPI:
        return openpi(file)
    return statistics.of_file(path, robot.name, asked.actions, robot.names)


def _asset(folder: Path, names: set[str]) -> Path:
    """The only file of statistics in openpi's assets, or that of the preset or the robot."""
    files = sorted((folder / "assets").rglob(OPENPI))
    several = {file.parent.relative_to(folder / "assets").as_posix(): file for file in files}
    chosen = [file for name, file in several.items() if names & set(name.split("/"))]
    if len(files) == 1 or len(chosen) == 1:
        return (chosen or files)[0]
    if not files:
        raise MorphVlaError(
            f"{folder}: the checkpoint has no statistics (assets/ID/{OPENPI}, or LeRobot's {PREPROCESSOR} "
            f"with its file); give --statistics FILE, a {OPENPI} or what `morph-vla stats --output` writes"
        )
    raise MorphVlaError(
        f"{folder}: the checkpoint has statistics of {', '.join(several)}; give --statistics "
        f"{folder / 'assets'}/ID, one of them"
    )


def openpi(path: Path) -> tuple[Stats, Stats]:
    """(state, action) in a norm_stats.json. Raises MorphVlaError for another file."""
    try:
        known = read_json(path)["norm_stats"]
        tables = (known[key] for key in ("state", "actions"))
        return tuple(_stats(table["q01"], table["q99"], table) for table in tables)  # pyright: ignore[reportReturnType]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MorphVlaError(
            f"{path}: expected openpi's norm_stats with q01 and q99 of state and actions, which pi0.5 needs "
            f"({reason(error)})"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's map, empty where there is no file. Raises MorphVlaError where it is damaged."""
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_FILE:
            raise ValueError(f"{path.stat().st_size} bytes are too many")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise MorphVlaError(f"{path} cannot be read: {reason(error)}") from error
    return value if isinstance(value, dict) else {}
