"""The things on a table, as a suite's file describes them, and what no simulator builds."""

import dataclasses
from collections.abc import Iterator
from typing import Literal

from morph_vla.suites.criterion import Vector3

SIZES = {"cylinder": 2, "sphere": 1}  # how many of the three sizes a shape has, where it has not all
RESERVED = ("table", "world", "floor", "robot")  # what a scene calls things of its own, beside its marks
# [m] The walls of what holds something begin so much above its underside: it stands on its floor alone.
# Walls that touched the table too were 48 of a scene's 56 contacts, and half the time of a physics step.
FOOT = 0.001


@dataclasses.dataclass(frozen=True)
class ObjectSpec:
    """One movable object.

    `size` [m]: a box's edge lengths (x, y, z); an open box's outer ones, its five plates `wall` thick; a
    bowl's and a mug's (radius, height, wall), and a plate's, whose rim leans outwards from that radius; a
    cylinder's (radius, height, 0); a sphere's (radius, 0, 0); a banana's (length, thickness, its arc's rise).
    An area is a thin box that is seen and not felt: a mark on the table.
    """

    shape: Literal["box", "open_box", "bowl", "plate", "mug", "cylinder", "sphere", "banana", "area"]
    size: Vector3
    mass: float  # [kg]
    color: Vector3 = (0.5, 0.5, 0.5)
    friction: float = 1.0
    rolling_friction: float = 0.001  # [m] of what rolls: sphere, cylinder, banana
    wall: float = 0.005  # [m] of an open box


def problems(key: str, name: str, thing: ObjectSpec) -> Iterator[str]:
    """What is wrong with an object's name and values, one sentence each; `key` is where the file has it."""
    if name in RESERVED or not name or "/" in name:
        yield f"{key}: expected a name without '/', and none of {', '.join(RESERVED)}, which a scene has"
    if not min(thing.mass, *thing.size[: SIZES.get(thing.shape, 3)], thing.wall) > 0:
        yield f"{key}: mass and sizes must be above 0"
    elif thing.shape in ("bowl", "plate", "mug", "open_box"):
        length, second, third = thing.size
        across, height, wall = length, second, third
        if thing.shape == "open_box":
            across, height, wall = min(length, second) / 2, third, thing.wall
        if not (wall + FOOT < height and wall < across):
            yield f"{key}: its walls of {wall:g} m leave no room in a height of {height:g} m"
    if min(thing.friction, thing.rolling_friction) < 0:
        yield f"{key}: frictions must be at least 0"
