"""Attention written out: weights in float32, and values under them.

A GPU is given queries as the rows of both products: with keys for rows, as `einsum` has them in the order of
axes that a CPU keeps (and with it its bits), it transposes all weights for the softmax, 16 ms of a full step.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

MASKED = -2.3819763e38  # the value Gemma puts where nothing may be seen


def attention_weights(
    q: Float[Array, "b t n h"],
    k: Float[Array, "b s k h"],
    mask: Bool[Array, "b t s"],
    bias: Float[Array, "b u u"] | None,
) -> Float[Array, "b k g t s"]:
    """softmax(q k^T + bias) where `mask` allows, in float32; n = k * g query heads.

    `bias` is added among the last u queries and keys (the kinematic tokens), drawn for u = 2, t = 3, s = 5:

        0 0 0 0 0
        0 0 0 b b
        0 0 0 b b
    """
    batch, queries, heads, head_dim = q.shape
    groups = q.reshape(batch, queries, k.shape[2], heads // k.shape[2], head_dim)
    order = "bktgs" if jax.default_backend() == "gpu" else "bkgts"
    logits = jnp.einsum(f"btkgh,bskh->{order}", groups, k, preferred_element_type=jnp.float32)
    logits = logits.swapaxes(2, 3) if order == "bktgs" else logits
    if bias is not None:
        before = ((0, 0), (queries - bias.shape[1], 0), (k.shape[1] - bias.shape[2], 0))
        logits = logits + jnp.pad(bias, before)[:, None, None]
    return jax.nn.softmax(jnp.where(mask[:, None, None], logits, MASKED), axis=-1)


def mix(weights: Float[Array, "b k g t s"], v: Float[Array, "b s k h"]) -> Float[Array, "b t f"]:
    """Values under their weights, heads side by side."""
    weights = weights.astype(v.dtype)
    if jax.default_backend() == "gpu":
        mixed = jnp.einsum("bktgs,bskh->bktgh", weights.swapaxes(2, 3), v).swapaxes(1, 2)
    else:
        mixed = jnp.einsum("bkgts,bskh->btkgh", weights, v)
    return mixed.reshape(*mixed.shape[:2], -1)
