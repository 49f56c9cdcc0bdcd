"""Rendered pictures: things are at the pixels that their poses say, and what is rendered is read back."""

import dataclasses
import importlib.util
import re
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.perception import drawing, fitting, measuring, network
from morph_vla.perception import estimator as estimators
from morph_vla.perception import frames as pictures
from morph_vla.perception.frames import Rendering
from morph_vla.perception.view import view_of
from morph_vla.suites.suite import Camera, initial_state, load
from morph_vla.suites.variation import Variation

if importlib.util.find_spec("mujoco") is None:
    pytest.skip("pictures need the extra 'sim'", allow_module_level=True)

from morph_vla.engines.mujoco.engine import MujocoEngine

SMALL = Rendering(size=96, attempts=1, share=0.2)


@pytest.fixture(scope="module")
def rendered(tasks):
    return pictures.render_task(tasks[0], SMALL)


@pytest.mark.slow
@pytest.mark.gl
def test_things_are_where_their_poses_say(tasks, rendered):
    """The red pixels of the cube and the blue ones of the bowl, about the pixel of each pose."""
    optics = view_of(tasks[0].cameras["exterior"]).optics(96)
    assert rendered.images.shape[1:] == (96, 96, 3)
    near = []
    for image, objects in zip(rendered.images.astype(int), rendered.objects, strict=True):
        pixels = np.asarray(network.pixels_of(jnp.asarray(objects[:, :3]), optics))
        for pixel, channel in zip(pixels, (0, 2), strict=True):
            others = image.sum(axis=-1) - image[..., channel]
            down, right = np.nonzero((image[..., channel] > 90) & (image[..., channel] > 1.3 * others))
            if len(right) > 8:  # hidden behind the hand it is not seen
                near.append(np.hypot(right.mean() - pixel[0], down.mean() - pixel[1]))
    assert len(near) > 10
    assert np.median(near) < 2.5


@pytest.mark.gl
def test_the_cameras_axes_are_the_engines(tasks):
    task = tasks[0]
    worlds = MujocoEngine(robots.load("panda"), task)
    worlds.place({0: initial_state(task, 0, len(worlds.robot.joints))})
    view = view_of(task.cameras["exterior"])
    place, axes = worlds.camera_pose(0, "exterior")
    worlds.close()
    np.testing.assert_allclose(view.axes, axes, atol=1e-6)
    np.testing.assert_allclose(view.position, place, atol=1e-9)


@pytest.mark.gl
def test_a_camera_that_stands_elsewhere_is_rendered_without_the_others(tasks):
    """Initial states move every camera of the suite; the one that is looked through moves alike."""
    moving = Variation(camera_position=0.05, camera_angle=0.05)
    task = dataclasses.replace(tasks[0], variation=moving)
    seen = []
    for shown in (task, pictures.with_camera(task, "exterior", 48)):
        worlds = MujocoEngine(robots.load("panda"), shown)
        worlds.reset({0: initial_state(task, 0, len(worlds.robot.joints))})
        camera = dataclasses.replace(shown.cameras["exterior"], width=48, height=48)
        worlds.suite = dataclasses.replace(shown, cameras={"exterior": camera})
        seen.append(worlds.render(0, "exterior"))
        worlds.close()
    np.testing.assert_array_equal(*seen)


@pytest.mark.slow
@pytest.mark.gl
def test_the_same_again(tasks, rendered):
    again = pictures.render_task(tasks[0], SMALL)
    for left, right in zip(rendered, again, strict=True):
        np.testing.assert_array_equal(left, right)
    other = pictures.render_task(tasks[0], SMALL, number=1)
    assert len(other) != len(again) or (other.images != again.images).any()


@pytest.mark.slow
@pytest.mark.gl
def test_what_was_rendered_is_read_back(tasks, tmp_path):
    done = []
    first = pictures.render(tasks, SMALL, tmp_path, workers=2, progress=lambda n, of: done.append((n, of)))
    assert done == [(1, 2), (2, 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000.npz", "0001.npz"]
    again = pictures.render(tasks, SMALL, tmp_path, progress=lambda *_: pytest.fail("rendered again"))
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.slow
@pytest.mark.gl
def test_pictures_and_states_that_were_cut_off_are_one_sentence(tasks, tmp_path):
    pictures.render(tasks[:1], SMALL, tmp_path, workers=1)
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:-99])
    with pytest.raises(MorphVlaError, match=r"\.npz: pictures that cannot be read \(.*\); remove the file$"):
        pictures.render(tasks[:1], SMALL, tmp_path, workers=1)
    nothing = {name: values[:0] for name, values in pictures.render_task(tasks[0], SMALL)._asdict().items()}
    np.savez(path, **nothing)  # as an earlier version kept a task without a picture
    with pytest.raises(
        MorphVlaError, match=r"^droid_panda:cube_in_bowl: not one picture in .*: remove the f"
    ):
        pictures.render(tasks[:1], SMALL, tmp_path, workers=1)
    path.write_bytes(b"PK")
    with pytest.raises(MorphVlaError, match=r"\.npz: a state of training that cannot be read \(.*\); remove"):
        fitting._restored(path, ())


