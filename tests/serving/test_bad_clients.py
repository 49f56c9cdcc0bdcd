"""Clients that ask nonsense, are killed, never read, are slow, or may not ask; and ports that are taken."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from stand_ins import (
    LIMIT_S,
    Wave,
    ask,
    card,
    client,
    expected,
    health,
    limits,
    observation,
    raw,
    serving,
    wait_until,
)
from test_wire import FAULTS
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from morph_vla.errors import MorphVlaError
from morph_vla.serving import wire
from morph_vla.serving.client import ServerError
from morph_vla.serving.requests import MAX_ROWS, example
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings

# ---------------------------------------------------------------------------------------------- strangers

REQUESTS = {
    "text": ("hello", "a text frame came; a request is a binary frame of msgpack"),
    "a list": (wire.encode([1]), "a request is a map, not a value of type 'list'"),
    "an empty batch": (
        {"batch": []},
        f"batch: expected a list of 1 to {MAX_ROWS} observations, not a list of 0",
    ),
    "a batch of one": ({"batch": 7}, f"batch: expected a list of 1 to {MAX_ROWS} observations, not a 'int'"),
    "a row that is none": ({"batch": [3]}, "batch[0]: expected a map, not a value of type 'int'"),
    "a row that lacks": ({"batch": [observation(), {}]}, "batch[1]: the observation lacks images/exterior, "),
    "another endpoint": ({"endpoint": "quit"}, "endpoint: expected 'infer' or 'reset', not 'quit'"),
    "another robot": (observation(robot="so101"), "robot: this policy drives 'panda', not 'so101'"),
    "a long id": (
        observation(request_id="x" * 201),
        "request_id: expected a whole number, or a text of at most 200 letters",
    ),
    "no session": (observation(env_id=[1, 2]), "env_id: expected a whole number, or a text of at most "),
    "no truth": (observation(reset="now"), "reset: expected a truth value"),
    "another unit": (
        observation(state=np.full(8, 200, np.float32)),
        "state: 'panda_joint1' is 200, and so are 7 more, and its limits are -2.9671 and 2.9671; are",
    ),
    "no deadline": (observation(deadline_s=-1), "deadline_s: expected a number above 0, in seconds"),
    "a long key": ({"a" * 150: {"b" * 50: 1}}, "a key has at most 200 letters, with those around it: aaaa"),
    "a key with escapes": ({"\x1b[31m\n": 1}, "the observation lacks images/exterior, "),
}


def test_each_fault_gets_one_sentence_and_the_connection_lives_on(server):
    with raw(server) as connection:
        for frame, words in [*FAULTS.values(), *REQUESTS.values()]:
            sentence = ask(connection, frame)
            assert isinstance(sentence, str)
            assert sentence.startswith(words)
            assert sentence.isprintable()
        asked = observation(1, episode=0, step=0)
        np.testing.assert_array_equal(ask(connection, asked)["actions"], expected(asked))


ODD = [None, True, -1, 2**63, 1e300, "x", b"x", [], {}, [[1], [2, 3]], np.zeros((0, 3)), np.zeros((2, 2, 2)),
       np.ones(70_000), np.float32(2), {"a": {"b": 1}}, [observation()]]  # fmt: skip


def test_no_key_may_hold_what_the_server_does_not_understand(server):
    """Every key of a request with every kind of value: a sentence about it or an answer."""
    known = [*observation(), *card().accepts, "robot", "episode", "step"]
    with raw(server) as connection:
        for key in known:
            for value in ODD:
                reply = ask(connection, {**observation(), key: value})
                about = (key, "batch", "the observation lacks", "reset successful")
                assert not isinstance(reply, str) or reply.startswith(about), (key, value)


def test_a_frame_that_is_too_large_ends_its_connection_alone(server):
    with raw(server) as other, raw(server) as connection:
        connection.send(b"\xc6" + bytes(wire.REQUEST.frame_bytes))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=LIMIT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        assert "actions" in ask(other, observation())


def test_who_is_killed_in_the_middle_of_a_frame_is_forgotten(server):
    code = f"""
        import time
        from websockets.sync.client import connect
        connection = connect("ws://127.0.0.1:{server.port}", compression=None).__enter__()
        connection.recv()
        connection.socket.sendall(bytes([0x82, 0xFE, 0xFF, 0xFF]) + bytes(1000))
        print("half way", flush=True)
        time.sleep({LIMIT_S})
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half way\n"
        assert len(server._connections) == 1
        os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: not server._connections)
    with raw(server) as connection:
        assert "actions" in ask(connection, observation())


class Long(Wave):
    """Its answers fill the buffers between two processes soon."""

    def answer(self, asked):
        return {"actions": np.tile(expected(asked), (4000, 1))}


