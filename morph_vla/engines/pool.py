"""Pools: slots in which episodes are played, wherever their worlds live.

A slot is told to begin an episode or to execute a chunk of actions, and answers with how the episode stands
and what is seen; frames are rendered only where a policy looks. `LocalPool` has the worlds in this process,
`workers.WorkerPool` in others. Whose worlds they are is the business of their `Stage`.

Worlds that can only step together begin in waves: one cannot settle while its neighbours stand still, so the
next episodes start when every one of this wave has ended. What an episode meets does not depend on the wave.
"""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from morph_vla.engines.engine import Frame, Observation
from morph_vla.errors import MorphVlaError, reason, words_of
from morph_vla.suites.suite import InitialState

LOG = logging.getLogger(__name__)


@runtime_checkable
class Verdict(Protocol):
    """How an episode stands, whoever judges it: `episode.Status` of our engines says more."""

    @property
    def steps(self) -> int:
        """Control steps so far."""
        ...

    @property
    def ended(self) -> str | None:
        """How it ended, as a `Trial` says it; None while it goes on."""
        ...

    @property
    def error(self) -> str | None:
        """What went wrong, a sentence."""
        ...

    def failed(self, error: str) -> "Verdict":
        """The same episode, ended by an error."""
        ...


@runtime_checkable
class Stage(Protocol):
    """`count` episodes of one task side by side: reset by row, observe, step, verdict.

    `episode.Episodes` is one over the worlds of any of our engines, which measure and are judged here; other
    simulators place, measure and judge themselves (`gymnasium.stage`).
    """

    count: int
    lockstep: bool
    """Whether all episodes take a step when one does."""

    @property
    def status(self) -> Mapping[int, Verdict]:
        """Of each episode that has begun."""
        ...

    def prepare(self) -> None:
        """Make what the first episode would otherwise wait for; raises MorphVlaError where that fails."""

    def reset(self, states: Mapping[int, InitialState]) -> None:
        """Begin an episode in each of these places."""

    def begin(self, indices: Collection[int]) -> None:
        """Count an episode as begun in places that could not be reset."""

    def step(self, actions: Mapping[int, Float[np.ndarray, "_"]]) -> Mapping[int, Verdict]:
        """One control step of the episodes that still go on; how these now stand."""
        ...

    def observe(self, index: int) -> Observation:
        """What a policy is shown, without `episode` and `step`."""
        ...

    def film(self, index: int) -> Frame | None:
        """What a film shows now; None where there is nothing to see."""
        ...

    def close(self) -> None:
        """Give renderers, processes and memory back."""


Build = Callable[[int], Stage]
"""Makes a stage of so many places; it goes to worker processes."""


@dataclasses.dataclass(frozen=True)
class Begin:
    """Tells a slot to begin an episode, filmed or not."""

    state: InitialState
    film: bool = False


@dataclasses.dataclass(frozen=True)
class Execute:
    """Tells a slot to execute actions (dataset units), until they or its episode end."""

    actions: Float[np.ndarray, "h j"]


Message = Begin | Execute
Entered = TypeVar("Entered")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a slot did with a message."""

    status: Verdict
    observation: Observation | None
    """None when the episode has ended."""
    frames: list[Frame]
    """One per control step, and one of the beginning, where the episode is filmed."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """What is left of a world whose worker died."""

    reason: str


@runtime_checkable
class Pool(Protocol):
    """Slots in which episodes are played; a context manager."""

    slots: int
    width: int
    """Every `width` neighbouring slots lie in different workers."""
    waves: bool
    """Whether episodes may begin only when none is under way."""
    spent: dict[str, float]
    """Seconds by what they were spent on: physics, frames, the pipe."""

    def usable(self, slot: int) -> bool:
        """Whether the slot can take an episode."""
        ...

    def send(self, messages: Mapping[int, Message]) -> None:
        """Send slots a message each; `receive` has the answers."""

    def receive(self, slots: Collection[int]) -> Mapping[int, Answer | Lost]:
        """Wait for the answers of slots, each of which was sent a message."""
        ...

    def close(self) -> None:
        """Give the worlds back."""

    def __enter__(self: Entered) -> Entered:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def no_time() -> dict[str, float]:
    """Nothing spent yet [s]."""
    return {"physics_s": 0.0, "frames_s": 0.0, "pipe_s": 0.0}


class LocalPool(Pool):
    """The places of one stage as slots, in this process; `send` returns when all is done."""

    def __init__(self, stage: Stage):
        self.stage = stage
        self.slots, self.width, self.waves = stage.count, 1, stage.lockstep
        self.spent = no_time()
        self._filmed: set[int] = set()
        self._answers: dict[int, Answer] = {}

    def usable(self, slot: int) -> bool:
        return 0 <= slot < self.slots

    def send(self, messages: Mapping[int, Message]) -> None:
        """Carry messages out.

        Raises MorphVlaError when some slots are to begin while others go on, and for chunks of several
        lengths.
        """
        begun = {slot: message for slot, message in messages.items() if isinstance(message, Begin)}
        chunks = {slot: message.actions for slot, message in messages.items() if isinstance(message, Execute)}
        if begun and chunks:
            raise MorphVlaError(
                "worlds that step together begin their episodes together, and some were to go on with theirs"
            )
        frames = self._begin(begun) if begun else self._execute(chunks)
        for slot in messages:
            status, seen = self.stage.status[slot], None
            if status.ended is None:
                try:
                    with self._timed("frames_s"):
                        seen = self.stage.observe(slot)
                except Exception as error:  # of whatever renders: the other places go on
                    status = status.failed(words_of(error))
            if status.error is not None:
                status = status.failed(f"simulation: {status.error}")
            self._answers[slot] = Answer(status, seen, frames[slot])

    def receive(self, slots: Collection[int]) -> dict[int, Answer]:
        return {slot: self._answers.pop(slot) for slot in slots}

    def _begin(self, begun: Mapping[int, Begin]) -> dict[int, list[Frame]]:
        with self._timed("physics_s"):
            self.stage.reset({slot: message.state for slot, message in begun.items()})
        self._filmed -= begun.keys()
        self._filmed |= {slot for slot, message in begun.items() if message.film}
        return {slot: self._film(slot) for slot in begun}

    def _execute(self, chunks: Mapping[int, Float[np.ndarray, "_ _"]]) -> dict[int, list[Frame]]:
        """Execute chunks row by row; what their films show."""
        lengths = sorted({len(rows) for rows in chunks.values()})
        if len(lengths) > 1:
            raise MorphVlaError(
                f"worlds that step together need answers of one length, not of {lengths} actions: "
                f"lower --open-loop to {lengths[0]}"
            )
        frames: dict[int, list[Frame]] = {slot: [] for slot in chunks}
        for row in range(max(lengths, default=0)):
            with self._timed("physics_s"):
                moved = self.stage.step({slot: rows[row] for slot, rows in chunks.items()})
            for slot, status in moved.items():
                frames[slot] += self._film(slot) if status.error is None else []
        return frames

    def _film(self, slot: int) -> list[Frame]:
        if slot not in self._filmed:
            return []
        try:
            with self._timed("frames_s"):
                frame = self.stage.film(slot)
        except Exception as error:  # of whatever renders: an episode that cannot be filmed is still one
            self._filmed.discard(slot)
            LOG.warning("an episode is not filmed: %s", reason(error))
            return []
        return [] if frame is None else [frame]

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - begun

    def close(self) -> None:
        self.stage.close()
