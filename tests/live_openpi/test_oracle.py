"""Our pi0.5 equals openpi's own, run beside it on equal weights: velocity, loss, actions, gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from live_openpi_sizes import ODD, pure

from morph_vla.pi05 import Observation, Pi05, loss, sample_actions
from morph_vla.pi05 import model as pi05

CLOSE = 2e-5


@pytest.fixture(scope="module")
def seen(openpi, batch):
    """The batch as openpi's observation, and as ours."""
    theirs = openpi.model.Observation(
        images=jax.tree.map(jnp.asarray, batch.images),
        image_masks=jax.tree.map(jnp.asarray, batch.masks),
        state=jnp.asarray(batch.state),
        tokenized_prompt=jnp.asarray(batch.tokens),
        tokenized_prompt_mask=jnp.asarray(batch.token_mask),
    )
    return theirs, Observation(batch.images, batch.masks, batch.tokens, batch.token_mask)


def drawn(key, actions):
    """The noise and times that openpi's loss draws from a key."""
    _, noise_key, time_key = jax.random.split(key, 3)
    time = jax.random.beta(time_key, 1.5, 1, actions.shape[:1]) * 0.999 + 0.001
    return jax.random.normal(noise_key, actions.shape), time


def test_names_and_shapes(params):
    ours = jax.eval_shape(lambda: pi05.init_params(ODD, jax.random.key(0)))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, ours)


def test_velocity(openpi, theirs, params, seen, batch):
    time = jnp.asarray([0.2, 0.9])
    x, _ = pi05.interpolate(batch.actions, batch.noise, time)
    prefix, prefix_mask, prefix_ar = theirs.embed_prefix(seen[0])
    suffix, suffix_mask, suffix_ar, condition = theirs.embed_suffix(seen[0], x, time)
    mask = jnp.concatenate([prefix_mask, suffix_mask], axis=1)
    (_, out), _ = theirs.PaliGemma.llm(
        [prefix, suffix],
        mask=openpi.pi0.make_attn_mask(mask, jnp.concatenate([prefix_ar, suffix_ar])),
        positions=jnp.cumsum(mask, axis=1) - 1,
        adarms_cond=[None, condition],
    )
    wanted = theirs.action_out_proj(out[:, -ODD.horizon :])
    ours: Any = Pi05(ODD).bind({"params": params})
    joint = ours.velocity_joint(seen[1], x, time)
    cached = ours.velocity(*ours.prefix(seen[1]), x, time)
    np.testing.assert_allclose(joint, wanted, atol=CLOSE)
    np.testing.assert_allclose(cached, wanted, atol=CLOSE)


def test_loss(theirs, params, seen, batch):
    key = jax.random.key(3)
    wanted = theirs.compute_loss(key, seen[0], jnp.asarray(batch.actions), train=False)
    noise, time = drawn(key, batch.actions)
    result = loss(ODD, params, seen[1], batch.actions, noise[None], time[None])[0].mean(-1)
    np.testing.assert_allclose(result, wanted, atol=CLOSE)


@pytest.mark.parametrize("steps", [10, 3])
def test_sampled_actions(theirs, params, seen, batch, steps):
    wanted = theirs.sample_actions(
        jax.random.key(0), seen[0], num_steps=steps, noise=jnp.asarray(batch.noise)
    )
    result = sample_actions(ODD, params, seen[1], batch.noise, steps)
    np.testing.assert_allclose(result, wanted, atol=CLOSE)


def test_gradients(theirs, params, seen, batch):
    from flax import nnx

    key, actions = jax.random.key(4), jnp.asarray(batch.actions)
    grads = nnx.grad(lambda model: model.compute_loss(key, seen[0], actions, train=False).mean())(theirs)
    noise, time = drawn(key, batch.actions)
    ours = jax.grad(lambda p: loss(ODD, p, seen[1], batch.actions, noise[None], time[None]).mean())(params)
    wanted = dict(jax.tree_util.tree_leaves_with_path(pure(grads)))
    assert len(wanted) == 51
    for path, leaf in jax.tree_util.tree_leaves_with_path(ours):
        name = jax.tree_util.keystr(path)
        scale = float(jnp.abs(wanted[path]).max())
        # An attention key's bias shifts all logits of a row alike: its gradient is zero but for rounding.
        floor = 1e-6 / CLOSE if "['key']['bias']" in name else 1e-6
        assert float(jnp.abs(leaf - wanted[path]).max()) <= CLOSE * max(scale, floor), name