def test_two_things_of_one_name_and_their_shapes_are_both_known(tasks):
    thing = dataclasses.replace(tasks[0].objects["cube"], shape="cylinder")
    other = dataclasses.replace(tasks[0], objects={**tasks[0].objects, "cube": thing})
    known = fitting._known({"lid": "plate"}, [tasks[0], other, tasks[0]], 0)
    assert known == {"lid": "plate", "cube": "box", "cube (cylinder)": "cylinder"}
    assert fitting._known({}, [tasks[0], other], 1) == {"bowl": "bowl"}


def test_errors_are_measured_in_millimetres(estimator, tasks, rendered, monkeypatch):
    """Of an estimator that is off by a hundredth of the distance, and turned by 30 degrees, of the target."""
    asked = []

    def render_task(task, rendering):
        asked.append(rendering)
        return rendered

    turned = np.array([[c := np.cos(np.pi / 6), s := np.sin(np.pi / 6), 0], [-s, c, 0], [0, 0, 1]])
    off = rendered.objects.copy()
    off[:, 1, :3] += [0.006, 0.0, 0.008]
    columns = off[:, 1, 3:].reshape(-1, 2, 3).transpose(0, 2, 1)
    first = columns @ turned[:2, :2].T.astype(np.float32)
    off[:, 1, 3:] = first.transpose(0, 2, 1).reshape(-1, 6)
    monkeypatch.setattr(measuring, "render_task", render_task)
    monkeypatch.setattr(estimator, "seen", lambda *_: off)
    measured = measuring.measure(estimator, tasks[:1], attempts=1)
    assert asked[0].first == pictures.MEASURED
    assert (asked[0].others, asked[0].attempts) == (0, 1)
    right, wrong = measured.errors
    assert (right.task, right.role, right.pictures) == ("cube_in_bowl", "object", len(rendered))
    assert right.millimetres == right.degrees == (0, 0, 0)
    assert (wrong.task, wrong.role) == ("cube_in_bowl", "target")
    distance = view_of(tasks[0].cameras["exterior"]).distance
    assert wrong.millimetres == pytest.approx([10 * distance] * 3, abs=0.01)
    assert wrong.degrees == pytest.approx([30] * 3, abs=0.01)
    assert measured.true.shape == measured.guessed.shape == (len(rendered), 2, 2)
    np.testing.assert_array_equal(measured.true[:, 0], measured.guessed[:, 0])
    assert (measured.true[:, 1] != measured.guessed[:, 1]).any()


@pytest.mark.gl
def test_a_task_of_which_there_is_no_picture_says_why(tasks):
    broken = dataclasses.replace(tasks[0], expert=dataclasses.replace(tasks[0].expert, tool="no_such_link"))
    words = r"^droid_panda:cube_in_bowl: not one picture: .*expert\.tool: the robot has no link 'no_such"
    with pytest.raises(MorphVlaError, match=words):
        pictures.render_task(broken, dataclasses.replace(SMALL, others=0))
    none = dataclasses.replace(SMALL, others=0, share=0.0)
    with pytest.raises(MorphVlaError, match=r"not one picture: more attempts, or a larger share of them$"):
        pictures.render_task(tasks[0], none)


def test_what_is_measured_on_the_way_is_of_all_tasks():
    """Held-out pictures lie task by task."""
    spread = fitting._spread(np.arange(3, 1003), 5)
    assert spread.tolist() == [3, 253, 503, 752, 1002]
    assert fitting._spread(np.arange(3), 7).tolist() == [0, 1, 2]
    assert not len(fitting._spread(np.arange(0), 7))


def test_a_sheet_has_a_ring_and_a_cross_for_each_thing(tmp_path):
    """Five pictures in two rows of four; a ring's colour where things are, a cross's where they are said."""
    images = np.full((5, 48, 48, 3), 90, np.uint8)
    true, guessed = np.full((5, 2, 2), 12.0), np.full((5, 2, 2), 36.0)
    drawing.sheet(images, true, guessed, tmp_path / "new" / "x.png")
    sheet = np.asarray(Image.open(tmp_path / "new" / "x.png"))
    assert sheet.shape == (2 * 144, 4 * 144, 3)
    first, last = sheet[:144, :144], sheet[144:, 432:]
    assert (last == 255).all()  # there is no eighth
    for color, half in ((drawing.TRUE, slice(0, 72)), (drawing.GUESSED, slice(72, 144))):
        drawn = (first == color).all(axis=-1)
        assert drawn.sum() > 20
        assert drawn.sum() == drawn[half, half].sum()
    drawing.check(None)
    for write in (drawing.check, partial(drawing.sheet, images, true, guessed)):
        with pytest.raises(MorphVlaError, match=r"x\.gif: a sheet is a \.png, \.jpg or \.webp$"):
            write(tmp_path / "x.gif")


