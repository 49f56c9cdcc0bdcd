"""What an operator meets: a blip of the network, another policy on the port, Ctrl-C, values of no use."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from stand_ins import LIMIT_S, Wave, ask, card, client, expected, limits, observation, raw, serving, without

from morph_vla.errors import MorphVlaError
from morph_vla.pi05.tokenizer import OFFLINE, prompt_text, tokenize
from morph_vla.serving import keys, wire
from morph_vla.serving.broker import ActionBroker
from morph_vla.serving.client import (
    AsyncWebsocketClientPolicy,
    LateAnswerError,
    ServerError,
    ServerGoneError,
    WebsocketClientPolicy,
)
from morph_vla.serving.programs import tokens_of
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings


def started(known, port: int = 0):
    server = PolicyServer(Wave(), known, limits(), Settings(port=port))
    return server.background([{**observation(), "robot": known.robot}], ready_s=LIMIT_S)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": "0" * 64}, "with another sha256; make a client anew to go on with it"),
        ({"units": ("deg",) * 8, "horizon": 3}, "with another units, horizon; make a client anew"),
    ],
)
def test_another_policy_on_the_port_is_not_taken_for_the_one_before(changes, words):
    known = without(card(), sha256="f" * 64, units=("rad",) * 8)
    with started(known) as server:
        port = server.port
        policy = WebsocketClientPolicy("127.0.0.1", port, timeout_s=LIMIT_S, connect_s=5.0)
        policy.infer(observation())
    with started(known, port):  # the same one again is gone on with
        policy.infer(observation())
    with started(without(known, **changes), port):
        for _ in range(2):
            with pytest.raises(ServerError, match=f"serves another policy than before, {words}"):
                policy.infer(observation())
        with WebsocketClientPolicy("127.0.0.1", port, timeout_s=LIMIT_S) as anew:
            anew.infer(observation())
    policy.close()


class Flaky:
    """A server of chunks of seven rows that is not there for the questions numbered in `gone`."""

    def __init__(self, gone: tuple[int, ...], error: type[MorphVlaError]):
        self.gone, self.error, self.asked = gone, error, 0

    def get_server_metadata(self):
        return {"accepts": []}

    def infer(self, obs):
        self.asked += 1
        if self.asked in self.gone:
            raise self.error("not there")
        return {"actions": self.asked + np.arange(7)[:, None] / 100}

    def reset(self):
        raise AssertionError("nobody resets")


def steps(broker: ActionBroker, count: int) -> list[float]:
    rows = []
    for step in range(count):
        rows.append(round(float(broker.infer({"at": step})["actions"][0]), 2))
        if broker._pending is not None:
            broker._pending.exception(timeout=LIMIT_S)
    return rows


@pytest.mark.parametrize("error", [ServerGoneError, LateAnswerError])
def test_a_server_that_is_gone_for_a_moment_is_asked_again_while_there_are_actions(error):
    with ActionBroker(Flaky((2, 3), error), open_loop=3) as broker:
        assert steps(broker, 7) == [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 4.01]
        assert broker.stalls == 0


@pytest.mark.parametrize("error", [ServerGoneError, LateAnswerError])
def test_without_actions_left_it_is_said(error):
    with ActionBroker(Flaky(tuple(range(2, 99)), error), open_loop=3) as broker:
        assert steps(broker, 7)[-1] == 1.06
        with pytest.raises(error, match="not there"):
            steps(broker, 1)


def test_a_sentence_of_the_server_is_raised_though_actions_are_left():
    with ActionBroker(Flaky((2,), ServerError), open_loop=3) as broker:
        assert steps(broker, 4)[-1] == 1.03
        with pytest.raises(ServerError, match="not there"):
            steps(broker, 1)


PROGRAM = """
import signal, time
from morph_vla.serving.broker import ActionBroker

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it

