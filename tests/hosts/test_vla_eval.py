"""vla-eval plays our checkpoint on our suite with its own runner: the trials of an evaluation."""

import dataclasses
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.evaluation.rollout import Settings

ROWS = 2
SHORT = ["episode_seconds=2", "settle_seconds=0.1"]
SMALL = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]


@pytest.fixture(scope="module")
def plugin():
    pytest.importorskip("vla_eval", reason="needs the extra 'vla-eval'")
    from morph_vla.hosts import vla_eval

    return vla_eval


@pytest.fixture(scope="module")
def server(plugin, request):
    run = request.getfixturevalue("tiny_run")  # not trained where there is no vla-eval
    return plugin.CheckpointServer(str(run.checkpoint))


@pytest.fixture
def benchmark(plugin):
    benchmark = plugin.SuiteBenchmark("droid_panda", [*SMALL, *SHORT])
    yield benchmark
    benchmark.cleanup()


@pytest.fixture(scope="module")
def played(server, tmp_path_factory):
    """What vla-eval reports of the first rows of one task."""
    from vla_eval import api

    suite = {"suite": "droid_panda:cube_in_bowl", "overrides": [*SMALL, *SHORT]}
    benchmark = {
        "benchmark": "morph_vla.hosts.vla_eval:SuiteBenchmark",
        "episodes_per_task": ROWS,
        "params": suite,
    }
    config = {"benchmarks": [benchmark], "server": {"timeout": 300}}
    (result,) = api.evaluate(server, config, no_save=True, output_dir=tmp_path_factory.mktemp("results"))
    return result


def test_its_episodes_are_the_trials_of_an_evaluation(played, server, tiny_suite):
    record = rollout.evaluate(tiny_suite, server.policy, Settings(ROWS, parallel=ROWS, workers=1, videos=0))
    (task,) = played["tasks"]
    assert task["task"] == "cube_in_bowl"
    assert [episode.get("failure_detail") for episode in task["episodes"]] == [None] * ROWS
    trials = [dataclasses.replace(trial, begun_anew=None).to_json(Path()) for trial in record.trials]
    assert [episode["metrics"] for episode in task["episodes"]] == trials
    assert [episode["steps"] for episode in task["episodes"]] == [tiny_suite.max_steps] * ROWS


def test_both_sides_declare_the_same(server, benchmark, plugin):
    mismatches = plugin.specs.check_specs(
        server.get_action_spec(), benchmark.get_action_spec(), server.get_observation_spec(),
        benchmark.get_observation_spec(),
    )  # fmt: skip
    assert mismatches == []


def test_other_joints_do_not_pass_for_these(plugin):
    compatible, why = plugin.joint_spec(robots.load("so101")).is_compatible(
        plugin.joint_spec(robots.load("panda"))
    )
    assert not compatible
    assert "panda_joint1 [rad]" in why


def test_another_benchmarks_names_are_translated(server):
    server._cameras, frame = {"agentview": "exterior"}, np.zeros((24, 24, 3), np.uint8)
    try:
        images = {"agentview": frame, "wrist": frame}
        row = server._read({"images": images, "states": np.zeros(8), "task_description": "go"})
        assert set(row) == {"images/exterior", "images/wrist", "state", "prompt"}
        assert set(server.get_observation_spec()) == {"images/agentview", "images/wrist", "state", "language"}
    finally:
        server._cameras = {}


def test_tasks_take_turns_in_one_benchmark(benchmark):
    names = [task["name"] for task in benchmark.get_tasks()]
    assert names == ["cube_in_bowl", "can_in_mug", "banana_in_bin"]
    seen = [benchmark.reset({"name": name, "episode_idx": 4}) for name in names[:2]]
    assert [row["prompt"] for row in seen] == ["put the cube in the bowl", "put the can in the mug"]
    assert benchmark.get_metadata() == {"max_steps": 30}
    with pytest.raises(
        MorphVlaError, match=r"^no task 'can_in_mag'; did you mean 'can_in_mug'\? \(cube_in_bowl, "
    ):
        benchmark.reset({"name": "can_in_mag", "episode_idx": 0})


@pytest.mark.usefixtures("pip_installs")
def test_without_vla_eval_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if "vla_eval" in name.split(".")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vla_eval", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'morph-vla\[vla-eval\]'$"):
        importlib.import_module("morph_vla.hosts.vla_eval")
