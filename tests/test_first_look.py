"""The script that asks whether a policy sees: one that does scores 1, one that goes to the mean place 0."""

import numpy as np
import pytest

from morph_vla.errors import MorphVlaError

SCRIPT = "first_look"


class Policy:
    """Answers given chunks."""

    def __init__(self, chunks):
        self.chunks = chunks

    def infer_batch(self, observations):
        assert len(observations) == len(self.chunks)
        return [{"actions": chunk} for chunk in self.chunks]


@pytest.mark.gl
def test_the_expert_sees_and_who_does_the_same_everywhere_does_not(script, tiny_suite):
    look = script.Look(tiny_suite, 5)
    plans = []
    for row in range(5):
        look.engine.reset({0: script.suites.initial_state(tiny_suite, row, len(look.robot.joints))})
        plans.append(look.expert.plan(0).actions)
    share, distance = look.of(Policy(plans))
    assert share == pytest.approx(1.0)
    assert distance == pytest.approx(0.0, abs=1e-9)
    share, distance = look.of(Policy([plans[0]] * 5))
    assert share <= 0
    assert distance == pytest.approx(np.median(np.linalg.norm(look.places - look.places[0], axis=1)))


@pytest.mark.gl
def test_chunks_that_are_too_short_are_said(script, tiny_suite):
    look = script.Look(tiny_suite, 2)
    with pytest.raises(
        MorphVlaError, match=r"^the policy answers 7 actions at a time; the place after 14 is"
    ):
        look.of(Policy(np.zeros((2, 7, 8))))


@pytest.mark.gl
def test_after_the_grasp_the_object_is_in_the_hand(script, tiny_suite):
    look = script.Look(tiny_suite, 3, lifting=True)
    steps = [observation["step"] for observation in look.observations]
    assert min(steps) > script.LIFTING
    seen = look.engine.sight(0)  # the last state, where the policy is asked
    assert np.linalg.norm(look.expert.tool(seen) - seen.object_position) < 0.03
    towards = np.linalg.norm(look.places[-1] - seen.target_position[:2])
    assert towards < np.linalg.norm(seen.object_position[:2] - seen.target_position[:2]) / 2
