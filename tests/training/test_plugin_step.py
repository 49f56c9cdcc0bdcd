"""The plugin under the real training step: one compilation for all robots, all of it learns."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.morphology import MorphologyConfig, body_of, stack
from morph_vla.morphology.arrays import positions_of
from morph_vla.pi05 import GemmaConfig, Observation, Pi05Config, VitConfig, counts
from morph_vla.recipes.keys import Optimizer, Training
from morph_vla.training import step as training

BATCH, JOINTS = 3, 17
HOST = Pi05Config(
    vocab=37,
    image_size=14,
    cameras=("base_0_rgb",),
    vit=VitConfig(width=12, depth=1, mlp_dim=31, heads=3, patch=7),
    prefix=GemmaConfig(width=14, mlp_dim=19),
    expert=GemmaConfig(width=26, mlp_dim=29),
    depth=2,
    heads=2,
    kv_heads=1,
    head_dim=10,
    action_dim=JOINTS,
    horizon=6,
    max_tokens=5,
    dtype="float32",
    remat=False,
)
SETTINGS = Training(steps=31, batch=BATCH, kind="expert", flow_samples=2, ema=0.9)
# No decay: what moves was moved by its gradient.
OPTIMIZER = Optimizer(peak_lr=1e-2, warmup=1, weight_decay=0.0)
KEY = jax.random.key(7)


def plugged(**keys: Any) -> Pi05Config:
    config = dataclasses.replace(HOST, morphology=MorphologyConfig(**{"max_joints": JOINTS, **keys}))
    config.check()
    return config


def begin(config: Pi05Config) -> Any:
    """A host that has learnt something (no parameter zero), the plugin fresh, the real step."""
    source = np.random.default_rng(0)
    host = jax.tree.map(
        lambda x: (0.2 * source.normal(size=x.shape)).astype(np.float32),
        counts.shapes(dataclasses.replace(config, morphology=None)),
    )
    fresh = jax.jit(lambda: training_params(config)["morphology"])() if config.morphology else None
    params = host if fresh is None else {**host, "morphology": fresh}
    optimizer, _ = training.make_optimizer(OPTIMIZER, SETTINGS.steps)
    step = training.make_step(config, SETTINGS, optimizer)
    return step, training.start(jax.tree.map(jnp.array, params), optimizer, SETTINGS)


def training_params(config: Pi05Config) -> Any:
    from morph_vla.pi05 import init_params

    return init_params(config, jax.random.key(1))


def standing(name: str, **keys: Any) -> Any:
    """A robot at rest, with what a plugin of these settings reads of it."""
    robot, (descriptors, poses) = robots.load(name), (keys.get(k) for k in ("descriptors", "poses"))
    body = body_of(robot, JOINTS, descriptors or "paper", poses or "none")
    if poses is None:
        return body
    rest = positions_of(robot, robot.to_dataset(robot.rest[None]), JOINTS)
    return dataclasses.replace(body, positions=rest[0])


def batch_of(*names: str, **keys: Any) -> tuple[Observation, np.ndarray, np.ndarray]:
    """One row per robot, padded to the same arrays."""
    source = np.random.default_rng(1)
    seen = Observation(
        {"base_0_rgb": source.integers(0, 256, (BATCH, 14, 14, 3)).astype(np.uint8)},
        {"base_0_rgb": np.ones(BATCH, bool)},
        source.integers(2, 37, (BATCH, 5)).astype(np.int32),
        np.ones((BATCH, 5), bool),
        stack([standing(name, **keys) for name in names]),
    )
    actions = source.normal(size=(BATCH, 6, JOINTS)).astype(np.float32)
    return seen, actions, np.ones((BATCH, JOINTS), bool)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"bias": "full", "control": "random"}, id="random", marks=pytest.mark.slow),
        pytest.param({"descriptors": "geometry", "poses": "present"}, id="geometry and poses"),
    ],
)
def test_one_compiled_step_serves_every_robot_alone_and_mixed(keys):
    traced = []
    step, state = begin(plugged(**keys))
    one: Any = step

    def noted(*inputs: Any) -> Any:
        traced.append(1)
        return one.__wrapped__(*inputs)

    compiled: Any = jax.jit(noted)
    losses = []
    for names in (
        ("panda", "panda", "panda"),
        ("so101", "so101", "so101"),
        ("g1_dex1", "g1_dex1", "g1_dex1"),
        ("panda", "so101", "g1_dex1"),
    ):
        _, metrics = compiled(state, *batch_of(*names, **keys), KEY)
        losses.append(float(metrics["loss"]))
    assert len(traced) == 1
    assert compiled._cache_size() == 1
    assert len(set(losses)) == 4  # and each robot counts


MOVED = {
    "paper": {"bias": "spd-soft", "max_distance": 5, "auxiliary": 1, "chunks": 2},
    "exact": {"bias": "adj-soft-v1.0", "start": "exact", "auxiliary": 1},
    "scalar": {"bias": "adj-soft-v2.0", "start": "exact", "encoder": "linear"},
    "exponential": {"bias": "adj-soft-v1.1", "encoder": "linear", "auxiliary": 1},
    "geometry and poses": {"bias": "mix", "descriptors": "geometry", "poses": "present"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVED)
def test_after_a_few_steps_every_new_parameter_has_moved(name):
    """Behind zeros gradients come one step after another: the gate's, the last layers', the rest's."""
    step, state = begin(plugged(**MOVED[name]))
    before = jax.tree.map(np.array, state.params)
    for _ in range(5):
        state, _ = step(state, *batch_of("panda", "so101", "g1_dex1", **MOVED[name]), KEY)
    for path, old in jax.tree_util.tree_leaves_with_path(before["morphology"]):
        new: Any = state.params["morphology"]
        for key in path:
            new = new[key.key]
        where = jax.tree_util.keystr(path)
        moved = np.asarray(new) != old
        # v1.0 has a theta per pair of places, and only pairs of joints that are no neighbours use theirs;
        # descriptors have features that no robot here has.
        share = 0.9 if "kernel" in where and "film" not in where else 0.3
        assert moved.mean() > share, where
        assert np.isfinite(new).all()
    if "auxiliary_0" in state.params["morphology"]:  # encoders that started alike do not stay so
        one, two = (state.params["morphology"][name]["out"]["kernel"] for name in ("encoder", "auxiliary_0"))
        assert np.abs(one - two).max() > 1e-4
    for path, old in jax.tree_util.tree_leaves_with_path(training.partition(before, SETTINGS)[1]):
        new = state.params
        for key in path:
            new = new[key.key]
        np.testing.assert_array_equal(new, old)


