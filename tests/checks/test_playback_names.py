"""Whose values a recording holds: names, their order, and the features of several arms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_arm import FPS, FRAMES, NAMES, motion, remarks, robot, sentences

from morph_vla.checks import name_match, playback
from morph_vla.robots import load
from morph_vla.robots.robot import with_side

# ------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("left_shoulder_pitch_joint", "kLeftShoulderPitch", True),
        ("shoulder_pan", "shoulder_pan.pos", True),
        ("joint_1", "joint1.pos", True),
        ("joint_1", "joint_2", False),
        ("left_elbow", "right_elbow", False),
        ("l_elbow", "left_elbow", True),
        ("left_wrist_roll_joint", "left_wrist_pitch", False),
        ("elbow", "gripper", False),
        ("joint" + "9" * 5000, "joint0" + "9" * 5000, True),
    ],
)
def test_names_are_compared_by_what_they_say(one, two, same):
    assert (name_match.likeness(name_match.words(one), name_match.words(two)) >= name_match.NEAR) is same


@given(st.permutations(range(4)))
def test_a_permutation_of_named_values_is_found_and_played_by_name(order):
    body = robot()
    names = [NAMES[j].removesuffix("_joint") for j in order]
    shuffled = body.to_dataset(motion())[:, list(order)]
    piece, findings = playback.play(body, "action", shuffled, names, FPS)
    assert piece is not None
    np.testing.assert_allclose(piece.native, motion(), atol=1e-9)
    if list(order) == [0, 1, 2, 3]:
        assert findings == []
        return
    (remark,) = findings
    assert remark.severity == "warning"
    assert "the names are in another order than the joints: value " in remark.found
    wanted = ", ".join(NAMES[j] for j in order)
    assert f"played by name; training goes by place: write joints: [{wanted}]" in remark.consequence
    assert set(remark.subject) == {NAMES[j] for j, place in enumerate(order) if place != j}


def test_the_side_files_names_come_first():
    body = robot(names=("m_a", "m_b", "m_c", "m_d"))
    recorded = body.to_dataset(motion())
    assert sentences(body, recorded, names=["m_a", "m_b", "m_c", "m_d"]) == ""
    assert "the names are in another order" in sentences(body, recorded, names=["m_b", "m_a", "m_c", "m_d"])


def test_a_gripper_is_found_by_its_function():
    body = robot()
    names = ["left_shoulder", "left_elbow", "left_wrist", "left_gripper"]
    assert sentences(body, body.to_dataset(motion()), names=names) == ""


def left_and_right(names) -> list[str]:
    return [name.replace("left", side) for side in ("right", "left") for name in names]


@pytest.mark.parametrize("hand", ["gripper", "gripper_position"])
def test_numbers_from_zero_and_a_gripper_say_no_order(hand):
    panda = load("panda")  # joint1 to joint7, and a finger
    numbered = [f"joint_{place}" for place in range(7)]
    match = name_match.match(panda, [*numbered, hand], 8)
    assert (match.named, match.columns) == (False, tuple(range(8)))
    assert name_match.match(panda, [hand, *numbered], 8).named  # that the hand is elsewhere is worth a word
    assert name_match.match(panda, [*(f"joint_{place}" for place in range(1, 8)), hand], 8).known


def test_a_left_arm_is_found_in_a_recording_of_two_and_is_no_right_one():
    body, recorded = robot(), robot().to_dataset(motion())
    names = [name.removesuffix("_joint") for name in NAMES]
    both = np.concatenate([np.zeros_like(recorded), recorded], axis=1)
    piece, _ = playback.play(body, "action", both, left_and_right(names), FPS)
    assert piece is not None
    np.testing.assert_allclose(piece.native, motion(), atol=1e-9)
    right = [name.replace("left", "right") for name in names]
    assert "4 of 4 names are of the other side than the joint in their place" in sentences(
        body, recorded, names=right
    )
    assert sentences(body, recorded, names=[name.replace("left_", "") for name in names]) == ""


def test_a_wider_feature_is_played_by_name():
    body = robot()
    wide = np.concatenate([np.zeros((FRAMES, 1)), body.to_dataset(motion())], axis=1)
    names = ["left_hip", *(name.removesuffix("_joint") for name in NAMES)]
    piece, findings = playback.play(body, "action", wide, names, FPS)
    assert piece is not None
    np.testing.assert_allclose(piece.native, motion(), atol=1e-9)
    assert str(findings[0]) == (
        "action: warning: 5 values for 4 joints; not played: 'left_hip'; expected 4 values;"
        " found by their names; training needs a value per joint"
    )


def test_widths_that_do_not_match_are_an_error_with_a_way_out():
    body = robot()
    piece, (finding,) = playback.play(
        body, "action", motion()[:, :3], ["left_shoulder", "x", "left_wrist"], FPS
    )
    assert piece is None
    assert finding.severity == "error"
    assert finding.found.startswith("3 values for 4 joints ('left_shoulder_joint', ")
    assert (
        "2 of them have a value of their name, not 'left_elbow_joint', 'left_finger_joint'"
        in finding.consequence
    )
    assert "write joints: [left_shoulder_joint, left_wrist_joint] into a side file" in finding.consequence
    piece, (finding,) = playback.play(body, "action", motion()[:, :3], ["left_shoulder", "x", "y"], FPS)
    assert piece is None
    assert "only 1 of the joints has a value of its name; choose as many joints" in finding.consequence
    piece, (finding,) = playback.play(body, "action", np.zeros((7, 2)), ["x", "y"], FPS)
    assert piece is None
    assert "no joint is called like one of its values ('x', 'y')" in finding.consequence
    piece, (finding,) = playback.play(body, "action", np.zeros((7, 2)), (), FPS)
    assert piece is None
    assert "its values have no names; choose as many joints" in finding.consequence


def test_names_that_say_nothing_or_something_else():
    body, recorded = robot(), robot().to_dataset(motion())
    for names in ([], ["motor_0", "motor_1", "motor_2", "motor_3"]):
        (remark,) = remarks(body, recorded, names=names)
        assert str(remark) == (
            "action: note: the dataset does not say what its 4 values are; expected the joints' names; played"
            " in the robot's order"
        )
    text = sentences(body, recorded, names=["a", "b", "c", "d"])
    assert (
        "warning: 4 of 4 names are unlike the joints': value 0 'a' for joint 0 'left_shoulder_joint'" in text
    )
    text = sentences(body, recorded, names=["left_elbow", "thumb", "toe", "ear"])
    assert "names nearest to other joints than those in their place: value 0 'left_elbow' for joint 1" in text
    text = sentences(body, recorded, names=["left_elbow"])
    assert "warning: 1 names for 4 values; expected a name per value; the names are not used" in text


def test_values_that_are_not_finite_are_an_error():
    body = robot()
    recorded = body.to_dataset(motion())
    recorded[5, 1] = np.nan
    recorded[7, 2] = np.inf
    (remark,) = remarks(body, recorded)
    assert str(remark) == (
        "action: error: 2 values are not finite, the first of 'left_elbow_joint' in frame 5; expected"
        " numbers; training refuses the dataset"
    )
    assert remark.subject == NAMES[1:3]
    recorded[:, 0] = np.nan
    assert "error: " in sentences(body, recorded)


def test_exchanged_arms_may_be_only_their_names():
    """openpi's ALOHA converter names the right arm first and writes the left one first."""
    aloha = load("aloha")
    arm = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")
    names = [f"{side}_{joint}" for side in ("right", "left") for joint in arm]
    match = name_match.match(aloha, names, len(names))
    assert match.known
    assert match.columns != tuple(range(len(names)))
    recorded = np.tile(aloha.to_dataset(aloha.rest), (FRAMES, 1))
    _, findings = playback.play(aloha, "action", recorded, names, FPS)
    (finding,) = [item for item in findings if item.code == "names-in-another-order"]
    assert finding.consequence.endswith(
        "if only the names are wrong, as those that openpi's ALOHA converter writes, write them as its names:"
    )
    named = with_side(aloha, replace(aloha.side, names=tuple(names)))
    assert name_match.match(named, names, len(names)).columns == tuple(range(len(names)))


def test_some_names_of_the_other_side_are_told_apart_from_strange_ones():
    names = ["left_shoulder_pitch", "right_elbow", "l_palm", "kLeftThing"]
    joints = ["left_a", "left_b", "R_c", "d"]
    assert name_match.other_sides(joints, names) == [1, 2]
