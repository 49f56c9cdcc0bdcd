"""How a policy is asked: in one thread of its own, against a clock, every answer checked.

A policy that raises, answers nonsense or does not answer in time is an error of the episodes it was asked
for, with its reason; one that is there no more (its server has ended) ends the evaluation. One thread, so
that a policy is never asked while it still works on an earlier question: a late answer is waited for and
thrown away, and only a policy that does not come back at all is given up.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from morph_vla.engines.engine import BatchPolicy, Observation, Policy
from morph_vla.errors import MorphVlaError, PolicyGoneError, words_of

# Checked actions [h, values]; a sentence where the policy failed; None where it could not be asked.
Outcome = Float[np.ndarray, "_ _"] | str | None
Read = Callable[[object], Float[np.ndarray, "_ _"]]  # an answer's actions; raises for one that is no answer
Work = Callable[[], list[object]]  # a call of the policy: its answers, not yet checked
GO_ON = "finished episodes are kept, and the same command goes on with the others"
FIRST = 10  # times the limit, for calls before one has returned: the policy may compile


class _Late(Exception):
    """The policy did not answer within the limit; the text says so."""


class _Failed(Exception):
    """The policy raised; the text is its error's."""


class Asker:
    """Asks `policy` for actions, checks its answers with `read`, and waits at most `seconds` per call.

    Use as a context manager. `notes` says, in sentences, what went wrong without costing an episode, and
    `spent` how long answers were waited for [s].
    """

    def __init__(self, policy: Policy, read: Read, seconds: float = 60.0):
        self._policy, self._read, self._seconds = policy, read, seconds
        self._returned = self._pending = False
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[list[object] | BaseException] = queue.SimpleQueue()
        self.notes: list[str] = []
        self.spent = 0.0
        # A daemon: a call that never returns must not keep the process alive.
        threading.Thread(target=self._serve, name="policy", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                self._done.put(work())
            except BaseException as error:  # whatever it is, the episode's record must say it
                self._done.put(error)

    def ask(self, observations: Sequence[Observation]) -> list[Outcome]:
        """Checked actions [h, values] per observation, or a sentence where the policy failed.

        A batch that fails as a whole is asked again one by one, so that a failure lands on its own episode;
        one that is late, only once the policy is back. None stands for an observation that could not be
        asked because the policy did not come back from an earlier one. Raises MorphVlaError when it still
        has not, and where it is there no more.
        """
        if not observations:
            return []
        begun = time.monotonic()
        try:
            if self._pending and not self._back():
                raise MorphVlaError(self._stuck())
            if isinstance(self._policy, BatchPolicy):
                return self._together(self._policy, observations)
            return self._one_by_one(observations)
        finally:
            self.spent += time.monotonic() - begun

    def _together(self, policy: BatchPolicy, observations: Sequence[Observation]) -> list[Outcome]:
        try:
            answers = self._call(lambda: list(policy.infer_batch(observations)))
        except _Late as late:
            if not self._back():
                return [f"policy: {late}, asked for {len(observations)} at once"] * len(observations)
            why = str(late)
        except _Failed as error:
            why = str(error)
        else:
            if len(answers) == len(observations):
                return [self._checked(answer) for answer in answers]
            why = f"{len(answers)} answers to {len(observations)} observations"
        note = f"the policy's infer_batch failed ({why}) and it was asked one by one"
        self.notes += [] if note in self.notes else [note]
        return self._one_by_one(observations)

    def _one_by_one(self, observations: Sequence[Observation]) -> list[Outcome]:
        answers: list[Outcome] = []
        for observation in observations:
            if self._pending and not self._back():
                return answers + [None] * (len(observations) - len(answers))
            try:
                (answer,) = self._call(lambda asked=observation: [self._policy.infer(asked)])
                answers.append(self._checked(answer))
            except (_Late, _Failed) as error:
                answers.append(f"policy: {error}")
        return answers

    def _call(self, work: Work) -> list[object]:
        """What `work` returns in the policy's thread; raises _Late, and _Failed where it raises."""
        self._work.put(work)
        self._pending = True
        return self._take()

    def _take(self) -> list[object]:
        limit = min(self._seconds if self._returned else FIRST * self._seconds, threading.TIMEOUT_MAX)
        try:
            answers = self._done.get(timeout=limit)
        except queue.Empty:
            raise _Late(f"no answer within {limit:g} s") from None
        self._pending = False
        if isinstance(answers, PolicyGoneError):
            raise MorphVlaError(f"{answers}; {GO_ON}") from answers
        if isinstance(answers, BaseException):
            raise _Failed(words_of(answers))
        self._returned = True
        return answers

    def _back(self) -> bool:
        """Whether the late call returns within the limit; what it returns came too late."""
        try:
            self._take()
        except _Late:
            return False
        except _Failed:
            pass
        return True

    def _checked(self, answer: object) -> Outcome:
        try:
            return self._read(answer)
        except Exception as error:
            return f"policy: {words_of(error)}"

    def _stuck(self) -> str:
        return (
            f"the policy is stuck: it does not come back from a call (limit {self._seconds:g} s, --timeout); "
            f"{GO_ON}"
        )

    def close(self) -> None:
        """End the thread, once the call it is in returns."""
        self._work.put(None)

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
