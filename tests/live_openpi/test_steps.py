"""openpi's own training step and ours, from the same weights with the same keys: equal losses and leaves.

At odd small sizes, and at the widths, vocabulary, pictures and prompt of pi0.5 itself with fewer layers,
where the weights are one checkpoint on disk, which each reads by its own loader.
"""

import dataclasses
import runpy
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from live_openpi_sizes import BATCH, ODD, checkout, pure

from morph_vla import weights
from morph_vla.pi05 import Observation, Pi05Config, VitConfig
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.recipes.keys import Optimizer, Training
from morph_vla.training import step as steps
from morph_vla.training.kinds import learns

SCRIPT = "full_size"
STEPS = 3
OPTIMIZER = Optimizer(peak_lr=1e-3, warmup=1)
TRAINING = Training(steps=100, batch=BATCH, kind="expert", augmentation="openpi", loss_over="all")
WIDE = Pi05Config(depth=2, vit=VitConfig(depth=2), horizon=16, dtype="float32", remat=False)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Our learning rate, as openpi takes one: its own begins above zero."""

    def create(self) -> Any:
        return steps.make_optimizer(OPTIMIZER, TRAINING.steps)[1]


def begun(openpi: Any, size: Pi05Config, batch: Any, **keys: Any) -> tuple[Any, Any]:
    """openpi at a size of ours: its state before the first step, and its step of this batch."""
    from flax import nnx
    from openpi.shared import nnx_utils
    from openpi.training import config

    script = runpy.run_path(str(checkout() / "scripts" / "train.py"))
    model = openpi.pi0_config.Pi0Config(
        dtype=size.dtype, pi05=True, action_dim=size.action_dim, action_horizon=size.horizon,
        max_token_len=size.max_tokens,
    )  # fmt: skip
    frozen = nnx.All(nnx_utils.PathRegex("PaliGemma/.*"), nnx.Not(nnx_utils.PathRegex(".*llm.*_1.*")))
    settings = config.TrainConfig(
        name="steps", exp_name="steps", model=model, batch_size=len(batch.actions), freeze_filter=frozen,
        lr_schedule=Schedule(), ema_decay=None, wandb_enabled=False, **keys,
    )  # fmt: skip
    mesh = openpi.sharding.make_mesh(1)
    state, _ = script["init_train_state"](settings, jax.random.key(0), mesh, resume=False)
    theirs = openpi.model.Observation(
        images=jax.tree.map(jnp.asarray, batch.images), image_masks=jax.tree.map(jnp.asarray, batch.masks),
        state=jnp.asarray(batch.state), tokenized_prompt=jnp.asarray(batch.tokens),
        tokenized_prompt_mask=jnp.asarray(batch.token_mask),
    )  # fmt: skip
    given = theirs, jnp.asarray(batch.actions)
    return state, jax.jit(lambda state, key: script["train_step"](settings, key, state, given))


def stepped(state: Any, their_step: Any, size: Pi05Config, batch: Any, params: Any) -> SimpleNamespace:
    """Losses and gradients' norms of both after each step [step, side, 2], and both's last leaves."""
    actions, key, rows = jnp.asarray(batch.actions), jax.random.key(5), len(batch.actions)
    seen = Observation(batch.images, batch.masks, batch.tokens, batch.token_mask)
    training = dataclasses.replace(TRAINING, batch=rows)
    optimizer, _ = steps.make_optimizer(OPTIMIZER, training.steps)
    ours, our_step = steps.start(params, optimizer, training), steps.make_step(size, training, optimizer)
    mask, lines = np.ones((rows, size.action_dim), bool), []
    for _ in range(STEPS):
        state, info = their_step(state, key)
        ours, metrics = our_step(ours, seen, actions, mask, key)
        lines.append([[info["loss"], info["grad_norm"]], [metrics["loss"], metrics["gradient_norm"]]])
    lines = np.asarray(lines)
    print(f"\nlosses of openpi and ours: {lines[:, :, 0].tolist()}")
    return SimpleNamespace(lines=lines, theirs=by_name(pure(state.params)), ours=by_name(ours.params))


def check(run: SimpleNamespace, first: dict[str, Any]) -> None:
    """Losses and gradients of every step are equal, and the same leaves moved as far."""
    np.testing.assert_allclose(run.lines[:, 1], run.lines[:, 0], rtol=2e-4)
    assert abs(run.lines[-1, 0, 0] - run.lines[0, 0, 0]) > 1e-3  # it learns, and draws anew
    for name, leaf in first.items():
        ours, theirs = run.ours[name], run.theirs[name]
        if not learns(name, TRAINING):
            assert leaf.dtype == ours.dtype == theirs.dtype == jnp.bfloat16, name
            np.testing.assert_array_equal(ours, leaf)
            np.testing.assert_array_equal(theirs, leaf)
            continue
        moved, wanted = ours - leaf, theirs - leaf
        assert float(jnp.abs(wanted).max()) > 1e-4, name
        # AdamW divides by the gradient's size: where that is rounding alone, so is the step.
        assert float(jnp.mean(jnp.abs(moved - wanted))) < 0.02 * float(jnp.mean(jnp.abs(wanted))), name


def test_at_odd_sizes(openpi, tiny, batch):
    tiny(ODD)  # from now on openpi's names of sizes mean ours
    state, their_step = begun(openpi, ODD, batch)
    rng = np.random.default_rng(0)  # openpi's start has zeros
    drawn = jax.tree.map(lambda x: jnp.asarray(0.25 * rng.normal(size=x.shape), x.dtype), pure(state.params))
    state.params.replace_by_pure_dict(drawn)
    run = stepped(state, their_step, ODD, batch, jax.tree.map(jnp.copy, drawn))
    check(run, by_name(drawn))


def seen_wide() -> SimpleNamespace:
    """One observation as pi0.5 takes it: three cameras, one of them absent; a short prompt."""
    rng, shape = np.random.default_rng(5), (1, WIDE.image_size, WIDE.image_size, 3)
    names = WIDE.cameras
    return SimpleNamespace(
        images={name: rng.uniform(-1, 1, shape).astype(np.float32) for name in names},
        masks={name: np.array([name != names[2]]) for name in names},
        tokens=rng.integers(2, WIDE.vocab, (1, WIDE.max_tokens)).astype(np.int32),
        token_mask=np.arange(WIDE.max_tokens)[None] < 61,
        state=rng.uniform(-1, 1, (1, WIDE.action_dim)).astype(np.float32),
        actions=rng.normal(size=(1, WIDE.horizon, WIDE.action_dim)).astype(np.float32),
    )


def test_at_the_widths_of_pi05_from_one_checkpoint(openpi, tiny, script, tmp_path):
    """Two layers of eighteen and of 27: about 7 GB of memory and 2 GB of disk."""
    from openpi.training.weight_loaders import CheckpointWeightLoader

    script.SIZES["wide"] = ["model.depth=2", "model.vit.depth=2", "model.horizon=16"]
    script.write_openpi(tmp_path, "wide")
    batch, folder = seen_wide(), tmp_path / "openpi"
    tiny(WIDE)
    loader = CheckpointWeightLoader(str(folder / "params"))
    state, their_step = begun(openpi, WIDE, batch, weight_loader=loader)
    frozen = {name: "float32" if learns(name, TRAINING) else "bfloat16" for name in weights.leaf_shapes(WIDE)}
    params, _ = weights.load(folder, WIDE, dtype=frozen.__getitem__, place=lambda _, leaf: jnp.asarray(leaf))
    first = by_name(params)
    run = stepped(state, their_step, WIDE, batch, map_named(lambda _, leaf: jnp.copy(leaf), params))
    check(run, first)
