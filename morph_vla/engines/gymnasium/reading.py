"""What comes from an environment and goes to it, as arrays: pure functions of batches, keys and one index."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla.engines.engine import Frame, rows_of
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.robots.geometry import POSE
from morph_vla.suites.environment import ActionMap, EnvironmentSuite, Signal

Leaves = dict[str, np.ndarray]  # dotted key -> a value per episode, [n ...]
WHOLE = "observation"  # the key of an observation that is a single array
STATE, IMAGES = "observation.state", "observation.image"  # of LeRobot; the latter is a beginning
FINAL = "final_info"  # where a vector environment keeps the last info of an episode that it has reset


def array(value: object) -> np.ndarray:
    """Any array; a tensor is brought here from its device."""
    bring = getattr(value, "cpu", None)
    return np.asarray(bring() if bring else value)


def leaves(observation: object, space: object = None) -> Leaves:
    """A batched observation as arrays by dotted keys; a single array has the key `observation`.

    `space` is that of one episode: only by it a tuple of several things, whose keys are their numbers from 0,
    is told from a batch that is a tuple, as of texts.
    """
    parts = getattr(space, "spaces", {})
    if isinstance(parts, tuple) and isinstance(observation, tuple):
        observation, parts = dict(enumerate(observation)), dict(enumerate(parts))
    if not isinstance(observation, Mapping):
        return {WHOLE: array(observation)}
    flat: Leaves = {}
    for key, value in observation.items():
        inner = parts.get(key) if isinstance(parts, Mapping) else None
        is_several = isinstance(getattr(inner, "spaces", None), tuple) and isinstance(value, tuple)
        below = leaves(value, inner) if isinstance(value, Mapping) or is_several else {"": value}
        flat |= {f"{key}.{name}" if name else str(key): array(item) for name, item in below.items()}
    return flat


def maps(suite: EnvironmentSuite, batch: Leaves) -> tuple[tuple[str, ...], dict[str, str]]:
    """The keys of the state, and camera -> key; of LeRobot's observations by default all there are."""
    if suite.kind != "lerobot":
        return suite.state, suite.images
    cameras = {key.rpartition(".")[2]: key for key in batch if key.startswith(IMAGES)}
    return suite.state or tuple(key for key in batch if key == STATE), suite.images or cameras


def state(batch: Leaves, keys: Sequence[str], index: int) -> Float[np.ndarray, "s"]:
    """The values at `keys` of one episode, one after the other. Raises MorphVlaError for a key it lacks."""
    parts = [_leaf(batch, key)[index].reshape(-1) for key in keys]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float32)


def poses(batch: Leaves, keys: Sequence[str], index: int) -> Float[np.ndarray, "g"]:
    """The poses at `keys` of one episode. Raises MorphVlaError for a key it lacks, and for what is none."""
    parts = [np.array(_leaf(batch, key)[index], np.float64).reshape(-1) for key in keys]
    for key, values in zip(keys, parts, strict=True):
        if len(values) != len(POSE) or not np.isfinite(values).all():
            raise MorphVlaError(
                f"'{key}' is no pose: expected {len(POSE)} finite values ({', '.join(POSE)}), got {values}"
            )
        if values[3] < 0:  # q and -q are one orientation
            values[3:] = -values[3:]
    return np.concatenate(parts).astype(np.float32)


def fingerprint(batch: Leaves, index: int) -> str:
    """SHA-256 of what is seen of one episode, to 1e-5: two that share it stand in the same state.

    Of images, or of texts, only where there is nothing else: two machines may render them differently.
    """
    numbers = {key: value for key, value in batch.items() if value.dtype.kind in "bif"}
    images = {key: value for key, value in batch.items() if value.dtype.kind == "u"}
    digest = hashlib.sha256()
    for key, value in sorted((numbers or images).items()):
        rounded = np.round(value[index].astype(np.float64), 5) + 0.0  # without a minus zero
        digest.update(key.encode() + rounded.tobytes())
    for key, value in () if numbers or images else sorted(batch.items()):
        digest.update(f"{key}{value[index]}".encode())
    return digest.hexdigest()


def image(batch: Leaves, key: str, index: int) -> Frame:
    """An image of one episode. Raises MorphVlaError for a key it lacks, and where it is no image."""
    return checked_image(_leaf(batch, key)[index], f"'{key}'")