def products(jaxpr: Any, size: int) -> int:
    """How often a jaxpr writes down a matrix product with an axis of this size, however deep."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += any(size in variable.aval.shape for variable in equation.invars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            total += products(inner, size) if hasattr(inner, "eqns") else 0
    return total


@pytest.mark.parametrize("remat", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_frozen_prefix_runs_forward_only_and_once(remat):
    """In the whole training step its feed-forward's three products stand once; training it, three times."""
    config = dataclasses.replace(plugged(), remat=remat)
    optimizer, _ = training.make_optimizer(OPTIMIZER, SETTINGS.steps)

    def written(kind: Any, size: int) -> int:
        settings = dataclasses.replace(SETTINGS, kind=kind)
        step = training.make_step(config, settings, optimizer)
        state = jax.eval_shape(lambda: training.start(training_params(config), optimizer, settings))
        return products(jax.make_jaxpr(step)(state, *batch_of("panda", "so101", "panda"), KEY).jaxpr, size)

    prefix, image, expert = config.prefix.mlp_dim, config.vit.mlp_dim, config.expert.mlp_dim
    assert written("expert", prefix) == 3
    assert written("expert", image) == 2
    # Forward and twice backward, and forward once more where activations are recomputed.
    assert written("expert", expert) >= 9
    assert written("full", prefix) >= 9
    assert written("full", image) >= 6
