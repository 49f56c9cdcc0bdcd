"""Poses that a policy is told wrongly: by one error an episode or one a step, each of the asked size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.errors import MorphVlaError

SCRIPT = "inexact_poses"
YAW = 0.7
EXACT = np.array(
    [0.5, -0.1, 0.02, np.cos(YAW / 2), 0, 0, np.sin(YAW / 2), 0.6, 0.2, 0.0, 1, 0, 0, 0], np.float32
)


def row(episode: int, step: int) -> dict:
    return {"environment_state": EXACT, "episode": episode, "step": step, "prompt": "put it there"}


def test_no_error_is_what_there_is(script):
    np.testing.assert_allclose(script.Error(0.0).told(row(3, 5)), EXACT, atol=1e-7)


def test_one_error_lasts_an_episode_or_a_step(script):
    along, anew = script.Error(0.01, 0.1), script.Error(0.01, 0.1, anew=True)
    np.testing.assert_array_equal(along.told(row(3, 5)), along.told(row(3, 7)))
    assert np.abs(along.told(row(3, 5)) - along.told(row(2, 5))).max() > 1e-4
    assert np.abs(anew.told(row(3, 5)) - anew.told(row(3, 7))).max() > 1e-4
    np.testing.assert_array_equal(anew.told(row(3, 5)), anew.told(row(3, 5)))  # the same again
    other = script.Error(0.01, 0.1, seed=1)
    assert np.abs(along.told(row(3, 5)) - other.told(row(3, 5))).max() > 1e-4


@given(episode=st.integers(0, 9999))
def test_an_object_still_lies_on_its_side(script, episode):
    """Quaternions stay unit ones about the vertical, with w >= 0."""
    told = script.Error(0.01, 2.0).told(row(episode, 0)).reshape(2, 7)[:, 3:]
    np.testing.assert_allclose(np.linalg.norm(told, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(told[:, 1:3], 0.0, atol=1e-7)
    assert (told[:, 0] >= 0).all()


def test_errors_have_the_size_that_was_asked(script):
    error = script.Error(0.013, 0.31)
    told = np.stack([error.told(row(episode, 0)) for episode in range(997)]).reshape(-1, 2, 7)
    assert (told[..., :3] - EXACT.reshape(2, 7)[:, :3]).std() == pytest.approx(0.013, rel=0.05)
    turned = 2 * np.arctan2(told[:, 0, 6], told[:, 0, 3]) - YAW
    assert turned.std() == pytest.approx(0.31, rel=0.1)


def test_a_policy_is_told_them_and_nothing_else_of_it_changes(script):
    class Policy:
        def __init__(self, poses):
            self.trained = {"environment": poses}

        def prepare(self, rows):
            return rows

    blind, policy, error = Policy([]), Policy(["x"]), script.Error(0.01)
    with pytest.raises(MorphVlaError, match=r"^this policy is told no poses of objects; pi05-arms is$"):
        script.mislead(blind, error)
    script.mislead(policy, error)
    (told,) = policy.prepare([row(3, 5)])
    np.testing.assert_array_equal(told["environment_state"], error.told(row(3, 5)))
    assert {key: told[key] for key in ("episode", "step", "prompt")} == {
        key: row(3, 5)[key] for key in ("episode", "step", "prompt")
    }
