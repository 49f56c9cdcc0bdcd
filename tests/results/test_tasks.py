"""The record of several tasks, from the record of each."""

from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.results import merging
from morph_vla.results.record import record_from_json


def record(task: str, outcomes: list[bool], **changes) -> dict:
    trials = [
        {
            "task": task, "episode": i, "success": won, "time_s": 3.5 if won else None,
            "ended": "success" if won else "time", "video": "videos/000.mp4" if i == 0 else None,
        }
        for i, won in enumerate(outcomes)
    ]  # fmt: skip
    return {
        "schema": 2, "kind": "evaluation", "policy": {"name": "trained", "sha256": "ab"},
        "engine": {"name": "mujoco", "version": "4"}, "open_loop": 8, "versions": {"python": "3.12"},
        "suite": {"name": "droid_panda", "version": 1, "seed": 3, "tasks": {task: {"task": f"do {task}"}}},
        "trials": trials, "wall_s": 1.25,
        "timing": {"policy_s": 0.5}, "notes": [f"a note on {task}"], "parallel": 5, "command": "one",
        "time": f"2026-01-0{len(outcomes)}",
        **changes,
    }  # fmt: skip


def combine(parts: list[dict], command: str = "") -> dict:
    """The record of all, of records as they are read from the folders of their tasks."""
    records = [
        record_from_json(part, Path("runs") / next(iter(part["suite"]["tasks"]), "b")) for part in parts
    ]
    return merging.combine(records, command).to_json()


def test_the_trials_of_all_are_pooled_in_order():
    parts = [record("a", [True, False, True]), record("b", [False] * 5)]
    whole = combine(parts, "all")
    assert [(t["task"], t["episode"]) for t in whole["trials"]] == [
        ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2), ("b", 3), ("b", 4)
    ]  # fmt: skip
    assert whole["suite"]["tasks"] == {"a": {"task": "do a"}, "b": {"task": "do b"}}
    assert (whole["summary"]["successes"], whole["summary"]["trials"]) == (2, 8)
    assert [t["video"] for t in whole["trials"] if t["video"]] == ["a/videos/000.mp4", "b/videos/000.mp4"]
    assert (whole["wall_s"], whole["timing"], whole["command"]) == (2.5, {"policy_s": 1.0}, "all")
    assert whole["notes"] == ["a note on a", "a note on b"]
    assert whole["time"] == "2026-01-05"
    assert parts[0]["trials"][0]["video"] == "videos/000.mp4"  # what was given is left alone


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"open_loop": 16}, "not parts of one evaluation: open_loop: 8 and 16"),
        (
            {"engine": {"name": "isaaclab"}},
            "engine.name: mujoco and isaaclab; engine.version: 4 and none",
        ),
        ({"policy": {"name": "other"}}, "policy.name: trained and other; policy.sha256: ab and none"),
        (
            {"suite": {"name": "droid_panda", "version": 2, "seed": 3, "tasks": {}}},
            "suite.version: 1 and 2",
        ),
    ],
)
def test_parts_of_different_evaluations_are_refused(changes, words):
    with pytest.raises(MorphVlaError, match=words):
        combine([record("a", [True]), record("b", [True], **changes)])


def test_what_went_on_after_an_upgrade_or_from_another_folder_is_one_evaluation():
    """Hours were spent on its tasks by then."""
    numpy = {"python": "3.12", "numpy": "2.0.0"}
    policy = {"name": "trained", "sha256": "ab", "checkpoint": "runs/a/9"}
    parts = [
        record("a", [True], versions=numpy, policy=policy, overrides=["episode_seconds=9"]),
        record("b", [True], versions={**numpy, "numpy": "2.2.6"}, policy={**policy, "checkpoint": "../a/9"}),
    ]
    whole = combine(parts)
    assert whole["versions"] == {"python": "3.12"}
    assert not whole.get("overrides")
    assert whole["summary"]["trials"] == 2


def test_no_task_counts_twice():
    with pytest.raises(MorphVlaError, match="task 'a' was evaluated twice"):
        combine([record("a", [True]), record("a", [False])])
