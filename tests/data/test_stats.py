"""Statistics and normalisation."""

import logging

import numpy as np
import pytest

from morph_vla.data import stats


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.random.default_rng(0).normal([0, 5, -200], [1, 0.3, 40], (997, 3)).astype(np.float32)


def test_the_statistics_are_exact(values):
    learnt = stats.widened(stats.measure(values))
    exact = values.astype(np.float64)
    np.testing.assert_allclose(learnt.q01, np.quantile(exact, 0.01, axis=0))
    np.testing.assert_allclose(learnt.q99, np.quantile(exact, 0.99, axis=0))
    np.testing.assert_allclose(learnt.mean, exact.mean(0))
    np.testing.assert_allclose(learnt.std, exact.std(0), rtol=1e-5)


def test_quantiles_go_to_one_and_nothing_is_clipped(values):
    learnt = stats.widened(stats.measure(values))
    ends = np.stack([learnt.q01, learnt.q99]).astype(np.float32)
    np.testing.assert_allclose(learnt.normalise(ends), [[-1, -1, -1], [1, 1, 1]], atol=1e-4)
    assert np.abs(learnt.normalise(values)).max() > 1
    assert learnt.normalise(values).dtype == np.float32


def test_restore_is_the_inverse(values):
    learnt = stats.widened(stats.measure(values))
    np.testing.assert_allclose(learnt.restore(learnt.normalise(values)), values, rtol=1e-5, atol=1e-5)
    chunk = values[:990].reshape(5, 198, 3)
    np.testing.assert_array_equal(learnt.normalise(chunk), learnt.normalise(values[:990]).reshape(5, 198, 3))


@pytest.mark.parametrize(("names", "called"), [((), "value 1"), (("lift", "elbow", "grip"), "elbow")])
def test_a_dimension_that_hardly_moves_is_widened_and_named(values, names, called, caplog):
    still = values.copy()
    still[:, 1] = 5.0
    with caplog.at_level(logging.WARNING, "morph_vla"):
        learnt = stats.widened(stats.measure(still), names)
    assert caplog.messages == [f"{called} (q01 5, q99 5) hardly moves: its range is widened to 0.01"]
    assert learnt.q01[1] == pytest.approx(4.995)
    assert learnt.q99[1] == pytest.approx(5.005)
    np.testing.assert_allclose(learnt.normalise(still)[:, 1], 0, atol=1e-3)
    assert learnt.q01[0] == stats.widened(stats.measure(values)).q01[0]


def test_dimensions_that_move_are_not_named(values, caplog):
    with caplog.at_level(logging.WARNING, "morph_vla"):
        stats.widened(stats.measure(values))
    assert not caplog.messages


def test_poses_that_hardly_change_have_a_range_about_their_middle():
    """One object that falls over is then a few ranges away, and not a hundred."""
    known = stats.of_environment(np.tile(np.array([0.3, 1.0]), (101, 1)))
    np.testing.assert_allclose(known.q01, [0.3 - stats.POSE_SPAN / 2, 1.0 - stats.POSE_SPAN / 2])
    np.testing.assert_allclose(known.q99, [0.3 + stats.POSE_SPAN / 2, 1.0 + stats.POSE_SPAN / 2])
    wide = np.linspace(-1.0, 2.0, 101)[:, None]
    assert stats.of_environment(wide) == stats.measure(wide)
