"""Kinematic tokens and FiLM: what a token reads, and the laws of relabelling and padding."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.morphology import Body, KinematicTokens, MorphologyConfig
from morph_vla.morphology.film import Film, modulate
from morph_vla.morphology.tokens import Encoder, join_chunks, split_chunks

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
    tokens = KinematicTokens(config, WIDTH, LAYERS, heads=2)
    shapes = jax.eval_shape(
        tokens.init, jax.random.key(0), normal(BATCH, HORIZON, ACTIONS), body(JOINTS, config.max_joints)
    )
    return tokens, random_like(shapes)


def test_split_chunks_is_this_loop():
    actions = normal(BATCH, HORIZON, ACTIONS)
    result = np.asarray(split_chunks(actions, JOINTS, CHUNKS))
    length = HORIZON // CHUNKS
    assert result.shape == (BATCH, CHUNKS * JOINTS, length)
    for b in range(BATCH):
        for k in range(CHUNKS):
            for j in range(JOINTS):
                wanted = [actions[b, k * length + i, j] for i in range(length)]
                np.testing.assert_array_equal(result[b, k * JOINTS + j], wanted)


def test_join_chunks_undoes_it():
    actions = normal(BATCH, HORIZON, JOINTS)
    joined = join_chunks(split_chunks(actions, JOINTS, CHUNKS), JOINTS)
    np.testing.assert_array_equal(joined, actions)


@pytest.mark.parametrize("auxiliary", [0, 1])
def test_readout_joints_reads_each_joint_from_its_own_tokens_alike(auxiliary):
    config = MorphologyConfig(max_joints=JOINTS, chunks=CHUNKS, auxiliary=auxiliary, readout="joints")
    plugin, tokens = KinematicTokens(config, WIDTH, LAYERS, heads=2), normal(BATCH, config.tokens, WIDTH)
    shapes = jax.eval_shape(lambda: plugin.init(jax.random.key(0), tokens, HORIZON, method="velocity"))
    params = random_like(shapes)
    read = np.asarray(plugin.apply(params, tokens, HORIZON, method="velocity"))
    assert read.shape == (BATCH, HORIZON, JOINTS)
    order = np.array([3, 0, 4, 1, 2])
    by_token = (np.arange(config.copies)[:, None] * JOINTS + order).ravel()
    moved = plugin.apply(params, tokens[:, by_token], HORIZON, method="velocity")
    np.testing.assert_allclose(np.asarray(moved), read[:, :, order], atol=1e-6)
    other = plugin.apply(params, tokens.at[:, JOINTS + 2].add(1.0), HORIZON, method="velocity")
    length = HORIZON // CHUNKS
    changed = np.zeros((HORIZON, JOINTS), bool)
    changed[length : 2 * length, 2] = True  # joint 2 in chunk 1
    np.testing.assert_array_equal((np.asarray(other) != read).any(axis=0), changed)
    begun = plugin.init(jax.random.key(0), tokens, HORIZON, method="velocity")
    assert not np.asarray(plugin.apply(begun, tokens, HORIZON, method="velocity")).any()


VARIANTS: dict[str, dict[str, Any]] = {
    "linear": {"encoder": "linear", "film": False, "bias": "full"},
    "auxiliary": {"auxiliary": 2, "bias": "mix"},
    "no bias": {"bias": "none", "start": "exact"},
    "spd-soft": {"bias": "spd-soft", "max_distance": 3},
    "adj-soft-v1.0": {"bias": "adj-soft-v1.0"},
    "adj-soft-v1.1": {"bias": "adj-soft-v1.1", "auxiliary": 1},
    "adj-soft-v2.0": {"bias": "adj-soft-v2.0"},
}
CONTROLS: dict[str, dict[str, Any]] = {
    "random": {"bias": "full", "control": "random", "control_seed": 3},
    "tokens": {"bias": "none", "control": "tokens", "film": False, "control_seed": 3, "auxiliary": 1},
}


def relabel(robot: Body, order: np.ndarray) -> Body:
    """The same robot, its joints in another order."""
    return Body(
        robot.adjacency[:, order][:, :, order],
        robot.distances[:, order][:, :, order],
        robot.descriptors[:, order],
        robot.joint_mask[:, order],
    )


def by_places(params: dict, places: np.ndarray) -> dict:
    """What v1.0 learns per pair of places, at these places; nothing else knows places."""
    theta = params["params"].get("bias", {}).get("theta", np.zeros(1))
    if theta.ndim < 3:
        return params
    moved = {"theta": theta[:, places][:, :, places]}
    return {"params": {**params["params"], "bias": moved}}


@pytest.mark.parametrize("name", VARIANTS)
def test_relabelling_joints_relabels_tokens_and_bias(name):
    tokens, params = module(**VARIANTS[name])
    actions, robot = normal(BATCH, HORIZON, ACTIONS), body()
    order = np.array([3, 0, 4, 1, 2])
    columns = np.r_[order, np.arange(JOINTS, ACTIONS)]
    compiled: Any = jax.jit(tokens.apply)
    before = compiled(params, actions, robot)
    after = compiled(by_places(params, order), actions[:, :, columns], relabel(robot, order))
    by_token = (np.arange(tokens.config.copies)[:, None] * JOINTS + order).ravel()
    assert before.tokens.shape == (BATCH, tokens.config.tokens, WIDTH)
    assert float(np.abs(before.tokens).max()) > 0.1
    np.testing.assert_allclose(after.tokens, np.asarray(before.tokens)[:, by_token], atol=1e-6)
    np.testing.assert_array_equal(after.mask, np.asarray(before.mask)[:, by_token])
    np.testing.assert_array_equal(after.bias, np.asarray(before.bias)[:, :, order][:, :, :, order])


@pytest.mark.parametrize("name", [*VARIANTS, *CONTROLS])
def test_padding_adds_masked_tokens_and_changes_no_other(name):
    actions, places = normal(BATCH, HORIZON, ACTIONS), 7
    changes = {**VARIANTS, **CONTROLS}[name]
    plain, _ = module(**changes)
    padded, params = module(max_joints=places, **changes)
    one = jax.jit(plain.apply)(by_places(params, np.arange(JOINTS)), actions, body())
    more = jax.jit(padded.apply)(params, actions, body(JOINTS, places))
    real = (np.arange(plain.config.copies)[:, None] * places + np.arange(JOINTS)).ravel()
    np.testing.assert_allclose(np.asarray(more.tokens)[:, real], one.tokens, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(more.bias)[:, :, :JOINTS, :JOINTS], one.bias)
    assert np.asarray(one.mask).all()
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(more.mask)[0]), real)


@pytest.mark.parametrize("chunks", [1, 2, 4, 8, 16])
def test_the_papers_chunks_and_auxiliary_tokens(chunks):
    """Tokens of an encoder follow those of the one before, and read the same chunks."""
    config = MorphologyConfig(max_joints=JOINTS, chunks=chunks, auxiliary=2, film=False)
    config.check(horizon=16, action_dim=ACTIONS)
    tokens, actions = KinematicTokens(config, WIDTH, LAYERS, heads=2), normal(BATCH, 16, ACTIONS)
    params = random_like(jax.eval_shape(tokens.init, jax.random.key(0), actions, body()))
    result = np.asarray(apply(tokens, params, actions, body()).tokens).reshape(
        BATCH, 3, chunks * JOINTS, WIDTH
    )
    pieces = split_chunks(actions, JOINTS, chunks)
    for m, name in enumerate(("encoder", "auxiliary_0", "auxiliary_1")):
        one = apply(Encoder(config.encoder, WIDTH, WIDTH), {"params": params["params"][name]}, pieces)
        np.testing.assert_allclose(result[:, m], one, atol=1e-6)
    assert np.abs(result[:, 0] - result[:, 1]).max() > 1e-2


@pytest.mark.parametrize("encoder", ["linear", "linear-swiglu-linear"])
def test_at_the_start_every_token_is_zero(encoder):
    config = MorphologyConfig(max_joints=JOINTS, chunks=CHUNKS, encoder=encoder)
    tokens = KinematicTokens(config, WIDTH, LAYERS, heads=2)
    actions = normal(BATCH, HORIZON, ACTIONS)
    params = tokens.init(jax.random.key(0), actions, body())
    result = apply(tokens, params, actions, body()).tokens
    assert not np.asarray(result).any()
    # ... but it can learn: the last layer has a gradient.
    target = normal(*result.shape)

    def loss(params):
        return jnp.mean(jnp.square(apply(tokens, params, actions, body()).tokens - target))

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
    result = apply(film, {"params": {"generator": {"kernel": kernel, "bias": bias}}}, z, descriptors)
    both = descriptors @ kernel + bias
    gamma, beta = both[..., :WIDTH], both[..., WIDTH:]
    np.testing.assert_allclose(result, (1 + gamma) * z + beta, atol=1e-5)
    np.testing.assert_array_equal(modulate(z, gamma, beta), (1 + gamma) * z + beta)


def test_film_tells_joints_apart_by_their_descriptors():
    robot = body()
    actions = jnp.broadcast_to(normal(BATCH, HORIZON, 1), (BATCH, HORIZON, ACTIONS))  # all joints move alike
    tokens, params = module(chunks=1)
    result = np.asarray(apply(tokens, params, actions, robot).tokens)
    assert np.abs(result[:, 0] - result[:, 1]).max() > 1e-2
    blind = dataclasses.replace(robot, descriptors=np.zeros_like(robot.descriptors))
    result = np.asarray(apply(tokens, params, actions, blind).tokens)
    np.testing.assert_allclose(result[:, 0], result[:, 1], atol=1e-6)
