"""Matrix products of numbers rounded to 8 bits (e4m3: four bits of exponent, three of mantissa).

`model.prefix_float8` asks for them in the vision encoder and the language model, nearly all of a step where
the action expert alone learns. A product that runs so is twice as quick by the data sheet of an H100; it is
not exact: three bits of mantissa are off by up to 1/16, so that a product of random numbers is off by 3.6% of
its size. Elsewhere than on a GPU that multiplies 8-bit numbers it only costs time.

Each row of the left and each column of the right is scaled by its own largest number, so that none is rounded
by how large its neighbours are. Micikevicius et al., "FP8 Formats for Deep Learning" (2022), has the format.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

TYPE = jnp.float8_e4m3fn
LARGEST = 448.0  # that the type can say
SMALLEST = 1e-30  # a row of smaller numbers is zeros: what it would be multiplied by is none of float32's


class Rounded(NamedTuple):
    """Numbers in 8 bits, and what to multiply them by."""

    values: Float[Array, "*n"]
    scale: Float[Array, "*m"]
    """float32, with 1 along the axis whose numbers share theirs"""


def rounded(x: Float[Array, "*n"], axis: int) -> Rounded:
    """`x` in 8 bits and what to multiply it by, one number for all along `axis`.

    Drawn for axis 1: what a row is multiplied by is its largest number over 448.

        1.0  -2.0      224  -448      2 / 448
        0.3   0.1  ->  448   144  x  .3 / 448
        0.0   0.0        0     0            1
    """
    most = jnp.max(jnp.abs(x.astype(jnp.float32)), axis=axis, keepdims=True)
    scale = jnp.where(most < SMALLEST, 1.0, most / LARGEST)
    return Rounded((x.astype(jnp.float32) / scale).astype(TYPE), scale)


@jax.custom_jvp
def product(x: Float[Array, "t d"], matrix: Float[Array, "d f"]) -> Float[Array, "t f"]:
    """The product of both, rounded, in x's type. Its gradient is that of the exact product.

    Rounding has a gradient of zero nearly everywhere; where weights learn beside it (low-rank pairs), what
    flows through is as if nothing had been rounded.
    """
    return times(x, rounded(matrix, axis=0))


def times(x: Float[Array, "t d"], matrix: Rounded) -> Float[Array, "t f"]:
    """`product` with a matrix that was rounded before, along its axis 0: the same numbers, to the bit."""
    left = rounded(x, axis=1)
    # In x's type, as it is read next: written out in float32, gate and up alone would be twice 4 GB a layer.
    over = (((1,), (0,)), ((), ()))
    out = jax.lax.dot_general(left.values, matrix.values, over, preferred_element_type=x.dtype)
    return (out.astype(jnp.float32) * left.scale * matrix.scale).astype(x.dtype)


@product.defjvp
def _straight_through(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Float[Array, "t f"], Float[Array, "t f"]]:
    (x, matrix), (dx, dmatrix) = primals, tangents
    return product(x, matrix), dx @ matrix + x @ dmatrix


def of_flax(x: Array, kernel: Array, dimensions: Any, **_: Any) -> Array:
    """`product` as Flax's layers ask for it: the last axes of `x` with the first ones of `kernel`."""
    (over, into), batch = dimensions
    count, rows = len(over), x.shape[: x.ndim - len(over)]
    asked = tuple(over), tuple(into), sum(map(len, batch))
    assert asked == (tuple(range(x.ndim - count, x.ndim)), tuple(range(count)), 0), dimensions
    out = product(x.reshape(math.prod(rows), -1), kernel.reshape(math.prod(kernel.shape[:count]), -1))
    return out.reshape(*rows, *kernel.shape[count:])
