"""`morph-vla bench families`: each condition of a grid answers, and all are held against the first."""

import json

import numpy as np
import pytest

from benchmarks import families
from morph_vla.cli import main
from morph_vla.hosts.lerobot import options
from morph_vla.policies.config import BetConfig, BodyConfig, FourierConfig, MlpConfig, NearestConfig

pytestmark = pytest.mark.slow

MODELS = (
    MlpConfig(action_dim=5, horizon=3, width=12, depth=1, hidden=7),
    BodyConfig(action_dim=5, horizon=3, width=12, depth=1, heads=2, mlp_dim=11),
    FourierConfig(action_dim=5, horizon=3, width=12, depth=1, mlp_dim=11, decoder=7, window=7, modes=3),
    BetConfig(action_dim=5, horizon=3, width=12, depth=1, heads=2, mlp_dim=11, bins=3, window=2),
    NearestConfig(action_dim=5, horizon=3, memory=61, neighbours=3),
)
GRID = """
title: Small
question: Which is sooner?
recipe: body_state
conditions:
  mlp: ["model={family: mlp, width: 8, depth: 1, hidden: 7}"]
  poses: [recipe=pi05_poses, model.depth=1, "model.expert={width: 24, mlp_dim: 8}"]
  act: [lerobot=act, policy.dim_model=8]
bodies: {panda: {suite: "droid_panda:cube_in_bowl", dataset: nowhere}}
splits: {panda: {train: [panda], judge: [panda]}}
seeds: [0]
sampler_steps: 2
"""


@pytest.mark.parametrize("config", MODELS, ids=lambda config: config.family)
def test_every_family_answers_with_a_chunk(config):
    chunk = families.answering(config)()
    assert chunk.shape == (1, 3, 5)
    assert np.isfinite(chunk).all()


@pytest.mark.long
def test_a_policy_of_lerobots_is_asked_between_its_processors(tiny_dataset, monkeypatch):
    pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")
    monkeypatch.setattr(options, "find_spec", lambda name: name)  # what trains it is not needed
    sizes = ["dim_model=12", "n_heads=2", "dim_feedforward=20", "chunk_size=5", "n_action_steps=3"]
    training = options.parsed(["lerobot=act", *(f"policy.{size}" for size in sizes)])
    count, ask = families.of_lerobot(training, tiny_dataset)
    assert count > 1000
    actions = ask()["actions"]
    assert actions.shape == (5, 8)
    assert np.isfinite(actions).all()


def test_conditions_are_held_against_the_first(tmp_path, capsys, caplog):
    (tmp_path / "small.yaml").write_text(GRID)
    assert main(["bench", "families", str(tmp_path / "small.yaml"), "--repeats", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    mlp, poses = result["rows"]
    assert [message.startswith("act is left out: ") for message in caplog.messages] == [True]
    assert (mlp["condition"], poses["condition"], result["sampler_steps"]) == ("mlp", "poses", 2)
    assert mlp["times"] == 1
    assert poses["times"] == pytest.approx(poses["answer_ms"] / mlp["answer_ms"])
    assert poses["action_ms"] == pytest.approx(poses["answer_ms"] / 8)
    assert 0 < mlp["parameters"] < poses["parameters"]
