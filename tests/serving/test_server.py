"""The server, over real sockets on loopback: whoever asks, what they ask, and what they do instead."""

import asyncio
import dataclasses
import http.client
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from stand_ins import (
    BATCH,
    LIMIT_S,
    PANDA,
    Wave,
    card,
    expected,
    limits,
    observation,
    rest,
    serving,
    without,
)
from test_wire import FAULTS
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from morph_vla.errors import MorphVlaError
from morph_vla.serving import requests, wire
from morph_vla.serving.client import LateAnswerError, ServerError, WebsocketClientPolicy
from morph_vla.serving.requests import MAX_ROWS, Sessions, example
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings
from morph_vla.serving.worker import Worker


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def client(server, **options) -> WebsocketClientPolicy:
    return WebsocketClientPolicy("127.0.0.1", server.port, timeout_s=LIMIT_S, connect_s=2.0, **options)


def raw(server, **options):
    """A bare websocket, its metadata read."""
    opened = connect(f"ws://127.0.0.1:{server.port}", compression=None, max_size=None, **options)
    connection = opened.__enter__()
    connection.recv(timeout=LIMIT_S)
    return connection


def ask(connection, request) -> Any:
    connection.send(request if isinstance(request, bytes | str) else wire.encode(request))
    reply = connection.recv(timeout=LIMIT_S)
    return reply if isinstance(reply, str) else wire.decode(reply, wire.ANSWER)


def health(port: int) -> tuple[int, bytes]:
    page = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    page.request("GET", "/healthz")
    answer = page.getresponse()
    return answer.status, answer.read()


# ------------------------------------------------------------------------------------------- the protocol


def test_metadata_come_first_and_say_what_the_policy_needs(server):
    with client(server) as policy:
        metadata = policy.get_server_metadata()
    assert metadata["joints"] == list(PANDA.names)
    assert metadata["units"][:2] == ["rad", "rad"]
    assert (metadata["control_rate"], metadata["horizon"], metadata["robot"]) == (15.0, 5, "panda")
    assert metadata["keys"]["images"] == {"exterior": ["images/exterior"], "wrist": ["images/wrist"]}
    assert metadata["served_by"].startswith("morph-vla ")
    roboarena = ("n_external_cameras", "needs_wrist_camera", "needs_stereo_camera", "action_space")
    assert [metadata[key] for key in roboarena] == [1, True, False, "joint_position"]


def test_an_answer_has_actions_its_request_and_what_it_took(server):
    asked = observation(3, episode=4, step=5)
    with raw(server) as connection:
        answer = ask(connection, {**asked, "request_id": "mine", "weather": "ignored"})
    np.testing.assert_array_equal(answer["actions"], expected(asked))
    assert (answer["request_id"], answer["late"]) == ("mine", False)
    parts = ["decode_ms", "wait_ms", "infer_ms", "total_ms", "batch"]
    assert list(answer["server_timing"]) == parts
    assert all(answer["server_timing"][part] >= 0 for part in parts)
    assert answer["policy_timing"] == {"sample_ms": 1.0}
    assert "limited" not in answer


def test_a_batch_is_answered_by_a_list_in_order(server):
    rows = [observation(i, episode=i, step=1) for i in range(2 * BATCH + 1)]
    with client(server) as policy:
        answers = policy.infer_batch(rows)
    for asked, answer in zip(rows, answers, strict=True):
        np.testing.assert_array_equal(answer["actions"], expected(asked))


def test_sessions_have_random_numbers_of_their_own():
    """They depend on the session, its episode and its step, and on no other connection."""
    one, other = Sessions(), Sessions()
    assert one.connection != other.connection
    asked = [{"env_id": 1}, {"env_id": 2}, {"env_id": 1}, {"env_id": 1, "reset": True}, {"env_id": 1}]
    moments = [one.moment(request) for request in asked]
    assert [step for _, step in moments] == [0, 0, 1, 0, 1]
    episodes = [episode for episode, _ in moments]
    assert episodes[0] == episodes[2] != episodes[1]
    assert episodes[3] == episodes[4] != episodes[0]
    assert [other.moment(request) for request in asked] == moments
    assert one.moment({"episode": 3, "step": 9}) == (3, 9)
    one.reset({"env_id": 2})
    assert one.moment({"env_id": 2})[1] == 0


