"""A client of openpi's websocket protocol with the class names of openpi-client, sync and async.

    policy = WebsocketClientPolicy("127.0.0.1", 8000)
    actions = policy.infer(observation)["actions"]

It needs NumPy (1 or 2), msgpack and websockets alone, and speaks to any server of the protocol. An answer
that is late is never returned: after a deadline has passed, and after anything that interrupts a call, the
connection is given up with whatever was still to come on it, and the next call opens another.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from morph_vla.errors import MorphVlaError, PolicyGoneError, reason, require
from morph_vla.findings import visible
from morph_vla.serving import wire

LOG = logging.getLogger(__name__)
exceptions = require("websockets.exceptions", "serve")
DEFAULT_PORT = 8000
PAUSE_S = 0.2  # between two attempts to connect
LONGEST_S = 1e6  # of any limit: sockets count in fewer digits than `threading.TIMEOUT_MAX`
TOO_BIG = 1009  # the code with which a websocket is closed after a frame that is too large
SAME = ("sha256", "robot", "joints", "units", "actions", "control_rate", "horizon", "keys")
"""What a server says of a policy that has to be the same after a connection was lost"""


class ServerError(MorphVlaError, RuntimeError):
    """The server answered with a sentence, did not answer, or is not there."""


class ServerGoneError(ServerError, PolicyGoneError):
    """The server is not there, or no longer."""


class LateAnswerError(ServerError, TimeoutError):
    """The answer did not come before its deadline; it is thrown away whenever it comes."""


def _without_secrets(address: str) -> str:
    """scheme://HOST:PORT/PATH of an address, without a user's name, password, query and fragment."""
    scheme, _, rest = address.partition("://")
    place, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _header(api_key: str) -> str:
    """The key as a header holds it, without the end of the line of the file that it was read from.

    Raises ServerError, which never shows the key.
    """
    key = api_key.strip()
    if not key.isprintable() or any(ord(letter) > 255 for letter in key):  # Latin-1, as HTTP has it
        raise ServerError("the API key is not one line of printable Latin letters: no header can hold it")
    return key


def accepted(metadata: Mapping[str, Any]) -> Sequence[Any]:
    """The keys of a request that a server knows beyond openpi's; what is no list of them is none."""
    keys = metadata.get("accepts")
    return keys if isinstance(keys, list | tuple) else ()


