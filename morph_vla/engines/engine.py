"""The two small contracts of this room: a policy gives actions, an engine gives worlds.

Policy (also openpi's): `infer(observation) -> {"actions": float32[horizon, joints]}`.
The observation is a plain dictionary, so that it can cross a socket:

| key                | type                 | what                                                    |
| ------------------ | -------------------- | ------------------------------------------------------- |
| `images/<camera>`  | uint8 [h, w, 3]      | RGB, one key per camera of the suite                    |
| `environment_state`| float32 [7 poses]    | of a suite without cameras, the poses that              |
|                    |                      | `environment_names` names, in the base frame; of        |
|                    |                      | another simulator's, those of its suite's `poses`       |
| `state`            | float32 [joints]     | measured joint values, action order, dataset units      |
| `prompt`           | str                  | the task's text                                         |
| `robot`            | str                  | the robot's name                                        |
| `episode`, `step`  | int                  | where a policy takes its random numbers from, so that   |
|                    |                      | an episode does not depend on what ran beside it        |
| `connection`       | str                  | whose episodes these are, where there are several at    |
|                    |                      | once: a policy that looks back keeps them apart         |

and of a policy whose `real_time` is True, where its answers are to go on from each other:

| `inference_delay`  | int                  | control steps until the answer will be there            |
| `previous_actions` | float32 [r, joints]  | what the robot executes until then, and would execute   |
|                    |                      | afterwards; absent at an episode's first question       |

Actions are absolute joint-position targets in the same order and units, one row per control step.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, UInt8

from morph_vla.engines.success import Reading
from morph_vla.errors import MorphVlaError
from morph_vla.robots import Robot
from morph_vla.robots.geometry import POSE, Quaternion
from morph_vla.suites.suite import InitialState, Success, Suite

Observation = dict[str, np.ndarray | str | int]
ENVIRONMENT = "environment_state"  # an observation's key of the poses of objects
Answer = Mapping[str, object]  # a policy's; `actions_of` checks it
Frame = UInt8[np.ndarray, "_ _ 3"]  # RGB, of any size


class Diverged(MorphVlaError):
    """The physics of a world diverged: an attempt that fails, and nothing that a user set wrongly."""


@dataclasses.dataclass(frozen=True)
class Sight:
    """What a scripted expert sees of a world, whichever engine holds it. Positions in the base frame."""

    native: Float[np.ndarray, "j"]
    """Measured joint values [rad | m], action order."""
    opening: float
    """Of the gripper: 0 closed .. 1 open."""
    object_position: Float[np.ndarray, "3"]
    """[m] of the object's origin."""
    object_quaternion: Float[np.ndarray, "4"]
    """(w, x, y, z)."""
    target_position: Float[np.ndarray, "3"]
    """[m]."""
    target_quaternion: Quaternion = (1.0, 0.0, 0.0, 0.0)
    """(w, x, y, z)."""
    also: tuple["Sight", ...] = ()
    """The same of the further objects and targets (`Success.also`), pair by pair."""


@runtime_checkable
class Policy(Protocol):
    """Anything that answers an observation with a chunk of actions."""

    def infer(self, observation: Observation) -> Answer:
        """Actions for one observation; see the module's table for keys, shapes and units."""
        ...


@runtime_checkable
class BatchPolicy(Policy, Protocol):
    """A policy that answers several observations in one call, each as `infer` would."""

    def infer_batch(self, observations: Sequence[Observation]) -> Sequence[Answer]:
        """One answer per observation, in order."""
        ...


@runtime_checkable
class Worlds(Protocol):
    """`count` independent worlds of one suite; index i always means the same world, and one alone is index 0.

    Several worlds are reset and stepped at once, because a simulator on a GPU moves them together.
    `contract.problems` measures whether an engine keeps what is promised here.
    """

    robot: Robot
    suite: Suite
    count: int
    lockstep: bool
    """Whether all worlds move when one does; those without an action keep their last targets."""
    limb: Bool[np.ndarray, "j"]
    """The action joints that do the task; see `hands.limb`."""

    def place(self, states: Mapping[int, InitialState]) -> None:
        """Put worlds into initial states; no physics runs, other worlds are not touched."""

    def reset(self, states: Mapping[int, InitialState]) -> None:
        """Put worlds into initial states and let them settle."""

    def step(self, actions: Mapping[int, Float[np.ndarray, "j"]]) -> dict[int, Reading | MorphVlaError]:
        """Advance worlds by one control step, each towards its action (dataset units).

        Where a world's physics diverged, the error stands in place of its reading.
        """
        ...

    def reading(self, index: int) -> Reading:
        """What the success criterion needs, now."""
        ...

    def native(self, index: int) -> Float[np.ndarray, "j"]:
        """Measured joint values [rad | m], action order."""
        ...

    def state(self, index: int) -> Float[np.ndarray, "j"]:
        """Measured joint values, action order, dataset units."""
        ...

    def sight(self, index: int) -> Sight:
        """What a scripted expert sees, now."""
        ...

    def pose(self, index: int, name: str) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "4"]]:
        """Position [m] and orientation (w, x, y, z) of an object in the base frame."""
        ...

    def camera_pose(self, index: int, name: str) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
        """Position [m] and axes (columns) of a camera in the base frame; it looks along -z, with y up."""
        ...

    def render(self, index: int, camera: str) -> Frame:
        """The frame of one of the suite's cameras."""
        ...

    def scene_view(self, index: int) -> Frame | None:
        """The scene as its film shows it; no policy sees this. None where the engine has no such view."""
        ...

    def observe(self, index: int) -> Observation:
        """What a policy is shown, without `episode` and `step`; see `observation`."""
        ...

    def close(self) -> None:
        """Give renderers and memory back."""


