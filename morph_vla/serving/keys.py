"""Which keys a request has: the preset dialects of openpi's clients, and our own. No JAX.

Our own are those of `engines.engine`: `images/CAMERA` by the dataset's names, `state`, `prompt`. A preset
names the keys of a kind of robot instead. Where a client nests maps (`{"images": {"cam_high": ...}}`), their
keys are joined by `/`. Keys that nobody asks for are ignored.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from morph_vla.engines.engine import ENVIRONMENT, Observation
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.findings import visible

MAX_PIXELS = 2**23
"""Of one picture: enough for 4K."""
MAX_ASPECT = 32
PROMPTED = "; a prompt for requests without one: `morph-vla serve --prompt TEXT`"
MAX_KEY = 200
"""Letters of a key, those of the maps around it included"""
BASE, LEFT, RIGHT = "base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"
ON_HANDS = ("wrist", "hand", "gripper")
"""What is in the name of a camera that moves with a hand: `eye_in_hand`, `wrist_image_left`"""


@dataclasses.dataclass(frozen=True)
class Keys:
    """The keys of a request."""

    images: Mapping[str, tuple[str, ...]]
    """Camera -> its key; of several, the first is sent, and the last that is there is read. A preset has the
    model's names for cameras, and `of` puts a policy's own in their place"""
    state: tuple[str, ...] = ("state",)
    """Of the joint values; of two keys, the second has the last value alone, the gripper's"""
    environment: bool = False
    """Whether the poses of objects are asked for, under `environment_state`"""
    channels_first: bool = False
    """Whether a client sends pictures as [3, h, w]; both forms are read"""
    prompt: str = ""
    """Of a request that has none; "" where each must have its own"""


def _cameras(base: str | tuple[str, ...], left: str, right: str = "") -> Mapping[str, tuple[str, ...]]:
    known = {BASE: (base,) if isinstance(base, str) else base, LEFT: (left,), RIGHT: (right,)}
    return MappingProxyType({camera: keys for camera, keys in known.items() if keys != ("",)})


# RoboArena counts from 0, and sends a second camera's picture, which may be black, as 1.
_DROID = ("observation/exterior_image_1_left", "observation/exterior_image_0_left")
_PANDA = Keys(
    _cameras(_DROID, "observation/wrist_image_left"),
    ("observation/joint_position", "observation/gripper_position"),
)
ROBOARENA = "roboarena"
"""The preset whose server's metadata are RoboArena's alone: its clients refuse keys that they do not know."""
PRESETS: Mapping[str, Keys] = MappingProxyType(
    {
        "droid": _PANDA,
        "libero": Keys(_cameras("observation/image", "observation/wrist_image"), ("observation/state",)),
        "aloha": Keys(
            _cameras("images/cam_high", "images/cam_left_wrist", "images/cam_right_wrist"),
            channels_first=True,
        ),
        "ur5": Keys(_cameras("base_rgb", "wrist_rgb"), ("joints", "gripper")),
        "so101": Keys(_cameras("images/front", "images/wrist")),
        ROBOARENA: _PANDA,
    }
)


def of(cameras: Mapping[str, str], preset: str = "", environment: bool = False, prompt: str = "") -> Keys:
    """The keys for a policy's cameras (the model's name -> the dataset's), in a preset's dialect or our own.

    A camera that has a name of the dialect is read from the key of that name, another from that of its slot.
    `environment`: the policy asks for the poses of objects, which have the same key in every dialect.

    Raises MorphVlaError for an unknown preset, for one without a camera that the policy looks through, and
    where a camera called a hand's would be shown what is none's.
    """
    if not preset:
        images = {name: (f"images/{name}",) for name in cameras.values()}
        return Keys(images, environment=environment, prompt=prompt)
    if preset not in PRESETS:
        raise MorphVlaError(f"no preset '{preset}'{nearest(preset, PRESETS)} ({', '.join(PRESETS)})")
    dialect = PRESETS[preset]
    named = {name: dialect.images[camera] for camera, name in last_parts(dialect).items()}
    by_name = {name: named[name] for name in cameras.values() if name in named}
    by_slot = {camera: name for camera, name in cameras.items() if name not in named}
    missing = [camera for camera in by_slot if camera not in dialect.images]
    if missing:
        raise MorphVlaError(
            f"preset '{preset}' has no key for {', '.join(missing)}, which the policy looks through "
            f"({', '.join(dialect.images)})"
        )
    for camera, name in by_slot.items():
        if (key := dialect.images[camera]) in by_name.values():
            raise MorphVlaError(
                f"preset '{preset}' has {key[0]} for camera '{key[0].rpartition('/')[2]}' and no key for "
                f"'{name}', which the policy looks through as {camera}; leave --preset out, or call the "
                f"cameras of data.cameras as the clients do ({', '.join(named)})"
            )
        if is_on_hand(name) and not is_on_hand(key[0]):
            raise MorphVlaError(
                f"preset '{preset}' has {key[0]} for {camera}, through which the policy sees '{name}', a "
                "hand's: two cameras would be exchanged; leave --preset out, and have the clients send "
                f"images/{name}"
            )
    chosen = {name: by_name.get(name) or dialect.images[camera] for camera, name in cameras.items()}
    return dataclasses.replace(dialect, images=chosen, environment=environment, prompt=prompt)