class _Protocol:
    """What the two clients share: the bytes of a question, and what an answer has to be."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int | None = None,
        api_key: str | None = None,
        *,
        deadline_s: float | None = None,
        timeout_s: float = 600.0,
        connect_s: float = 30.0,
    ):
        """Where the server is; the positional arguments are those of openpi-client.

        `host` may be an address, `ws://robot:8000` or `wss://...`. An answer that comes later than
        `deadline_s` is of no use: it is an error, and the server is told. Without one, an answer is waited
        for `timeout_s`. A server that is not there yet is tried for `connect_s`; infinite ones are as long as
        may be. Raises ServerError for what is no address, and for a key that no header can hold.
        """
        is_address = host.startswith(("ws://", "wss://"))
        self._target = host if is_address and port is None else f"{host}:{port or DEFAULT_PORT}"
        if not is_address:
            self._target = f"ws://{self._target}"
        self.address = _without_secrets(self._target)
        """Without a user's name, password and query: it is shown, and kept in records"""
        try:
            require("websockets.uri", "serve").parse_uri(self._target)
        except (ValueError, exceptions.InvalidURI) as error:
            # The rest of an InvalidURI's sentence is the whole address.
            why = getattr(error, "msg", None) or reason(error)
            raise ServerError(f"{visible(self.address, 200)} is no address: {why}") from None
        self._deadline_s = None if deadline_s == math.inf else deadline_s
        self._connect_s, self._timeout_s = min(connect_s, LONGEST_S), min(timeout_s, LONGEST_S)
        # No pings: a server that computes on its event loop, as openpi's, does not answer them meanwhile.
        # No proxy: a robot's server is at hand, and a proxy's refusal would be taken for the server's.
        self._options: dict[str, Any] = {"compression": None, "ping_interval": None, "proxy": None}
        self._options["max_size"] = wire.ANSWER.frame_bytes
        if api_key:
            self._options["additional_headers"] = {"Authorization": f"Api-Key {_header(api_key)}"}
        self._metadata: dict[str, Any] = {}
        self._name, self._numbers = secrets.token_hex(4), itertools.count()
        self._resets = self._resets_asked = self._resets_said = 0
        """How often an episode was begun: by `reset`, by the last question, by the last that was answered"""

    def get_server_metadata(self) -> dict[str, Any]:
        """What the server says of itself."""
        return self._metadata

    @property
    def _limit_s(self) -> float:
        return self._timeout_s if self._deadline_s is None else self._deadline_s

    def _welcome(self, frame: str | bytes) -> None:
        """Take the metadata, which a server sends first."""
        metadata = wire.decode(frame, wire.ANSWER) if isinstance(frame, bytes) else frame
        if not isinstance(metadata, dict):
            raise ServerError(f"{self.address} does not speak openpi's protocol: no metadata came first")
        before = self._metadata
        shared = [key for key in SAME if before.get(key) is not None and metadata.get(key) is not None]
        if other := [key for key in shared if before[key] != metadata[key]]:
            raise ServerError(
                f"{self.address} serves another policy than before, with another {', '.join(other)}; make a "
                "client anew to go on with it"
            )
        self._metadata = metadata

    def _question(self, request: Mapping[str, Any]) -> tuple[bytes, str]:
        """The frame of a request and its id; keys beyond openpi's only where the server knows them."""
        accepts = accepted(self._metadata)
        request_id = f"{self._name}-{next(self._numbers)}"
        more: dict[str, Any] = {"request_id": request_id, "deadline_s": self._deadline_s}
        more["reset"] = True if self._resets > self._resets_said else None
        self._resets_asked = self._resets
        known = {key: value for key, value in more.items() if key in accepts and value is not None}
        return wire.encode({**request, **known}), request_id

    def _answer(self, frame: str | bytes, request_id: str) -> Any:
        """An answer, or the server's sentence. Raises ServerError for another's, LateAnswerError if late."""
        if isinstance(frame, str):
            return frame
        answer = wire.decode(frame, wire.ANSWER)
        for part in answer if isinstance(answer, list) else [answer]:
            about = part if isinstance(part, dict) else {}
            if str(about.get("request_id", request_id)) != request_id:
                raise ServerError(f"{self.address} answered another request; its answer is not used")
            if about.get("late") is True and self._deadline_s is not None:
                raise LateAnswerError(f"{self.address} says that its answer is late; it is not used")
        self._resets_said = self._resets_asked
        return answer

    def _spoken(self, answer: Any, obs: Mapping[str, Any]) -> Any:
        """An answer. Raises ServerError for a sentence, but for a reset's; the connection lives on."""
        if isinstance(answer, str) and not (obs.get("endpoint") == "reset" and answer == wire.RESET):
            raise ServerError(f"{self.address}: {visible(answer.strip(), 2000)}")
        return answer

    def _waiting(self, is_said: bool, left_s: float) -> bool:
        """Say once that the server is waited for; whether it has been said."""
        if not is_said:
            LOG.warning("%s does not answer yet; it is tried for %.0f s more", self.address, left_s)
        return True

    @property
    def _gave_up(self) -> str:
        return f"{self.address}: the connection was closed before the answer came"

    def _late(self) -> LateAnswerError:
        return LateAnswerError(f"{self.address} did not answer within {self._limit_s:g} s")

    def _refusal(self, error: BaseException) -> ServerError:
        """Why there is no connection, or no longer one."""
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            return ServerError(f"{self.address} refuses the API key (status {status})")
        if status is not None:
            return ServerError(f"{self.address} refuses the connection (status {status})")
        why = visible(str(error) or type(error).__name__, 300)
        kind = ServerError if _is_final(error) else ServerGoneError
        return kind(f"{self.address} is not to be reached: {why}")


def _is_final(error: BaseException) -> bool:
    """Whether trying again leads nowhere: the server refused, or closed for a frame that is too large."""
    closed = getattr(error, "rcvd", None)
    return hasattr(error, "response") or (closed is not None and closed.code == TOO_BIG)


