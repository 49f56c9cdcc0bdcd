"""What a server says of its policy before anything is asked: openpi's metadata frame. No JAX.

A superset of RoboArena's. A client that knows nothing of it may ignore it; `morph-vla eval --policy` holds it
against the suite before the first episode.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from morph_vla._version import __version__
from morph_vla.data import presets
from morph_vla.data.presets import Unit
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.process import versions
from morph_vla.results.values import Real, listing, mapping, number, numbers, read_as, text
from morph_vla.robots import Robot
from morph_vla.serving import bounds, keys, units
from morph_vla.serving.bounds import Bounds
from morph_vla.serving.keys import Keys

SERVED_BY = f"morph-vla {__version__}"
ACTIONS = "absolute joint positions in the units of the state, one row per control step"
ACCEPTS = ("request_id", "deadline_s", "batch", "env_id", "session_id", "reset", "endpoint")
REAL_TIME = ("inference_delay", "executed_steps")
"""Keys of a request that a server accepts too, where it does real-time chunking."""


@dataclasses.dataclass(frozen=True)
class Card:
    """A server's metadata; what it does not say is None or empty."""

    served_by: str = SERVED_BY
    name: str = ""
    """Of the policy, as records have it"""
    step: int | None = None
    sha256: str | None = None
    """Of parameters and statistics"""
    robot: str = ""
    joints: tuple[str, ...] = ()
    """In the order of a state's and an action's values"""
    units: tuple[str, ...] = ()
    lower: tuple[float | None, ...] = ()
    """In these units; None where there is no limit"""
    upper: tuple[float | None, ...] = ()
    jump_s: Real | None = None
    """A target is at most so many seconds of full speed away from the state"""
    control_rate: Real | None = None
    """Targets per second [Hz]"""
    horizon: int | None = None
    """Targets in an answer"""
    actions: str = ACTIONS
    preset: str = ""
    keys: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Of a request: `images` (camera -> keys), `state`, `channels_first`"""
    cameras: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The model's name -> the dataset's"""
    delay_max: int = 0
    """So many of the last answer's targets, at most, an answer begins with as they are, where it was trained
    to; 0: it is led to them"""
    delay_min: int = 0
    """So many of its targets are held to the last answer's at least, however short the delay"""
    fading: int = 0
    """Over so many targets after those an answer goes over from the last one to itself"""
    looks_back: bool = False
    """Whether every request has to say `episode` and `step`"""
    image_size: int | None = None
    """Pixels of the square that the model looks at; any size may be sent"""
    batch: int | None = None
    """Observations that are computed at once, at most"""
    sizes: tuple[int, ...] = ()
    """The sizes of batches that are compiled, ascending; with one alone, no answer depends on its company"""
    prompt_tokens: tuple[int, ...] = ()
    """The lengths of prompts that are compiled, ascending; likewise"""
    sampler: Mapping[str, object] = dataclasses.field(default_factory=dict)
    accepts: tuple[str, ...] = ACCEPTS
    """Keys of a request beyond the observation's"""
    trained: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """What it was trained with, as `evaluation.fit` asks it"""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """The first frame of a connection: RoboArena's keys beside ours, or alone in its own preset."""
        wrists = sum("wrist" in camera for camera in self.cameras)
        roboarena = {
            "image_resolution": None,
            "n_external_cameras": len(self.cameras) - wrists,
            "needs_wrist_camera": wrists > 0,
            "needs_stereo_camera": False,
            "needs_session_id": False,
            "action_space": "joint_position",
        }
        return roboarena if self.preset == keys.ROBOARENA else {**to_plain(self), **roboarena}

    @property
    def real_time(self) -> bool:
        """Whether the server does real-time chunking."""
        return set(REAL_TIME) <= set(self.accepts)

    def request_keys(self) -> Keys:
        """The keys of a request, as the server reads it."""
        images = {
            camera: tuple(map(str, listing(names)))
            for camera, names in mapping(self.keys.get("images")).items()
        }
        state = tuple(map(str, listing(self.keys.get("state")))) or ("state",)
        flags = (self.keys.get(name) is True for name in ("environment", "channels_first"))
        return Keys(images, state, *flags, prompt=text(self.keys.get("prompt")) or "")


