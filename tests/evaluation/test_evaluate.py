"""A policy on a whole suite: what does not fit is refused, tasks become one record, what is there is kept."""

import dataclasses
import json
import logging
from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import evaluate as module
from morph_vla.evaluation import simulated
from morph_vla.evaluation.evaluate import check_against, evaluate
from morph_vla.evaluation.journal import Journal, alone
from morph_vla.evaluation.rollout import record_before
from morph_vla.evaluation.sampler import Sampler
from morph_vla.results.record import read
from morph_vla.results.trial import Trial
from morph_vla.suites import suite


class Described:
    """A policy that says what it is."""

    def infer(self, observation):
        raise AssertionError("nothing is rolled out here")

    def describe(self):
        sampler = {"steps": 10, "noise": 0.0}
        return {"name": "1500", "checkpoint": "runs/first/1500", "step": 1500, "sampler": sampler}


class Trained(Described):
    """One that was trained on another robot, at another rate."""

    robot_name, cameras, image_size = "so101", {}, 24
    trained = {"control_rate": 30.0, "joints": [], "actions": "absolute"}


@pytest.fixture
def played(monkeypatch):
    """Episodes are not rolled out: the trials of a task are made up, the same each time."""

    def rolled(task, policy, settings, *, about, folder, command, overrides, progress, **_):
        trials = tuple(
            Trial(
                episode=row, task=task.task_key, success=row > 0, time_s=2.0 if row else None,
                ended="success" if row else "time", initial={},
            )
            for row in range(settings.first, settings.first + (settings.episodes or task.episodes))
        )  # fmt: skip
        if progress:
            progress(len(trials), len(trials), 1)
        return dataclasses.replace(
            record_before(task, policy, settings, about),
            overrides=tuple(overrides), trials=trials, wall_s=1.0, command=command, time="2026",
        )  # fmt: skip

    monkeypatch.setattr(module.rollout, "evaluate", rolled)
    monkeypatch.setattr(simulated, "require_gl", lambda: None)


def test_a_policy_that_does_not_fit_is_refused_with_both_sides(played):
    task = suite.load("droid_panda:cube_in_bowl")
    words = (
        r"^runs/first/1500 does not fit suite 'droid_panda:cube_in_bowl': robot: the suite has 'panda', the "
        r"policy drives 'so101'; control rate: the suite runs at 15 Hz, the policy was trained at 30 Hz$"
    )
    with pytest.raises(MorphVlaError, match=words):
        evaluate(Trained(), task)


@pytest.mark.slow
def test_several_tasks_are_a_record_each_and_one_of_all(played, folder, caplog):
    tasks = suite.load_tasks("droid_panda", ["episode_seconds=9"])
    told = []

    def again():
        return evaluate(
            Described(), tasks, folder="out", name="mine", overrides=["episode_seconds=9"],
            progress=lambda *values: told.append(values), episodes=2, first=5, open_loop=4,
        )  # fmt: skip

    whole = again()
    assert whole.summary.trials == 2 * len(tasks)
    assert list(whole.suite.tasks) == [task.task_key for task in tasks]
    assert whole.command == (
        "morph-vla eval runs/first/1500 episode_seconds=9 --noise 0 --suite droid_panda --episodes 5:7 "
        "--open-loop 4 -o out"
    )
    for path, record in (("out", whole), *((f"out/{task.task_key}", None) for task in tasks)):
        kept = json.loads((folder / path / "record.json").read_text())
        assert kept["policy"]["name"] == "mine"
        assert record is None or kept == json.loads(json.dumps(record.to_json(folder / "out")))
    assert told[:2] == [(tasks[0].task_key, 0, 2, 0), (tasks[0].task_key, 2, 2, 1)]
    with caplog.at_level(logging.INFO, "morph_vla"):
        assert again() == whole
    assert [line for line in caplog.messages if line == "already there: out/record.json"]


