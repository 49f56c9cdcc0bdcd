"""Transforms for openpi's pipeline: from and to the nested dictionaries of one sample, without a batch axis.

Plain classes, so that openpi's data-loading processes can take them along; openpi asks of a transform only
that it can be called.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from morph_vla import robots
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.dropin import available
from morph_vla.findings import visible
from morph_vla.hosts.openpi import packing
from morph_vla.morphology import body_of
from morph_vla.morphology.config import Descriptors
from morph_vla.pi05.tokenizer import BytesTokenizer, tokenize

Sample = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class AddRobot:
    """Put the robot's arrays behind the state (see `packing`), after the state has been padded.

    The robot is `robot`, unless the sample has a key `robot` that names another one; a served request may.
    Any registered robot will do, by its name; `robot` itself may also be a URDF's path. Raises MorphVlaError,
    naming the nearest, for one that is not there, and for one with more than `max_joints` joints.
    """

    robot: str
    max_joints: int
    action_dim: int
    descriptors: Descriptors = "paper"
    packed: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.of(self.robot)  # a wrong name is refused before anything is loaded

    def of(self, name: str) -> np.ndarray:
        """The packed robot, read once."""
        if name not in self.packed:
            body = body_of(robots.load(name), self.max_joints, self.descriptors)
            self.packed[name] = packing.pack(body)
        return self.packed[name]

    def __call__(self, data: Sample) -> Sample:
        """`state` of at least `action_dim` values becomes `action_dim` values and the robot."""
        name = str(np.asarray(data.pop("robot", self.robot)).item())
        if name != self.robot and name not in (choices := available("robots")):  # a client names no files
            raise MorphVlaError(f"no robot '{visible(name, 60)}' is registered{nearest(name, choices)}")
        state = np.asarray(data["state"], np.float32)[..., : self.action_dim]
        return {**data, "state": np.concatenate([state, self.of(name)], axis=-1)}


@dataclasses.dataclass(frozen=True)
class DropRobot:
    """The inverse, on the way out: the state of an answer is the state alone."""

    action_dim: int

    def __call__(self, data: Sample) -> Sample:
        """`state` is cut to `action_dim` values."""
        return {**data, "state": np.asarray(data["state"])[..., : self.action_dim]}


@dataclasses.dataclass(frozen=True)
class KeepRobot:
    """Another transform that knows nothing of robots and would drop the key `robot`."""

    inner: Callable[[Sample], Sample]

    def __call__(self, data: Sample) -> Sample:
        """What `inner` makes of the sample, and the robot it came with."""
        kept = {"robot": data["robot"]} if "robot" in data else {}
        return {**self.inner(data), **kept}


@dataclasses.dataclass(frozen=True)
class RobotInputs:
    """A dataset's or a client's keys become the model's: cameras by openpi's names, state, actions, prompt.

    `cameras` maps openpi's names to the sample's; one that is not there is black and masked. Images may be
    uint8 [h w 3] or, as LeRobot gives them, floats in [0, 1] and [3 h w]. State and actions have the `joints`
    values of `robot`, also where a request names another one: statistics and deltas are this robot's, and
    other values would be padded or cut later on without a word.
    """

    cameras: Mapping[str, str | None]
    robot: str
    joints: int

    def __call__(self, data: Sample) -> Sample:
        """Raises MorphVlaError for what is missing, and for a state or actions of another robot."""
        wanted = [*filter(None, self.cameras.values()), "state"]
        if missing := [key for key in wanted if key not in data]:
            raise MorphVlaError(
                f"the sample lacks {', '.join(missing)}; expected {', '.join(wanted)} and prompt, and it has "
                f"{visible(', '.join(sorted(data)), 300)}"
            )
        for key in ("state", "actions"):
            shape = np.shape(data[key]) if key in data else (self.joints,)
            if not shape or shape[-1] != self.joints:
                raise MorphVlaError(
                    f"{key} has shape {list(shape)}, and robot '{self.robot}' has {self.joints} joints; name "
                    "the robot of this dataset in the configuration's file"
                )
        images = {name: _pixels(data[key]) for name, key in self.cameras.items() if key is not None}
        black = np.zeros_like(next(iter(images.values())))
        return {
            "image": {name: images.get(name, black) for name in self.cameras},
            "image_mask": {name: np.bool_(name in images) for name in self.cameras},
            **{key: data[key] for key in ("state", "actions", "prompt", "robot") if key in data},
        }


def _pixels(image: Any) -> np.ndarray:
    image = np.asarray(image)
    if np.issubdtype(image.dtype, np.floating):
        image = (255 * image).astype(np.uint8)
    return np.moveaxis(image, 0, -1) if image.shape[0] == 3 else image


@dataclasses.dataclass(frozen=True)
class TakeActions:
    """The first `count` action values: those of the robot's joints. The answer's other keys go."""

    count: int

    def __call__(self, data: Sample) -> Sample:
        """`actions` [h a] become [h count]."""
        return {"actions": np.asarray(data["actions"])[..., : self.count]}


@dataclasses.dataclass(frozen=True)
class TokenizeBytes:
    """Prompt and state by the tokenizer that needs no file; what is tokenised already passes."""

    length: int

    def __call__(self, data: Sample) -> Sample:
        """`prompt` becomes `tokenized_prompt` and its mask."""
        if "tokenized_prompt" in data:
            return data
        data = dict(data)
        prompt, state = str(np.asarray(data.pop("prompt")).item()), np.asarray(data["state"])
        tokens, mask = tokenize(BytesTokenizer(), prompt, state, self.length)
        return {**data, "tokenized_prompt": tokens, "tokenized_prompt_mask": mask}
