"""Our policies and suites in LeRobot's commands: the same episodes as in `morph-vla eval`."""

import importlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")

from lerobot.configs import PreTrainedConfig, parser
from lerobot.envs import EnvConfig, env_to_policy_features, make_env, preprocess_observation
from lerobot.policies import get_policy_class, make_policy, make_pre_post_processors
from lerobot.scripts.lerobot_eval import eval_policy_all
from lerobot.utils.import_utils import register_third_party_plugins

from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.hosts.lerobot import export
from morph_vla.hosts.lerobot.configuration_morph_vla import MorphVlaConfig
from morph_vla.hosts.lerobot.environment import MorphVlaEnv, SuiteEnv
from morph_vla.hosts.lerobot.modeling_morph_vla import MorphVlaPolicy
from morph_vla.serving import policy as policies
from morph_vla.serving import remote
from morph_vla.serving.history import History
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites import suite as suites

NAME = "droid_panda:cube_in_bowl"
SMALL = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]
# The cube is "in the bowl" where it lies on one side of it: some rows succeed at once, others never.
LOOSE = [
    *SMALL, "episode_seconds=1.2", "settle_seconds=0.1", "success.dwell_seconds=0.3", "success.min_opening=0",
    "success.low=[0.0, -2, -2]", "success.high=[2, 2, 2]",
]  # fmt: skip


@pytest.fixture
def asked(monkeypatch) -> dict:
    """(episode, step) -> what a checkpoint's policy was shown and answered."""
    moments, infer = {}, CheckpointPolicy.infer_batch

    def spied(self, observations):
        answers = infer(self, observations)
        for seen, answer in zip(observations, answers, strict=True):
            moments[seen["episode"], seen["step"]] = seen, answer["actions"]
        return answers

    monkeypatch.setattr(CheckpointPolicy, "infer_batch", spied)
    return moments


@pytest.mark.gl
@pytest.mark.slow
def test_lerobot_eval_plays_the_episodes_of_morph_vla_eval_bit_for_bit(tiny_run, tmp_path, asked):
    task, rows = suites.load(NAME, LOOSE), 6
    ours = CheckpointPolicy(tiny_run.checkpoint, batch=10)
    record = rollout.evaluate(task, ours, rollout.Settings(episodes=rows, parallel=3, workers=1))
    here = dict(asked)
    asked.clear()
    export.write(str(tiny_run.checkpoint), tmp_path)
    result = lerobot_eval(tmp_path, MorphVlaEnv(NAME, overrides=LOOSE), rows, 3)
    successes = [trial.success for trial in record.trials]
    assert len({*successes}) == 2
    assert result["per_task"][0]["metrics"]["successes"] == successes
    assert result["per_task"][0]["metrics"]["sum_rewards"] == [float(success) for success in successes]
    assert here.keys() == asked.keys()  # also where LeRobot's loop goes on for an episode that has ended
    for moment, (seen, actions) in here.items():
        again, same = asked[moment]
        assert np.array_equal(same, actions)
        keys = seen.keys() - {"connection"}  # whose episode it is
        assert {key for key in keys if not np.array_equal(seen[key], again[key])} == set()


