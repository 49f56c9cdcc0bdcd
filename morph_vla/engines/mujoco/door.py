"""The engine `mujoco`: MuJoCo on processor cores, each world on its own."""

import importlib.metadata
from collections.abc import Mapping

from morph_vla import robots
from morph_vla.engines.engine import Worlds
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import Suite

LOCKSTEP = False


def check(options: Mapping[str, str]) -> None:
    """Raise MorphVlaError where any option is given: there are none."""
    if options:
        raise MorphVlaError(f"engine mujoco has no options, not {', '.join(options)}")


def worlds(suite: Suite, count: int, options: Mapping[str, str]) -> Worlds:
    """`count` worlds; raises as `check` does."""
    from morph_vla.engines.mujoco.engine import MujocoEngine

    check(options)
    return MujocoEngine(robots.load(suite.robot), suite, count)


def facts(options: Mapping[str, str]) -> dict[str, str]:
    """Name and version."""
    check(options)
    return {"name": "mujoco", "version": importlib.metadata.version("mujoco")}
