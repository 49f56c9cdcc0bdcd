"""The plugin inside the host: who hears of whom, where it starts; one prefix for all, one table of times."""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.morphology import Body, MorphologyConfig, bias, stack
from morph_vla.pi05 import (
    GemmaConfig,
    Observation,
    Pi05,
    Pi05Config,
    VitConfig,
    counts,
    flow,
    init_params,
    loss,
    modulations,
    sample_actions,
)
from morph_vla.pi05 import model as pi05
from morph_vla.pi05.gemma import Gemma
from morph_vla.pi05.parts import map_named, part_of

# Compiling is most of these tests' time.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
# ... so that tests/conftest.py has XLA optimize nothing; where a law is about what users run:
BY_DEFAULT = {"xla_backend_optimization_level": 3}
by_default = partial(jax.jit, compiler_options=BY_DEFAULT)

BATCH, JOINTS = 2, 5
HOST = Pi05Config(
    vocab=37,
    image_size=14,
    cameras=("base_0_rgb",),
    vit=VitConfig(width=15, depth=1, mlp_dim=13, heads=3, patch=7),
    prefix=GemmaConfig(width=19, mlp_dim=23),
    expert=GemmaConfig(width=22, mlp_dim=17),
    depth=2,
    heads=4,
    kv_heads=2,
    head_dim=10,
    action_dim=7,
    horizon=6,
    max_tokens=3,
    dtype="float32",
    remat=False,
)
rng = np.random.default_rng(5)


def plugged(host: Pi05Config = HOST, **keys: Any) -> Pi05Config:
    config = dataclasses.replace(host, morphology=MorphologyConfig(**{"max_joints": JOINTS, **keys}))
    config.check()
    return config


def draw(config: Pi05Config, scale: float = 0.1) -> Any:
    """Parameters none of which is zero."""
    source = np.random.default_rng(0)
    shapes = counts.shapes(config)
    return jax.tree.map(lambda x: (scale * source.normal(size=x.shape)).astype(np.float32), shapes)


def arm(joints: int = JOINTS, places: int = 0) -> Body:
    """Joints in a row, with random descriptors, one robot per row of the batch."""
    places = places or joints
    far = np.abs(np.subtract.outer(np.arange(places), np.arange(places))).astype(np.int32)
    real = np.arange(places) < joints
    far = np.where(real[:, None] & real[None], far, 99 * (1 - np.eye(places, dtype=np.int32)))
    features = np.random.default_rng(1).normal(size=(places, 12)).astype(np.float32) * real[:, None]
    return stack([Body(far < 2, far, features, real)] * BATCH)


SEEN = Observation(
    {"base_0_rgb": rng.uniform(-1, 1, (BATCH, 14, 14, 3)).astype(np.float32)},
    {"base_0_rgb": np.ones(BATCH, bool)},
    rng.integers(2, 37, (BATCH, 3)).astype(np.int32),
    np.arange(3) < np.array([[3], [2]]),
    arm(),
)
ALONE = dataclasses.replace(SEEN, body=None)
ACTIONS, NOISE = (jnp.asarray(rng.normal(size=(BATCH, 6, 7)), jnp.float32) for _ in range(2))
TIME = jnp.asarray([0.3, 0.8], jnp.float32)


def joint(config: Pi05Config, params: Any, seen: Observation = SEEN) -> Any:
    return Pi05(config).apply({"params": params}, seen, NOISE, TIME, method=Pi05.velocity_joint)


def cached(config: Pi05Config, params: Any, seen: Observation = SEEN) -> Any:
    model, variables = Pi05(config), {"params": params}
    cache, mask = model.apply(variables, seen, method=Pi05.prefix)
    return model.apply(variables, cache, mask, NOISE, TIME, seen.body, method=Pi05.velocity)


# ---------------------------------------- who hears of whom


def heard(kind: str, layers: int, cut: bool) -> np.ndarray:
    """[i j]: whether kinematic token i of the last layer has a gradient to token j of the first.

    Two tokens per joint behind two action tokens; `cut` takes what joints and actions read of each other.
    """
    config = plugged(dataclasses.replace(HOST, depth=layers), bias=kind, auxiliary=1)
    assert config.morphology is not None
    tokens, width, actions = config.morphology.tokens, HOST.expert.width, 2
    source = np.random.default_rng(2)
    x = jnp.asarray(source.normal(size=(1, actions + tokens, width)), jnp.float32)
    condition = jnp.asarray(source.normal(size=(1, width)), jnp.float32)
    joints = jnp.arange(actions + tokens) >= actions
    mask = jnp.ones((1, actions + tokens, actions + tokens), bool)
    if cut:
        mask = mask & (joints[:, None] == joints[None, :])
    body = jax.tree.map(lambda leaf: leaf[:1], arm())
    theta = {"params": {"theta": jnp.asarray(source.normal(size=(layers, 9)), jnp.float32)}}
    module = bias.TopologyBias(config.morphology, layers)
    added: Any = module.apply(theta if kind == "spd-soft" else {}, body)
    positions = jnp.arange(actions + tokens)[None]
    params = {"params": draw(config, 0.3)["PaliGemma"]["llm"]}
    mixture = jnp.asarray(source.normal(size=width), jnp.float32)

    def last(x: Any) -> Any:
        streams, _ = Gemma(config).apply(params, [None, x], positions, mask, condition=condition, bias=added)
        return streams[1][0, actions:] @ mixture

    gradient: Any = quick(jax.jacrev(last))(x)
    return np.abs(gradient[:, 0, actions:]).max(-1) > 0


