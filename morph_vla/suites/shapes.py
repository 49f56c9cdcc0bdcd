"""What an object is made of: primitives every engine knows, in the object's own frame, and its inertia.

An object's origin is its centre where it is solid (box, cylinder, sphere, banana) and the middle of its
underside where it holds something (open box, bowl, plate, mug) or lies flat (area). Metres;
quaternions are (w, x, y, z).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import Quaternion, matrix_of, quaternion_of
from morph_vla.suites.criterion import Vector3
from morph_vla.suites.objects import FOOT, ObjectSpec

DISH_SIDES = 12
PLATE_LEAN = math.pi / 4  # [rad] of a plate's rim, outwards
HANDLE_REACH = 0.6  # of a mug's radius, from its wall outwards
BANANA_PIECES = 3
GAP = 0.0005  # [m] between an object and what it is put on, so that nothing overlaps

UPRIGHT: Quaternion = (1.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Part:
    """One primitive of an object.

    `size` [m]: a box's full edge lengths; (radius, height, 0) of a cylinder along z, and of a capsule along
    z, whose round ends add a radius each; (radius, 0, 0) of a sphere.
    """

    name: str  # "" where an object is a single primitive
    kind: Literal["box", "cylinder", "sphere", "capsule"]
    size: Vector3
    mass: float  # [kg]
    position: Vector3 = (0.0, 0.0, 0.0)
    quaternion: Quaternion = UPRIGHT


def parts(thing: ObjectSpec) -> tuple[Part, ...]:
    """The primitives of an object; their masses add up to the object's."""
    match thing.shape:
        case "box" | "cylinder" | "sphere":
            return (Part("", thing.shape, thing.size, thing.mass),)
        case "area":
            return (Part("", "box", thing.size, thing.mass, (0.0, 0.0, thing.size[2] / 2)),)
        case "open_box":
            return _open_box(thing)
        case "banana":
            return _banana(thing)
        case "mug":
            return _mug(thing)
        case "plate":
            return _dish(*thing.size, mass=thing.mass, lean=PLATE_LEAN)
        case "bowl":
            return _dish(*thing.size, mass=thing.mass)


def touches(thing: ObjectSpec) -> bool:
    """Whether an object is felt; one that is not stays where it is put, and other things lie on its place."""
    return thing.shape != "area"


def rolls(thing: ObjectSpec) -> bool:
    """Whether an object has rolling friction, without which it would roll on until it fell off the table."""
    return thing.shape in ("sphere", "cylinder", "banana")


def resting_height(thing: ObjectSpec) -> float:
    """Height of an object's origin above what it stands on [m]; a hair more, so that nothing overlaps."""
    match thing.shape:
        case "box":
            return thing.size[2] / 2 + GAP
        case "cylinder" | "banana":
            return thing.size[1] / 2 + GAP
        case "sphere":
            return thing.size[0] + GAP
        case _:
            return GAP


def _open_box(thing: ObjectSpec) -> tuple[Part, ...]:
    """A floor and four walls, five plates, each with the mass of its volume."""
    (length, width, height), wall = thing.size, thing.wall
    tall, middle_z = height - FOOT, (height + FOOT) / 2
    plates: dict[str, tuple[Vector3, Vector3]] = {  # name -> full size, middle
        "floor": ((length, width, wall), (0.0, 0.0, wall / 2)),
        "front": ((wall, width, tall), ((length - wall) / 2, 0.0, middle_z)),
        "back": ((wall, width, tall), (-(length - wall) / 2, 0.0, middle_z)),
        "left": ((length, wall, tall), (0.0, (width - wall) / 2, middle_z)),
        "right": ((length, wall, tall), (0.0, -(width - wall) / 2, middle_z)),
    }
    volume = sum(math.prod(size) for size, _ in plates.values())
    return tuple(
        Part(name, "box", size, thing.mass * math.prod(size) / volume, middle)
        for name, (size, middle) in plates.items()
    )


def _dish(radius: float, height: float, wall: float, *, mass: float, lean: float = 0.0) -> tuple[Part, ...]:
    """A round floor, as heavy as two walls, and a ring of walls that lean outwards by `lean` [rad]."""
    share = mass / (DISH_SIDES + 2)
    made = [Part("floor", "cylinder", (radius, wall, 0.0), 2 * share, (0.0, 0.0, wall / 2))]
    low = FOOT + wall / 2 * math.sin(lean)  # of the wall's middle line; its lower edge is at FOOT
    slant = (height - low) / math.cos(lean)  # the rim's height is what the suite says, however it leans
    middle_z = (low + height) / 2
    middle = radius + middle_z * math.tan(lean)
    half_width = middle * math.tan(math.pi / DISH_SIDES) + wall / 2
    for side in range(DISH_SIDES):
        angle = 2 * math.pi * side / DISH_SIDES
        turn, tip = (math.cos(angle / 2), math.sin(angle / 2)), (math.cos(lean / 2), math.sin(lean / 2))
        made.append(
            Part(
                f"wall{side}", "box", (wall, 2 * half_width, slant), share,
                (middle * math.cos(angle), middle * math.sin(angle), middle_z),
                (turn[0] * tip[0], -turn[1] * tip[1], turn[0] * tip[1], turn[1] * tip[0]),
            )
        )  # fmt: skip
    return tuple(made)