def test_what_goes_out_is_within_the_bounds_and_says_when_they_bit():
    class Wild(Wave):
        def answer(self, asked):
            return {"actions": np.full((5, 8), 1.0, np.float32)}

    with serving(Wild(), jump_s=0.5) as server, client(server) as policy:
        answer = policy.infer({**observation(), "state": rest()})
    assert (PANDA.to_native(answer["actions"]) <= PANDA.upper + 1e-6).all()
    assert "panda_joint4" in answer["limited"]["position"]
    assert answer["limited"]["values"] > 0


class Odd(Wave):
    def answer(self, asked):
        return {"actions": {"one": np.zeros(8), "nan": np.full((5, 8), np.nan)}[asked["prompt"]]}


def test_an_answer_of_the_policy_that_is_none_does_not_go_out():
    with serving(Odd_warm()) as server, client(server) as policy:
        with pytest.raises(
            ServerError, match=r"the policy's actions have shape \(8,\); expected \(horizon, 8\)"
        ):
            policy.infer(observation(prompt="one"))
        with pytest.raises(ServerError, match="the policy's actions hold 40 values that are not finite"):
            policy.infer(observation(prompt="nan"))


def Odd_warm():
    """`Odd`, which can warm up."""
    odd = Odd()
    answer = odd.answer
    odd.answer = lambda asked: Wave.answer(odd, asked) if asked["prompt"] == "warm up" else answer(asked)
    return odd


# ------------------------------------------------------------------------------- many at once, and alone


def test_alone_or_in_company_an_answer_is_the_same_and_nobody_gets_anothers(server):
    def drive(number: int) -> int:
        with client(server) as policy:
            for step in range(5):
                asked = observation(10 * number + step, episode=number, step=step)
                np.testing.assert_array_equal(policy.infer(asked)["actions"], expected(asked))
        return number

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(drive, range(12), timeout=3 * LIMIT_S)) == list(range(12))
    assert max(server._policy.batches) == BATCH


def test_who_waits_while_the_policy_computes_is_computed_together():
    policy = Wave()
    with serving(policy) as server, ThreadPoolExecutor(4) as pool:
        policy.go.clear()
        asked = [observation(i, episode=i, step=0) for i in range(4)]
        first = pool.submit(lambda: client(server).infer(asked[0]))
        wait_until(lambda: len(policy.batches) == 2)
        rest_of_them = [pool.submit(lambda one=one: client(server).infer(one)) for one in asked[1:]]
        wait_until(lambda: server._worker._jobs.qsize() == 3)
        policy.go.set()
        for one, answer in zip(asked, [first, *rest_of_them], strict=True):
            np.testing.assert_array_equal(answer.result(LIMIT_S)["actions"], expected(one))
    assert policy.batches == [1, 1, 3]


def test_one_that_fails_costs_its_company_nothing():
    policy = Wave()
    with serving(policy) as server, client(server) as asker:
        with pytest.raises(ServerError, match="the policy failed: ValueError: the arm is asleep"):
            asker.infer_batch([observation(1), observation(prompt="fail"), observation(2)])
        wait_until(lambda: policy.batches == [1, 3, 1, 1, 1])
        asked = observation(1, episode=0, step=0)
        np.testing.assert_array_equal(asker.infer(asked)["actions"], expected(asked))


def wait_until(is_so) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_nobody_waits_for_any_longer_is_not_computed_and_holds_no_place():
    policy = Wave()
    with serving(policy, connections=3) as server:
        warm = sum(policy.batches)
        policy.go.clear()
        for _ in range(5):  # the first is being computed when its client leaves
            with pytest.raises(LateAnswerError), client(server, deadline_s=0.1) as hasty:
                hasty.infer(observation(1, episode=0, step=0))
        wait_until(lambda: not server._connections)
        policy.go.set()
        with client(server) as patient:
            assert "actions" in patient.infer(observation(2, episode=0, step=0))
        assert sum(policy.batches) == warm + 2


