"""An estimator's file, what it refuses in words, and that an answer does not depend on its company."""

import dataclasses
import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.files import dropin
from morph_vla.perception import estimator as estimators
from morph_vla.perception import frames, network
from morph_vla.perception.things import SHAPES, features, things_of
from morph_vla.perception.view import view_of
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.suite import load_tasks
from morph_vla.weights import tensors

HANDS = np.array([[0.0, 0.2, -0.9, 0.0, 0.1]], np.float32)
THINGS = np.stack([features(ObjectSpec(shape, (0.05, 0.04, 0.03), 0.1), 0.9) for shape in ("box", "bowl")])[
    None
]


def of(estimator, tmp_path):
    """A copy of its folder."""
    return shutil.copytree(estimator.source, tmp_path / "copy")


@pytest.mark.slow
def test_it_comes_back_in_16_bits(estimator, about):
    assert estimator.about == about
    for kept, made in zip(
        jax.tree.leaves(estimator.params), jax.tree.leaves(network.init_params(5)), strict=True
    ):
        assert kept.dtype == np.float32
        np.testing.assert_array_equal(kept, np.asarray(made).astype(np.float16))


def test_an_answer_does_not_depend_on_its_company(estimator, tasks):
    view = estimator.view(tasks)
    images = np.random.default_rng(0).integers(0, 255, (13, 48, 48, 3)).astype(np.uint8)
    hands, things = np.tile(HANDS, (13, 1)), np.tile(THINGS, (13, 1, 1))
    together = estimator.seen(images, hands, things, view)
    assert together.shape == (13, 2, 9)
    for index in (0, 9, 10, 12):
        some = slice(index, index + 1)
        alone = estimator.seen(images[some], hands[some], things[some], view)
        np.testing.assert_array_equal(alone, together[some])


def test_poses_are_those_of_the_view(estimator, tasks):
    view = estimator.view(tasks)
    images = np.full((3, 48, 48, 3), 77, np.uint8)
    hands, things = np.tile(HANDS, (3, 1)), np.tile(THINGS, (3, 1, 1))
    poses = estimator.poses(images, hands, things, view)
    assert (poses.shape, poses.dtype) == ((3, 14), np.float32)
    seen = estimator.seen(images, hands, things, view)
    np.testing.assert_array_equal(poses[1].reshape(2, 7), view.poses(seen[1]))


def test_other_cameras_and_things_are_refused_in_a_sentence(estimator, tasks):
    task = tasks[0]
    camera = task.cameras["exterior"]

    def refused(sentence, *changed, **changes):
        with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}"):
            estimator.view([*changed, dataclasses.replace(task, **changes)])

    wrist = {"wrist": task.cameras["wrist"]}
    refused(
        "droid_panda:cube_in_bowl has no camera 'exterior', which random looks through (it has wrist)",
        cameras=wrist,
    )
    moved = dataclasses.replace(camera, position=(1.1, 0.1, 0.7))
    refused("camera 'exterior' stands elsewhere in droid_panda:cube", task, cameras={"exterior": moved})
    low = dataclasses.replace(camera, position=(1.1, 0.0, 0.2))
    refused(
        "camera 'exterior' of droid_panda:cube_in_bowl stands 15.8 degrees high and sees 45.0, and random was"
        " trained with one that stands 48.2 degrees high and sees 45.0: `morph-vla poses train` makes one",
        cameras={"exterior": low},
    )
    wide = dataclasses.replace(camera, fovy=60.0)
    refused(
        "camera 'exterior' of droid_panda:cube_in_bowl stands 48.2 degrees high and sees 60.0",
        cameras={"exterior": wide},
    )
    ball = dataclasses.replace(task.objects["cube"], shape="sphere")
    refused(
        "droid_panda:cube_in_bowl: random was never shown what 'cube' is (sphere) being moved, as `morph-vla"
        " poses train` would; of these it knows box, cylinder",
        objects={**task.objects, "cube": ball},
    )
    refused(
        "droid_panda:cube_in_bowl: random was never shown what 'bowl' is (bowl) being moved, as",
        success=dataclasses.replace(task.success, object="bowl", target="cube"),
    )
    refused(
        "camera 'exterior' of droid_panda:cube_in_bowl looks at a place 8.9% of its distance above the table,"
        " and random was trained with one that looks 3.3% above it: `morph-vla poses train` makes one for it",
        table=dataclasses.replace(task.table, height=-0.05),
    )
    renamed = {"die": task.objects["cube"], "bowl": task.objects["bowl"]}  # a box by another name is one
    success = dataclasses.replace(task.success, object="die")
    estimator.view([dataclasses.replace(task, objects=renamed, success=success)])


