"""pi0.5 on joint values and poses instead of images; and robots that no training saw."""

import json
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.data.environment import in_body_frame, is_poses
from morph_vla.engines.engine import environment_names
from morph_vla.errors import MorphVlaError
from morph_vla.morphology.poses import present, tree_of
from morph_vla.pi05 import Observation, Pi05, init_params
from morph_vla.pi05.config import GemmaConfig, Pi05Config, VitConfig
from morph_vla.recipes import recipe as recipes
from morph_vla.robots.geometry import POSE
from morph_vla.robots.screws import screws
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites.suite import load
from morph_vla.training import loop

ENVIRONMENT = environment_names(load("droid_panda:cube_in_bowl").success)
SMALL = [
    "model={vocab: 1288, cameras: [], environment: 14, image_size: 16, vit: {width: 8, depth: 1, mlp_dim: 8,"
    " heads: 1, patch: 16}, prefix: {width: 8, mlp_dim: 12}, expert: {width: 8, mlp_dim: 12}, depth: 2,"
    " heads: 2, head_dim: 4, action_dim: 9, horizon: 4, max_tokens: 24, dtype: float32, init: scratch,"
    " morphology: {max_joints: 9, descriptors: geometry, poses: present, readout: joints}}",
    "training={steps: 5, batch: 6, checkpoint_every: 5, held_out_every: 5}",
    "tokenizer=words", "data.cameras={}", "data.held_out=0.4", "data.actions=delta", "data.phases={}",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    changes = [*SMALL, f"data.dataset={dataset}", "data.statistics=robot"]
    return loop.train(recipes.load("panda_demo", changes), tmp_path_factory.mktemp("run"))


@pytest.mark.slow
def test_a_place_has_the_same_numbers_as_a_joint_that_stands_there():
    panda, rng = robots.load("panda"), np.random.default_rng(7)
    native = panda.rest + 0.3 * rng.normal(size=8)
    frames = panda.forward_kinematics(native)
    poses = np.asarray(present(_batch(tree_of(panda, 8)), jnp.asarray(native[None], jnp.float32)))[0]
    # A joint's place is a point of its axis: the line through the frame of its child, in any pose.
    for index, joint in enumerate(panda.joints[:7]):
        frame = frames[panda.urdf.by_name[joint.name].child]
        shown = in_body_frame(panda, [f"it {key}" for key in POSE], _row(frame))[0]
        axis = poses[index, 3:6]
        away = shown[:3] - poses[index, :3]
        np.testing.assert_allclose(away - axis * (axis @ away), 0, atol=1e-5)


def _batch(tree):
    return jax.tree.map(lambda leaf: leaf[None], tree)


def _row(frame: np.ndarray) -> np.ndarray:
    return np.array([[*frame[:3, 3], 1.0, 0, 0, 0]], np.float32)


@pytest.mark.parametrize("name", ["panda", "so101"])
def test_lengths_are_shares_of_the_reach_and_turns_keep_their_angle(name):
    robot, rng = robots.load(name), np.random.default_rng(3)
    places, quaternions = rng.normal(size=(5, 2, 3)), rng.normal(size=(5, 2, 4))
    quaternions /= np.linalg.norm(quaternions, axis=-1, keepdims=True)
    quaternions *= np.sign(quaternions[..., :1])
    values = np.concatenate([places, quaternions], axis=-1).reshape(5, 14)
    seen = in_body_frame(robot, ENVIRONMENT, values).reshape(5, 2, 7).astype(np.float64)
    lengths = np.linalg.norm(seen[:, 0, :3] - seen[:, 1, :3], axis=1)
    np.testing.assert_allclose(
        lengths * screws(robot).reach, np.linalg.norm(places[:, 0] - places[:, 1], axis=1), rtol=1e-5
    )
    between, before = (np.abs((q[:, 0] * q[:, 1]).sum(axis=1)) for q in (seen[..., 3:], quaternions))
    np.testing.assert_allclose(between, before, atol=1e-6)  # cosine of half the angle between the two
    assert (seen[..., 3] >= 0).all()


def test_values_that_are_no_poses_stay_as_they_are():
    assert not is_poses(["keypoint 0 x", "keypoint 0 y"])
    assert not is_poses([])
    values = np.ones((2, 2), np.float32)
    assert in_body_frame(robots.load("panda"), ["keypoint 0 x", "keypoint 0 y"], values) is values


@pytest.mark.long
@pytest.mark.slow
def test_it_acts_on_poses_and_joint_values(run, seen):
    policy = CheckpointPolicy(run.checkpoint, batch=2)
    asked = {**seen, "episode": 0, "step": 0}
    moved = {**asked, "environment_state": asked["environment_state"] + np.float32(0.1)}
    one, other = policy.infer_batch([asked, moved])
    assert one["actions"].shape == (4, 8)
    assert not np.array_equal(one["actions"], other["actions"])
    about = json.loads((run.checkpoint / "about" / "policy.json").read_text())["robots"]["panda"]
    assert (about["environment"], about["statistics"]) == (list(ENVIRONMENT), "robot")


@pytest.mark.slow
def test_a_robot_that_no_training_saw_is_driven_by_what_its_urdf_says(run, seen):
    policy = CheckpointPolicy(run.checkpoint, robot="so101", batch=2)
    state = policy.robot.to_dataset(policy.robot.rest).astype(np.float32)
    answer = policy.infer({**seen, "state": state, "robot": "so101", "episode": 0, "step": 0})
    assert answer["actions"].shape == (4, 6)
    assert policy.trained["unseen"] is True
    assert policy.trained["control_rate"] == CheckpointPolicy(run.checkpoint).trained["control_rate"]
    # From where it stands, by what is learnt: differences of degrees where a Panda's are radians.
    ones = np.ones((1, 1, 6), np.float32)
    degrees = policy._stats["action_stats"].restore(ones)[0, 0, :5]
    np.testing.assert_allclose(np.deg2rad(degrees), 0.5, rtol=1e-5)


@pytest.mark.slow
def test_a_policy_that_knows_measured_values_alone_drives_no_other_robot(run, tmp_path):
    folder = tmp_path / "5"
    shutil.copytree(run.checkpoint, folder)
    path = folder / "about" / "policy.json"
    path.write_text(path.read_text().replace('"statistics": "robot"', '"statistics": "own"'))
    words = r"was not trained on robot 'pandas'; did you mean 'panda'\? \(panda\); only a policy "
    with pytest.raises(MorphVlaError, match=words):
        CheckpointPolicy(folder, robot="pandas")


def test_an_observation_without_numbers_is_refused():
    config = Pi05Config(
        vocab=11, image_size=2, cameras=(), vit=VitConfig(2, 1, 2, 1, 2), prefix=GemmaConfig(4, 6),
        expert=GemmaConfig(4, 6), depth=1, heads=1, head_dim=4, action_dim=3, horizon=2, max_tokens=2,
        environment=5, dtype="float32",
    )  # fmt: skip
    params = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
    assert params["environment_in_proj"]["kernel"].shape == (5, 4)
    empty = Observation({}, {}, np.zeros((1, 2), np.int32), np.ones((1, 2), bool))
    with pytest.raises(MorphVlaError, match="reads environment and state as numbers; the observation has"):
        jax.eval_shape(partial(Pi05(config).apply, method=Pi05.embed_prefix), {"params": params}, empty)
