"""Films: what they show, that making them changes no episode, and that a success and a failure have one."""

import dataclasses

import av
import numpy as np
import pytest
from test_rollout import Wave

from morph_vla import robots
from morph_vla.sim import films, suite
from morph_vla.sim.mujoco import MujocoEngine
from morph_vla.sim.rollout import Settings, evaluate
from morph_vla.sim.video import VideoWriter, write_picture


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


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        ("ssf", [0, 2]),
        ("Ssf", [2]),
        ("SFs", []),
        ("FFs", [2]),
        ("ffF", []),
        ("Sse", []),
        ("", []),
    ],
)
def test_one_success_and_one_failure_are_worth_filming(trials, wanted):
    given = [
        {"episode": i, "success": letter in "sS", "error": "x" if letter == "e" else None,
         "video": "v.mp4" if letter.isupper() else None}
        for i, letter in enumerate(trials)
    ]  # fmt: skip
    assert films.worth_filming(given) == wanted


@pytest.mark.gl
@pytest.mark.parametrize("name", ["droid_panda:can_in_mug", "so101_pick_orange", "g1_dex1_red_block"])
def test_a_film_shows_the_objects_and_leaves_the_worlds_alone(name):
    chosen = suite.load(name)
    engine = MujocoEngine(robots.load(chosen.robot), chosen)
    state = suite.initial_state(chosen, 0, len(engine.robot.joints))
    engine.reset(0, state)
    before, seen = engine.data(0).qpos.copy(), engine.render(0, next(iter(chosen.cameras)))
    film = films.frame(engine, 0)
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


@pytest.mark.gl
def test_filming_changes_no_episode_and_leaves_a_poster(tiny_suite, tmp_path, monkeypatch):
    plain = evaluate(tiny_suite, Wave(), Settings(3, parallel=3, workers=1, videos=0), folder=tmp_path / "a")
    assert not (tmp_path / "a/videos").exists()
    monkeypatch.setattr(films, "worth_filming", lambda trials: [2])
    settings = Settings(3, parallel=3, workers=1, videos=1)
    filmed = evaluate(tiny_suite, Wave(), settings, folder=tmp_path / "b")
    assert [trial.pop("video") for trial in filmed["trials"]] == ["videos/000.mp4", None, "videos/002.mp4"]
    assert [trial.pop("video") for trial in plain["trials"]] == [None] * 3
    assert filmed["trials"] == plain["trials"]
    names = sorted(path.name for path in (tmp_path / "b/videos").iterdir())
    assert names == ["000.jpg", "000.mp4", "002.jpg", "002.mp4"]
    with av.open(str(tmp_path / "b/videos/002.mp4")) as container:
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(shown) == tiny_suite.max_steps + 1
    with av.open(str(tmp_path / "b/videos/002.jpg")) as picture:
        (poster,) = (frame.to_ndarray(format="rgb24") for frame in picture.decode(video=0))
    assert np.abs(poster.astype(int) - shown[-1]).mean() < 6 < np.abs(poster.astype(int) - 255).mean()


def test_a_video_that_is_discarded_leaves_nothing(tmp_path):
    writer = VideoWriter(tmp_path / "clip.mp4", 15.0)
    writer.add(noise(18, 22))
    writer.discard()
    empty = VideoWriter(tmp_path / "none.mp4", 15.0)
    empty.finish()
    empty.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_that_of_the_frame_cut_to_even(tmp_path):
    frame = np.zeros((25, 31, 3), np.uint8)
    frame[:, 16:] = (200, 120, 40)
    write_picture(tmp_path / "still.jpg", frame)
    with av.open(str(tmp_path / "still.jpg")) as container:
        (seen,) = (one.to_ndarray(format="rgb24") for one in container.decode(video=0))
    assert seen.shape == (24, 30, 3)
    assert np.abs(seen.astype(int) - frame[:24, :30]).mean() < 5
