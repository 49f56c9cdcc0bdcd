"""What is drawn as kept is what the prefix reads: the patches, and how much of each."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import draw_params

from morph_vla.pi05 import Observation, Pi05, Pi05Config
from morph_vla.pi05.config import ImageTokens
from morph_vla.pi05.image_tokens import FewerTokens, lengths
from morph_vla.pi05.kept import cameras, kept

WAYS = {
    "ranking": ImageTokens(keep=5, features="positive", width=3, projections=5),
    "random": ImageTokens(keep=5, how="random", seed=3),
    "average": ImageTokens(keep=1, how="average"),
    "learnt": ImageTokens(keep=5, how="learnt", features="relu", width=3),
}


def both(config: Pi05Config, seen: Observation) -> Any:
    """The weights, the prefix's image tokens [b c k d], and those of a model that keeps all."""
    every = dataclasses.replace(config, image_tokens=None)

    @jax.jit
    def run(params: Any) -> Any:
        embed = partial(Pi05.embed_prefix, observation=seen)
        read, patches = (Pi05(one).apply({"params": params}, method=embed)[0] for one in (config, every))
        return kept(config, params, seen), read, patches

    weights, read, patches = run(draw_params(config))
    shapes = [(len(seen.tokens), 3, count, -1) for count in (config.kept, config.patches)]
    parts = [
        tokens[:, : 3 * shape[2]].reshape(shape)
        for tokens, shape in zip((read, patches), shapes, strict=True)
    ]
    return np.asarray(weights), *map(np.asarray, parts)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ranking", "random"])
def test_the_patches_that_are_drawn_are_the_tokens_that_the_prefix_reads(host, seen, how):
    config = dataclasses.replace(host, image_tokens=WAYS[how])
    weights, read, patches = both(config, seen)
    assert weights.shape == (2, 3, 9)
    for row in range(2):
        for camera, name in enumerate(cameras(config, seen)):
            drawn = np.flatnonzero(weights[row, camera])
            if not seen.image_masks[name][row]:
                assert len(drawn) == 0
                continue
            assert weights[row, camera, drawn].tolist() == [1] * 5
            np.testing.assert_array_equal(read[row, camera], patches[row, camera, drawn])


def test_a_model_that_keeps_all_reads_every_patch_of_the_cameras_that_are_there(host, seen):
    weights = np.asarray(kept(host, {}, seen))
    present = np.stack([seen.image_masks[name] for name in host.cameras], axis=1)
    assert 0 < present.sum() < present.size
    np.testing.assert_array_equal(weights, np.broadcast_to(present[..., None], (2, 3, 9)))


@pytest.mark.parametrize("how", ["random", "average", "learnt"])
def test_a_weight_is_the_length_of_its_patchs_column(how):
    """Of the Jacobian of what is left; a ranking's tokens move their scores too, and are tested above."""
    width, config = 7, WAYS[how]
    module = FewerTokens(config, 9)
    tokens = jnp.asarray(np.random.default_rng(0).normal(size=(1, 9, width)), jnp.float32)
    variables = module.init(jax.random.key(0), tokens)  # the gate of `learnt` is 0: what is left is linear
    slope: Any = jax.jit(jax.jacobian(partial(module.apply, variables)))
    jacobian = np.asarray(slope(tokens))[0, :, :, 0]
    applied: Any = module.apply(variables, tokens, mutable=["intermediates"])
    _, sown = applied
    (weights,) = sown["intermediates"]["weights"]
    columns = np.sqrt(np.square(jacobian).sum(axis=(0, 1, 3)) / width)
    np.testing.assert_allclose(weights[0], columns, rtol=1e-5)


def test_a_mixture_that_has_learnt_is_measured_with_its_gate():
    rng = np.random.default_rng(1)
    projection, mixing, gate = (rng.normal(size=shape) for shape in ((5, 9), (2, 5, 9), (7,)))
    matrix = projection[None, :, :, None] + mixing[..., None] * gate  # [b k t d]
    wanted = np.sqrt(np.square(matrix).sum(axis=1).mean(axis=-1))
    given = (jnp.asarray(part, jnp.float32) for part in (projection, mixing, gate))
    np.testing.assert_allclose(lengths(*given), wanted, rtol=1e-5)


def test_the_matrix_that_is_measured_is_the_one_that_mixes():
    """P X + gate (1/L) P A X again, from what `lengths` was given."""
    rng, width = np.random.default_rng(2), 7
    module, tokens = FewerTokens(WAYS["learnt"], 9), rng.normal(size=(2, 9, width)).astype(np.float32)
    leaves = {"projection": (5, 9), "gate": (width,), "query": (width, 3), "key": (width, 3)}
    params = {name: rng.normal(size=shape).astype(np.float32) for name, shape in leaves.items()}
    applied: Any = module.apply({"params": params}, jnp.asarray(tokens), mutable=["intermediates"])
    left, sown = applied
    queries, keys = (np.maximum(tokens @ params[name], 0) for name in ("query", "key"))
    mixing = params["projection"] @ queries @ keys.swapaxes(1, 2) / 9
    mixed = params["projection"] @ tokens + params["gate"] * (mixing @ tokens)
    np.testing.assert_allclose(left, mixed, rtol=1e-4, atol=1e-4)
    given = (jnp.asarray(part) for part in (params["projection"], mixing, params["gate"]))
    np.testing.assert_allclose(sown["intermediates"]["weights"][0], lengths(*given), rtol=1e-4)
