"""FiLM: feature-wise modulation of kinematic tokens by joint descriptors (paper, Section 2.3)."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float


def modulate(
    z: Float[Array, "*b d"], gamma: Float[Array, "*b d"], beta: Float[Array, "*b d"]
) -> Float[Array, "*b d"]:
    """(1 + gamma) * z + beta."""
    return (1 + gamma) * z + beta


class Film(nn.Module):
    """One linear generator of scale and shift, zero-initialised: at the start it changes nothing."""

    width: int

    @nn.compact
    def __call__(self, z: Float[Array, "b t d"], descriptors: Float[Array, "b t f"]) -> Float[Array, "b t d"]:
        """Modulate the tokens `z` by the descriptors of their joints."""
        zeros = nn.initializers.zeros
        both = nn.Dense(2 * self.width, kernel_init=zeros, bias_init=zeros, dtype=z.dtype, name="generator")(
            descriptors.astype(z.dtype)
        )
        gamma, beta = jnp.split(both, 2, axis=-1)
        return modulate(z, gamma, beta)