def reach(steps: int) -> np.ndarray:
    """Which tokens lie within so many steps, two tokens per joint."""
    return np.tile(np.asarray(arm().distances[0]) <= steps, (2, 2))


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True])
def test_full_passes_nothing_between_joints_that_are_not_neighbours_within_a_layer(cut):
    np.testing.assert_array_equal(heard("full", 1, cut), reach(1))


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 3])
def test_full_reaches_exactly_as_far_as_there_are_layers(layers):
    np.testing.assert_array_equal(heard("full", layers, cut=True), reach(layers))
    if layers == 2:  # ... but for what action tokens pass on.
        assert heard("full", layers, cut=False).all()


@pytest.mark.slow
def test_mix_is_local_in_the_first_layer_and_global_in_the_second():
    np.testing.assert_array_equal(heard("mix", 1, cut=True), reach(1))
    assert heard("mix", 2, cut=True).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "spd-soft"])
def test_soft_hears_of_all_joints_in_every_layer(kind):
    assert heard(kind, 1, cut=True).all()


# ---------------------------------------- where it starts

QUICK = ("mix", "exact")
FEW = (*QUICK, "none")
LONG = (pytest.mark.slow, pytest.mark.long)


def quick_first(names: Iterable[str], few: Sequence[str] = ()) -> list[Any]:
    """All names, marked: what `make test` leaves out, and of more than the `few` what .ci/run leaves out."""
    marks = {name: LONG if few and name not in few else pytest.mark.slow for name in names}
    return [name if name in QUICK else pytest.param(name, marks=marks[name]) for name in names]


STARTS = {
    "mix": {"bias": "mix", "chunks": 2, "auxiliary": 1},
    "spd-soft": {"bias": "spd-soft", "bias_init": "mix"},
    "random": {"bias": "full", "control": "random"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_first(STARTS))
def test_exact_starts_at_the_host(name):
    """Bit for bit, whatever the rest of the plugin holds, as long as the gate is where it starts."""
    config = plugged(start="exact", **STARTS[name])
    params = draw(config, 0.3)
    fresh = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))["morphology"]["gate"]
    assert fresh.shape == (config.depth, config.heads)
    params["morphology"]["gate"] = np.zeros(fresh.shape, np.float32)
    host = {key: value for key, value in params.items() if key != "morphology"}
    # What trains and serves, as compiled by default. The joint pass is compiled plainly: with all
    # optimisations JAX 0.5.3 fuses its queries and keys otherwise when joints read them too (4e-6).
    for compiled in (quick(joint, static_argnums=0), by_default(cached, static_argnums=0)):
        np.testing.assert_array_equal(compiled(config, params), compiled(HOST, host, ALONE))
    # ... and the gate is the way in.
    params["morphology"]["gate"] = np.full(fresh.shape, 0.5, np.float32)
    assert np.abs(compiled(config, params) - compiled(HOST, host, ALONE)).max() > 1e-2


@pytest.mark.slow
def test_a_robot_without_joints_leaves_exact_at_the_host():
    """Nothing to read is zero, not a mean over padding, wherever the gate has come to."""
    config = plugged(start="exact", bias="none")
    params = draw(config, 0.3)
    host = {key: value for key, value in params.items() if key != "morphology"}
    nobody = dataclasses.replace(arm(), joint_mask=np.zeros((BATCH, JOINTS), bool))
    bare = dataclasses.replace(SEEN, body=nobody)
    np.testing.assert_allclose(joint(config, params, bare), joint(HOST, host, ALONE), atol=1e-6)


def test_fresh_gates_and_last_layers_are_zero():
    config = plugged(start="exact", auxiliary=2, bias="adj-soft-v2.0")
    fresh: Any = jax.jit(lambda key: init_params(config, key)["morphology"])(jax.random.key(0))
    assert not fresh["gate"].any()
    for name in ("encoder", "auxiliary_0", "auxiliary_1"):
        assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(fresh[name]["out"]))
        assert np.asarray(fresh[name]["in"]["kernel"]).all()
    assert (fresh["auxiliary_0"]["in"]["kernel"] != fresh["auxiliary_1"]["in"]["kernel"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "random", "tokens"])
def test_padded_joints_change_no_action(name):
    keys = {
        "exact": {"start": "exact", "bias": "spd-soft", "chunks": 2},
        "random": {"bias": "full", "control": "random"},
        "tokens": {"bias": "none", "film": False, "control": "tokens", "auxiliary": 1},
    }[name]
    config, wide = plugged(**keys), plugged(**{**keys, "max_joints": 7})
    params = draw(config, 0.3)
    padded = dataclasses.replace(SEEN, body=arm(JOINTS, 7))
    result = quick(joint, static_argnums=0)(wide, params, padded)
    np.testing.assert_allclose(result, quick(joint, static_argnums=0)(config, params), atol=1e-5)


