"""Causal spectral convolution: what m low modes of the last n inputs say, in three forms that are equal.

Tan et al., "Fourier Controller Networks for Real-Time Decision-Making in Embodied Learning" (ICML 2024),
Section 3. Of a window of n inputs that ends at t the lowest m modes are kept (Eq. 8), weighted (Eq. 5) and
brought back to its last moment (Eq. 6 and 7). All of it is linear: the weights of a channel come down to a
complex vector v [m] (`readout`), and the output is a convolution with n real taps (`taps`):

    X_k(t) = sum_{s<n} x_{t-s} u_k^{s+1},   u_k = exp(2 pi j k / n)        Eq. 8, with s steps back
    y_t    = Re sum_k v_k X_k(t) = sum_{s<n} h_s x_{t-s},   h_s = Re sum_k v_k u_k^{s+1}

`direct` is that sum, `parallel` computes it by FFT, `advance` one step at a time by the sliding DFT (Eq. 9).

**What can be known before the next input comes is computed before.** Of the next window's modes all but the
newest input's part is there already, and so is its share of the output (`expected`); the input itself adds
h_0 x_t alone. In a network of layers the inputs come one layer after another, but the past of all layers is
there at once: a `Memory` with a layer axis is read once before the first layer and written once after the
last (`accept`), and between two feed-forward layers stand one product and one sum a channel.

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


class Modes(NamedTuple):
    """A complex number for each mode and channel.

    Parts lie apart and modes first: of that XLA makes vector code on a CPU, and none of complex numbers.
    """

    real: Float[Array | np.ndarray, "m *l d"]
    imaginary: Float[Array | np.ndarray, "m *l d"]


class Memory(NamedTuple):
    """What the recurrent form keeps of the past of one sequence, or of one in each of l layers."""

    inputs: Float[Array, "n *l d"]
    """The last n, in the order of their steps modulo n"""
    ahead: Modes
    """Of the next window's X_k what is there already: u_k (X_k - the input that leaves next)"""
    fresh: Modes
    """X_k of the inputs since step was last a multiple of n"""
    step: Int[Array, ""]
    """Inputs so far"""


class Readout(NamedTuple):
    """How the output follows from the window's modes and the newest input, in one layer or in each of l."""

    vector: Modes
    """v_k"""
    now: Float[Array, "*l d"]
    """h_0"""


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


def begin(context: int, modes: int, *shape: int) -> Memory:
    """Before the first input; `shape` is (d,) or (l, d)."""
    nothing = Modes(jnp.zeros((modes, *shape)), jnp.zeros((modes, *shape)))
    return Memory(jnp.zeros((context, *shape)), nothing, nothing, jnp.zeros((), jnp.int32))


def stepwise(vector: Complex[Array, "m *l d"], context: int) -> Readout:
    """V of `readout`, as `expected` and `advance` take it."""
    now = jnp.real(jnp.tensordot(_turn(context, len(vector)), vector, axes=1))
    return Readout(Modes(jnp.real(vector), jnp.imag(vector)), now)


def expected(memory: Memory, readout: Readout) -> Float[Array, "*l d"]:
    """The next output, less what its own input adds to it: h_0 x."""
    ahead, vector = memory.ahead, readout.vector
    return jnp.sum(vector.real * ahead.real - vector.imaginary * ahead.imaginary, axis=0)


def accept(memory: Memory, x: Float[Array, "*l d"]) -> Memory:
    """The memory after one more input, in O(m) for each channel (Eq. 9)."""
    inputs, ahead, fresh, step = memory
    context = len(inputs)
    place, next_place = step % context, (step + 1) % context
    # The input that leaves next is read after `x` was written: if it were read before, XLA would copy all
    # inputs to be safe.
    inputs = jax.lax.dynamic_update_index_in_dim(inputs, x, place, axis=0)
    leaves = jax.lax.dynamic_index_in_dim(inputs, next_place, axis=0, keepdims=False)
    newest = _turned(Modes(x[None], jnp.zeros_like(x[None])), context, len(ahead.real))
    begun = _turned(Modes(fresh.real + x, fresh.imaginary), context)
    # With this input, all that `begun` holds is the window, and the next one begins.
    keep = jnp.where(place == context - 1, 0.0, 1.0)
    fresh = Modes(keep * begun.real, keep * begun.imaginary)
    # With the next input, all that `fresh` holds is the window: nothing has to leave it.
    anew = next_place == context - 1
    staying = Modes(
        jnp.where(anew, fresh.real, ahead.real + newest.real - leaves),
        jnp.where(anew, fresh.imaginary, ahead.imaginary + newest.imaginary),
    )
    return Memory(inputs, _turned(staying, context), fresh, step + 1)


def advance(memory: Memory, readout: Readout, x: Float[Array, "*l d"]) -> tuple[Memory, Float[Array, "*l d"]]:
    """One more input and its output."""
    return accept(memory, x), expected(memory, readout) + readout.now * x


def _turn(context: int, modes: int) -> Complex[np.ndarray, "m"]:
    """Every u_k."""
    return turns(context, modes)[0].astype(np.complex64)


def _turned(values: Modes, context: int, modes: int = 0) -> Modes:
    """Every mode times its u_k; `modes` of them where `values` are the same for all."""
    real, imaginary = values
    u = _turn(context, modes or len(real)).reshape(-1, *[1] * (real.ndim - 1))
    return Modes(u.real * real - u.imag * imaginary, u.imag * real + u.real * imaginary)
