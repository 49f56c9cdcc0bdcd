"""Poses instead of images, from recording to verdict: no camera is rendered anywhere on the way."""

import dataclasses
import json

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.data import lerobot
from morph_vla.demonstrations import recording
from morph_vla.engines import by_name
from morph_vla.engines.engine import ENVIRONMENT, environment_state
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import fit
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.findings import errors
from morph_vla.recipes import recipe as recipes
from morph_vla.serving import card, keys
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites import suite
from morph_vla.suites.suite import initial_state
from morph_vla.training import loop

SMALL = {
    "body": "model={family: body, width: 8, depth: 2, heads: 2, mlp_dim: 12, horizon: 4}",
    "mlp": "model={family: mlp, width: 4, depth: 1, hidden: 16, horizon: 4}",
}


def rendered(worlds, index, camera):
    raise AssertionError(f"camera '{camera}' was rendered")


@pytest.fixture(scope="module")
def blind_suite():
    return suite.load("droid_panda:cube_in_bowl", ["cameras={}", "settle_seconds=0.1"])


@pytest.fixture(scope="module")
def dataset(blind_suite, shared_folder):
    def fill(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MujocoEngine, "render", rendered)
            for number in (0, 1):  # in this process, where nothing can render
                recording.record_part(blind_suite, folder / f"{number}", range(3 * number, 3 * number + 3))

    return shared_folder("poses", fill) / "0"


@pytest.fixture(scope="module", params=SMALL)
def run(request, dataset, tmp_path_factory):
    pace = [f"training.{key}" for key in ("steps=5", "batch=6", "checkpoint_every=5", "held_out_every=5")]
    changes = [SMALL[request.param], *pace, f"data.dataset={dataset}", "data.held_out=0.4"]
    return loop.train(recipes.load("body_state", changes), tmp_path_factory.mktemp("run"))


@pytest.fixture
def policy(run) -> CheckpointPolicy:
    return CheckpointPolicy(run.checkpoint, batch=2)


@pytest.fixture
def seen(blind_suite):
    """What is shown before the first step of an episode."""
    engine = MujocoEngine(robots.load("panda"), blind_suite)
    engine.reset({0: initial_state(blind_suite, 3, 8)})
    return engine.observe(0)


def test_a_suite_without_cameras_shows_the_poses_of_object_and_target(blind_suite, seen):
    engine = MujocoEngine(robots.load("panda"), blind_suite)
    state = initial_state(blind_suite, 3, 8)
    engine.place({0: state})
    poses = environment_state(engine, 0)
    assert poses.shape == (len(ENVIRONMENT),)
    assert poses.dtype == np.float32
    for name, part in (("cube", poses[:7]), ("bowl", poses[7:])):
        x, y, yaw = state.poses[name]
        np.testing.assert_allclose(part[:2], [x, y], atol=1e-6)
        np.testing.assert_allclose(part[3:], [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)], atol=1e-6)
    assert not any(key.startswith("images/") for key in seen)
    assert "environment_state" in seen


def test_of_the_two_quaternions_of_a_pose_the_one_with_positive_w_is_shown(blind_suite, monkeypatch):
    engine = MujocoEngine(robots.load("panda"), blind_suite)
    turned = np.array([-0.5, 0.5, -0.5, 0.5])
    monkeypatch.setattr(engine, "pose", lambda index, name: (np.zeros(3), turned))
    np.testing.assert_array_equal(environment_state(engine, 0)[3:7], -turned)


def test_a_recording_without_cameras_has_poses_and_no_video(dataset):
    read = lerobot.read(dataset, environment=True)
    assert (read.cameras, read.environment_names) == ((), ENVIRONMENT)
    assert read.environment is not None
    assert read.environment.shape == (read.frames, len(ENVIRONMENT))
    assert np.ptp(read.environment[:, 0]) > 0.05  # the cube was moved
    assert lerobot.read(dataset).environment is None


