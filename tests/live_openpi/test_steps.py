"""openpi's own training step and ours, from the same weights with the same keys: equal losses and leaves."""

import dataclasses
import runpy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from live_openpi_sizes import BATCH, ODD, checkout, pure

from morph_vla.pi05 import Observation
from morph_vla.pi05.parts import by_name
from morph_vla.recipes.recipe import Optimizer, Training
from morph_vla.training import step as steps
from morph_vla.training.kinds import learns

STEPS = 3
OPTIMIZER = Optimizer(peak_lr=1e-3, warmup=1)
TRAINING = Training(steps=100, batch=BATCH, kind="expert", augmentation="openpi", loss_over="all")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Our learning rate, as openpi takes one: its own begins above zero."""

    def create(self) -> Any:
        return steps.make_optimizer(OPTIMIZER, TRAINING.steps)[1]


@pytest.fixture(scope="module")
def run(openpi, tiny, batch):
    """Losses, gradients' norms and last leaves of both: frozen leaves in bfloat16, computed in float32."""
    from flax import nnx
    from openpi.shared import nnx_utils
    from openpi.training import config

    script = runpy.run_path(str(checkout() / "scripts" / "train.py"))
    tiny(ODD)  # from now on openpi's names of sizes mean ours
    model = openpi.pi0_config.Pi0Config(
        dtype=ODD.dtype, pi05=True, action_dim=ODD.action_dim, action_horizon=ODD.horizon,
        max_token_len=ODD.max_tokens,
    )  # fmt: skip
    frozen = nnx.All(nnx_utils.PathRegex("PaliGemma/.*"), nnx.Not(nnx_utils.PathRegex(".*llm.*_1.*")))
    settings = config.TrainConfig(
        name="steps", exp_name="steps", model=model, batch_size=BATCH, freeze_filter=frozen,
        lr_schedule=Schedule(), ema_decay=None, wandb_enabled=False,
    )  # fmt: skip
    mesh = openpi.sharding.make_mesh(1)
    state, _ = script["init_train_state"](settings, jax.random.key(0), mesh, resume=False)
    rng = np.random.default_rng(0)  # openpi's start has zeros
    drawn = jax.tree.map(lambda x: jnp.asarray(0.25 * rng.normal(size=x.shape), x.dtype), pure(state.params))
    state.params.replace_by_pure_dict(drawn)
    theirs = openpi.model.Observation(
        images=jax.tree.map(jnp.asarray, batch.images), image_masks=jax.tree.map(jnp.asarray, batch.masks),
        state=jnp.asarray(batch.state), tokenized_prompt=jnp.asarray(batch.tokens),
        tokenized_prompt_mask=jnp.asarray(batch.token_mask),
    )  # fmt: skip
    actions, key = jnp.asarray(batch.actions), jax.random.key(5)
    their_step = jax.jit(lambda state: script["train_step"](settings, key, state, (theirs, actions)))

    seen = Observation(batch.images, batch.masks, batch.tokens, batch.token_mask)
    optimizer, _ = steps.make_optimizer(OPTIMIZER, TRAINING.steps)
    ours = steps.start(jax.tree.map(jnp.copy, drawn), optimizer, TRAINING)
    our_step = steps.make_step(ODD, TRAINING, optimizer)
    mask, lines = np.ones((BATCH, ODD.action_dim), bool), []
    for _ in range(STEPS):
        state, info = their_step(state)
        ours, metrics = our_step(ours, seen, actions, mask, key)
        lines.append([[info["loss"], info["grad_norm"]], [metrics["loss"], metrics["gradient_norm"]]])
    return np.asarray(lines), by_name(pure(state.params)), by_name(ours.params), by_name(drawn)


def test_losses_and_gradients_of_every_step_are_equal(run):
    lines, *_ = run
    print(f"\nlosses of openpi and ours: {lines[:, :, 0].tolist()}")
    np.testing.assert_allclose(lines[:, 1], lines[:, 0], rtol=2e-4)
    assert abs(lines[-1, 0, 0] - lines[0, 0, 0]) > 1e-3  # it learns, and draws anew


def test_the_same_leaves_moved_as_far(run):
    _, theirs, ours, first = run
    for name, leaf in first.items():
        if not learns(name, TRAINING):
            assert leaf.dtype == ours[name].dtype == theirs[name].dtype == jnp.bfloat16, name
            np.testing.assert_array_equal(ours[name], leaf)
            np.testing.assert_array_equal(theirs[name], leaf)
            continue
        moved, wanted = ours[name] - leaf, theirs[name] - leaf
        assert float(jnp.abs(wanted).max()) > 1e-4, name
        # AdamW divides by the gradient's size: where that is rounding alone, so is the step.
        assert float(jnp.mean(jnp.abs(moved - wanted))) < 0.02 * float(jnp.mean(jnp.abs(wanted))), name
