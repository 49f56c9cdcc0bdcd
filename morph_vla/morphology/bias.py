"""Topology biases: what is added to the joint-to-joint attention logits (paper, Section 2.2, Appendix B.1).

Pure functions from the joint graph to a bias, first per joint [l b j j], then per token [l b t t]: all chunks
of a joint share its row and column.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from morph_vla.morphology.config import BiasKind


def full_mask(adjacency: Bool[Array, "*b j j"]) -> Float[Array, "*b j j"]:
    """0 for a joint and its neighbours, -inf elsewhere (paper, Eq. 3).

    A five-joint arm (., allowed; x, -inf):

        . . x x x
        . . . x x
        x . . . x
        x x . . .
        x x x . .
    """
    return jnp.where(adjacency, 0.0, -jnp.inf)


def joint_bias(kind: BiasKind, adjacency: Bool[Array, "b j j"], layers: int) -> Float[Array, "l b j j"]:
    """The bias of every layer: `full` masks all, `mix` layers 0, 2, 4, ..., `none` no layer."""
    mask = full_mask(adjacency)
    masked = {
        "none": jnp.zeros(layers, bool),
        "full": jnp.ones(layers, bool),
        "mix": jnp.arange(layers) % 2 == 0,
    }[kind]
    return jnp.where(masked[:, None, None, None], mask[None], 0.0)


def token_bias(bias: Float[Array, "l b j j"], chunks: int) -> Float[Array, "l b t t"]:
    """From joints to kinematic tokens, chunk after chunk: token k * J + j carries joint j.

    Two chunks (G = 2) of a three-joint arm:

        . . x . . x
        . . . . . .
        x . . x . .
        . . x . . x
        . . . . . .
        x . . x . .
    """
    return jnp.tile(bias, (1, 1, chunks, chunks))
