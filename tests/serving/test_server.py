"""The server, over real sockets on loopback: whoever asks, what they ask, and what they do instead."""

import dataclasses
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from stand_ins import (
    BATCH,
    LIMIT_S,
    PANDA,
    Wave,
    ask,
    card,
    client,
    expected,
    health,
    limits,
    observation,
    raw,
    rest,
    serving,
    wait_until,
    without,
)

from morph_vla.errors import MorphVlaError
from morph_vla.serving import requests, wire
from morph_vla.serving.client import LateAnswerError, ServerError
from morph_vla.serving.requests import Sessions, example
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings
from morph_vla.serving.worker import Worker

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


def test_a_server_needs_a_batch_size_only_from_a_card_that_has_one():
    policy = Wave()
    single = PolicyServer(policy, without(card(), batch=None), limits(), Settings(port=0))
    with single.background([example(card())], LIMIT_S) as server, client(server) as asker:
        asker.infer_batch([observation(), observation()])
    assert policy.batches == [1, 1, 1]