def _mug(thing: ObjectSpec) -> tuple[Part, ...]:
    """A dish with straight walls, and a handle of three bars along x, a twentieth of the mass."""
    radius, height, wall = thing.size
    reach, grip = HANDLE_REACH * radius, 2 * wall  # how far the handle stands out, how thick its bars are
    near, far = radius + wall / 2, radius + wall / 2 + reach
    low, high = 0.25 * height, 0.8 * height
    across: Vector3 = (reach, grip, grip)
    bars: dict[str, tuple[Vector3, Vector3]] = {
        "lower": (across, ((near + far) / 2, 0.0, low)),
        "upper": (across, ((near + far) / 2, 0.0, high)),
        "upright": ((grip, grip, high - low + grip), (far, 0.0, (low + high) / 2)),
    }
    handle = tuple(
        Part(f"handle/{name}", "box", size, thing.mass / 60, middle) for name, (size, middle) in bars.items()
    )
    return (*_dish(radius, height, wall, mass=thing.mass * 0.95), *handle)


def _banana(thing: ObjectSpec) -> tuple[Part, ...]:
    """Capsules along an arc in the table's plane; `size` is (length, thickness, rise of the arc).

    ```
        .-----.        y up, x to the right; the middle piece lies at the origin, along x
      .'       '.
    ```
    """
    length, thickness, rise = thing.size
    radius = thickness / 2
    straight = length - thickness  # between the centres of the two round ends, along the chord
    # The arc through the ends of the chord with the given rise; its pieces are chords of a third of it each.
    half_angle = 2 * math.atan2(rise, straight / 2)
    bow = straight / 2 / math.sin(half_angle) if rise else math.inf
    step = 2 * half_angle / BANANA_PIECES
    piece = 2 * bow * math.sin(step / 2) if rise else straight / BANANA_PIECES
    made = []
    for i, name in enumerate(("stem", "middle", "tip")):
        turn = (1 - i) * step  # of the piece's axis about z, 0 for the middle one
        sign = i - 1
        x = sign * (piece / 2 + piece / 2 * math.cos(step))
        y = -abs(sign) * piece / 2 * math.sin(step)
        # A capsule's own axis is z: a quarter turn about y brings it to x, then the turn about z.
        c, s, h = math.cos(turn / 2), math.sin(turn / 2), math.sqrt(0.5)
        made.append(
            Part(
                name, "capsule", (radius, piece, 0.0), thing.mass / BANANA_PIECES, (x, y, 0.0),
                (c * h, -s * h, c * h, s * h),
            )
        )  # fmt: skip
    return tuple(made)


def inertia(part: Part) -> Float[np.ndarray, "3"]:
    """Principal moments [kg m^2] of a solid primitive about its centre, in its own axes."""
    a, b, c = part.size
    if part.kind == "box":
        return part.mass / 12 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
    if part.kind == "sphere":
        return np.full(3, 0.4 * part.mass * a * a)
    if part.kind == "cylinder":
        across = part.mass * (3 * a * a + b * b) / 12
        return np.array([across, across, part.mass * a * a / 2])
    tube, ball = math.pi * a * a * b, 4 / 3 * math.pi * a**3  # volumes of a capsule's parts
    inner, outer = part.mass * tube / (tube + ball), part.mass * ball / (tube + ball)
    across = inner * (3 * a * a + b * b) / 12 + outer * (0.4 * a * a + b * b / 4 + 3 * a * b / 8)
    return np.array([across, across, inner * a * a / 2 + outer * 0.4 * a * a])


def composed(parts: Sequence[Part]) -> tuple[float, Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
    """Mass [kg], centre of mass [m] and inertia about it [kg m^2] of a rigid body, in the object's frame."""
    masses = np.array([part.mass for part in parts])
    centres = np.array([part.position for part in parts])
    mass = float(masses.sum())
    middle = masses @ centres / mass
    total = np.zeros((3, 3))
    for part, centre in zip(parts, centres, strict=True):
        turn, arm = matrix_of(part.quaternion), centre - middle
        total += turn @ np.diag(inertia(part)) @ turn.T
        total += part.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return mass, middle, total


def principal(matrix: Float[np.ndarray, "3 3"]) -> tuple[Float[np.ndarray, "3"], Quaternion]:
    """Principal moments [kg m^2] and the rotation (w, x, y, z) from their axes to the object's."""
    moments, axes = np.linalg.eigh(matrix)
    if np.linalg.det(axes) < 0:
        axes[:, 2] *= -1
    return moments, quaternion_of(axes)
