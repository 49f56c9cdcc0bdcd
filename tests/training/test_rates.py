"""The optimizer: its schedule, norms and clips by part, the plugin's rate, what decays."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from morph_vla.pi05.parts import PARTS, by_name, part_of
from morph_vla.recipes.keys import Optimizer, Training
from morph_vla.training import kinds, optimizers
from morph_vla.training import step as training

EXPERT = Training(steps=1, kind="expert")
OPTIMIZER = Optimizer(peak_lr=2e-2, warmup=3, final_lr_share=0.5)
STEPS = 31


def leaves(tree):
    return {name: np.asarray(leaf) for name, leaf in by_name(tree).items()}


def test_the_schedule_rises_and_falls():
    _, schedule = training.make_optimizer(OPTIMIZER, STEPS)
    rates = np.array([float(schedule(step)) for step in (0, 1, 2, 3, 17, 31)])
    np.testing.assert_allclose(rates[:4], [0, 2e-2 / 3, 4e-2 / 3, 2e-2], rtol=1e-5)
    np.testing.assert_allclose(rates[4:], [1.5e-2, 1e-2], rtol=1e-5)  # halfway, and half the peak
    np.testing.assert_allclose(quarters(schedule), cosine(), rtol=1e-5)
    _, short = training.make_optimizer(Optimizer(peak_lr=1.0, warmup=1000), 5)
    assert float(short(4)) == pytest.approx(1.0)  # a warm-up ends before the run does


def test_a_warm_up_that_outlasts_the_run_is_said(caplog):
    training.make_optimizer(Optimizer(warmup=STEPS), STEPS)
    assert caplog.messages == [f"optimizer.warmup: {STEPS} of {STEPS} steps: the rate only rises"]


def test_a_gradient_reaches_the_projections_before_the_language_model():
    assert not kinds.reached(EXPERT)["language model"]
    assert kinds.reached(EXPERT, environment=14)["language model"]
    assert not kinds.reached(EXPERT, environment=14)["vision encoder"]


def quarters(schedule: Any) -> list[float]:
    """The rate a quarter and three quarters down, where a cosine is not a line."""
    return [float(schedule(step)) for step in (10, 24)]


def cosine() -> list[float]:
    """Between 2e-2 at step 3 and 1e-2 at step 31."""
    return [1e-2 + 1e-2 * (1 + math.cos(math.pi * (step - 3) / 28)) / 2 for step in (10, 24)]


def test_a_line_in_place_of_the_cosine_is_noticed(monkeypatch):
    def line(begin: float, peak: float, warmup: int, steps: int, end: float) -> Any:
        parts = [
            optax.linear_schedule(begin, peak, warmup),
            optax.linear_schedule(peak, end, steps - warmup),
        ]
        return optax.join_schedules(parts, [warmup])

    monkeypatch.setattr(optax, "warmup_cosine_decay_schedule", line)
    _, schedule = training.make_optimizer(OPTIMIZER, STEPS)
    assert float(schedule(17)) == pytest.approx(1.5e-2)  # halfway down the two agree
    assert np.abs(np.divide(quarters(schedule), cosine()) - 1).min() > 0.05


def gradient() -> Any:
    """A leaf or two of every part, the plugin's a thousand times larger."""
    source = np.random.default_rng(3)

    def leaf(*shape: int, size: float = 1.0) -> np.ndarray:
        return (size * source.normal(size=shape)).astype(np.float32)

    return {
        "PaliGemma": {
            "img": {"head": {"bias": leaf(3)}},
            "llm": {"layers": {"mlp": {"linear": leaf(2, 3)}, "mlp_1": {"linear": leaf(5, 2)}}},
        },
        "action_in_proj": {"kernel": leaf(2, 5), "bias": leaf(5)},
        "morphology": {
            "film": {"generator": {"kernel": leaf(7, 2, size=1000)}},
            "gate": leaf(2, 3, size=1000),
        },
    }


