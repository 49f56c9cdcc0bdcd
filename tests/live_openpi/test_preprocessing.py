"""Frames, prompts, states and their normalisation equal openpi's own functions on random input."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from morph_vla.data.stats import Stats
from morph_vla.pi05 import augmentation, observation, tokenizer

LENGTH = 61


class Letters:
    """A SentencePiece in miniature: one id per letter."""

    name, vocab, sha256 = "letters", 2000, ""

    def encode(self, text, add_bos=True):
        assert add_bos
        return [2, *(3 + ord(letter) % 1900 for letter in text)]


@pytest.fixture(scope="module")
def theirs(openpi):
    """openpi's tokenizer without the download of its file."""
    result = openpi.tokenizer.PaligemmaTokenizer.__new__(openpi.tokenizer.PaligemmaTokenizer)
    result._max_len, result._tokenizer = LENGTH, Letters()
    return result


states = hnp.arrays(np.float32, st.integers(1, 5), elements=st.floats(-2, 2, width=32))


@given(prompt=st.text(max_size=23), state=states)
def test_prompt_and_state(theirs, prompt, state):
    logging.disable()
    wanted, wanted_mask = theirs.tokenize(prompt, state)
    result, mask = tokenizer.tokenize(Letters(), prompt, state, LENGTH)
    logging.disable(logging.NOTSET)
    np.testing.assert_array_equal(result, wanted)
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


SIZES = [(31, 43), (67, 29), (23, 23), (480, 640)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pixels", [True, False])
def test_resizing_in_the_model(openpi, size, pixels):
    images = np.random.default_rng(sum(size)).uniform(-1, 1, (2, *size, 3)).astype(np.float32)
    given = jnp.asarray(((images + 1) * 127.5).astype(np.uint8) if pixels else images)
    wanted = openpi.image_tools.resize_with_pad(given, 37, 37)
    result = observation.fit(given, 37)
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(
        np.asarray(result, np.float32), np.asarray(wanted, np.float32), atol=1 if pixels else 2e-5
    )


@pytest.mark.parametrize("size", SIZES)
def test_resizing_of_a_frame(openpi, size):
    image = np.random.default_rng(sum(size)).integers(0, 256, (*size, 3)).astype(np.uint8)
    wanted = openpi.transforms.image_tools.resize_with_pad(image, 37, 37)
    np.testing.assert_array_equal(observation.resize_with_pad(image, 37), wanted)


@pytest.mark.parametrize("seed", range(3))
def test_augmentation(openpi, seed):
    rng = np.random.default_rng(seed)
    cameras = openpi.model.IMAGE_KEYS
    images = {name: jnp.asarray(rng.uniform(-1, 1, (5, 37, 37, 3)), jnp.float32) for name in cameras}
    seen = openpi.model.Observation(
        images=images, image_masks={name: jnp.ones(5, bool) for name in cameras}, state=jnp.zeros((5, 3))
    )
    key = jax.random.key(seed)
    wanted = openpi.model.preprocess_observation(key, seen, train=True, image_resolution=(37, 37))
    for name in cameras:
        result = augmentation.augment(key, images[name], name)
        np.testing.assert_allclose(result, wanted.images[name], atol=1e-4)