@runtime_checkable
class Door(Protocol):
    """What a module has through which an engine is reached (`by_name.ENGINES`): its options, its worlds.

    `options` are those of the command line, `KEY=VALUE`, as text.
    """

    LOCKSTEP: bool
    """As `Worlds.lockstep`: such worlds live in the evaluation's process, others in worker processes."""

    def facts(self, options: Mapping[str, str]) -> dict[str, str]:
        """What a record says of the engine: name, version, and what else numbers may depend on.

        Raises MorphVlaError for an option or a value that the engine lacks, and where it cannot run.
        """
        ...

    def worlds(self, suite: Suite, count: int, options: Mapping[str, str]) -> Worlds:
        """`count` worlds of `suite`; raises as `facts` does."""
        ...


def measured_state(worlds: Worlds, index: int) -> Float[np.ndarray, "j"]:
    """`Worlds.state` of any engine: its joint values in the dataset's units, float32."""
    return np.asarray(worlds.robot.to_dataset(worlds.native(index)), dtype=np.float32)


def observation(worlds: Worlds, index: int) -> Observation:
    """`Worlds.observe` of any engine: what a policy is shown of world `index`."""
    seen: Observation = {f"images/{name}": worlds.render(index, name) for name in worlds.suite.cameras}
    if not worlds.suite.cameras:
        seen[ENVIRONMENT] = environment_state(worlds, index)
    about: Observation = {"prompt": worlds.suite.task, "robot": worlds.robot.name}
    return {**seen, "state": worlds.state(index), **about}


def environment_names(success: Success) -> tuple[str, ...]:
    """What a suite without cameras shows: positions [m] and orientations (quaternions with w >= 0).

    Of the object, the target, and of further ones as they follow: `object x` .. `target qz`, `object 2 x` ..
    """
    numbers = ["", *(f" {number}" for number in range(2, len(success.pairs) + 1))]
    return tuple(f"{what}{n} {value}" for n in numbers for what in ("object", "target") for value in POSE)


def environment_state(worlds: Worlds, index: int) -> Float[np.ndarray, "g"]:
    """The poses of the task's objects and targets in world `index`: those of `environment_names`, float32."""
    values = []
    for name in (name for pair in worlds.suite.success.pairs for name in pair):
        position, quaternion = worlds.pose(index, name)
        # q and -q are one orientation.
        values += [position, -quaternion if quaternion[0] < 0 else quaternion]
    return np.concatenate(values).astype(np.float32)


def step_one(worlds: Worlds, index: int, action: Float[np.ndarray, "j"]) -> Reading:
    """One control step of one world. Raises Diverged where its physics diverged."""
    measured = worlds.step({index: action})[index]
    if isinstance(measured, MorphVlaError):
        raise Diverged(str(measured))
    return measured


def rows_of(answer: object) -> np.ndarray:
    """What a policy's answer holds under `actions`, float32 of any shape. Raises MorphVlaError without it."""
    if not isinstance(answer, Mapping) or "actions" not in answer:
        keys = sorted(map(str, answer)) if isinstance(answer, Mapping) else type(answer).__name__
        raise MorphVlaError(f"the policy's answer has no 'actions' (got {keys})")
    # A copy: a policy may answer from one array that it fills again and again.
    return np.array(answer["actions"], dtype=np.float32)


def actions_of(answer: object, joints: int) -> Float[np.ndarray, "h j"]:
    """The actions in a policy's answer, checked.

    Raises MorphVlaError saying what came and what was expected: a dictionary with `actions`, an array
    [horizon >= 1, joints] of finite numbers.
    """
    actions = rows_of(answer)
    if actions.ndim != 2 or actions.shape[0] < 1 or actions.shape[1] < joints:
        raise MorphVlaError(
            f"the policy's actions have shape {actions.shape}; expected (horizon, {joints}), "
            "one column per joint"
        )
    actions = actions[:, :joints]
    if not np.isfinite(actions).all():
        bad = int((~np.isfinite(actions)).sum())
        raise MorphVlaError(f"the policy's actions hold {bad} values that are not finite")
    return actions
