"""Raw frames to what the model sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.pi05 import Observation
from morph_vla.pi05.observation import random_shift, resize_with_pad, to_unit


def test_pixels_to_unit():
    pixels = np.array([0, 51, 255], np.uint8).reshape(1, 1, 1, 3)
    found = to_unit(jnp.asarray(pixels))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found.ravel(), [-1.0, -0.6, 1.0], atol=1e-6)
    np.testing.assert_array_equal(to_unit(found), found)


def test_an_image_of_the_right_size_is_as_it_was():
    image = np.random.default_rng(0).integers(0, 256, (13, 13, 3)).astype(np.uint8)
    np.testing.assert_array_equal(resize_with_pad(image, 13), image)


@pytest.mark.parametrize(
    ("height", "width", "rows", "columns"), [(7, 14, (3, 10), (0, 14)), (14, 7, (0, 14), (3, 10))]
)
def test_padding_is_black_and_centred(height, width, rows, columns):
    pytest.importorskip("PIL", reason="pillow is not installed")
    found = resize_with_pad(np.full((height, width, 3), 211, np.uint8), 14)
    assert found.shape == (14, 14, 3)
    wanted = np.zeros((14, 14, 3), np.uint8)
    wanted[rows[0] : rows[1], columns[0] : columns[1]] = 211
    np.testing.assert_array_equal(found, wanted)


def test_scaling_keeps_the_aspect_ratio():
    pytest.importorskip("PIL", reason="pillow is not installed")
    found = resize_with_pad(np.full((20, 30, 3), 200, np.uint8), 11)
    lit = found[:, :, 0] == 200
    assert (lit.any(axis=1).sum(), lit.any(axis=0).sum()) == (7, 11)


def test_a_shift_moves_and_light_scales():
    image = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (5, 7, 11, 3)), jnp.float32)
    found = np.asarray(random_shift(jax.random.key(0), image, 2, 0.0))
    padded = np.pad(np.asarray(image), ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    for b in range(5):
        shifts = [padded[b, i : i + 7, j : j + 11] for i in range(5) for j in range(5)]
        assert any(np.allclose(found[b], shift, atol=1e-6) for shift in shifts)
    np.testing.assert_allclose(random_shift(jax.random.key(1), image, 0, 0.0), image, atol=1e-6)
    lit = np.asarray(random_shift(jax.random.key(2), image, 0, 0.5))
    assert lit.min() >= -1
    assert lit.max() <= 1
    assert np.abs(lit - image).max() > 0.01


def test_an_observation_whose_batches_disagree_is_refused():
    with pytest.raises(TypeError):
        Observation({}, {}, np.zeros((2, 5), np.int32), np.ones((3, 5), bool))