def test_a_checkpoint_names_its_family_and_what_it_is_shown(run, policy):
    known = json.loads((run.checkpoint / "about" / "policy.json").read_text())
    assert known["family"] == policy.config.family
    assert known["robots"]["panda"]["environment"] == list(ENVIRONMENT)
    assert policy.cameras == {}
    assert policy.real_time is False


def test_it_answers_from_numbers_alone_and_alike_in_any_company(policy, seen):
    asked = {**seen, "episode": 0, "step": 0}
    moved = {**asked, "environment_state": asked["environment_state"] + np.float32(0.1)}
    one, other = policy.infer_batch([asked, moved])
    assert one["actions"].shape == (4, 8)
    assert np.array_equal(policy.infer(asked)["actions"], one["actions"])
    assert not np.array_equal(one["actions"], other["actions"])
    says = policy.infer({**asked, "prompt": "put the can in the mug"})
    assert not np.array_equal(says["actions"], one["actions"])


def test_an_observation_without_poses_is_refused(policy, seen):
    blind = {key: value for key, value in seen.items() if key != "environment_state"}
    with pytest.raises(MorphVlaError, match=r"^the observation lacks environment_state; this policy was"):
        policy.infer(blind)
    short = {**seen, "environment_state": np.zeros(7, np.float32)}
    words = r"^environment_state has shape \[7\]; this policy was trained on 14 finite values \(object x, "
    with pytest.raises(MorphVlaError, match=words):
        policy.infer(short)


def test_an_evaluation_renders_no_camera_of_the_suite(policy, tiny_suite, monkeypatch):
    played, pool = [], by_name.pool
    monkeypatch.setattr(by_name, "pool", lambda suite, *more: (played.append(suite), pool(suite, *more))[1])
    record = evaluate(policy, tiny_suite, episodes=2, videos=0, parallel=1, groups=1, workers=1)
    assert [trial.error for trial in record.trials] == [None, None]
    assert [shown.cameras for shown in played] == [{}]
    (task,) = record.suite.tasks.values()
    assert task.resolved is not None
    assert "exterior" in str(task.resolved["cameras"])  # measured is the suite itself, comparable with others


def test_other_poses_than_those_trained_on_do_not_fit(policy, tiny_suite):
    assert not errors(fit.check(policy, tiny_suite))
    policy.trained = {**policy.trained, "environment": ["object x"]}
    (finding,) = errors(fit.check(policy, tiny_suite))
    assert finding.code == "environment"
    assert fit.sentence(finding).endswith("the policy was trained with object x")


def test_a_server_reads_the_poses_and_says_that_it_wants_them(policy, seen):
    about, _ = card.of(policy)
    card.check(about)
    known = dataclasses.replace(about).request_keys()
    assert known.environment
    request = keys.request(seen, known)
    read = keys.observation(request, known, about.joints)
    np.testing.assert_array_equal(read["environment_state"], seen["environment_state"])
    del request["environment_state"]
    with pytest.raises(MorphVlaError, match=r"^the observation lacks environment_state; this policy needs"):
        keys.observation(request, known, about.joints)


def test_a_dataset_without_poses_is_refused(tiny_dataset, tmp_path):
    recipe = recipes.load("body_state", [f"data.dataset={tiny_dataset}"])
    with pytest.raises(MorphVlaError, match=r"no feature 'observation\.environment_state'"):
        loop.train(recipe, tmp_path / "run")


def test_another_number_of_poses_than_the_model_reads_is_said(dataset, tmp_path):
    recipe = recipes.load("body_state", [f"data.dataset={dataset}", "model.environment=7"])
    words = r"'observation\.environment_state' has 14 values; set model\.environment, which is 7$"
    with pytest.raises(MorphVlaError, match=words):
        loop.train(recipe, tmp_path / "run")


def test_weights_of_another_family_are_refused(run, policy, tiny_recipe, tmp_path):
    other = dataclasses.replace(tiny_recipe, weights=str(run.checkpoint))
    words = f"trained as model.family '{policy.config.family}', the recipe has 'pi05'$"
    with pytest.raises(MorphVlaError, match=words):
        loop.train(other, tmp_path / "run")
