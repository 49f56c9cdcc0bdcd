"""The transformer's norm, plain or conditioned on the time (adaRMS)."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class RMSNorm(nn.Module):
    """RMS norm; with a condition, adaptive: scale, shift and residual gate come from it (adaRMS).

    openpi starts all three at zero, so that a fresh expert is the identity. `open_gate` starts the gate at
    one: a model trained from scratch then learns from its prefix at once.

    With `given` a row has two conditions, k = 2: the first is that of its other tokens, the second of these.
    """

    open_gate: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b t d"],
        condition: Float[Array, "b *k c"] | None,
        modulation: Float[Array, "*k f"] | None = None,
        given: Bool[Array, "b t"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Float[Array, "_b _t d"] | None]:
        """The normed tokens and, when conditioned, the gate of the residual that follows.

        `modulation` is what the condition leads to, f = 3 d, where that was computed before.
        """
        width = x.shape[-1]
        exact = x.astype(jnp.float32)
        normed = exact * jax.lax.rsqrt(jnp.mean(jnp.square(exact), axis=-1, keepdims=True) + 1e-6)
        if condition is None and modulation is None:
            scale = self.param("scale", nn.initializers.zeros, (width,))
            return (normed * (1 + scale)).astype(x.dtype), None
        if modulation is None:
            zeros = nn.initializers.zeros
            bias = _gate_bias if self.open_gate else zeros
            made = nn.Dense(3 * width, kernel_init=zeros, bias_init=bias, dtype=x.dtype)(condition)
        else:
            made = modulation[None]
        if given is None:
            made = made[:, None, :]
        else:
            made = jnp.where(given[..., None], made[:, 1:], made[:, :1])
        scale, shift, gate = jnp.split(made, 3, axis=-1)
        # 1 + scale in the model's type, as openpi has it.
        scaled = normed * (1 + scale).astype(jnp.float32) + shift.astype(jnp.float32)
        return scaled.astype(x.dtype), gate


def _gate_bias(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Zero scale and shift, gate one."""
    del key
    return jnp.repeat(jnp.asarray([0, 0, 1], dtype), shape[-1] // 3)
