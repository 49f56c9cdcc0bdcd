"""openpi itself, from a checkout named by the environment: `make test-openpi OPENPI=path`.

openpi pins lerobot to a git commit and imports it beside its data loader; `stub/` satisfies that import where
lerobot is missing, and nothing of it is used: every test here runs on openpi's own fake data.
"""

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from live_openpi_sizes import BATCH, ODD, paths, pure

from morph_vla.pi05 import Pi05Config

# Without a checkout they are not there at all: `make test` has no openpi, and a skip would say nothing new.
collect_ignore_glob = [] if os.environ.get("OPENPI") else ["test_*.py"]

MODULES = {
    "model": "models.model", "pi0": "models.pi0", "pi0_config": "models.pi0_config", "gemma": "models.gemma",
    "siglip": "models.siglip", "tokenizer": "models.tokenizer", "transforms": "transforms",
    "image_tools": "shared.image_tools", "normalize": "shared.normalize", "sharding": "training.sharding",
}  # fmt: skip


@pytest.fixture(scope="session")
def openpi():
    """openpi's modules by short names; JAX promotes dtypes as openpi needs it."""
    sys.path[:0] = [path for path in paths() if path not in sys.path]
    before = jax.config.jax_numpy_dtype_promotion  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield SimpleNamespace(
        **{name: importlib.import_module(f"openpi.{module}") for name, module in MODULES.items()}
    )
    jax.config.update("jax_numpy_dtype_promotion", before)


@pytest.fixture(scope="module")
def tiny(openpi):
    """`tiny(config)`: openpi's own Pi0 class at the sizes of one of our configurations."""
    patch = pytest.MonkeyPatch()
    yield lambda config: _tiny(openpi, config, patch)
    patch.undo()


def _tiny(openpi: Any, config: Pi05Config, patch: pytest.MonkeyPatch) -> Any:
    """openpi names its sizes; here the names mean ours: two experts, an image encoder, a vocabulary."""
    from flax import nnx

    def expert(variant: str) -> Any:
        size = config.prefix if variant == "gemma_2b" else config.expert
        return openpi.gemma.Config(
            size.width, config.depth, size.mlp_dim, config.heads, config.kv_heads, config.head_dim
        )

    vit, pixels = config.vit, (config.image_size, config.image_size)
    sizes = {
        "width": vit.width, "depth": vit.depth, "mlp_dim": vit.mlp_dim, "num_heads": vit.heads,
        "patch_size": (vit.patch, vit.patch),
    }  # fmt: skip
    patch.setattr(openpi.gemma, "get_config", expert)
    patch.setattr(openpi.gemma, "PALIGEMMA_VOCAB_SIZE", config.vocab)
    patch.setattr(openpi.siglip, "decode_variant", lambda _: sizes)
    patch.setattr(openpi.model, "IMAGE_RESOLUTION", pixels)
    patch.setitem(_defaults(openpi.model.preprocess_observation), "image_resolution", pixels)
    return openpi.pi0.Pi0(
        openpi.pi0_config.Pi0Config(
            dtype=config.dtype,
            pi05=True,
            action_dim=config.action_dim,
            action_horizon=config.horizon,
            max_token_len=config.max_tokens,
        ),
        rngs=nnx.Rngs(0),
    )


def _defaults(function: Any) -> dict[str, Any]:
    return function.__kwdefaults__


@pytest.fixture(scope="module")
def theirs(tiny):
    """openpi's model with weights none of which is zero."""
    from flax import nnx

    model = tiny(ODD)
    rng = np.random.default_rng(0)
    state = nnx.state(model)
    drawn = jax.tree.map(lambda x: np.asarray(0.25 * rng.normal(size=x.shape), np.float32), pure(state))
    state.replace_by_pure_dict(drawn)
    nnx.update(model, state)
    return model


@pytest.fixture(scope="module")
def params(theirs):
    """The same weights for ours."""
    from flax import nnx

    return jax.tree.map(np.asarray, pure(nnx.state(theirs)))


@pytest.fixture(scope="session")
def batch() -> Any:
    """Three cameras, one of them absent from a row; prompts of two lengths; a state; actions and noise."""
    rng = np.random.default_rng(5)
    size = (BATCH, ODD.image_size, ODD.image_size, 3)
    names = ODD.cameras
    return SimpleNamespace(
        images={name: rng.uniform(-1, 1, size).astype(np.float32) for name in names},
        masks={name: np.array([True, name != names[2]]) for name in names},
        tokens=rng.integers(2, ODD.vocab, (BATCH, ODD.max_tokens)).astype(np.int32),
        token_mask=np.arange(ODD.max_tokens) < np.array([[ODD.max_tokens], [11]]),
        state=rng.uniform(-1, 1, (BATCH, ODD.action_dim)).astype(np.float32),
        actions=rng.normal(size=(BATCH, ODD.horizon, ODD.action_dim)).astype(np.float32),
        noise=rng.normal(size=(BATCH, ODD.horizon, ODD.action_dim)).astype(np.float32),
    )


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """That of a process which runs openpi's own scripts through ours."""
    root = Path(__file__).resolve().parents[2]
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([str(root), *paths()])}
    variables.pop("JAX_NUMPY_DTYPE_PROMOTION", None)
    return variables