def test_the_norms_are_those_of_the_parts_leaves():
    result = kinds.norms(gradient())
    assert list(result) == list(PARTS)
    for part, norm in result.items():
        own = [leaf for path, leaf in leaves(gradient()).items() if part_of(path) == part]
        assert float(norm) == pytest.approx(
            np.linalg.norm(np.concatenate([x.ravel() for x in own])), rel=1e-5
        )
    learnt, _ = training.partition(gradient(), EXPERT)
    assert list(kinds.norms(learnt)) == ["action expert", "projections", "morphology"]


def test_parts_clipped_apart_leave_each_other_alone():
    """A plugin's large gradient scales the others down where there is one norm of all."""
    given, before = gradient(), kinds.norms(gradient())
    most = 1.01 * float(before["projections"])
    assert most < float(before["morphology"]) / 100
    clipped: Any = optimizers.clip_apart(most)
    update, _ = clipped.update(given, clipped.init(given))
    for name, norm in kinds.norms(update).items():
        assert float(norm) == pytest.approx(min(most, float(before[name])), rel=1e-5), name
    for path, leaf in leaves(update).items():
        share = min(1.0, most / float(before[part_of(path)]))
        np.testing.assert_allclose(leaf, share * leaves(given)[path], rtol=1e-5)
    np.testing.assert_array_equal(update["action_in_proj"]["bias"], given["action_in_proj"]["bias"])
    together: Any = optax.clip_by_global_norm(most)
    rest, _ = together.update(given, together.init(given))
    assert float(kinds.norms(rest)["projections"]) < 0.01 * most
    # A part without a gradient keeps its zeros.
    still, _ = clipped.update(jax.tree.map(np.zeros_like, given), clipped.init(given))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(still))


@pytest.mark.slow
def test_the_optimizer_clips_as_it_is_told():
    """What is left of the clip is Adam's first moment, a tenth of the gradient."""
    moments = {}
    for clip_parts in ("together", "apart"):
        chosen = dataclasses.replace(OPTIMIZER, clip_parts=clip_parts)
        optimizer, _ = training.make_optimizer(chosen, STEPS)
        state: Any = None
        with jax.numpy_dtype_promotion("standard"):
            _, state = optimizer.update(gradient(), optimizer.init(gradient()), gradient())
        moments[clip_parts] = {name: float(norm) for name, norm in kinds.norms(state[1][0].mu).items()}
    assert list(moments["apart"].values()) == pytest.approx([0.1] * 5, rel=1e-4)
    assert moments["together"]["morphology"] == pytest.approx(0.1, rel=1e-2)
    assert moments["together"]["action expert"] < 1e-3


def test_the_plugin_may_have_a_slower_rate():
    """A tenth: its steps, decay included, are a tenth as long, and those of the others are as before."""
    moved = {}
    for share in (1.0, 0.1):
        chosen = dataclasses.replace(OPTIMIZER, warmup=1, weight_decay=0.1, plugin_lr_share=share)
        optimizer, _ = training.make_optimizer(chosen, STEPS)
        state, updates = optimizer.init(gradient()), None
        for _ in range(2):  # the first step's rate is zero
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer.update(gradient(), state, gradient())
        moved[share] = leaves(updates)
    for path, leaf in moved[1.0].items():
        assert leaf.all()
        part = 0.1 if part_of(path) == "morphology" else 1.0
        np.testing.assert_allclose(moved[0.1][path], part * leaf, rtol=1e-6)


def test_only_matrices_decay():
    params: Any = {
        "w": jnp.ones((2, 3)),
        "b": jnp.ones(3),
        "theta": jnp.ones((2, 3)),
        "bias": jnp.ones((5, 2)),
    }
    optimizer, _ = training.make_optimizer(Optimizer(peak_lr=0.1, warmup=1, weight_decay=0.5), 7)
    state = optimizer.init(params)
    updates: Any = None
    for _ in range(2):  # the first step's rate is zero
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(jax.tree.map(jnp.zeros_like, params), state, params)
    np.testing.assert_allclose(updates["w"], -0.05, rtol=1e-5)
    for name in ("b", "theta", "bias"):
        np.testing.assert_array_equal(updates[name], 0)
