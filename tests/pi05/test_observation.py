"""Raw frames to what the model sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import FOLDER

from morph_vla.pi05 import Observation
from morph_vla.pi05.observation import fit, fitted, random_shift, resize_with_pad, to_unit


@pytest.fixture(scope="module")
def recorded():
    with np.load(FOLDER / "preprocessing.npz") as data:
        return {name: data[name] for name in data.files}


SIZES = ("13x29", "31x19", "7x5", "37x37")


def test_pixels_to_unit():
    pixels = np.array([0, 51, 255], np.uint8).reshape(1, 1, 1, 3)
    result = to_unit(jnp.asarray(pixels))
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result.ravel(), [-1.0, -0.6, 1.0], atol=1e-6)
    np.testing.assert_array_equal(to_unit(result), result)


def test_an_image_of_the_right_size_is_as_it_was():
    image = np.random.default_rng(0).integers(0, 256, (13, 13, 3)).astype(np.uint8)
    np.testing.assert_array_equal(resize_with_pad(image, 13), image)


@pytest.mark.parametrize(
    ("height", "width", "rows", "columns"), [(7, 14, (3, 10), (0, 14)), (14, 7, (0, 14), (3, 10))]
)
def test_padding_is_black_and_centred(height, width, rows, columns):
    pytest.importorskip("PIL", reason="pillow is not installed")
    result = resize_with_pad(np.full((height, width, 3), 211, np.uint8), 14)
    assert result.shape == (14, 14, 3)
    wanted = np.zeros((14, 14, 3), np.uint8)
    wanted[rows[0] : rows[1], columns[0] : columns[1]] = 211
    np.testing.assert_array_equal(result, wanted)


def test_scaling_keeps_the_aspect_ratio():
    pytest.importorskip("PIL", reason="pillow is not installed")
    result = resize_with_pad(np.full((20, 30, 3), 200, np.uint8), 11)
    lit = result[:, :, 0] == 200
    assert (lit.any(axis=1).sum(), lit.any(axis=0).sum()) == (7, 11)


# tests/conftest.py has XLA optimize nothing; equal to the last bit is what users run.
as_users_run_it = jax.jit(fit, static_argnums=1, compiler_options={"xla_backend_optimization_level": 3})


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_is_fitted_as_openpis_model_does(recorded, size):
    picture = jnp.asarray(recorded[f"resize/{size}/in"])[None]
    result = as_users_run_it(picture, 17)
    assert result.dtype == jnp.uint8
    np.testing.assert_array_equal(result[0], recorded[f"resize/{size}/uint8"])
    result = fit(to_unit(picture), 17)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result[0], recorded[f"resize/{size}/float"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_a_frame_is_fitted_as_openpis_client_does(recorded, size):
    pytest.importorskip("PIL", reason="pillow is not installed")
    picture = recorded[f"resize/{size}/in"]
    result = resize_with_pad(picture, 17)
    np.testing.assert_array_equal(result, recorded[f"resize/{size}/client"])
    # Pillow rounds after each axis, JAX once.
    batch = np.asarray(fit(jnp.asarray(picture)[None], 17))[0]
    assert np.abs(result.astype(int) - batch).max() <= 1


def test_black_is_minus_one_and_the_picture_is_centred():
    result = np.asarray(fit(jnp.full((2, 5, 14, 3), 0.5), 14))
    assert (result[:, :4] == -1).all()
    np.testing.assert_allclose(result[:, 4:9], 0.5, atol=1e-6)
    assert (result[:, 9:] == -1).all()
    # One row more below than above when the rest is odd.
    result = np.asarray(fit(jnp.full((1, 5, 14, 3), 200, jnp.uint8), 14))
    assert (result[0, :, 0, 0] > 0).tolist() == [False] * 4 + [True] * 5 + [False] * 5
    same = jnp.zeros((1, 14, 14, 3), jnp.uint8)
    assert fit(same, 14) is same


def test_fine_stripes_become_grey():
    stripes = jnp.asarray(np.tile([-1.0, 1.0], 32)[None, None, :, None] * np.ones((1, 64, 1, 3)), jnp.float32)
    assert np.abs(fit(stripes, 16)).max() < 0.2  # without antialiasing: 1


def test_the_scaled_size_is_rounded_down():
    assert fitted(480, 640, 224) == (168, 224)
    assert fitted(13, 29, 17) == (7, 17)
    assert fitted(720, 1280, 224) == (126, 224)


def test_a_shift_moves_and_light_scales():
    image = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (5, 7, 11, 3)), jnp.float32)
    result = np.asarray(random_shift(jax.random.key(0), image, 2, 0.0))
    padded = np.pad(np.asarray(image), ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    for b in range(5):
        shifts = [padded[b, i : i + 7, j : j + 11] for i in range(5) for j in range(5)]
        assert any(np.allclose(result[b], shift, atol=1e-6) for shift in shifts)
    np.testing.assert_allclose(random_shift(jax.random.key(1), image, 0, 0.0), image, atol=1e-6)
    lit = np.asarray(random_shift(jax.random.key(2), image, 0, 0.5))
    assert lit.min() >= -1
    assert lit.max() <= 1
    assert np.abs(lit - image).max() > 0.01


def test_an_observation_whose_batches_disagree_is_refused():
    with pytest.raises(TypeError):
        Observation({}, {}, np.zeros((2, 5), np.int32), np.ones((3, 5), bool))
