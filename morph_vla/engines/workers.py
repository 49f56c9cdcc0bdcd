"""Worker processes that hold an engine each: worlds advance in parallel, policies stay in the parent.

A round trip carries a whole open-loop chunk of actions out and one observation back, so that frames are
rendered only where a policy looks. Messages are plain values over a pipe between processes we started; what
is sent for some slots runs while the parent does something else, such as asking the policy for others.

A worker that dies costs its worlds' episodes and nothing else: they are answered with `Lost`, and the worker
is started again, once. After that its slots are no longer usable.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla import robots
from morph_vla.engines import films
from morph_vla.engines import success as criterion
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import InitialState, Suite


@dataclasses.dataclass(frozen=True)
class Advance:
    """What a world did with a chunk of actions."""

    observation: dict[str, Any] | None  # None when the episode has ended
    progress: criterion.Progress
    reading: criterion.Reading
    frames: list[UInt8[np.ndarray, "h w 3"]]  # one per control step, when filmed
    error: str | None = None


GUARD = (
    "a new process imports the program that started it, so a script evaluates below "
    '`if __name__ == "__main__":`'
)
LOST_BEFORE = "a simulation worker died"


@dataclasses.dataclass(frozen=True)
class Lost:
    """What is left of a world whose worker died."""

    reason: str


@runtime_checkable
class Worlds(Protocol):
    """Slots in which episodes are played; `Pool` has them in processes."""

    slots: int
    width: int  # every `width` neighbouring slots lie in different workers

    def usable(self, slot: int) -> bool:
        """Whether the slot can take an episode."""
        ...

    def send(self, messages: dict[int, tuple[Any, ...]]) -> None:
        """Send slots ("begin", state, film) or ("advance", actions); returns at once."""
        ...

    def receive(self, slots: Collection[int]) -> dict[int, Advance | Lost]:
        """Wait for the answers of slots, each of which was sent a message."""
        ...


class World:
    """One environment slot of an engine: an episode in progress."""

    def __init__(self, engine: Any, index: int):
        self.engine, self.index = engine, index
        self.progress: criterion.Progress | None = None
        self.film = False
        self.spent = {"physics_s": 0.0, "frames_s": 0.0}

    def begin(self, state: InitialState, film: bool) -> Advance:
        """Reset to an initial state."""
        with self._timed("physics_s"):
            self.engine.reset(self.index, state)
        reading = self.engine.reading(self.index)
        self.progress, self.film = criterion.begin(reading), film
        return Advance(self._observe(), self.progress, reading, self._frame())

    def advance(self, actions: Float[np.ndarray, "h j"]) -> Advance:
        """Execute the chunk row by row until it, the episode's time or the task is done."""
        if self.progress is None:
            raise MorphVlaError("a world must be reset before it can take a step")
        suite, frames = self.engine.suite, []
        reading = self.engine.reading(self.index)
        for row in actions:
            with self._timed("physics_s"):
                reading = self.engine.step(self.index, row)
            self.progress = criterion.update(self.progress, reading, suite.success, suite.control_rate)
            frames += self._frame()
            if self.ended():
                return Advance(None, self.progress, reading, frames)
        return Advance(self._observe(), self.progress, reading, frames)

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - begun

    def _observe(self) -> dict[str, Any]:
        with self._timed("frames_s"):
            return self.engine.observe(self.index)

    def ended(self) -> bool:
        """Whether the episode has succeeded or run out of time."""
        progress = self.progress
        return progress is not None and (
            progress.success_step is not None or progress.steps >= self.engine.suite.max_steps
        )

    def _frame(self) -> list[UInt8[np.ndarray, "h w 3"]]:
        if not self.film:
            return []
        with self._timed("frames_s"):
            return [films.frame(self.engine, self.index)]


def serve(pipe: Any, suite: Suite, count: int) -> None:
    """The worker's loop: lists of ("begin", slot, state, film) and ("advance", slot, actions), until None.

    Each list is answered by (the answers in its order, seconds spent in this process by what on).
    """
    from morph_vla.engines.mujoco.engine import MujocoEngine

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    try:
        engine = MujocoEngine(robots.load(suite.robot), suite, count)
        # The renderer is made here, so that a machine without EGL says so before the first episode.
        for name in suite.cameras:
            engine.render(0, name)
        pipe.send(None)
    except Exception as error:  # whatever it is, the parent must hear of it
        pipe.send(error if isinstance(error, MorphVlaError) else MorphVlaError(traceback.format_exc()))
        return
    worlds = [World(engine, i) for i in range(count)]
    with contextlib.suppress(EOFError, OSError):
        sending = 0.0
        while (messages := pipe.recv()) is not None:
            answers = [_answer(worlds, *message) for message in messages]
            spent = {"pipe_s": sending, **_collected(worlds)}
            begun = time.perf_counter()
            pipe.send((answers, spent))
            sending = time.perf_counter() - begun
    engine.close()


def _collected(worlds: Sequence[World]) -> dict[str, float]:
    """Seconds the worlds spent since the last call, by what they spent them on."""
    total: dict[str, float] = {}
    for world in worlds:
        for what, seconds in world.spent.items():
            total[what] = total.get(what, 0.0) + seconds
            world.spent[what] = 0.0
    return total


def _answer(worlds: list[World], kind: str, slot: int, *arguments: Any) -> Advance:
    world = worlds[slot]
    try:
        return world.begin(*arguments) if kind == "begin" else world.advance(*arguments)
    except Exception as error:  # one episode's failure is that episode's, not the evaluation's
        reading = world.engine.reading(world.index)
        progress = world.progress or criterion.begin(reading)
        return Advance(None, progress, reading, [], error=f"simulation: {error}")


