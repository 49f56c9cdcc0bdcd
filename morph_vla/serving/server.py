"""A policy server of openpi's websocket protocol. The event loop only moves bytes; `worker` computes.

    client                          server
      | -- GET / (Api-Key) ----------> |
      | <------------- metadata ------ |   card.Card
      | -- observation --------------> |   requests.read, in a thread; then the worker's batch
      | <--------------- answer ------ |   requests.write; or a text frame, the sentence of a fault
      | -- GET /healthz -------------> |   200 once the policy is compiled, 503 before

A fault costs one sentence: the connection and the server live on. Only a frame that is too large ends its
connection (code 1009), because the rest of it would have to be read.
"""

import asyncio
import contextlib
import hmac
import http
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from morph_vla.data.presets import Unit
from morph_vla.engines.engine import BatchPolicy, Observation
from morph_vla.errors import MorphVlaError, reason, require
from morph_vla.findings import visible
from morph_vla.serving import bounds, requests, units, wire
from morph_vla.serving import card as cards
from morph_vla.serving.bounds import Bounds
from morph_vla.serving.card import Card
from morph_vla.serving.keys import by_another_name
from morph_vla.serving.requests import Request, Sessions, Spent
from morph_vla.serving.settings import Settings
from morph_vla.serving.worker import Computed, Worker

LOG = logging.getLogger(__name__)
MAX_SENTENCE = 1000
DEFAULT = Settings()


