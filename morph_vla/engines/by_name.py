"""The engines by name: `mujoco`, or `isaaclab` with options, as in `isaaclab,physics=physx,device=cuda:0`.

How to add one: docs/engines.md.
"""

import importlib
from functools import partial
from typing import cast

from morph_vla.engines.engine import Door, Worlds
from morph_vla.engines.episode import Episodes
from morph_vla.engines.pool import Pool
from morph_vla.engines.waves import WavePool
from morph_vla.engines.workers import WorkerPool
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.suites.suite import Suite

ENGINES = {  # name -> the module of its `Door`
    "mujoco": "morph_vla.engines.mujoco.door",
    "isaaclab": "morph_vla.engines.isaaclab.door",
}
DEFAULT = "mujoco"


def split(text: str) -> tuple[str, dict[str, str]]:
    """The engine's name and its options. Raises MorphVlaError for an unknown engine or a malformed option."""
    name, *rest = (part.strip() for part in text.split(","))
    if name not in ENGINES:
        raise MorphVlaError(
            f"no engine is called '{name}'{nearest(name, ENGINES)}; there are {', '.join(ENGINES)}"
        )
    options = {}
    for part in rest:
        key, sign, value = part.partition("=")
        if not sign:
            raise MorphVlaError(f"engine {name}: an option is KEY=VALUE, such as device=cuda:0, not '{part}'")
        options[key.strip()] = value.strip()
    return name, options


def _door(text: str) -> tuple[Door, dict[str, str]]:
    name, options = split(text)
    return cast(Door, importlib.import_module(ENGINES[name])), options


def lockstep(text: str) -> bool:
    """Whether the engine's worlds can only move together (`Worlds.lockstep`)."""
    return _door(text)[0].LOCKSTEP


def worlds(suite: Suite, count: int, text: str = DEFAULT) -> Worlds:
    """`count` worlds of the engine."""
    door, options = _door(text)
    return door.worlds(suite, count, options)


def episodes(suite: Suite, text: str, count: int) -> Episodes:
    """Episodes in `count` worlds of the engine."""
    return Episodes(worlds(suite, count, text))


def pool(suite: Suite, slots: int, workers: int | None, text: str) -> Pool:
    """`slots` worlds to play episodes in: in `workers` processes, or in this one where they move together."""
    check(text)
    if lockstep(text):
        return WavePool(partial(episodes, suite, text), slots)
    return WorkerPool(partial(episodes, suite, text), slots, workers)


def facts(text: str) -> dict[str, str]:
    """What a record says of the engine: name, version, and what else numbers may depend on.

    Raises MorphVlaError, in one sentence, where the engine cannot be used here.
    """
    door, options = _door(text)
    return door.facts(options)


check = facts  # where nothing but its errors is wanted
