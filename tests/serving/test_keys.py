"""The dialects of openpi's clients: the same observation, whatever its keys are called."""

from typing import Any

import numpy as np
import pytest
from stand_ins import CAMERAS, PANDA, observation

from morph_vla.errors import MorphVlaError
from morph_vla.serving import keys


def read(request, preset="", cameras=CAMERAS) -> dict[str, Any]:
    return keys.observation(keys.flat(request), keys.of(cameras, preset), PANDA.names)


@pytest.mark.parametrize("preset", ["", *keys.PRESETS])
def test_an_observation_goes_through_every_dialect(preset):
    asked = observation(5)
    dialect = keys.of(CAMERAS, preset)
    back = keys.observation(keys.request(asked, dialect), dialect, PANDA.names)
    assert back.keys() == asked.keys()
    assert all(np.array_equal(back[key], asked[key]) for key in asked)


def test_the_presets_have_openpis_keys():
    sent = keys.request(observation(), keys.of(CAMERAS, "droid"))
    assert {key: np.shape(value) for key, value in sent.items()} == {
        "prompt": (),
        "observation/joint_position": (7,),
        "observation/gripper_position": (1,),
        "observation/exterior_image_1_left": (7, 11, 3),
        "observation/wrist_image_left": (7, 11, 3),
    }
    aloha = keys.request(observation(), keys.of(CAMERAS, "aloha"))
    assert {"images/cam_high", "images/cam_left_wrist", "state", "prompt"} == aloha.keys()
    assert aloha["images/cam_high"].shape == (3, 7, 11)


def test_maps_may_be_nested_and_what_nobody_asks_for_is_ignored():
    asked = observation(2)
    nested = {
        "images": {"exterior": asked["images/exterior"], "wrist": asked["images/wrist"], "depth": 3},
        "state": asked["state"].tolist(), "prompt": "go", "weather": {"rain": [1, {"of": "cats"}]}, b"raw": 1,
    }  # fmt: skip
    back = read(nested)
    assert np.array_equal(back["images/wrist"], asked["images/wrist"])
    assert back["state"].dtype == np.float32
    np.testing.assert_array_equal(back["state"], asked["state"])


def test_roboarenas_only_camera_is_the_droid_presets():
    sent = keys.request(observation(3), keys.of(CAMERAS, "droid"))
    sent["observation/exterior_image_0_left"] = sent.pop("observation/exterior_image_1_left")
    assert np.array_equal(read(sent, "droid")["images/exterior"], observation(3)["images/exterior"])


def test_pictures_of_fractions_and_with_channels_first_are_read():
    levels = observation()["images/wrist"]
    fractions = (levels.astype(np.float64) / 255 + 1e-9).clip(0, 1)
    for picture in (fractions, levels.transpose(2, 0, 1), fractions.astype(np.float32).transpose(2, 0, 1)):
        back = read({**observation(), "images/wrist": picture})["images/wrist"]
        assert np.abs(back.astype(int) - levels).max() <= 1
        assert (back.dtype, back.shape) == (np.uint8, levels.shape)


BIG = np.broadcast_to(np.uint8(0), (4096, 4096, 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": 4}, "prompt: expected a text, not a value of type 'int'"),
        ({"state": "up"}, "state: expected a list of numbers, not a value of type 'str'"),
        ({"state": [[1.0], [2.0, 3.0]]}, "state: expected a list of numbers, not a value of type 'list'"),
        ({"state": np.zeros((1, 8))}, r"state: expected a list of numbers, not an array \[1, 8\] of float64"),
        (
            {"state": np.zeros(7)},
            r"state: 7 values; this policy has 8 joints \(panda_joint1, .*finger_joint1\)",
        ),
        ({"state": np.full(8, 1e300)}, "state: not every value is finite in float32"),
        (
            {"images/wrist": b"jpeg"},
            r"images/wrist: expected a picture \[h, w, 3\], not a value of type 'bytes'",
        ),
        (
            {"images/wrist": np.zeros((7, 11), np.uint8)},
            r"images/wrist: expected a picture \[h, w, 3\], not an array \[7, 11\] of uint8",
        ),
        (
            {"images/wrist": np.zeros((0, 5, 3), np.uint8)},
            "images/wrist: 5 x 0 pixels; from 1 to 8388608 are read",
        ),
        (
            {"images/wrist": np.zeros((1, 33, 3), np.uint8)},
            "images/wrist: 33 x 1 pixels; the sides are at most 1 to 32",
        ),
        ({"images/wrist": BIG}, "images/wrist: 4096 x 4096 pixels; from 1 to 8388608 are read"),
        (
            {"images/wrist": np.full((2, 2, 3), 255.0)},
            "images/wrist: a picture of fractions has values from 0 to 1",
        ),
        (
            {"images/wrist": np.zeros((2, 2, 3), np.int64)},
            "images/wrist: expected a picture of dtype uint8, not int64",
        ),
    ],
)
def test_what_is_wrong_with_an_observation_is_said_with_its_key(change, words):
    with pytest.raises(MorphVlaError, match=f"^{words}$"):
        read({**observation(), **change})


def test_what_is_missing_is_named():
    with pytest.raises(
        MorphVlaError, match=r"^the observation lacks images/wrist, prompt; this policy needs "
    ):
        read({key: value for key, value in observation().items() if key not in ("images/wrist", "prompt")})


