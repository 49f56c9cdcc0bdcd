"""The engines by name: `mujoco`, or `isaaclab` with options, as in `isaaclab,physics=physx,device=cuda:0`."""

import importlib.metadata
import importlib.util
from typing import Any

from morph_vla import robots
from morph_vla.errors import MissingExtraError, MorphVlaError, nearest
from morph_vla.suites.suite import Suite

ENGINES = ("mujoco", "isaaclab")
DEFAULT = "mujoco"


def split(text: str) -> tuple[str, dict[str, str]]:
    """The engine's name and its options. Raises MorphVlaError for a name or a form that is none."""
    name, *rest = (part.strip() for part in text.split(","))
    if name not in ENGINES:
        raise MorphVlaError(
            f"no engine is called '{name}'{nearest(name, ENGINES)}; there are {', '.join(ENGINES)}"
        )
    options = {}
    for part in rest:
        key, sign, value = part.partition("=")
        if not sign:
            raise MorphVlaError(
                f"engine {name}: '{part}' is no option; options read KEY=VALUE, as device=cuda:0"
            )
        options[key.strip()] = value.strip()
    return name, options


def check(text: str) -> None:
    """Raise MorphVlaError where the engine cannot be used here, in one sentence."""
    name, options = split(text)
    if name == "mujoco":
        if options:
            raise MorphVlaError(f"engine mujoco has no options, not {', '.join(options)}")
        return
    _isaaclab_options(options)


def _isaaclab_options(options: dict[str, str]) -> Any:
    """The options, checked; `isaaclab_scene.Options`."""
    from morph_vla.engines.isaaclab import scene as isaaclab_scene

    known = ("physics", "renderer", "device")
    for key in options:
        if key not in known:
            raise MorphVlaError(
                f"engine isaaclab has no option '{key}'{nearest(key, known)}; there are {', '.join(known)}"
            )
    chosen = isaaclab_scene.Options(**options)
    chosen.check()
    if importlib.util.find_spec("isaaclab") is None:
        raise MissingExtraError(
            "engine isaaclab needs Isaac Lab, which is not installed: `make test-isaaclab` makes an "
            "environment with it in .venv-isaaclab, or pip install 'morph-vla[isaaclab]' on Python 3.12"
        )
    return chosen


def worlds(suite: Suite, count: int, text: str) -> Any:
    """`count` worlds that step together (`engine.Worlds`), of any engine."""
    name, options = split(text)
    robot = robots.load(suite.robot)
    if name == "isaaclab":
        chosen = _isaaclab_options(options)
        from morph_vla.engines.isaaclab.engine import IsaacLabEngine

        return IsaacLabEngine(robot, suite, count, chosen)
    from morph_vla.engines.lockstep import OneByOne
    from morph_vla.engines.mujoco.engine import MujocoEngine

    return OneByOne(MujocoEngine(robot, suite, count))


def pool(suite: Suite, slots: int, workers: int | None, text: str) -> Any:
    """A pool of `slots` worlds: worker processes of MuJoCo's, or Isaac Lab's in this one."""
    from morph_vla.engines.lockstep import LockstepPool
    from morph_vla.engines.workers import Pool

    check(text)
    if split(text)[0] == "mujoco":
        return Pool(suite, slots, workers)
    return LockstepPool(worlds(suite, slots, text))


def facts(text: str) -> dict[str, Any]:
    """What a record says of the engine: name, version, and what else numbers may depend on."""
    name, options = split(text)
    if name == "mujoco":
        return {"name": name, "version": importlib.metadata.version("mujoco")}
    from morph_vla.engines.isaaclab import engine as isaaclab

    return isaaclab.facts(_isaaclab_options(options))
