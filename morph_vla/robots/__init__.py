"""Robots from their URDFs: the reader and judge, the joint graph, the 12 features, and `Robot`.

    from morph_vla import robots

    panda = robots.load("panda")
    panda.names, panda.distances, panda.descriptors

Needs NumPy alone; `draw` imports matplotlib when it draws.
"""

from morph_vla.robots import draw
from morph_vla.robots.descriptors import NAMES, ContactDefaults
from morph_vla.robots.examine import available, build, load
from morph_vla.robots.graph import UNREACHABLE
from morph_vla.robots.judgement import judge
from morph_vla.robots.records import Urdf
from morph_vla.robots.robot import ActionJoint, Robot
from morph_vla.robots.side import Side
from morph_vla.robots.urdf import parse, read

__all__ = [
    "NAMES", "UNREACHABLE", "ActionJoint", "ContactDefaults", "Robot", "Side", "Urdf", "available", "build",
    "draw", "judge", "load", "parse", "read",
]  # fmt: skip
