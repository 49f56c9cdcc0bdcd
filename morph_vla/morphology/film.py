"""FiLM: feature-wise modulation of kinematic tokens by joint descriptors (paper, Section 2.3)."""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

CENTRE = np.array([0, 0, 0, 0, 0, 0, 0, math.log(1e3), 1, 1, 0.1, math.log(3e4)], np.float32)
"""What a feature is counted from: the contact features where a file states none (`robots.descriptors`)."""

SCALE = np.array([1, 1, 1, 1, 1, math.pi, math.pi, math.log(10), 1, 1, 1, math.log(10)], np.float32)
"""What counts as one: half a turn of a limit, a factor of ten of damping and stiffness."""


def standardised(
    descriptors: Float[Array, "b j 12"], joint_mask: Bool[Array, "b j"]
) -> Float[Array, "b j 12"]:
    """(s - CENTRE) / SCALE, and 0 for padded joints.

    Raw features are the paper's. In the row of joint 1 of PyBullet's Panda (`robots.descriptors`) their
    absolute values sum to 27, of which 19 are five contact features that most files leave out; standardised
    these are 0, and the sum is 3.9. Constants, not a data set's statistics: a robot's features never depend
    on what else was trained on.
    """
    return jnp.where(joint_mask[:, :, None], (descriptors - CENTRE) / SCALE, 0.0)


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
