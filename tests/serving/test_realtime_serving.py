"""Real-time chunking on the server: who is told what of the chunk that is executed."""

import contextlib
import dataclasses
import json
import shutil
from typing import Any

import numpy as np
import pytest
from stand_ins import (
    HORIZON,
    LIMIT_S,
    Wave,
    ask,
    card,
    client,
    expected,
    limits,
    observation,
    raw,
    rest,
    serving,
)

from morph_vla.data import actions as learning
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.serving import card as cards
from morph_vla.serving import remote
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.requests import examples
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings

pytestmark = pytest.mark.slow


class Noting(Wave):
    """A wave that keeps what it was told of the last answer."""

    def __init__(self):
        super().__init__()
        self.told: dict[str, Any] = {}

    def answer(self, asked):
        self.told[asked["prompt"]] = asked.get("inference_delay"), asked.get("previous_actions")
        return super().answer(asked)


@contextlib.contextmanager
def real_time(policy=None):
    known = dataclasses.replace(card(), accepts=cards.ACCEPTS + cards.REAL_TIME)
    server = PolicyServer(policy or Noting(), known, limits(), Settings(port=0))
    with server.background(examples(known), ready_s=LIMIT_S):
        yield server


def went_on(frozen: int, guided: int) -> dict[str, int]:
    return {"frozen": frozen, "guided": guided}


def test_a_sessions_next_answer_goes_on_from_its_last_one():
    policy = Noting()
    with real_time(policy) as server, raw(server) as connection:

        def answer(number: int, **more) -> dict:
            return ask(connection, observation(number, episode=0, step=number, **more))

        first, other = (answer(n, env_id=name, inference_delay=1) for n, name in ((1, "left"), (2, "right")))
        assert first["real_time"] == other["real_time"] == went_on(0, 0)
        assert policy.told["task 1"] == (1, None)
        second = answer(3, env_id="left", inference_delay=2, executed_steps=1)
        assert second["real_time"] == went_on(2, HORIZON - 1)
        delay, left = policy.told["task 3"]
        assert delay == 2
        np.testing.assert_array_equal(left, first["actions"][1:])
        answer(4, env_id="right", inference_delay=0, executed_steps=3)
        np.testing.assert_array_equal(policy.told["task 4"][1], other["actions"][3:])
        answer(5, env_id="left", inference_delay=9, executed_steps=4)
        assert policy.told["task 5"][0] == HORIZON
        np.testing.assert_array_equal(policy.told["task 5"][1], second["actions"][4:])


def test_where_there_is_nothing_to_go_on_from_an_answer_stands_for_itself():
    """After a reset, on another connection, after an answer that nobody goes on from, and past its end."""
    with real_time() as server, raw(server) as connection, raw(server) as another:
        going_on = {"inference_delay": 1, "executed_steps": 2}

        def guided(on, **more) -> int:
            return ask(on, observation(1, **more))["real_time"]["guided"]

        assert guided(connection, **going_on) == 0
        assert guided(connection, **going_on) == HORIZON - 2
        assert guided(another, **going_on) == 0
        assert guided(connection, reset=True, **going_on) == 0
        assert "real_time" not in ask(connection, observation(1))
        assert guided(connection, **going_on) == 0
        assert ask(connection, {"endpoint": "reset"}) == "reset successful"
        assert guided(connection, **going_on) == 0
        assert guided(connection, inference_delay=1, executed_steps=50) == 0
        # A client that counts its episodes itself says the next one by its number.
        assert guided(connection, episode=3, step=0, inference_delay=1) == 0
        assert guided(connection, episode=3, step=2, **going_on) == HORIZON - 2
        assert guided(connection, episode=4, step=0, **going_on) == 0


def test_rows_of_a_batch_have_sessions_of_their_own():
    policy = Noting()
    with real_time(policy) as server, client(server) as asker:
        rows = [observation(number, env_id=number, inference_delay=0) for number in range(3)]
        first = asker.infer_batch(rows)
        second = asker.infer_batch(
            [{**row, "prompt": f"then {n}", "executed_steps": n} for n, row in enumerate(rows)]
        )
    assert [answer["real_time"] for answer in second] == [went_on(0, HORIZON - n) for n in range(3)]
    for number, answer in enumerate(first):
        np.testing.assert_array_equal(policy.told[f"then {number}"][1], answer["actions"][number:])


