"""One training step: what learns, what stays, what a resumed run repeats."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.morphology import Body, MorphologyConfig
from morph_vla.pi05 import GemmaConfig, Observation, Pi05Config, VitConfig, init_params
from morph_vla.pi05.parts import PARTS, by_name
from morph_vla.recipes.keys import Optimizer, Training
from morph_vla.training import step as training

BATCH, JOINTS, USED = 3, 5, 5
CONFIG = Pi05Config(
    vocab=37,
    image_size=14,
    cameras=("base_0_rgb",),
    vit=VitConfig(width=12, depth=1, mlp_dim=13, heads=3, patch=7),
    prefix=GemmaConfig(width=14, mlp_dim=17),
    expert=GemmaConfig(width=26, mlp_dim=29),
    depth=2,
    heads=2,
    kv_heads=1,
    head_dim=10,
    action_dim=7,
    horizon=3,
    max_tokens=5,
    dtype="float32",
    remat=False,
    morphology=MorphologyConfig(max_joints=JOINTS, chunks=1),
)
SETTINGS = Training(steps=31, batch=BATCH, flow_samples=2, shift_pixels=1, brightness=0.1, ema=0.9)
EXPERT = Training(steps=1, kind="expert")
OPTIMIZER = Optimizer(peak_lr=2e-2, warmup=3, final_lr_share=0.5)


@pytest.fixture(scope="module")
def params():
    """Parameters none of which is zero, so that every one of them matters."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: init_params(CONFIG, jax.random.key(0)))
    return jax.tree.map(lambda x: (0.15 * rng.normal(size=x.shape)).astype(np.float32), shapes)


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    near = np.abs(np.subtract.outer(np.arange(JOINTS), np.arange(JOINTS))) < 2
    body = Body(
        np.broadcast_to(near, (BATCH, JOINTS, JOINTS)),
        np.broadcast_to((~near).astype(np.int32), (BATCH, JOINTS, JOINTS)),
        rng.normal(size=(BATCH, JOINTS, 12)).astype(np.float32),
        np.ones((BATCH, JOINTS), bool),
    )
    seen = Observation(
        {"base_0_rgb": rng.integers(0, 256, (BATCH, 14, 14, 3)).astype(np.uint8)},
        {"base_0_rgb": np.ones(BATCH, bool)},
        rng.integers(2, 37, (BATCH, 5)).astype(np.int32),
        np.ones((BATCH, 5), bool),
        body,
    )
    actions = np.zeros((BATCH, 3, 7), np.float32)
    actions[..., :USED] = rng.normal(size=(BATCH, 3, USED))
    return seen, actions, np.broadcast_to(np.arange(7) < USED, (BATCH, 7))


class Run:
    """A compiled step and how to begin."""

    def __init__(self, kind, params, **keys):
        self.settings = dataclasses.replace(SETTINGS, kind=kind, **keys)
        self.optimizer, self.schedule = training.make_optimizer(OPTIMIZER, self.settings.steps)
        self.step = training.make_step(CONFIG, self.settings, self.optimizer)
        self.params = params

    def start(self):
        # Copies: the step gives its buffers away.
        return training.start(jax.tree.map(jnp.array, self.params), self.optimizer, self.settings)

    def after(self, steps, batch, state=None, key=7):
        state, losses = state or self.start(), []
        for _ in range(steps):
            state, metrics = self.step(state, *batch, jax.random.key(key))
            losses.append(float(metrics["loss"]))
        return state, losses


@pytest.fixture(scope="module")
def full(params):
    return Run("full", params)


def copied(state):
    return jax.tree.map(jnp.array, state)


def leaves(tree):
    return {name: np.asarray(leaf) for name, leaf in by_name(tree).items()}


@pytest.mark.parametrize("kind", ["full", "expert"])
def test_partition_and_merge_take_apart_and_put_together(params, kind):
    trainable, frozen = training.partition(params, Training(steps=1, kind=kind))
    assert not set(leaves(trainable)) & set(leaves(frozen))
    merged = leaves(training.merge(trainable, frozen))
    assert merged.keys() == leaves(params).keys()
    for path, leaf in leaves(params).items():
        np.testing.assert_array_equal(merged[path], leaf)
    assert bool(leaves(frozen)) == (kind == "expert")


def test_what_the_expert_is(params):
    trainable, frozen = (leaves(part) for part in training.partition(params, EXPERT))
    names = set(trainable)
    assert {path.partition("/")[0] for path in frozen} == {"PaliGemma"}
    assert "PaliGemma/llm/layers/attn/q_einsum_1/w" in names
    assert "PaliGemma/llm/layers/mlp_1/linear" in names
    assert "PaliGemma/llm/final_norm_1/Dense_0/kernel" in names
    assert "action_in_proj/kernel" in names
    assert "morphology/encoder/out/kernel" in names
    frozen_names = set(frozen)
    assert "PaliGemma/llm/embedder/input_embedding" in frozen_names
    assert "PaliGemma/img/Transformer/encoderblock/LayerNorm_1/scale" in frozen_names
    assert "PaliGemma/img/Transformer/encoderblock/MlpBlock_0/Dense_1/kernel" in frozen_names


