"""Worker processes that hold an engine each: worlds advance in parallel, policies stay in the parent.

A round trip carries a whole open-loop chunk of actions out and one observation back, so that frames are
rendered only where a policy looks. Messages are plain values over a pipe between processes we started; what
is sent for some slots runs while the parent does something else, such as asking the policy for others.

A worker that dies costs its worlds' episodes and nothing else: they are answered with `Lost`, and the worker
is started again, once. After that its slots are no longer usable.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Collection, Mapping
from multiprocessing.connection import Connection

from morph_vla.engines.pool import Answer, Begin, Build, LocalPool, Lost, Message, Pool, no_time
from morph_vla.errors import MorphVlaError

Report = tuple[list[Answer], dict[str, float]]  # of a worker: answers in order, seconds by what they went to
Inbox = queue.SimpleQueue[tuple[int, int, Report | None]]  # (worker, its start, its report; None: it is gone)
GUARD = (
    "a new process imports the program that started it, so a script evaluates below "
    '`if __name__ == "__main__":`'
)
LOST_BEFORE = "a simulation worker died"


def serve(pipe: Connection, build: Build, count: int) -> None:
    """The worker's loop: lists of (slot, message) until None.

    Each list is answered by (the answers in its order, seconds spent in this process by what on).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    with contextlib.suppress(OSError):  # no stderr
        os.dup2(2, 1)  # what a simulator prints is no part of the command's answer
    try:
        pool = LocalPool(build(count))
        pool.stage.prepare()
        pipe.send(None)
    except Exception as error:  # whatever it is, the parent must hear of it
        pipe.send(error if isinstance(error, MorphVlaError) else MorphVlaError(traceback.format_exc()))
        return
    with contextlib.suppress(EOFError, OSError):
        while (messages := pipe.recv()) is not None:
            answers = [_answer(pool, slot, message) for slot, message in messages]
            spent, pool.spent = pool.spent, no_time()
            begun = time.perf_counter()
            pipe.send((answers, spent))
            pool.spent["pipe_s"] = time.perf_counter() - begun
    pool.close()


def _answer(pool: LocalPool, slot: int, message: Message) -> Answer:
    """One slot's answer; an exception is that episode's failure, not the evaluation's."""
    try:
        pool.send({slot: message})
        return pool.receive([slot])[slot]
    except Exception as error:
        if isinstance(message, Begin) or slot not in pool.stage.status:
            pool.stage.begin([slot])
        return Answer(pool.stage.status[slot].failed(f"simulation: {error}"), None, [])


def check_main() -> None:
    """Raise MorphVlaError in a process that is only now importing the program which started it."""
    # `spawn` marks a process so while it imports that program, and refuses to start others meanwhile.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise MorphVlaError(f"an evaluation began in a simulation worker: {GUARD}")


class _Worker:
    """One place for a process: the one that runs there now, and what it has yet to answer."""

    def __init__(self, number: int, serving: tuple[Build, int], inbox: Inbox):
        """`serving`: what `serve` is given besides its end of the pipe."""
        self.number, self._serving, self._inbox = number, serving, inbox
        self.starts, self.alive = 0, False
        self.asked: deque[list[int]] = deque()  # slots, one list per batch of messages under way

    def start(self) -> None:
        """Start a process; `ready` waits for it."""
        context = multiprocessing.get_context("spawn")  # renderers and JAX do not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, *self._serving), daemon=True)
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
                f"a simulation worker ended before it was ready (exit code {code}); its error is above; "
                f"{GUARD}"
            ) from error
        if problem is not None:
            raise problem
        # Read in a thread, so that a worker never waits for a parent that is asking the policy.
        threading.Thread(target=self._read, args=(self.pipe, self.starts), daemon=True).start()

    def _read(self, pipe: Connection, start: int) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._inbox.put((self.number, start, pipe.recv()))
        self._inbox.put((self.number, start, None))

    def died(self) -> str:
        """The sentence for a process that is gone."""
        self.process.join(timeout=5)
        return (
            f"a simulation worker died (exit code {self.process.exitcode}); "
            "this happens when memory runs out: try fewer parallel environments"
        )

    def close(self) -> None:
        """Stop the process."""
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.terminate()
        self.pipe.close()


class WorkerPool(Pool):
    """`slots` places of a task, spread over worker processes; slot s lives in worker s % workers.

    Raises MorphVlaError when a worker cannot start. `spent` counts seconds of the workers.
    """

    def __init__(self, build: Build, slots: int, workers: int | None = None):
        self.slots, self.waves = slots, False
        self.spent = no_time()
        self._inbox: Inbox = queue.SimpleQueue()
        self._answers: dict[int, Answer | Lost] = {}
        self._begun: dict[int, int] = {}  # slot -> the start of its worker in which its episode began
        self.width = count = max(1, min(slots, workers or os.cpu_count() or 1))
        self.workers = [_Worker(w, (build, len(range(w, slots, count))), self._inbox) for w in range(count)]
        for worker in self.workers:
            worker.start()
        try:
            for worker in self.workers:
                worker.ready()
        except MorphVlaError:
            self.close()
            raise

    def _worker(self, slot: int) -> _Worker:
        return self.workers[slot % len(self.workers)]

    def usable(self, slot: int) -> bool:
        """Whether the slot's worker lives, or can live again."""
        return self._worker(slot).alive

    def send(self, messages: Mapping[int, Message]) -> None:
        """Send each worker the messages of its slots in one list; those of a dead one are lost."""
        batches: dict[int, list[int]] = {}
        for slot, message in messages.items():
            worker = self._worker(slot)
            if isinstance(message, Begin):
                self._begun[slot] = worker.starts
            if worker.alive and self._begun[slot] == worker.starts:
                batches.setdefault(worker.number, []).append(slot)
            else:
                self._answers[slot] = Lost(worker.died() if not worker.alive else LOST_BEFORE)
        for number, slots in batches.items():
            worker = self.workers[number]
            worker.asked.append(slots)
            with contextlib.suppress(OSError):  # a dead worker: its reader says so
                worker.pipe.send([(slot // len(self.workers), messages[slot]) for slot in slots])

    def receive(self, slots: Collection[int]) -> dict[int, Answer | Lost]:
        """Wait for the answers of these slots; others that come meanwhile are kept."""
        while not all(slot in self._answers for slot in slots):
            number, start, report = self._inbox.get()
            worker = self.workers[number]
            if start != worker.starts:
                continue
            if report is None:
                self._bury(worker)
                continue
            answers, spent = report
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
        """End every worker."""
        for worker in self.workers:
            worker.close()
