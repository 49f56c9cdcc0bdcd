"""Real-time chunking: the next chunk goes on from the one that is executed while it is sampled."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.pi05 import sample_actions
from morph_vla.pi05.flow import schedule
from morph_vla.pi05.realtime import OF_SPEED, Previous, faded, guidance_weights, guided, held, pull, soft_mask

pytestmark = pytest.mark.slow
STEPS, REAL = 7, 5
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def previous(rows: np.ndarray, delay: int, count: int) -> Previous:
    every = np.full(len(rows), delay, np.int32), np.full(len(rows), count, np.int32)
    return Previous(rows, *every)


def test_the_mask_is_the_one_that_is_drawn():
    drawn = [1, 1, 0.49, 0.19, 0.04, 0, 0]
    mask = soft_mask(jnp.int32(2), jnp.int32(5), 7)
    assert mask.dtype == jnp.float32
    np.testing.assert_allclose(mask, drawn, atol=0.005)
    falling = [c * (np.e**c - 1) / (np.e - 1) for c in (3 / 4, 2 / 4, 1 / 4)]
    np.testing.assert_allclose(mask[2:5], falling, rtol=1e-6)


def test_a_chunk_fades_in_as_it_is_drawn():
    """Each value between the two chunks; padding and rows that nothing is given of are the new one's."""
    rng = np.random.default_rng(11)
    before, x = rng.normal(size=(2, 3, 11, 7)).astype(np.float32)
    delays, counts = np.array([2, 5, 2], np.int32), np.array([9, 7, 0], np.int32)
    real = np.broadcast_to(np.arange(7) < REAL, (3, 7))
    answer = np.asarray(faded(jnp.asarray(x), Previous(before, delays, counts), real))
    share = ((answer - x) / (before - x))[..., :REAL]
    drawn = [1, 1, 0.57, 0.29, 0.11, 0.03, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(share[0], np.tile(np.array(drawn)[:, None], REAL), atol=0.006)
    np.testing.assert_allclose(share[1, :5], 1, rtol=1e-5)
    assert (share[1, 5:7] > 0).all()
    np.testing.assert_array_equal(answer[1, 7:], x[1, 7:])
    np.testing.assert_array_equal(answer[2], x[2])
    np.testing.assert_array_equal(answer[..., REAL:], x[..., REAL:])


def test_two_rows_are_held_however_short_the_delay(sample, chunk):
    actions, noise, _ = chunk
    nothing, one, two = (sample(noise[0], previous(actions, delay, 5)) for delay in (0, 1, OF_SPEED))
    np.testing.assert_array_equal(nothing, two)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(two[:, :OF_SPEED, :REAL], actions[:, :OF_SPEED, :REAL], rtol=1e-6)
    delays = np.array([0, 2, 5], np.int32)
    np.testing.assert_array_equal(held(Previous(actions, delays, delays)).delay, [2, 2, 5])


def test_masks_at_their_ends():
    """Nothing to go on from; all of it executed meanwhile; more executed than there is."""
    delays, counts = np.array([0, 3, 5, 0], np.int32), np.array([0, 3, 3, 7], np.int32)
    mask = np.asarray(soft_mask(delays, counts, 7))
    np.testing.assert_array_equal(mask[0], 0)
    np.testing.assert_array_equal(mask[1], [1, 1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(mask[2], mask[1])
    assert (np.diff(mask[3]) < 0).all()
    assert 0 < mask[3].min() < mask[3].max() < 1


@pytest.mark.parametrize("spread", [1.0, 0.3])
def test_the_guidance_has_the_papers_weights(spread):
    """In the paper's own time, tau = 1 - t, and at most as many as there are steps: 5 of 5."""
    times = np.array([1.0, 0.8, 0.6, 0.4, 0.02], np.float32)
    tau = 1 - times[1:].astype(np.float64)
    r2 = spread**2 * (1 - tau) ** 2 / (spread**2 * tau**2 + (1 - tau) ** 2)
    weights = guidance_weights(times, spread)
    assert weights[0] == 5
    np.testing.assert_allclose(weights[1:], np.minimum((1 - tau) / (tau * r2), 5), rtol=1e-6)
    assert weights.dtype == np.float32
    assert (weights < 5).any() == (spread == 1)


def test_gaussian_actions_are_led_to_what_is_wanted():
    """Where s is the true spread, da/dx g t = 1: the estimate moves by the whole error, at any t."""
    spread, times = 0.3, schedule(997)
    weights, t = guidance_weights(times, spread), times.astype(np.float64)
    slope = spread**2 * (1 - t) / (t**2 + (spread * (1 - t)) ** 2)  # of actions of variance s^2
    free = weights < 997
    assert free.sum() > 900
    np.testing.assert_allclose((t * weights * slope)[free], 1, rtol=1e-4)


def test_the_correction_is_the_estimates_transposed_jacobian():
    """A velocity that is a matrix: v = x A, so that da/dx = 1 - t A."""
    rng = np.random.default_rng(5)
    matrix, x, target = (rng.normal(size=size).astype(np.float32) for size in ((3, 3), (2, 5, 3), (2, 5, 3)))
    t, g = np.float32(0.7), np.float32(2.0)
    held = pull(previous(target, 2, 4))
    with jax.default_matmul_precision("highest"):
        v = guided(lambda x: x @ matrix, jnp.asarray(x), jnp.asarray(t), jnp.asarray(g), held)
    error = np.asarray(held.mask) * (target - (x - t * (x @ matrix)))
    expected = x @ matrix - g * error @ (np.eye(3, dtype=np.float32) - t * matrix).T
    np.testing.assert_allclose(v, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(v[:, 4], (x @ matrix)[:, 4], rtol=1e-6)


class Sampler:
    """`sample_actions` in one program; `compiled` says how many it took."""

    def __init__(self, config: Any, params: Any, seen: Any, real: Any = None):
        self.call: Any = quick(partial(sample_actions, config, steps=STEPS, real=real))
        self.given = params, seen

    def __call__(self, noise: np.ndarray, previous: Previous | None = None) -> np.ndarray:
        return np.asarray(self.call(*self.given, noise, previous=previous))

    @property
    def compiled(self) -> int:
        return self.call._cache_size()


@pytest.fixture(scope="module", params=["body", "host"])
def sample(request, plugin, host, params, seen):
    """A sampler with kinematic tokens, and one of pi0.5 alone."""
    if request.param == "body":
        return Sampler(plugin, params, seen)
    alone = {name: value for name, value in params.items() if name != "morphology"}
    real = np.broadcast_to(np.arange(7) < REAL, (2, 7))
    return Sampler(host, alone, dataclasses.replace(seen, body=None), real)


def test_with_nothing_to_go_on_from_a_chunk_is_the_plain_one_bit_for_bit(sample, chunk):
    actions, noise, _ = chunk
    plain = sample(noise[0])
    np.testing.assert_array_equal(sample(noise[0], previous(actions, 0, 0)), plain)
    assert not np.array_equal(sample(noise[0], previous(actions, 1, 3)), plain)


def test_rows_that_are_executed_meanwhile_are_kept(sample, chunk):
    """The closer to the end of the mask, the freer a row is; those before `delay` are the previous one's."""
    _, noise, _ = chunk
    before, plain = sample(noise[1]), sample(noise[0])
    guided = sample(noise[0], previous(before, 3, 5))
    apart, free = (np.abs(answer - before)[..., :REAL].max(axis=(0, 2)) for answer in (guided, plain))
    assert apart[:3].max() < 1e-6 < free[:3].min()
    assert (apart[3:5] > apart[:3].max()).all()
    assert guided.dtype == np.float32


def test_padding_is_neither_led_nor_leads(sample, chunk):
    """What stands in the values that a robot lacks changes nothing, and they end at 0."""
    actions, noise, _ = chunk
    other = actions.copy()
    other[..., REAL:] += 11
    answer = sample(noise[0], previous(actions, 2, 4))
    np.testing.assert_array_equal(sample(noise[0], previous(other, 2, 4)), answer)
    np.testing.assert_array_equal(answer[..., REAL:], 0)


def test_what_does_not_go_on_smoothly_neither_is_led_nor_leads(sample, chunk):
    """A gripper, say: what it did in the last chunk changes nothing, and it does not begin there."""
    actions, noise, _ = chunk
    smooth = np.broadcast_to(np.arange(7) != 3, (2, 7))
    other = actions.copy()
    other[..., 3] += 11
    answer = sample(noise[0], previous(actions, 2, 4)._replace(smooth=smooth))
    np.testing.assert_array_equal(sample(noise[0], previous(other, 2, 4)._replace(smooth=smooth)), answer)
    apart = np.abs(answer - actions)[:, :2].max(axis=(0, 1))
    assert apart[3] > 1e-2
    assert np.delete(apart[:REAL], 3).max() < 1e-6


def test_rows_of_a_batch_are_led_apart(sample, chunk):
    """Each by its own delay; and no other delay compiles anything."""
    actions, noise, _ = chunk
    first, second = (sample(noise[0], previous(actions, *given)) for given in ((1, 2), (3, 5)))
    programs = sample.compiled
    mixed = Previous(actions, np.array([1, 3], np.int32), np.array([2, 5], np.int32))
    np.testing.assert_array_equal(sample(noise[0], mixed), np.stack([first[0], second[1]]))
    assert sample.compiled == programs
