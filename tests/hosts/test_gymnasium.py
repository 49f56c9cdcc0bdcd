"""Our suites in Gymnasium: its own checker passes, and the same actions give the same episode."""

import importlib
import importlib.util
import re
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'gymnasium'")
if importlib.util.find_spec("mujoco") is None:  # not importorskip: mujoco reads MUJOCO_GL when it is imported
    pytest.skip("needs the extra 'sim'", allow_module_level=True)

import gymnasium
from gymnasium.utils.env_checker import check_env

from morph_vla.demonstrations.experts import PickAndPlace
from morph_vla.engines.episode import UNSETTLED
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import ConfigError, MissingExtraError, MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.evaluation.rollout import Settings
from morph_vla.files import dropin
from morph_vla.hosts import gymnasium as plugin
from morph_vla.suites.environment import load_tasks
from morph_vla.suites.suite import Suite, initial_state

TASK, ROW = "morph_vla/droid_panda.can_in_mug", 5
SMALL = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]
SHORT = [*SMALL, "episode_seconds=0.2", "success.dwell_seconds=0.1", "settle_seconds=0.1"]  # three steps


@pytest.fixture
def make():
    """A function that makes environments, vector environments with `num_envs`, and closes them."""
    made = []

    def call(name: str = TASK, overrides=SMALL, **options):
        maker = gymnasium.make_vec if "num_envs" in options else gymnasium.make
        made.append(maker(name, overrides=overrides, **options))
        return made[-1]

    yield call
    for env in made:
        env.close()


