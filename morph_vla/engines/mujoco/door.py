"""The engine `mujoco`: MuJoCo on processor cores, each world on its own. It has no options."""

import importlib.metadata
from collections.abc import Mapping

from morph_vla import installing, robots
from morph_vla.engines.engine import Worlds
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.suites.suite import Suite

LOCKSTEP = False


def facts(options: Mapping[str, str]) -> dict[str, str]:
    """Name and version."""
    if options:
        raise MorphVlaError(f"engine mujoco has no options, not {', '.join(options)}")
    try:
        return {"name": "mujoco", "version": importlib.metadata.version("mujoco")}
    except importlib.metadata.PackageNotFoundError as error:
        words = f"engine mujoco is not installed; install the extra: {installing.remedy('sim')}"
        raise MissingExtraError(words) from error


def worlds(suite: Suite, count: int, options: Mapping[str, str]) -> Worlds:
    """`count` worlds."""
    from morph_vla.engines.mujoco.engine import MujocoEngine

    facts(options)
    return MujocoEngine(robots.load(suite.robot), suite, count)
