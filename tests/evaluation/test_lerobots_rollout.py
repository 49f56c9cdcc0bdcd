"""What LeRobot's own rollout does around an environment and a policy is done here too."""

import contextlib
import json

import numpy as np
import pytest

pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")

import torch
from lerobot.configs import FeatureType, PolicyFeature
from test_lerobot_policies import IMAGE, act, save  # noqa: F401 (a fixture)
from tiny_environment import Tiny
from tiny_lerobot import TinyConfig
from tiny_suites import GYMNASIUM, LEROBOT, evaluate

from morph_vla.engines.gymnasium import reading
from morph_vla.engines.gymnasium.probe import probe
from morph_vla.engines.gymnasium.stage import Environments
from morph_vla.errors import MorphVlaError
from morph_vla.hosts.lerobot import theirs
from morph_vla.hosts.lerobot.theirs import LerobotPolicy
from morph_vla.suites.environment import EnvironmentSuite, load_tasks
from morph_vla.suites.suite import InitialState, load


@pytest.fixture
def task(tmp_path):
    (tmp_path / "tiny.yaml").write_text(LEROBOT)
    return load_tasks(tmp_path / "tiny.yaml")[0]


def processors(monkeypatch, before=lambda batch: batch, after=lambda transition: transition):
    """The environment's own, around its observations and its actions."""
    monkeypatch.setattr(TinyConfig, "get_env_processors", lambda _: (before, after))


@contextlib.contextmanager
def begun(task):
    """Row 0, in this process."""
    with contextlib.closing(Environments(task, 1)) as stage:
        stage.prepare()
        stage.reset({0: InitialState(0, {}, ())})
        yield stage


@pytest.mark.slow
def test_an_environments_own_processor_makes_its_actions(monkeypatch, task):
    """Bounds are those of what comes out: here of a policy that answers in degrees, say."""
    processors(monkeypatch, after=lambda transition: {"action": -transition["action"] / 60})
    seen = probe(task)
    assert (seen.low.tolist(), seen.high.tolist()) == ([-np.inf], [np.inf])
    with begun(task) as stage:
        for degrees, expected in ((30, -0.5), (90, -1.5)):  # the second is cut to -1
            stage.step({0: np.full(1, degrees, np.float32)})
            assert np.asarray(stage.observe(0)["state"])[0] == expected


@pytest.mark.slow
def test_its_state_of_the_environment_reaches_a_policy_that_reads_it(monkeypatch, task):
    numbers = torch.tensor([[3.0, 5.0, 7.0]])
    processors(monkeypatch, before=lambda batch: {**batch, "observation.environment_state": numbers})
    with begun(task) as stage:
        assert np.asarray(stage.observe(0)["environment_state"]).tolist() == [3, 5, 7]


@pytest.mark.slow
def test_the_text_is_the_environments_task_where_it_has_no_description(monkeypatch, tmp_path):
    (tmp_path / "tiny.yaml").write_text(GYMNASIUM)
    (task,) = load_tasks(tmp_path / "tiny.yaml")
    assert isinstance(task, EnvironmentSuite)
    monkeypatch.delattr(Tiny, "task_description")
    words = "task: no text, nor has the environment one: a policy is asked for nothing in words"
    assert words in [finding.found for finding in probe(task).findings if finding.severity == "warning"]
    monkeypatch.setattr(Tiny, "task", "walk there", raising=False)
    assert "its text is 'walk there'" in [finding.found for finding in probe(task).findings]


def test_what_is_seen_is_told_apart_by_pictures_or_by_words_where_there_are_no_numbers():
    words = np.array(["push the block", "pull the block"])
    pictures = np.arange(96, dtype=np.uint8).reshape(2, 6, 8, 1)
    assert reading.fingerprint({"text": words}, 0) != reading.fingerprint({"text": words}, 1)
    both = {"text": words, "image": pictures}
    assert reading.fingerprint(both, 0) == reading.fingerprint({"image": pictures}, 0)
    assert reading.fingerprint(both, 0) != reading.fingerprint(both, 1)


def test_a_policy_that_was_trained_with_renamed_cameras_is_shown_the_first_names(act, tmp_path):  # noqa: F811
    folder = tmp_path / "renamed"
    folder.mkdir()
    for path in act.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    file = folder / "policy_preprocessor.json"
    pipeline = json.loads(file.read_text())
    (step,) = (s for s in pipeline["steps"] if s["registry_name"] == "rename_observations_processor")
    step["config"]["rename_map"] = {"observation.images.scene": IMAGE}
    file.write_text(json.dumps(pipeline))
    policy = LerobotPolicy(folder)
    assert policy.reads == {"state": 2, "images/scene": 0}
    image, state = np.full((6, 8, 3), 7, np.uint8), np.array([0.25, -3.0], np.float32)
    seen = {"state": state, "prompt": "go", "episode": 1, "step": 2}
    answer = policy.infer({**seen, "images/scene": image})["actions"]
    np.testing.assert_array_equal(
        answer, LerobotPolicy(act).infer({**seen, "images/front": image})["actions"]
    )


def test_places_of_cameras_that_are_not_there_are_not_asked_for():
    inputs = {
        "observation.state": PolicyFeature(FeatureType.STATE, (2,)),
        IMAGE: PolicyFeature(FeatureType.VISUAL, (3, 6, 8)),
        "observation.images.empty_camera_0": PolicyFeature(FeatureType.VISUAL, (3, 6, 8)),
    }

    class Config:
        input_features = inputs

    class Before:
        steps = ()

    assert list(theirs.features_of(Config, Before)) == ["observation.state", IMAGE]


@pytest.mark.slow
def test_what_a_policy_reads_is_held_against_the_suite_before_the_first_episode(act, task):  # noqa: F811
    words = r"the suite shows images/exterior, images/wrist, state, the policy reads 'images/front'"
    with pytest.raises(MorphVlaError, match=words):
        evaluate(LerobotPolicy(act), load("droid_panda:cube_in_bowl"), episodes=1)
    wide = save_of(act.parent, states=3)
    with pytest.raises(MorphVlaError, match=r"state: the suite shows 2 values, the policy reads 3"):
        evaluate(LerobotPolicy(wide), task, episodes=1)


@pytest.mark.slow
def test_what_lerobot_would_execute_of_an_answer_is_said(act, tmp_path, caplog):  # noqa: F811
    (tmp_path / "tiny.yaml").write_text(GYMNASIUM)
    (task,) = load_tasks(tmp_path / "tiny.yaml")
    said = "3 actions of an answer are executed; the policy's own n_action_steps is 2: --open-loop 2"
    evaluate(LerobotPolicy(act), task, episodes=1)
    assert said in caplog.messages
    caplog.clear()
    evaluate(LerobotPolicy(act), task, episodes=1, open_loop=3)
    assert said not in caplog.messages


def save_of(folder, states: int):
    """An ACT that reads so many values of a state, and nothing else but the tiny environment's picture."""
    inputs = {
        "observation.state": PolicyFeature(FeatureType.STATE, (states,)),
        "observation.images.image": PolicyFeature(FeatureType.VISUAL, (3, 6, 8)),
    }
    wide = folder / "wide"
    wide.mkdir()
    return save(wide, 3, inputs, {"action": PolicyFeature(FeatureType.ACTION, (1,))})