def check_main() -> None:
    """Raise MorphVlaError in a process that is only now importing the program which started it."""
    # `spawn` marks a process so while it imports that program, and refuses to start others meanwhile.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise MorphVlaError(f"an evaluation began in a simulation worker: {GUARD}")


class _Worker:
    """One place for a process: the one that runs there now, and what it has yet to answer."""

    def __init__(self, number: int, suite: Suite, count: int, inbox: queue.SimpleQueue):
        self.number, self._suite, self._count, self._inbox = number, suite, count, inbox
        self.starts, self.alive = 0, False
        self.asked: deque[list[int]] = deque()  # slots, one list per batch of messages under way

    def start(self) -> None:
        """Start a process; `ready` waits for it."""
        context = multiprocessing.get_context("spawn")  # renderers and JAX do not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self._suite, self._count), daemon=True)
        self.process.start()
        theirs.close()
        self.starts, self.alive = self.starts + 1, True

    def ready(self) -> None:
        """Wait for the process; raises MorphVlaError when it cannot start."""
        try:
            problem = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(timeout=5)
            code = self.process.exitcode
            if code is None or code < 0:  # killed by a signal
                raise MorphVlaError(self.died()) from error
            raise MorphVlaError(
                f"a simulation worker ended before it began (exit code {code}); its error is above; {GUARD}"
            ) from error
        if problem is not None:
            raise problem
        # Read in a thread, so that a worker never waits for a parent that is asking the policy.
        threading.Thread(target=self._read, args=(self.pipe, self.starts), daemon=True).start()

    def _read(self, pipe: Any, start: int) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._inbox.put((self.number, start, pipe.recv()))
        self._inbox.put((self.number, start, None))

    def died(self) -> str:
        """The sentence for a process that is gone."""
        self.process.join(timeout=5)
        return (
            f"a simulation worker died (exit code {self.process.exitcode}); "
            "a machine out of memory does that: try fewer parallel environments"
        )

    def close(self) -> None:
        """Stop the process."""
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.terminate()
        self.pipe.close()


class Pool:
    """`slots` worlds spread over worker processes; slot s lives in worker s % workers.

    Use as a context manager. Raises MorphVlaError when a worker cannot start. `spent` counts seconds of the
    workers by what they spent them on: physics, frames, the pipe.
    """

    def __init__(self, suite: Suite, slots: int, workers: int | None = None):
        self.slots = slots
        self.spent: dict[str, float] = {"physics_s": 0.0, "frames_s": 0.0, "pipe_s": 0.0}
        self._inbox: queue.SimpleQueue[tuple[int, int, Any]] = queue.SimpleQueue()
        self._answers: dict[int, Advance | Lost] = {}
        self._begun: dict[int, int] = {}  # slot -> the start of its worker in which its episode began
        self.width = count = max(1, min(slots, workers or os.cpu_count() or 1))
        self.workers = [_Worker(w, suite, len(range(w, slots, count)), self._inbox) for w in range(count)]
        for worker in self.workers:
            worker.start()
        try:
            for worker in self.workers:
                worker.ready()
        except MorphVlaError:
            self.close()
            raise

    def usable(self, slot: int) -> bool:
        """Whether the slot's worker lives, or can live again."""
        return self._worker(slot).alive

    def _worker(self, slot: int) -> _Worker:
        return self.workers[slot % len(self.workers)]

    def send(self, messages: dict[int, tuple[Any, ...]]) -> None:
        """Send each slot its message; `receive` has the answers."""
        batches: dict[int, list[int]] = {}
        for slot, message in messages.items():
            worker = self._worker(slot)
            if message[0] == "begin":
                self._begun[slot] = worker.starts
            if worker.alive and self._begun[slot] == worker.starts:
                batches.setdefault(worker.number, []).append(slot)
            else:
                self._answers[slot] = Lost(worker.died() if not worker.alive else LOST_BEFORE)
        for number, slots in batches.items():
            worker = self.workers[number]
            worker.asked.append(slots)
            with contextlib.suppress(OSError):  # a dead worker: its reader says so
                worker.pipe.send([(messages[s][0], s // len(self.workers), *messages[s][1:]) for s in slots])

    def receive(self, slots: Collection[int]) -> dict[int, Advance | Lost]:
        """Wait for the answers of these slots, each of which was sent a message."""
        while not all(slot in self._answers for slot in slots):
            number, start, answer = self._inbox.get()
            worker = self.workers[number]
            if start != worker.starts:
                continue
            if answer is None:
                self._bury(worker)
                continue
            answers, spent = answer
            self._answers.update(zip(worker.asked.popleft(), answers, strict=True))
            for what, seconds in spent.items():
                self.spent[what] += seconds
        return {slot: self._answers.pop(slot) for slot in slots}

    def _bury(self, worker: _Worker) -> None:
        """Answer for a worker that died, and start it again if this was the first time."""
        reason = worker.died()
        for slots in worker.asked:
            self._answers.update({slot: Lost(reason) for slot in slots})
        worker.asked.clear()
        worker.alive = False
        if worker.starts == 1:
            worker.start()
            try:
                worker.ready()
            except MorphVlaError:
                worker.alive = False

    def close(self) -> None:
        """Stop the workers."""
        for worker in self.workers:
            worker.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