# ---------------------------------------- one prefix for all

VARIANTS = {
    "none": {"bias": "none"},
    "full": {"bias": "full", "chunks": 2},
    "mix": {"auxiliary": 1},
    "spd-soft": {"bias": "spd-soft"},
    "adj-soft-v1.0": {"bias": "adj-soft-v1.0", "start": "exact"},
    "adj-soft-v1.1": {"bias": "adj-soft-v1.1"},
    "adj-soft-v2.0": {"bias": "adj-soft-v2.0"},
}


# Each compiles three gradients.
@pytest.mark.slow
@pytest.mark.parametrize("name", quick_first(VARIANTS, few=FEW))
def test_the_prefix_once_equals_the_joint_pass(name):
    """Loss and gradients to 1e-6 of each leaf's largest, of full fine-tuning and with a frozen VLM."""
    config = plugged(**VARIANTS[name])
    params = draw(config)

    def frozen(name: str) -> bool:
        return part_of(name) in ("vision encoder", "language model")

    def merge(one: Any, other: Any) -> Any:
        return jax.tree.map(lambda a, b: b if a is None else a, one, other, is_leaf=lambda x: x is None)

    expert = map_named(lambda name, x: None if frozen(name) else x, params)
    vlm = map_named(lambda name, x: x if frozen(name) else None, params)

    def once(params: Any) -> Any:
        return loss(config, params, SEEN, ACTIONS, NOISE[None], TIME[None]).mean()

    def reference(params: Any) -> Any:
        x, target = pi05.interpolate(ACTIONS, NOISE, TIME)
        result: Any = Pi05(config).apply({"params": params}, SEEN, x, TIME, method=Pi05.velocity_joint)
        return jnp.square(result - target).mean()

    value, wanted = quick(jax.value_and_grad(reference))(params)
    whole = quick(jax.value_and_grad(once))(params)
    part = quick(jax.value_and_grad(lambda learnt, rest: once(merge(learnt, rest))))(expert, vlm)
    assert len(jax.tree.leaves(part[1])) == len(jax.tree.leaves(expert)) < len(jax.tree.leaves(params))
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    for result, gradient in (whole, part):
        assert abs(float(result - value)) <= 1e-6 * float(value)
        leaves = dict(jax.tree_util.tree_leaves_with_path(gradient))
        for path, leaf in jax.tree_util.tree_leaves_with_path(wanted):
            # Of leaves whose gradient all but cancels (an image key's bias shifts all logits of a row alike),
            # float32 keeps no more than this.
            scale = max(float(np.abs(leaf).max()), 1e-4 * largest)
            if path in leaves:
                assert float(np.abs(leaves[path] - leaf).max()) <= 1e-6 * scale, (name, path)


# ---------------------------------------- one table of the times


def test_a_schedule_is_openpis_sum():
    times = flow.schedule(10)
    t = np.float32(1)
    for result in times:
        assert result == t
        t = t + np.float32(-0.1)
    assert times.dtype == np.float32
    np.testing.assert_allclose(times, np.linspace(1, 0.1, 10), atol=1e-6)
    np.testing.assert_array_equal(flow.schedule(1), [1.0])


@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_sampling_with_modulations_computed_before_is_sampling(steps):
    config = plugged(start="exact")
    params = draw(config, 0.3)
    table = modulations(config, params, steps)
    width = config.expert.width
    assert table.attention.shape == table.feed_forward.shape == (steps, config.depth, 3 * width)
    assert table.final.shape == (steps, 3 * width)
    sample = quick(partial(sample_actions, config, steps=steps))
    result = sample(params, SEEN, NOISE, modulations=table)
    np.testing.assert_allclose(result, sample(params, SEEN, NOISE), atol=6e-6)
    # The table is what is used, and the time's parameters no longer are.
    blank = jax.tree.map(np.zeros_like, {key: params[key] for key in ("time_mlp_in", "time_mlp_out")})
    np.testing.assert_array_equal(sample({**params, **blank}, SEEN, NOISE, modulations=table), result)
    other = modulations(config, {**params, **blank}, steps)
    assert np.abs(sample(params, SEEN, NOISE, modulations=other) - result).max() > 1e-3


# ---------------------------------------- absent cameras


def test_an_absent_camera_costs_no_token():
    config = dataclasses.replace(HOST, cameras=("base_0_rgb", "left_wrist_0_rgb"))
    params = counts.shapes(config)

    def prefix(seen: Observation) -> Any:
        def call(params: Any) -> Any:
            return Pi05(config).apply({"params": params}, seen, method=Pi05.embed_prefix)

        return jax.eval_shape(call, params)[0].shape[1]

    both = dataclasses.replace(
        ALONE,
        images=dict.fromkeys(config.cameras, SEEN.images["base_0_rgb"]),
        image_masks={name: np.zeros(BATCH, bool) for name in config.cameras},
    )
    assert prefix(both) - prefix(ALONE) == config.patches