def test_a_picture_that_rows_share_is_held_once(server):
    shared = {key: value for key, value in observation(1).items() if key.startswith("images/")}
    shared = {key: np.moveaxis(value, -1, 0) for key, value in shared.items()}
    known, rows = card().request_keys(), [{"state": rest(), "prompt": f"task {i}"} for i in range(3)]
    request = requests.read(wire.encode({**shared, "batch": rows}), card(), known, requests.Sessions())
    for key in shared:
        assert len({id(row[key]) for row in request.observations}) == 1
        np.testing.assert_array_equal(request.observations[0][key], observation(1)[key])


def test_every_size_of_a_batch_is_computed_before_the_server_is_ready():
    policy, sizes = Wave(), (1, 2, 4, 5)
    known = dataclasses.replace(card(), batch=5, sizes=sizes)
    with PolicyServer(policy, known, limits(), Settings(port=0)).background([example(known)], LIMIT_S):
        assert policy.batches == list(sizes)


def test_a_worker_that_is_closed_while_it_compiles_computes_no_further_size():
    policy = Wave()
    policy.go.clear()
    worker = Worker(policy, 5, 0.0, lambda: 0, [[observation(1, episode=0, step=0)] * n for n in (1, 2, 4)])
    worker.start()
    wait_until(lambda: policy.batches == [1])
    assert not worker.compiled.cancel()  # who waits for it is a task that Ctrl-C cancels
    with ThreadPoolExecutor(1) as pool:
        closed = pool.submit(worker.close)
        wait_until(worker._closing.is_set)
        policy.go.set()
        closed.result(LIMIT_S)
    assert policy.batches == [1]


def test_nothing_is_compiled_for_a_port_that_is_taken():
    policy = Wave()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = PolicyServer(policy, card(), limits(), Settings(port=port))
        listening = server.background([example(card())], LIMIT_S)
        with pytest.raises(MorphVlaError, match=f"cannot listen on 127.0.0.1:{port}"), listening:
            pass
    assert policy.batches == []


def test_pings_and_health_are_answered_while_the_policy_compiles():
    policy = Wave()
    policy.go.clear()
    server = PolicyServer(policy, card(), limits(), Settings(port=0))
    with ThreadPoolExecutor(2) as pool:
        entered = pool.submit(hold, server)
        wait_until(lambda: server.port)
        assert health(server.port) == (503, b"the policy is being compiled\n")
        connection = raw(server)
        assert connection.ping().wait(LIMIT_S)
        asked = observation(1, episode=1, step=0)
        connection.send(wire.encode(asked))
        policy.go.set()
        answer = wire.decode(connection.recv(timeout=LIMIT_S), wire.ANSWER)
        np.testing.assert_array_equal(answer["actions"], expected(asked))
        assert health(server.port) == (200, b"OK\n")
        connection.close()
        DONE.set()
        assert entered.result(LIMIT_S)


DONE = threading.Event()


def hold(server) -> bool:
    with server.background([example(card())], LIMIT_S):
        return DONE.wait(LIMIT_S)


def test_a_late_answer_is_marked():
    with serving(Wave(seconds=0.05)) as server, raw(server) as connection:
        late, early = ({**observation(), "deadline_s": seconds} for seconds in (0.01, LIMIT_S))
        assert [ask(connection, asked)["late"] for asked in (late, early)] == [True, False]


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
    with serving(api_key="sésame") as server:
        with pytest.raises(ServerError, match=r"refuses the API key \(status 401\)$"):
            client(server)
        with pytest.raises(ServerError, match=r"refuses the API key \(status 401\)$"):
            client(server, api_key="other")
        assert health(server.port)[0] == 200
        with client(server, api_key="sésame") as policy:
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


@pytest.mark.parametrize("where", [{"port": 70000}, {"host": "a..b", "port": 0}])
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


def test_a_server_needs_a_batch_size_only_from_a_card_that_has_one():
    policy = Wave()
    single = PolicyServer(policy, without(card(), batch=None), limits(), Settings(port=0))
    with single.background([example(card())], LIMIT_S) as server, client(server) as asker:
        asker.infer_batch([observation(), observation()])
    assert policy.batches == [1, 1, 1]
