"""Robots from their URDFs: the reader and judge, the joint graph, the 12 features, and `Robot`.

    from morph_vla import robots

    panda = robots.load("panda")
    panda.names, panda.distances, panda.descriptors

Needs NumPy alone; names are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from morph_vla.robots import draw
    from morph_vla.robots.descriptors import NAMES, ContactDefaults
    from morph_vla.robots.examine import build, from_file
    from morph_vla.robots.graph import UNREACHABLE
    from morph_vla.robots.judgement import judge
    from morph_vla.robots.records import Urdf
    from morph_vla.robots.registry import available, load
    from morph_vla.robots.robot import ActionJoint, Robot
    from morph_vla.robots.side import Side
    from morph_vla.robots.urdf import parse, read

__all__ = [
    "NAMES",
    "UNREACHABLE",
    "ActionJoint",
    "ContactDefaults",
    "Robot",
    "Side",
    "Urdf",
    "available",
    "build",
    "draw",
    "from_file",
    "judge",
    "load",
    "parse",
    "read",
]

_HOME = {
    "NAMES": "descriptors",
    "UNREACHABLE": "graph",
    "ActionJoint": "robot",
    "ContactDefaults": "descriptors",
    "Robot": "robot",
    "Side": "side",
    "Urdf": "records",
    "available": "registry",
    "build": "examine",
    "judge": "judgement",
    "from_file": "examine",
    "load": "registry",
    "parse": "urdf",
    "read": "urdf",
}


def __getattr__(name: str) -> Any:
    if name == "draw":
        return importlib.import_module("morph_vla.robots.draw")
    if name in _HOME:
        return getattr(importlib.import_module(f"morph_vla.robots.{_HOME[name]}"), name)
    raise AttributeError(f"module 'morph_vla.robots' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