def checked_image(picture: np.ndarray, name: str) -> Frame:
    """The image, if it is one. Raises MorphVlaError with what it is."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        given = f"{picture.dtype} {list(picture.shape)}"
        raise MorphVlaError(f"{name} is no image: expected uint8 [height, width, 3], got {given}")
    return picture


def pixels(images: np.ndarray, name: str) -> UInt8[np.ndarray, "n h w 3"]:
    """LeRobot's images [n 3 h w], fractions from 0 to 1 or levels already, as levels.

    Raises MorphVlaError, with what it is, for what is neither.
    """
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype.kind not in "fu":
        given = f"{images.dtype} {list(images.shape)}"
        raise MorphVlaError(f"{name} is no image of LeRobot's: expected [n, 3, height, width], got {given}")
    last = np.moveaxis(images, 1, -1)
    if images.dtype == np.uint8:
        return np.ascontiguousarray(last)
    low, high = (float(bound(images)) if images.size else 0.0 for bound in (np.min, np.max))
    if not (low >= -0.5 / 255 and high <= 1 + 0.5 / 255):
        raise MorphVlaError(f"{name} is no image of LeRobot's: fractions are 0 to 1, got {low:g} to {high:g}")
    return np.rint(last * 255).clip(0, 255).astype(np.uint8)


def _leaf(batch: Leaves, key: str) -> np.ndarray:
    if key not in batch:
        raise MorphVlaError(
            f"its observation has no '{key}'{nearest(key, batch)}; its keys are {', '.join(batch)}"
        )
    return batch[key]


Step = tuple[object, object, object, Mapping[str, object]]
"""Rewards, terminated, truncated, infos: what a vector environment says of a step besides its observation"""


@dataclass(frozen=True)
class Transition:
    """What one episode's environment said of one control step."""

    reward: float
    terminated: bool
    truncated: bool
    success: bool
    """Whether the suite's signal held."""
    noted: Mapping[str, bool] = field(default_factory=dict)
    """Likewise of those that do not decide."""
    measured: Mapping[str, float] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)
    """A key of these two that was not there, or no finite number -> in a sentence"""


def transition(
    signal: Signal, step: Step, index: int, noted: Sequence[str] = (), measured: Sequence[str] = ()
) -> Transition:
    """One episode's part of a step. Raises MorphVlaError for a missing or infinite signal of success.

    `noted` are keys of signals beside the one that decides, `measured` those of numbers. What is not there in
    a step, or no finite number, did not hold and was not measured: it decides nothing.
    """
    reward, terminated, truncated, info = step
    paid, ended = float(array(reward)[index]), bool(array(terminated)[index])
    if not np.isfinite(paid):
        raise MorphVlaError(f"its reward is {paid}, expected a finite number")
    if signal.info:
        success = _number(info, signal.info, index) > 0.5
    else:
        success = ended if signal.terminated else paid >= (signal.reward or 0.0)
    numbers: dict[str, float] = {}
    lacking: dict[str, str] = {}
    for key in (*noted, *measured):
        try:
            numbers[key] = _number(info, key, index)
        except MorphVlaError as error:
            lacking[key] = str(error)
    beside = {key: numbers.get(key, 0.0) > 0.5 for key in noted}
    least = {key: numbers[key] for key in measured if key in numbers}
    return Transition(paid, ended, bool(array(truncated)[index]), success, beside, least, lacking)


def _number(info: Mapping[str, object], key: str, index: int) -> float:
    """The info's value at a dotted key; what was kept of the end precedes what follows it."""
    kept = info.get(FINAL)
    sources = [kept, info] if isinstance(kept, Mapping) else [info]
    for source in sources:
        *path, last = key.split(".")
        holder = reduce(_inside, path, source)
        if isinstance(holder, Mapping) and last in holder and _is_set(holder, last, index):
            value = array(holder[last])
            if value.ndim and value.size > len(value):
                raise MorphVlaError(
                    f"info's '{key}' has the shape {value.shape}: not one number of each episode"
                )
            value = value.reshape(-1)
            try:
                number = float(value[index]) if index < len(value) else float("nan")
            except (TypeError, ValueError):
                raise MorphVlaError(
                    f"info's '{key}' is {value[index]!r}, expected a number of each episode"
                ) from None
            if not np.isfinite(number):
                raise MorphVlaError(f"info's '{key}' is {number}, expected a finite number of each episode")
            return number
    names = sorted(name for name in {key for source in sources for key in source} if not name.startswith("_"))
    known = f"; its keys are {', '.join(names)}" if names else "; it is empty"
    raise MorphVlaError(f"info has no '{key}'{nearest(key, names)}{known}")


def _inside(holder: object, key: str) -> object:
    return holder.get(key) if isinstance(holder, Mapping) else None


def _is_set(holder: Mapping[str, object], key: str, index: int) -> bool:
    """Whether a batched info has this key of this episode: gymnasium says so under `_key`."""
    mask = holder.get(f"_{key}")
    return mask is None or bool(array(mask)[index])


def actions(
    answer: object,
    given: ActionMap,
    low: Float[np.ndarray, "a"],
    high: Float[np.ndarray, "a"],
) -> Float[np.ndarray, "h a"]:
    """The environment's actions in a policy's answer, between its bounds `low` and `high` where it clips.

    Raises MorphVlaError for an answer without actions, of another width, and for values that are not finite.
    """
    rows, wanted = rows_of(answer), len(low)
    if rows.ndim != 2 or not len(rows) or (not given.columns and rows.shape[1] != wanted):
        raise MorphVlaError(
            f"the policy's actions have shape {rows.shape}; expected (horizon, {wanted}), one column for "
            "each value of the environment, or actions.columns to say which are meant"
        )
    if given.columns and rows.shape[1] <= max(given.columns):
        raise MorphVlaError(
            f"the policy's actions have shape {rows.shape}; actions.columns asks for column "
            f"{max(given.columns)}"
        )
    chosen = rows[:, list(given.columns)] if given.columns else rows
    if not np.isfinite(chosen).all():
        bad = int((~np.isfinite(chosen)).sum())
        raise MorphVlaError(f"the policy's actions hold {bad} values that are not finite")
    chosen = chosen * np.asarray(given.scale or 1.0) + np.asarray(given.offset or 0.0)
    return np.clip(chosen, low, high) if given.clip else chosen
