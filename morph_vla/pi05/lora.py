"""Low-rank pairs beside the transformer's weights (Hu et al. 2021), under openpi's names (`models/lora.py`).

    y = x W + (alpha / rank) (x A) B            A: d x r, normal, std 0.01;  B: r x f, zero at the start

Computed as activations: no matrix of W's size is ever made. Heads have pairs of their own, except those of
the attention's output: there openpi's equation sums over the heads in A and, separately, in B. openpi has
alpha = rank in all of its variants, and applies no factor in its feed-forward; here the factor is everywhere.
"""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.pi05 import float8
from morph_vla.pi05.config import LowRank
from morph_vla.pi05.float8 import Rounded


class Pair(NamedTuple):
    """A and B, the factor already in B."""

    a: Float[Array, "*n d r"]
    b: Float[Array, "*n r f"]


def pair_of(module: nn.Module, name: str, shape: tuple[int, ...], low: LowRank | None) -> Pair | None:
    """The pair of a weight with that shape, as parameters `{name}lora_a` and `{name}lora_b` of `module`."""
    if low is None:
        return None
    *before, into, out = shape
    a = module.param(f"{name}lora_a", nn.initializers.normal(0.01), (*before, into, low.rank))
    b = module.param(f"{name}lora_b", nn.initializers.zeros, (*before, low.rank, out))
    return Pair(a, b * low.scale)


def project(
    x: Float[Array, "b t d"],
    matrix: Float[Array, "d f"] | Rounded,
    pair: Pair | None = None,
    rounded: bool = False,
) -> Array:
    """The product x @ matrix over all tokens as one matrix product, and that with a pair, [b t f].

    `rounded`: that with the matrix is of numbers of 8 bits (`float8`), and the pair's is not. A matrix that
    is in 8 bits already is multiplied as it is.
    The same numbers as a product with batch axes; on a CPU the gradient of the feed-forward alone took
    2.3 ms instead of 9.5.
    """
    rows = x.reshape(-1, x.shape[-1])
    if isinstance(matrix, Rounded):
        out = float8.times(rows, matrix)
    else:
        matrix = matrix.astype(x.dtype)
        out = float8.product(rows, matrix) if rounded else rows @ matrix
    out = out.reshape(*x.shape[:-1], out.shape[-1])
    return out if pair is None else out + project(project(x, pair.a), pair.b)


def project_heads(x: Float[Array, "b t d"], pair: Pair) -> Float[Array, "b t n h"]:
    """(x A_n) B_n for every head n."""
    heads, width, rank = pair.a.shape
    low = project(x, pair.a.swapaxes(0, 1).reshape(width, -1)).reshape(*x.shape[:2], heads, rank)
    return jnp.einsum("btnr,nrh->btnh", low, pair.b.astype(x.dtype))


def joined(pair: Pair | None) -> Pair | None:
    """The pair of the attention's output: all heads in one product, B summed over them."""
    return None if pair is None else Pair(pair.a.reshape(-1, pair.a.shape[-1]), jnp.sum(pair.b, axis=0))