class WebsocketClientPolicy(_Protocol):
    """A policy on a server. Threads may share it: they are answered one after the other."""

    def __init__(self, *where: Any, **options: Any):
        """Connect; the arguments are those of `_Protocol`. Raises ServerError where no server is."""
        super().__init__(*where, **options)
        self._connect_with = require("websockets.sync.client", "serve").connect
        self._connection: Any = None
        self._closes = 0
        self._lock = threading.Lock()
        with self._lock:
            self._connected(time.monotonic() + self._connect_s)

    def infer(self, obs: Mapping[str, Any]) -> Any:
        """The answer to an observation, a dictionary with `actions`.

        Raises ServerError with the server's sentence, LateAnswerError after the deadline. A lost connection
        is opened again, and the question asked once more.
        """
        until = time.monotonic() + self._limit_s
        with self._in_turn(until), self._whole_or_closed():
            closes = self._closes
            for is_last in (False, True):
                try:
                    connection = self._connected(time.monotonic() + self._connect_s, until)
                    frame, request_id = self._question(obs)
                    with self._given_up(connection, until):
                        connection.send(frame)
                    reply = connection.recv(timeout=max(0.0, until - time.monotonic()))
                    answer = self._answer(reply, request_id)
                    break
                except ServerError:
                    raise
                except TimeoutError:
                    raise self._late() from None
                except (exceptions.ConnectionClosed, OSError) as error:
                    self._close()
                    if closes != self._closes:
                        raise ServerError(self._gave_up) from None
                    if time.monotonic() >= until:
                        raise self._late() from None
                    if is_last or _is_final(error):
                        raise self._refusal(error) from None
        return self._spoken(answer, obs)

    def infer_batch(self, observations: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Answers to several observations in one frame, of a server whose metadata accepts `batch`."""
        return self.infer({"batch": [dict(observation) for observation in observations]})

    def reset(self) -> None:
        """Begin another episode: the next request says so to a server that knows the word."""
        self._resets += 1

    def close(self) -> None:
        """Give the connection up; the next call opens another. One that another thread is in is an error."""
        self._closes += 1
        if (connection := self._connection) is not None:
            connection.close_socket()  # nobody waits for an answer that nobody wants
        with self._lock:
            self._close()

    def _connected(self, until: float, deadline: float = math.inf) -> Any:
        """The connection, opened where there is none, which is tried `until` then or a call's deadline.

        A server that is there and slow is late then, and one that is not there is not to be reached.
        """
        is_said, until = False, min(until, deadline)
        while self._connection is None:
            left = max(0.01, until - time.monotonic())
            try:
                # Entered, never left: websockets 17 wants its connections so, and `_close` ends them at once.
                opened = self._connect_with(self._target, open_timeout=left, **self._options)
                connection = self._connection = opened.__enter__()
                self._welcome(connection.recv(timeout=max(0.0, until - time.monotonic())))
            except BaseException as error:
                self._close()
                if not isinstance(error, OSError | exceptions.WebSocketException):  # TimeoutError is one
                    raise
                if isinstance(error, TimeoutError) and time.monotonic() + PAUSE_S >= deadline:
                    raise self._late() from None
                if _is_final(error) or time.monotonic() + PAUSE_S >= until:
                    raise self._refusal(error) from None
                is_said = self._waiting(is_said, until - time.monotonic())
                time.sleep(PAUSE_S)
        return self._connection

    @contextlib.contextmanager
    def _in_turn(self, until: float) -> Iterator[None]:
        """Alone with the connection; waiting for other threads counts. Raises LateAnswerError."""
        if not self._lock.acquire(timeout=max(0.0, min(until - time.monotonic(), threading.TIMEOUT_MAX))):
            raise self._late()
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _given_up(self, connection: Any, until: float) -> Iterator[None]:
        """Sending has no limit of its own: to a server that reads no more it ends with the connection."""
        timer = threading.Timer(max(0.0, until - time.monotonic()), connection.close_socket)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def _whole_or_closed(self) -> Iterator[None]:
        """Whatever interrupts a call, its answer must not be taken for that of the next one."""
        try:
            yield
        except wire.UnsendableError:
            raise  # nothing is to come
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close_socket()

    def __enter__(self) -> "WebsocketClientPolicy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncWebsocketClientPolicy(_Protocol):
    """`WebsocketClientPolicy` for an event loop; it connects with the first call.

    In another loop, as each `asyncio.run` has one, it connects anew.
    """

    def __init__(self, *where: Any, **options: Any):
        """The arguments are those of `_Protocol`."""
        super().__init__(*where, **options)
        self._connect_with = require("websockets.asyncio.client", "serve").connect
        self._connection: Any = None
        self._closes = 0
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def connect(self) -> dict[str, Any]:
        """Connect now; what the server says of itself."""
        self._enter_loop()
        async with self._lock:
            await self._connected(time.monotonic() + self._connect_s)
        return self._metadata

    async def infer(self, obs: Mapping[str, Any]) -> Any:
        """As `WebsocketClientPolicy.infer`."""
        until = time.monotonic() + self._limit_s
        self._enter_loop()
        try:
            async with asyncio.timeout(self._limit_s), self._lock:
                try:
                    answer = await self._ask(obs, until)
                except wire.UnsendableError:
                    raise
                except BaseException:
                    await self._close()
                    raise
        except ServerError:
            raise
        except TimeoutError:
            raise self._late() from None
        return self._spoken(answer, obs)

    async def infer_batch(self, observations: Sequence[Mapping[str, Any]]) -> list[Any]:
        """As `WebsocketClientPolicy.infer_batch`."""
        return await self.infer({"batch": [dict(observation) for observation in observations]})

    async def reset(self) -> None:
        """As `WebsocketClientPolicy.reset`."""
        self._resets += 1

    async def close(self) -> None:
        """Give the connection up; the next call opens another. One that is under way is an error."""
        self._closes += 1
        self._enter_loop()
        if self._connection is not None:
            self._connection.transport.abort()
        async with self._lock:
            await self._close()

    def _enter_loop(self) -> None:
        """Leave the connection of a loop that has ended. Raises ServerError while another one runs it."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise ServerError("another event loop uses this client; make one for each loop")
        if self._connection is not None:
            with contextlib.suppress(OSError, AttributeError):  # it may be closed; nothing else can close it
                self._connection.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._connection, self._lock, self._loop = None, asyncio.Lock(), loop

    async def _ask(self, obs: Mapping[str, Any], until: float) -> Any:
        """An answer or a sentence; asked once more where the connection is lost."""
        closes = self._closes
        for is_last in (False, True):
            try:
                connection = await self._connected(time.monotonic() + self._connect_s, until)
                frame, request_id = self._question(obs)
                await connection.send(frame)
                return self._answer(await connection.recv(), request_id)
            except exceptions.ConnectionClosed as error:
                await self._close()
                if closes != self._closes:
                    raise ServerError(self._gave_up) from None
                if is_last or _is_final(error):
                    raise self._refusal(error) from None
        raise AssertionError("the last attempt returns or raises")

    async def _connected(self, until: float, deadline: float = math.inf) -> Any:
        """As `WebsocketClientPolicy._connected`."""
        is_said, until = False, min(until, deadline)
        while self._connection is None:
            left = max(0.01, until - time.monotonic())
            try:
                async with asyncio.timeout(left):
                    self._connection = await self._connect_with(self._target, **self._options)
                    self._welcome(await self._connection.recv())
            except BaseException as error:
                await self._close()
                if not isinstance(error, OSError | exceptions.WebSocketException):
                    raise
                if isinstance(error, TimeoutError) and time.monotonic() + PAUSE_S >= deadline:
                    raise self._late() from None
                if _is_final(error) or time.monotonic() + PAUSE_S >= until:
                    raise self._refusal(error) from None
                is_said = self._waiting(is_said, until - time.monotonic())
                await asyncio.sleep(PAUSE_S)
        return self._connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.transport.abort()

    async def __aenter__(self) -> "AsyncWebsocketClientPolicy":
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
