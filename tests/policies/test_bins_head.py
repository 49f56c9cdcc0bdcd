"""Kinds of action chunk on pi0.5's expert: what the head reads, learns and draws, and what it goes with."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from of_chunks import OfChunks

from morph_vla import policies
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.morphology import Body, MorphologyConfig
from morph_vla.pi05 import Observation, Pi05, Pi05Config, VitConfig, init_params, model
from morph_vla.pi05.config import BinsHead, GemmaConfig, ImageTokens
from morph_vla.pi05.head import Head
from morph_vla.pi05.parts import by_name, part_of
from morph_vla.policies import bins
from morph_vla.policies import pi05 as family
from morph_vla.recipes.keys import Optimizer, Training
from morph_vla.training import step as training

pytestmark = pytest.mark.slow

ROWS, JOINTS, VALUES, HORIZON, BINS = 3, 5, 7, 6, 11
CAMERA = "base_0_rgb"
PLUGIN = MorphologyConfig(max_joints=JOINTS, bias="mix", film=True, readout="joints")
CONFIG = Pi05Config(
    vocab=37, image_size=21, cameras=(CAMERA,),
    vit=VitConfig(width=15, depth=1, mlp_dim=13, heads=3, patch=7),
    prefix=GemmaConfig(width=19, mlp_dim=23), expert=GemmaConfig(width=22, mlp_dim=17), depth=2, heads=2,
    kv_heads=1, head_dim=10, action_dim=VALUES, horizon=HORIZON, max_tokens=4, dtype="float32", remat=False,
    image_tokens=ImageTokens(keep=4, width=3), morphology=PLUGIN, head=BinsHead(bins=BINS),
)  # fmt: skip
PLAIN = dataclasses.replace(CONFIG, head=None)
EVERY = np.ones((ROWS, VALUES), bool)
RNG = np.random.default_rng
loss, act = jax.jit(family.loss, static_argnums=(0, 3)), jax.jit(family.act, static_argnums=(0, 4))


def normal(*shape, seed=0):
    return RNG(seed).normal(size=shape).astype(np.float32)


def seen():
    """Three rows of one arm, which sees and is told something else in each."""
    chain = np.abs(np.subtract.outer(np.arange(JOINTS), np.arange(JOINTS))) < 2
    apart = np.where(chain, 0, 1).astype(np.int32)
    body = Body(
        chain[None].repeat(ROWS, 0), apart[None].repeat(ROWS, 0),
        normal(ROWS, JOINTS, 12, seed=4), np.ones((ROWS, JOINTS), bool),
    )  # fmt: skip
    images = {CAMERA: RNG(2).uniform(-1, 1, (ROWS, 21, 21, 3)).astype(np.float32)}
    tokens = RNG(2).integers(2, 37, (ROWS, 4)).astype(np.int32)
    return Observation(images, {CAMERA: np.ones(ROWS, bool)}, tokens, np.ones((ROWS, 4), bool), body)


def filled(config=CONFIG):
    """Parameters none of which is zero."""
    return jax.tree.map(lambda leaf: jnp.asarray(0.3 * normal(*leaf.shape)), policies.shapes(config))


def drawn(seed=5):
    return policies.Drawn(
        seen(), jnp.asarray(normal(ROWS, HORIZON, VALUES, seed=seed)), jnp.asarray(EVERY),
        jnp.zeros((ROWS, 1, HORIZON, VALUES)), jnp.ones((ROWS, 1)),
    )  # fmt: skip


def asked(observation=None, noise=None):
    shape = (ROWS, HORIZON, VALUES)
    return policies.Asked(
        observation or seen(), jnp.asarray(normal(*shape) if noise is None else noise), EVERY, None
    )


def chunks(rows=61):
    actions = normal(rows, HORIZON, VALUES, seed=9)
    return OfChunks(actions, np.ones((rows, VALUES), bool))


def kinds(config, params, observation):
    return jax.jit(partial(model.kinds, config))(params, observation)


def test_the_pass_over_the_cache_equals_the_joint_one():
    params = filled()
    cached = kinds(CONFIG, params, seen())
    joint = jax.jit(partial(Pi05(CONFIG).apply, method=Pi05.kinds_joint))({"params": params}, seen())
    assert (cached.logits.shape, cached.offsets.shape) == ((ROWS, BINS), (ROWS, BINS, HORIZON, VALUES))
    for ours, reference in zip(cached, joint, strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-5)
        assert np.abs(np.asarray(ours)[0] - np.asarray(ours)[1]).max() > 1e-3


def test_a_row_of_an_offset_is_read_from_its_token_and_the_logits_from_all():
    head, tokens = Head(BinsHead(bins=BINS), HORIZON, VALUES), normal(ROWS, HORIZON, 13)
    kernel, bias = normal(13, BINS * (1 + VALUES), seed=1), normal(BINS * (1 + VALUES), seed=2)
    params = {"queries": jnp.zeros((HORIZON, VALUES)), "out": {"kernel": kernel, "bias": bias}}
    said: Any = head.apply({"params": params}, jnp.asarray(tokens))
    each = (tokens @ kernel + bias).reshape(ROWS, HORIZON, BINS, 1 + VALUES)
    np.testing.assert_allclose(said.logits, each[..., 0].mean(axis=1), atol=1e-5)
    for row in range(HORIZON):
        np.testing.assert_allclose(said.offsets[:, :, row], each[:, row, :, 1:], atol=1e-5)


def test_its_table_of_modulations_is_what_each_call_computes():
    params = filled()
    table = family.ahead(CONFIG, params, 10)
    assert all(leaf.shape[0] == 1 for leaf in jax.tree.leaves(table))
    with_table, without = (act(CONFIG, params, each, asked(), 10) for each in (table, None))
    np.testing.assert_allclose(with_table, without, atol=1e-5)


def test_a_head_adds_its_own_leaves_and_changes_no_other():
    key = jax.random.key(3)
    ours, plain = by_name(init_params(CONFIG, key)), by_name(init_params(PLAIN, key))
    own = {name for name in ours if part_of(name) in ("head", "bins")}
    assert own == {"head/queries", "head/out/kernel", "head/out/bias", "bins/centres", "bins/weight"}
    assert plain.keys() - ours.keys() == {"action_out_proj/kernel", "action_out_proj/bias"}
    for name in ours.keys() & plain.keys():
        np.testing.assert_array_equal(ours[name], plain[name])
    assert ours.keys() - plain.keys() == own


def test_before_the_first_step_both_losses_are_equal():
    params = family.fit(CONFIG, init_params(CONFIG, jax.random.key(0)), chunks(), seed=1)
    actions, _ = chunks().chunks(61)
    nearest = bins.nearest_bin(
        actions.reshape(61, -1), np.asarray(params["bins"]["centres"]).reshape(BINS, -1)
    )
    assert set(np.asarray(nearest)) == set(range(BINS))
    said = kinds(CONFIG, params, seen())
    np.testing.assert_array_equal(said.logits, 0)
    np.testing.assert_array_equal(said.offsets, 0)
    squares = np.square(actions - np.asarray(params["bins"]["centres"])[nearest]).mean()
    even = (1 - 1 / BINS) ** 2 * np.log(BINS)
    np.testing.assert_allclose(params["bins"]["weight"] * squares, even, rtol=1e-4)


def test_kinds_that_came_with_weights_stay():
    params = filled()
    assert family.fit(CONFIG, params, chunks(), seed=1) is params
    assert family.fit(PLAIN, params, chunks(), seed=1) is params


def test_more_kinds_than_different_chunks_are_refused():
    words = (
        r"^model.head.bins: 11 bins were asked for, but the data has only 5 .*; set model.head.bins to 5 at"
    )
    with pytest.raises(MorphVlaError, match=words):
        family.fit(CONFIG, init_params(CONFIG, jax.random.key(0)), chunks(5), seed=1)


def test_permuting_action_values_permutes_the_chunk():
    config = dataclasses.replace(CONFIG, morphology=None)  # whose tokens have positions
    params, order = filled(config), np.array([3, 0, 4, 2, 1, 6, 5])
    moved = jax.tree.map(lambda leaf: leaf, params)
    moved["action_in_proj"]["kernel"] = params["action_in_proj"]["kernel"][order]
    moved["head"]["queries"] = params["head"]["queries"][:, order]
    places = np.concatenate([[0], 1 + order])
    for name, leaf in params["head"]["out"].items():
        each = leaf.reshape(-1, BINS, 1 + VALUES)[:, :, places]
        moved["head"]["out"][name] = each.reshape(leaf.shape)
    moved["bins"]["centres"] = params["bins"]["centres"][:, :, order]
    before, after = (act(config, each, None, asked(), 10) for each in (params, moved))
    np.testing.assert_allclose(after, np.asarray(before)[:, :, order], atol=1e-4)


def test_the_chunk_follows_the_robots_body():
    params, body = filled(), seen().body
    assert body is not None
    turned = dataclasses.replace(body, descriptors=np.ascontiguousarray(body.descriptors[:, ::-1]))
    before, after = (kinds(CONFIG, params, dataclasses.replace(seen(), body=each)) for each in (body, turned))
    assert np.abs(before.logits - after.logits).max() > 1e-3
    assert np.abs(before.offsets - after.offsets).max() > 1e-3


def test_renaming_the_kinds_changes_no_answer():
    params, order = filled(), RNG(6).permutation(BINS)
    renamed = jax.tree.map(lambda leaf: leaf, params)
    for name, leaf in params["head"]["out"].items():
        renamed["head"]["out"][name] = leaf.reshape(-1, BINS, 1 + VALUES)[:, order].reshape(leaf.shape)
    renamed["bins"]["centres"] = params["bins"]["centres"][order]
    before, after = (act(CONFIG, each, None, asked(), 10) for each in (params, renamed))
    np.testing.assert_allclose(before, after, atol=1e-4)
    np.testing.assert_allclose(loss(CONFIG, params, drawn()), loss(CONFIG, renamed, drawn()), rtol=1e-4)


def test_the_likeliest_kind_and_its_offset_are_the_answer_without_noise():
    params = filled()
    said = kinds(CONFIG, params, seen())
    best = np.asarray(said.logits).argmax(axis=1)
    expected = np.asarray(params["bins"]["centres"])[best] + np.asarray(said.offsets)[np.arange(ROWS), best]
    quiet = asked(noise=np.zeros((ROWS, HORIZON, VALUES), np.float32))
    np.testing.assert_allclose(act(CONFIG, params, None, quiet, 10), expected, atol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_gradient_reaches_the_expert_and_every_leaf_of_the_head(frozen):
    params = filled()
    slope = by_name(jax.jit(jax.grad(lambda each: family.loss(CONFIG, each, drawn(), frozen).mean()))(params))
    still = {name for name, leaf in slope.items() if not np.abs(leaf).max() > 0}
    before = {name for name in slope if part_of(name) in ("vision encoder", "language model")}
    learns = {name for name in slope if part_of(name) in ("action expert", "morphology", "head")}
    assert not still & learns
    assert (before <= still) == frozen


@pytest.mark.parametrize("kind", ["full", "expert"])
def test_steps_lower_the_loss_and_leave_the_kinds(kind):
    settings = Training(steps=31, batch=ROWS, kind=kind, ema=0.9)
    optimizer, _ = training.make_optimizer(
        Optimizer(peak_lr=1e-2, warmup=1, weight_decay=0.0), settings.steps
    )
    params = family.fit(CONFIG, init_params(CONFIG, jax.random.key(0)), chunks(), seed=1)
    centres = np.asarray(params["bins"]["centres"])
    queries = np.asarray(params["head"]["queries"])
    step, state = training.make_step(CONFIG, settings, optimizer), training.start(params, optimizer, settings)
    losses, batch = [], (seen(), jnp.asarray(normal(ROWS, HORIZON, VALUES, seed=5)), jnp.asarray(EVERY))
    for _ in range(11):
        state, metrics = step(state, *batch, jax.random.key(7))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.7 * losses[0]
    np.testing.assert_array_equal(state.params["bins"]["centres"], centres)
    assert np.abs(np.asarray(state.params["head"]["queries"]) - queries).max() > 0
    assert "head" in metrics["gradient_norms"]
    assert ("language model" in metrics["gradient_norms"]) == (kind == "full")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"head": BinsHead(bins=0)}, "model.head.bins: must be at least 1, not 0"),
        (
            {"head": BinsHead(gamma=0.5)},
            r"model.head.gamma: must be 0 \(cross entropy\) or at least 1, not 0.5: between them the focal "
            "loss has no finite gradient",
        ),
        (
            {"delay_max": 2},
            "model.delay_max: 2 has no effect with model.head: kinds of whole chunks do not go on from "
            "actions that are given; leave one of the two out",
        ),
    ],
)
def test_sizes_that_make_no_model_are_said(changes, sentence):
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        dataclasses.replace(CONFIG, **changes).check()


def test_an_answer_with_a_head_goes_on_from_no_other():
    assert family.real_time(PLAIN)
    assert not family.real_time(CONFIG)
