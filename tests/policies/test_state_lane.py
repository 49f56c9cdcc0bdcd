"""Poses instead of images, from recording to verdict: no camera is rendered anywhere on the way."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from morph_vla import cli, robots
from morph_vla.data import lerobot
from morph_vla.engines import by_name
from morph_vla.engines.engine import environment_names, environment_state
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.evaluation import fit
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.evaluation.sampler import Sampler
from morph_vla.findings import errors
from morph_vla.policies.config import MlpConfig, WindowConfig
from morph_vla.recipes import recipe as recipes
from morph_vla.serving import card, keys, requests
from morph_vla.serving import policy as policies
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites.suite import initial_state, load
from morph_vla.training import loop, parameters
from morph_vla.training.source import Source

pytestmark = pytest.mark.slow

ENVIRONMENT = environment_names(load("droid_panda:cube_in_bowl").success)
SMALL = {
    "body": "model={family: body, width: 8, depth: 2, heads: 2, mlp_dim: 12, horizon: 4}",
    "mlp": "model={family: mlp, width: 4, depth: 1, hidden: 16, horizon: 4}",
    "fourier": "model={family: fourier, width: 4, depth: 1, mlp_dim: 6, horizon: 4, window: 5, modes: 2}",
    "bet": "model={family: bet, window: 1, width: 8, depth: 1, heads: 2, mlp_dim: 12, bins: 5, horizon: 4}",
}


# Two of the four in `make test`: one that looks back, one that does not.
FAMILIES = [
    name if name in ("mlp", "fourier") else pytest.param(name, marks=pytest.mark.slow) for name in SMALL
]


@pytest.fixture(scope="module", params=FAMILIES)
def run(request, dataset, tmp_path_factory):
    pace = [f"training.{key}" for key in ("steps=5", "batch=6", "checkpoint_every=5", "held_out_every=3")]
    changes = [SMALL[request.param], *pace, f"data.dataset={dataset}", "data.held_out=0.4"]
    return loop.train(recipes.load("body_state", changes), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def policy(run) -> CheckpointPolicy:
    return CheckpointPolicy(run.checkpoint, batch=2)


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


def test_held_out_episodes_are_measured_when_it_is_asked(run):
    """At step 3, though nothing else is logged there, and at the end."""
    log = [json.loads(line) for line in (run.checkpoint.parents[1] / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if line.get("held_out_loss") is not None] == [3, 5]


def test_what_is_found_before_training_is_kept_with_what_does_not_learn(run, policy):
    """Training from the same seed again would find the same centres."""
    assert (run.checkpoint / "frozen").is_dir() == ("bins" in policy.params)
    if policy.config.family == "bet":
        recipe = recipes.of_run(run.folder)
        again = parameters.begun(recipe, Source(recipe, run.folder / "cache"))
        np.testing.assert_array_equal(policy.params["bins"]["centres"], again["bins"]["centres"])
        assert np.ptp(policy.params["bins"]["centres"], axis=0).max() > 0.1


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


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("environment_stats", None, "robot 'panda' has 14 values of environment_state and no statistics in"),
        ("environment", [], "robot 'panda' has 0 values of environment_state and their statistics in about"),
    ],
)
def test_a_checkpoint_that_does_not_know_its_poses_is_refused_at_once(run, tmp_path, key, value, sentence):
    folder = tmp_path / "5"
    shutil.copytree(run.checkpoint, folder)
    path = folder / "about" / "policy.json"
    known = json.loads(path.read_text())
    known["robots"]["panda"][key] = value
    path.write_text(json.dumps(known))
    with pytest.raises(MorphVlaError, match=f"{sentence}.* reads 14 values, with statistics$"):
        CheckpointPolicy(folder)


@pytest.mark.parametrize("run", ["fourier"], indirect=True)  # one that looks back, of all alike here
def test_an_evaluation_renders_no_camera_of_the_suite(policy, tiny_suite, monkeypatch):
    played, pool = [], by_name.pool
    monkeypatch.setattr(by_name, "pool", lambda suite, *more: (played.append(suite), pool(suite, *more))[1])
    record = evaluate(policy, tiny_suite, episodes=2, videos=0, parallel=1, groups=1, workers=1)
    assert [trial.error for trial in record.trials] == [None, None]
    assert [shown.cameras for shown in played] == [{}]
    (task,) = record.suite.tasks.values()
    assert task.resolved is not None
    assert "exterior" in str(task.resolved["cameras"])  # measured is the suite itself, comparable with others


def test_other_poses_than_those_trained_on_do_not_fit(policy, tiny_suite, monkeypatch):
    assert not errors(fit.check(policy, tiny_suite))
    monkeypatch.setattr(policy, "trained", {**policy.trained, "environment": ["object x"]})
    (finding,) = errors(fit.check(policy, tiny_suite))
    assert finding.code == "environment"
    assert fit.sentence(finding).endswith("the policy was trained with object x")


def test_a_server_reads_the_poses_and_says_that_it_wants_them(policy, seen):
    about, _ = card.of(policy)
    card.check(about)
    (warm,) = requests.examples(about)  # what it is compiled with
    assert np.isfinite(policy.infer(warm)["actions"]).all()
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
    words = (
        rf"^{tiny_dataset} has no observation\.environment_state, the poses of objects that this model reads"
    )
    with pytest.raises(
        MorphVlaError, match=words + r"; record them with `morph-vla record SUITE 'cameras=\{\}"
    ):
        loop.train(recipe, tmp_path / "run")


def test_another_number_of_poses_than_the_model_reads_is_said(dataset, tmp_path):
    recipe = recipes.load("body_state", [f"data.dataset={dataset}", "model.environment=7"])
    words = r"'observation\.environment_state' has 14 values; set model\.environment, which is 7$"
    with pytest.raises(MorphVlaError, match=words):
        loop.train(recipe, tmp_path / "run")


def test_poses_without_names_are_refused_before_training(dataset, tmp_path):
    """A policy's values are told by name: none that was trained on these could be loaded."""
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    path = copy / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"]["observation.environment_state"]["names"] = None
    path.write_text(json.dumps(info))
    words = (
        rf"^{copy}: meta/info\.json does not name the 14 values of 'observation\.environment_state', which a "
        r"policy is told by name; list them there \(features, names\)$"
    )
    with pytest.raises(MorphVlaError, match=words):
        loop.train(recipes.load("body_state", [f"data.dataset={copy}"]), tmp_path / "run")


