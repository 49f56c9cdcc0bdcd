"""Training augmentation as openpi's: crop, rotation, colours (`preprocess_observation`, by augmax 0.4.1).

Non-wrist cameras are cropped to 95% at a random place, scaled back and turned by up to 5 degrees, in one
bilinear resampling whose outside is black. Half of all images get other colours. Random numbers are drawn
from the key as augmax draws them, so the same key gives openpi's own pictures.

openpi asks for `ColorJitter(brightness=0.3, contrast=0.4, saturation=0.5)`. What augmax makes of that, and so
what pi0.5 was trained with, is: brightness, contrast and its default hue of 0.1, in half of the images;
saturation is computed and thrown away. We do the same.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, Bool, Float

CROP = 0.95
ANGLE = math.radians(5)
BRIGHTNESS, CONTRAST, HUE = 0.3, 0.4, 0.1
JITTERED = 0.5  # share of images whose colours change


class Jitter(NamedTuple):
    """How one image's colours change."""

    brightness: Float[Array, ""]
    contrast: Float[Array, ""]
    hue: Float[Array, ""]
    applied: Bool[Array, ""]


def crop_and_rotate(
    image: Float[Array, "h w 3"], shift: Float[Array, "2"], angle: Float[Array, ""]
) -> Float[Array, "h w 3"]:
    """The part of `image` that lies `shift` (rows, columns) [px] off its middle, turned by `angle` [rad].

    A pixel p of the answer, from the middle, shows s R(angle) p + shift with s the share cropped; black (0)
    where that is outside.
    """
    height, width, _ = image.shape
    size = (height, width)
    middle = jnp.asarray([height / 2 - 0.5, width / 2 - 0.5], jnp.float32)[:, None, None]
    pixel = jnp.stack(jnp.meshgrid(*(jnp.arange(n, dtype=jnp.float32) for n in size), indexing="ij"))
    row, column = pixel - middle
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    scale = [int(n * CROP) / n for n in size]
    turned = jnp.stack([scale[0] * (cos * row + sin * column), scale[1] * (cos * column - sin * row)])
    place = list(turned + shift[:, None, None] + middle)
    return jax.vmap(lambda x: map_coordinates(x, place, order=1), in_axes=-1, out_axes=-1)(image)


def brighten(value: Float[Array, "h w"], amount: Float[Array, ""]) -> Float[Array, "h w"]:
    """Towards black for a negative `amount`, towards white for a positive one."""
    return jnp.where(amount < 0, value * (1 + amount), value * (1 - amount) + amount)


def contrast(value: Float[Array, "h w"], amount: Float[Array, ""]) -> Float[Array, "h w"]:
    """Steeper (or flatter) about 1/2 by tan(pi/4 (1 + amount)), and its inverse near 0 and 1."""
    slope = jnp.tan((amount + 1) * (jnp.pi / 4))
    flat = slope / (2 * (1 + slope))  # where the lines meet: (s - s^2) / 2 (1 - s^2), and 1/4 at s = 1
    middle = slope * (value - 0.5) + 0.5
    return jnp.where(
        value < flat, value / slope, jnp.where(value > 1 - flat, (value - 1) / slope + 1, middle)
    )


def to_hsv(
    image: Float[Array, "h w 3"],
) -> tuple[Float[Array, "h w"], Float[Array, "h w"], Float[Array, "h w"]]:
    """Hue (turns, in [-1/6, 5/6]), saturation and value of colours in [0, 1]."""
    value = image.max(axis=-1)
    spread = value - image.min(axis=-1)
    first = image.argmax(axis=-1)

    def channel(further: int) -> Float[Array, "h w"]:
        return jnp.take_along_axis(image, ((first + further) % 3)[..., None], axis=-1)[..., 0]

    turned = (channel(1) - channel(2)) / jnp.where(spread == 0, 1, spread)
    hue = jnp.where(spread == 0, 0, (2 * first.astype(jnp.float32) + turned) / 6)
    return hue, jnp.where(value == 0, 0, spread / jnp.where(value == 0, 1, value)), value


def from_hsv(
    hue: Float[Array, "h w"], saturation: Float[Array, "h w"], value: Float[Array, "h w"]
) -> Float[Array, "h w 3"]:
    """The colours of `to_hsv`; hue may be any number of turns."""
    k = jnp.mod(jnp.asarray([5, 3, 1], jnp.float32) + hue[..., None] * 6, 6)
    return value[..., None] * (1 - saturation[..., None] * jnp.clip(jnp.minimum(k, 4 - k), 0, 1))


def jitter(image: Float[Array, "h w 3"], by: Jitter) -> Float[Array, "h w 3"]:
    """Other colours: brightness and contrast of the value, hue turned."""
    hue, saturation, value = to_hsv(image)
    value = contrast(brighten(value, by.brightness), by.contrast)
    return jnp.where(by.applied, from_hsv(hue + by.hue, saturation, value), image)


def draw_jitter(key: Array) -> Jitter:
    """Amounts within the bounds above."""
    keys = jax.random.split(key, 5)
    bounds = (BRIGHTNESS, CONTRAST, HUE)
    amounts = [jax.random.uniform(keys[i], minval=-bound, maxval=bound) for i, bound in enumerate(bounds)]
    return Jitter(amounts[0], amounts[1], amounts[2], jax.random.bernoulli(key, JITTERED))


def draw_place(key: Array, height: int, width: int) -> tuple[Float[Array, "2"], Float[Array, ""]]:
    """Where the crop lies (rows, columns from the middle [px]) and its angle [rad]."""
    crop_key, _, angle_key = jax.random.split(key, 3)
    bound = jnp.asarray([(n - int(n * CROP)) / 2 for n in (height, width)], jnp.float32)
    shift = jax.random.uniform(crop_key, (2,), minval=-bound, maxval=bound)
    return shift, jax.random.uniform(angle_key, minval=-ANGLE, maxval=ANGLE)


def augment(key: Array, images: Float[Array, "b h w 3"], camera: str) -> Float[Array, "b h w 3"]:
    """Images in [-1, 1] of one camera, each changed in its own way; a wrist camera's keep their place.

    openpi gives every camera the same key: what is drawn for the wrist cameras is the same for both.
    """
    wrist = "wrist" in camera

    def one(key: Array, image: Float[Array, "h w 3"]) -> Float[Array, "h w 3"]:
        keys = jax.random.split(key, 1 if wrist else 2)
        if not wrist:
            image = crop_and_rotate(image, *draw_place(keys[0], *image.shape[:2]))
        return jitter(image, draw_jitter(jax.random.split(keys[-1], 1)[0]))

    return jax.vmap(one)(jax.random.split(key, images.shape[0]), images / 2 + 0.5) * 2 - 1
