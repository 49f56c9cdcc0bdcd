"""Behavior Transformer: bins and offsets, what of them is learnt, and how one is drawn."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from of_chunks import OfChunks

from morph_vla import policies
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.pi05 import Observation
from morph_vla.policies import bet, bins
from morph_vla.policies.config import BetConfig
from morph_vla.policies.text import TEXT

pytestmark = pytest.mark.slow

ROWS, WINDOW, JOINTS, POSES, HORIZON, BINS = 5, 4, 3, 2, 2, 7
CONFIG = BetConfig(
    action_dim=JOINTS, environment=POSES, horizon=HORIZON, bins=BINS, width=12, depth=2, heads=3, mlp_dim=13,
    gamma=2.0, window=WINDOW,
)  # fmt: skip
RNG = np.random.default_rng
# Whole: op by op they compile for many times longer.
init, loss = jax.jit(bet.init, static_argnums=0), jax.jit(bet.loss, static_argnums=0)
act = jax.jit(bet.act, static_argnums=(0, 4))


def normal(*shape, seed=0):
    return RNG(seed).normal(size=shape).astype(np.float32)


def observation(rows=ROWS, seed=3):
    return Observation(
        {}, {}, np.zeros((rows, 0), np.int32), np.zeros((rows, 0), bool), None,
        normal(rows, WINDOW, JOINTS, seed=seed), normal(rows, WINDOW, POSES + TEXT, seed=seed + 1),
        RNG(seed).integers(2, size=(rows, WINDOW)).astype(bool),
    )  # fmt: skip


def filled(config=CONFIG):
    """Parameters none of which is zero."""
    return jax.tree.map(lambda leaf: jnp.asarray(0.3 * normal(*leaf.shape)), policies.shapes(config))


def drawn(seed=5):
    return policies.Drawn(
        observation(), jnp.asarray(normal(ROWS, HORIZON, JOINTS, seed=seed)), jnp.ones((ROWS, JOINTS), bool),
        jnp.zeros((ROWS, 1, HORIZON, JOINTS)), jnp.ones((ROWS, 1)),
    )  # fmt: skip


def asked(noise):
    everything = np.ones((len(noise), JOINTS), bool)
    return policies.Asked(observation(len(noise)), jnp.asarray(noise), everything, None)


def chunks(rows=61):
    actions = normal(rows, HORIZON, JOINTS, seed=9)
    return OfChunks(actions, np.ones((rows, JOINTS), bool))


def test_centres_are_the_means_of_the_points_nearest_to_them():
    points = normal(301, 5)
    centres = bins.kmeans(points, 11, seed=2)
    chosen = np.square(points[:, None] - centres).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(bins.nearest_bin(points, centres), chosen)
    means = np.stack([points[chosen == number].mean(axis=0) for number in range(11)])
    np.testing.assert_allclose(centres, means, atol=1e-5)


def test_centres_depend_on_the_seed_alone():
    points = normal(97, 3)
    first, again, other = (bins.kmeans(points, 5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_far_clusters_are_found_in_any_order_of_the_points():
    corners = 9 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    points = np.repeat(corners, 13, axis=0) + 0.1 * normal(52, 2)
    found = [
        sorted(map(tuple, np.round(bins.kmeans(shuffled, 4, seed=0) / 9).tolist()))
        for shuffled in (points, points[RNG(4).permutation(52)])
    ]
    assert found == [sorted(map(tuple, (corners / 9).tolist()))] * 2


def test_an_empty_centre_goes_to_the_point_furthest_from_its_own():
    points = np.array([[0.0], [1.0], [2.0], [9.0]])
    centres = np.array([[1.0], [50.0]])
    np.testing.assert_allclose(bins._means(points, centres), [[3.0], [9.0]])


def test_more_bins_than_different_chunks_are_refused():
    points = np.repeat(normal(3, 2), 5, axis=0)
    words = (
        "^model.bins: 4 bins were asked for, but the data has only 3 different action chunks; set "
        "model.bins to 3 at most$"
    )
    with pytest.raises(MorphVlaError, match=words):
        bins.kmeans(points, 4, seed=0)
    assert sorted(bins.kmeans(points, 3, seed=0).tolist()) == sorted(points[::5].tolist())


def test_bin_and_offset_are_the_action():
    actions, centres = jnp.asarray(normal(29, 3)), jnp.asarray(normal(5, 3, seed=1))
    chosen, offset = bins.encode(actions, centres)
    np.testing.assert_allclose(centres[chosen] + offset, actions, atol=1e-6)
    others = np.linalg.norm(np.asarray(actions)[:, None] - np.asarray(centres), axis=2)
    np.testing.assert_allclose(np.linalg.norm(offset, axis=1), others.min(axis=1), rtol=1e-5)


def test_with_gamma_0_the_focal_loss_is_cross_entropy():
    logits, chosen = jnp.asarray(normal(11, 5)), jnp.asarray(RNG(1).integers(5, size=11))
    p = jax.nn.softmax(logits)[jnp.arange(11), chosen]
    np.testing.assert_allclose(bins.focal(logits, chosen, 0.0), -jnp.log(p), rtol=1e-5)
    np.testing.assert_allclose(bins.focal(logits, chosen, 3.0), -((1 - p) ** 3) * jnp.log(p), rtol=1e-4)
    order = RNG(2).permutation(5)
    permuted = bins.focal(logits[:, order], jnp.asarray(np.argsort(order))[chosen], 3.0)
    np.testing.assert_allclose(permuted, bins.focal(logits, chosen, 3.0), rtol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_the_focal_loss_has_a_slope_where_a_bin_is_certain(gamma):
    slope = jax.grad(lambda logits: bins.focal(logits, jnp.zeros(1, int), gamma).sum())(
        jnp.array([[200.0, 0.0]])
    )
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


def test_only_the_true_bins_offset_learns():
    predicted, offset = jnp.asarray(normal(3, 5, 2)), jnp.asarray(normal(3, 2, seed=1))
    chosen = jnp.array([4, 0, 4])
    slope = jax.grad(lambda values: bins.offset_squares(values, chosen, offset).sum())(predicted)
    expected = np.zeros((3, 5, 2), np.float32)
    for row, bin_ in enumerate(chosen.tolist()):
        expected[row, bin_] = 2 * (predicted[row, bin_] - offset[row])
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_bins_are_drawn_by_their_probability():
    probability = np.array([0.1, 0.55, 0.05, 0.3], np.float32)
    count = 40_000
    logits = jnp.log(jnp.broadcast_to(jnp.asarray(probability), (count, 4)))
    chosen = np.asarray(bins.draw(logits, jnp.asarray(normal(count))))
    # Four standard deviations of a share of 40,000 draws.
    np.testing.assert_allclose(np.bincount(chosen) / count, probability, atol=0.01)
    sharper = np.asarray(bins.draw(logits, jnp.asarray(0.5 * normal(count))))
    assert (sharper == 1).mean() > 0.7
    for noise, wanted in ((0.0, 1), (-40.0, 2), (40.0, 2)):
        assert bins.draw(logits[:1], jnp.array([noise])).item() == wanted


def test_a_drawn_chunk_is_a_bins_centre_and_the_offset_in_that_bin():
    logits, offsets = normal(ROWS, BINS), normal(ROWS, BINS, HORIZON, JOINTS, seed=1)
    centres, noise = normal(BINS, HORIZON, JOINTS, seed=2), np.linspace(-2, 2, ROWS, dtype=np.float32)
    chosen = np.asarray(bins.draw(jnp.asarray(logits), jnp.asarray(noise)))
    assert (chosen != logits.argmax(axis=1)).any()
    known = {"centres": jnp.asarray(centres)}
    chunk = bins.drawn(jnp.asarray(logits), jnp.asarray(offsets), jnp.asarray(noise), known)
    np.testing.assert_allclose(chunk, centres[chosen] + offsets[np.arange(ROWS), chosen], atol=1e-6)


def test_values_that_a_robot_does_not_have_change_no_bin_and_no_weight():
    actions, mask = chunks().chunks(61)
    padded = np.pad(actions, ((0, 0), (0, 0), (0, 4))), np.pad(mask, ((0, 0), (0, 4)))
    alone, among = (bins.fitted(*each, BINS, CONFIG.gamma, seed=1) for each in ((actions, mask), padded))
    np.testing.assert_array_equal(among["centres"][..., :JOINTS], alone["centres"])
    np.testing.assert_allclose(among["weight"], alone["weight"], rtol=1e-6)


def test_before_the_first_step_both_losses_are_equal():
    params = bet.fit(CONFIG, init(CONFIG, jax.random.key(0)), chunks(), seed=1)
    actions, _ = chunks().chunks(61)
    batch = policies.Drawn(
        observation(61), jnp.asarray(actions), jnp.ones((61, JOINTS), bool),
        jnp.zeros((61, 1, HORIZON, JOINTS)), jnp.ones((61, 1)),
    )  # fmt: skip
    assert params["bins"]["weight"] > 0
    without = {**params, "bins": {**params["bins"], "weight": jnp.zeros(())}}
    both, names = loss(CONFIG, params, batch).mean(), loss(CONFIG, without, batch).mean()
    np.testing.assert_allclose(names, (6 / 7) ** 2 * np.log(7), rtol=1e-5)
    np.testing.assert_allclose(both, 2 * names, rtol=1e-5)


def test_one_bin_is_squared_error():
    config = dataclasses.replace(CONFIG, bins=1)
    params = {**filled(config), "bins": {"centres": jnp.zeros((1, HORIZON, JOINTS)), "weight": jnp.ones(())}}
    batch = drawn()
    chunk = act(config, params, None, asked(np.zeros((ROWS, HORIZON, JOINTS), np.float32)), 10)
    expected = np.square(np.asarray(chunk) - batch.actions).mean(axis=1)
    np.testing.assert_allclose(loss(config, params, batch), expected, rtol=1e-5)


def test_the_fit_is_a_function_of_the_seed_and_changes_the_bins_alone():
    params = init(CONFIG, jax.random.key(0))
    first, again, other = (bet.fit(CONFIG, params, chunks(), seed) for seed in (1, 1, 2))
    assert jax.tree.structure(first) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(first["bins"]["centres"], other["bins"]["centres"])
    for part in ("tokenizer", "encoder", "detokenizer"):
        jax.tree.map(np.testing.assert_array_equal, first[part], params[part])


def test_an_observation_sees_those_before_it_in_its_episode():
    mask = jnp.array([[False, True, True, True]])
    seen = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]], bool)
    np.testing.assert_array_equal(bet.causal(mask)[0], seen)
    values = jnp.asarray(normal(1, WINDOW, 5))
    model = bet.BetPolicy(CONFIG)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), values, mask))["params"]
    params = jax.tree.map(lambda leaf: jnp.asarray(0.3 * normal(*leaf.shape)), shapes)
    slopes = jax.jit(jax.jacrev(lambda x: model.apply({"params": params}, x, mask)[0]))(values)
    np.testing.assert_array_equal(np.abs(slopes).max(axis=(0, 2, 3, 5)) > 0, seen)


def answering(config):
    """From an observation to what is said of the bins."""
    params = filled(config)
    logits = jax.jit(lambda seen: bet.predicted(config, params, seen)[0])
    return lambda seen: np.asarray(logits(seen))


def test_it_answers_to_the_last_observation_and_those_of_its_episode_before_it():
    seen = dataclasses.replace(observation(), window_mask=np.tile([False, False, True, True], (ROWS, 1)))
    answered = answering(CONFIG)
    before = answered(seen)
    for key in ("state", "environment"):
        for place, is_seen in enumerate((False, False, True, True)):
            values = np.array(getattr(seen, key))
            values[:, place] += 1
            moved = np.abs(answered(dataclasses.replace(seen, **{key: values})) - before).max(axis=1)
            assert (moved > 1e-4).all() if is_seen else not moved.any()


def test_an_observation_has_a_place_in_the_window():
    """One layer of attention would not notice that two that came before are exchanged."""
    config, order = dataclasses.replace(CONFIG, depth=1), np.array([1, 0, 2, 3])
    seen = dataclasses.replace(observation(), window_mask=np.ones((ROWS, WINDOW), bool))
    values = {key: getattr(seen, key)[:, order] for key in ("state", "environment")}
    swapped = dataclasses.replace(seen, **values)
    before, after = map(answering(config), (seen, swapped))
    assert np.abs(before - after).max(axis=1).min() > 1e-4


def test_renaming_the_bins_changes_no_answer():
    params, order = filled(), RNG(6).permutation(BINS)
    each = 1 + HORIZON * JOINTS
    head = {
        name: leaf.reshape(-1, BINS, each)[:, order].reshape(leaf.shape)
        for name, leaf in params["detokenizer"].items()
    }
    known = {**params["bins"], "centres": params["bins"]["centres"][order]}
    renamed = {**params, "detokenizer": head, "bins": known}
    noise = asked(normal(ROWS, HORIZON, JOINTS, seed=8))
    before, after = (act(CONFIG, each, None, noise, 10) for each in (params, renamed))
    np.testing.assert_allclose(before, after, atol=1e-5)
    np.testing.assert_allclose(loss(CONFIG, params, drawn()), loss(CONFIG, renamed, drawn()), rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": 5}, "model.width: 12 is not a multiple of model.heads 5"),
        ({"mlp_dim": 0}, "model.mlp_dim: must be at least 1, not 0"),
        ({"bins": 0}, "model.bins: must be at least 1, not 0"),
        (
            {"gamma": 0.5},
            r"model.gamma: must be 0 \(cross entropy\) or at least 1, not 0.5: between them the focal loss "
            "has no finite gradient",
        ),
    ],
)
def test_sizes_that_make_no_model_are_said(changes, sentence):
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        dataclasses.replace(CONFIG, **changes).check()
