"""A task of one of our suites, stepped from outside: for frameworks that keep the loop themselves.

    stepper = Stepper(suite, count=2)
    stepper.reset({0: 17, 1: 18})            rows of the suite's table
    stepper.step({0: action, 1: action})     one control step of the episodes that still go on
    stepper.observe(0)                       what a policy is shown
    stepper.trial(0)                         the verdict, as a record has it, once the episode has ended

The same actions give the same episode as in `morph-vla eval`: the worlds, the criterion and the verdict are
the same objects.
"""

import uuid
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import Frame, Observation
from morph_vla.engines.episode import Status
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.simulated import Simulated
from morph_vla.results.trial import Trial
from morph_vla.suites.suite import InitialState, Suite, initial_state


class Stepper:
    """`count` episodes of one task side by side; episode `index` is always in the same world."""

    def __init__(self, suite: Suite, count: int = 1, engine: str = engines.DEFAULT):
        """Build the worlds. Raises MorphVlaError for an unknown engine, and for one that cannot run here."""
        self.suite, self.count, self.benchmark = suite, count, Simulated(suite, engine)
        self._episodes = engines.episodes(suite, engine, count)
        self.robot, self.lockstep = self._episodes.worlds.robot, self._episodes.lockstep
        self._states: dict[int, InitialState] = {}
        self._name = uuid.uuid4().hex

    @property
    def limits(self) -> tuple[Float[np.ndarray, "j"], Float[np.ndarray, "j"]]:
        """The least and the greatest value of each joint, dataset units; targets beyond are cut to them.

        Of a joint that turns without end half a turn either way, beyond which nothing is cut.
        """
        ends = self.robot.to_dataset(np.stack([self.robot.lower, self.robot.upper]))
        return ends.min(axis=0), ends.max(axis=0)

    def reset(self, rows: Mapping[int, int], *, stream: str = "evaluation") -> None:
        """Begin episodes: index -> row of the suite's table, or of another table that `stream` names.

        Raises MorphVlaError for a row below 0, and where the engine's worlds can only move together and
        others would go on.
        """
        if wrong := [row for row in rows.values() if row < 0]:
            raise MorphVlaError(f"suite '{self.suite.label}': rows are counted from 0, not {wrong[0]}")
        going_on = [i for i, status in self._episodes.status.items() if i not in rows and not status.ended]
        if rows and self.lockstep and going_on:
            raise MorphVlaError(
                "these worlds move together: reset all of them at once, or wait until every episode has ended"
                f" ({len(going_on)} would go on)"
            )
        joints = len(self.robot.joints)
        states = {i: initial_state(self.suite, row, joints, stream=stream) for i, row in rows.items()}
        self._episodes.reset(states)
        self._states |= states

    def step(self, actions: Mapping[int, Float[np.ndarray, "_"]]) -> Mapping[int, Status]:
        """One control step towards joint targets in dataset units; how the episodes that took it now stand.

        An episode that has ended takes no step. Raises MorphVlaError for one that has not begun, and for an
        action of another width or with values that are not finite.
        """
        for index, action in actions.items():
            self.status(index)
            self._check(action)
        return self._episodes.step(actions)

    def _check(self, action: Float[np.ndarray, "_"]) -> None:
        names, bad = self.robot.names, int((~np.isfinite(action)).sum())
        if len(action) != len(names):
            raise MorphVlaError(
                f"an action has {len(action)} values; expected one per joint ({', '.join(names)})"
            )
        if bad:
            raise MorphVlaError(f"an action has {bad} values that are not finite")

    def status(self, index: int) -> Status:
        """How an episode stands; raises MorphVlaError for one that has not begun."""
        if index not in self._states:
            raise MorphVlaError(f"episode {index} of {self.count} has not begun: reset it first")
        return self._episodes.status[index]

    def observe(self, index: int) -> Observation:
        """All that a policy is shown, `episode` and `step` included; see `engines.engine`."""
        moment = {"episode": self._states[index].episode, "step": self.status(index).steps}
        return {**self._episodes.observe(index), "connection": self._name, **moment}

    def trial(self, index: int) -> Trial | None:
        """What a record says of an episode; None while it goes on."""
        status = self.status(index)
        if status.ended is None:
            return None
        error = status.error and f"simulation: {status.error}"
        return self.benchmark.trial(self._states[index], status, error)

    def film(self, index: int) -> Frame | None:
        """The scene as a person would look at it; no policy sees this."""
        return self._episodes.film(index)

    def close(self) -> None:
        """Give renderers and memory back."""
        self._episodes.close()
