"""Muon for the matrices of the transformers, AdamW for everything else."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import policies
from morph_vla.errors import ConfigError
from morph_vla.recipes import recipe as config
from morph_vla.recipes.keys import Optimizer
from morph_vla.training import optimizers

pytestmark = pytest.mark.slow

MUON = Optimizer(kind="muon", peak_lr=0.1, matrix_lr=0.02, warmup=1, weight_decay=0.0, b2=0.99)

SIZES = [
    "model.image_size=24", "model.vit={width: 12, depth: 2, mlp_dim: 20, heads: 2, patch: 12}",
    "model.prefix={width: 20, mlp_dim: 28}", "model.expert={width: 16, mlp_dim: 28}", "model.depth=3",
    "model.heads=2", "model.head_dim=6",
]  # fmt: skip


@pytest.fixture(scope="module")
def params():
    recipe = config.load("panda_demo", [*SIZES, "data.dataset=x"])
    return policies.of(recipe.model).init(recipe.model, jax.random.key(0))


def flat(tree) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(str(key.key) for key in path): np.asarray(leaf) for path, leaf in leaves}


@pytest.fixture(scope="module")
def updates(params):
    """The second update (the first step's rate is zero), of random gradients."""
    optimizer, _ = optimizers.make_optimizer(MUON, 7)
    state = optimizer.init(params)
    random = np.random.default_rng(3)
    gradient = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), jnp.float32), params)
    update, result = jax.jit(optimizer.update), None
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(2):
            result, state = update(gradient, state, params)
    return flat(result)


def matrices(name: str, leaf: np.ndarray) -> np.ndarray | None:
    """The leaf as matrices [n, in, out], by hand; None for those that AdamW moves."""
    if not name.startswith("PaliGemma/"):
        return None
    kind = name.removesuffix("/w").removesuffix("_1").split("/")[-1]
    if kind == "q_einsum":  # [l heads width head]
        return leaf.swapaxes(1, 2).reshape(leaf.shape[0], leaf.shape[2], -1)
    if kind == "kv_einsum":
        return leaf.reshape(-1, *leaf.shape[-2:])
    if kind == "attn_vec_einsum" or name.endswith("/out/kernel"):
        return leaf.reshape(leaf.shape[0], -1, leaf.shape[-1])
    if name.endswith(("/query/kernel", "/key/kernel", "/value/kernel")):
        return leaf.reshape(*leaf.shape[:2], -1)
    if kind in ("gating_einsum", "linear") or "/MlpBlock_0/" in name or name.endswith("/head/kernel"):
        return leaf.reshape(-1, *leaf.shape[-2:]) if leaf.ndim > 1 and "bias" not in name else None
    return None


def test_every_direction_of_a_matrix_moves_as_far(updates):
    """Singular values of an orthogonalised update lie about 1, times sqrt(max(1, out / in)) and the rate."""
    seen = 0
    for name, leaf in updates.items():
        stacked = matrices(name, leaf)
        if stacked is None:
            continue
        seen += 1
        scale = 0.02 * math.sqrt(max(1.0, stacked.shape[2] / stacked.shape[1]))
        values = np.linalg.svd(stacked, compute_uv=False) / scale
        assert values.max() < 1.4, name
        assert np.median(values) > 0.6, name
    assert seen == 17


def test_everything_else_moves_by_adam(updates):
    """Adam's second update of one gradient is the rate itself, by sign."""
    others = {name: leaf for name, leaf in updates.items() if matrices(name, leaf) is None}
    assert {"action_in_proj/kernel", "PaliGemma/llm/embedder/input_embedding"} < set(others)
    assert any(name.startswith("morphology/") for name in others)
    for name, leaf in others.items():
        np.testing.assert_allclose(np.abs(leaf), 0.1, rtol=0.05, err_msg=name)


def test_the_default_is_adamw(params):
    assert Optimizer().kind == "adamw"
    optimizer, schedule = optimizers.make_optimizer(Optimizer(peak_lr=0.1, warmup=1), 7)
    with jax.numpy_dtype_promotion("standard"):
        state, advance = optimizer.init(params), jax.jit(optimizer.update)
        ones, update = jax.tree.map(jnp.ones_like, params), None
        for _ in range(2):
            update, state = advance(ones, state, params)
    for name, leaf in flat(update).items():
        np.testing.assert_allclose(leaf, -0.1, rtol=1e-3, err_msg=name)
    assert float(schedule(1)) == pytest.approx(0.1)


def test_an_unknown_optimizer_is_named():
    with pytest.raises(ConfigError, match=r"optimizer\.kind: expected 'adamw' or 'muon', got \"lion\"$"):
        config.load("panda_demo", ["data.dataset=x", "optimizer.kind=lion"])
