"""Flow matching: where a noisy chunk stands between noise and actions, and at which times it is asked for."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def time_embedding(time: Float[Array, "b"], width: int) -> Float[Array, "b d"]:
    """Sines and cosines of t at `width`/2 periods from 4e-3 to 4, geometrically spaced."""
    periods = 4e-3 * (4.0 / 4e-3) ** jnp.linspace(0.0, 1.0, width // 2)
    angles = jnp.einsum("b,d->bd", time, 2 * jnp.pi / periods, precision=jax.lax.Precision.HIGHEST)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def interpolate(
    actions: Float[Array, "*b h a"], noise: Float[Array, "*b h a"], time: Float[Array, "*b"]
) -> tuple[Float[Array, "*b h a"], Float[Array, "*b h a"]]:
    """x_t = t * noise + (1 - t) * actions, and the velocity to be learnt, noise - actions. t = 1 is noise."""
    t = time[..., None, None]
    return t * noise + (1 - t) * actions, noise - actions


def schedule(steps: int) -> Float[np.ndarray, "n"]:
    """The times of `steps` Euler steps from t = 1 towards t = 0, added up in float32 as openpi does."""
    times, dt = [np.float32(1.0)], np.float32(-1.0 / steps)
    for _ in range(steps - 1):
        times.append(times[-1] + dt)
    return np.array(times, np.float32)
