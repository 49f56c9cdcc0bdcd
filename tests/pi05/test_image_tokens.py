"""Fewer image tokens: what is kept, what stays as it was, and what makes no sense."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import draw_params

from morph_vla.errors import ConfigError
from morph_vla.pi05 import Pi05, Pi05Config, counts
from morph_vla.pi05.config import ImageTokens
from morph_vla.pi05.image_tokens import FewerTokens, averaged, runs
from morph_vla.pi05.parts import by_name, part_of

RANKING = ImageTokens(keep=4, features="positive", width=3, projections=5)
AVERAGE, RANDOM = ImageTokens(keep=1, how="average"), ImageTokens(keep=4, how="random", seed=3)
WAYS = {
    "ranking": dataclasses.replace(RANKING, features="hybrid", normalized=False),
    "learnt": dataclasses.replace(RANKING, how="learnt", features="trigonometric"),
    "average": AVERAGE,
    "random": RANDOM,
}


def fewer(config: ImageTokens, tokens: Any) -> Any:
    """The tokens that are left, from fresh parameters, and the weights of all."""
    module = FewerTokens(config, tokens.shape[1])
    variables = jax.jit(module.init)(jax.random.key(0), tokens)
    return jax.jit(partial(module.apply, mutable=["intermediates"]))(variables, tokens)


def tokens(count: int = 9, width: int = 19) -> Any:
    """Two images' tokens."""
    return jnp.asarray(np.random.default_rng(0).normal(size=(2, count, width)), jnp.float32)


def with_fewer(host: Pi05Config, config: ImageTokens) -> Pi05Config:
    """The model of these tests, whose images have 9 tokens."""
    return dataclasses.replace(host, image_tokens=config)


def embedded(model: Pi05Config, params: Any, seen: Any) -> Any:
    """The prefix's tokens and mask."""
    embed = partial(Pi05(model).apply, method=Pi05.embed_prefix)
    return jax.jit(embed)({"params": params}, seen)


@pytest.mark.parametrize("how", WAYS)
def test_the_prefix_has_the_tokens_that_are_left_and_their_cameras_masks(host, seen, how):
    model = with_fewer(host, WAYS[how])
    tokens, mask = embedded(model, draw_params(model), seen)
    each = 3 * model.kept
    assert tokens.shape[1] == mask.shape[1] == each + host.max_tokens
    assert counts.tokens(model)["image"] == each
    present = np.stack([seen.image_masks[name] for name in host.cameras], axis=1)
    np.testing.assert_array_equal(mask[:, :each], np.repeat(present, model.kept, axis=1))
    np.testing.assert_array_equal(mask[:, each:], seen.token_mask)


def test_all_tokens_kept_is_the_prefix_without_bit_for_bit(host, seen):
    every = with_fewer(host, dataclasses.replace(RANKING, keep=9))
    params = draw_params(every)
    plain = {name: leaf for name, leaf in params.items() if name != "image_tokens"}
    for ours, theirs in zip(embedded(every, params, seen), embedded(host, plain, seen), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_the_cached_pass_equals_the_joint_one(host, seen, chunk):
    model = with_fewer(host, RANKING)
    actions, noise, time = map(jnp.asarray, chunk)

    @jax.jit
    def both(params: Any) -> Any:
        x_t, apply = 0.5 * actions + 0.5 * noise[0], partial(Pi05(model).apply, {"params": params})
        joint = apply(seen, x_t, time[0], method=Pi05.velocity_joint)
        cache, mask = apply(seen, method=Pi05.prefix)
        return joint, apply(cache, mask, x_t, time[0], method=Pi05.velocity)

    joint, cached = both(draw_params(model))
    np.testing.assert_allclose(cached, joint, atol=2e-5)


def test_ranking_keeps_tokens_as_they_are_in_reading_order():
    seen = tokens()
    kept, sown = fewer(RANKING, seen)
    (weights,) = sown["intermediates"]["weights"]
    for row in range(2):
        np.testing.assert_array_equal(kept[row], seen[row][np.flatnonzero(weights[row])])


@pytest.mark.parametrize("features", ["relu", "positive"])
def test_at_the_start_a_token_unlike_the_others_ranks_first(features):
    width, odd = 64, 6
    seen = jnp.asarray(np.random.default_rng(1).normal(1.0, 0.1, size=(1, 9, width)), jnp.float32)
    seen = seen.at[0, odd].multiply(-1)
    config = ImageTokens(keep=1, features=features, seed=2)
    _, sown = fewer(config, seen)
    assert np.flatnonzero(sown["intermediates"]["weights"][0]).tolist() == [odd]


def test_tokens_that_no_query_sees_are_kept_as_they_are():
    seen = tokens(count=1)  # at the start its query is minus its key, and ReLU leaves one of the two
    kept, _ = fewer(ImageTokens(keep=1), seen)
    np.testing.assert_array_equal(kept, seen)


@pytest.mark.parametrize("how", ["ranking", "learnt"])
def test_a_loss_of_the_tokens_that_are_left_reaches_queries_and_keys(how):
    module = FewerTokens(dataclasses.replace(RANKING, how=how), 9)
    leaves = {"query": (19, 3), "key": (19, 3)}
    leaves |= {"projection": (4, 9), "gate": (19,)} if how == "learnt" else {}
    rng = np.random.default_rng(1)
    params = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in leaves.items()}
    wanted = jnp.asarray(rng.normal(size=(2, 4, 19)), jnp.float32)

    def loss(params: Any) -> Any:
        left: Any = module.apply({"params": params}, tokens())
        return jnp.sum(wanted * left)

    gradient = jax.jit(jax.grad(loss))(params)
    assert all(np.isfinite(leaf).all() and np.abs(leaf).max() > 0 for leaf in gradient.values())