@runtime_checkable
class Served(Protocol):
    """What is served: a checkpoint's policy, as it is or told what an estimator sees."""

    robot: Robot
    robot_name: str
    trained: dict[str, Any]
    cameras: dict[str, str]
    image_size: int
    real_time: bool
    sizes: tuple[int, ...]
    prompts: dict[int, str]
    folder: Path
    config: Any

    @property
    def looks_back(self) -> bool:
        """Whether every request has to say `episode` and `step`."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a record says of it."""
        ...

    def infer(self, observation: Any) -> Mapping[str, Any]:
        """Actions for one observation."""
        ...

    def infer_batch(self, observations: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """Actions for several observations, in order."""
        ...


def of(
    policy: Served,
    preset: str = "",
    jump_s: float = bounds.JUMP_S,
    unit: Unit = "robot",
    real_time: bool = False,
    prompt: str = "",
) -> tuple[Card, Bounds]:
    """The card of a checkpoint's policy, and the bounds of what it may command.

    `unit` is the clients', where it is not the one that the policy was trained in (`units.of` converts);
    `prompt` is that of requests without one.
    Raises MorphVlaError where the robot has changed since training, for `real_time` of a policy that does not
    go on from other answers, and as `keys.of` and `keys.check_grippers`.
    """
    from morph_vla.pi05.realtime import FADING, OF_SPEED  # JAX: only where there is a checkpoint's policy
    from morph_vla.training import meaning

    trained, robot = policy.trained, policy.robot
    if real_time and not policy.real_time:
        raise MorphVlaError(
            f"{policy.folder}: this policy does not go on from what is being executed (real-time chunking); "
            "serve it without --real-time"
        )
    meaning.check_joints(trained, robot, policy.folder)
    known_keys = keys.of(policy.cameras, preset, bool(trained.get("environment")), prompt)
    keys.check_grippers(preset, {joint.name: joint.is_gripper for joint in robot.joints})
    if unit != "robot":
        driven = presets.as_recorded(robot, unit, ())
        named, there = [joint.unit for joint in driven.joints], units.affine_of(driven)
        if trained.get("state_stats") and trained.get("space", "joints") == "joints":
            here = units.affine_in(trained, robot)
            trained = {**trained, "state_stats": units.stats_in(trained["state_stats"], here, there)}
        trained = {**trained, "units": named, "affine": there}
    affine = units.affine_in(trained, robot)
    limits = dataclasses.replace(
        bounds.of(robot, affine, trained["control_rate"], jump_s), recorded=_recorded(trained, len(affine))
    )
    description = policy.describe()
    known = {name: description[name] for name in ("name", "step", "sha256", "sampler", "batch")}
    card = Card(
        **known,
        sizes=policy.sizes,
        prompt_tokens=tuple(policy.prompts),
        robot=policy.robot_name,
        joints=robot.names,
        units=tuple(trained.get("units") or (joint.unit for joint in robot.joints)),
        lower=_ends(limits.lower),
        upper=_ends(limits.upper),
        jump_s=jump_s,
        control_rate=trained["control_rate"],
        horizon=policy.config.horizon,
        delay_max=policy.config.delay_max,
        delay_min=OF_SPEED if real_time else 0,
        fading=FADING if real_time else 0,
        looks_back=policy.looks_back,
        preset=preset,
        keys=to_plain(known_keys),
        cameras=policy.cameras,
        image_size=policy.image_size,
        accepts=ACCEPTS + REAL_TIME if real_time else ACCEPTS,
        trained=trained,
        versions=versions(),
    )
    return card, limits


def _recorded(trained: Mapping[str, Any], joints: int) -> Float[np.ndarray, "2 j"] | None:
    """The values between which states were recorded, one a joint; None where a state is no joint values."""
    if trained.get("space", "joints") != "joints" or not (stats := trained.get("state_stats")):
        return None
    ends = np.array([stats["q01"], stats["q99"]], np.float64)
    return ends if ends.shape == (2, joints) else None


def read(metadata: Mapping[str, object]) -> Card | None:
    """The card in a server's metadata; None where it is another's, who says other things."""
    if not (text(metadata.get("served_by")) or "").startswith("morph-vla"):
        return None
    return read_as(Card, metadata, lower=_read_ends(metadata, "lower"), upper=_read_ends(metadata, "upper"))


def check(card: Card) -> None:
    """Raise MorphVlaError where a card lacks what `evaluation.fit` asks."""
    trained, joints, asked = card.trained, len(card.joints), card.request_keys()
    pairs = [trained.get(name) for name in ("affine", "limits") if name in trained]
    whole = {
        "joints": joints > 0 and list(listing(trained.get("joints"))) == list(card.joints),
        "control rate": number(trained.get("control_rate")) is not None,
        "units": all(
            len(listing(table)) == joints and all(len(numbers(pair) or ()) == 2 for pair in listing(table))
            for table in pairs
        ),
        "statistics": all(mapping(trained.get(f"{kind}_stats")) for kind in ("state", "action")),
        "cameras": bool(card.cameras or trained.get("environment") or (card.keys and not asked.images))
        and card.image_size is not None,  # keys without pictures are those of a policy that sees none
        "keys": len(asked.state) <= 2 and all(asked.images.values()),
    }
    missing = [name for name, is_there in whole.items() if not is_there]
    if missing:
        raise MorphVlaError(f"the server's metadata does not say {', '.join(missing)} as it should")


def _ends(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)


def _read_ends(metadata: Mapping[str, object], name: str) -> tuple[float | None, ...]:
    return tuple(number(value) for value in listing(metadata.get(name)))
