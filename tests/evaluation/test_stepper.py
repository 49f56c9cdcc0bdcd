"""A suite stepped from outside: the same actions give the same trial as an evaluation."""

import dataclasses

import numpy as np
import pytest
from policies import Wave

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.evaluation.rollout import Settings
from morph_vla.evaluation.stepper import Stepper

FIRST, ROWS, OPEN_LOOP = 3, 2, 5


@pytest.fixture
def stepper(tiny_suite):
    stepper = Stepper(tiny_suite, count=ROWS)
    yield stepper
    stepper.close()


def play(stepper: Stepper, policy: Wave) -> None:
    """Every episode to its end, a policy asked once in OPEN_LOOP steps."""
    chunks = {}
    while going_on := [index for index in range(stepper.count) if stepper.trial(index) is None]:
        for index in going_on:
            if stepper.status(index).steps % OPEN_LOOP == 0:
                chunks[index] = policy.infer(stepper.observe(index))["actions"]
        row = stepper.status(going_on[0]).steps % OPEN_LOOP
        stepper.step({index: chunks[index][row] for index in going_on})


def test_the_same_actions_give_the_trials_of_an_evaluation(stepper):
    settings = Settings(ROWS, first=FIRST, parallel=1, workers=1, videos=0, open_loop=OPEN_LOOP)
    record = rollout.evaluate(stepper.suite, Wave(), settings)
    stepper.reset({index: FIRST + index for index in range(ROWS)})
    play(stepper, Wave())
    trials = [stepper.trial(index) for index in range(ROWS)]
    assert trials == [dataclasses.replace(trial, begun_anew=None, jumps=None) for trial in record.trials]
    assert [trial.episode for trial in trials] == [FIRST, FIRST + 1]


def test_what_is_observed_says_where_a_policy_takes_its_random_numbers_from(stepper):
    stepper.reset({1: 17})
    action = stepper.observe(1)["state"]
    stepper.step({1: action})
    seen = stepper.observe(1)
    assert (seen["episode"], seen["step"]) == (17, 1)
    assert seen["connection"] == stepper.observe(1)["connection"]
    assert seen["images/wrist"].shape == (24, 24, 3)


def test_a_row_of_another_table_is_another_state(stepper):
    stepper.reset({0: 7})
    stepper.reset({1: 7}, stream="training")
    same, other = stepper.observe(0), stepper.observe(1)
    assert not np.array_equal(same["state"], other["state"])


def test_limits_are_the_joints_in_the_datasets_units(stepper):
    low, high = stepper.limits
    assert np.all(low < high)
    assert (low[-1], high[-1]) == (0.0, 1.0)  # panda's gripper: 0 open, 1 closed, where its URDF has metres


def test_an_action_that_fits_no_joints_is_named(stepper):
    stepper.reset({0: 0})
    with pytest.raises(
        MorphVlaError, match=r"^an action has 7 values; expected one per joint \(panda_joint1, "
    ):
        stepper.step({0: np.zeros(7)})
    with pytest.raises(MorphVlaError, match=r"^an action has 2 values that are not finite$"):
        stepper.step({0: np.array([0, 0, np.nan, np.inf, 0, 0, 0, 0])})


def test_an_episode_that_has_not_begun_takes_no_step(stepper):
    with pytest.raises(MorphVlaError, match=r"^episode 1 of 2 has not begun: reset it first$"):
        stepper.step({1: np.zeros(8)})


def test_a_row_below_0_is_named(stepper):
    with pytest.raises(MorphVlaError, match=r"cube_in_bowl': rows are counted from 0, not -1$"):
        stepper.reset({0: -1})


def test_worlds_that_move_together_are_reset_together(stepper):
    stepper.lockstep = True
    stepper.reset({0: 0, 1: 1})
    with pytest.raises(MorphVlaError, match=r"reset all of them at once, .* \(1 would go on\)$"):
        stepper.reset({0: 2})
    stepper.reset({0: 2, 1: 3})
    assert stepper.observe(0)["episode"] == 2
