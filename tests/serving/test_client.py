"""The client: NumPy, msgpack and websockets alone; what is late or another's is never returned."""

import asyncio
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from stand_ins import CAMERAS, LIMIT_S, Wave, expected, observation, serving
from websockets.sync.server import serve

from morph_vla.errors import MorphVlaError
from morph_vla.serving import keys, wire
from morph_vla.serving.client import (
    AsyncWebsocketClientPolicy,
    LateAnswerError,
    ServerError,
    ServerGoneError,
    WebsocketClientPolicy,
)
from morph_vla.serving.remote import RemotePolicy


def test_a_proxy_of_the_environment_stands_in_nobodys_way(server, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    with serving() as running:
        client = WebsocketClientPolicy("127.0.0.1", running.port, timeout_s=float("inf"), connect_s=5.0)
        assert "actions" in client.infer(observation(3))
        client.close()


def other(answer, metadata=b"\x80"):
    """A server of somebody else: `answer(frame, connection)` is what it sends back."""

    def handle(connection):
        connection.send(metadata)
        for frame in connection:
            reply = answer(frame, connection)
            if reply is not None:
                connection.send(reply)

    class Running:
        def __enter__(self):
            self.server = serve(handle, "127.0.0.1", 0, compression=None)
            self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
            self.thread.start()
            self.port = self.server.socket.getsockname()[1]
            return self

        def __exit__(self, *_):
            self.server.shutdown()
            self.thread.join(LIMIT_S)

    return Running()


def connect(server, **options) -> WebsocketClientPolicy:
    return WebsocketClientPolicy(
        "127.0.0.1", server.port, **{"timeout_s": LIMIT_S, "connect_s": 2.0, **options}
    )


def test_importing_it_imports_numpy_msgpack_and_websockets_alone():
    code = "import sys, morph_vla.serving.client; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("morph_vla.")}
    assert ours == {
        *("morph_vla._version", "morph_vla.errors", "morph_vla.findings", "morph_vla.wording"),
        *("morph_vla.serving", "morph_vla.serving.client", "morph_vla.serving.wire"),
    }
    assert not {"jax", "jaxtyping", "pydantic", "yaml", "PIL", "mujoco"} & set(loaded)


def test_an_answer_comes_back_over_either_form_of_address():
    asked = observation(1, episode=2, step=3)
    with serving() as server:
        for where in (
            ("127.0.0.1", server.port),
            (f"ws://127.0.0.1:{server.port}",),
            ("ws://127.0.0.1", server.port),
        ):
            with WebsocketClientPolicy(*where, timeout_s=LIMIT_S) as policy:
                np.testing.assert_array_equal(policy.infer(asked)["actions"], expected(asked))


def test_reset_begins_another_episode():
    with serving() as server, connect(server) as policy:
        first, second = (policy.infer(observation())["actions"] for _ in range(2))
        policy.reset()
        third, fourth = (policy.infer(observation())["actions"] for _ in range(2))
        policy.close()
        again = policy.infer(observation())["actions"]
    answers = [first, second, third, fourth]
    assert not any(np.array_equal(a, b) for i, a in enumerate(answers) for b in answers[:i])
    np.testing.assert_array_equal(again, first)


def test_a_reset_that_is_asked_for_as_roboarena_does_is_answered():
    with serving() as server, connect(server) as policy:
        assert policy.infer({"endpoint": "reset", "session_id": "left"}) == "reset successful"
        with pytest.raises(ServerError, match="lacks"):
            policy.infer({"endpoint": "infer"})


def test_a_reset_while_an_answer_is_under_way_is_not_forgotten():
    policy = Wave()
    with serving(policy) as server, connect(server) as asker:
        first = asker.infer(observation())["actions"]
        policy.go.clear()
        thread = threading.Thread(target=asker.infer, args=(observation(),))
        thread.start()
        while len(policy.batches) < 3:  # warming up, the first, this one
            time.sleep(0.005)
        asker.reset()
        policy.go.set()
        thread.join(LIMIT_S)
        begun, next_one = (asker.infer(observation())["actions"] for _ in range(2))
        asker.reset()
        asker.reset()
        assert not np.array_equal(asker.infer(observation())["actions"], next_one)
    assert not np.array_equal(begun, first)


def test_a_deadline_counts_from_the_call_whatever_it_is_spent_on():
    """Waiting for another thread's answer, or sending to a server that has stopped reading."""
    policy = Wave()
    with serving(policy) as server, connect(server, deadline_s=0.3) as asker:
        policy.go.clear()
        begun, ended = time.monotonic(), []

        def ask(number: int) -> None:
            with pytest.raises(LateAnswerError):
                asker.infer(observation(number, episode=0, step=0))
            ended.append(time.monotonic() - begun)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(13)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        policy.go.set()
    assert len(ended) == 13
    assert max(ended) < 12 * 0.3  # one after the other they take 3.9 s, however busy the machine is


class Deaf:
    """A connection to a server that reads no more: what is sent stays in buffers, until they are closed."""

    def __init__(self):
        self.closed = threading.Event()

    def send(self, _frame):
        assert self.closed.wait(LIMIT_S)
        raise OSError("the socket is closed")

    def close_socket(self):
        self.closed.set()


def test_sending_to_a_server_that_reads_no_more_ends_at_the_deadline():
    with serving() as server, connect(server, deadline_s=0.2) as asker:
        asker.close()
        asker._connection = Deaf()
        with pytest.raises(LateAnswerError, match=r"did not answer within 0\.2 s$"):
            asker.infer({"first": 1})


def test_a_server_that_takes_too_long_to_connect_to_is_late_and_one_that_is_gone_is_not():
    """Of a robot's loop the one is to be waited out, the other to be told to its operator."""
    with serving() as server, connect(server, deadline_s=0.3) as asker, socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()  # the kernel connects, and nobody ever answers
        asker.close()
        asker._target = f"ws://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(LateAnswerError, match=r"did not answer within 0\.3 s$"):
            asker.infer({"first": 1})
        hasty = AsyncWebsocketClientPolicy(asker._target, deadline_s=0.3)
        with pytest.raises(LateAnswerError, match=r"did not answer within 0\.3 s$"):
            asyncio.run(hasty.infer({"first": 1}))
        mute.close()
        for infer in (asker.infer, lambda asked: asyncio.run(hasty.infer(asked))):
            with pytest.raises(ServerError, match="is not to be reached: ") as gone:
                infer({"first": 1})
            assert not isinstance(gone.value, LateAnswerError)


def test_closing_waits_for_no_answer():
    """Of a call that another thread is in; Ctrl-C on a robot would wait as long as the policy thinks."""
    policy, ended = Wave(), []
    with serving(policy) as server, connect(server) as asker:
        policy.go.clear()

        def ask() -> None:
            with pytest.raises(ServerError, match=r": the connection was closed before the answer came$"):
                asker.infer(observation())
            ended.append(True)

        thread = threading.Thread(target=ask)
        thread.start()
        while len(policy.batches) < 2:  # warming up, and this one
            time.sleep(0.005)
        began = time.monotonic()
        asker.close()
        took = time.monotonic() - began
        thread.join(LIMIT_S)
        policy.go.set()
        assert (ended, took < 2.0) == ([True], True)
        assert "actions" in asker.infer(observation())  # the next one opens another


def test_connecting_and_its_greeting_have_one_time_limit():
    """A handshake that takes most of it leaves the rest to the metadata, not as much again."""
    quiet = threading.Event()

    def silent(_):
        quiet.wait(LIMIT_S)

    server = serve(silent, "127.0.0.1", 0, process_request=lambda *_: time.sleep(1.9))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    began = time.monotonic()
    with pytest.raises(ServerError, match="is not to be reached: "):
        WebsocketClientPolicy("127.0.0.1", server.socket.getsockname()[1], connect_s=2.0)
    took = time.monotonic() - began
    quiet.set()
    server.shutdown()
    thread.join(LIMIT_S)
    assert 1.9 < took < 3.7  # 3.9 with a limit each


@pytest.mark.parametrize("key", ["top\nsecret", "тайна", "top\x00secret"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key):
    words = r"^the API key is not one line of printable Latin letters: no header can hold it$"
    for client in (WebsocketClientPolicy, AsyncWebsocketClientPolicy):
        with pytest.raises(ServerError, match=words):
            client("127.0.0.1", 9, key)


def test_infinite_limits_are_long_ones():
    with serving() as server, connect(server, deadline_s=float("inf"), connect_s=float("inf")) as asker:
        assert "actions" in asker.infer(observation())
    assert asker._limit_s == LIMIT_S  # without a deadline, the time limit


def test_a_late_answer_is_never_taken_for_the_next_one():
    policy = Wave()
    with serving(policy) as server, connect(server, deadline_s=0.2) as asker:
        policy.go.clear()
        with pytest.raises(LateAnswerError, match=r"did not answer within 0\.2 s$"):
            asker.infer(observation(1, episode=1, step=0))
        policy.go.set()
        asked = observation(2, episode=2, step=0)
        for _ in range(9):
            try:
                answer = asker.infer(asked)
                break
            except ServerError:  # this machine was busy: late, or not connected anew in time
                time.sleep(0.5)
        np.testing.assert_array_equal(answer["actions"], expected(asked))


def test_what_interrupts_a_call_gives_its_answer_up(monkeypatch):
    with serving() as server, connect(server) as asker:
        with monkeypatch.context() as patch:
            patch.setattr(asker._connection, "recv", lambda **_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                asker.infer(observation(1, episode=1, step=0))
        asked = observation(2, episode=2, step=0)
        np.testing.assert_array_equal(asker.infer(asked)["actions"], expected(asked))


def test_a_server_that_came_back_is_found_again_and_one_that_did_not_is_said(caplog):
    with serving() as server:
        policy = connect(server)
        port = server.port
    with serving(port=port):
        asked = observation(1, episode=1, step=0)
        np.testing.assert_array_equal(policy.infer(asked)["actions"], expected(asked))
    assert not caplog.messages
    policy._connect_s = 1.0
    with pytest.raises(ServerGoneError, match=rf"^ws://127\.0\.0\.1:{port} is not to be reached: "):
        policy.infer(asked)
    assert caplog.messages == [f"ws://127.0.0.1:{port} does not answer yet; it is tried for 1 s more"]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ("hello", "does not speak openpi's protocol: no metadata came first"),
        (b"\x01", "does not speak openpi's protocol: no metadata came first"),
        (b"\xc1", "a value begins with byte 0xc1, which is no type of openpi's protocol"),
    ],
)
def test_another_protocol_is_said(metadata, words):
    with other(lambda *_: None, metadata) as server, pytest.raises(MorphVlaError, match=f"{words}$"):
        connect(server)


def test_another_servers_requests_hold_what_openpi_knows_alone():
    with other(lambda frame, _: frame) as server, connect(server, deadline_s=LIMIT_S) as policy:
        policy.reset()
        assert policy.infer({"prompt": "x"}) == {"prompt": "x"}


def test_the_answer_to_another_request_is_not_used():
    metadata = wire.encode({"accepts": ["request_id"]})
    with other(lambda *_: wire.encode({"request_id": "old"}), metadata) as server, connect(server) as policy:
        with pytest.raises(ServerError, match=r"answered another request; its answer is not used$"):
            policy.infer({})
        assert policy._connection is None


def test_an_answer_marked_late_is_not_used():
    late = wire.encode({"actions": np.zeros((1, 8)), "late": True})
    with other(lambda *_: late) as server:
        refused = pytest.raises(LateAnswerError, match=r"says that its answer is late; it is not used$")
        with connect(server, deadline_s=LIMIT_S) as policy, refused:
            policy.infer({})
        with connect(server) as policy:  # in a simulation time stands still
            assert policy.infer({})["late"]


def test_a_sentence_is_an_error_and_a_traceback_one_line():
    with other(lambda *_: "Traceback:\n  in infer\nKeyError: 'x'") as server, connect(server) as policy:
        with pytest.raises(RuntimeError, match=r"^ws://127.* Traceback:.*KeyError: 'x'$") as error:
            policy.infer({})
        assert "\n" not in str(error.value)


def test_a_connection_that_drops_is_opened_once_more():
    asked = []

    def answer(frame, connection):
        asked.append(frame)
        if len(asked) in (1, 3, 4):
            connection.socket.close()
            return None
        return frame

    with other(answer) as server, connect(server) as policy:
        assert policy.infer({"prompt": "x"}) == {"prompt": "x"}
        with pytest.raises(ServerError, match="is not to be reached"):
            policy.infer({"prompt": "x"})
    assert len(asked) == 4


def test_a_frame_too_large_for_the_server_is_not_sent_twice():
    with serving() as server, connect(server) as policy, pytest.raises(ServerError, match="1009") as large:
        policy.infer({"prompt": "x", "blob": bytes(wire.REQUEST.frame_bytes)})
    assert not isinstance(large.value, ServerGoneError), "it is there, and the question is at fault"


def test_threads_that_share_a_client_get_their_own_answers():
    with serving() as server, connect(server) as policy:
        asked = [observation(i, episode=i, step=0) for i in range(6)]
        answers = {}
        threads = [
            threading.Thread(target=lambda i=i: answers.update({i: policy.infer(asked[i])["actions"]}))
            for i in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    for number, actions in answers.items():
        np.testing.assert_array_equal(actions, expected(asked[number]))


def test_the_client_of_an_event_loop_does_the_same(caplog):
    policy = Wave()

    async def drive(server):
        where = ("127.0.0.1", server.port)
        async with AsyncWebsocketClientPolicy(*where, timeout_s=LIMIT_S) as asker:
            assert asker.get_server_metadata()["robot"] == "panda"
            rows = [observation(i, episode=i, step=0) for i in range(4)]
            for asked, answer in zip(rows, await asker.infer_batch(rows), strict=True):
                np.testing.assert_array_equal(answer["actions"], expected(asked))
            with pytest.raises(ServerError, match="the observation lacks"):
                await asker.infer({})
            await asker.close()
            assert "actions" in await asker.infer(rows[0])
        hasty = AsyncWebsocketClientPolicy(*where, deadline_s=0.3)
        policy.go.clear()
        with pytest.raises(LateAnswerError, match=r"did not answer within 0\.3 s$"):
            await hasty.infer(rows[0])
        policy.go.set()
        assert hasty._connection is None
        await hasty.reset()
        await hasty.close()
        return server.port

    with serving(policy) as server:
        port = asyncio.run(drive(server))
    gone = AsyncWebsocketClientPolicy("127.0.0.1", port, connect_s=1.0)
    with pytest.raises(ServerGoneError, match="is not to be reached"):
        asyncio.run(gone.connect())
    assert caplog.messages == [f"ws://127.0.0.1:{port} does not answer yet; it is tried for 1 s more"]


def test_an_address_is_shown_without_its_secrets():
    with serving() as server:
        address = f"ws://me:secret@127.0.0.1:{server.port}/here?token=key"
        with WebsocketClientPolicy(address, timeout_s=LIMIT_S) as policy:
            assert "actions" in policy.infer(observation(1))
            assert policy.address == f"ws://127.0.0.1:{server.port}/here"
            assert RemotePolicy(policy, keys.of(CAMERAS)).describe()["server"] == policy.address
    for address in ("ws://me:secret@h:abc", "ws://me:secret@h:1/#secret", "ws://secret@h:80"):
        with pytest.raises(ServerError, match=r"^ws://h:\w+/? is no address: ") as refused:
            WebsocketClientPolicy(address)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("address", ["ws://127.0.0.1:99999", "ws://[::1", "ws://h:abc", "ws://", "wss://\n"])
def test_what_is_no_address_is_said_at_once(address):
    began = time.monotonic()
    with pytest.raises(ServerError, match=r"^ws.* is no address: .+$"):
        WebsocketClientPolicy(address)
    assert time.monotonic() - began < 10


def test_metadata_and_answers_of_odd_types_are_read_leniently():
    odd = {"accepts": 5, "action_space": np.zeros(3)}
    answer = {"actions": np.zeros((3, 2)), "request_id": np.zeros(2), "late": np.ones(2)}
    with (
        other(lambda *_: wire.encode(answer), wire.encode(odd)) as server,
        connect(server, deadline_s=LIMIT_S) as policy,
        pytest.raises(ServerError, match="answered another request"),
    ):
        policy.infer({"at": 0})
    del answer["request_id"]
    with other(lambda *_: wire.encode(answer), wire.encode(odd)) as server, connect(server) as policy:
        assert policy.infer({"at": 0})["actions"].shape == (3, 2)
