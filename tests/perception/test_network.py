"""The estimator's parts: geometry that is undone, crops, and what is learnt from a few pictures."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.perception import fitting, network
from morph_vla.perception.frames import Frames
from morph_vla.perception.things import features
from morph_vla.perception.view import Optics
from morph_vla.suites.objects import ObjectSpec

OPTICS = Optics(48, 45.0, 0.84)
numbers = st.floats(-0.2, 0.2)


def pictures(count: int, seed: int = 0) -> Frames:
    """Squares on a table: red where the object is, blue where the target is, each at a height of its own."""
    rng = np.random.default_rng(seed)
    images = np.full((count, OPTICS.size, OPTICS.size, 3), 90, np.uint8)
    objects = np.zeros((count, 2, 9), np.float32)
    objects[..., 3:] = [1, 0, 0, 0, 1, 0]
    for role, (color, high) in enumerate((((250, 10, 10), 0.02), ((10, 10, 250), 0.0))):
        pixels = rng.uniform(8, OPTICS.size - 8, (count, 2)).astype(np.float32)
        heights = jnp.full(count, high, jnp.float32)
        objects[:, role, :3] = network.place_of(jnp.asarray(pixels), heights, OPTICS)
        for image, (right, down) in zip(images, pixels.round().astype(int), strict=True):
            image[down - 3 : down + 3, right - 3 : right + 3] = color
    hands = np.tile(np.array([0.0, 0.2, -0.9, 0.0, 0.1], np.float32), (count, 1))
    return Frames(images, objects, hands, things(count))


def things(count: int) -> np.ndarray:
    """A box and a bowl."""
    spec = [ObjectSpec(shape, (0.05, 0.04, 0.03), 0.1) for shape in ("box", "bowl")]
    return np.tile(np.stack([features(thing, 0.9) for thing in spec]), (count, 1, 1))


@given(right=numbers, down=numbers, height=numbers)
def test_pixel_and_height_say_the_place(right, down, height):
    """place -> (pixel, height) -> place, for whatever lies below the camera and ahead of it."""
    pixel = OPTICS.size * (0.5 + jnp.asarray([[right, down]], jnp.float32))
    place = network.place_of(pixel, jnp.asarray([height], jnp.float32), OPTICS)
    np.testing.assert_allclose(network.pixels_of(place, OPTICS), pixel, atol=1e-3)
    np.testing.assert_allclose(network.height_of(place, OPTICS), [height], atol=1e-5)
    assert place[0, 2] < 0


def test_the_middle_of_the_picture_is_what_the_camera_looks_at():
    middle = jnp.full((1, 2), OPTICS.size / 2, jnp.float32)
    place = network.place_of(middle, jnp.zeros(1, jnp.float32), OPTICS)
    np.testing.assert_allclose(place, [[0, 0, -1]], atol=1e-6)


def test_a_crop_is_about_its_pixel_and_grey_beyond_the_edge():
    """A crop of side 32 about (5, 40) in a picture of 48: 11 columns and 8 rows lie beyond it."""
    picture = jnp.ones((1, 48, 48, 3)).at[0, 40, 5].set(-1.0)
    crop = np.asarray(network.crop_about(picture, jnp.asarray([[5, 40]], jnp.int32), "object"))
    assert crop.shape == (1, 32, 32, 3)
    assert (crop[0, 16, 16] == -1).all()
    assert (crop[0, :, :11] == 0).all()
    assert (crop[0, 24:] == 0).all()
    assert (crop[0, :24, 11:] != 0).all()


def test_a_targets_crop_is_twice_as_wide():
    picture = jnp.ones((1, 128, 128, 3)).at[0, 64:66, 70:72].set(-1.0)
    crop = np.asarray(network.crop_about(picture, jnp.asarray([[64, 64]], jnp.int32), "target"))
    assert (crop[0, 16, 19] == -1).all()
    assert (crop == -1).sum() == 3


def test_its_context_is_drawn():
    """crop at the middle        0, 0
    hand half a crop right     1, 0        a crop's half: 16 pixels
    hand at what is looked at  height 0
    closed                     1
    opens by a tenth           1
    """
    place = network.place_of(jnp.asarray([[40.0, 24.0]]), jnp.zeros(1), OPTICS)
    hands = jnp.concatenate([place, jnp.asarray([[1.0, 0.1]])], axis=1)
    context = network.context_of(jnp.asarray([[24, 24]], jnp.int32), hands, OPTICS)
    np.testing.assert_allclose(context, [[0, 0, 1, 0, 0, 1, 1]], atol=1e-4)


def test_what_cells_are_told_of_the_hand_is_drawn():
    """A hand at pixel (20, 28) of 48, in the middle of the third cell of the fourth row, that opens by 16
    pixels and is closed by a quarter:

        the second height, one opening wide        right of it, of 3 openings
        .   .  .61  .   .   .
        .   .  .88 .78  .   .                      a cell is half an opening: 1/6
       .61  .  1.  .88  .   .                      -2/6 -1/6 0 1/6 2/6 3/6
    """
    place = network.place_of(jnp.asarray([[20.0, 28.0]]), jnp.zeros(1), OPTICS)
    opening = 16 * -place[:, 2:] / OPTICS.focal
    hands = jnp.concatenate([place, jnp.asarray([[0.25]]), opening], axis=1)
    told = np.asarray(network.beside_hand(hands, OPTICS))
    assert told.shape == (1, 6, 6, network.BESIDE_HAND)
    narrow, middle, wide, right, down, closed, there, large = np.moveaxis(told[0], -1, 0)
    np.testing.assert_allclose(middle[2:4, 2:4], [[0.88, 0.78], [1, 0.88]], atol=5e-3)
    np.testing.assert_allclose(middle[3, 3], np.exp(-1 / 8), atol=1e-4)
    np.testing.assert_allclose([middle[1, 2], middle[3, 0]], np.exp(-1 / 2), atol=1e-4)
    np.testing.assert_allclose([narrow[3, 3], wide[3, 3]], [np.exp(-1 / 2), np.exp(-0.02)], atol=1e-4)
    np.testing.assert_allclose(right, np.tile(np.arange(-2, 4) / 6, (6, 1)), atol=1e-4)
    np.testing.assert_allclose(down, np.tile(np.arange(-3, 3)[:, None] / 6, (1, 6)), atol=1e-4)
    np.testing.assert_allclose(closed, np.full((6, 6), 0.25))
    np.testing.assert_allclose(there, 0.25 * middle)
    np.testing.assert_allclose(large, np.full((6, 6), 2.0), atol=1e-4)


@pytest.mark.slow
def test_it_answers_for_every_picture():
    params, frames = network.init_params(3), pictures(5)
    picture = network.as_picture(jnp.asarray(frames.images))
    hands, things = jnp.asarray(frames.hands), jnp.asarray(frames.things)
    maps = network.coarse(params["coarse"], picture, hands, things, OPTICS)
    assert maps.shape == (5, 6, 6, 2)
    assert network.peaks(maps).shape == (5, 2, 2)
    seen = network.estimate(
        params, jnp.asarray(frames.images), jnp.asarray(frames.hands), jnp.asarray(frames.things), OPTICS
    )
    assert seen.shape == (5, 2, 9)
    assert np.isfinite(seen).all()


@pytest.mark.parametrize(("change", "most"), [(network.worsened, 0.2), (network.recoloured, 0.6)])
def test_the_first_half_of_the_pictures_is_changed(change, most):
    """Those are of other gain and offset, all within -1 to 1; the others as they are."""
    picture = network.as_picture(jnp.asarray(pictures(61).images))
    changed = change(picture, jax.random.key(5))
    same = np.asarray((changed == picture).all(axis=(1, 2, 3)))
    assert not same[:30].any()
    assert same[30:].all()
    assert np.abs(changed).max() <= 1
    away = np.abs(changed - picture)[:30].mean(axis=(1, 2, 3))
    assert 0.02 < np.median(away) < most


def test_half_of_the_worsened_ones_are_blurred():
    """Without noise to speak of, an edge of a blurred picture is less steep than its gain makes of it."""
    picture = network.as_picture(jnp.asarray(pictures(60).images))
    worse = np.asarray(network.worsened(picture, jax.random.key(2)))[:30]
    steps = np.abs(np.diff(worse[..., 0], axis=2)).max(axis=(1, 2))
    assert np.median(steps[:15]) < 0.8 * np.median(steps[15:])


@pytest.fixture(scope="module")
def fitted():
    """Parameters trained on 331 pictures for a few seconds."""
    settings = fitting.Settings(steps=150, batch=11, keep_every=75, say_every=50, rate=4e-3)
    lines: list[fitting.Line] = []
    params = fitting.fit(pictures(331), OPTICS, settings, progress=lambda line, _: lines.append(line))
    return params, lines


@pytest.mark.long
@pytest.mark.slow
def test_it_learns_where_things_are(fitted):
    params, lines = fitted
    fresh = pictures(61, seed=1)
    seen = np.asarray(
        network.estimate(
            params, jnp.asarray(fresh.images), jnp.asarray(fresh.hands), jnp.asarray(fresh.things), OPTICS
        )
    )
    away = np.linalg.norm(seen[..., :3] - fresh.objects[..., :3], axis=-1)
    anywhere = np.linalg.norm(np.roll(fresh.objects[..., :3], 1, axis=0) - fresh.objects[..., :3], axis=-1)
    assert np.median(away) < 0.15 * np.median(anywhere)
    assert [line.step for line in lines] == [50, 100, 150, 188, 238, 288, 338]  # coarse, then fine
    coarse, fine = lines[:4], lines[4:]
    for part in (coarse, fine):
        assert part[-1].loss < part[0].loss / 2
        assert np.isnan(part[0].apart)
    assert coarse[-1].apart < 0.2
    assert fine[-1].apart < 0.1


@pytest.mark.slow
def test_it_begins_with_parameters_that_are_given():
    """The first step's rate is 0: one step leaves what it began with."""
    start = network.init_params(7)
    params = fitting.fit(pictures(37), OPTICS, fitting.Settings(steps=1, batch=3), start=start)
    for left, right in zip(jax.tree.leaves(params), jax.tree.leaves(start), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_to_the_same_parameters(tmp_path: Path):
    settings = fitting.Settings(steps=6, batch=3, keep_every=3, say_every=3)
    frames = pictures(37)
    whole = fitting.fit(frames, OPTICS, settings)

    def stop(at: int, line: fitting.Line, steps: int) -> None:
        if line.step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitting.fit(frames, OPTICS, settings, tmp_path, partial(stop, 3))
    with pytest.raises(KeyboardInterrupt):
        fitting.fit(frames, OPTICS, settings, tmp_path, partial(stop, 11))
    steps: list[int] = []
    resumed = fitting.fit(frames, OPTICS, settings, tmp_path, lambda line, _: steps.append(line.step))
    assert steps == [14]
    for left, right in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(left, right)
