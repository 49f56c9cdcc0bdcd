"""A policy told estimated poses: what reaches it, what a benchmark shows, and what is refused."""

import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image
from told_policy import Told

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import benchmark
from morph_vla.evaluation.simulated import Simulated
from morph_vla.perception import Seeing
from morph_vla.perception.frames import hand_seen
from morph_vla.perception.things import things_of
from morph_vla.serving import card as cards
from morph_vla.serving import requests


def row(policy, size=48):
    return {
        "images/exterior": np.full((size, size, 3), 90, np.uint8),
        "state": policy.robot.to_dataset(policy.robot.rest).astype(np.float32),
        "prompt": "put the cube in the bowl",
        "robot": "panda",
        "episode": 3,
        "step": 0,
    }


def test_the_policy_is_told_what_the_estimator_sees_and_no_picture(policy, estimator, tasks):
    seeing = Seeing(policy, estimator, tasks)
    asked = row(policy)
    answer = seeing.infer(asked)
    np.testing.assert_array_equal(answer["actions"][0], asked["state"])
    (shown,) = policy.asked
    assert sorted(shown) == ["environment_state", "episode", "prompt", "robot", "state", "step"]
    view = estimator.view(tasks)
    hand = hand_seen(policy.robot, view, asked["state"][None])
    things = things_of(tasks[0], view.distance)
    poses = estimator.poses(asked["images/exterior"][None], hand, things[None], view)
    np.testing.assert_array_equal(shown["environment_state"], poses[0])


def test_the_prompt_says_which_things_are_meant(policy, estimator, tasks):
    """The same picture is another answer for another task; of one task alone any prompt is that."""
    seeing, asked = Seeing(policy, estimator, tasks), row(policy)
    first, again, other = tasks[0].task, " Put the cube  in the bowl.", tasks[1].task
    seeing.infer_batch([{**asked, "prompt": prompt} for prompt in (first, again, other)])
    shown = [each["environment_state"] for each in policy.asked]
    np.testing.assert_array_equal(shown[0], shown[1])
    assert (shown[0] != shown[2]).any()
    assert [each["prompt"] for each in policy.asked] == [first, again, other]
    sentence = (
        "prompt 'put it away' is no task of the suite's, so which things are meant is not known; expected"
        " 'put the cube in the bowl', 'put the can in the mug'"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        seeing.infer({**asked, "prompt": "put it away"})
    alone = Seeing(policy, estimator, tasks[:1])
    alone.infer({**asked, "prompt": "put it away"})
    np.testing.assert_array_equal(policy.asked[-1]["environment_state"], shown[0])
    unclear = dataclasses.replace(tasks[1], task=first)
    sentence = f"droid_panda:can_in_mug: another task has the prompt '{first}' and moves other things"
    with pytest.raises(MorphVlaError, match=f"^{sentence}$"):
        Seeing(policy, estimator, [tasks[0], unclear])


def test_the_hand_is_where_the_tool_is(policy, estimator, tasks):
    view, robot = estimator.view(tasks), policy.robot
    state = robot.to_dataset(robot.rest)
    (hand,) = hand_seen(robot, view, state[None])
    (place,) = view.places(hand[None, :3].astype(np.float64))
    root_from_hand = robot.forward_kinematics(robot.rest)["panda_hand"]
    ahead = np.linalg.inv(root_from_hand) @ [*place, 1.0]
    assert np.abs(ahead[:2]).max() < 1e-3  # on the hand's axis, between the fingers
    assert 0.05 < ahead[2] < 0.15
    assert hand[4] * view.distance == pytest.approx(0.08, rel=0.1)


def test_a_benchmark_shows_it_its_camera_alone_at_its_size(policy, estimator, tasks):
    seeing = Seeing(policy, estimator, tasks)
    bench = benchmark.of(tasks[0], policy=seeing)
    assert isinstance(bench, Simulated)
    shown = bench.shown.cameras
    assert {name: (camera.height, camera.width) for name, camera in shown.items()} == {"exterior": (48, 48)}
    assert bench.facts() == benchmark.of(tasks[0]).facts()  # comparable with any other policy's record
    cameras = [
        finding
        for finding in bench.findings(seeing)
        if finding.code in ("camera", "frame-size", "environment")
    ]
    assert not cameras


def test_its_card_and_digest_name_both(policy, estimator, tasks):
    seeing = Seeing(policy, estimator, tasks)
    about = seeing.describe()
    assert about["name"] == "told, poses from pictures"
    assert about["poses_from"] == estimator.source
    assert about["sha256"] == seeing.digest() != policy.digest()
    json.dumps(about)


def test_what_is_refused(policy, estimator, tasks):
    seeing = Seeing(policy, estimator, tasks)
    sentence = (
        "images/exterior has shape [34, 34, 3] of uint8; random looks at [48, 48, 3] of uint8, and at frames"
        " that are larger, and at least as wide as high"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        seeing.infer(row(policy, 34))
    bright = {**row(policy), "images/exterior": row(policy)["images/exterior"] / np.float32(255)}
    with pytest.raises(MorphVlaError, match=r"^images/exterior has shape \[48, 48, 3\] of float32; random"):
        seeing.infer(bright)
    with pytest.raises(MorphVlaError, match=r"^images/exterior has shape \[0\]"):
        seeing.infer({"state": row(policy)["state"]})
    sentence = "this policy is told no poses of objects, so none can be estimated; pi05-arms is"
    with pytest.raises(MorphVlaError, match=f"^{sentence}$"):
        Seeing(Told(), estimator, tasks)
    policy.robot_name = "so101"
    sentence = "droid_panda:cube_in_bowl is a suite of 'panda', and the policy drives 'so101': its camera's"
    with pytest.raises(MorphVlaError, match=f"^{sentence}"):
        Seeing(policy, estimator, tasks)
    with pytest.raises(
        MorphVlaError, match=r"^droid_panda:cube_in_bowl: random estimates object x, .* with a, b$"
    ):
        Seeing(Told(["a", "b"]), estimator, tasks)


def test_a_larger_frame_is_cut_to_the_square_in_its_middle(policy, estimator, tasks):
    """Of 128 x 96 the 96 columns in the middle are what a camera of the suite would have seen."""
    seeing = Seeing(policy, estimator, tasks)
    square = np.random.default_rng(0).integers(0, 255, (96, 96, 3)).astype(np.uint8)
    wide = np.zeros((96, 128, 3), np.uint8)
    wide[:, 16:112] = square
    for frame in (wide, square):
        seeing.infer({**row(policy), "images/exterior": frame})
    first, second = (shown["environment_state"] for shown in policy.asked)
    np.testing.assert_array_equal(first, second)
    exact = np.asarray(Image.fromarray(square).resize((48, 48), Image.Resampling.BILINEAR))
    seeing.infer({**row(policy), "images/exterior": exact})
    np.testing.assert_array_equal(policy.asked[-1]["environment_state"], first)


def test_a_server_asks_for_its_picture_in_place_of_poses(policy, estimator, tasks):
    seeing = Seeing(policy, estimator, tasks)
    card, _ = cards.of(seeing)
    assert card.request_keys().images == {"exterior": ("images/exterior",)}
    assert not card.request_keys().environment
    assert card.image_size == 48
    (example,) = requests.examples(card)
    assert seeing.infer(example)["actions"].shape == (5, 8)
