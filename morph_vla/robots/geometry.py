"""Rotations and poses: the only place that says which way round they go.

A rotation R maps coordinates in the turned frame to those in the fixed one, right-handed. Quaternions
are (w, x, y, z), of length one; q and -q are one rotation.
"""

import math

import numpy as np
from jaxtyping import Float

from morph_vla.robots.records import Pose, Vector

Rotation = Float[np.ndarray, "3 3"]
Transform = Float[np.ndarray, "4 4"]
Quaternion = tuple[float, float, float, float]
POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
"""What the values of an object's pose are called: a position [m], then a quaternion with w >= 0"""


def cross(axis: Vector) -> Float[np.ndarray, "3 3"]:
    """[a]x, the matrix with [a]x b = a x b."""
    x, y, z = axis
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def rotation(axis: Vector, angle_rad: float) -> Rotation:
    """The rotation about a unit `axis`: R = I + sin(q) K + (1 - cos(q)) K K (Rodrigues)."""
    k = cross(axis)
    return np.eye(3) + math.sin(angle_rad) * k + (1.0 - math.cos(angle_rad)) * k @ k


def rotated(
    points: Float[np.ndarray, "n 3"], axis: Vector, angles_rad: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n 3"]:
    """Each point turned by its own angle about a unit `axis` through the origin."""
    direction = np.array(axis)
    across = np.cross(np.broadcast_to(direction, points.shape), points)
    along = (points @ direction)[:, None] * direction
    cos, sin = np.cos(angles_rad)[:, None], np.sin(angles_rad)[:, None]
    return points * cos + across * sin + along * (1 - cos)


def transform(pose: Pose) -> Transform:
    """The matrix of an `<origin>`: R_z(yaw) R_y(pitch) R_x(roll), then the shift [m]."""
    roll_rad, pitch_rad, yaw_rad = pose.rpy
    matrix = np.eye(4)
    turn = rotation((0.0, 0.0, 1.0), yaw_rad) @ rotation((0.0, 1.0, 0.0), pitch_rad)
    matrix[:3, :3] = turn @ rotation((1.0, 0.0, 0.0), roll_rad)
    matrix[:3, 3] = pose.xyz
    return matrix


def pose(matrix: Transform) -> Pose:
    """The `<origin>` of a matrix, the inverse of `transform`, to rounding at every pitch.

    Where the pitch is near 90 degrees yaw and roll turn about one axis and yaw alone is ill defined; roll and
    pitch are therefore read from what remains once the yaw taken is undone.
    """
    turn = matrix[:3, :3]
    yaw_rad = math.atan2(turn[1, 0], turn[0, 0])
    rest = rotation((0.0, 0.0, 1.0), -yaw_rad) @ turn
    roll_rad, pitch_rad = math.atan2(-rest[1, 2], rest[1, 1]), math.atan2(-rest[2, 0], rest[0, 0])
    x, y, z = (float(value) for value in matrix[:3, 3])
    return Pose((x, y, z), (roll_rad, pitch_rad, yaw_rad))


def vectors_turned_about_z(
    vectors: Float[np.ndarray, "*b 3"], angle_rad: Float[np.ndarray, "*#b"] | float
) -> Float[np.ndarray, "*b 3"]:
    """Vectors after a turn about the vertical."""
    cos, sin = np.cos(angle_rad), np.sin(angle_rad)
    x, y, z = np.moveaxis(vectors, -1, 0)
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=-1)


def turned_about_z(
    quaternions: Float[np.ndarray, "*b 4"], angle_rad: Float[np.ndarray, "*#b"] | float
) -> Float[np.ndarray, "*b 4"]:
    """Orientations (w, x, y, z) after a turn about the vertical, with w >= 0."""
    cos, sin = np.cos(angle_rad / 2), np.sin(angle_rad / 2)
    w, x, y, z = np.moveaxis(quaternions.astype(np.float64), -1, 0)
    turned = np.stack([cos * w - sin * z, cos * x - sin * y, cos * y + sin * x, cos * z + sin * w], axis=-1)
    return np.where(turned[..., :1] < 0, -turned, turned)


def matrix_of(quaternion: Quaternion) -> Rotation:
    """The rotation matrix of a unit quaternion: I + 2 w [v]x + 2 [v]x [v]x."""
    w, x, y, z = quaternion
    k = cross((x, y, z))
    return np.eye(3) + 2 * w * k + 2 * k @ k


def quaternion_of(matrix: Rotation) -> Quaternion:
    """The unit quaternion, w >= 0, of a rotation matrix: Bar-Itzhack's (2000) eigenvector."""
    m = matrix
    k = np.array(
        [
            [m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]],
            [0.0, m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]],
            [0.0, 0.0, m[1, 1] - m[0, 0] - m[2, 2], m[1, 2] + m[2, 1]],
            [0.0, 0.0, 0.0, m[2, 2] - m[0, 0] - m[1, 1]],
        ]
    )
    vector = np.linalg.eigh(k, UPLO="U")[1][:, -1]
    w, x, y, z = (float(v) for v in (vector if vector[0] >= 0 else -vector))
    return w, x, y, z


def quaternion_about(turn: Vector) -> Quaternion:
    """The quaternion of a rotation vector: its direction is the axis, its length the angle [rad]."""
    angle_rad = math.sqrt(sum(value * value for value in turn))
    if angle_rad == 0.0:
        return 1.0, 0.0, 0.0, 0.0
    x, y, z = (value / angle_rad * math.sin(angle_rad / 2) for value in turn)
    return math.cos(angle_rad / 2), x, y, z


def product(a: Quaternion, b: Quaternion) -> Quaternion:
    """The quaternion of turning by b and then by a."""
    (aw, ax, ay, az), (bw, bx, by, bz) = a, b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )
