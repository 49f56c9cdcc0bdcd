"""Arrays of NumPy that JAX takes over on a CPU without copying them."""

import math
from collections.abc import Sequence

import numpy as np

ALIGNMENT = 64
"""Bytes: JAX copies an array that begins elsewhere; NumPy's own large arrays begin 16 after a multiple"""


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array of that shape, to be filled, which begins where JAX wants it."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def aligned_copy(values: np.ndarray) -> np.ndarray:
    """The same values in memory of their own."""
    copied = aligned(values.shape, values.dtype)
    copied[...] = values
    return copied