def test_a_window_longer_than_every_episode_is_refused(dataset, tmp_path):
    recipe = recipes.load("body_state", [f"data.dataset={dataset}"])
    looking = dataclasses.replace(recipe, model=Looking(window=3, stride=5000))
    words = r"the model looks back 10000 control steps \(model\.window: \(window - 1\) \* stride\), and the"
    with pytest.raises(MorphVlaError, match=words):
        Source(looking, tmp_path)


@pytest.mark.parametrize("run", ["mlp"], indirect=True)
def test_weights_of_another_family_are_refused(run, policy, tiny_recipe, tmp_path):
    other = dataclasses.replace(tiny_recipe, weights=str(run.checkpoint))
    words = f"trained as model.family '{policy.config.family}', the recipe has 'pi05'$"
    with pytest.raises(MorphVlaError, match=words):
        loop.train(other, tmp_path / "run")


@dataclasses.dataclass(frozen=True)
class Looking(WindowConfig, MlpConfig):
    """A model that looks back, of no family of its own."""


def test_a_window_is_rows_as_a_model_without_one_is_given_them(dataset, tmp_path):
    recipe = recipes.load("body_state", [f"data.dataset={dataset}"])
    looking = dataclasses.replace(recipe, model=Looking(window=3, stride=5))
    plain = Source(dataclasses.replace(recipe, model=MlpConfig()), tmp_path)
    which, rows = np.zeros(2, int), np.array([13, 7])
    assert plain.parts[0].recordings.ends[0] > 13
    windows = Source(looking, tmp_path).batch(which, rows).observation
    state, environment = np.asarray(windows.state), np.asarray(windows.environment)
    np.testing.assert_array_equal(np.asarray(windows.window_mask), [[True] * 3, [False, True, True]])
    for place, lag in enumerate((10, 5, 0)):
        alone = plain.batch(which, np.maximum(0, rows - lag)).observation
        assert alone.window_mask is None
        np.testing.assert_array_equal(state[:, place], alone.state)
        np.testing.assert_array_equal(environment[:, place], alone.environment)


