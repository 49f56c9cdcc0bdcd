"""The two small contracts of this room: a policy gives actions, an engine gives worlds.

Policy (also openpi's): `infer(observation) -> {"actions": float32[horizon, joints]}`.
The observation is a plain dictionary, so that it can cross a socket:

| key                | type                 | what                                                    |
| ------------------ | -------------------- | ------------------------------------------------------- |
| `images/<camera>`  | uint8 [h, w, 3]      | RGB, one key per camera of the suite                    |
| `state`            | float32 [joints]     | measured joint values, action order, dataset units      |
| `prompt`           | str                  | the task's text                                         |
| `robot`            | str                  | the robot's name                                        |
| `episode`, `step`  | int                  | where a policy takes its random numbers from, so that   |
|                    |                      | an episode does not depend on what ran beside it        |

Actions are absolute joint-position targets in the same order and units, one row per control step.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from morph_vla.engines.success import Reading
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import InitialState

Observation = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Sight:
    """What a scripted expert sees of a world, whichever engine holds it. Positions in the base frame."""

    native: Float[np.ndarray, "j"]  # measured joint values [rad | m], action order
    opening: float  # of the gripper: 0 closed .. 1 open
    object_position: Float[np.ndarray, "3"]  # [m] of the object's origin
    object_quaternion: Float[np.ndarray, "4"]  # (w, x, y, z)
    target_position: Float[np.ndarray, "3"]  # [m]


@runtime_checkable
class Policy(Protocol):
    """Anything that answers an observation with a chunk of actions."""

    def infer(self, observation: Observation) -> dict[str, Any]:
        """Actions for one observation; see the module's table for keys, shapes and units."""
        ...


@runtime_checkable
class BatchPolicy(Policy, Protocol):
    """A policy that answers several observations in one call, each as `infer` would."""

    def infer_batch(self, observations: Sequence[Observation]) -> list[dict[str, Any]]:
        """One answer per observation, in order."""
        ...


class Engine(Protocol):
    """`count` independent worlds of one suite. Index i always means the same world."""

    count: int

    def reset(self, index: int, state: InitialState) -> None:
        """Put world `index` into an initial state and let it settle; other worlds are not touched."""
        ...

    def step(self, index: int, action: Float[np.ndarray, "j"]) -> Reading:
        """Advance world `index` by one control step towards `action` (dataset units)."""
        ...

    def reading(self, index: int) -> Reading:
        """What the success criterion needs, now."""
        ...

    def state(self, index: int) -> Float[np.ndarray, "j"]:
        """Measured joint values, action order, dataset units."""
        ...

    def observe(self, index: int) -> Observation:
        """The observation of world `index`, without `episode` and `step`."""
        ...

    def close(self) -> None:
        """Give renderers and memory back."""
        ...


class Worlds(Protocol):
    """`count` worlds of one suite that step together, as a simulator on a GPU has them.

    What is told is told of several at once; worlds that are not named hold their last targets meanwhile. What
    is asked (`reading`, `state`, `observe`, `render`, `native`, `sight`) is asked of one, as of an `Engine`.
    """

    count: int

    def reset(self, states: Mapping[int, InitialState]) -> None:
        """Put worlds into initial states and let all settle."""
        ...

    def step(self, actions: Mapping[int, Float[np.ndarray, "j"]]) -> dict[int, Reading | MorphVlaError]:
        """Advance by one control step; an error in place of a reading where a world's physics diverged."""
        ...


def observation(engine: Any, index: int) -> Observation:
    """What a policy is shown of world `index` of any engine, without `episode` and `step`."""
    frames = {f"images/{name}": engine.render(index, name) for name in engine.suite.cameras}
    return {
        **frames,
        "state": engine.state(index),
        "prompt": engine.suite.task,
        "robot": engine.robot.name,
    }


def actions_of(answer: Any, joints: int) -> Float[np.ndarray, "h j"]:
    """The actions in a policy's answer, checked.

    Raises MorphVlaError saying what came and what was expected: a dictionary with `actions`, an array
    [horizon >= 1, joints] of finite numbers.
    """
    if not isinstance(answer, dict) or "actions" not in answer:
        keys = sorted(answer) if isinstance(answer, dict) else type(answer).__name__
        raise MorphVlaError(f"the policy's answer has no 'actions' (got {keys})")
    actions = np.asarray(answer["actions"], dtype=np.float32)
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
