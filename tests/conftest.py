"""What every test runs under: one CPU, no network, strict dtypes, nothing of the user's own settings."""

import os
from pathlib import Path

import hypothesis
import pytest

# Before anything imports JAX or matplotlib.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("MORPH_VLA_PATH", None)

ROOT = Path(__file__).resolve().parents[1]

# A slow machine is no failure, and a failure in CI must come back on the laptop.
hypothesis.settings.register_profile("morph_vla", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("morph_vla")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of this checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's shared reading, beside the checkout or inside it; tests that need it skip without it."""
    for folder in (ROOT / "shared", ROOT.parent / "shared"):
        if folder.is_dir():
            return folder
    pytest.skip("the shared folder with recorded values is not beside this checkout")
