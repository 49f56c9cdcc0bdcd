"""Where openpi is, the sizes at which it is run beside ours, and how its states are read."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig

BATCH = 2

# Sizes odd and pairwise different, and other than those of the recorded values: two key-value heads.
ODD = Pi05Config(
    vocab=401,
    image_size=42,
    vit=VitConfig(width=12, depth=2, mlp_dim=28, heads=3, patch=14),
    prefix=GemmaConfig(width=26, mlp_dim=44),
    expert=GemmaConfig(width=18, mlp_dim=38),
    depth=3,
    heads=6,
    kv_heads=2,
    head_dim=10,
    action_dim=7,
    horizon=5,
    max_tokens=19,
    dtype="float32",
    remat=False,
)


def pure(state: Any) -> dict[str, Any]:
    """An nnx state as nested dictionaries of arrays, by name."""
    return state.to_pure_dict()


def checkout() -> Path:
    """The checkout; a test without one skips."""
    if not os.environ.get("OPENPI"):
        pytest.skip("no checkout of openpi: make test-openpi OPENPI=path")
    return Path(os.environ["OPENPI"]).resolve()


def paths() -> list[str]:
    """What has to be on PYTHONPATH."""
    results = [str(checkout() / "src"), str(checkout() / "packages" / "openpi-client" / "src")]
    stub, lerobot = str(Path(__file__).parent / "stub"), importlib.util.find_spec("lerobot")
    if lerobot is None or str(lerobot.origin).startswith(stub):  # none but the one put there before
        results.append(stub)
    return results