def test_rows_of_one_session_cannot_go_on_each_from_its_own_answer():
    with real_time(Noting()) as server, raw(server) as connection:
        rows = [observation(number, inference_delay=1) for number in range(2)]
        sentence = ask(connection, {"batch": rows})
        assert sentence == (
            "batch: with inference_delay each row goes on from its own last answer; give each its own env_id"
        )
        assert len(ask(connection, {"batch": [{**row, "env_id": i} for i, row in enumerate(rows)]})) == 2


def test_a_server_that_was_not_told_to_ignores_the_words():
    policy = Noting()
    with serving(policy) as server, raw(server) as connection:
        asked = observation(1, inference_delay="soon", executed_steps=3, episode=0, step=0)
        answer = ask(connection, asked)
    assert "real_time" not in answer
    assert policy.told["task 1"] == (None, None)
    np.testing.assert_array_equal(answer["actions"], expected(asked))


def test_what_is_no_number_of_steps_gets_a_sentence():
    with real_time() as server, raw(server) as connection:
        for key, value in (("inference_delay", -1), ("inference_delay", 0.5), ("executed_steps", "two")):
            sentence = ask(connection, observation(1, **{"inference_delay": 1, key: value}))
            assert sentence == f"{key}: expected control steps, a whole number from 0 on"


def test_a_question_that_is_refused_costs_no_session_its_last_answer():
    going_on = {"inference_delay": 1, "executed_steps": 1, "episode": 0}
    with real_time() as server, raw(server) as connection:
        rows = [observation(n, env_id=str(n), step=0, **going_on) for n in range(2)]
        ask(connection, {"batch": rows})
        later = [{**row, "step": 1} for row in rows]
        lacking = {key: value for key, value in later[1].items() if key != "state"}
        assert "the observation lacks state" in ask(connection, {"batch": [later[0], lacking]})
        failing = [later[0], {**later[1], "prompt": "fail"}]
        assert isinstance(ask(connection, {"batch": failing}), str)
        answers = ask(connection, {"batch": later})
        assert [answer["real_time"] for answer in answers] == [went_on(1, HORIZON - 1)] * 2


def test_as_many_sessions_go_on_as_a_connection_may_have():
    going_on = {"inference_delay": 1, "executed_steps": 1, "episode": 0}
    few = {"state": rest(), "images/exterior": np.zeros((2, 2, 3), np.uint8)}
    few["images/wrist"] = few["images/exterior"]
    with real_time() as server, raw(server) as connection:
        for step in range(2):
            answers = []
            for group in range(2):
                rows = [{"env_id": f"{group}/{n}", "prompt": "x"} for n in range(150)]
                answers += ask(connection, {**few, **going_on, "step": step, "batch": rows})
        assert {answer["real_time"]["guided"] for answer in answers} == {HORIZON - 1}


# ------------------------------------------------------------------------------------------------ policy


@pytest.fixture(scope="module")
def policy(tiny_run) -> CheckpointPolicy:
    return CheckpointPolicy(tiny_run.checkpoint, batch=3)


@pytest.fixture(scope="module")
def given(tiny_run, tmp_path_factory) -> CheckpointPolicy:
    """The same parameters, of a recipe by which they had learnt to go on from two actions."""
    folder = tmp_path_factory.mktemp("given") / "1"
    shutil.copytree(tiny_run.checkpoint, folder)
    path = folder / "about" / "recipe.json"
    recipe = json.loads(path.read_text())
    recipe["model"]["delay_max"] = 2
    path.write_text(json.dumps(recipe))
    return CheckpointPolicy(folder, batch=3)


def seen(number: int, **more) -> dict:
    return {**observation(number), "prompt": "put the cube in the bowl", "episode": number, "step": 0, **more}


@pytest.mark.parametrize("which", ["policy", "given"])
def test_answers_are_the_same_alone_and_beside_those_that_go_on(which, request):
    policy = request.getfixturevalue(which)
    last = policy.infer(seen(1))["actions"]
    rows = [
        seen(2),
        seen(2, previous_actions=last[5:], inference_delay=3),
        seen(3, previous_actions=last[2:7], inference_delay=0),
        seen(4),
        seen(5, previous_actions=last[:0], inference_delay=1),
    ]
    together = [answer["actions"] for answer in policy.infer_batch(rows)]
    for row, answer in zip(rows, together, strict=True):
        np.testing.assert_array_equal(policy.infer(row)["actions"], answer)
    assert not np.array_equal(together[0], together[1])