def lerobot_eval(folder: Path, env: MorphVlaEnv, rows: int, batch: int) -> dict:
    """What the command does between its command line and its file."""
    config = PreTrainedConfig.from_pretrained(folder)
    config.pretrained_path = folder
    policy = make_policy(config, env_cfg=env)
    overrides = {"device_processor": {"device": "cpu"}, "rename_observations_processor": {"rename_map": {}}}
    before, after = make_pre_post_processors(config, str(folder), preprocessor_overrides=overrides)
    env_before, env_after = env.get_env_processors()
    return eval_policy_all(
        make_env(env, n_envs=batch), policy, env_before, env_after, before, after, n_episodes=rows,
        start_seed=0,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- suites


@pytest.fixture(scope="module")
def vector():
    """Three episodes of the loose suite."""
    made = SuiteEnv(suites.load(NAME, LOOSE), 3)
    yield made
    made.close()


@pytest.mark.gl
def test_what_lerobot_is_told_to_expect_is_what_it_is_shown(vector):
    config = MorphVlaEnv(NAME, overrides=LOOSE)
    seen, _ = vector.reset(seed=[0, 1, 2])
    shown, expected = preprocess_observation(seen), env_to_policy_features(config)
    assert expected.keys() == {
        "action", "observation.state", "observation.images.exterior", "observation.images.wrist",
    }  # fmt: skip
    for key in expected.keys() - {"action"}:
        assert tuple(shown[key].shape) == (3, *expected[key].shape)
    assert shown.keys() - expected.keys() == {f"observation.{name}" for name in ("episode", "step", "ended")}
    assert (config.type, config.fps, vector.metadata["render_fps"]) == ("morph_vla", 15, 15)
    assert {frame.shape for frame in vector.render()} == {(24, 48, 3)}
    assert vector.call("task_description") == ["put the cube in the bowl"] * 3
    assert vector.get_attr("_max_episode_steps") == [18] * 3
    with pytest.raises(AttributeError, match=r"^speed$"):
        vector.call("speed")


def test_without_cameras_lerobot_is_shown_the_poses_of_objects():
    blind = ["cameras={}", *LOOSE[len(SMALL) :]]
    config, env = MorphVlaEnv(NAME, overrides=blind), SuiteEnv(suites.load(NAME, blind), 2)
    seen, _ = env.reset(seed=[3, 5])
    shown, expected = preprocess_observation(seen), env_to_policy_features(config)
    assert expected.keys() == {"action", "observation.state", "observation.environment_state"}
    for key in expected.keys() - {"action"}:
        assert tuple(shown[key].shape) == (2, *expected[key].shape)
    assert not np.array_equal(*seen["environment_state"])
    assert {frame.shape for frame in env.render()} == {(64, 64, 3)}
    env.close()


@pytest.mark.gl
def test_a_seed_is_a_row_and_without_seeds_rows_follow_each_other(vector):
    def first(**options) -> np.ndarray:
        return vector.reset(**options)[0]["agent_pos"].copy()

    again, other = first(seed=[2, 0, 1]), first(seed=[0, 1, 2])
    assert np.array_equal(again, other[[2, 0, 1]])
    assert first()[0].tolist() == first(seed=[3, 7, 7])[0].tolist()
    seen, _ = vector.reset(seed=[5, 6, 7])
    assert (seen["episode"].tolist(), seen["step"].tolist()) == ([[5], [6], [7]], [[0], [0], [0]])
    for row in (-1, 2**24):
        with pytest.raises(
            MorphVlaError, match=f"seed {row} is no row of the suite's table; expected 0 to 16777215"
        ):
            vector.reset(seed=[0, 1, row])
    assert first()[0].tolist() == first(seed=[8, 0, 0])[0].tolist()  # a refused call has changed nothing


@pytest.mark.gl
def test_an_episode_that_has_ended_stands_still_and_is_paid_once(vector):
    seen, _ = vector.reset(seed=[0, 1, 2])
    stay, paid, ends = seen["agent_pos"], np.zeros(3), []
    terminated = truncated = np.zeros(3, bool)
    for _ in range(18):
        seen, rewards, terminated, truncated, info = vector.step(stay)
        paid += rewards
        ends.append(terminated | truncated)
        assert np.array_equal(info["is_success"], terminated)
    assert np.array_equal(np.maximum.accumulate(ends), ends)
    assert ends[-1].all()
    assert not (terminated & truncated).any()
    assert 0 < terminated.sum() < 3  # by the rows' objects
    assert np.array_equal(paid, terminated)
    steps = np.argmax(ends, axis=0) + 1
    assert seen["step"][:, 0].tolist() == [step - 1 for step in steps]  # what was shown before the end
    assert seen["ended"].tolist() == [[1.0]] * 3
    still, *_ = vector.step(stay + 0.1)
    assert np.array_equal(still["agent_pos"], seen["agent_pos"])


@pytest.mark.gl
def test_actions_that_cannot_be_executed_are_refused(vector):
    seen, _ = vector.reset(seed=[0, 1, 2])
    with pytest.raises(
        MorphVlaError, match=r"^the policy's actions have shape \(1, 5\); expected \(horizon, 8\)"
    ):
        vector.step(seen["agent_pos"][:, :5])
    with pytest.raises(MorphVlaError, match=r"^the policy's actions hold 8 values that are not finite$"):
        vector.step(seen["agent_pos"] * np.float32("nan"))


def test_a_suite_of_several_tasks_is_a_group_of_them():
    made = MorphVlaEnv("droid_panda").create_envs(2, use_async_envs=True)
    assert {name: list(tasks) for name, tasks in made.items()} == {"droid_panda": [0, 1, 2]}
    assert [env.suite.task_name for env in made["droid_panda"].values()] == [
        "cube_in_bowl", "can_in_mug", "banana_in_bin",
    ]  # fmt: skip
    with pytest.raises(MorphVlaError, match=r"no suite is called 'droid_pandas'|did you mean 'droid_panda'"):
        MorphVlaEnv("droid_pandas")


class LooksBack:
    """Holds still; raises where a window's rows were not shown."""

    def __init__(self):
        self.history, self.asked, self.beside = History((6, 3, 0)), [], []

    def infer(self, observation):
        return self.infer_batch([observation])[0]

    def infer_batch(self, observations):
        self.history.states(observations)
        self.asked += [(row["episode"], row["step"]) for row in observations]
        self.beside.append(len(observations))
        return [{"actions": np.tile(row["state"], (5, 1))} for row in observations]


@pytest.mark.slow
def test_an_episode_that_has_ended_is_not_asked_again(monkeypatch, tmp_path):
    """A policy that looks back was not shown the window of the step at which it stands still."""
    blind, looking = ["cameras={}", *LOOSE[len(SMALL) :]], LooksBack()
    monkeypatch.setattr(remote, "reach", lambda *_, preset: looking)
    policy = MorphVlaPolicy(MorphVlaConfig(device="cpu", checkpoint="ws://there", n_action_steps=3))
    env = SuiteEnv(suites.load(NAME, blind), 3)
    seen, _ = env.reset(seed=[0, 1, 2])
    policy.reset()
    lasted, over = np.zeros(3, int), np.zeros(3, bool)
    while not over.all():
        lasted += ~over
        actions = policy.select_action({**preprocess_observation(seen), "task": ["put it there"] * 3})
        seen, _, terminated, truncated, _ = env.step(actions.numpy())
        over = terminated | truncated
    env.close()
    assert len({*lasted}) > 1  # one goes on where another stands still
    assert sorted(looking.asked) == [
        (row, step) for row in range(3) for step in range(0, int(lasted[row]), 3)
    ]
    # A new rollout asks of all, whatever is known of the last one.
    policy.reset()
    seen, _ = (env := SuiteEnv(env.suite, 3)).reset(seed=[0, 1, 2])
    policy.select_action(preprocess_observation(seen))
    env.close()
    assert looking.beside[-1] == 3


def test_a_policy_on_the_hub_is_its_checkpoint_there(monkeypatch, tmp_path):
    """LeRobot fetches config.json alone; what it says lies beside it there, at the same revision."""
    asked = []
    monkeypatch.setattr(policies, "load", lambda where, **_: asked.append(where) or LooksBack())
    config = MorphVlaConfig(device="cpu", checkpoint=".", n_action_steps=3)
    MorphVlaPolicy.from_pretrained("me/mine", config=config)
    MorphVlaPolicy.from_pretrained("me/mine", config=config, revision="v2")
    MorphVlaPolicy.from_pretrained(tmp_path, config=config)
    assert asked == ["hf://me/mine", "hf://me/mine@v2", tmp_path.resolve()]


# ------------------------------------------------------------------------------------------------- files


def test_what_config_json_says_of_a_checkpoint(tmp_path, run, monkeypatch):
    stats = {key: [0.0] * 5 for key in ("q01", "q99", "mean", "std")}
    trained = {
        "joints": [f"joint{i}" for i in range(5)], "control_rate": 30.0, "cameras": {"base_0_rgb": "front"},
        "sizes": {"front": [7, 11]}, "actions": "absolute", "relative": [True] * 5, "state_stats": stats,
        "action_stats": stats, "environment": ["x", "y", "z"],
    }  # fmt: skip
    checkpoint = tmp_path / "1500"
    (checkpoint / "about").mkdir(parents=True)
    policy_json = checkpoint / "about" / "policy.json"
    policy_json.write_text(json.dumps({"robots": {"so101": trained}, "step": 1500}))
    status, out, err = run(f"weights convert {checkpoint} {tmp_path / 'beside'} --to lerobot-plugin")
    assert (status, err) == (0, "")
    assert out == f"{tmp_path / 'beside'}: lerobot-plugin, for lerobot-eval --policy.path\n"
    config = PreTrainedConfig.from_pretrained(tmp_path / "beside")
    assert isinstance(config, MorphVlaConfig)
    assert (config.checkpoint, config.robot, config.n_action_steps) == (str(checkpoint), "so101", 0)
    shapes = {key: tuple(feature.shape) for key, feature in (config.input_features or {}).items()}
    front = {"observation.images.front": (3, 7, 11)}
    assert shapes == {"observation.state": (5,), "observation.environment_state": (3,), **front}
    assert config.action_feature is not None
    assert tuple(config.action_feature.shape) == (5,)
    export.write(str(checkpoint), checkpoint)
    assert json.loads((checkpoint / "config.json").read_text())["checkpoint"] == "."
    status, _, err = run(f"weights convert pi05-nano {tmp_path / 'base'} --to lerobot-plugin")
    assert (status, err) == (0, "")
    assert json.loads((tmp_path / "base" / "config.json").read_text())["checkpoint"].endswith("pi05_nano")
    status, _, err = run(f"weights convert {checkpoint} {tmp_path / 'beside'} --to lerobot-plugin")
    path = tmp_path / "beside" / "config.json"
    assert (status, err) == (2, f"error: {path} exists already: remove it, or name another folder\n")
    policy_json.write_text(json.dumps({"robots": {"so101": trained, "panda": trained}, "step": 3}))
    export.write(str(checkpoint), tmp_path / "several")
    several = PreTrainedConfig.from_pretrained(tmp_path / "several")
    assert isinstance(several, MorphVlaConfig)
    assert (several.robot, several.input_features) == ("", {})  # --policy.robot says which
    monkeypatch.setitem(sys.modules, "lerobot.configs", None)
    words = r"^the installed 'lerobot' has no 'lerobot.configs', which another"
    with pytest.raises(MissingExtraError, match=words):
        export.write(str(checkpoint), tmp_path / "never")


@pytest.mark.parametrize("source", ["http://localhost:8000", "ws://", "wss:///x", "s3://bucket/arm"])
def test_an_address_that_leads_nowhere_is_refused_before_anything_is_written(tmp_path, source):
    words = "is no checkpoint or server: expected a folder, or hf://..., gs://..., ws://..., wss://...$"
    with pytest.raises(MorphVlaError, match=f"^'{source}' {words}"):
        export.write(source, tmp_path / "policy")
    with pytest.raises(MorphVlaError, match="nonsense"):
        export.write("hf://nonsense", tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(
        MorphVlaError, match=r"is not empty, and is not that checkpoint's folder: name another"
    ):
        export.write("ws://there:8000", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_lerobot_discovers_both_by_the_packages_path():
    parser.load_plugin("morph_vla.hosts.lerobot")
    assert PreTrainedConfig.get_choice_class("morph_vla") is MorphVlaConfig
    assert EnvConfig.get_choice_class("morph_vla") is MorphVlaEnv
    assert get_policy_class("morph_vla") is MorphVlaPolicy


def test_lerobot_discovers_the_distribution_by_its_name(root, tmp_path, monkeypatch):
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling, of the extra 'dev'")
    name = "lerobot_policy_morph_vla"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root / "plugins" / name, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    register_third_party_plugins()
    assert Path(str(sys.modules[name].__file__)).is_relative_to(tmp_path)
    monkeypatch.delitem(sys.modules, name)
