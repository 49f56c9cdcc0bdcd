"""The embedded engine's lights, for frames of a renderer that has none like them.

Newton's renderer has one light of fixed strength, and a policy that was trained in other light is blind in
it. But it gives the colour c (as screens have it) and the normal n of what a pixel sees, and from these a
frame is shaded as MuJoCo's is. With the directions k and f of the key light and the camera, and h halfway
between the ways to a light and to the eye, a pixel is

    c * (AMBIENT + KEY max(0, -n.k) + HEAD max(0, -n.f))
      + GLOSS * (KEY_SHINE (n.h_k)^SHARP + HEAD_SHINE (n.h_f)^SHARP)

and black where nothing is seen. Nothing casts a shadow; the embedded engine has none either.
"""

import functools

import numpy as np
from jaxtyping import Float, UInt8

DIRECTION = (0.1, 0.5, -1.0)  # that the key light shines in
AMBIENT, KEY, HEAD = 0.45, 0.6, 0.4  # of the key light and the headlight together; the rest of each alone
KEY_SHINE, HEAD_SHINE, GLOSS, SHARP = 0.3, 0.5, 0.5, 64  # of the two lights, and of every surface
ABOUT = f"mujoco's: ambient {AMBIENT}, key {KEY} along {DIRECTION}, headlight {HEAD}"
ABOUT_OTHERS = f"a dome, and a distant light along {DIRECTION}; not compared with mujoco's"


def shaded(
    colors: UInt8[np.ndarray, "h w 3"],
    normals: Float[np.ndarray, "h w 3"],
    axes: Float[np.ndarray, "3 3"],
    fovy: float,
) -> UInt8[np.ndarray, "h w 3"]:
    """A frame in these lights.

    `normals` are of length 1, or 0 where nothing is seen. `axes` are the camera's (columns), in the normals'
    frame: it looks along -z, with y up. `fovy` is its vertical field of view [degrees].
    """
    axes, normals = axes.astype(np.float32), normals.astype(np.float32)
    to_eye = -rays(colors.shape[0], colors.shape[1], fovy) @ axes.T
    to_key = np.asarray(DIRECTION, np.float32) / -np.linalg.norm(DIRECTION).astype(np.float32)
    light, shine = np.full(colors.shape[:2], AMBIENT, np.float32), np.zeros(colors.shape[:2], np.float32)
    for to_light, strength, glint in ((to_key, KEY, KEY_SHINE), (axes[:, 2], HEAD, HEAD_SHINE)):
        facing = np.maximum(normals @ to_light, 0.0)
        halfway = to_eye + to_light
        along = np.einsum("hwc,hwc->hw", normals, halfway)
        length2 = np.maximum(np.einsum("hwc,hwc->hw", halfway, halfway), 1e-9)
        mirrored = np.square(np.maximum(along, 0.0)) / length2
        light += strength * facing
        shine += np.where(facing > 0, GLOSS * glint, 0.0) * _power(mirrored, SHARP // 2)
    met = np.any(normals, axis=2, keepdims=True)
    frame = (colors * light[..., None] + 255 * shine[..., None]) * met
    return np.clip(np.rint(frame), 0, 255).astype(np.uint8)


def _power(values: Float[np.ndarray, "h w"], exponent: int) -> Float[np.ndarray, "h w"]:
    """`values ** exponent` for a power of two, without logarithms."""
    for _ in range(exponent.bit_length() - 1):
        values = values * values
    return values


@functools.cache
def rays(height: int, width: int, fovy: float) -> Float[np.ndarray, "h w 3"]:
    """Where every pixel looks, in the camera's axes; of length 1."""
    half = np.tan(np.deg2rad(fovy) / 2)
    rows = (1 - 2 * (np.arange(height) + 0.5) / height) * half
    columns = (2 * (np.arange(width) + 0.5) / width - 1) * half * width / height
    x, y = np.meshgrid(columns, rows)
    directions = np.stack([x, y, -np.ones_like(x)], axis=2)
    return (directions / np.linalg.norm(directions, axis=2, keepdims=True)).astype(np.float32)
