"""The engine `isaaclab`: all worlds side by side, on a GPU or a CPU. Options: `options.Options`."""

import importlib.util
from collections.abc import Mapping
from importlib.metadata import version

from morph_vla import installing, robots
from morph_vla.engines.engine import Worlds
from morph_vla.engines.isaaclab import lights
from morph_vla.engines.isaaclab.options import Options, read
from morph_vla.errors import MissingExtraError
from morph_vla.suites.suite import Suite

LOCKSTEP = True


def _options(given: Mapping[str, str]) -> Options:
    chosen = read(given)
    if importlib.util.find_spec("isaaclab") is None:
        raise MissingExtraError(
            "engine isaaclab needs Isaac Lab, which is not installed: `make test-isaaclab` makes an "
            f"environment with it in .venv-isaaclab; or {installing.remedy('isaaclab')}"
        )
    return chosen


def worlds(suite: Suite, count: int, options: Mapping[str, str]) -> Worlds:
    """`count` worlds."""
    chosen = _options(options)
    from morph_vla.engines.isaaclab.engine import IsaacLabEngine

    return IsaacLabEngine(robots.load(suite.robot), suite, count, chosen)


def facts(options: Mapping[str, str]) -> dict[str, str]:
    """Versions of Isaac Lab and of what it computes with, and what was chosen."""
    chosen = _options(options)
    packages = {name: version(name) for name in ("newton", "mujoco-warp", "warp-lang")}
    return {"name": "isaaclab", "version": version("isaaclab"), **declared(chosen), **packages}


def declared(chosen: Options) -> dict[str, str]:
    """What a record says of the choice: not the room for contacts where it is nobody's."""
    is_newton = chosen.physics == "newton"
    if chosen.deterministic:
        repeats = "bit-equal, asked for"
    else:
        measured = is_newton and chosen.renderer == "newton"
        repeats = "bit-equal, as measured" if measured else "not measured"
    return {
        **{key: str(value) for key, value in vars(chosen).items() if is_newton or key != "contacts"},
        "lights": lights.ABOUT if chosen.renderer == "newton" else lights.ABOUT_OTHERS,
        "repeats": repeats,
    }
