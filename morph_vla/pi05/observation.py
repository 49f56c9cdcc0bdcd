"""What the model sees, and how raw frames become it (openpi: `models/model.py`, `shared/image_tools.py`)."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from morph_vla.errors import MorphVlaError
from morph_vla.morphology.arrays import Body
from morph_vla.pixels import fitted
from morph_vla.pixels import resize_with_pad as resize_with_pad


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Observation:
    """A batch of observations.

    `images` holds the cameras that exist, by openpi's names, in [-1, 1] or uint8; a camera that is in no row
    is left out and costs nothing. `tokens` are prompt and state (pi0.5 reads the state as text).
    """

    images: Mapping[str, Float[Array | np.ndarray, "b h w 3"] | UInt8[Array | np.ndarray, "b h w 3"]]
    image_masks: Mapping[str, Bool[Array | np.ndarray, "b"]]
    tokens: Int[Array | np.ndarray, "b t"]
    token_mask: Bool[Array | np.ndarray, "b t"]
    body: Body | None = None
    state: Float[Array | np.ndarray, "b a"] | Float[Array | np.ndarray, "b w a"] | None = None
    """Of models that read numbers: normalised joint values, as many as an action has.

    Of families that look back: a window of w rows, the present one last."""
    environment: Float[Array | np.ndarray, "b g"] | Float[Array | np.ndarray, "b w g"] | None = None
    """And what is no joint's, in as many rows: normalised poses of objects; of families without text, numbers
    for it too"""
    window_mask: Bool[Array | np.ndarray, "b w"] | None = None
    """Which rows of a window are of the episode; those before its start repeat its first row"""


def to_unit(images: UInt8[Array, "*b h w 3"] | Float[Array, "*b h w 3"]) -> Float[Array, "*b h w 3"]:
    """uint8 pixels to [-1, 1]; floats are taken as they are. Raises MorphVlaError for other types."""
    if images.dtype == jnp.uint8:
        return images.astype(jnp.float32) / 255.0 * 2.0 - 1.0
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise MorphVlaError(f"images of type {images.dtype}; expected uint8, or floats in [-1, 1]")
    return images


def fit(
    images: UInt8[Array, "b h w 3"] | Float[Array, "b h w 3"], size: int
) -> UInt8[Array, "b size size 3"] | Float[Array, "b size size 3"]:
    """Scale a batch to fit a square of `size` pixels, antialiased, centred on black.

    As openpi's model does (`shared/image_tools.py`). Black is 0 in uint8 and -1 in floats; those must lie in
    [-1, 1].
    """
    batch, height, width, _ = images.shape
    if height == width == size:
        return images
    new = fitted(height, width, size)
    is_pixels = images.dtype == jnp.uint8
    resized = jax.image.resize(images.astype(jnp.float32), (batch, *new, 3), "linear")
    low, high = (0.0, 255.0) if is_pixels else (-1.0, 1.0)
    resized = jnp.clip(jnp.round(resized) if is_pixels else resized, low, high).astype(images.dtype)
    sides = [((size - n) // 2, size - n - (size - n) // 2) for n in new]
    return jnp.pad(resized, ((0, 0), *sides, (0, 0)), constant_values=0 if is_pixels else -1.0)


def random_shift(
    key: Array, images: Float[Array, "b h w 3"], pixels: int, brightness: float
) -> Float[Array, "b h w 3"]:
    """Augmentation of small models: shift each image by up to `pixels` (edges repeat) and scale its contrast.

    Small shifts stand for small errors of the camera's pose; they do not move the target of an action by
    more than the camera could be wrong.
    """
    batch, height, width, _ = images.shape
    shift_key, light_key = jax.random.split(key)
    offsets = jax.random.randint(shift_key, (batch, 2), 0, 2 * pixels + 1)
    padded = jnp.pad(images, ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0)), mode="edge")

    def crop(image: Array, offset: Array) -> Array:
        return jax.lax.dynamic_slice(image, (offset[0], offset[1], 0), (height, width, 3))

    light = 1.0 + brightness * jax.random.uniform(light_key, (batch, 1, 1, 1), minval=-1.0, maxval=1.0)
    return jnp.clip((jax.vmap(crop)(padded, offsets) + 1.0) * light - 1.0, -1.0, 1.0)