def test_a_preset_must_exist_and_have_the_policys_cameras():
    with pytest.raises(MorphVlaError, match=r"^no preset 'drod'; did you mean 'droid'\? \(droid, libero, "):
        keys.of(CAMERAS, "drod")
    three = {**CAMERAS, "right_wrist_0_rgb": "other"}
    sentence = (
        r"^preset 'so101' has no key for right_wrist_0_rgb, which the policy looks through \(base_0_rgb"
    )
    with pytest.raises(MorphVlaError, match=sentence):
        keys.of(three, "so101")


def test_each_camera_is_read_by_its_own_name_where_the_dialect_has_it():
    """A right wrist in the left one's slot is no left wrist, whatever another camera is called."""
    known = keys.of({"base_0_rgb": "top", "left_wrist_0_rgb": "cam_right_wrist"}, "aloha")
    assert known.images == {"top": ("images/cam_high",), "cam_right_wrist": ("images/cam_right_wrist",)}
    assert keys.by_another_name(known) == {"top": "images/cam_high"}
    assert keys.by_another_name(keys.of(CAMERAS, "droid")) == {}  # no key there is a camera's name
    turned = keys.of({"base_0_rgb": "wrist", "left_wrist_0_rgb": "front"}, "so101")
    assert turned.images == {"wrist": ("images/wrist",), "front": ("images/front",)}
    assert keys.by_another_name(turned) == {}
    second = keys.of({"base_0_rgb": "exterior_image_2_left", "left_wrist_0_rgb": "hand"}, "droid")
    assert keys.by_another_name(second) == {
        "exterior_image_2_left": "observation/exterior_image_1_left",
        "hand": "observation/wrist_image_left",
    }


@pytest.mark.parametrize("preset", ["droid", "libero", "ur5", "roboarena", "aloha", "so101"])
def test_a_hands_picture_is_not_read_from_where_another_cameras_is(preset):
    """A policy whose cameras are exchanged would be shown each other's."""
    exchanged = {"base_0_rgb": "eye_in_hand", "left_wrist_0_rgb": "side"}
    words = (
        rf"^preset '{preset}' has \S+ for base_0_rgb, through which the policy sees 'eye_in_hand', a hand's: "
        r"two cameras would be exchanged; leave --preset out, and have the clients send images/eye_in_hand$"
    )
    with pytest.raises(MorphVlaError, match=words):
        keys.of(exchanged, preset)


def test_a_key_is_of_one_camera():
    sentence = (
        r"^preset 'so101' has images/wrist for camera 'wrist' and no key for 'side', which the policy looks "
        r"through as left_wrist_0_rgb; leave --preset out, or call the cameras of data.cameras as the "
        r"clients do \(front, wrist\)$"
    )
    with pytest.raises(MorphVlaError, match=sentence):
        keys.of({"base_0_rgb": "wrist", "left_wrist_0_rgb": "side"}, "so101")


def test_a_request_without_a_prompt_has_the_servers():
    asked = {key: value for key, value in observation().items() if key != "prompt"}
    known = keys.of(CAMERAS, prompt="put the cube in the bowl")
    assert keys.observation(asked, known, PANDA.names)["prompt"] == "put the cube in the bowl"
    own = keys.observation({**asked, "prompt": "stack"}, known, PANDA.names)
    assert own["prompt"] == "stack"
    with pytest.raises(
        MorphVlaError, match=r"lacks prompt; .* a prompt for .*: `morph-vla serve --prompt TEXT`$"
    ):
        read(asked)


def test_cameras_have_roles_by_their_names():
    assert keys.roles(["exterior", "wrist"]) == CAMERAS
    assert keys.roles(["cam_left_high", "cam_left_wrist", "cam_right_wrist", "spare"]) == {
        "base_0_rgb": "cam_left_high",
        "left_wrist_0_rgb": "cam_left_wrist",
        "right_wrist_0_rgb": "cam_right_wrist",
    }
    assert keys.roles(["agentview_image", "robot0_eye_in_hand_image"]) == {  # LIBERO's
        "base_0_rgb": "agentview_image",
        "left_wrist_0_rgb": "robot0_eye_in_hand_image",
    }


def test_cameras_without_a_role_are_said():
    assert keys.left_out(["exterior", "wrist"]) == []
    assert keys.left_out(["front", "top", "hand"]) == ["top"]
    looks = "by the names of the suite's cameras it looks through front (as base_0_rgb), hand "
    looks += "(as left_wrist_0_rgb)"
    assert keys.by_their_names(["front", "hand"]) == looks
    assert keys.by_their_names(["front", "top", "hand"]) == f"{looks}, and not through top"


def test_a_gripper_that_is_not_the_last_value_has_no_key_of_its_own():
    first = {"finger": True, "joint1": False, "joint2": False}
    with pytest.raises(
        MorphVlaError,
        match=r"^preset 'ur5' has one gripper, the last value of a state and an action; the robot's last "
        r"joint is joint2, and its grippers are finger: leave --preset out$",
    ):
        keys.check_grippers("ur5", first)
    with pytest.raises(MorphVlaError, match="last joint is b, and its grippers are a, b"):
        keys.check_grippers("droid", {"a": True, "joint1": False, "b": True})
    keys.check_grippers("ur5", {"joint1": False, "finger": True})
    keys.check_grippers("ur5", {"joint1": False, "joint2": False})  # none is said to close: the last is taken
    keys.check_grippers("", first)
    keys.check_grippers("so101", first)  # one key of all values, in their order
