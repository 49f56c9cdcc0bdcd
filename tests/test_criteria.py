"""The script that judges the same episodes by both versions of the criterion."""

import contextlib
import importlib.util

import pytest
from policies import Wave

from morph_vla import robots

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp")):
    pytest.skip("the scripted experts need the extra 'sim'", allow_module_level=True)

SCRIPT = "criteria"


class Waves(Wave):
    """Answers several at once."""

    def infer_batch(self, observations):
        return [self.infer(observation) for observation in observations]


@pytest.fixture
def engine(script, tiny_suite):
    with contextlib.closing(script.MujocoEngine(robots.load("panda"), tiny_suite, 2)) as worlds:
        yield worlds


@pytest.mark.slow
def test_only_what_lies_on_a_target_upside_down_is_judged_otherwise(script, engine):
    verdicts = list(script.drops(engine, 12))
    stands, lies, upside_down = (verdicts[kind::3] for kind in range(3))
    assert all(first == second for first, second in stands)
    assert (None, "inside") in upside_down
    assert not any(second is None for _, second in (*lies, *upside_down))


def test_the_expert_succeeds_by_both(script, engine):
    assert list(script.expert_episodes(engine, 1)) == [(None, None)]


@pytest.mark.gl
def test_a_policy_is_asked_until_its_time_is_up(script, engine):
    policy = Waves()
    assert list(script.policy_episodes(engine, policy, 3)) == [("inside", "inside")] * 3
    assert [episode for episode, step in policy.asked if step == 0] == [0, 1, 2]
    assert max(step for _, step in policy.asked) == 24  # of 30 control steps, eight at a time


def test_a_line_counts_who_changed_and_why(script):
    verdicts = [(None, None), (None, "upright"), (None, "upright"), (None, "released"), ("inside", None)]
    assert (
        script.row("a", "drops", verdicts) == "| a | drops | 5 | 4 | 2 | 2 upright, 1 released | 1 inside |"
    )
    assert script.row("a", "expert", [(None, None)]) == "| a | expert | 1 | 1 | 1 | – | – |"


def test_rows_that_succeed_in_one_version_alone_are_listed(script):
    verdicts = [(None, None), ("inside", "upright"), (None, "upright"), ("inside", None)]
    assert script.changed("a", verdicts) == [
        "a, row 2: first success, second upright",
        "a, row 3: first inside, second success",
    ]