def test_things_are_their_shape_and_their_size(tasks):
    """A cube of 4 cm from 0.8 m away: a box (the first shape) of half a tenth, three times."""
    cube, bowl = things_of(tasks[0], 0.8)
    assert cube.tolist() == pytest.approx([1, *[0] * 8, 0.5, 0.5, 0.5])
    assert (bowl[:9] == [shape == "bowl" for shape in SHAPES]).all()
    other = dataclasses.replace(tasks[0].objects["cube"], color=(0.0, 0.0, 0.0), mass=3.0)
    np.testing.assert_array_equal(features(other, 0.8), cube)


def test_several_objects_are_refused(estimator, tasks):
    two = dataclasses.replace(tasks[0].success, also={"can": "mug"})
    objects = {**tasks[0].objects, **tasks[1].objects}
    sentence = "droid_panda:cube_in_bowl: 2 objects are put somewhere, and random sees one"
    with pytest.raises(MorphVlaError, match=f"^{sentence}$"):
        estimator.view([dataclasses.replace(tasks[0], success=two, objects=objects)])


def test_a_robot_of_two_hands_is_refused():
    words = "^g1_dex1_red_block.*: robot 'g1_dex1' has 2 hands; an estimator is told of one$"
    with pytest.raises(MorphVlaError, match=words):
        frames.check(load_tasks("g1_dex1_red_block"), "cam_left_high")


def test_a_folder_without_one(tmp_path):
    sentence = (
        f"{tmp_path} is no estimator of poses: estimator.json and estimator.safetensors are expected;"
        " `morph-vla poses train` makes one, and poses-exterior comes with the package"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        estimators.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("nothing", "Expecting value"),
        ({"optics": {"size": 40, "fovy": 45, "rise": 1}}, "pictures of 40 pixels"),
        ({"optics": {"size": 1040, "fovy": 45, "rise": 1}}, "pictures of 1040 pixels: a side must be a"),
        ({"optics": {"size": 48, "fovy": 45}}, "its optics have no size, fovy and rise"),
        ({"optics": {"size": float("inf"), "fovy": 45, "rise": 1}}, "its optics have no size, fovy and rise"),
        ({"optics": {"size": 48, "fovy": float("nan"), "rise": 1}}, "its optics have no size, fovy and rise"),
        (
            {"optics": {"size": 48, "fovy": 180, "rise": 0.5}},
            "a camera that sees 180 degrees and stands 28.6",
        ),
        ([], "its optics have no size, fovy and rise"),
        ({"camera": ["exterior"]}, "it names no camera and robots"),
        ({"robots": "panda"}, "it names no camera and robots"),
        ({"targets": [1]}, "objects are no names with what they are"),
        ({"objects": ["box"]}, "objects are no names with what they are"),
        ({"objects": {"cube": 3}}, "objects are no names with what they are"),
    ],
)
def test_a_description_of_something_else(estimator, tmp_path, content, why):
    folder = of(estimator, tmp_path)
    path = folder / estimators.ABOUT
    if isinstance(content, dict):
        content = {**json.loads(path.read_text()), **content}
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    sentence = f"{path} does not describe an estimator ({why}"
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}"):
        estimators.load(folder)


