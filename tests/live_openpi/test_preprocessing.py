"""Prompts, states and their normalisation equal openpi's own functions on random input."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from morph_vla.data.stats import Stats
from morph_vla.pi05 import tokenizer

LENGTH = 61


class Letters:
    """A SentencePiece in miniature: one id per letter."""

    name, vocab = "letters", 2000

    def encode(self, text, add_bos=True):
        assert add_bos
        return [2, *(3 + ord(letter) % 1900 for letter in text)]


@pytest.fixture(scope="module")
def theirs(openpi):
    """openpi's tokenizer without the download of its file."""
    found = openpi.tokenizer.PaligemmaTokenizer.__new__(openpi.tokenizer.PaligemmaTokenizer)
    found._max_len, found._tokenizer = LENGTH, Letters()
    return found


states = hnp.arrays(np.float32, st.integers(1, 5), elements=st.floats(-2, 2, width=32))


@given(prompt=st.text(max_size=23), state=states)
def test_prompt_and_state(theirs, prompt, state):
    logging.disable()
    wanted, wanted_mask = theirs.tokenize(prompt, state)
    found, mask = tokenizer.tokenize(Letters(), prompt, state, LENGTH)
    logging.disable(logging.NOTSET)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(mask, wanted_mask)


@pytest.mark.parametrize(
    "value", [-1.0, 1.0, 0.0, -1.5, 1.5, np.nan, np.nextafter(np.float32(-1), np.float32(0))]
)
def test_bins_at_their_edges(theirs, value):
    state = np.full(3, value, np.float32)
    np.testing.assert_array_equal(
        tokenizer.tokenize(Letters(), "x", state, LENGTH)[0], theirs.tokenize("x", state)[0]
    )


@pytest.mark.parametrize("seed", range(5))
def test_quantile_normalisation_and_back(openpi, seed):
    rng = np.random.default_rng(seed)
    low, values = rng.normal(size=7), rng.normal(size=(11, 7)).astype(np.float32)
    high = low + rng.uniform(0.02, 3, 7)
    one = np.ones(7)
    norm = {"actions": openpi.normalize.NormStats(mean=0 * one, std=one, q01=low, q99=high)}
    ours = Stats(*(tuple(float(v) for v in x) for x in (low, high, 0 * one, one)))
    wanted = openpi.transforms.Normalize(norm, use_quantiles=True)({"actions": values})["actions"]
    np.testing.assert_allclose(ours.normalise(values), wanted, rtol=1e-5, atol=1e-5)
    back = openpi.transforms.Unnormalize(norm, use_quantiles=True)({"actions": wanted})["actions"]
    np.testing.assert_allclose(ours.restore(np.asarray(wanted, np.float32)), back, rtol=1e-5, atol=1e-5)
