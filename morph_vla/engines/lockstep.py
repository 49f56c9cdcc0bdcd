"""Worlds that can only step together, behind the contract that worker processes have (`workers.Pool`).

A world cannot settle while its neighbours stand still, so that episodes begin in waves: the next ones start
when every one of this wave has ended. Worlds whose episode has ended hold their last target; nobody looks.
What an episode meets does not depend on the wave or on the number of worlds.
"""

import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla.engines import films
from morph_vla.engines import success as criterion
from morph_vla.engines.success import Reading
from morph_vla.engines.workers import Advance
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import InitialState


class OneByOne:
    """The worlds of an `engine.Engine` behind the contract of `engine.Worlds`: each is told in turn."""

    def __init__(self, engine: Any):
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def reset(self, states: Mapping[int, InitialState]) -> None:
        """Put worlds into initial states and let them settle."""
        for index, state in states.items():
            self.engine.reset(index, state)

    def step(self, actions: Mapping[int, Float[np.ndarray, "j"]]) -> dict[int, Reading | MorphVlaError]:
        """Advance the named worlds by one control step."""
        found: dict[int, Reading | MorphVlaError] = {}
        for index, action in actions.items():
            try:
                found[index] = self.engine.step(index, action)
            except MorphVlaError as error:
                found[index] = error
        return found


class LockstepPool:
    """The slots of a pool as worlds of one engine, in this process; use as a context manager.

    `waves` tells who hands out episodes to begin only when none is under way. `spent` counts seconds by
    what they were spent on.
    """

    waves = True

    def __init__(self, worlds: Any):
        self._worlds, self.slots, self.width = worlds, worlds.count, 1
        self.spent: dict[str, float] = {"physics_s": 0.0, "frames_s": 0.0, "pipe_s": 0.0}
        self._progress: dict[int, criterion.Progress] = {}
        self._readings: dict[int, Reading] = {}
        self._filmed: set[int] = set()
        self._answers: dict[int, Advance] = {}

    def usable(self, slot: int) -> bool:
        """Every slot is, as long as this process lives."""
        return 0 <= slot < self.slots

    def send(self, messages: Mapping[int, tuple[Any, ...]]) -> None:
        """Carry out ("begin", state, film) or ("advance", actions) for slots; `receive` has the answers.

        Raises MorphVlaError when some slots are to begin while others go on, and for chunks of several
        lengths.
        """
        kinds = {message[0] for message in messages.values()}
        if kinds == {"begin"}:
            self._begin({slot: message[1:] for slot, message in messages.items()})
        elif kinds == {"advance"}:
            self._advance({slot: message[1] for slot, message in messages.items()})
        elif kinds:
            raise MorphVlaError(
                "worlds that step together begin together: some were to begin, others to go on"
            )

    def receive(self, slots: Collection[int]) -> dict[int, Advance]:
        """The answers of these slots, each of which was sent a message."""
        return {slot: self._answers.pop(slot) for slot in slots}

    def run(self, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Advance]:
        """`send`, then `receive`."""
        self.send(messages)
        return self.receive(messages)

    def _begin(self, begun: Mapping[int, tuple[InitialState, bool]]) -> None:
        began = time.perf_counter()
        self._worlds.reset({slot: state for slot, (state, _) in begun.items()})
        self._readings = {slot: self._worlds.reading(slot) for slot in begun}
        self.spent["physics_s"] += time.perf_counter() - began
        self._progress = {slot: criterion.begin(reading) for slot, reading in self._readings.items()}
        self._filmed = {slot for slot, (_, film) in begun.items() if film}
        for slot in begun:
            self._answers[slot] = self._answer(slot, self._frames(slot))

    def _advance(self, chunks: Mapping[int, Float[np.ndarray, "h j"]]) -> None:
        """Execute the chunks row by row until they, the episode's time or the task are done."""
        lengths = sorted({len(rows) for rows in chunks.values()})
        if len(lengths) > 1:
            raise MorphVlaError(
                f"worlds that step together need answers of one length, not of {lengths} actions: "
                f"lower --open-loop to {lengths[0]}"
            )
        suite = self._worlds.suite
        frames: dict[int, list[UInt8[np.ndarray, "h w 3"]]] = {slot: [] for slot in chunks}
        for row in range(lengths[0] if lengths else 0):
            going = [slot for slot in chunks if slot not in self._answers]
            if not going:
                break
            began = time.perf_counter()
            found = self._worlds.step({slot: chunks[slot][row] for slot in going})
            self.spent["physics_s"] += time.perf_counter() - began
            for slot, reading in found.items():
                if isinstance(reading, MorphVlaError):
                    self._answers[slot] = self._ended(slot, frames[slot], f"simulation: {reading}")
                    continue
                self._readings[slot] = reading
                now = criterion.update(self._progress[slot], reading, suite.success, suite.control_rate)
                self._progress[slot] = now
                frames[slot] += self._frames(slot)
                if now.success_step is not None or now.steps >= suite.max_steps:
                    self._answers[slot] = self._ended(slot, frames[slot])
        for slot in chunks:
            if slot not in self._answers:
                self._answers[slot] = self._answer(slot, frames[slot])

    def _ended(self, slot: int, frames: list[Any], error: str | None = None) -> Advance:
        return Advance(None, self._progress[slot], self._readings[slot], frames, error)

    def _answer(self, slot: int, frames: list[Any]) -> Advance:
        began = time.perf_counter()
        observation = self._worlds.observe(slot)
        self.spent["frames_s"] += time.perf_counter() - began
        return Advance(observation, self._progress[slot], self._readings[slot], frames)

    def _frames(self, slot: int) -> list[UInt8[np.ndarray, "h w 3"]]:
        """What its film shows of a slot now, when filmed."""
        if slot not in self._filmed:
            return []
        began = time.perf_counter()
        film = films.frame(self._worlds, slot)
        self.spent["frames_s"] += time.perf_counter() - began
        return [film]

    def close(self) -> None:
        """Give the engine back."""
        self._worlds.close()

    def __enter__(self) -> "LockstepPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