def check_grippers(preset: str, is_gripper: Mapping[str, bool]) -> None:
    """Raise MorphVlaError where a preset's key of the gripper would be read as another joint's.

    `is_gripper`: of each joint in the order of a state. Where none is said to be one, the last is taken.
    """
    grippers = [name for name, closes in is_gripper.items() if closes]
    if not preset or len(PRESETS[preset].state) == 1 or not grippers:
        return
    *_, last = is_gripper
    if grippers != [last]:
        raise MorphVlaError(
            f"preset '{preset}' has one gripper, the last value of a state and an action; the robot's last "
            f"joint is {last}, and its grippers are {', '.join(grippers)}: leave --preset out"
        )


def by_another_name(keys: Keys) -> dict[str, str]:
    """Camera -> its key, of those that a client calls otherwise: `cam_low` from `images/cam_high`.

    `exterior` from `observation/exterior_image_1_left` is not otherwise, `exterior_image_2_left` is.
    """
    others = {}
    for camera, (key, *_) in keys.images.items():
        last = key.rpartition("/")[2]
        is_alike = camera == last or (camera in last and not key.startswith("images/"))
        if not is_alike:
            others[camera] = key
    return others


def last_parts(dialect: Keys) -> dict[str, str]:
    """Camera -> the last part of its key: what a dataset of such a robot calls it."""
    return {camera: several[0].rpartition("/")[2] for camera, several in dialect.images.items()}


def is_on_hand(name: str) -> bool:
    """Whether a camera's name, or its key, says that it moves with a hand."""
    return any(part in name for part in ON_HANDS)


def roles(cameras: Sequence[str]) -> dict[str, str]:
    """The model's name -> a suite's camera, where no policy says: those on hands have it in their name.

    `exterior, wrist` are the base's and the left wrist's. A second of a kind is left out (`left_out`).
    """
    names: dict[str, str] = {}
    for camera in cameras:
        right = "right" in camera
        names.setdefault((RIGHT if right else LEFT) if is_on_hand(camera) else BASE, camera)
    return names


def left_out(cameras: Sequence[str]) -> list[str]:
    """Those of a suite's cameras that have no role."""
    shown = roles(cameras).values()
    return [camera for camera in cameras if camera not in shown]


def by_their_names(cameras: Sequence[str]) -> str:
    """A sentence on what a policy that says no cameras is shown of a suite's, and what it is not."""
    looks = ", ".join(f"{camera} (as {role})" for role, camera in roles(cameras).items())
    spare = left_out(cameras)
    beside = f", and not through {', '.join(spare)}" if spare else ""
    return f"by the names of the suite's cameras it looks through {looks}{beside}"