def test_a_learnt_model_begins_with_means_of_runs():
    seen = tokens(10)
    left, _ = fewer(ImageTokens(keep=3, how="learnt"), seen)
    means = [seen[:, a:b].mean(axis=1) for a, b in ((0, 4), (4, 7), (7, 10))]
    np.testing.assert_allclose(left, jnp.stack(means, axis=1), atol=1e-5)
    np.testing.assert_allclose(runs(jax.random.key(0), (4, 11)).sum(axis=1), 1, rtol=1e-6)


def test_averages_are_of_squares_in_reading_order():
    rows, columns = np.divmod(np.arange(36), 6)
    seen = jnp.asarray(np.stack([rows, columns], axis=1)[None], jnp.float32)
    wanted = [[1 + 2 * r - 0.5, 1 + 2 * c - 0.5] for r in range(3) for c in range(3)]
    np.testing.assert_allclose(averaged(seen, 9)[0], wanted)
    np.testing.assert_array_equal(averaged(seen, 36), seen)


def test_random_places_are_the_same_of_every_image_and_in_reading_order():
    place = jnp.broadcast_to(jnp.arange(9.0)[None, :, None], (2, 9, 1))
    chosen = np.asarray(fewer(RANDOM, place)[0])[..., 0]
    np.testing.assert_array_equal(chosen[0], chosen[1])
    assert (np.diff(chosen[0]) > 0).all()
    others = [fewer(dataclasses.replace(RANDOM, seed=seed), place)[0][0, :, 0].tolist() for seed in range(3)]
    assert len({tuple(other) for other in others}) > 1


@pytest.mark.slow
def test_no_parameters_are_the_plugins_or_the_hosts(host):
    for config in WAYS.values():
        before, after = (by_name(counts.shapes(model)) for model in (host, with_fewer(host, config)))
        new = after.keys() - before.keys()
        assert {name.partition("/")[0] for name in new} == (
            {"image_tokens"} if config.how in ("ranking", "learnt") else set()
        )
        assert {part_of(name) for name in new} <= {"vision encoder"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ImageTokens(keep=0), "keep: 0 is not between 1 and an image's 9 tokens"),
        (ImageTokens(keep=10, how="random"), "keep: 10 is not between 1 and an image's 9 tokens"),
        (ImageTokens(keep=4, how="average"), "keep: 4 are no equal squares of 9; one of 1, 9"),
        (ImageTokens(keep=4, width=0), "width: must be at least 1, not 0"),
        (ImageTokens(keep=4, projections=-1), "projections: must be at least 1, not -1"),
        (ImageTokens(keep=1, how="average", seed=2), "seed: 2 has no effect with how: average"),
        (ImageTokens(keep=1, how="random", width=2), "width: 2 has no effect with how: random"),
        (
            ImageTokens(keep=4, features="relu", normalized=False),
            "normalized: False has no effect with features: relu",
        ),
    ],
)
def test_choices_that_make_no_sense(host, config, words):
    with pytest.raises(ConfigError, match=f"^model.image_tokens.{words}$"):
        with_fewer(host, config).check()


def test_a_model_without_cameras_has_no_image_tokens(host):
    blind = dataclasses.replace(host, cameras=(), image_tokens=RANKING)
    with pytest.raises(ConfigError, match=r"^model.image_tokens: has no effect without model.cameras$"):
        blind.check()


def test_at_full_size_768_tokens_become_192():
    model = dataclasses.replace(Pi05Config(), image_tokens=ImageTokens(keep=64))
    model.check()
    assert (counts.tokens(Pi05Config())["image"], counts.tokens(model)["image"]) == (768, 192)
    assert counts.prefix(model) < 0.45 * counts.prefix(Pi05Config())
