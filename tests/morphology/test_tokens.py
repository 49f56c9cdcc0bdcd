"""Kinematic tokens and FiLM: what a token reads, and the laws of relabelling and padding."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.morphology import Body, KinematicTokens, MorphologyConfig
from morph_vla.morphology.film import Film, modulate
from morph_vla.morphology.tokens import Encoder, split_chunks

# Flax 0.10 under JAX 0.5, openpi's pins.
pytestmark = [
    pytest.mark.filterwarnings("ignore:linear_util.wrap_init:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:shape requires ndarray:DeprecationWarning"),
]

BATCH, HORIZON, ACTIONS, JOINTS, CHUNKS, WIDTH, LAYERS = 2, 6, 11, 5, 3, 13, 3
rng = np.random.default_rng(7)


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def body(joints: int = JOINTS, places: int = 0) -> Body:
    """A random graph with random descriptors, the same in no two rows, padded to `places`."""
    source, places = np.random.default_rng(3), places or joints
    near = source.random((BATCH, joints, joints)) < 0.4
    adjacency = np.broadcast_to(np.eye(places, dtype=bool), (BATCH, places, places)).copy()
    adjacency[:, :joints, :joints] |= near | near.swapaxes(1, 2)
    descriptors = np.zeros((BATCH, places, 12), np.float32)
    descriptors[:, :joints] = source.normal(size=(BATCH, joints, 12))
    mask = np.broadcast_to(np.arange(places) < joints, (BATCH, places))
    return Body(adjacency, np.where(adjacency, 0, 1).astype(np.int32), descriptors, mask)


def random_like(params, scale: float = 0.3):
    source = np.random.default_rng(5)
    return jax.tree.map(lambda x: (scale * source.normal(size=x.shape)).astype(np.float32), params)


def apply(of: Any, params: Any, *inputs: Any) -> Any:
    return of.apply(params, *inputs)


def module(**changes) -> tuple[KinematicTokens, dict]:
    """The module with parameters none of which is zero."""
    config = MorphologyConfig(**{"max_joints": JOINTS, "chunks": CHUNKS, "bias": "mix", **changes})
    tokens = KinematicTokens(config, WIDTH, LAYERS)
    shapes = jax.eval_shape(
        tokens.init, jax.random.key(0), normal(BATCH, HORIZON, ACTIONS), body(JOINTS, config.max_joints)
    )
    return tokens, random_like(shapes)


def test_split_chunks_is_this_loop():
    actions = normal(BATCH, HORIZON, ACTIONS)
    found = np.asarray(split_chunks(actions, JOINTS, CHUNKS))
    length = HORIZON // CHUNKS
    assert found.shape == (BATCH, CHUNKS * JOINTS, length)
    for b in range(BATCH):
        for k in range(CHUNKS):
            for j in range(JOINTS):
                wanted = [actions[b, k * length + i, j] for i in range(length)]
                np.testing.assert_array_equal(found[b, k * JOINTS + j], wanted)


@pytest.mark.parametrize("encoder", ["linear", "linear-swiglu-linear"])
@pytest.mark.parametrize("film", [False, True])
def test_relabelling_joints_relabels_tokens_and_bias(encoder, film):
    tokens, params = module(encoder=encoder, film=film)
    actions, robot = normal(BATCH, HORIZON, ACTIONS), body()
    order = np.array([3, 0, 4, 1, 2])
    columns = np.r_[order, np.arange(JOINTS, ACTIONS)]
    relabelled = Body(
        robot.adjacency[:, order][:, :, order],
        robot.distances[:, order][:, :, order],
        robot.descriptors[:, order],
        robot.joint_mask[:, order],
    )
    compiled: Any = jax.jit(tokens.apply)
    before, mask, bias = compiled(params, actions, robot)
    after, after_mask, after_bias = compiled(params, actions[:, :, columns], relabelled)
    by_token = (np.arange(CHUNKS)[:, None] * JOINTS + order).ravel()
    assert float(np.abs(before).max()) > 0.1
    np.testing.assert_allclose(after, np.asarray(before)[:, by_token], atol=1e-6)
    np.testing.assert_array_equal(after_mask, np.asarray(mask)[:, by_token])
    np.testing.assert_array_equal(after_bias, np.asarray(bias)[:, :, by_token][:, :, :, by_token])


def test_padding_adds_masked_tokens_and_changes_no_other():
    actions, places = normal(BATCH, HORIZON, ACTIONS), 7
    plain, params = module()
    padded, same = module(max_joints=places)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)  # no parameter knows how many joints there are
    tokens, mask, bias = jax.jit(plain.apply)(params, actions, body())
    more, more_mask, more_bias = jax.jit(padded.apply)(params, actions, body(JOINTS, places))
    real = (np.arange(CHUNKS)[:, None] * places + np.arange(JOINTS)).ravel()
    np.testing.assert_allclose(np.asarray(more)[:, real], tokens, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(more_bias)[:, :, real][:, :, :, real], bias)
    assert np.asarray(mask).all()
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(more_mask)[0]), real)


@pytest.mark.parametrize("encoder", ["linear", "linear-swiglu-linear"])
def test_at_the_start_every_token_is_zero(encoder):
    config = MorphologyConfig(max_joints=JOINTS, chunks=CHUNKS, encoder=encoder)
    tokens = KinematicTokens(config, WIDTH, LAYERS)
    actions = normal(BATCH, HORIZON, ACTIONS)
    params = tokens.init(jax.random.key(0), actions, body())
    found = apply(tokens, params, actions, body())[0]
    assert not np.asarray(found).any()
    # ... but it can learn: the last layer has a gradient.
    target = normal(*found.shape)

    def loss(params):
        return jnp.mean(jnp.square(apply(tokens, params, actions, body())[0] - target))

    gradient = jax.grad(loss)(params)["params"]["encoder"]["out"]
    assert np.asarray(gradient["kernel"]).any()


def test_the_encoders_sizes():
    linear = jax.eval_shape(Encoder("linear", 7, WIDTH).init, jax.random.key(0), normal(BATCH, JOINTS, 2))
    assert jax.tree.map(np.shape, linear["params"]) == {"out": {"bias": (13,), "kernel": (2, 13)}}
    deep = jax.eval_shape(
        Encoder("linear-swiglu-linear", 7, WIDTH).init, jax.random.key(0), normal(BATCH, JOINTS, 2)
    )
    assert jax.tree.map(np.shape, deep["params"]) == {
        "in": {"bias": (14,), "kernel": (2, 14)},
        "out": {"bias": (13,), "kernel": (7, 13)},
    }


def test_film_is_the_identity_at_the_start_and_the_equation_afterwards():
    z, descriptors = normal(BATCH, JOINTS, WIDTH), normal(BATCH, JOINTS, 12)
    film = Film(WIDTH)
    params = film.init(jax.random.key(0), z, descriptors)
    np.testing.assert_array_equal(apply(film, params, z, descriptors), z)
    kernel, bias = normal(12, 2 * WIDTH), normal(2 * WIDTH)
    found = apply(film, {"params": {"generator": {"kernel": kernel, "bias": bias}}}, z, descriptors)
    both = descriptors @ kernel + bias
    gamma, beta = both[..., :WIDTH], both[..., WIDTH:]
    np.testing.assert_allclose(found, (1 + gamma) * z + beta, atol=1e-5)
    np.testing.assert_array_equal(modulate(z, gamma, beta), (1 + gamma) * z + beta)


def test_film_tells_joints_apart_by_their_descriptors():
    robot = body()
    actions = jnp.broadcast_to(normal(BATCH, HORIZON, 1), (BATCH, HORIZON, ACTIONS))  # all joints move alike
    tokens, params = module(chunks=1)
    found = np.asarray(apply(tokens, params, actions, robot)[0])
    assert np.abs(found[:, 0] - found[:, 1]).max() > 1e-2
    blind = dataclasses.replace(robot, descriptors=np.zeros_like(robot.descriptors))
    found = np.asarray(apply(tokens, params, actions, blind)[0])
    np.testing.assert_allclose(found[:, 0], found[:, 1], atol=1e-6)