def checked(env: gymnasium.Env) -> list[str]:
    """What Gymnasium's checker warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    return [str(warning.message) for warning in caught]


def test_every_task_of_every_suite_of_ours_is_registered():
    tasks = [task for path in dropin.available("suites").values() for task in load_tasks(path)]
    ids = {
        plugin.id_of(name) for task in tasks if isinstance(task, Suite) for name in (task.name, task.label)
    }
    assert {TASK, "morph_vla/droid_panda", "morph_vla/so101_pick_orange"} <= ids
    assert ids <= set(gymnasium.registry)


def test_gymnasiums_checker_passes_without_a_warning(make):
    assert checked(make(normalized=True)) == []


def test_of_joint_limits_it_says_only_that_learners_prefer_normalized_ones(make):
    (warning,) = checked(make())
    assert "recommend using a symmetric and normalized space" in warning


def test_actions_are_the_robots_limits_in_the_datasets_units(make):
    space = make().action_space
    assert space.shape == (8,)
    np.testing.assert_allclose(space.high[[0, 7]], [2.9671, 1.0], rtol=1e-6)  # [rad]; 1: gripper closed
    np.testing.assert_allclose(space.low[[0, 7]], [-2.9671, 0.0], rtol=1e-6, atol=1e-9)


def test_normalized_actions_span_the_limits(make):
    raw, normalized = make(), make(normalized=True)
    low, high = raw.action_space.low, raw.action_space.high
    for env in (raw, normalized):
        env.reset(options={"row": ROW})
    target = low + 0.75 * (high - low)
    after = raw.step(target)[0]["state"], normalized.step(np.full(8, 0.5, np.float32))[0]["state"]
    np.testing.assert_allclose(*after, atol=1e-5)


class Replay:
    """Answers with recorded actions, from the step that is asked about."""

    def __init__(self, actions: np.ndarray):
        self.actions = actions

    def infer(self, observation):
        return {"actions": self.actions[observation["step"] :]}


@pytest.mark.slow
def test_the_experts_actions_give_the_episode_of_an_evaluation(make):
    env = make(overrides=[*SMALL, "episode_seconds=12"])
    suite = env.unwrapped.suite
    engine = MujocoEngine(plugin.Stepper(suite).robot, suite)
    engine.reset({0: initial_state(suite, ROW, 8)})
    actions = PickAndPlace(engine).plan(0).actions.astype(np.float32)
    settings = Settings(1, first=ROW, parallel=1, workers=1, videos=0, open_loop=len(actions))
    (trial,) = rollout.evaluate(suite, Replay(actions), settings).trials

    _, info = env.reset(options={"row": ROW})
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    assert info["is_success"]
    assert (reward, terminated, truncated) == (1.0, True, False)
    ours = info["trial"]
    assert (ours.episode, ours.success, ours.steps, ours.time_s) == (ROW, True, trial.steps, trial.time_s)
    assert (ours.final_object, ours.final_target) == (trial.final_object, trial.final_target)
    assert (ours.clauses, ours.initial) == (trial.clauses, trial.initial)


def test_time_truncates_with_the_verdict_in_the_records_words(make):
    env = make(overrides=SHORT)
    env.reset(options={"row": 0})
    steps = [env.step(env.action_space.sample())[2:] for _ in range(3)]
    assert [truncated for _, truncated, _ in steps] == [False, False, True]
    assert not any(terminated for terminated, *_ in steps)
    trial = steps[-1][-1]["trial"]
    assert (trial.ended, trial.success, trial.failed_clause) == ("time", False, "reached")


def test_what_is_observed_and_said_is_what_a_policy_is_shown(make):
    observation, info = make().reset(options={"row": ROW})
    assert (
        info.pop("connection") != make().reset(options={"row": ROW})[1]["connection"]
    )  # whose episode it is
    assert set(observation) == {"images/exterior", "images/wrist", "state"}
    about = {"prompt": "put the can in the mug", "robot": "panda", "episode": ROW, "step": 0}
    assert info == {**about, "is_success": False}


def test_without_cameras_the_poses_of_objects_are_observed(make):
    env = make(overrides=["cameras={}", *SHORT[len(SMALL) :]], normalized=True)
    assert checked(env) == []
    observation, _ = env.reset(options={"row": ROW})
    assert {name: value.shape for name, value in observation.items()} == {
        "state": (8,), "environment_state": (14,),
    }  # fmt: skip
    (task,) = load_tasks("droid_panda:can_in_mug")
    assert isinstance(task, Suite)
    begun = initial_state(task, ROW, 8).poses["can"]
    np.testing.assert_allclose(observation["environment_state"][:2], begun[:2], atol=0.01)


def test_a_suites_tasks_take_turns_in_a_vector_environment(make):
    vector = make("morph_vla/droid_panda", SHORT, num_envs=4, autoreset_mode="NextStep")
    assert vector.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.NEXT_STEP
    assert vector.unwrapped.envs[0].unwrapped.suite is vector.unwrapped.envs[3].unwrapped.suite
    _, info = vector.reset(seed=11)
    turns = ["put the cube in the bowl", "put the can in the mug", "put banana in the bin"]
    assert list(info["prompt"]) == [*turns, turns[0]]
    assert len(set(info["episode"])) == 4


def test_an_environment_in_a_vector_is_the_same_as_alone(make):
    """Three steps, of which the last ends the episode, and the first observation of the next one."""
    vector, single = make(TASK, SHORT, num_envs=2), make(TASK, SHORT)
    action, alone = single.action_space.high, []
    for seed in (3, 4):
        single.reset(seed=seed)
        moved = [single.step(action)[0]["state"] for _ in range(3)]
        alone.append([*moved, single.reset()[0]["state"]])
    vector.reset(seed=3)
    together = [vector.step(np.stack([action, action])) for _ in range(4)]
    np.testing.assert_array_equal([step[0]["state"] for step in together], np.swapaxes(alone, 0, 1))
    assert [bool(step[3].all()) for step in together] == [False, False, True, False]


def test_states_without_a_row_are_none_of_the_table(make):
    env = make()
    _, drawn = env.reset(seed=1)
    state = env.reset(options={"row": drawn["episode"]})[0]["state"]
    assert not np.array_equal(state, env.reset(seed=1)[0]["state"])


def test_a_film_shows_the_scene(make):
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (288, 384, 3)
    assert env.metadata["render_fps"] == 15


def test_a_suite_file_of_the_users_own(make, tmp_path, root, caplog):
    text = (root / "eval" / "so101_pick_orange.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "broken.yaml").write_text("version: one")
    (tmp_path / "no id.yaml").write_text(text)
    cameras = [f"cameras.{name}.{side}=24" for name in ("front", "wrist") for side in ("width", "height")]
    assert make(plugin.ANY, cameras, suite=str(tmp_path / "mine.yaml")).unwrapped.suite.label == "mine"
    assert plugin.register_suites([tmp_path]) == ("morph_vla/mine",)
    assert plugin.register_suites([tmp_path]) == ()
    assert make("morph_vla/mine", cameras).reset(seed=0)[1]["prompt"] == "Grab orange and place into plate"
    assert re.search(r"broken\.yaml is not registered: .*: missing", caplog.text)
    assert re.search(r"no id\.yaml is not registered: Malformed environment ID", caplog.text)
    gymnasium.registry.pop("morph_vla/mine")


def test_mistakes_are_named(make, monkeypatch):
    with pytest.raises(
        MorphVlaError, match=r"^suite 'droid_panda' has 3 tasks, and an environment plays one: "
    ):
        make("morph_vla/droid_panda")
    with pytest.raises(ConfigError, match=r"cameras\.exterior\.widht"):
        make(overrides=["cameras.exterior.widht=3"])
    env = make()
    with pytest.raises(
        MorphVlaError, match=r"^reset has no option 'rows'; did you mean 'row'\? \(it has row\)$"
    ):
        env.reset(options={"rows": 3})
    with pytest.raises(MorphVlaError, match=r"^reset: row expects an integer, not 'three'$"):
        env.reset(options={"row": "three"})
    stepper = env.unwrapped._stepper
    env.reset(options={"row": 3})
    failed = stepper.status(0).failed(UNSETTLED)
    with monkeypatch.context() as patched:
        patched.setattr(stepper, "status", lambda index: failed)
        with pytest.raises(MorphVlaError, match=r"^reset: the physics diverged while the world settled$"):
            env.reset(options={"row": 4})  # it would show row 3
        with pytest.raises(MorphVlaError, match=r"^reset: the physics diverged"):
            env.reset()
    with monkeypatch.context() as patched:
        status, left = stepper.status, [failed] * (plugin.DRAWS - 1)
        patched.setattr(stepper, "status", lambda index: left.pop() if left else status(index))
        env.reset()  # a state that is drawn is drawn again
        assert left == []
    with pytest.raises(
        MorphVlaError, match=r"^engine isaaclab: its worlds move together, and Gymnasium resets "
    ):
        make(num_envs=2, engine="isaaclab")


@pytest.mark.usefixtures("pip_installs")
def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "morph_vla.hosts.gymnasium")
    with pytest.raises(MissingExtraError, match=r"pip install 'morph-vla\[gymnasium\]'$"):
        importlib.import_module("morph_vla.hosts.gymnasium")