class Hanging:
    asked = 0
    def get_server_metadata(self): return {}
    def reset(self): pass
    def infer(self, obs):
        self.asked += 1
        if self.asked > 1:
            print("hangs", flush=True)
            time.sleep(600)
        return {"actions": [[0.0], [0.0]]}

with ActionBroker(Hanging(), open_loop=1) as broker:
    while True:
        broker.infer({})
"""


def test_ctrl_c_ends_a_program_whose_question_is_under_way():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "hangs\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    "more",
    [
        {"depth": np.array([[1.0, np.nan]], np.float32)},
        {"effort": float("inf"), "nested": {"temperature": np.float32("nan")}},
        {"env_id": None},
        {"session_id": None, "request_id": None, "deadline_s": None},
    ],
)
def test_what_nobody_reads_refuses_no_request(more):
    asked = observation(3, episode=1, step=2)
    with serving() as server:
        answer = ask(raw(server), {**asked, **more})
    np.testing.assert_array_equal(answer["actions"], expected(asked))


def test_a_picture_of_fractions_with_a_hole_is_refused():
    picture = np.zeros((5, 7, 3))
    picture[1, 2, 0] = np.nan
    with pytest.raises(MorphVlaError, match="exterior: a picture of fractions has values from 0 to 1"):
        keys._picture(picture, "exterior")


def test_an_event_loop_gives_a_connection_up_at_once():
    policy = Wave()

    async def closed(port: int) -> float:
        asker = AsyncWebsocketClientPolicy("127.0.0.1", port, timeout_s=LIMIT_S)
        await asker.connect()
        question = asyncio.create_task(asker.infer(observation()))
        while len(policy.batches) < 2:  # warming up, and this one
            await asyncio.sleep(0.005)
        begun = time.monotonic()
        await asker.close()
        with pytest.raises(ServerError, match="the connection was closed before the answer came"):
            await question
        policy.go.set()
        assert "actions" in await asker.infer(observation())  # the next call opens another
        await asker.close()
        return time.monotonic() - begun

    with serving(policy) as server:
        policy.go.clear()
        timer = threading.Timer(LIMIT_S / 2, policy.go.set)  # else the server would not end
        timer.start()
        assert asyncio.run(closed(server.port)) < LIMIT_S / 2
        timer.cancel()


def test_what_cannot_be_sent_costs_no_connection():
    wrong = {**observation(), "at": np.array([None])}
    with serving() as server:
        asker = client(server)
        before = asker._connection
        with pytest.raises(wire.UnsendableError, match="an array of dtype 'object' cannot be sent"):
            asker.infer(wrong)
        assert asker._connection is before
        assert "actions" in asker.infer(observation())
        asker.close()

        async def kept() -> bool:
            async with AsyncWebsocketClientPolicy("127.0.0.1", server.port, timeout_s=LIMIT_S) as other:
                begun = other._connection
                with pytest.raises(wire.UnsendableError, match="cannot be sent"):
                    await other.infer(wrong)
                return other._connection is begun

        assert asyncio.run(kept())


@pytest.mark.parametrize("name", sorted(OFFLINE))
def test_a_prompt_that_would_cut_the_state_is_refused_unless_training_cut_it_too(name):
    tokenizer, state = OFFLINE[name](), np.linspace(-1, 1, 7)
    text = "put the red cube into the bowl"
    needed = len(tokenizer.encode(prompt_text(text, np.ones(7))))  # in any state
    whole = tokenize(tokenizer, text, state, needed)
    for ours, theirs in zip(tokens_of(tokenizer, text, state, needed, ()), whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    words = rf"prompt: up to {needed} tokens with the state behind it, and this policy reads {needed - 1}: "
    with pytest.raises(MorphVlaError, match=words + "the state would be cut away; say it in fewer words"):
        tokens_of(tokenizer, text, state, needed - 1, ("put the cube",))
    short, _ = tokens_of(tokenizer, text, state, needed - 1, (text,))
    assert short.shape == (needed - 1,)
