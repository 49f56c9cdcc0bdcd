"""A policy that raises, answers nonsense or does not answer is an error of its episodes, never a silence."""

import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from morph_vla.engines.engine import actions_of
from morph_vla.errors import MorphVlaError, PolicyGoneError
from morph_vla.evaluation.asking import FIRST, Asker

JOINTS = 3
READ = partial(actions_of, joints=JOINTS)
GOOD = {"actions": np.ones((2, JOINTS))}
SECONDS = 0.5


class Scripted:
    """Answers an observation `{"do": what}` by what it says; batches only when `batched`."""

    infer_batch: Any

    def __init__(self, batched: bool = True):
        self.gate = threading.Event()
        self.calls: list[tuple[str, str]] = []
        if batched:
            self.infer_batch = lambda observations: [self.infer(one, "batch") for one in observations]

    def infer(self, observation, how="alone") -> Any:
        self.calls.append((observation["do"], how))
        match observation["do"]:
            case "raise":
                raise RuntimeError("out of ideas")
            case "gone":
                raise PolicyGoneError("ws://there:8000 is not to be reached: refused")
            case "exit":
                raise SystemExit(3)
            case "nan":
                return {"actions": np.full((2, JOINTS), np.nan)}
            case "narrow":
                return {"actions": np.zeros((2, JOINTS - 1))}
            case "ragged":
                return {"actions": [[1.0, 2.0], [3.0]]}
            case "nothing":
                return None
            case "late":
                time.sleep(1.5 * SECONDS)
            case "hang":
                self.gate.wait(20)
        return GOOD


@pytest.fixture(params=[True, False], ids=["batch", "alone"])
def policy(request):
    made = Scripted(request.param)
    yield made
    made.gate.set()


def ask(asker: Asker, *what: str) -> list:
    return asker.ask([{"do": word} for word in what])


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("raise", "policy: RuntimeError: out of ideas"),
        ("exit", "policy: SystemExit: 3"),
        ("nan", "policy: the policy's actions hold 6 values that are not finite"),
        (
            "narrow",
            "policy: the policy's actions have shape (2, 2); expected (horizon, 3), one column per joint",
        ),
        ("nothing", "policy: the policy's answer has no 'actions' (got NoneType)"),
    ],
)
def test_a_failure_is_that_episodes_own(policy, what, words):
    with Asker(policy, READ) as asker:
        first, failed, last = ask(asker, "good", what, "good")
    assert failed == words
    assert first.shape == last.shape == (2, JOINTS)


def test_rows_of_unequal_length_are_an_error_too(policy):
    with Asker(policy, READ) as asker:
        assert ask(asker, "ragged")[0].startswith("policy: ValueError: ")


def test_a_batch_that_fails_is_asked_one_by_one_and_said():
    policy = Scripted()
    with Asker(policy, READ) as asker:
        ask(asker, "good", "raise", "good")
        ask(asker, "raise")
        assert asker.notes == [
            "the policy's infer_batch failed (RuntimeError: out of ideas) and it was asked one by one"
        ]
    assert [how for _, how in policy.calls] == ["batch", "batch", *["alone"] * 3, "batch", "alone"]


def test_a_batch_with_an_answer_too_few_is_not_taken_for_the_others():
    policy = Scripted()
    policy.infer_batch = lambda observations: [GOOD] * (len(observations) - 1)
    with Asker(policy, READ) as asker:
        assert len(ask(asker, "good", "good", "good")) == 3
        assert "2 answers to 3 observations" in asker.notes[0]


def test_a_late_answer_costs_its_own_episode():
    """Whoever is late is waited for before the next question, and what it said then is thrown away."""
    with Asker(Scripted(batched=False), READ, SECONDS) as asker:
        ask(asker, "good")
        before, late, after = ask(asker, "good", "late", "good")
    assert late == f"policy: no answer within {SECONDS:g} s"
    assert before.shape == after.shape == (2, JOINTS)


def test_a_late_batch_is_asked_one_by_one_once_the_policy_is_back():
    policy = Scripted()
    with Asker(policy, READ, SECONDS) as asker:
        ask(asker, "good")
        fine, late = ask(asker, "good", "late")
        assert fine.shape == (2, JOINTS)
        assert late == f"policy: no answer within {SECONDS:g} s"
        assert f"no answer within {SECONDS:g} s" in asker.notes[0]


def test_a_policy_that_is_stuck_ends_it_in_one_sentence(policy):
    with Asker(policy, READ, SECONDS) as asker:
        ask(asker, "good")
        begun = time.monotonic()
        answers = ask(asker, "hang", "good")
        assert answers[0].startswith(f"policy: no answer within {SECONDS:g} s")
        if hasattr(policy, "infer_batch"):
            assert answers[1] == f"policy: no answer within {SECONDS:g} s, asked for 2 at once"
        else:
            assert answers[1] is None  # it was never asked
        with pytest.raises(
            MorphVlaError,
            match=r"^the policy is stuck: it does not come back from a call \(limit 0.5 s, --timeout\); "
            "finished episodes are kept, and the same command goes on with the others$",
        ):
            ask(asker, "good")
        assert time.monotonic() - begun < 20 * SECONDS


def test_a_policy_that_is_there_no_more_is_no_error_of_episodes(policy):
    """They would count as its failures for good: nobody plays them again."""
    with Asker(policy, READ, SECONDS) as asker:
        ask(asker, "good")
        with pytest.raises(
            MorphVlaError,
            match=r"^ws://there:8000 is not to be reached: refused; finished episodes are kept, and",
        ):
            ask(asker, "good", "gone", "good")


def test_the_first_call_may_compile():
    policy = Scripted(batched=False)
    with Asker(policy, READ, SECONDS / 2) as asker:
        assert 1.5 * SECONDS < FIRST * SECONDS / 2
        assert ask(asker, "late")[0].shape == (2, JOINTS)  # the first: ten times the limit
        assert ask(asker, "late")[0] == f"policy: no answer within {SECONDS / 2:g} s"


def test_nothing_is_asked_for_nothing():
    policy = Scripted()
    with Asker(policy, READ) as asker:
        assert asker.ask([]) == []
    assert policy.calls == []