def test_a_window_without_rows_is_refused():
    assert Looking(window=3, stride=5).lags == (10, 5, 0)
    for key, model in (("window", Looking(window=0)), ("stride", Looking(stride=0))):
        with pytest.raises(ConfigError, match=rf"^model\.{key}: must be at least 1, not 0$"):
            model.check()


@pytest.mark.parametrize("run", ["fourier", pytest.param("bet", marks=pytest.mark.slow)], indirect=True)
def test_a_policy_that_looks_back_is_shown_what_it_was_trained_on(policy, dataset, tmp_path):
    recipe = recipes.load("body_state", [f"data.dataset={dataset}", SMALL[policy.config.family]])
    source = Source(recipe, tmp_path)
    recordings = source.parts[0].recordings
    assert recordings.environment is not None
    for row in (0, 8, 16):
        asked = {
            "state": recordings.state[row],
            "environment_state": recordings.environment[row],
            "prompt": recordings.tasks[recordings.task_of[row]],
            "episode": 3,
            "step": row,
        }
        shown = policy.prepare([asked] * policy.batch)
        trained = source.batch(np.zeros(policy.batch, int), np.full(policy.batch, row)).observation
        for key in ("state", "environment", "window_mask"):
            np.testing.assert_array_equal(getattr(shown, key), getattr(trained, key))


ONE_PASS = "which answers in one pass and integrates no flow; leave it out"
SAME = "which draws nothing and always gives one observation the same answer; leave it out"


@pytest.mark.parametrize("verb", ["eval {} --suite droid_panda:cube_in_bowl -o there", "serve {}"])
def test_the_sampler_of_a_policy_without_one_is_refused_before_parameters_are_read(
    run, policy, verb, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(policies, "_own", lambda folder: pytest.fail("parameters are read"))
    begin, family = verb.format(run.checkpoint).split(), policy.config.family
    what = f"has no effect: {run.checkpoint} is a policy of model.family '{family}', "
    monkeypatch.chdir(tmp_path)
    assert cli.main([*begin, "--sampler-steps", "5"]) == 2
    assert capsys.readouterr().err == f"error: --sampler-steps 5 {what}{ONE_PASS}\n"
    sampler = Sampler(noise=0.5)
    if family == "bet":  # draws its kind
        return policies.check_sampler(run.checkpoint, sampler)
    assert cli.main([*begin, "--noise", "0.5"]) == 2
    assert capsys.readouterr().err == f"error: --noise 0.5 {what}{SAME}\n"
    policies.check_sampler(run.checkpoint, Sampler(noise=0.0))  # which is what it does
    return None


def test_a_grid_asks_the_same_sampler_of_all_its_policies(run):
    assert policies.load(run.checkpoint, steps=5, noise=0.5).sampler == {"steps": 5, "noise": 0.5}


@pytest.mark.parametrize("to", ["openpi", "lerobot", "morph_vla"])
@pytest.mark.parametrize("run", ["mlp", pytest.param("bet", marks=pytest.mark.slow)], indirect=True)
def test_its_weights_have_no_layout_of_others(run, policy, to, capsys, tmp_path):
    words = (
        f"{run.checkpoint} is a policy of model.family '{policy.config.family}': only pi0.5 has layouts that "
        "other programs read and write; use the checkpoint as it is (`eval`, `serve`, `push`)"
    )
    assert cli.main(["weights", "convert", str(run.checkpoint), str(tmp_path / "there"), "--to", to]) == 2
    assert capsys.readouterr().err == f"error: {words}\n"
    assert cli.main(["weights", "inspect", str(run.checkpoint)]) == 1
    assert f"does not fit: {words}" in capsys.readouterr().out
