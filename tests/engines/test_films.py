"""Films: what they show, and that making them leaves the worlds alone."""

import dataclasses

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines import films
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites import suite


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def test_views_stand_in_a_row_cut_to_the_lowest():
    first, second = noise(7, 5), noise(11, 3, 1)
    row = films.in_a_row([first, second])
    assert row.shape == (7, 8, 3)
    assert np.array_equal(row[:, :5], first)
    assert np.array_equal(row[:, 5:], second[:7])


def test_insets_lie_in_the_lower_left_corner_and_the_scene_stays():
    scene, views = noise(101, 211), [noise(23, 31, 1), noise(29, 23, 2)]
    before = scene.copy()
    film = films.with_insets(scene, views)
    assert np.array_equal(scene, before)
    small = [films.shrunk(view, films.INSET) for view in views]
    top = 101 - films.BORDER - films.INSET
    left = films.BORDER
    for view in small:
        right = left + view.shape[1]
        assert np.array_equal(film[top : top + films.INSET, left:right], view)
        left = right + films.BORDER
    assert np.array_equal(film[: top - films.BORDER], scene[: top - films.BORDER])
    assert np.array_equal(film[:, left:], scene[:, left:])


def test_an_inset_that_does_not_fit_is_left_out():
    scene = noise(101, 67)
    assert np.array_equal(films.with_insets(scene, [noise(23, 29)]), scene)


def test_shrinking_takes_pixels_as_they_are():
    view = noise(6, 10)
    assert np.array_equal(films.shrunk(view, 3), view[1::2, 1::2])
    assert np.array_equal(films.shrunk(view, 6), view)


def test_the_camera_stands_further_away_where_objects_do(tiny_suite):
    far = dataclasses.replace(
        tiny_suite,
        placement={
            name: dataclasses.replace(place, x=(3 * place.x[0], 3 * place.x[1]), y=(0.0, 0.0))
            for name, place in tiny_suite.placement.items()
        },
    )
    near = dataclasses.replace(
        tiny_suite,
        placement={
            name: dataclasses.replace(place, y=(0.0, 0.0)) for name, place in tiny_suite.placement.items()
        },
    )
    a, b = (films.viewpoint(one) for one in (near, far))
    height = tiny_suite.table.height
    assert np.allclose(3 * (np.array(a.position) - [0, 0, height]), np.array(b.position) - [0, 0, height])
    assert a.fovy == b.fovy
    assert a.position[0] > max(place.x[1] for place in near.placement.values())  # across from the robot


@pytest.mark.gl
@pytest.mark.parametrize("name", ["droid_panda:can_in_mug", "so101_pick_orange", "g1_dex1_red_block"])
def test_a_film_shows_the_objects_and_leaves_the_worlds_alone(name):
    chosen = suite.load(name)
    engine = MujocoEngine(robots.load(chosen.robot), chosen)
    state = suite.initial_state(chosen, 0, len(engine.robot.joints))
    engine.reset({0: state})
    before, seen = engine.data(0).qpos.copy(), engine.render(0, next(iter(chosen.cameras)))
    film = films.frame(engine, 0)
    assert film is not None
    assert film.shape == (films.HEIGHT, films.WIDTH, 3)
    assert np.array_equal(engine.data(0).qpos, before)
    assert np.array_equal(engine.render(0, next(iter(chosen.cameras))), seen)
    scene = engine.scene_view(0)
    assert int((scene == 0).all(axis=-1).sum()) < 0.01 * scene.shape[0] * scene.shape[1]  # a room, no void
    color = np.asarray(chosen.objects[chosen.success.object].color)
    shades = scene / np.maximum(scene.max(axis=-1, keepdims=True), 1)
    like = np.abs(shades - color / color.max()).max(axis=-1) < 0.12
    assert int(like.sum()) > 40  # pixels of the object's own colour
    engine.close()