def test_parameters_of_another_shape_name_the_leaf(estimator, tmp_path):
    folder = of(estimator, tmp_path)
    path = folder / estimators.PARAMETERS
    every, _ = tensors.read_header(path)
    for name, shape, others in (("coarse/map/bias", (3,), 0), ("coarse/more/bias", (2,), 0)):
        kept = {leaf: tensor for leaf, tensor in every.items() if leaf != name}
        drafts = {
            leaf: tensors.Draft(tensor.shape, tensor.dtype, lambda tensor=tensor: [tensor.read()])
            for leaf, tensor in kept.items()
        }
        drafts[name] = tensors.Draft(shape, np.dtype(np.float16), lambda shape=shape: [np.zeros(shape)])
        other = tmp_path / f"other{shape[0]}{others}"
        shutil.copytree(folder, other)
        tensors.write(other / estimators.PARAMETERS, drafts, {})
        sentence = f"{other / estimators.PARAMETERS}: {name} is not as this version's estimator has it"
        with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
            estimators.load(other)


def test_parameters_that_are_not_finite_are_neither_written_nor_read(estimator, about, tmp_path):
    params = {**estimator.params, "coarse": dict(estimator.params["coarse"])}
    params["coarse"]["map"] = {**params["coarse"]["map"], "bias": np.array([1.0, 7e4], np.float32)}
    words = "coarse/map/bias is not finite in 16 bits: the training diverged, and nothing is written$"
    with pytest.raises(MorphVlaError, match=f"x: {words}"):
        estimators.save(tmp_path / "x", params, about)
    assert not (tmp_path / "x").exists()
    folder = of(estimator, tmp_path)
    every, _ = tensors.read_header(folder / estimators.PARAMETERS)
    drafts = {
        leaf: tensors.Draft(tensor.shape, tensor.dtype, lambda tensor=tensor: [tensor.read() * np.inf])
        for leaf, tensor in every.items()
    }
    with np.errstate(invalid="ignore"):
        tensors.write(tmp_path / "all.safetensors", drafts, {})
    shutil.move(tmp_path / "all.safetensors", folder / estimators.PARAMETERS)
    with pytest.raises(MorphVlaError, match=r"estimator\.safetensors: \S+ has values that are not finite$"):
        estimators.load(folder)


@pytest.mark.slow
def test_a_pixel_lies_on_the_ray_of_the_camera_that_sees_it(estimator, tasks):
    """A camera that sees a degree more is taken; what it sees lies farther apart."""
    camera = tasks[0].cameras["exterior"]
    wide = dataclasses.replace(camera, fovy=46.0)
    images = np.random.default_rng(0).integers(0, 255, (1, 48, 48, 3)).astype(np.uint8)
    as_trained, wider = (
        estimator.seen(
            images, HANDS, THINGS, estimator.view([dataclasses.replace(tasks[0], cameras={"exterior": c})])
        )
        for c in (camera, wide)
    )
    assert not np.allclose(as_trained, wider, atol=1e-4)
    picture, hands, things = map(jnp.asarray, (images, HANDS, THINGS))
    params = jax.tree.map(jnp.asarray, estimator.params)
    direct = network.estimate(params, picture, hands, things, view_of(wide).optics(48))
    np.testing.assert_allclose(wider, direct, atol=1e-5)


def test_the_one_that_comes_with_the_package_sees_the_suites_of_suites_new(tasks):
    if not any((place / "poses_exterior").is_dir() for place in dropin.packaged("bases")):
        pytest.skip("this checkout has no bases/poses_exterior: `morph-vla poses train` makes it")
    shipped = estimators.load(estimators.SHIPPED)
    assert shipped.name == "poses-exterior"
    assert {*shipped.about.objects} == {"cube", "can", "banana", "orange"}
    assert {*shipped.about.targets} == {"bowl", "mug", "bin", "plate"}
    words = "looks at a place 3.3% of its distance above the table, and poses-exterior was trained with one"
    with pytest.raises(MorphVlaError, match=words):
        shipped.view(tasks)
    camera = tasks[0].cameras["exterior"]
    higher = dataclasses.replace(camera, position=(1.1, 0.0, 0.72), look_at=(0.5, 0.0, 0.05))
    as_new = [dataclasses.replace(task, cameras={"exterior": higher}) for task in tasks]
    assert shipped.view(as_new).distance == view_of(camera).distance
    assert shipped.view(as_new).optics(128).is_like(shipped.about.optics, estimators.ROUNDING)
