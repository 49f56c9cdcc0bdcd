"""A fixed camera, and what it sees in lengths of its distance.

Scenes that `morph-vla suites new` writes look alike through their cameras, whatever the arm: how high one
stands above the table, and how far beyond its middle, goes with the arm's length. In the camera's own frame,
and in its distance to what it looks at, an object lies at about the same numbers on all of their tables:

           camera
             o . . . y                 seen = axes^T (place - position) / distance
            /  .                       z points back at the viewer: what is seen has z < 0
    look at *    x (out of the page)
    --------------------- table        height = up . seen + up_z: 0 at what the camera looks at
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError
from morph_vla.robots.geometry import POSE, matrix_of, quaternion_of
from morph_vla.suites.suite import Camera

SEEN = 9
"""Values of an object as it is seen: its place, then the first two columns of its rotation"""
SAME = 0.02  # [rad] two cameras of one estimator may differ so much in height and field of view
LEVEL = 0.01  # and what they look at in its height above the table, in their distance


class Optics(NamedTuple):
    """What every picture of an estimator has in common."""

    size: int
    """Pixels of a side; pictures are square"""
    fovy: float
    """[deg] of the whole side"""
    rise: float
    """[rad] how far above the level the camera stands, from what it looks at"""

    @property
    def focal(self) -> float:
        """Of the lens, in pixels."""
        return self.size / 2 / math.tan(math.radians(self.fovy) / 2)

    @property
    def up(self) -> tuple[float, float, float]:
        """The vertical in the camera's frame."""
        return 0.0, math.cos(self.rise), math.sin(self.rise)

    def is_like(self, other: "Optics", within: float = SAME) -> bool:
        """Whether a camera stands as high and sees as much, `within` so much [rad]."""
        apart = self.rise - other.rise, math.radians(self.fovy - other.fovy)
        return max(map(abs, apart)) <= within

    def __str__(self) -> str:
        """How the camera stands, for people."""
        return f"{math.degrees(self.rise):.1f} degrees high and sees {self.fovy:.1f}"


@dataclass(frozen=True, eq=False)
class View:
    """A camera in the base frame."""

    position: Float[np.ndarray, "3"]
    look_at: Float[np.ndarray, "3"]
    fovy: float

    @cached_property
    def distance(self) -> float:
        """[m] from the camera to what it looks at: the unit of all that is seen."""
        return float(np.linalg.norm(self.position - self.look_at))

    @cached_property
    def axes(self) -> Float[np.ndarray, "3 3"]:
        """Its x (right), y (up) and z (back) as columns; x is level."""
        back = (self.position - self.look_at) / self.distance
        right = np.cross([0.0, 0.0, 1.0], back)
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(back, right), back], axis=1)

    def optics(self, size: int) -> Optics:
        """What pictures of so many pixels a side have in common with those of other cameras."""
        return Optics(size, self.fovy, math.asin(self.axes[2, 2]))

    def above(self, table: float) -> float:
        """How high what it looks at lies above a table of this height [m], in its distance."""
        return (float(self.look_at[2]) - table) / self.distance

    def seen(self, places: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 3"]:
        """Places of the base frame [m], as the camera has them."""
        return (places - self.position) @ self.axes / self.distance

    def places(self, seen: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 3"]:
        """The inverse of `seen` [m]."""
        return self.distance * seen @ self.axes.T + self.position

    def objects_seen(self, poses: Float[np.ndarray, "o 7"]) -> Float[np.ndarray, "o 9"]:
        """Poses of objects (`geometry.POSE`) as SEEN values, float32."""
        turns = [self.axes.T @ matrix_of(_four(pose[3:])) for pose in poses]
        columns = np.stack([turn[:, :2].T.reshape(-1) for turn in turns])
        return np.concatenate([self.seen(poses[:, :3]), columns], axis=1).astype(np.float32)

    def poses(self, objects: Float[np.ndarray, "o 9"]) -> Float[np.ndarray, "o 7"]:
        """The inverse of `objects_seen`: the nearest rotation to columns that are none, float32."""
        seen = np.asarray(objects, np.float64)
        rows = []
        for place, columns in zip(self.places(seen[:, :3]), seen[:, 3:].reshape(-1, 2, 3), strict=True):
            rows.append([*place, *quaternion_of(self.axes @ _rotation(*columns))])
        return np.asarray(rows, np.float32).reshape(-1, len(POSE))


def view_of(camera: Camera, name: str = "exterior") -> View:
    """The camera of a suite. Raises MorphVlaError for one that moves, or looks straight down."""
    if camera.link is not None:
        raise MorphVlaError(
            f"camera '{name}' moves with '{camera.link}': poses are estimated from a fixed one"
        )
    view = View(np.asarray(camera.position, float), np.asarray(camera.look_at, float), camera.fovy)
    if np.hypot(*(view.position - view.look_at)[:2]) < 1e-3 * view.distance or view.distance == 0:
        raise MorphVlaError(f"camera '{name}' looks straight down: an estimator's looks from the side")
    return view


def _rotation(first: Float[np.ndarray, "3"], second: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """Gram-Schmidt: the rotation whose first column points as `first` does, the second towards `second`."""
    x = first / max(float(np.linalg.norm(first)), 1e-9)
    y = second - (x @ second) * x
    length = float(np.linalg.norm(y))
    if length < 1e-6:  # nothing says how it is turned about x
        y = np.cross(x, np.eye(3)[int(np.argmin(np.abs(x)))])
        length = float(np.linalg.norm(y))
    y = y / max(length, 1e-9)
    return np.stack([x, y, np.cross(x, y)], axis=1)


def _four(values: np.ndarray) -> tuple[float, float, float, float]:
    w, x, y, z = (float(value) for value in values)
    return w, x, y, z