def test_smaller_objects_at_the_same_places(tasks):
    task = tasks[0]
    half = pictures.resized(task, 0.5)
    assert half.placement == task.placement
    assert half.objects["cube"].size == tuple(0.5 * side for side in task.objects["cube"].size)
    assert half.objects["cube"].mass == pytest.approx(task.objects["cube"].mass / 8)
    assert half.expert.hover == 0.5 * task.expert.hover
    assert half.success.high == tuple(0.5 * value for value in task.success.high)
    assert pictures.resized(task, 1.0) == task


@given(factor=st.floats(0.3, 3.0), right=st.floats(-0.1, 0.1), ahead=st.floats(-0.1, 0.1))
def test_from_farther_the_table_lies_as_it_did(factor, right, ahead):
    """Its height is the same in the camera's distance, and the camera is as steep."""
    camera, table = Camera((1.1, 0.2, 0.7), (0.5, 0.0, 0.03), 45.0, 96, 96), -0.13
    moved = pictures.farther(camera, table, factor, np.array([right, ahead]))
    before, after = view_of(camera), view_of(moved)
    assert after.distance == pytest.approx(factor * before.distance)
    assert after.optics(96) == pytest.approx(before.optics(96))
    heights = [(view.look_at[2] - table) / view.distance for view in (before, after)]
    assert heights[1] == pytest.approx(heights[0])
    beside = (after.look_at - before.look_at)[:2] / after.distance
    np.testing.assert_allclose(beside, [right, ahead], atol=1e-9)


def test_other_showings_differ_and_come_again(tasks):
    besides = {**tasks[1].objects, "cup": tasks[0].objects["bowl"]}
    showings = [
        pictures.otherwise(tasks[0], "exterior", np.random.default_rng(seed), besides)
        for seed in (3, 3, *range(4, 41))
    ]
    first, again, *others = showings
    assert first == again != others[0]
    plain = [showing for showing in showings if not showing.variation.light]
    assert 0.2 < len(plain) / len(showings) < 0.6
    for showing in plain:  # the suite's own look, from elsewhere
        assert (showing.variation.colors, showing.variation.marks) == (0, 0)
        assert [*showing.objects] == ["cube", "bowl"]
    for showing in showings:
        varied, beside = showing.variation, [name for name in showing.distractors if name in showing.objects]
        assert all(showing.placement[name] == tasks[0].placement[name] for name in ("cube", "bowl"))
        assert varied.light in (0, pictures.LIGHT)
        assert varied.camera_angle <= pictures.ASIDE
        assert varied.distractors == len(beside)
        assert {*beside} <= {"can", "mug"}  # a cup is a bowl, as the target is
        assert [*showing.objects] == ["cube", "bowl", *beside]
        assert list(showing.cameras) == ["exterior"]
    assert {len(showing.objects) for showing in showings} == {2, 3, 4}
    assert {showing.variation.marks for showing in showings} >= {0, pictures.MARKS}


def test_other_things_lie_in_the_field_and_a_fifth_beyond(tasks):
    crowded = pictures.with_things(tasks[0], tasks[1].objects)
    place = crowded.placement["can"]
    assert place.x == pytest.approx((0.42 - 0.028, 0.56 + 0.028))
    assert place.y == pytest.approx((-0.2 - 0.082, 0.21 + 0.082))
    assert {*initial_state(crowded, 0, 8).poses} == {"cube", "bowl", "can", "mug"}
    assert pictures.with_things(tasks[0], {}) == tasks[0]
    more = pictures.with_things(
        load("droid_panda:cube_in_bowl", ["variation.distractors=2"]), tasks[1].objects
    )
    assert [*more.objects] == ["cube", "bowl", "lemon", "tin", "can", "mug"]


def test_tasks_of_which_no_estimator_learns(tasks):
    task = tasks[0]
    wrist = {"wrist": task.cameras["wrist"]}
    sentence = "droid_panda:cube_in_bowl: no camera 'exterior' (it has wrist)"
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        pictures.check([dataclasses.replace(task, cameras=wrist)], "exterior")
    two = dataclasses.replace(task.success, also={"can": "mug"})
    sentence = "droid_panda:cube_in_bowl: 2 objects are put somewhere; an estimator sees one"
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        pictures.check([dataclasses.replace(task, success=two)], "exterior")