@pytest.mark.slow
def test_expert_training_leaves_the_vlm_as_it_is(params, batch):
    run = Run("expert", params)
    before = leaves(params)
    _, frozen = training.partition(params, EXPERT)
    state, _ = run.after(2, batch)
    after = leaves(state.params)
    for path, leaf in before.items():
        if path in leaves(frozen):
            np.testing.assert_array_equal(after[path], leaf)
    moved = [path for path in before if (after[path] != before[path]).any()]
    tops = {name.partition("/")[0] for name in moved}
    assert tops >= {"action_in_proj", "action_out_proj", "morphology", "time_mlp_in", "PaliGemma"}
    assert leaves(state.ema).keys() == before.keys() - leaves(frozen).keys()
    averaged = leaves(training.averaged(state))
    assert averaged.keys() == before.keys()


@pytest.mark.slow
def test_the_loss_falls_on_one_batch(full, batch):
    state, losses = full.after(30, batch)
    assert all(np.isfinite(losses))
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:3]), losses
    assert int(state.step) == 30


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["expert", pytest.param("full", marks=pytest.mark.long)])
def test_accumulation_changes_memory_and_not_the_result(params, batch, kind):
    twice = jax.tree.map(lambda x: np.concatenate([x, x[::-1]]), batch)  # six rows
    result = {}
    for parts in (1, 3):
        run = Run(kind, params, batch=2 * BATCH, accumulate=parts, flow_samples=1)
        state, metrics = run.step(run.start(), *twice, jax.random.key(7))
        result[parts] = metrics, jax.tree.leaves(state.optimizer)
    (one, moments), (three, others) = result[1], result[3]
    np.testing.assert_allclose(three["loss"], one["loss"], rtol=1e-6)
    np.testing.assert_allclose(three["rows"], one["rows"], rtol=3e-6)
    np.testing.assert_allclose(three["gradient_norm"], one["gradient_norm"], rtol=1e-6)
    largest = max(float(np.abs(leaf).max()) for leaf in moments if leaf.ndim)
    for old, new in zip(moments, others, strict=True):  # the first moment is a tenth of the gradient
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.slow
def test_a_resumed_run_repeats_the_uninterrupted_one(full, batch):
    halfway, first = full.after(2, batch)
    saved = copied(halfway)
    whole, rest = full.after(3, batch, halfway)
    resumed, again = full.after(3, batch, saved)
    assert rest == again
    for path, leaf in leaves(whole.params).items():
        np.testing.assert_array_equal(leaf, leaves(resumed.params)[path])
    _, other = full.after(2, batch, key=8)
    assert other != first
    assert first[0] != first[1]  # another step, other noise


def test_the_average_lies_between_old_and_new(full, batch):
    begin = full.start()
    old = leaves(copied(begin.params))
    one, _ = full.after(2, batch, begin)
    average, new = leaves(copied(one.ema)), leaves(copied(one.params))
    two, _ = full.after(1, batch, one)
    decay = 3 / 12  # of the third step: min(0.9, (1 + 2) / (10 + 2))
    for path, leaf in leaves(two.params).items():
        wanted = decay * average[path] + (1 - decay) * leaf
        np.testing.assert_allclose(leaves(two.ema)[path], wanted, atol=1e-6)
    assert any((new[path] != old[path]).any() for path in old)


def test_a_state_begins_with_the_average_at_the_parameters(full, params):
    state = full.start()
    assert int(state.step) == 0
    for path, leaf in leaves(training.averaged(state)).items():
        np.testing.assert_array_equal(leaf, leaves(params)[path])


def test_the_gradients_norm_is_told_by_part(full, batch):
    _, metrics = full.step(full.start(), *batch, jax.random.key(7))
    reports = {name: float(norm) for name, norm in metrics["gradient_norms"].items()}
    assert reports.keys() == set(PARTS)
    assert min(reports.values()) > 0
    assert math.hypot(*reports.values()) == pytest.approx(float(metrics["gradient_norm"]), rel=1e-5)