class PolicyServer:
    """Serves one policy. `port` is known once it listens, `is_ready` set once it has computed something."""

    def __init__(self, policy: BatchPolicy, card: Card, bounds: Bounds, settings: Settings = DEFAULT):
        """`policy` computes `card.batch` observations at once."""
        self.settings, self.card, self.port, self.is_ready = settings, card, 0, threading.Event()
        self._policy, self._bounds = policy, bounds
        self._keys, self._welcome = card.request_keys(), wire.encode(card.metadata())
        self._websockets = require("websockets.asyncio.server", "serve")
        self._closed = require("websockets.exceptions", "serve").ConnectionClosed
        self._connections: set[Any] = set()
        # What strangers do to a handshake is no news; a fault of ours is logged by this module.
        self._log = logging.getLogger("morph_vla.serving.websockets")
        self._log.setLevel(logging.CRITICAL)

    async def run(
        self,
        warm: Sequence[Observation],
        listening: Callable[[], None] = lambda: None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until cancelled. `warm` is computed first, in every size of a batch, which compiles.

        `listening` is called before that, and `ready` after it.
        Raises MorphVlaError where the port is taken, and where `warm` cannot be computed.
        """
        settings, askers = self.settings, lambda: len(self._connections)
        whole = [[row] * size for size in self.card.sizes or (1,) for row in warm]
        worker = Worker(self._policy, self.card.batch or 1, settings.wait_s, askers, whole)
        self._worker = worker
        try:
            async with await self._listen() as server:
                self.port = server.sockets[0].getsockname()[1]
                listening()
                worker.start()
                await asyncio.wrap_future(worker.compiled)
                self.is_ready.set()
                ready()
                await server.serve_forever()
        finally:
            self.is_ready.clear()
            await asyncio.to_thread(worker.close)

    def until_interrupted(
        self,
        warm: Sequence[Observation],
        listening: Callable[[], None] = lambda: None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until this process gets SIGINT or SIGTERM; see `run`."""

        async def serve() -> None:
            """Until a signal cancels it."""
            task = asyncio.ensure_future(self.run(warm, listening, ready))
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(serve())

    @contextlib.contextmanager
    def background(self, warm: Sequence[Observation], ready_s: float = 600.0) -> Iterator["PolicyServer"]:
        """Serve in a thread within this block, entered when the server is ready.

        Raises MorphVlaError as `run`, and where it is not ready within `ready_s`.
        """
        failures: list[BaseException] = []
        ended, begun = threading.Event(), threading.Event()
        tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

        async def serve() -> None:
            """Until the block ends, which cancels it."""
            task = asyncio.ensure_future(self.run(warm))
            tasks.append((asyncio.get_running_loop(), task))
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        def live() -> None:
            """What the thread does; what ended it is kept."""
            try:
                asyncio.run(serve())
            except BaseException as error:
                failures.append(error)
            finally:
                ended.set()
                begun.set()

        thread = threading.Thread(target=live, name="policy server", daemon=True)
        thread.start()
        until = time.monotonic() + ready_s
        while not self.is_ready.wait(0.02) and not ended.is_set() and time.monotonic() < until:
            pass
        try:
            if failures:
                raise failures[0]
            if not self.is_ready.is_set():
                raise MorphVlaError(f"the policy server was not ready within {ready_s:g} s")
            yield self
        finally:
            if begun.wait(1.0) and tasks and not ended.is_set():
                loop, task = tasks[0]
                loop.call_soon_threadsafe(task.cancel)
            thread.join(15.0)

    async def _listen(self) -> Any:
        settings = self.settings
        try:
            if not 0 <= settings.port <= 65535:  # for a host's name a resolver takes the rest of a division
                raise OverflowError("port must be 0-65535")
            return await self._websockets.serve(
                self._handle, settings.host, settings.port, process_request=self._admit, compression=None,
                max_size=wire.REQUEST.frame_bytes, max_queue=1, ping_interval=settings.ping_s,
                ping_timeout=settings.pong_s, close_timeout=2.0, logger=self._log,
                origins=[None],  # a page in a browser has no business here
            )  # fmt: skip
        except (OSError, OverflowError, UnicodeError) as error:  # also a host of two dots
            where = f"{settings.host}:{settings.port}"
            raise MorphVlaError(f"cannot listen on {where}: {reason(error)} (--port, --host)") from None

    def _admit(self, connection: Any, request: Any) -> Any:
        """An HTTP answer where a connection is not to become a websocket."""
        if request.path == "/healthz":
            if self.is_ready.is_set():
                return connection.respond(http.HTTPStatus.OK, "OK\n")
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "the policy is being compiled\n")
        given = (request.headers.get("Authorization") or "").encode()
        if self.settings.api_key and not hmac.compare_digest(
            given, f"Api-Key {self.settings.api_key}".encode()
        ):
            wanted = "this server wants a key: Authorization: Api-Key KEY\n"
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, wanted)
        if len(self._connections) >= self.settings.connections:
            full = f"all {self.settings.connections} connections are taken\n"
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, full)
        return None

    async def _handle(self, connection: Any) -> None:
        """One connection: each frame is answered before the next one is read."""
        sessions = Sessions()
        self._connections.add(connection)
        try:
            await self._send(connection, self._welcome)
            async for frame in connection:
                await self._send(connection, await self._reply(connection, frame, sessions))
        except self._closed:
            pass
        except TimeoutError:
            connection.transport.abort()
        finally:
            self._connections.discard(connection)

    async def _send(self, connection: Any, frame: bytes | str) -> None:
        async with asyncio.timeout(self.settings.send_s):
            await connection.send(frame)

    async def _reply(self, connection: Any, frame: bytes | str, sessions: Sessions) -> bytes | str:
        """The answer to a frame, or the sentence of a fault."""
        begun = time.monotonic()
        try:
            request = await asyncio.to_thread(
                requests.read, frame, self.card, self._keys, sessions, self._bounds
            )
            read_s = time.monotonic() - begun
            computed = await self._computed(request, connection)
            spent = Spent(read_s, time.monotonic() - begun)
            return await asyncio.to_thread(
                requests.write, request, computed, self.card, self._bounds, spent, sessions
            )
        except MorphVlaError as error:
            return visible(str(error), MAX_SENTENCE)
        except Exception as error:
            LOG.exception("a request could not be answered")
            return f"the server could not answer this request ({type(error).__name__})"

    async def _computed(self, request: Request, connection: Any) -> Sequence[Computed]:
        """The answers. Raises MorphVlaError where the client leaves before they are there."""
        futures = self._worker.submit(request.observations, connection)

        async def answered() -> list[Computed]:
            """All answers, in the order of the observations."""
            return [await asyncio.wrap_future(future) for future in futures]

        answers, gone = asyncio.ensure_future(answered()), asyncio.ensure_future(connection.wait_closed())
        try:
            await asyncio.wait((answers, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answers.done():
                raise MorphVlaError("the client has left")
            return answers.result()
        finally:
            answers.cancel()
            gone.cancel()
            for future in futures:
                future.cancel()  # nobody reads it: the client left, or the first failure was the answer


def of(
    policy: cards.Served,
    preset: str = "",
    jump_s: float = bounds.JUMP_S,
    *,
    unit: Unit = "robot",
    real_time: bool = False,
    prompt: str = "",
    settings: Settings = DEFAULT,
) -> PolicyServer:
    """A server of a policy, whose clients speak in `unit`. Raises MorphVlaError as `card.of`."""
    card, limits = cards.of(policy, preset, jump_s, unit=unit, real_time=real_time, prompt=prompt)
    for camera, key in by_another_name(card.request_keys()).items():
        LOG.warning("camera '%s' is read from %s, as preset '%s' has it", camera, key, preset)
    if limits.unbounded:
        LOG.warning(
            "robot '%s': its URDF has no speed of %s: no jump of these is bounded",
            policy.robot.name, ", ".join(limits.unbounded),
        )  # fmt: skip
    here, clients = (units.affine_in(trained, policy.robot) for trained in (policy.trained, card.trained))
    return PolicyServer(units.of(policy, here, clients), card, limits, settings)