def test_a_record_of_more_episodes_that_gives_way_is_said(played, folder, caplog):
    task = suite.load("droid_panda:cube_in_bowl")
    evaluate(Described(), task, folder="out", episodes=3)
    evaluate(Described(), task, folder="out", episodes=3)
    assert not [line for line in caplog.messages if "asked for" in line]
    evaluate(Described(), task, folder="out", episodes=2)
    (line,) = [line for line in caplog.messages if "asked for" in line]
    assert line == (
        "out/record.json had 3 episodes, and has now the 2 that were asked for; the journal keeps the others"
        ": ask for as many again (--episodes), and none is played twice"
    )
    evaluate(Described(), task, folder="out", episodes=4)
    evaluate(Described(), task, folder="out", episodes=2, open_loop=4)  # another evaluation
    assert len([line for line in caplog.messages if "asked for" in line]) == 1


@pytest.mark.slow
def test_one_task_and_then_all_in_one_folder_loses_neither(played, folder):
    tasks = suite.load_tasks("droid_panda")
    alone = evaluate(Described(), tasks[1], folder="out", episodes=2)
    Journal(Path("out"), alone).add(alone.trials[0])  # which the rollout that is replaced here would write
    whole = evaluate(Described(), tasks, folder="out", episodes=2)
    assert list(read(Path("out")).suite.tasks) == list(whole.suite.tasks) == [task.task_key for task in tasks]
    assert read(Path("out") / tasks[1].task_key).trials == alone.trials
    assert sorted(path.name for path in Path("out").glob("[!.]*")) == sorted(
        [*whole.suite.tasks, "record.json"]
    )


@pytest.mark.slow
def test_another_policy_on_the_same_tasks_is_not_taken_for_the_first(played, folder, caplog):
    """Interrupted in the middle, the folder must not answer with the first policy's record."""
    tasks = suite.load_tasks("droid_panda")
    first = evaluate(Described(), tasks, folder="out", episodes=2)

    class Other(Described):
        def describe(self):
            return {**super().describe(), "name": "other", "sha256": "b2"}

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(Other(), tasks, folder="out", episodes=2, progress=interrupted)
    assert [path.name for path in Path("out").glob("[!.]*")] == ["earlier-1"]
    assert "out held another evaluation (policy.name: 1500 there, other here; policy.sha256:" in caplog.text
    kept = read(Path("out/earlier-1"))
    assert (kept.policy.name, kept.trials) == ("1500", first.trials)
    assert read(Path("out/earlier-1") / tasks[0].task_key).policy.name == "1500"
    assert evaluate(Other(), tasks, folder="out", episodes=2).policy.name == "other"


def test_two_evaluations_of_several_tasks_do_not_move_each_others(played, folder):
    tasks = suite.load_tasks("droid_panda")
    words = "^out: another process evaluates into it; wait, or give another folder$"
    with alone(Path("out")), pytest.raises(MorphVlaError, match=words):
        evaluate(Described(), tasks, folder="out", episodes=2)


def test_a_task_that_cannot_be_decided_is_said_before_the_others_are_played(played, folder):
    tasks = suite.load_tasks("droid_panda")
    evaluate(Described(), tasks[0], folder="one", episodes=2)
    told = []
    words = f"the record to decide against has no episode of task '{tasks[1].task_key}'"
    with pytest.raises(MorphVlaError, match=words):
        evaluate(Described(), tasks, episodes=2, against="one", progress=lambda *now: told.append(now))
    assert told == []


def test_without_a_folder_nothing_is_written(played, folder):
    record = evaluate(Described(), suite.load("droid_panda:cube_in_bowl"), episodes=3)
    assert (record.summary.trials, record.command) == (3, "")
    assert list(folder.iterdir()) == []


def test_what_is_measured_otherwise_cannot_be_decided_against(played):
    tasks = suite.load_tasks("droid_panda:cube_in_bowl")
    before = evaluate(Described(), tasks, episodes=1)
    check_against(tasks, before, "runs/a")
    other = suite.load_tasks("droid_panda:cube_in_bowl", ["success.dwell_seconds=0.1"])
    with pytest.raises(
        MorphVlaError, match=r"^runs/a and this evaluation: what is measured differs: success\."
    ):
        check_against(other, before, "runs/a")


def test_a_samplers_options_are_those_that_differ():
    assert Sampler().options() == []
    assert Sampler(3, 0.5).options() == ["--noise", "0.5", "--sampler-steps", "3"]
    with pytest.raises(MorphVlaError, match="the sampler's steps must be at least 1, not 0"):
        Sampler(steps=0)
