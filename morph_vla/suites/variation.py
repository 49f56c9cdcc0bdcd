"""What may differ between the episodes of a suite besides where things lie: light, cameras, colours, more.

All of it is off by default, and is drawn per episode into the table of initial states, from a generator of
its own: objects and arm begin where they begin without it, and a suite with everything off has the table, the
states and the pixels of a suite that never heard of it.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float

MARKS = 100  # the most that a table may have


@dataclasses.dataclass(frozen=True)
class Variation:
    """How much differs; 0 is nothing.

    `distractors`: so many of the suite's, the first ones, lie on the table, drawn in their `placement` clear
    of everything else by `min_distance`. `light`: a share s; brightness is drawn in 1 - s .. 1 + s, red,
    green and blue on top of it in 1 - s/2 .. 1 + s/2, and the light's direction is turned by up to s [rad]
    about x and about y.
    `camera_position`: [m] by which a camera is moved along each axis of the frame it stands in, at most;
    `camera_angle`: [rad] by which it is turned about each of its own axes, at most.
    `colors`: a share s; table, floor, robot and each object are painted 1 - s of their own colour and s of
    one that is drawn. `marks`: so many flat rectangles of any colour lie painted on the table.
    """

    distractors: int = 0
    light: float = 0.0
    camera_position: float = 0.0
    camera_angle: float = 0.0
    colors: float = 0.0
    marks: int = 0

    def problems(self, distractors: Sequence[str]) -> Iterator[str]:
        """What is wrong with it in a suite that has these distractors, one sentence each."""
        for key, value in vars(self).items():
            if value < 0:
                yield f"variation.{key}: must be at least 0, not {value}"
        if self.distractors > len(distractors):
            listed = f"{len(distractors)} ({', '.join(distractors)})" if distractors else "none"
            yield f"variation.distractors: {self.distractors} asked for, the suite has {listed}"
        if self.light >= 1:
            yield f"variation.light: must be below 1, where a light may go out, not {self.light:g}"
        if self.colors > 1:
            yield f"variation.colors: a share of each colour, at most 1, not {self.colors:g}"
        if self.marks > MARKS:
            yield f"variation.marks: at most {MARKS}, not {self.marks}"


@dataclasses.dataclass(frozen=True)
class Light:
    """An episode's light: factors on red, green and blue; turns of its direction about x, then y [rad]."""

    color: tuple[float, float, float]
    turn: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class CameraShift:
    """An episode's camera: moved [m] in the frame it stands in; a rotation vector [rad] in its own axes."""

    move: tuple[float, float, float]
    turn: tuple[float, float, float]


Color = tuple[float, float, float]
"""Red, green and blue, 0 to 1"""
APART = 0.3  # an object's drawn colour differs from the table's by so much in red, green or blue
LARGE, SMALL = 0.6, 0.06  # sides of a mark, in the larger side of the field in which things lie


@dataclasses.dataclass(frozen=True)
class Paint:
    """An episode's colours, and how much of each thing's colour they are."""

    share: float
    table: Color
    floor: Color
    robot: Color
    objects: dict[str, Color]


@dataclasses.dataclass(frozen=True)
class Mark:
    """A rectangle painted on the table: its middle (x, y) [m], turn about z [rad], two sides [m]."""

    place: tuple[float, float]
    yaw: float
    sides: tuple[float, float]
    color: Color


def draw_light(rng: np.random.Generator, share: float) -> Light | None:
    """An episode's light; None where it does not differ, though the same numbers are drawn."""
    brightness, *colors = 1 + rng.uniform(-1, 1, 4) * share * np.array([1.0, 0.5, 0.5, 0.5])
    turn = rng.uniform(-1, 1, 2) * share
    if not share:
        return None
    red, green, blue = (float(brightness * color) for color in colors)
    return Light((red, green, blue), (float(turn[0]), float(turn[1])))


def draw_cameras(
    rng: np.random.Generator, variation: Variation, names: Iterable[str]
) -> dict[str, CameraShift]:
    """An episode's cameras by name, in the suite's order; none where they do not differ."""
    shifts = {}
    for name in names:
        move = rng.uniform(-1, 1, 3) * variation.camera_position
        turn = rng.uniform(-1, 1, 3) * variation.camera_angle
        shifts[name] = CameraShift(_three(move), _three(turn))
    return shifts if variation.camera_position or variation.camera_angle else {}


def draw_paint(rng: np.random.Generator, share: float, names: Iterable[str]) -> Paint | None:
    """An episode's colours; None where they do not differ. An object's is drawn until the table's differs."""
    if not share:
        return None
    table, floor, robot = (_three(rng.uniform(0, 1, 3)) for _ in range(3))
    objects = {}
    for name in names:
        color = rng.uniform(0, 1, 3)
        while np.abs(color - table).max() < APART:
            color = rng.uniform(0, 1, 3)
        objects[name] = _three(color)
    return Paint(share, table, floor, robot, objects)


def draw_marks(
    rng: np.random.Generator, count: int, field: tuple[tuple[float, float], tuple[float, float]]
) -> tuple[Mark, ...]:
    """An episode's marks, where things lie (`field`: ranges of x and y [m]) and half of it beyond."""
    low, high = np.transpose(field)
    middle, half = (low + high) / 2, high - low
    longest = float(max(high - low))
    marks = []
    for _ in range(count):
        x, y = (float(value) for value in middle + half * rng.uniform(-1, 1, 2))
        a, b = (float(value) for value in longest * rng.uniform(SMALL, LARGE, 2))
        marks.append(
            Mark((x, y), float(rng.uniform(-math.pi, math.pi)), (a, b), _three(rng.uniform(0, 1, 3)))
        )
    return tuple(marks)


def _three(values: Float[np.ndarray, "3"]) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z


def turned(direction: tuple[float, float, float], turn: tuple[float, float]) -> tuple[float, float, float]:
    """A direction turned about x by turn[0] and then about y by turn[1] [rad].

         | 1  0    0   |         |  cos b  0  sin b |
    Rx = | 0 cos a -sin a |   Ry = |  0      1  0     |    Ry Rx direction
         | 0 sin a  cos a |        | -sin b  0  cos b |
    """
    (x, y, z), (a, b) = direction, turn
    y, z = y * math.cos(a) - z * math.sin(a), y * math.sin(a) + z * math.cos(a)
    return x * math.cos(b) + z * math.sin(b), y, -x * math.sin(b) + z * math.cos(b)