def test_a_checkpoint_that_was_trained_to_begins_with_what_is_executed(policy, given):
    """With as much of it as it was trained to, two targets at least; without it, it answers as ever."""
    last = policy.infer(seen(1))["actions"]
    asked = seen(2, previous_actions=last[3:], inference_delay=2)
    answer, *others, beyond = (
        given.infer({**asked, "inference_delay": delay})["actions"] for delay in (2, 0, 1, 5)
    )
    np.testing.assert_allclose(answer[:2], last[3:5], rtol=1e-5, atol=1e-6)
    for other in others:
        np.testing.assert_array_equal(other, answer)
    arm = slice(0, 7)
    np.testing.assert_allclose(beyond[:5, arm], last[3:8, arm], rtol=1e-5, atol=1e-6)  # executed anyway
    np.testing.assert_allclose(beyond[9:], answer[9:], rtol=1e-5, atol=1e-6)  # the same two rows were given
    assert np.abs(beyond[2:5, 7] - last[5:8, 7]).min() > 1e-5  # the gripper closes when it has to
    assert np.abs(policy.infer(asked)["actions"] - answer).max() > 1e-4  # led, not given
    np.testing.assert_array_equal(given.infer(seen(2))["actions"], policy.infer(seen(2))["actions"])


def test_a_server_says_how_much_an_answer_begins_with(given):
    known, bounds = cards.of(given, real_time=True)
    assert (known.delay_min, known.delay_max, known.fading) == (2, 2, 4)
    server = PolicyServer(given, known, bounds, Settings(port=0))
    row = {key: value for key, value in seen(1).items() if key not in ("episode", "step")}
    with server.background(examples(known), ready_s=LIMIT_S), raw(server) as connection:
        for delay, executed, wanted in ((3, None, (0, 0)), (0, 2, (2, 6)), (1, 2, (2, 6)), (3, 2, (3, 7))):
            asked = {**row, "inference_delay": delay}
            asked |= {} if executed is None else {"executed_steps": executed}
            assert ask(connection, asked)["real_time"] == went_on(*wanted)


@pytest.mark.parametrize("kind", ["absolute", "delta", "velocity"])
def test_what_is_executed_is_turned_into_what_the_model_has_learnt(policy, kind, monkeypatch):
    monkeypatch.setitem(policy.trained, "actions", kind)
    row = seen(2)
    left = np.random.default_rng(3).normal(size=(5, 8)).astype(np.float32)
    previous = policy._previous([{**row, "previous_actions": left, "inference_delay": 2}])
    assert (int(previous.delay[0]), int(previous.count[0])) == (2, 5)
    learnt = policy._stats["action_stats"].restore(previous.actions[0, :5, :8])
    relative = np.asarray(policy.trained["relative"])
    again = learning.restore(kind, learnt, row["state"], relative, policy.trained["control_rate"])
    np.testing.assert_allclose(again, left, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(previous.actions[0, 5:], 0)


def test_actions_that_do_not_fit_are_refused_in_a_sentence(policy):
    with pytest.raises(
        MorphVlaError, match=r"previous_actions have shape \[4, 7\]; expected finite targets "
    ):
        policy.infer(seen(1, previous_actions=np.zeros((4, 7)), inference_delay=1))
    with pytest.raises(MorphVlaError, match="previous_actions come with inference_delay, control steps from"):
        policy.infer(seen(1, previous_actions=np.zeros((4, 8), np.float32)))


def test_a_real_time_evaluation_over_the_wire_is_the_checkpoints_own(policy, tiny_suite):
    known, bounds = cards.of(policy, real_time=True)
    free = np.full_like(bounds.upper, np.inf)  # the engine keeps the limits too
    wide = dataclasses.replace(bounds, lower=-free, upper=free, speed=free)
    options: dict[str, Any] = {"episodes": 2, "parallel": 2, "workers": 1, "videos": 0, "latency": 3}
    here = evaluate(policy, tiny_suite, real_time=True, **options)
    server = PolicyServer(policy, known, wide, Settings(port=0))
    with server.background(examples(known)):
        served = remote.connect(f"ws://127.0.0.1:{server.port}", [tiny_suite])
        there = evaluate(served, tiny_suite, real_time=True, **options)
        naive = evaluate(served, tiny_suite, **options)
    assert there.trials == here.trials
    assert not there.summary.errors
    assert naive.trials != here.trials
