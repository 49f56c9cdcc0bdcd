"""The engine `isaaclab`: all worlds side by side, on a GPU or a CPU. Options: physics, renderer, device."""

import importlib.util
from collections.abc import Mapping
from importlib.metadata import version

from morph_vla import robots
from morph_vla.engines.engine import Worlds
from morph_vla.engines.isaaclab.scene import Options
from morph_vla.errors import MissingExtraError, MorphVlaError, nearest
from morph_vla.suites.suite import Suite

LOCKSTEP = True


def _options(given: Mapping[str, str]) -> Options:
    known = ("physics", "renderer", "device")
    for key in given:
        if key not in known:
            raise MorphVlaError(
                f"engine isaaclab has no option '{key}'{nearest(key, known)}; there are {', '.join(known)}"
            )
    options = Options(**given)
    options.check()
    if importlib.util.find_spec("isaaclab") is None:
        raise MissingExtraError(
            "engine isaaclab needs Isaac Lab, which is not installed: `make test-isaaclab` makes an "
            "environment with it in .venv-isaaclab, or pip install 'morph-vla[isaaclab]' on Python 3.12"
        )
    return options


def worlds(suite: Suite, count: int, options: Mapping[str, str]) -> Worlds:
    """`count` worlds."""
    chosen = _options(options)
    from morph_vla.engines.isaaclab.engine import IsaacLabEngine

    return IsaacLabEngine(robots.load(suite.robot), suite, count, chosen)


def facts(options: Mapping[str, str]) -> dict[str, str]:
    """Versions of Isaac Lab and of what it computes with, and the options."""
    chosen = vars(_options(options))
    packages = {name: version(name) for name in ("newton", "mujoco-warp", "warp-lang")}
    return {"name": "isaaclab", "version": version("isaaclab"), **chosen, **packages}