def by_hand(server) -> socket.socket:
    """A websocket after its handshake; what it sends and reads is up to the test."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    key = "AAAAAAAAAAAAAAAAAAAAAA=="
    head = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    key_and_version = f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    before = len(server._connections)
    connection.sendall(f"{head}{key_and_version}".encode())
    wait_until(lambda: len(server._connections) == before + 1)
    return connection


def masked(request) -> bytes:
    """A websocket's frame of up to 65,535 bytes, under a mask of zeros."""
    frame = wire.encode(request)
    return bytes([0x82, 0xFE]) + len(frame).to_bytes(2, "big") + bytes(4) + frame


def test_who_never_reads_is_cut_off_and_costs_others_nothing():
    with serving(Long(), send_s=0.5) as server:
        deaf = by_hand(server)
        sender = threading.Thread(target=pour, args=(deaf, masked(observation())), daemon=True)
        sender.start()
        with client(server) as policy:
            for step in range(5):
                asked = observation(step, episode=0, step=step)
                np.testing.assert_array_equal(policy.infer(asked)["actions"][:5], expected(asked))
            wait_until(lambda: len(server._connections) == 1)
        deaf.close()
        sender.join(LIMIT_S)


def pour(connection: socket.socket, frame: bytes) -> None:
    try:
        for _ in range(1000):
            connection.sendall(frame)
    except OSError:
        return


def test_a_slow_client_does_not_slow_a_quick_one():
    """One sends its question byte by byte; ten of the other's are answered before it is whole, then it is."""
    policy = Wave()
    with serving(policy) as server, client(server) as quick, by_hand(server) as slow:
        frame = masked(observation(11, episode=1, step=2))
        for place in range(0, len(frame) - 1, 50):
            slow.sendall(frame[place : min(place + 50, len(frame) - 1)])
            asked = observation(place, episode=0, step=1)
            np.testing.assert_array_equal(quick.infer(asked)["actions"], expected(asked))
        assert len(policy.batches) > 10
        slow.sendall(frame[-1:])
        received = b""
        while expected(observation(11, episode=1, step=2)).tobytes() not in received:
            part = slow.recv(65536)
            assert part
            received += part


# ------------------------------------------------------------------------------------------- who may ask


def test_a_key_is_asked_for_where_one_is_set():
    with serving(api_key="sésame\n") as server:  # as it is read from a file, on both sides
        with pytest.raises(ServerError, match=r"refuses the API key \(status 401\)$"):
            client(server)
        with pytest.raises(ServerError, match=r"refuses the API key \(status 401\)$"):
            client(server, api_key="other")
        assert health(server.port)[0] == 200
        with client(server, api_key=" sésame\n") as policy:
            assert "actions" in policy.infer(observation())


def test_a_page_in_a_browser_may_not_ask(server):
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{server.port}", origin=Origin("http://example.org"))
    assert refused.value.response.status_code == 403


def test_no_more_connections_than_there_may_be():
    refused = pytest.raises(ServerError, match=r"refuses the connection \(status 503\)$")
    with serving(connections=1) as server, raw(server), refused:
        client(server)


def test_it_listens_to_this_machine_alone_unless_told_otherwise(server):
    assert Settings().host == "127.0.0.1"
    assert not Settings().is_open
    assert not Settings("localhost").is_open
    assert not Settings("::1").is_open
    assert Settings("0.0.0.0").is_open
    assert Settings("robot.local").is_open
    assert not Settings("0.0.0.0", api_key="x").is_open


@pytest.mark.parametrize(
    "where",
    [{"port": 70000}, {"host": "localhost", "port": 70000}, {"port": -1}, {"host": "a..b", "port": 0}],
)
def test_where_nobody_can_listen_is_said(where):
    server = PolicyServer(Wave(), card(), limits(), Settings(**where))
    with pytest.raises(MorphVlaError, match=r"^cannot listen on .* \(--port, --host\)$"):
        asyncio.run(server.run([]))


def test_a_port_that_is_taken_is_said(server):
    taken = PolicyServer(Wave(), card(), limits(), Settings(port=server.port))
    with pytest.raises(MorphVlaError, match=rf"^cannot listen on 127\.0\.0\.1:{server.port}: .* \(--port"):
        asyncio.run(taken.run([]))


def test_a_policy_that_cannot_warm_up_is_not_served():
    failing = {**example(card()), "prompt": "fail"}
    broken = PolicyServer(Wave(), card(), limits(), Settings(port=0))
    with pytest.raises(MorphVlaError, match=r"^the policy failed: ValueError: the arm is asleep$"):
        asyncio.run(broken.run([failing]))
