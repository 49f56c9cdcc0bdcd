"""Attention in one kernel that never writes its weights to memory: cuDNN's on a GPU, elsewhere XLA's.

`model.fused_attention` asks for it in the passes over the prefix alone and in the vision encoder, where
nothing is added to the logits: there a full-size step of 32 rows otherwise writes float32 weights of
32 x 8 x 968 x 968, layer by layer. The result is the same but for rounding.
"""

from typing import Any

import jax
from jaxtyping import Array, Bool, Float

from morph_vla.errors import ConfigError, reason

SHORT = ("bfloat16", "float16")  # what cuDNN has kernels for


def attend(
    q: Float[Array, "b t n h"],
    k: Float[Array, "b s k h"],
    v: Float[Array, "b s k h"],
    mask: Bool[Array, "b t s"] | None = None,
    scale: float | None = 1.0,
) -> Float[Array, "b t n h"]:
    """softmax(scale q k^T) v where `mask` allows; `scale` None is 1 / sqrt(h), as in the vision encoder.

    A query that may see nothing gets a mean of what is there, never a NaN. In float32 and at odd lengths, of
    which cuDNN has no gradient, a GPU too takes XLA's. Raises ConfigError, naming the key, where JAX knows
    that the GPU's cuDNN has no kernel for these sizes; what compiling finds later is an error of JAX's.
    """
    is_even = not (q.shape[1] % 2 or k.shape[1] % 2)
    on_gpu = jax.default_backend() == "gpu" and str(q.dtype) in SHORT and (mask is None or is_even)
    allowed = None if mask is None else mask[:, None]
    try:
        with jax.numpy_dtype_promotion("standard"):  # JAX's own form mixes bfloat16 and float32
            return jax.nn.dot_product_attention(
                q, k, v, mask=allowed, scale=scale, implementation="cudnn" if on_gpu else "xla"
            )
    except (NotImplementedError, RuntimeError) as error:
        raise ConfigError(
            f"model.fused_attention: cuDNN has no kernel for these sizes here ({reason(error)}); "
            "set it to false"
        ) from error


def of_flax(q: Array, k: Array, v: Array, *_: Any, **__: Any) -> Array:
    """`attend` as Flax's attention asks for it, without mask or dropout."""
    return attend(q, k, v, scale=None)
