"""One thread that owns the policy: what waits from all connections is computed together.

    connections   a . . . . a . . .          a batch begins when it is full, when every connection has asked,
                  . b . . . . b . .          or when the first in it has waited `wait_s`
    worker        wait |a b     | wait ...

What the policy compiles is compiled first, in the same thread: `compiled` says when it is.
"""

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future

from morph_vla.engines.engine import BatchPolicy, Observation
from morph_vla.errors import MorphVlaError, words_of

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Computed:
    """A policy's answer, and how long it took [s]."""

    answer: Mapping[str, object]
    waited_s: float
    """Until its batch began"""
    infer_s: float
    """Of its batch"""
    company: int
    """Observations in its batch, this one too"""


@dataclasses.dataclass(frozen=True)
class _Job:
    observation: Observation
    asker: Hashable
    answer: "Future[Computed]"
    since: float


class Worker:
    """Computes what is submitted, `batch` observations at most at once. A context manager."""

    def __init__(
        self,
        policy: BatchPolicy,
        batch: int,
        wait_s: float,
        askers: Callable[[], int],
        warm: Sequence[Sequence[Observation]] = (),
    ):
        """`askers` is how many connections there are, each of which asks again only once it is answered.

        `warm` are batches that are computed first.
        """
        self._policy, self._batch, self._wait_s, self._askers = policy, batch, wait_s, askers
        self._warm, self._closing = warm, threading.Event()
        self.compiled: Future[None] = Future()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)

    def start(self) -> None:
        """Begin to compute."""
        self.compiled.set_running_or_notify_cancel()  # who waits for it may leave, but not cancel it
        self._thread.start()

    def submit(self, observations: Sequence[Observation], asker: Hashable) -> "list[Future[Computed]]":
        """A future for each observation; cancelled ones are not computed."""
        jobs = [_Job(observation, asker, Future(), time.monotonic()) for observation in observations]
        for job in jobs:
            self._jobs.put(job)
        return [job.answer for job in jobs]

    def close(self, wait_s: float = 10.0) -> None:
        """End the thread once its batch is computed; what still waits is not."""
        self._closing.set()
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(wait_s)

    def _run(self) -> None:
        try:
            for batch in self._warm:
                if self._closing.is_set():
                    break
                self._policy.infer_batch(batch)
        except Exception as error:
            self.compiled.set_exception(_failed(error))
        else:
            self.compiled.set_result(None)
        while jobs := self._gather():
            live = [job for job in jobs if job.answer.set_running_or_notify_cancel()]
            if live:
                self._compute(live)

    def _gather(self) -> list[_Job]:
        """The jobs of the next batch; none at the end."""
        first = self._jobs.get()
        if first is None:
            return []
        jobs, until = [first], time.monotonic() + self._wait_s
        while len(jobs) < self._batch:
            waited_for = len({job.asker for job in jobs}) < self._askers()
            try:
                job = self._jobs.get(timeout=max(0.0, until - time.monotonic()) if waited_for else 0.0)
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)  # for the next turn
                break
            jobs.append(job)
        return jobs

    def _compute(self, jobs: Sequence[_Job]) -> None:
        """Answer a batch; where it fails as a whole, one by one, so that a failure finds its own question."""
        begun = time.monotonic()
        try:
            answers = list(self._policy.infer_batch([job.observation for job in jobs]))
            if len(answers) != len(jobs):
                raise MorphVlaError(f"the policy gave {len(answers)} answers to {len(jobs)} observations")
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._compute([job])
                return
            jobs[0].answer.set_exception(_failed(error))
            return
        took = time.monotonic() - begun
        for job, answer in zip(jobs, answers, strict=True):
            job.answer.set_result(Computed(answer, begun - job.since, took, len(jobs)))


def _failed(error: Exception) -> MorphVlaError:
    LOG.debug("the policy failed", exc_info=error)
    return MorphVlaError(f"the policy failed: {words_of(error)}")
