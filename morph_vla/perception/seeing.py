"""A policy that is told poses, and where they come from: a camera's pictures."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla.data.space import tools_of
from morph_vla.engines.engine import ENVIRONMENT, environment_names
from morph_vla.errors import MorphVlaError
from morph_vla.perception.estimator import Estimator, load
from morph_vla.perception.frames import hand_seen
from morph_vla.perception.things import things_of
from morph_vla.pixels import resize_with_pad
from morph_vla.robots import Robot
from morph_vla.suites.suite import Suite


@runtime_checkable
class OfPoses(Protocol):
    """A policy that is told poses, such as `serving.policy.CheckpointPolicy` of `pi05-arms`."""

    robot: Robot
    robot_name: str
    trained: dict[str, Any]
    real_time: bool
    sizes: tuple[int, ...]
    prompts: dict[int, str]
    folder: Path
    config: Any

    @property
    def looks_back(self) -> bool:
        """Whether it is shown earlier steps of an episode."""
        ...

    def digest(self) -> str:
        """Two policies that share it act the same."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a record says of it."""
        ...

    def infer_batch(self, observations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Actions for several observations, in order."""
        ...


class Seeing:
    """`policy`, told what `estimator` makes of the pictures. The simulator's own poses are not shown to it.

    It looks through one camera (`cameras`), whose frames are rendered as large as `frames` says; it looks at
    nothing else, so no other camera is rendered. A server is sent frames of any size, larger ones. Which
    things it looks for an observation's prompt says: those of that task; of a suite of one task, any prompt.
    """

    def __init__(self, policy: OfPoses, estimator: Estimator, tasks: Sequence[Suite]):
        """Raises MorphVlaError where no poses are told or another robot is driven, as `Estimator.view`."""
        known = policy.trained.get("environment")
        if not known:
            raise MorphVlaError(
                "this policy is told no poses of objects, so none can be estimated; pi05-arms is"
            )
        self._policy, self._estimator, self._view = policy, estimator, estimator.view(tasks)
        if len(tools := tools_of(policy.robot).tools) > 1:
            raise MorphVlaError(
                f"'{policy.robot_name}' has {len(tools)} hands, and {estimator.name} is told of one"
            )
        for task in tasks:
            if task.robot != policy.robot_name:
                raise MorphVlaError(
                    f"{task.label} is a suite of '{task.robot}', and the policy drives"
                    f" '{policy.robot_name}': its camera's place is told from another base"
                )
            shown = environment_names(task.success)
            if list(known) != list(shown):
                raise MorphVlaError(
                    f"{task.label}: {estimator.name} estimates {', '.join(shown)}, and the policy was trained"
                    f" with {', '.join(map(str, known))}"
                )
        self._things = _things(tasks, self._view.distance)
        camera, size = estimator.about.camera, estimator.about.optics.size
        self.cameras, self.frames = {camera: camera}, {camera: (size, size)}
        self.image_size = size
        shown = {"environment": [], "sizes": {camera: [size, size]}, "prompts": [task.task for task in tasks]}
        self.trained: dict[str, Any] = {**policy.trained, **shown}
        self.robot_name, self.robot = policy.robot_name, policy.robot
        self.real_time, self.looks_back = policy.real_time, policy.looks_back
        self.sizes, self.folder, self.config = policy.sizes, policy.folder, policy.config
        # Of several tasks a prompt must be one's; of a single one it may be any.
        self.prompts = policy.prompts if len(tasks) == 1 else dict.fromkeys(policy.prompts, tasks[0].task)

    def digest(self) -> str:
        """Two policies that share it act the same: the policy's, and the estimator's."""
        both = f"{self._policy.digest()} {self._estimator.sha256}"
        return hashlib.sha256(both.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """The policy's card, with the estimator's name and digest."""
        about, estimator = self._policy.describe(), self._estimator
        return {
            **about,
            "name": f"{about['name']}, poses from pictures",
            "sha256": self.digest(),
            "poses_from": estimator.source,
            "poses_from_sha256": estimator.sha256,
        }

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Actions for one observation, which has the camera's picture."""
        return self.infer_batch([observation])[0]

    def infer_batch(self, observations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Actions for several, in order. Raises as `told`."""
        return self._policy.infer_batch(self.told(observations))

    def told(self, observations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the policy is told of several observations: poses, estimated, in place of pictures.

        Raises MorphVlaError for a picture that is too small, or none, and for a prompt of no task.
        """
        key = f"images/{self._estimator.about.camera}"
        images = np.stack([self._picture(row, key) for row in observations])
        states = np.stack([np.asarray(row["state"], np.float32) for row in observations])
        hands = hand_seen(self.robot, self._view, states)
        things = np.stack([self._meant(row) for row in observations])
        poses = self._estimator.poses(images, hands, things, self._view)
        kept = [{k: v for k, v in row.items() if not k.startswith("images/")} for row in observations]
        return [{**row, ENVIRONMENT: pose} for row, pose in zip(kept, poses, strict=True)]

    def _meant(self, row: dict[str, Any]) -> Float[np.ndarray, "2 f"]:
        """The object and the target of the task that a prompt is."""
        if len(self._things) == 1:
            return next(iter(self._things.values()))
        prompt = str(row.get("prompt", ""))
        things = self._things.get(_plain(prompt))
        if things is None:
            texts = ", ".join(f"'{text}'" for text in self._things)
            raise MorphVlaError(
                f"prompt '{prompt}' is no task of the suite's, so which things are meant is not known;"
                f" expected {texts}"
            )
        return things

    def _picture(self, row: dict[str, Any], key: str) -> UInt8[np.ndarray, "s s 3"]:
        """The camera's frame as the estimator has it: the square in its middle, made smaller."""
        size, frame = self.image_size, np.asarray(row.get(key, ()))
        height, width = frame.shape[:2] if frame.ndim == 3 and frame.shape[2] == 3 else (0, 0)
        if height < size or width < height or frame.dtype != np.uint8:
            raise MorphVlaError(
                f"{key} has shape {list(frame.shape)} of {frame.dtype}; {self._estimator.name} looks at"
                f" {[size, size, 3]} of uint8, and at frames that are larger, and at least as wide as high"
            )
        left = (width - height) // 2
        square = frame[:, left : left + height]
        return square if height == size else resize_with_pad(square, size)


def before(policy: OfPoses, source: str, tasks: Sequence[Suite]) -> Seeing:
    """`policy`, told what the estimator `source` sees on `tasks`. Raises as `load` and `Seeing`."""
    return Seeing(policy, load(source), tasks)


def _things(tasks: Sequence[Suite], distance: float) -> dict[str, Float[np.ndarray, "2 f"]]:
    """What each prompt means. Raises MorphVlaError where one means different things."""
    meant: dict[str, Float[np.ndarray, "2 f"]] = {}
    for task in tasks:
        things = things_of(task, distance)
        if not np.array_equal(meant.setdefault(_plain(task.task), things), things):
            raise MorphVlaError(
                f"{task.label}: another task has the prompt '{task.task}' and moves other things"
            )
    return meant


def _plain(prompt: str) -> str:
    """A prompt without what people write one way or another."""
    return " ".join(prompt.lower().split()).rstrip(".")
