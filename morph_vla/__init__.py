"""morph_vla: tell a vision-language-action policy about the body it drives.

`import morph_vla` costs nothing: its rooms (`morph_vla.robots`, `morph_vla.pi05`, ...) are imported when they
are first touched, so that a command such as `morph-vla robots list` starts without JAX, torch or a simulator.
"""

import importlib
from typing import Any

from morph_vla._version import __version__

_ROOMS = (
    "files",
    "robots",
    "morphology",
    "pi05",
    "weights",
    "data",
    "recipes",
    "training",
    "suites",
    "engines",
    "demonstrations",
    "evaluation",
    "results",
    "report",
    "serving",
    "checks",
    "hosts",
)

__all__ = ["__version__", *_ROOMS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a room of the package on first use."""
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
