"""Episodes: the one loop of "act, measure, judge, stop", over the worlds of any engine.

An episode ends at success, when its time is up, when its object is lost, or where its physics diverged. One
that has ended takes no further step: later actions are ignored.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import numpy as np
from jaxtyping import Float

from morph_vla.engines import films
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import Frame, Observation, Worlds
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import InitialState

UNSETTLED = "the physics diverged while the world settled"


@dataclasses.dataclass(frozen=True)
class Status:
    """How an episode stands."""

    reading: criterion.Reading
    """The last that was measured."""
    progress: criterion.Progress
    ended: Literal["success", "time", "lost", "error"] | None = None
    """How it ended; None while it goes on."""
    error: str | None = None
    """What went wrong, a sentence."""

    @property
    def steps(self) -> int:
        """Control steps so far."""
        return self.progress.steps

    def failed(self, error: str) -> "Status":
        """The same episode, ended by an error."""
        return dataclasses.replace(self, ended="error", error=error)


class Episodes:
    """The episodes in `worlds`: world index -> `status`. A `pool.Stage`."""

    def __init__(self, worlds: Worlds):
        self.worlds, self.count, self.lockstep = worlds, worlds.count, worlds.lockstep
        self.status: dict[int, Status] = {}

    def prepare(self) -> None:
        """Make the renderer, so that a machine without EGL says so before the first episode."""
        for name in self.worlds.suite.cameras:
            self.worlds.render(0, name)

    def reset(self, states: Mapping[int, InitialState]) -> None:
        """Put worlds into initial states, let them settle, and begin an episode in each."""
        self.worlds.reset(states)
        self.begin(states)

    def begin(self, indices: Iterable[int]) -> None:
        """Begin an episode in each of these worlds, which stand as they were reset or brought.

        Raises MorphVlaError where the engine reads fewer objects than the suite asks for.
        """
        suite = self.worlds.suite
        for index in indices:
            reading = self.worlds.reading(index)
            read, asked = len(reading.every), len(suite.success.pairs)
            if read != asked:
                raise MorphVlaError(
                    f"{suite.path}: the engine reads {read} of {asked} objects (success.also); use mujoco"
                )
            status = Status(reading, criterion.begin(reading, suite.table.height))
            settled = bool(np.isfinite(self.worlds.state(index)).all())
            self.status[index] = status if settled else status.failed(UNSETTLED)

    def step(self, actions: Mapping[int, Float[np.ndarray, "j"]]) -> dict[int, Status]:
        """One control step of the episodes that still go on, each towards its action; how these now stand."""
        going = {index: row for index, row in actions.items() if self.status[index].ended is None}
        measured = self.worlds.step(going) if going else {}
        after = {index: self._judged(self.status[index], reading) for index, reading in measured.items()}
        self.status |= after
        return after

    def _judged(self, before: Status, measured: criterion.Reading | MorphVlaError) -> Status:
        if isinstance(measured, MorphVlaError):
            return before.failed(str(measured))
        suite = self.worlds.suite
        progress = criterion.update(before.progress, measured, suite.success, suite.control_rate)
        if progress.success_step is not None:
            return Status(measured, progress, "success")
        if progress.lost:
            return Status(measured, progress, "lost")
        return Status(measured, progress, "time" if progress.steps >= suite.max_steps else None)

    def observe(self, index: int) -> Observation:
        return self.worlds.observe(index)

    def film(self, index: int) -> Frame | None:
        return films.frame(self.worlds, index)

    def close(self) -> None:
        self.worlds.close()


def play(
    worlds: Worlds, state: InitialState, answer: Callable[[Observation], Float[np.ndarray, "h j"]]
) -> Status:
    """One episode from `state` in world 0: the actions that `answer` gives to what is seen are executed.

    Observations say `episode` and `step`, as a policy needs them.
    """
    worlds.reset({0: state})
    episodes = Episodes(worlds)
    episodes.begin([0])
    while (status := episodes.status[0]).ended is None:
        seen = {**worlds.observe(0), "episode": state.episode, "step": status.progress.steps}
        for action in answer(seen):
            episodes.step({0: action})
    return status
