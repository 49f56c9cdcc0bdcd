"""LeRobot's own policies, evaluated on another simulator's environment as ours are."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies import get_policy_class, make_policy_config, make_pre_post_processors
from tiny_environment import LIMIT
from tiny_suites import GYMNASIUM, LEROBOT, evaluate

from morph_vla.errors import MorphVlaError
from morph_vla.hosts.lerobot import theirs
from morph_vla.hosts.lerobot.theirs import LerobotPolicy, try_out
from morph_vla.suites.environment import load_tasks
from morph_vla.suites.suite import load

IMAGE = "observation.images.front"


@pytest.fixture(scope="module")
def act(tmp_path_factory):
    """LeRobot's ACT with random parameters, in a folder as lerobot-train writes it."""
    folder = tmp_path_factory.mktemp("act")
    inputs = {
        "observation.state": PolicyFeature(FeatureType.STATE, (2,)),
        IMAGE: PolicyFeature(FeatureType.VISUAL, (3, 6, 8)),
    }
    return save(folder, 3, inputs, {"action": PolicyFeature(FeatureType.ACTION, (1,))})


def save(folder, chunk: int, inputs, outputs):
    """An ACT of random parameters in `folder`."""
    config = make_policy_config(
        "act", device="cpu", input_features=inputs, chunk_size=chunk, n_action_steps=2, dim_model=12,
        n_heads=2, output_features=outputs, dim_feedforward=20, n_encoder_layers=1, use_vae=False,
        pretrained_backbone_weights=None, push_to_hub=False,
    )  # fmt: skip
    torch.manual_seed(0)
    stats = {
        key: {"mean": torch.full(shape, 0.5), "std": torch.full(shape, 2.0)}
        for key, feature in (inputs | outputs).items()
        for shape in [(3, 1, 1) if feature.type == FeatureType.VISUAL else feature.shape]
    }
    get_policy_class("act")(config).save_pretrained(folder)
    for pipeline in make_pre_post_processors(config, dataset_stats=stats):
        pipeline.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "text", [GYMNASIUM, pytest.param(LEROBOT, marks=pytest.mark.slow)], ids=["gymnasium", "lerobot"]
)
def test_an_environment_is_evaluated_with_lerobots_own_policy(act, text, tmp_path, monkeypatch):
    """A random policy walks somewhere: what counts is that every step is one that the policy chose."""
    (tmp_path / "tiny.yaml").write_text(text.replace("image:", "front:"))
    (task,) = load_tasks(
        tmp_path / "tiny.yaml", ["images={front: observation.image}"] if text == LEROBOT else []
    )
    policy, asked = LerobotPolicy(act), []
    infer = policy.infer
    monkeypatch.setattr(policy, "infer", lambda seen: asked.append((seen, infer(seen))) or asked[-1][1])
    record = evaluate(policy, task, episodes=2, open_loop=2)
    assert record.summary.errors == 0
    assert [trial.steps for trial in record.trials] == [LIMIT, LIMIT]
    for seen, answer in asked:
        assert answer["actions"].shape == (3, 1)
        assert np.array_equal(infer(seen)["actions"], answer["actions"])  # by its episode and step alone
    starts = {seen["episode"]: (seen["state"], answer) for seen, answer in asked if seen["step"] == 0}
    for seen, _ in asked:  # the state two steps on is the one before plus what was answered, within bounds
        if seen["step"] == 2:
            state, answer = starts[seen["episode"]]
            moved = np.clip(answer["actions"][:2, 0], -1, 1).sum()
            assert seen["state"][0] == pytest.approx(state[0] + moved, abs=1e-5)
    assert policy.describe()["type"] == "act"


def test_it_answers_what_lerobots_own_pipelines_give(act):
    policy = LerobotPolicy(act)
    rng = np.random.default_rng(1)
    image, state = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8), np.array([0.25, -3.0], np.float32)
    answer = policy.infer({"images/front": image, "state": state, "prompt": "go", "episode": 1, "step": 2})
    loaded = get_policy_class("act").from_pretrained(act)
    before, after = make_pre_post_processors(loaded.config, pretrained_path=str(act))
    batch = {
        IMAGE: torch.from_numpy(image).permute(2, 0, 1)[None] / 255,
        "observation.state": torch.from_numpy(state)[None],
    }
    with torch.inference_mode():
        expected = after(loaded.predict_action_chunk(before({**batch, "task": ["go"]})))
    assert np.allclose(answer["actions"], expected[0].numpy(), atol=1e-6)


