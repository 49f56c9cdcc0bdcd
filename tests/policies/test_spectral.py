"""The causal spectral convolution: the paper's sum, and that its three forms are the same."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.policies import spectral

pytestmark = pytest.mark.slow

WIDTH = 3
sizes = st.sampled_from([(1, 1), (2, 2), (5, 3), (7, 1), (11, 4), (12, 7), (13, 7), (31, 5), (64, 10)])


def weights_of(modes, seed=0):
    return np.random.default_rng(seed).normal(size=(2, modes, modes, WIDTH)).astype(np.float32)


def inputs_of(steps, seed=1):
    return np.random.default_rng(seed).normal(size=(steps, WIDTH)).astype(np.float32)


def papers(weights, x, context):
    """Eq. 5 to 8 word by word in float64: transform each window, weight, extend, transform back."""
    modes, width = weights.shape[1], weights.shape[3]
    w = weights[0].astype(np.float64) + 1j * weights[1]
    padded = np.concatenate([np.zeros((context - 1, width)), x.astype(np.float64)])
    outputs = np.zeros(x.shape)
    for t in range(len(x)):
        window = np.fft.fft(padded[t : t + context], axis=0)[:modes]
        kept = np.einsum("klc,lc->kc", w, window)
        spectrum = np.zeros((context, width), complex)
        spectrum[:modes] = kept
        for k in range(1, modes):
            if 2 * k != context:
                spectrum[context - k] = np.conj(kept[k])
        outputs[t] = np.fft.ifft(spectrum, axis=0)[context - 1].real
    return outputs


def recurrent(vector, x, context):
    """The recurrent form over a sequence."""
    memory, readout = spectral.begin(context, *vector.shape), spectral.stepwise(vector, context)
    return jax.lax.scan(lambda memory, row: spectral.advance(memory, readout, row), memory, jnp.asarray(x))[1]


@partial(jax.jit, static_argnums=2)
def forms(weights, x, context):
    """The three, in one program: compiled op by op they take many times longer."""
    vector = spectral.readout(weights, context)
    taps = spectral.taps(vector, context)
    return spectral.direct(taps, x), spectral.parallel(taps, x), recurrent(vector, x, context)


@settings(deadline=None, max_examples=12)
@given(sizes, st.sampled_from([1, 7, 53, 131]), st.integers(0, 9))
def test_the_three_forms_are_the_papers_sum(size, steps, seed):
    context, modes = size
    weights, x = weights_of(modes, seed), inputs_of(steps, seed + 10)
    wanted = papers(weights, x, context)
    for outputs in forms(weights, x, context):
        np.testing.assert_allclose(outputs, wanted, atol=1e-5 * (1 + np.abs(wanted).max()))


def test_nothing_to_come_is_seen_and_nothing_older_than_the_window():
    context, modes, steps = 7, 3, 19
    taps = spectral.taps(spectral.readout(jnp.asarray(weights_of(modes)), context), context)
    slope = jax.jacobian(lambda x: spectral.direct(taps, x)[:, 0])(jnp.asarray(inputs_of(steps)))[:, :, 0]
    back = np.arange(steps)[:, None] - np.arange(steps)
    assert (np.abs(slope)[(back < 0) | (back >= context)] == 0).all()
    assert (np.abs(slope)[(back >= 0) & (back < context)] > 0).all()


@pytest.mark.parametrize(("context", "modes"), [(64, 10), (61, 11)])
def test_over_10_000_steps_the_forms_stay_equal_only_because_the_sum_is_begun_anew(context, modes):
    steps = 10_000
    vector = spectral.readout(jnp.asarray(weights_of(modes)), context)
    moments = np.arange(steps)[:, None]
    x = (inputs_of(steps) + 1 + 3 * np.cos(2 * np.pi * moments / context)).astype(np.float32)
    taps = np.asarray(spectral.taps(vector, context), np.float64)
    wanted = sum(tap * np.pad(x, ((s, 0), (0, 0)))[:steps].astype(np.float64) for s, tap in enumerate(taps))
    scale = np.abs(wanted).max()

    def error(outputs):
        return np.abs(np.asarray(outputs) - wanted).max() / scale

    turn = jnp.asarray(spectral.turns(context, modes)[0].astype(np.complex64))[:, None]

    def drifting(modes, rows):  # Eq. 9 alone
        comes, leaves = rows
        modes = turn * (modes + (comes - leaves).astype(jnp.complex64))
        return modes, jnp.real(jnp.sum(vector * modes, axis=0))

    leaving = np.pad(x, ((context, 0), (0, 0)))[:steps]
    nothing = jnp.zeros(vector.shape, jnp.complex64)
    _, drifted = jax.lax.scan(drifting, nothing, (jnp.asarray(x), jnp.asarray(leaving)))
    assert error(spectral.parallel(spectral.taps(vector, context), jnp.asarray(x))) < 1e-5
    assert error(recurrent(vector, x, context)) < 1e-5
    assert error(drifted) > 3e-5


def test_the_layers_of_one_memory_are_memories_of_their_own():
    context, modes, layers, steps = 7, 3, 2, 19
    vectors = [spectral.readout(jnp.asarray(weights_of(modes, seed)), context) for seed in range(layers)]
    x = np.stack([inputs_of(steps, seed + 5) for seed in range(layers)], axis=1)
    readout, memory = (
        spectral.stepwise(jnp.stack(vectors, axis=1), context),
        spectral.begin(context, modes, layers, WIDTH),
    )
    _, together = jax.lax.scan(
        lambda memory, rows: spectral.advance(memory, readout, rows), memory, jnp.asarray(x)
    )
    for layer, vector in enumerate(vectors):
        alone = recurrent(vector, x[:, layer], context)
        np.testing.assert_allclose(together[:, layer], alone, atol=1e-6 * np.abs(alone).max())


def test_what_is_expected_is_the_output_of_nothing_new():
    """Before an input comes, all of its output is known but h_0 times that input."""
    context, modes, steps = 11, 4, 29
    vector = spectral.readout(jnp.asarray(weights_of(modes)), context)
    readout, memory = spectral.stepwise(vector, context), spectral.begin(context, modes, WIDTH)
    taps, x = np.asarray(spectral.taps(vector, context)), inputs_of(steps)
    np.testing.assert_allclose(readout.now, taps[0], atol=1e-6)
    for t in range(steps):
        past = np.pad(x[:t], ((context, 0), (0, 0)))[::-1][: context - 1]
        wanted = np.sum(taps[1:] * past, axis=0)
        np.testing.assert_allclose(spectral.expected(memory, readout), wanted, atol=1e-5 * np.abs(taps).sum())
        memory = spectral.accept(memory, jnp.asarray(x[t]))


def test_a_joints_low_modes_are_this_windows():
    """`morphology.history`, which may not import this module, has the same modes, as a share of n."""
    from morph_vla.morphology.config import History
    from morph_vla.morphology.history import waves

    config = History(steps=11, modes=4)
    ours = spectral.turns(config.steps, config.modes)[::-1] / config.steps  # the oldest first
    parts = np.concatenate([ours.real, ours.imag[:, 1:]], axis=1)
    np.testing.assert_allclose(waves(config), parts, atol=1e-7)
