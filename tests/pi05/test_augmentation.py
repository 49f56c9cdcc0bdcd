"""Augmentation: openpi's own pictures from the same key, and what each piece does."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import FOLDER

from morph_vla.pi05 import augmentation
from morph_vla.pi05.config import CAMERAS

augment = jax.jit(augmentation.augment, static_argnums=2)
KEYS = jax.random.split(jax.random.key(17), 501)


@pytest.fixture(scope="module")
def recorded():
    with np.load(FOLDER / "preprocessing.npz") as data:
        return {name: data[name] for name in data.files}


@pytest.mark.parametrize("camera", CAMERAS)
def test_the_same_key_gives_openpis_pictures(recorded, camera):
    result = augment(jax.random.key(3), jnp.asarray(recorded["augment/in"]), camera)
    np.testing.assert_allclose(result, recorded[f"augment/{camera}"], rtol=0, atol=2e-5)
    # Every picture is another one, but for those of a wrist camera that keep their colours.
    same = np.abs(result - recorded["augment/in"]).max(axis=(1, 2, 3)) < 1e-4
    assert same[:4].any() == ("wrist" in camera)
    assert not same.all()


def test_both_wrist_cameras_are_drawn_alike_and_another_key_draws_anew(recorded):
    images = jnp.asarray(recorded["augment/in"])
    left, right = (augment(jax.random.key(3), images, name) for name in CAMERAS[1:])
    np.testing.assert_array_equal(left, right)
    assert np.abs(augment(jax.random.key(4), images, CAMERAS[1]) - left).max() > 0.05


def test_a_crop_scales_a_turn_turns_and_outside_is_black():
    """A turn far beyond the bounds, where one can see what happens."""
    image = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, (40, 40, 3)), jnp.float32)
    still, none = jnp.zeros(2), jnp.float32(0)
    # The middle 38 of 40 rows fill 40: the answer's first row shows row 19.5 - 0.95 * 19.5.
    place = 19.5 + 0.95 * (np.arange(40) - 19.5)
    column = image[:, 7:8].repeat(40, 1)
    wanted = np.stack([np.interp(place, np.arange(40), c) for c in np.asarray(column)[:, 0].T], -1)
    cropped = augmentation.crop_and_rotate(column, still, none)
    np.testing.assert_allclose(cropped[:, 20], wanted, atol=1e-5)
    cropped = augmentation.crop_and_rotate(image, still, none)
    turned = augmentation.crop_and_rotate(image, still, jnp.float32(np.pi / 2))
    np.testing.assert_allclose(turned, np.rot90(cropped), atol=1e-4)
    away = augmentation.crop_and_rotate(image, jnp.asarray([50.0, 0.0]), none)
    np.testing.assert_array_equal(away, np.zeros((40, 40, 3)))
    # At the bounds themselves, a corner shows what is outside.
    tilted = augmentation.crop_and_rotate(image, jnp.ones(2), jnp.float32(np.deg2rad(5)))
    assert (np.asarray(tilted) == 0).any()
    assert (np.asarray(tilted) > 0).mean() > 0.9


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_hue_saturation_and_value_are_the_usual_ones(levels):
    colour = np.asarray(levels, np.float32) / 20
    hue, saturation, value = augmentation.to_hsv(jnp.asarray(colour).reshape(1, 1, 3))
    usual = colorsys.rgb_to_hsv(*map(float, colour))
    turn = abs(float(hue[0, 0]) - usual[0]) % 1
    assert min(turn, 1 - turn) < 1e-5
    np.testing.assert_allclose([saturation[0, 0], value[0, 0]], usual[1:], atol=1e-6)
    np.testing.assert_allclose(augmentation.from_hsv(hue, saturation, value)[0, 0], colour, atol=1e-5)


def test_brightness_and_contrast_by_value():
    value = jnp.asarray([[0.0, 0.2, 0.5, 0.7, 1.0]])
    for amount, wanted in ((0.25, [0.25, 0.4, 0.625, 0.775, 1.0]), (-0.25, [0, 0.15, 0.375, 0.525, 0.75])):
        np.testing.assert_allclose(augmentation.brighten(value, jnp.float32(amount))[0], wanted, atol=1e-6)
    np.testing.assert_allclose(augmentation.contrast(value, jnp.float32(0)), value, atol=1e-6)
    steep = np.tan(np.pi / 4 * 1.4)
    result = augmentation.contrast(jnp.asarray([[0.0, 0.2, 0.45, 0.7, 1.0]]), jnp.float32(0.4))[0]
    # The lines meet at s / 2 (1 + s) = 0.33 and 0.67.
    wanted = [0, 0.2 / steep, 0.5 - 0.05 * steep, 1 - 0.3 / steep, 1]
    np.testing.assert_allclose(result, wanted, atol=1e-6)


@given(st.floats(-0.4, 0.4))
def test_contrast_keeps_order_and_ends(amount):
    value = jnp.linspace(0, 1, 53)[None]
    result = np.asarray(augmentation.contrast(value, jnp.float32(amount)))[0]
    assert (np.diff(result) > 0).all()
    np.testing.assert_allclose(result[[0, 26, -1]], [0, 0.5, 1], atol=1e-6)


def test_what_is_drawn_lies_within_the_bounds():
    by = jax.vmap(augmentation.draw_jitter)(KEYS)
    for amount, bound in ((by.brightness, 0.3), (by.contrast, 0.4), (by.hue, 0.1)):
        assert 0.95 * bound < np.abs(amount).max() <= bound
    assert abs(float(by.applied.mean()) - 0.5) < 0.07
    shift, angle = jax.vmap(lambda key: augmentation.draw_place(key, 100, 60))(KEYS)
    np.testing.assert_allclose(np.abs(shift).max(axis=0), [2.5, 1.5], rtol=0.03)
    assert 4.8 < np.rad2deg(np.abs(angle).max()) <= 5


def test_black_stays_black_and_colours_stay_colours(recorded):
    for seed in range(5):
        result = augment(jax.random.key(seed), jnp.asarray(recorded["augment/in"]), CAMERAS[0])
        assert np.isfinite(result).all()
        assert np.abs(result).max() <= 1 + 1e-5
