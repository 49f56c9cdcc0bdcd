"""What a trial and a command say of an episode, and what of a policy keeps it from one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines.engine import environment_names
from morph_vla.engines.gymnasium.probe import Probe
from morph_vla.engines.gymnasium.stage import Standing
from morph_vla.evaluation import environment, fit
from morph_vla.evaluation.evaluate import _Run
from morph_vla.evaluation.rollout import Settings
from morph_vla.suites.environment import EnvironmentSuite
from morph_vla.suites.suite import InitialState

EVENTS = ("grasped", "lifted", "knocked", "dropped")


def test_a_success_is_timed_in_seconds_and_events_are_its_own(tiny_suite):
    episode = pytest.importorskip("morph_vla.engines.episode")
    success = pytest.importorskip("morph_vla.engines.success")
    simulated = pytest.importorskip("morph_vla.evaluation.simulated")
    bench = simulated.Simulated(tiny_suite)
    still = (1.0, 0.0, 0.0, 0.0)
    reading = success.Reading(
        np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6]), still, 0.0, 0.0, 1.0, False, False
    )
    state = InitialState(3, {}, ())
    for event in EVENTS:
        progress = success.Progress(steps=45, lost=True, **{event: True})
        trial = bench.trial(state, episode.Status(reading, progress, "lost"), None)
        assert [name for name in EVENTS if getattr(trial, name)] == [event]
        assert (trial.ended, trial.time_s, trial.steps) == ("lost", None, 45)
    progress = success.Progress(steps=45, success_step=30, nearest=0.0123)
    won = bench.trial(state, episode.Status(reading, progress, "success"), None)
    assert (won.time_s, won.least) == (30 / tiny_suite.control_rate, {"approach": 0.0123})


def test_clauses_of_anothers_simulator_are_in_seconds():
    task: Any = environment.Environment.__new__(environment.Environment)
    task.task_key, task.control_rate = "t", 10.0
    trial = task.trial(InitialState(3, {}, ()), Standing(steps=40, longest=7, noted={"slip": 12}), None)
    assert trial.clauses == {"success_s": 0.7, "slip_s": 1.2}


def test_the_command_in_a_record_has_everything_that_was_asked(tiny_suite):
    simulated = pytest.importorskip("morph_vla.evaluation.simulated")
    described: Any = SimpleNamespace(infer=dict)
    settings = Settings(episodes=2, latency=3, real_time=True, engine="isaaclab")
    run = _Run(described, settings, {"checkpoint": "c"}, None, (), None)
    words = "morph-vla eval c --suite s --episodes 2 --latency 3 --real-time --engine isaaclab -o out"
    assert run.command("s", simulated.Simulated(tiny_suite), Path("out")) == words


@pytest.fixture
def trained(tiny_suite) -> Any:
    """A policy of the suite's robot that fits it."""
    panda = robots.load("panda")
    ends = {"q01": [0.0] * 8, "q99": [1.0] * 8}
    about = {
        "control_rate": 15.0, "joints": list(panda.names), "state_stats": ends, "action_stats": ends,
        "affine": [[joint.scale, joint.zero] for joint in panda.joints],
        "limits": [[joint.lower, joint.upper] for joint in panda.joints],
    }  # fmt: skip
    policy = SimpleNamespace(robot_name="panda", cameras={}, image_size=24, trained=about)
    assert codes(policy, tiny_suite) == []
    return policy


def codes(policy: Any, suite: Any) -> list[str]:
    return [finding.code for finding in fit.check(policy, suite) if finding.severity == "error"]


@pytest.mark.parametrize("place", [0, 1])
def test_either_end_of_a_unit_and_of_a_limit_is_compared(trained, tiny_suite, place):
    trained.trained["affine"][0][place] += 0.5
    assert codes(trained, tiny_suite) == ["units"]
    trained.trained["limits"][2][place] *= 0.5
    assert sorted(codes(trained, tiny_suite)) == ["limits", "units"]


def test_poses_of_objects_in_another_order_do_not_fit(trained, tiny_suite):
    names = [*environment_names(tiny_suite.success)]
    trained.trained["environment"] = names
    assert codes(trained, tiny_suite) == []
    trained.trained["environment"] = names[::-1]
    assert codes(trained, tiny_suite) == ["environment"]


@pytest.mark.parametrize(
    ("height", "width", "found"),
    [
        (48, 64, []),
        (96, 128, []),
        (96, 96, ["frame-size error"]),
        (12, 16, ["frame-size error"]),  # it would see less than in training
    ],
)
def test_frames_of_anothers_simulator_have_the_shape_of_the_trained_ones(trained, height, width, found):
    """As those of our own do: what the policy sees would be scaled otherwise."""
    trained.cameras = {"base_0_rgb": "front"}
    trained.trained["sizes"] = {"front": [48, 64]}
    suite: Any = EnvironmentSuite.__new__(EnvironmentSuite)
    vars(suite).update(robot="panda", control_rate=15.0, poses=(), name="theirs", task_name="")
    seen = Probe((), np.zeros(0), np.zeros(0), ("front",), 8, sizes={"front": (height, width)})
    findings = [*environment._unfit(trained, suite, seen)]
    assert [f"{finding.code} {finding.severity}" for finding in findings] == found
    del trained.trained["sizes"]
    findings = [*environment._unfit(trained, suite, seen)]
    small = ["frame-size-unknown warning"] if max(height, width) < 24 else []
    assert [f"{finding.code} {finding.severity}" for finding in findings] == small
