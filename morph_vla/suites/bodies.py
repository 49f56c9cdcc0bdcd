"""Mass, centre of mass and inertia of an object made of primitives, for engines that ask for them."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import Quaternion, matrix_of, quaternion_of
from morph_vla.suites.shapes import Part


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


def composed(
    parts: Sequence[Part],
) -> tuple[float, Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
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
