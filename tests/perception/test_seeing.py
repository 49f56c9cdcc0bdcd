"""A policy told estimated poses: what reaches it, what a benchmark shows, and what is refused."""

import json
import re

import numpy as np
import pytest
from conftest import Told

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import benchmark
from morph_vla.evaluation.simulated import Simulated
from morph_vla.perception import Seeing
from morph_vla.perception.frames import hand_seen


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
    poses = estimator.poses(asked["images/exterior"][None], hand, view)
    np.testing.assert_array_equal(shown["environment_state"], poses[0])


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
    shown = bench._shown.cameras
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
    sentence = "images/exterior has shape [34, 34, 3]; random looks at [48, 48, 3] (8 bits)"
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        seeing.infer(row(policy, 34))
    with pytest.raises(MorphVlaError, match=r"^images/exterior has shape \[0\]"):
        seeing.infer({"state": row(policy)["state"]})
    sentence = "this policy is told no poses of objects, so none can be estimated; pi05-arms is"
    with pytest.raises(MorphVlaError, match=f"^{sentence}$"):
        Seeing(Told(), estimator, tasks)
    with pytest.raises(
        MorphVlaError, match=r"^droid_panda:cube_in_bowl: random estimates object x, .* with a, b$"
    ):
        Seeing(Told(["a", "b"]), estimator, tasks)
