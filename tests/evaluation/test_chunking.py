"""Which actions of which answer an episode executes under latency, and how far its targets jump."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from policies import Wave

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.chunking import Chunking, jumps
from morph_vla.evaluation.rollout import Settings, evaluate
from morph_vla.results import identity
from morph_vla.results.record import record_from_json
from morph_vla.results.trial import Jumps, pooled


def executed(chunking: Chunking, rows: int, asked: int) -> tuple[list[str], list[int]]:
    """What is executed of answers a, b, c, ... of so many rows, `a3` being the fourth of the first."""
    left, parts = None, []
    for answer in range(asked):
        chunk = np.array([[answer, row] for row in range(rows)], np.float32)
        parts.append(chunking.next(chunk, left))
        left = chunking.remaining(chunk)
    names = [f"{chr(97 + int(answer))}{int(row)}" for part in parts for answer, row in part]
    return names, chunking.borders([len(part) for part in parts])


def test_answers_take_over_as_it_is_drawn():
    names, borders = executed(Chunking(open_loop=4, latency=2), 7, 3)
    assert names == ["a0", "a1", "a2", "a3", "a4", "a5", "b2", "b3", "b4", "b5", "c2", "c3"]
    assert borders == [6, 10]


@pytest.mark.parametrize("latency", [0, 1, 4])
def test_every_control_step_has_the_action_that_was_planned_for_it(latency):
    """The row of an answer is the control steps since it was asked for."""
    names, borders = executed(Chunking(4, latency), 8, 5)
    for step, name in enumerate(names):
        answer, row = ord(name[0]) - ord("a"), int(name[1])
        assert 4 * answer + row == step
    assert [names[step] for step in borders if step < len(names)] == [
        f"{letter}{latency}" for letter in "bcde" if 4 * "abcde".index(letter) + latency < len(names)
    ]


def test_motion_at_a_constant_speed_does_not_jump_and_a_step_does():
    targets = np.outer(np.arange(11.0), [0.1, -0.3, 0.7])
    still = jumps(targets, [3, 7])
    assert still is not None
    assert still.max == pytest.approx(0, abs=1e-12)
    targets[7:, 1] += 0.25
    assert jumps(targets, []) is None
    assert jumps(targets, [1, 11]) is None  # before there is a speed, and after the last target
    measured = jumps(targets, [3, 7])
    assert measured is not None
    assert (measured.count, measured.max) == (2, pytest.approx(0.25))
    assert measured.rms == pytest.approx(0.25 / np.sqrt(2 * 3))
    # The speed is back one step later, which is no border.
    assert (measured.others, measured.elsewhere) == (7, pytest.approx(0.25 / np.sqrt(7 * 3)))


class GoesOn(Wave):
    """A wave of answers with a row for each step of two questions; keeps what it is told of the last one."""

    real_time = True

    def __init__(self):
        super().__init__()
        self.told: list[dict] = []

    def infer(self, observation):
        self.told.append(
            {key: observation.get(key) for key in ("step", "previous_actions", "inference_delay")}
        )
        rng = np.random.default_rng(observation["step"])
        return {"actions": self.rest + 0.05 * rng.normal(size=(7, 8)).astype(np.float32)}


def run(suite, policy, **settings):
    few: dict[str, Any] = {"episodes": 1, "parallel": 1, "workers": 1, "videos": 0, "open_loop": 3}
    return evaluate(suite, policy, Settings(**(few | settings)))


@pytest.mark.slow
def test_a_policy_is_told_what_is_executed_until_its_answer_is_there(tiny_suite):
    policy = GoesOn()
    record = run(tiny_suite, policy, latency=2, real_time=True)
    first, *others = policy.told
    assert (first["step"], first["previous_actions"], first["inference_delay"]) == (0, None, 2)
    for before, asked in zip(policy.told, others, strict=False):
        assert asked["step"] == before["step"] + 3
        answered = GoesOn().infer({"step": before["step"]})["actions"]
        np.testing.assert_array_equal(asked["previous_actions"], answered[3:])
    assert (record.latency, record.real_time) == (2, True)
    (trial,) = record.trials
    assert isinstance(trial.jumps, Jumps)
    assert trial.jumps.count == len(range(5, tiny_suite.max_steps, 3))


def test_what_is_recorded_of_jumps_is_read_back(tiny_suite):
    record = run(tiny_suite, GoesOn(), latency=1)
    plain = json.loads(json.dumps(record.to_json()))
    again = record_from_json(plain)
    assert again.trials == record.trials
    assert again.chunking == {"open_loop": 3, "latency": 1, "real_time": False}
    del plain["trials"][0]["jumps"]["rms"]
    assert record_from_json(plain).trials[0].jumps is None


@pytest.mark.slow
def test_another_latency_is_another_evaluation_and_a_condition(tiny_suite):
    at_once, late = run(tiny_suite, GoesOn()), run(tiny_suite, GoesOn(), latency=1)
    guided = run(tiny_suite, GoesOn(), latency=1, real_time=True)
    assert at_once.chunking == {"open_loop": 3}
    kinds = {identity.of_evaluation(record) for record in (at_once, late, guided)}
    assert len(kinds) == 3
    assert [str(fact.key) for fact in identity.conditions(at_once, late)] == ["latency", "real_time"]
    (fact,) = identity.conditions(late, guided)
    assert fact.words() == "real_time: false and true"
    assert identity.measured(late, guided) == []


@pytest.mark.slow
def test_what_cannot_be_is_refused(tiny_suite):
    with pytest.raises(MorphVlaError, match="with a latency of 4 control steps the next question would come"):
        run(tiny_suite, GoesOn(), latency=4)
    with pytest.raises(MorphVlaError, match="latency must be at least 0 control steps, not -1"):
        run(tiny_suite, GoesOn(), latency=-1)
    with pytest.raises(MorphVlaError, match="the policy answers with 5 actions; 3 are executed until it is "):
        run(tiny_suite, Wave(), latency=3)
    with pytest.raises(MorphVlaError, match=r"does not go on from what is being executed \(real-time chu"):
        run(tiny_suite, Wave(), real_time=True)


def test_answers_that_are_there_at_once_are_executed_as_ever(tiny_suite):
    """A shorter answer than is asked for is executed whole."""
    record = run(tiny_suite, Wave(), open_loop=8)
    (trial,) = record.trials
    assert trial.jumps is not None
    assert trial.jumps.count == len(range(5, tiny_suite.max_steps, 5))
    assert dataclasses.asdict(trial.jumps).keys() == {"count", "rms", "max", "others", "elsewhere"}


def test_jumps_of_several_episodes_are_one_over_all_their_steps():
    parts = [Jumps(3, 0.2, 0.5, 7, 0.1), Jumps(1, 0.6, 0.4, 3, 0.3)]
    whole = pooled(parts)
    assert whole is not None
    assert (whole.count, whole.max, whole.others) == (4, 0.5, 10)
    assert whole.rms == pytest.approx(np.sqrt((3 * 0.04 + 0.36) / 4))
    assert whole.elsewhere == pytest.approx(np.sqrt((7 * 0.01 + 3 * 0.09) / 10))
    assert pooled([]) is None
    assert str(Jumps(231, 0.0502, 0.2631, 700, 0.026)) == (
        "targets jump by 0.0502 rms, 0.263 at most, at 231 borders of answers [rad | m]; "
        "elsewhere by 0.0260 rms"
    )
