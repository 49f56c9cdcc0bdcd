"""The one folder where fetched, converted and compiled files are kept."""

import os
from pathlib import Path

from morph_vla.files.home import expanded


def cache_folder() -> Path:
    """`MORPH_VLA_CACHE`, or `morph_vla` in the user's cache folder."""
    chosen = os.environ.get("MORPH_VLA_CACHE")
    if chosen:
        return expanded(chosen)
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "morph_vla"
