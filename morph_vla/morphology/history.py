"""A joint's past in few numbers: the lowest Fourier modes of its last positions, as input of its tokens.

After Tan et al., "Fourier Controller Networks for Real-Time Decision-Making in Embodied Learning" (ICML
2024), Equation 8, whose X_k here is a share of n. Of positions x of a window of n that ends at t, for k < m:

    X_k(t) / n = (1/n) sum_{s<n} x_{t-s} u_k^{s+1},   u_k = exp(2 pi j k / n)

as cosines (real parts, m of them) and sines (imaginary parts of k = 1, ...). The sine of k = 0, and of an
even n that of k = n / 2, is zero and left out, so that with all modes the window can be had back: n numbers
of n. With n = 1 there is one, the present position. A window is short: it is summed as it is written, and a
sliding sum (`policies.spectral`) would save nothing.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from morph_vla.morphology.config import History


def waves(config: History) -> Float[np.ndarray, "w f"]:
    """What each position, the oldest first, adds to each value."""
    count, modes = config.steps, np.arange(config.modes)
    # Whole turns are taken off before the angle is: row n - 1 - s is turned by k (s + 1) / n.
    turns = np.arange(count, 0, -1)[:, None] * modes % count / count * 2 * np.pi
    sines = np.sin(turns[:, 1:])[:, : config.values - config.modes]
    return (np.concatenate([np.cos(turns), sines], axis=1) / count).astype(np.float32)


def low_modes(config: History, positions: Float[Array, "b w j"]) -> Float[Array, "b j f"]:
    """The values of every joint: the mean of its positions first."""
    return jnp.einsum("bwj,wf->bjf", positions, waves(config))
