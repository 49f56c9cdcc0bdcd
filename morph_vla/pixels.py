"""How a frame is brought to the size a model takes, without JAX: worker processes that decode use it too."""

import numpy as np
from jaxtyping import UInt8


def fitted(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width of an image scaled to fit a square of `size` pixels, rounded down as openpi does."""
    ratio = max(width / size, height / size)
    return int(height / ratio), int(width / ratio)


def resize_with_pad(image: UInt8[np.ndarray, "h w 3"], size: int) -> UInt8[np.ndarray, "size size 3"]:
    """Scale a frame to fit a square of `size` pixels, keep the aspect ratio, centre it on black.

    What openpi's data pipeline and its client do to a frame (`openpi_client/image_tools.py`, through pillow);
    `pi05.observation.fit` is what its model does to a batch. Both antialias; they differ by one level in 255
    at most.
    """
    height, width = image.shape[:2]
    if height == width == size:
        return image
    from PIL import Image

    new = fitted(height, width, size)
    resized = np.asarray(Image.fromarray(image).resize((new[1], new[0]), Image.Resampling.BILINEAR))
    out = np.zeros((size, size, 3), np.uint8)
    top, left = (size - new[0]) // 2, (size - new[1]) // 2
    out[top : top + new[0], left : left + new[1]] = resized
    return out
