"""One action a control step, while the next chunk is on its way.

    policy = WebsocketClientPolicy("127.0.0.1", 8000)
    with ActionBroker(policy, open_loop=8) as broker:
        while working:
            robot.move_to(broker.infer(observe())["actions"])       # once a control step

    executed    a0 .. a7 | a8 a9 a10 | b3 b4 ...
    asked       a        b           |                   b was asked at a8, and took 3 control steps

A server that accepts `inference_delay` (`morph-vla serve --real-time`) goes on from what is executed
meanwhile; at any other, the robot switches to an answer when it arrives. NumPy, no JAX.
"""

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.serving.client import LateAnswerError, ServerGoneError, accepted

MEASURED = 10
"""The delay that is expected is the longest of so many answers."""


LOG = logging.getLogger(__name__)
_NUMBERS = itertools.count()
_LAST: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Of each client, which broker without a session asked last"""


@runtime_checkable
class Client(Protocol):
    """What a broker asks: a `client.WebsocketClientPolicy`."""

    def infer(self, obs: Mapping[str, Any]) -> Any:
        """An answer with `actions` [horizon, joints]."""
        ...

    def get_server_metadata(self) -> Mapping[str, Any]:
        """What the server says of itself."""
        ...

    def reset(self) -> None:
        """Begin another episode."""


class ActionBroker:
    """Executes chunks action by action, and asks for the next one `open_loop` steps into each.

    Of one robot: `infer` is called once a control step, from one thread.
    """

    def __init__(self, policy: Client, open_loop: int, *, session: str = "", delay: int = 0):
        """`session` tells robots on one connection apart; `delay` is expected until one was measured.

        Where brokers without a session share a connection, the last answer may be another's: none goes on
        from it, which is said once.
        An `open_loop` of more actions than a chunk has asks at the chunk's end, where the robot waits.
        Raises MorphVlaError for less than one action a chunk.
        """
        self._number, self._is_warned = next(_NUMBERS), False
        if open_loop < 1:
            raise MorphVlaError(f"open_loop must be at least 1 action, not {open_loop}")
        self._policy, self._open_loop, self._session = policy, open_loop, session
        metadata = policy.get_server_metadata()
        accepts = accepted(metadata)
        self._real_time = "inference_delay" in accepts
        # A client's own `reset` is said by whoever asks next, of all the robots that share it.
        self._says_reset = bool(session) and "reset" in accepts
        self._is_reset = False
        self._delay, self._delays = delay, deque[int](maxlen=MEASURED)  # kept from episode to episode
        self.stalls = 0
        """How often the robot had to wait, because an answer took longer than the chunk lasted"""
        self._begin()

    def _begin(self) -> None:
        self._chunk: np.ndarray | None = None
        self._answer: Mapping[str, Any] = {}
        self._pending: Future[Any] | None = None
        self._step = self._asked_at = 0  # of the chunk: the next row, and the one at which was asked

    def infer(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """The answer that is being executed, with the one action of this control step as its `actions`.

        The first call waits for an answer, and so does one that finds a chunk at its end. Raises as the
        policy's `infer`. What comes late is thrown away and asked for again as long as there are actions
        left, and so is what a server that is not to be reached was asked; where there are none the client's
        LateAnswerError or ServerGoneError says so, and the next call asks with what it observes. Raises
        MorphVlaError for an answer that is no chunk of finite actions: nothing of it is executed.
        """
        if self._chunk is None:
            self._take(self._policy.infer(self._question(obs)), 0)
            self._is_reset = False
        if self._pending is not None and self._pending.done():
            self._switch(obs)
        assert self._chunk is not None
        if self._pending is None and self._step >= min(self._open_loop, len(self._chunk)):
            self._ask(obs)
        if self._step >= len(self._chunk):
            self.stalls += 1
            while self._step >= len(self._chunk):
                if self._pending is None:  # the last answer was shorter than it took to come
                    self._ask(obs)
                self._switch(obs)
        row = self._chunk[self._step]
        self._step += 1
        return {**self._answer, "actions": row}

    def _question(self, obs: Mapping[str, Any], executed: int | None = None) -> dict[str, Any]:
        """An observation as a request: of which session, and where it is with its chunk."""
        executed = executed if self._asked_last() else None
        request = {**obs, "env_id": self._session} if self._session else dict(obs)
        if self._real_time:
            request["inference_delay"] = max(self._delays, default=self._delay)
            request |= {} if executed is None else {"executed_steps": executed}
        if self._is_reset and executed is None:
            request["reset"] = True
        return request

    def _asked_last(self) -> bool:
        """Whether the last answer to this session was this broker's; from now on it is."""
        if self._session:
            return True
        last: int | None = None
        with contextlib.suppress(TypeError):  # a client of which no weak reference can be had
            last, _LAST[self._policy] = _LAST.get(self._policy), self._number
        is_alone = last in (None, self._number)
        if self._real_time and self._chunk is not None and not is_alone and not self._is_warned:
            self._is_warned = True
            LOG.warning(
                "another robot asks through the same connection: give each broker a `session`; until then "
                "their answers do not go on from the last one"
            )
        return is_alone

    def _ask(self, obs: Mapping[str, Any]) -> None:
        self._asked_at = self._step
        self._pending = _asked(self._policy, self._question(obs, self._step))

    def _switch(self, obs: Mapping[str, Any]) -> None:
        """Execute the answer that was asked for, from the row that is due; waits for it."""
        pending, self._pending = self._pending, None
        assert pending is not None
        try:
            answer = pending.result()
        except (LateAnswerError, ServerGoneError):
            if self._chunk is None or self._step >= len(self._chunk):
                raise
            self._ask(obs)
            return
        delay = self._step - self._asked_at
        self._delays.append(delay)
        self._take(answer, delay)

    def _take(self, answer: Mapping[str, Any], step: int) -> None:
        chunk = np.asarray(answer.get("actions") if isinstance(answer, Mapping) else None)
        is_finite = chunk.dtype.kind in "fiu" and bool(np.isfinite(chunk).all())
        if chunk.ndim != 2 or not chunk.size or not is_finite:
            shown = f"type {chunk.dtype} and shape {chunk.shape}{'' if is_finite else ', not all finite'}"
            raise MorphVlaError(
                f"the policy's answer has actions of {shown}; expected finite numbers (horizon, joints)"
            )
        self._chunk, self._answer, self._step = chunk, answer, step

    def reset(self) -> None:
        """Begin another episode: what is under way is thrown away."""
        if self._pending is not None:
            self._pending.exception()
        self._begin()
        if self._says_reset:
            self._is_reset = True
        else:
            self._policy.reset()

    def close(self) -> None:
        """Leave what is under way: it is answered to nobody, and holds up no program that ends."""
        self._pending = None

    def __enter__(self) -> "ActionBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _asked(policy: Client, question: Mapping[str, Any]) -> Future[Any]:
    """The answer to come. A daemon thread waits for it: a pool's is joined before Python ends."""
    coming: Future[Any] = Future()

    def wait() -> None:
        """Ask, and hand over the answer or what was raised instead."""
        try:
            answer = policy.infer(question)
        except BaseException as error:
            coming.set_exception(error)
        else:
            coming.set_result(answer)

    Thread(target=wait, name="next chunk", daemon=True).start()
    return coming
