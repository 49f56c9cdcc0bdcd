"""Worker processes that hold an engine each: worlds advance in parallel, policies stay in the parent.

A round trip carries a whole open-loop chunk of actions out and one observation back, so that frames are
rendered only where a policy looks. Messages are plain values over a pipe between processes we started.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import traceback
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.sim import success as criterion
from morph_vla.sim.suite import InitialState, Suite


@dataclasses.dataclass(frozen=True)
class Advance:
    """What a world did with a chunk of actions."""

    observation: dict[str, Any] | None  # None when the episode has ended
    progress: criterion.Progress
    reading: criterion.Reading
    frames: list[UInt8[np.ndarray, "h w 3"]]  # one per control step, all cameras side by side, when filmed
    error: str | None = None


class World:
    """One environment slot of an engine: an episode in progress."""

    def __init__(self, engine: Any, index: int):
        self.engine, self.index = engine, index
        self.progress: criterion.Progress | None = None
        self.film = False

    def begin(self, state: InitialState, film: bool) -> Advance:
        """Reset to an initial state."""
        self.engine.reset(self.index, state)
        reading = self.engine.reading(self.index)
        self.progress, self.film = criterion.begin(reading), film
        return Advance(self.engine.observe(self.index), self.progress, reading, self._frame())

    def advance(self, actions: Float[np.ndarray, "h j"]) -> Advance:
        """Execute the chunk row by row until it, the episode's time or the task is done."""
        if self.progress is None:
            raise MorphVlaError("a world must be reset before it can take a step")
        suite, frames = self.engine.suite, []
        reading = self.engine.reading(self.index)
        for row in actions:
            reading = self.engine.step(self.index, row)
            self.progress = criterion.update(self.progress, reading, suite.success, suite.control_rate)
            frames += self._frame()
            if self.ended():
                return Advance(None, self.progress, reading, frames)
        return Advance(self.engine.observe(self.index), self.progress, reading, frames)

    def ended(self) -> bool:
        """Whether the episode has succeeded or run out of time."""
        progress = self.progress
        return progress is not None and (
            progress.success_step is not None or progress.steps >= self.engine.suite.max_steps
        )

    def _frame(self) -> list[UInt8[np.ndarray, "h w 3"]]:
        if not self.film:
            return []
        views = [self.engine.render(self.index, name) for name in self.engine.suite.cameras]
        height = min(view.shape[0] for view in views)
        return [np.concatenate([view[:height] for view in views], axis=1)]


def serve(pipe: Any, suite: Suite, count: int) -> None:
    """The worker's loop: answer ("begin", slot, state, film), ("advance", slot, actions) until None."""
    from morph_vla.sim.mujoco import MujocoEngine

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
        while (messages := pipe.recv()) is not None:
            pipe.send([_answer(worlds, *message) for message in messages])
    engine.close()


def _answer(worlds: list[World], kind: str, slot: int, *arguments: Any) -> Advance:
    world = worlds[slot]
    try:
        return world.begin(*arguments) if kind == "begin" else world.advance(*arguments)
    except Exception as error:  # one episode's failure is that episode's, not the evaluation's
        reading = world.engine.reading(world.index)
        progress = world.progress or criterion.begin(reading)
        return Advance(None, progress, reading, [], error=f"simulation: {error}")


class Pool:
    """`slots` worlds spread over worker processes; slot s lives in worker s % workers.

    Use as a context manager. Raises MorphVlaError when a worker cannot start or dies.
    """

    def __init__(self, suite: Suite, slots: int, workers: int | None = None):
        self.slots = slots
        self._count = max(1, min(slots, workers or os.cpu_count() or 1))
        context = multiprocessing.get_context("spawn")  # renderers and JAX do not survive a fork
        self._pipes, self._processes = [], []
        for worker in range(self._count):
            ours, theirs = context.Pipe()
            places = len(range(worker, slots, self._count))
            process = context.Process(target=serve, args=(theirs, suite, places), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for worker in range(self._count):
            problem = self._receive(worker)
            if problem is not None:
                self.close()
                raise problem

    def run(self, messages: dict[int, tuple[Any, ...]]) -> dict[int, Advance]:
        """Send each slot its message and wait for all answers."""
        per_worker: dict[int, list[int]] = {}
        for slot in messages:
            per_worker.setdefault(slot % self._count, []).append(slot)
        for worker, slots in per_worker.items():
            batch = [(messages[s][0], s // self._count, *messages[s][1:]) for s in slots]
            self._pipes[worker].send(batch)
        answers: dict[int, Advance] = {}
        for worker, slots in per_worker.items():
            answers.update(zip(slots, self._receive(worker), strict=True))
        return answers

    def _receive(self, worker: int) -> Any:
        try:
            return self._pipes[worker].recv()
        except EOFError as error:
            code = self._processes[worker].exitcode
            raise MorphVlaError(
                f"a simulation worker died (exit code {code}); a machine out of memory does that: "
                "try fewer parallel environments"
            ) from error

    def close(self) -> None:
        """Stop the workers."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            with contextlib.suppress(OSError):
                pipe.send(None)
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
            pipe.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
