"""Primitive shapes as polygons, for drawing a robot without a renderer."""

from itertools import pairwise

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import transform
from morph_vla.robots.records import Geometry, Shape

_AROUND = 24  # sides of a cylinder; enough for a picture a few hundred pixels high


def polygons(shape: Shape) -> list[Float[np.ndarray, "p 3"]]:
    """The faces of a shape in its link's frame [m], anticlockwise from outside; none for a mesh."""
    pose = transform(shape.origin)
    return [face @ pose[:3, :3].T + pose[:3, 3] for face in _faces(shape.geometry)]


def _faces(geometry: Geometry) -> list[Float[np.ndarray, "p 3"]]:
    match geometry.kind:
        case "box":
            return _box(np.array(geometry.size) / 2)
        case "cylinder":
            radius, length = geometry.size
            return _turned(np.array([[0, -0.5], [1, -0.5], [1, 0.5], [0, 0.5]]) * [radius, length])
        case "sphere" | "capsule":
            radius, length = (*geometry.size, 0.0)[:2]
            angles = np.linspace(-np.pi / 2, np.pi / 2, 12)
            profile = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            profile[:, 1] += np.where(angles < 0, -0.5, 0.5) * length
            return _turned(profile)
    return []


def _box(half: Float[np.ndarray, "3"]) -> list[Float[np.ndarray, "p 3"]]:
    faces = []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=np.float64)
            face = np.insert(square, axis, sign, axis=1) * half
            # The normal of a square inserted at y points to -y; the others to plus their axis.
            faces.append(face if (sign > 0) == (axis != 1) else face[::-1])
    return faces


def _turned(profile: Float[np.ndarray, "p 2"]) -> list[Float[np.ndarray, "q 3"]]:
    """The faces of a body of revolution about z from its outline (radius, height), bottom to top."""
    angles = np.linspace(0, 2 * np.pi, _AROUND + 1)
    rim = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    faces = []
    for (r0, z0), (r1, z1) in pairwise(profile):
        if r0 < 1e-9 or r1 < 1e-9:
            radius, height = max(r0, r1), z1 if r0 < r1 else z0
            tip = z0 if r0 < r1 else z1
            if abs(tip - height) < 1e-9:  # a flat lid, one polygon
                disc = np.column_stack([radius * rim[:-1], np.full(_AROUND, height)])
                faces.append(disc[::-1] if r0 < r1 else disc)
                continue
        for here, there in pairwise(rim):
            corners = [[*(r0 * here), z0], [*(r0 * there), z0], [*(r1 * there), z1], [*(r1 * here), z1]]
            faces.append(np.array(corners))
    return faces
