"""Attention in one kernel that never writes its weights to memory: cuDNN's on a GPU, elsewhere XLA's.

`model.fused_attention` asks for it in the passes over the prefix alone and in the vision encoder, where
nothing is added to the logits: there a full-size step of 32 rows otherwise writes float32 weights of
32 x 8 x 968 x 968, layer by layer. The result is the same but for rounding.

Measured on an H200: 22 ms of such a step's 287, and a call of one row, whose weights are 30 MB, took half a
millisecond more. So a GPU has it where those weights are large, and they are written out elsewhere.
"""

import logging
from functools import cache
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array, Bool, Float

from morph_vla.errors import reason

SHORT = ("bfloat16", "float16")  # what cuDNN has kernels for
LARGE = 2**26  # bytes of float32 weights from which on they are not written to memory


def pays(q: Float[Array, "b t n h"], k: Float[Array, "b s _k h"]) -> bool:
    """Whether attention of these sizes is better not written out; on a CPU it is as it was asked for."""
    batch, queries, heads, _ = q.shape
    return jax.default_backend() != "gpu" or 4 * batch * heads * queries * k.shape[1] >= LARGE


def attend(
    q: Float[Array, "b t n h"],
    k: Float[Array, "b s k h"],
    v: Float[Array, "b s k h"],
    mask: Bool[Array, "b t s"] | None = None,
    scale: float | None = 1.0,
) -> Float[Array, "b t n h"]:
    """softmax(scale q k^T) v where `mask` allows; `scale` None is 1 / sqrt(h), as in the vision encoder.

    A query that may see nothing gets a mean of what is there, never a NaN. In float32 and at odd lengths, of
    which cuDNN has no gradient, a GPU too takes XLA's; so does one for whose sizes JAX knows no kernel (heads
    of 256 need a Hopper), which is logged once. What compiling finds later is an error of JAX's.
    """
    is_even = not (q.shape[1] % 2 or k.shape[1] % 2)
    on_gpu = jax.default_backend() == "gpu" and str(q.dtype) in SHORT and (mask is None or is_even)
    allowed = None if mask is None else mask[:, None]
    with jax.numpy_dtype_promotion("standard"):  # JAX's own form mixes bfloat16 and float32
        attention = jax.nn.dot_product_attention
        if on_gpu:
            try:
                return attention(q, k, v, mask=allowed, scale=scale, implementation="cudnn")
            except (NotImplementedError, RuntimeError) as error:
                _say(reason(error))
        return attention(q, k, v, mask=allowed, scale=scale, implementation="xla")


@cache
def _say(why: str) -> None:
    """Once a process."""
    logging.getLogger("morph_vla").warning(
        "model.fused_attention: cuDNN has no kernel for these sizes here (%s); XLA's form is taken", why
    )


def of_flax(q: Array, k: Array, v: Array, *rest: Any, **options: Any) -> Array:
    """`attend` as Flax's attention asks for it, without mask or dropout; Flax's own where it does not pay."""
    return attend(q, k, v, scale=None) if pays(q, k) else nn.dot_product_attention(q, k, v, *rest, **options)
