"""The one folder where fetched, converted and compiled files are kept."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`MORPH_VLA_CACHE`, or `morph_vla` in the user's cache folder."""
    chosen = os.environ.get("MORPH_VLA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "morph_vla"