def request(observation: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """An observation of ours as a request; the inverse of `observation`. Other values go as they are."""
    sent = {key: value for key, value in observation.items() if not key.startswith("images/")}
    state = sent.pop("state")
    parts = [state] if len(keys.state) == 1 else [state[:-1], state[-1:]]
    sent.update(zip(keys.state, parts, strict=True))
    for camera, (key, *_) in keys.images.items():
        picture = observation[f"images/{camera}"]
        sent[key] = np.ascontiguousarray(picture.transpose(2, 0, 1)) if keys.channels_first else picture
    return sent


def flat(request: Mapping[Any, Any], before: str = "") -> dict[str, Any]:
    """Nested maps as one, their keys joined by `/`; keys that are no text are left out.

    Raises MorphVlaError for a key of more than `MAX_KEY` letters.
    """
    values: dict[str, Any] = {}
    for key, value in request.items():
        if isinstance(key, str):
            if len(before) + len(key) > MAX_KEY:
                shown = visible(before + key, 40)
                raise MorphVlaError(f"a key has at most {MAX_KEY} letters, with those around it: {shown}")
            values.update(
                flat(value, f"{before}{key}/") if isinstance(value, dict) else {before + key: value}
            )
    return values


def converted(request: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """A flat request whose pictures are read already. Raises MorphVlaError for one that is wrong."""
    names = {name for several in keys.images.values() for name in several}
    return {key: _picture(value, key) if key in names else value for key, value in request.items()}


def observation(request: Mapping[str, Any], keys: Keys, joints: Sequence[str]) -> Observation:
    """What a policy is given of a flat request. Raises MorphVlaError for a key that is missing or wrong."""
    poses = [ENVIRONMENT] if keys.environment else []
    request = {"prompt": keys.prompt, **request} if keys.prompt else request
    wanted = [*(names[0] for names in keys.images.values()), *poses, *keys.state, "prompt"]
    chosen = {camera: _last(request, names) for camera, names in keys.images.items()}
    lacking = [keys.images[camera][0] for camera, key in chosen.items() if key is None]
    lacking += [key for key in (*poses, *keys.state, "prompt") if key not in request]
    if lacking:
        given = visible(", ".join(sorted(request)) or "nothing", 500)
        raise MorphVlaError(
            f"the observation lacks {', '.join(lacking)}; this policy needs {', '.join(wanted)}, and was "
            f"given {given}{PROMPTED if 'prompt' in lacking else ''}"
        )
    if not isinstance(request["prompt"], str):
        raise MorphVlaError(f"prompt: expected a text, not {_kind(request['prompt'])}")
    pictures = {f"images/{camera}": _picture(request[key], key) for camera, key in chosen.items() if key}
    numbers = {ENVIRONMENT: _values(request, poses)} if poses else {}
    return {**pictures, **numbers, "state": _state(request, keys.state, joints), "prompt": request["prompt"]}


def _last(request: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in reversed(names) if name in request), None)


def _state(request: Mapping[str, Any], names: Sequence[str], joints: Sequence[str]) -> np.ndarray:
    """float32 [joints], the values under `names` one after the other."""
    state = _values(request, names)
    if len(state) != len(joints):
        raise MorphVlaError(
            f"{' and '.join(names)}: {len(state)} values; this policy has {len(joints)} joints "
            f"({', '.join(joints)})"
        )
    return state


def _values(request: Mapping[str, Any], names: Sequence[str]) -> np.ndarray:
    """float32 [n], the finite values under `names` one after the other."""
    parts = []
    for name in names:
        value = request[name]
        try:
            part = np.asarray(value)
        except ValueError:  # a list of lists of several lengths
            part = np.asarray(None)
        if part.dtype.kind not in "iuf" or part.ndim > 1:
            raise MorphVlaError(f"{name}: expected a list of numbers, not {_kind(value)}")
        parts.append(np.atleast_1d(part))
    with np.errstate(over="ignore"):
        values = np.concatenate(parts).astype(np.float32)
    if not np.isfinite(values).all():
        raise MorphVlaError(f"{' and '.join(names)}: not every value is finite in float32")
    return values


def _picture(value: Any, name: str) -> np.ndarray:
    """uint8 [h, w, 3] of a picture in either order of axes; fractions from 0 to 1 become levels."""
    if not isinstance(value, np.ndarray) or value.ndim != 3 or 3 not in (value.shape[0], value.shape[2]):
        raise MorphVlaError(f"{name}: expected a picture [h, w, 3], not {_kind(value)}")
    picture = value if value.shape[2] == 3 else value.transpose(1, 2, 0)
    height, width, _ = picture.shape
    if not 0 < height * width <= MAX_PIXELS:
        raise MorphVlaError(f"{name}: {width} x {height} pixels; from 1 to {MAX_PIXELS} are read")
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise MorphVlaError(f"{name}: {width} x {height} pixels; the sides are at most 1 to {MAX_ASPECT}")
    if picture.dtype.kind == "f":
        if not (picture.min() >= 0 and picture.max() <= 1):  # nor is NaN
            raise MorphVlaError(f"{name}: a picture of fractions has values from 0 to 1")
        picture = (255 * picture.astype(np.float32)).astype(np.uint8)
    if picture.dtype != np.uint8:
        raise MorphVlaError(f"{name}: expected a picture of dtype uint8, not {picture.dtype}")
    return np.ascontiguousarray(picture)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {list(value.shape)} of {value.dtype}"
    return f"a value of type '{type(value).__name__}'"