@pytest.mark.long
@pytest.mark.slow
def test_half_precision_frozen_leaves_stay_as_they_are_and_the_expert_learns(params, batch):
    """Frozen leaves in bfloat16, learnt ones in float32: near a step of the same values in float32."""
    learnt, frozen = training.partition(params, EXPERT)
    half = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), frozen)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), half)
    losses, states = {}, {}
    with jax.numpy_dtype_promotion("standard"):  # Flax's norms and activations promote by themselves
        for name, rest in (("half", half), ("single", single)):
            run = Run("expert", training.merge(learnt, rest))
            half_config = dataclasses.replace(CONFIG, dtype="bfloat16")
            step: Any = training.make_step(half_config, run.settings, run.optimizer)
            # Compiling is most of this test's time.
            options = {"xla_backend_optimization_level": 0}
            run.step = jax.jit(step.__wrapped__, compiler_options=options)
            states[name], losses[name] = run.after(3, batch)
    assert losses["half"] == pytest.approx(losses["single"], rel=2e-2)
    assert len(set(losses["half"])) == 3
    after = leaves(states["half"].params)
    for path, leaf in leaves(half).items():
        assert after[path].dtype == jnp.bfloat16, path
        np.testing.assert_array_equal(after[path], leaf)
    moved = leaves(learnt)
    assert {after[path].dtype for path in moved} == {np.dtype(np.float32)}
    assert all((after[path] != leaf).any() for path, leaf in moved.items())
    kept = [states["half"].ema, states["half"].optimizer]
    assert {leaf.dtype for leaf in jax.tree.leaves(kept) if leaf.ndim} == {np.dtype(np.float32)}


@pytest.mark.slow
def test_only_the_robots_own_values_count(params, batch):
    seen, actions, mask = batch
    other = actions.copy()
    other[..., USED:] = 100.0
    settings = dataclasses.replace(SETTINGS, shift_pixels=0, brightness=0.0)
    config = dataclasses.replace(CONFIG, morphology=None)
    host = {name: value for name, value in params.items() if name != "morphology"}
    # The padded values reach the loss only through x_t; with their rows of the input at zero, not at all.
    kernel = host["action_in_proj"]["kernel"].copy()
    kernel[USED:] = 0
    host = {**host, "action_in_proj": {**host["action_in_proj"], "kernel": kernel}}

    @jax.jit
    def draw(host, seen, actions):
        errors = training.draw_errors(config, settings, host, seen, actions, jax.random.key(3), False)
        return jnp.mean(training.row_losses(errors, jnp.asarray(mask), settings))

    assert float(draw(host, seen, actions)) == pytest.approx(float(draw(host, seen, other)), rel=1e-6)


@pytest.mark.slow
def test_augmentation_is_chosen_by_the_recipe_and_absent_outside_training(params, batch):
    seen, actions, _ = batch
    key = jax.random.key(5)

    def value(augment: bool, **changes: Any) -> float:
        settings = dataclasses.replace(SETTINGS, shift_pixels=0, brightness=0.0, **changes)
        quick = jax.jit(
            training.draw_errors,
            static_argnums=(0, 1, 6),
            compiler_options={"xla_backend_optimization_level": 0},
        )
        return float(jnp.mean(quick(CONFIG, settings, params, seen, jnp.asarray(actions), key, augment)))

    plain = value(True, augmentation="none")
    assert value(True, augmentation="shift") == plain  # by no pixel and no light
    assert abs(value(True, augmentation="openpi") - plain) > 1e-5
    assert value(False, augmentation="openpi") == plain


def test_every_row_counts_the_same_and_only_its_own_values():
    errors = jnp.array([[2.0, 4.0, 9.0], [5.0, 7.0, 9.0]])
    mask = jnp.array([[True, True, False], [True, False, False]])
    real = training.row_losses(errors, mask, SETTINGS)
    np.testing.assert_allclose(real, [3.0, 5.0])
    every = training.row_losses(errors, mask, dataclasses.replace(SETTINGS, loss_over="all"))
    np.testing.assert_allclose(every, [5.0, 7.0])
    blank = training.row_losses(errors, jnp.zeros_like(mask), SETTINGS)
    np.testing.assert_array_equal(blank, [0.0, 0.0])  # of rows that fill a batch up; not 0/0


GIVEN = dataclasses.replace(CONFIG, delay_max=2)


@pytest.mark.slow
def test_microbatches_are_given_what_their_rows_are_given(params, batch):
    """Each row's loss is the same in one batch and in three microbatches."""
    seen, actions, mask = batch
    known = jnp.asarray(actions), jnp.asarray(mask)
    drawn = training.draw(GIVEN, SETTINGS, seen, *known, jax.random.key(5), augment=True)

    def objective(learnt, part):
        rows = training.row_losses(training.errors_of(GIVEN, SETTINGS, learnt, part), part.mask, SETTINGS)
        return jnp.mean(rows), rows

    @jax.jit
    def both(params, drawn):
        return [training.accumulated(objective, params, drawn, parts)[0] for parts in (1, 3)]

    together, apart = both(params, drawn)
    np.testing.assert_allclose(together, apart, rtol=1e-5)
    assert drawn.given is not None
    other, _ = both(params, drawn._replace(given=drawn.given[::-1]))
    assert np.abs(together - other).max() > 1e-4
