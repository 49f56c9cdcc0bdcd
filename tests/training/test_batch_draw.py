"""What a step draws: times, and how many actions of a chunk are given."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_step import CONFIG, GIVEN, SETTINGS

from morph_vla.pi05.model import example
from morph_vla.training import step as training


@pytest.mark.parametrize(
    ("draws", "share", "least", "most"), [(3, 2 / 3, 2, 2), (3, 0.5, 1, 2), (1, 0.5, 0, 1)]
)
def test_a_share_of_a_rows_draws_is_at_time_one_in_training_and_nowhere_else(draws, share, least, most):
    observation, actions, _ = example(CONFIG, 211)
    mask = jnp.ones((211, actions.shape[2]), bool)
    settings = dataclasses.replace(SETTINGS, flow_samples=draws, noise_share=share)

    def times(augment):
        return np.asarray(
            training.draw(CONFIG, settings, observation, actions, mask, jax.random.key(3), augment).time
        )

    of_noise = times(True) == 1
    assert of_noise.shape == (211, draws)
    assert set(of_noise.sum(axis=1)) == set(range(least, most + 1))
    assert of_noise.mean() == pytest.approx(share, abs=0.1)
    plain = times(False)
    assert (plain < 1).all()  # held-out losses of two recipes stay comparable
    np.testing.assert_array_equal(times(True)[~of_noise], plain[~of_noise])


def test_actions_are_given_in_every_number_in_training_and_none_of_noise_alone_or_of_held_out_rows():
    observation, actions, _ = example(GIVEN, 211)
    mask = jnp.ones((211, actions.shape[2]), bool)
    settings = dataclasses.replace(SETTINGS, flow_samples=3, noise_share=1 / 3)

    def drawn(config, augment=True):
        return training.draw(config, settings, observation, actions, mask, jax.random.key(3), augment)

    given, time = np.asarray(drawn(GIVEN).given), np.asarray(drawn(GIVEN).time)
    assert given.shape == (211, 3)
    assert (given[time == 1] == 0).all()
    others = given[time < 1]
    np.testing.assert_allclose(np.bincount(others) / others.size, 1 / 3, atol=0.06)
    assert drawn(GIVEN, augment=False).given is None
    plain = drawn(CONFIG)
    assert plain.given is None
    np.testing.assert_array_equal(plain.noise, drawn(GIVEN).noise)
    np.testing.assert_array_equal(plain.time, drawn(GIVEN).time)