def test_a_policy_is_tried_out_on_a_blank_observation(act, monkeypatch):
    """As it is evaluated: of its own keys and shapes, pictures among them."""
    loaded = get_policy_class("act").from_pretrained(act)
    pipelines, seen = make_pre_post_processors(loaded.config, pretrained_path=str(act)), []
    predict = loaded.predict_action_chunk
    monkeypatch.setattr(loaded, "predict_action_chunk", lambda batch: seen.append(batch) or predict(batch))
    try_out(loaded, *pipelines)
    (batch,) = seen
    assert tuple(batch[IMAGE].shape) == (1, 3, 6, 8)
    assert tuple(batch["observation.state"].shape) == (1, 2)
    monkeypatch.setattr(loaded, "predict_action_chunk", lambda batch: torch.zeros(1, 1))
    with pytest.raises(MorphVlaError, match=r"^the policy's actions have shape \(1,\)"):
        try_out(loaded, *pipelines)


def test_a_policy_without_cameras_is_shown_where_things_are(tmp_path, monkeypatch):
    """An ACT on joint values and poses, as lerobot-train makes of a recording with `cameras={}`."""
    inputs = {
        "observation.state": PolicyFeature(FeatureType.STATE, (8,)),
        "observation.environment_state": PolicyFeature(FeatureType.ENV, (14,)),
    }
    outputs = {"action": PolicyFeature(FeatureType.ACTION, (8,))}
    folder = save(tmp_path, 5, inputs, outputs)
    policy, asked = LerobotPolicy(folder), []
    assert policy.cameras == {}
    infer = policy.infer
    monkeypatch.setattr(policy, "infer", lambda seen: asked.append(seen) or infer(seen))
    record = evaluate(
        policy, load("droid_panda:cube_in_bowl", ["episode_seconds=1"]), episodes=1, open_loop=5
    )
    assert record.summary.errors == 0
    assert len(asked) == 3
    for seen in asked:
        assert seen["environment_state"].shape == (14,)
        assert not any(key.startswith("images/") for key in seen)


def test_its_digest_is_of_what_answers_and_not_of_where_it_was_trained(act, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(act, copy)
    (copy / "train_config.json").write_text('{"output_dir": "elsewhere"}')
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "pretrained_path": "elsewhere/last"}))
    there = LerobotPolicy(act).describe()["sha256"]
    assert LerobotPolicy(copy).describe()["sha256"] == there
    assert capsys.readouterr().out == ""
    (copy / "config.json").write_text(json.dumps({**config, "n_action_steps": 1}))
    assert LerobotPolicy(copy).describe()["sha256"] != there


def test_that_chunks_are_not_averaged_over_time_is_said(act, tmp_path, caplog):
    """LeRobot would ask at every step and average what it was answered."""
    shutil.copytree(act, tmp_path / "copy")
    config = json.loads((act / "config.json").read_text())
    averaged = {**config, "temporal_ensemble_coeff": 0.01, "n_action_steps": 1}
    (tmp_path / "copy/config.json").write_text(json.dumps(averaged))
    LerobotPolicy(act)
    assert caplog.messages == []
    LerobotPolicy(tmp_path / "copy")
    (message,) = caplog.messages
    assert message.endswith("temporal_ensemble_coeff 0.01 is not applied: chunks are executed as they are")


def test_what_cannot_be_asked_is_said(act, tmp_path, monkeypatch):
    with pytest.raises(MorphVlaError, match=r"no LeRobot policy: it has no config.json$"):
        LerobotPolicy(tmp_path)
    with pytest.raises(
        MorphVlaError, match=r"the observation lacks images/front, which the policy calls obs"
    ):
        LerobotPolicy(act).infer({"state": np.zeros(2, np.float32), "prompt": ""})
    with monkeypatch.context() as patched:
        patched.setattr(theirs, "_answer", lambda *_: torch.stack([]))
        with pytest.raises(
            MorphVlaError, match=r"act0: LeRobot's 'act' answers one observation with no chunk: s"
        ):
            LerobotPolicy(act)
    (tmp_path / "config.json").write_text(json.dumps({"type": "actt"}))
    with pytest.raises(MorphVlaError, match=r"LeRobot cannot load this policy: Policy type 'actt'"):
        LerobotPolicy(tmp_path)
