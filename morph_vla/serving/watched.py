"""An episode as a policy saw it, played once more to look inside."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from morph_vla.engines.engine import Policy, Worlds
from morph_vla.engines.episode import play
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.rollout import open_loop_at
from morph_vla.pi05 import Observation
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites.suite import InitialState, Suite


@dataclasses.dataclass(frozen=True)
class Watched:
    """What a policy was shown in one episode, at each time it was asked."""

    suite: Suite
    episode: int
    observations: Sequence[dict[str, Any]]
    ended: str | None
    """How, as `engines.episode.Status` has it."""

    @property
    def moments(self) -> list[dict[str, Any]]:
        """When each observation was shown, in control steps and seconds."""
        rate = self.suite.control_rate
        return [{"step": seen["step"], "time_s": round(seen["step"] / rate, 3)} for seen in self.observations]

    @property
    def facts(self) -> dict[str, Any]:
        """Which episode it was and how it ended, as plain values."""
        suite = self.suite
        names = {"suite": suite.label, "task": suite.task, "task_key": suite.task_key}
        return {**names, "episode": self.episode, "ended": self.ended}


@runtime_checkable
class Sight(Policy, Protocol):
    """What stands before a policy and tells it of an observation, such as `perception.Seeing`."""

    def digest(self) -> str:
        """Two that share it act the same, their policies being the same."""
        ...

    def told(self, observations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the policy is shown of observations."""
        ...


def watch(
    policy: CheckpointPolicy,
    worlds: Worlds,
    state: InitialState,
    open_loop: int | None = None,
    sight: Sight | None = None,
) -> Watched:
    """One episode from `state`, in world 0, as the policy was told of it.

    `open_loop` actions of each answer are executed; as many as an evaluation executes if not given. Raises
    MorphVlaError where the physics diverges.
    """
    observations, executed = [], open_loop or open_loop_at(worlds.suite.control_rate)

    def answer(observation: dict[str, Any]) -> Float[np.ndarray, "h j"]:
        """The actions that are executed of an answer; what the policy was told is kept."""
        (shown,) = [observation] if sight is None else sight.told([observation])
        observations.append(shown)
        return policy.infer(shown)["actions"][:executed]

    status = play(worlds, state, answer)
    if status.error is not None:
        raise MorphVlaError(status.error)
    return Watched(worlds.suite, state.episode, observations, status.ended)


def batches(
    policy: CheckpointPolicy, observations: Sequence[dict[str, Any]]
) -> Iterator[tuple[int, Observation]]:
    """Observations as the model takes them, and how many there are: batches are filled up by repetition."""
    for start in range(0, len(observations), policy.batch):
        part = observations[start : start + policy.batch]
        # By the last one: a policy that looks back is never shown an earlier step after a later one.
        yield len(part), policy.prepare([*part, *[part[-1]] * (policy.batch - len(part))])
