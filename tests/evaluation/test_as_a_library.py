"""`morph_vla.evaluate` in somebody's own script: their policy, their arguments, a second call."""

import dataclasses
from collections import UserDict

import numpy as np
import pytest
from test_evaluate import Described, played  # noqa: F401 (a fixture)

from morph_vla.engines.engine import actions_of, rows_of
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.evaluation.evaluate import check_given, evaluate
from morph_vla.results.record import read
from morph_vla.suites import suite


@pytest.fixture(scope="module")
def task():
    return suite.load("droid_panda:cube_in_bowl")


class Bare:
    """A policy that says nothing of itself."""

    def infer(self, observation):
        raise AssertionError("nothing is rolled out here")


def test_an_answer_is_a_copy():
    """A policy may answer from one array: what an episode executes would be the last one's."""
    buffer = np.zeros((3, 2), np.float32)
    first = actions_of({"actions": buffer}, 2)
    buffer[:] = 7
    second = rows_of(UserDict({"actions": buffer}))  # a mapping is as good as a dictionary
    assert (first == 0).all()
    assert (second == 7).all()
    with pytest.raises(MorphVlaError, match=r"^the policy's answer has no 'actions' \(got \['3', 'x'\]\)$"):
        rows_of({"x": 1, 3: 2})


@pytest.mark.parametrize(
    ("policy", "kind"), [(lambda _: {}, "a function"), (Bare, "the class Bare"), ("runs/first", "a str")]
)
def test_what_cannot_be_asked_is_refused_before_every_episode_fails_at_it(policy, kind):
    words = rf"and this is {kind}; that of a checkpoint: morph_vla.load_policy\(FOLDER\)$"
    with pytest.raises(MorphVlaError, match=words):
        rollout.check_policy(policy)
    rollout.check_policy(Bare())


@pytest.mark.usefixtures("played")
def test_a_second_policy_of_a_name_is_said(task, folder, caplog):
    """Without a digest nobody knows whether it is the first."""
    words = (
        "out: 2 episodes of an earlier evaluation of 'Bare' are read back: a policy whose describe() says no "
        "sha256 is known by its name alone: give another folder or name"
    )
    evaluate(Bare(), task, folder="out", episodes=2)
    assert words not in caplog.messages
    evaluate(Bare(), task, folder="out", episodes=2)
    assert caplog.messages.count(words) == 1
    evaluate(Bare(), task, folder="out", name="other", episodes=2)
    evaluate(Described(), task, folder="known", episodes=2)
    evaluate(Described(), task, folder="known", episodes=2)
    assert len([line for line in caplog.messages if "read back" in line]) == 1


@pytest.mark.usefixtures("played")
def test_numbers_of_numpy_are_numbers(task, folder):
    class Numbers(Bare):
        def describe(self):
            return {"name": "mine", "step": np.int64(3), "sha256": None, "gain": np.float32(0.5)}

    record = evaluate(Numbers(), task, folder="out", episodes=np.int64(2), open_loop=np.int32(4))
    kept = read("out")
    assert kept == dataclasses.replace(record)
    assert (kept.policy.step, kept.policy.others, kept.open_loop) == (3, {"gain": 0.5}, 4)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"episode": 2}, r"^no setting 'episode'; did you mean 'episodes'\? \(episodes, parallel, "),
        ({"episodes": 2.0}, r"^episodes is 2\.0; expected a whole number$"),
        ({"parallel": "4"}, r"^parallel is '4'; expected a whole number$"),
    ],
)
def test_a_setting_that_is_none_is_one_sentence(task, settings, words):
    with pytest.raises(MorphVlaError, match=words):
        evaluate(Bare(), task, **settings)


@pytest.mark.parametrize(
    ("given", "what"), [("droid_panda", "the name 'droid_panda'"), ([], "nothing"), ("", "nothing")]
)
def test_a_name_is_no_task(given, what):
    words = rf"^{what} is no task to evaluate on; give load_suite\(NAME\), or one task of it$"
    with pytest.raises(MorphVlaError, match=words):
        check_given(given)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("said", [None, {}, {"name": 3}, ["mine"]])
def test_a_description_without_a_name_is_one_sentence(task, said):
    class Odd(Bare):
        def describe(self):
            return said

    with pytest.raises(MorphVlaError, match=r"^describe\(\) of Odd gives .*; expected a dictionary"):
        evaluate(Odd(), task, episodes=1)
    if isinstance(said, dict):
        assert evaluate(Odd(), task, name="given", episodes=1).policy.name == "given"
