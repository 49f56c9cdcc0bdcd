"""Causal spectral convolution: what m low modes of the last n inputs say, in three forms that are equal.

Tan et al., "Fourier Controller Networks for Real-Time Decision-Making in Embodied Learning" (ICML 2024),
Section 3. Of a window of n inputs that ends at t the lowest m modes are kept (Eq. 8), weighted (Eq. 5) and
brought back to its last moment (Eq. 6 and 7). All of it is linear: the weights of a channel come down to a
complex vector v [m] (`readout`), and the output is a convolution with n real taps (`taps`):

    X_k(t) = sum_{s<n} x_{t-s} u_k^{s+1},   u_k = exp(2 pi j k / n)        Eq. 8, with s steps back
    y_t    = Re sum_k v_k X_k(t) = sum_{s<n} h_s x_{t-s},   h_s = Re sum_k v_k u_k^{s+1}

`direct` is that sum, `parallel` computes it by FFT, `advance` one step at a time by the sliding DFT (Eq. 9).

The sliding DFT adds what comes and takes away what leaves the window. In float32 what is taken away is not
quite what was added, and the rest adds up: where the input repeats with a mode's own period, as a gait does,
without bound. So a second sum is begun every n steps with what comes alone. n steps later it holds the whole
window, nothing has had to leave it, and it takes the first one's place (`Memory.fresh`). Every step costs the
same, and no error is older than 2n steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int


class Memory(NamedTuple):
    """What the recurrent form keeps of one sequence's past."""

    inputs: Float[Array, "n d"]
    """The last n, in the order of their steps modulo n"""
    leaves: Float[Array, "d"]
    """The one of them whose place the next one takes. It is read after the last one was written: if it were
    read before the next is written, XLA would copy all inputs to be safe"""
    modes: Complex[Array, "m d"]
    """X_k of the window that ends with the last input"""
    fresh: Complex[Array, "m d"]
    """The same of the inputs since step was last a multiple of n"""
    step: Int[Array, ""]
    """Inputs so far"""


def turns(context: int, modes: int) -> Complex[np.ndarray, "n m"]:
    """u_k^{s+1} of every step back s and mode k, complex128."""
    back = np.arange(1, context + 1)[:, None] * np.arange(modes) % context
    return np.exp(2j * np.pi * back / context)


def readout(weights: Float[Array, "2 m m d"], context: int) -> Complex[Array, "m d"]:
    """V of Eq. 5 to 7, from W of each channel as real and imaginary parts.

    Modes but the first, and of an even n the last possible one, count twice: their conjugates are the upper
    half of the spectrum.
    """
    modes = weights.shape[1]
    number = np.arange(modes)
    twice = np.where((number == 0) | (2 * number == context), 1.0, 2.0)
    back = (twice / context * np.conj(turns(context, modes)[0])).astype(np.complex64)
    return jnp.einsum("k,klc->lc", jnp.asarray(back), jax.lax.complex(weights[0], weights[1]))


def taps(vector: Complex[Array, "m d"], context: int) -> Float[Array, "n d"]:
    """h: the weight of the input s steps back, for every channel."""
    of_modes = turns(context, vector.shape[0]).astype(np.complex64)
    return jnp.real(jnp.asarray(of_modes) @ vector)


def direct(taps: Float[Array, "n d"], x: Float[Array, "t d"]) -> Float[Array, "t d"]:
    """The sum as it is written; before the first input there are zeros."""
    padded = jnp.pad(x, ((len(taps) - 1, 0), (0, 0)))
    windows = padded[np.arange(len(x))[:, None] + np.arange(len(taps))]
    return jnp.einsum("tnd,nd->td", windows, taps[::-1])


def parallel(taps: Float[Array, "n d"], x: Float[Array, "*b t d"]) -> Float[Array, "*b t d"]:
    """All steps at once by FFT, in O(t log t) for each channel."""
    steps = x.shape[-2]
    taps = taps[:steps]
    size = 1 << (steps + len(taps) - 2).bit_length()  # no shorter: the end would come round to the start
    product = jnp.fft.rfft(x, size, axis=-2) * jnp.fft.rfft(taps, size, axis=-2)
    return jnp.fft.irfft(product, size, axis=-2)[..., :steps, :]


def begin(context: int, modes: int, width: int) -> Memory:
    """Before the first input."""
    nothing = jnp.zeros((modes, width), jnp.complex64)
    inputs, leaves = jnp.zeros((context, width)), jnp.zeros(width)
    return Memory(inputs, leaves, nothing, nothing, jnp.zeros((), jnp.int32))


def slide(
    modes: Complex[Array, "m d"], comes: Float[Array, "d"], leaves: Float[Array, "d"], context: int
) -> Complex[Array, "m d"]:
    """X_k of the next window (Eq. 9)."""
    u = jnp.asarray(turns(context, len(modes))[0].astype(np.complex64))
    return u[:, None] * (modes + (comes - leaves).astype(jnp.complex64))


def advance(
    memory: Memory, vector: Complex[Array, "m d"], x: Float[Array, "d"]
) -> tuple[Memory, Float[Array, "d"]]:
    """One more input and its output, in O(m) for each channel."""
    inputs, leaves, modes, fresh, step = memory
    context = len(inputs)
    place = step % context
    modes = slide(modes, x, leaves, context)
    fresh = slide(fresh, x, jnp.zeros_like(x), context)
    # With the window's last input, all that `fresh` holds is the window, and the next one begins.
    full = place == context - 1
    modes = jnp.where(full, fresh, modes)
    fresh = jnp.where(full, jnp.zeros_like(fresh), fresh)
    output = jnp.sum(jnp.real(vector) * jnp.real(modes) - jnp.imag(vector) * jnp.imag(modes), axis=0)
    inputs = inputs.at[place].set(x)
    return Memory(inputs, inputs[(step + 1) % context], modes, fresh, step + 1), output
