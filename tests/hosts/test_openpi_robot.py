"""What the plugin for openpi does without openpi: the robot in an observation's state, and the transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.hosts.openpi import packing, pipeline
from morph_vla.morphology import body_of
from morph_vla.morphology.arrays import FEATURES
from morph_vla.pi05.tokenizer import BytesTokenizer, tokenize

ACTIONS, PLACES = 19, 17


@pytest.fixture
def add():
    return pipeline.AddRobot("panda", PLACES, ACTIONS)


@pytest.mark.parametrize("descriptors", ["paper", "geometry"])
@pytest.mark.parametrize("name", ["g1_dex1", "panda", "so101"])
def test_a_packed_robot_comes_back_exactly(name, descriptors):
    body = body_of(robots.load(name), PLACES, descriptors)
    row = np.concatenate([np.full(ACTIONS, 0.3, np.float32), packing.pack(body)])
    result = packing.unpack(jnp.asarray(row)[None], ACTIONS, PLACES, len(FEATURES[descriptors]))
    for one, other in zip(jax.tree.leaves(body), jax.tree.leaves(result), strict=True):
        np.testing.assert_array_equal(one, other[0])
        assert one.dtype == other.dtype


def test_a_robot_takes_two_squares_and_thirteen_numbers_per_joint():
    assert packing.width(PLACES) == 2 * PLACES**2 + 13 * PLACES
    assert packing.pack(body_of(robots.load("so101"), 7)).shape == (packing.width(7),)


def test_a_state_without_a_robot_is_refused():
    with pytest.raises(MorphVlaError, match=r"state has 19 values where 19 of the state and 799 of a robot"):
        packing.unpack(jnp.zeros((2, ACTIONS)), ACTIONS, PLACES)


def test_rows_of_a_batch_may_be_different_robots(add):
    names = ("panda", "so101", "g1_dex1")
    samples = [add({"state": np.zeros(ACTIONS), "robot": np.asarray(name)}) for name in names]
    body = packing.unpack(jnp.asarray(np.stack([s["state"] for s in samples])), ACTIONS, PLACES)
    assert np.asarray(body.joint_mask.sum(axis=1)).tolist() == [
        len(robots.load(name).joints) for name in names
    ]


def test_the_sample_keeps_its_state_and_loses_the_name(add):
    state = np.arange(ACTIONS, dtype=np.float32)
    result = add({"state": state, "robot": "so101", "prompt": "go"})
    assert set(result) == {"state", "prompt"}
    np.testing.assert_array_equal(result["state"][:ACTIONS], state)
    np.testing.assert_array_equal(pipeline.DropRobot(ACTIONS)(result)["state"], state)
    # openpi's fake data fill the whole field with noise.
    noisy = add({"state": np.concatenate([state, np.ones(packing.width(PLACES))])})
    np.testing.assert_array_equal(noisy["state"], add({"state": state})["state"])


def test_an_unknown_robot_names_the_nearest(add):
    with pytest.raises(MorphVlaError, match=r"pandas.*did you mean 'panda'\?"):
        pipeline.AddRobot("pandas", PLACES, ACTIONS)
    with pytest.raises(MorphVlaError, match=r"so100.*did you mean 'so101'\?"):
        add({"state": np.zeros(ACTIONS), "robot": "so100"})


def test_a_client_names_no_files(add):
    path = str(robots.load("so101").urdf_path)
    assert pipeline.AddRobot(path, PLACES, ACTIONS).of(path).size, "whoever configures the host may"
    with pytest.raises(MorphVlaError, match=r"^no robot '.*so101.urdf' is registered"):
        add({"state": np.zeros(ACTIONS), "robot": path})


def test_a_robot_with_too_many_joints_is_refused():
    with pytest.raises(MorphVlaError, match=r"robot 'g1_dex1' has 16 joints but the model has places for 11"):
        pipeline.AddRobot("g1_dex1", 11, ACTIONS)


def test_a_transform_that_drops_keys_keeps_the_robot():
    inner = pipeline.KeepRobot(lambda data: {"state": data["joints"]})
    assert inner({"joints": 3, "robot": "panda", "other": 1}) == {"state": 3, "robot": "panda"}
    assert inner({"joints": 3}) == {"state": 3}


def test_cameras_get_openpis_names_and_absent_ones_are_black():
    inputs = pipeline.RobotInputs(
        {"base_0_rgb": "front", "left_wrist_0_rgb": "wrist", "right_wrist_0_rgb": None}, "so101", 6
    )
    floats = np.full((3, 5, 7), 0.5, np.float32)
    bytes_ = np.full((5, 7, 3), 9, np.uint8)
    result = inputs(
        {"front": floats, "wrist": bytes_, "state": np.zeros(6), "actions": np.ones((3, 6)), "prompt": "go",
         "robot": "x", "y": 0}
    )  # fmt: skip
    assert set(result) == {"image", "image_mask", "state", "actions", "prompt", "robot"}
    assert {name: bool(mask) for name, mask in result["image_mask"].items()} == {
        "base_0_rgb": True, "left_wrist_0_rgb": True, "right_wrist_0_rgb": False,
    }  # fmt: skip
    assert result["image"]["base_0_rgb"].shape == (5, 7, 3)
    assert result["image"]["base_0_rgb"].dtype == np.uint8
    assert (result["image"]["base_0_rgb"] == 127).all()
    assert not result["image"]["right_wrist_0_rgb"].any()


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (
            {"front": 1, "y": 2},
            "the sample lacks state; expected front, state and prompt, and it has front, y",
        ),
        ({"state": 1}, "the sample lacks front; expected front, state and prompt, and it has state"),
        (
            {"state": np.zeros(8)},
            r"state has shape \[8\], and robot 'so101' has 6 joints; name the robot of th",
        ),
        ({"actions": np.zeros((4, 5))}, r"actions has shape \[4, 5\], and robot 'so101' has 6 joints; name"),
        ({"state": np.float32(3)}, r"state has shape \[\], and robot 'so101' has 6 joints; name the robot"),
    ],
)
def test_a_sample_of_another_robot_or_without_a_key_is_one_sentence(sample, words):
    """Padded and cut later on, it would train with the wrong body."""
    inputs = pipeline.RobotInputs({"base_0_rgb": "front", "left_wrist_0_rgb": None}, "so101", 6)
    whole = {"front": np.zeros((5, 7, 3), np.uint8), "state": np.zeros(6), "actions": np.zeros((4, 6))}
    assert inputs(whole)["state"].shape == (6,)
    with pytest.raises(MorphVlaError, match=f"^{words}"):
        inputs(sample if "lacks" in words else {**whole, **sample})


def test_only_the_robots_actions_are_answered():
    result = pipeline.TakeActions(3)({"actions": np.ones((5, 7)), "state": 1})
    assert set(result) == {"actions"}
    assert result["actions"].shape == (5, 3)


def test_prompts_are_tokenised_once():
    state = np.array([-0.5, 0.25])
    result = pipeline.TokenizeBytes(29)({"prompt": np.asarray("lift it"), "state": state})
    tokens, mask = tokenize(BytesTokenizer(), "lift it", state, 29)
    np.testing.assert_array_equal(result["tokenized_prompt"], tokens)
    np.testing.assert_array_equal(result["tokenized_prompt_mask"], mask)
    assert "prompt" not in result
    assert pipeline.TokenizeBytes(29)(result) is result
