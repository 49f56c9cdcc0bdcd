"""A folder that holds another evaluation: never taken for this one, never lost, and named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from morph_vla.evaluation.journal import Journal, read
from morph_vla.results import identity
from morph_vla.results.record import Record, record_from_json, write
from morph_vla.results.trial import Trial

CUBE = {"dwell_seconds": 0.5, "max_speed": 0.02}


def facts(schema: int = 3, **success) -> Record:
    own = {"success": {**CUBE, **success}}
    task = {"task": "put it there", **({"resolved": own} if schema > 2 else {})}
    return record_from_json({
        "schema": schema,
        "kind": "evaluation",
        "suite": {"name": "cubes", "version": 1, "seed": 3, "tasks": {"cube": task}},
        "policy": {"name": "trained", "sha256": "ab"},
        "engine": {"name": "mujoco", "version": "3"},
        "open_loop": 8,
        "trials": [],
    })  # fmt: skip


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A folder with a finished evaluation of two episodes, its record and a video."""
    journal = Journal(tmp_path, facts(), lambda words: pytest.fail(words))
    for episode in (0, 1):
        journal.add(Trial(episode=episode, success=True))
    trials = tuple(Trial(episode=episode, success=True) for episode in (0, 1))
    write(replace(facts(), trials=trials), tmp_path / "record.json")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/000.mp4").write_bytes(b"film")
    return tmp_path


def test_the_same_evaluation_goes_on_without_a_word(held, said):
    assert Journal(held, facts(), said.append).trials.keys() == {0, 1}
    assert said == []
    assert (held / "record.json").is_file()


def test_another_criterion_is_another_evaluation_and_both_are_kept(held, said):
    assert Journal(held, facts(dwell_seconds=0.05), said.append).trials == {}
    assert said == [
        f"{held} held another evaluation (success.dwell_seconds: 0.5 there, 0.05 here); it is kept in "
        f"{held / 'earlier-1'}"
    ]
    assert not (held / "record.json").exists()
    earlier = read(held / "earlier-1")
    assert earlier is not None
    assert [trial.episode for trial in earlier.trials] == [0, 1]
    assert (held / "earlier-1/videos/000.mp4").read_bytes() == b"film"
    assert len(json.loads((held / "earlier-1/record.json").read_text())["trials"]) == 2


def test_each_other_evaluation_has_a_folder_of_its_own(held, said):
    Journal(held, facts(dwell_seconds=0.05), said.append).add(Trial(episode=7, success=False))
    Journal(held, facts(), said.append)
    assert len(said) == 2
    assert "success.dwell_seconds: 0.05 there, 0.5 here" in said[1]
    second = read(held / "earlier-2")
    assert second is not None
    assert [(trial.episode, trial.success) for trial in second.trials] == [(7, False)]
    assert sorted(path.name for path in held.iterdir()) == ["earlier-1", "earlier-2", "trials.jsonl"]


def test_a_journal_of_schema_2_does_not_say_its_criterion(tmp_path, said):
    old = facts(schema=2)
    lines = [
        {"evaluation": identity.of_evaluation(old), "record": old.facts()},
        {"episode": 0, "success": True},
    ]
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert Journal(tmp_path, facts(), said.append).trials == {}
    assert said == [
        f"{tmp_path} held another evaluation (schema 2, which does not hold the whole suite); it is kept in "
        f"{tmp_path / 'earlier-1'}"
    ]


def test_a_record_without_its_journal_is_kept_too(held, said):
    (held / "trials.jsonl").unlink()
    Journal(held, facts(max_speed=9.0), said.append)
    assert "(success.max_speed: 0.02 there, 9.0 here)" in said[0]
    assert (held / "earlier-1/record.json").is_file()


def test_where_nothing_had_ended_nothing_is_kept(tmp_path, said):
    Journal(tmp_path, facts(), said.append)
    Journal(tmp_path, facts(dwell_seconds=0.05), said.append)
    assert said == []
    assert [path.name for path in tmp_path.iterdir()] == ["trials.jsonl"]


def test_earlier_evaluations_are_no_tasks_of_this_one(held, said):
    Journal(held, facts(dwell_seconds=0.05), said.append)
    (held / "trials.jsonl").unlink()
    assert read(held) is None
