"""What a model learns of recorded actions, and the way back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.data.actions import restore, to_learn

RELATIVE = np.array([True, True, False])
CHUNK = np.array([[1.0, 2.0, 0.5], [1.5, 2.0, 0.0]])
STATE = np.array([0.5, 2.5, 9.0])


def test_the_three_kinds():
    learnt = {
        kind: to_learn(kind, CHUNK, STATE, RELATIVE, 10.0) for kind in ("absolute", "delta", "velocity")
    }
    np.testing.assert_array_equal(learnt["absolute"], CHUNK)
    np.testing.assert_allclose(learnt["delta"], [[0.5, -0.5, 0.5], [1.0, -0.5, 0.0]])
    np.testing.assert_allclose(learnt["velocity"], [[5.0, -5.0, 0.5], [5.0, 0.0, 0.0]])


@pytest.mark.parametrize("kind", ["absolute", "delta", "velocity"])
@given(st.integers(0, 2**32 - 1))
def test_restore_is_the_inverse(kind, seed):
    random = np.random.default_rng(seed)
    chunk, state = random.normal(size=(5, 7, 3)), random.normal(size=(5, 3))
    relative = random.random(3) < 0.5
    learnt = to_learn(kind, chunk, state, relative, 15.0)
    np.testing.assert_allclose(restore(kind, learnt, state, relative, 15.0), chunk, atol=1e-12)


@pytest.mark.parametrize("kind", ["delta", "velocity"])
def test_a_robot_that_stands_still_learns_zero(kind):
    chunk = np.broadcast_to(STATE, (7, 3)).astype(np.float32)
    learnt = to_learn(kind, chunk, STATE.astype(np.float32), RELATIVE, 30.0)
    assert learnt.dtype == np.float32
    np.testing.assert_array_equal(learnt[:, :2], 0)
    np.testing.assert_array_equal(learnt[:, 2], 9)