def test_trainings_that_do_not_begin(tasks, tmp_path):
    with pytest.raises(MorphVlaError, match=r"^pictures of 40 pixels: a side must be a multiple of 16, and"):
        fitting.train(tasks, tmp_path / "a", rendering=Rendering(size=40))
    with pytest.raises(MorphVlaError, match=r"^pictures of 1040 pixels: .* at most 1024$"):
        fitting.train(tasks, tmp_path / "a", rendering=Rendering(size=1040))
    lower = dataclasses.replace(tasks[1], table=dataclasses.replace(tasks[1].table, height=-0.05))
    words = r"can_in_mug looks at a place 8\.9% .* and that of droid_panda:cube_in_bowl 3\.3%: train two"
    with pytest.raises(MorphVlaError, match=words):
        fitting.train([tasks[0], lower], tmp_path / "a")
    low = dataclasses.replace(tasks[0].cameras["exterior"], position=(1.1, 0.0, 0.2))
    other = dataclasses.replace(tasks[0], cameras={"exterior": low})
    with pytest.raises(MorphVlaError, match=r"stands 15\.8 degrees high .* 48\.2 .*: train two estimators$"):
        fitting.train([tasks[0], other], tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("mine")
    with pytest.raises(
        MorphVlaError, match=r"is not empty and holds no training of an estimator: give another"
    ):
        fitting.train(tasks, tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / fitting.SETTINGS).write_text("{}")
    with pytest.raises(
        MorphVlaError, match=r"holds another estimator's training, or an earlier version's: give"
    ):
        fitting.train(tasks, tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c"]


@pytest.mark.slow
@pytest.mark.gl
def test_the_whole_of_it_small(tasks, tmp_path):
    settings = fitting.Settings(steps=2, batch=3)
    rendering = Rendering(size=48, attempts=1, share=0.1, others=0)
    made = fitting.train(tasks, tmp_path / "poses", settings, rendering, workers=1, command="morph-vla x")
    assert made.about.steps == 2
    assert made.about.objects == {"cube": "box", "can": "cylinder"}
    assert made.about.targets == {"bowl": "bowl", "mug": "mug"}
    assert made.about.above == pytest.approx(0.0333, abs=1e-3)
    assert made.about.robots == ("panda",)
    assert made.about.command == "morph-vla x"
    assert str(made.about) == f"cube, can, bowl, mug on {made.about.pictures} pictures, 2 steps"
    again = fitting.train(tasks, tmp_path / "poses", settings, rendering, workers=1, command="morph-vla x")
    assert again.sha256 == made.sha256
    assert again.about == made.about  # it took no time, and says what the training took
    more = fitting.train(tasks[:1], tmp_path / "more", settings, rendering, workers=1, start=made)
    assert (made.about.start, more.about.start) == ("", made.sha256)
    assert more.sha256 != made.sha256
    assert more.about.objects == made.about.objects  # it knows what it was shown before
    assert estimators.load(tmp_path / "more").about == more.about
    with pytest.raises(MorphVlaError, match=r"holds another estimator's training"):
        fitting.train(tasks[:1], tmp_path / "more", settings, rendering, workers=1)


def test_trainings_that_begin_with_an_estimator_of_another_camera(tasks, estimator, tmp_path):
    sentence = (
        "random has pictures of 48 pixels from a camera that stands 48.2 degrees high and sees 45.0, and this"
        " one 64 from one that stands 48.2 degrees high and sees 45.0: begin without it"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        fitting.train(tasks, tmp_path / "a", rendering=Rendering(size=64), start=estimator)
    low = dataclasses.replace(tasks[0].cameras["exterior"], position=(1.1, 0.0, 0.2))
    other = dataclasses.replace(tasks[0], cameras={"exterior": low, "side": low})
    with pytest.raises(MorphVlaError, match=r"this one 48 from one that stands 15\.8 .*: begin without it$"):
        fitting.train([other], tmp_path / "a", rendering=Rendering(size=48), start=estimator)
    lower = [dataclasses.replace(t, table=dataclasses.replace(t.table, height=-0.05)) for t in tasks]
    words = r"^random .* a place 3\.3% of its distance above the table, and this one 8\.9%: begin without it$"
    with pytest.raises(MorphVlaError, match=words):
        fitting.train(lower, tmp_path / "a", rendering=Rendering(size=48), start=estimator)
    sentence = (
        "random looks through camera 'exterior', and this one is to look through 'side': begin without it"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        fitting.train([other], tmp_path / "a", rendering=Rendering(48, "side"), start=estimator)
    assert not (tmp_path / "a").exists()
