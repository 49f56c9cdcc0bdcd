"""A folder that holds another evaluation: never taken for this one, never lost, and named."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.journal import Journal, alone, make_room, read, so_far
from morph_vla.results import identity
from morph_vla.results.record import Record, Stopped, record_from_json, write
from morph_vla.results.trial import Trial

CUBE = {"dwell_seconds": 0.5, "max_speed": 0.02}


def facts(schema: int = 3, digests: dict[str, str] | None = None, **success) -> Record:
    own = {"success": {**CUBE, **success}}
    task = {"task": "put it there", **({"resolved": own} if schema > 2 else {})}
    return record_from_json({
        "schema": schema,
        "kind": "evaluation",
        "suite": {"name": "cubes", "version": 1, "seed": 3, **(digests or {}), "tasks": {"cube": task}},
        "policy": {"name": "trained", "sha256": "ab"},
        "engine": {"name": "mujoco", "version": "3"},
        "open_loop": 8,
        "trials": [],
    })  # fmt: skip


def begun(*tasks: str, **success) -> dict[str, Record]:
    """Of each task the record before its first trial."""
    plain = facts(**success)
    (of_cube,) = plain.suite.tasks.values()
    return {task: replace(plain, suite=replace(plain.suite, tasks={task: of_cube})) for task in tasks}


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A folder with a finished evaluation of two episodes, its record and a video."""
    journal = Journal(tmp_path, facts())
    for episode in (0, 1):
        journal.add(Trial(episode=episode, success=True))
    trials = tuple(Trial(episode=episode, success=True) for episode in (0, 1))
    write(replace(facts(), trials=trials), tmp_path / "record.json")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/000.mp4").write_bytes(b"film")
    return tmp_path


def test_the_same_evaluation_goes_on_without_a_word(held, caplog):
    assert Journal(held, facts()).trials.keys() == {0, 1}
    assert caplog.messages == []
    assert (held / "record.json").is_file()


@pytest.mark.parametrize(
    "damage",
    [b"\xff\xfe\n", b'{"episode": ' + b"9" * 5000 + b"}\n", b"[" * 100_000 + b"\n", b'{"episode": "x"}\n'],
)
def test_a_damaged_line_costs_its_own_episode(held, damage):
    path = held / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], damage]))
    (held / "record.json").unlink()
    assert Journal(held, facts()).trials.keys() == {0}


def test_another_criterion_is_another_evaluation_and_both_are_kept(held, caplog):
    assert Journal(held, facts(dwell_seconds=0.05)).trials == {}
    assert caplog.messages == [
        f"{held} held another evaluation (success.dwell_seconds: 0.5 there, 0.05 here); it is kept in "
        f"{held / 'earlier-1'}"
    ]
    assert not (held / "record.json").exists()
    earlier = read(held / "earlier-1")
    assert earlier is not None
    assert [trial.episode for trial in earlier.trials] == [0, 1]
    assert (held / "earlier-1/videos/000.mp4").read_bytes() == b"film"
    assert len(json.loads((held / "earlier-1/record.json").read_text())["trials"]) == 2


def test_each_other_evaluation_has_a_folder_of_its_own(held, caplog):
    Journal(held, facts(dwell_seconds=0.05)).add(Trial(episode=7, success=False))
    Journal(held, facts())
    assert len(caplog.messages) == 2
    assert "success.dwell_seconds: 0.05 there, 0.5 here" in caplog.messages[1]
    second = read(held / "earlier-2")
    assert second is not None
    assert [(trial.episode, trial.success) for trial in second.trials] == [(7, False)]
    assert sorted(path.name for path in held.iterdir()) == ["earlier-1", "earlier-2", "trials.jsonl"]


def test_a_journal_of_schema_2_does_not_say_its_criterion(tmp_path, caplog):
    old = facts(schema=2)
    lines = [
        {"evaluation": identity.of_evaluation(old), "record": old.facts()},
        {"episode": 0, "success": True},
    ]
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert Journal(tmp_path, facts()).trials == {}
    assert caplog.messages == [
        f"{tmp_path} held another evaluation (schema 2, which says less of the suite than this one); it is "
        f"kept in {tmp_path / 'earlier-1'}"
    ]


def test_a_record_without_its_journal_is_kept_too(held, caplog):
    (held / "trials.jsonl").unlink()
    Journal(held, facts(max_speed=9.0))
    assert "(success.max_speed: 0.02 there, 9.0 here)" in caplog.messages[0]
    assert (held / "earlier-1/record.json").is_file()


def test_a_finished_record_without_its_journal_goes_on(held, caplog):
    (held / "trials.jsonl").unlink()
    assert Journal(held, facts()).trials.keys() == {0, 1}
    assert caplog.messages == []


@pytest.mark.parametrize("text", ["{", '{"schema": 99}'])
def test_a_record_that_cannot_be_read_is_set_aside_before_anything_is_played(held, caplog, text):
    (held / "record.json").write_text(text)
    assert Journal(held, facts()).trials.keys() == {0, 1}
    assert f"{held} held a record that cannot be read (" in caplog.messages[0]
    assert (held / "earlier-1/record.json").read_text() == text
    assert (held / "videos/000.mp4").is_file(), "what goes on keeps its videos"


def test_an_unreadable_record_of_several_tasks_is_set_aside_too(tmp_path, caplog):
    (tmp_path / "record.json").write_text("{")
    make_room(tmp_path, begun("cube", "can"))
    assert "held a record that cannot be read (" in caplog.messages[0]
    assert (tmp_path / "earlier-1/record.json").read_text() == "{"


def test_an_evaluation_goes_on_whose_record_shortened_the_commit():
    def of(address: str, sha256: str | None = None) -> str:
        plain = facts()
        return identity.of_evaluation(
            replace(plain, policy=replace(plain.policy, checkpoint=address, sha256=sha256))
        )

    def at(commit: str) -> str:
        return of(f"hf://me/arm@{commit}")

    whole = "0123456789abcdef" * 2 + "01234567"
    assert at(whole) == at(whole[:12]) != at("f" + whole[1:])
    assert of("runs/a/checkpoints/9", "ab") == of("../b/9", "ab") != of("../b/9", "cd"), "a digest says more"


def test_where_nothing_had_ended_nothing_is_kept(tmp_path, caplog):
    Journal(tmp_path, facts())
    Journal(tmp_path, facts(dwell_seconds=0.05))
    assert caplog.messages == []
    assert [path.name for path in tmp_path.iterdir()] == ["trials.jsonl"]


def test_earlier_evaluations_are_no_tasks_of_this_one(held, caplog):
    Journal(held, facts(dwell_seconds=0.05))
    (held / "trials.jsonl").unlink()
    assert read(held) is None


def another(name: str) -> Record:
    return replace(facts(), policy=replace(facts().policy, name=name, sha256=name))


def test_tasks_of_two_evaluations_are_not_read_as_one(tmp_path, caplog):
    """The second one was killed before it came to the task that the first one had left."""
    for age, (task, name) in enumerate((("can", "first"), ("cube", "second"))):
        (tmp_path / task).mkdir()
        Journal(tmp_path / task, another(name)).add(Trial(episode=age, success=True))
        os.utime(tmp_path / task / "trials.jsonl", (age, age))
    unfinished = so_far(tmp_path)
    assert (unfinished.policy.name, [trial.key for trial in unfinished.trials]) == ("second", [("cube", 1)])
    assert caplog.messages == [f"{tmp_path}: left out, of another evaluation: can"]


def test_what_goes_on_is_seen_in_the_journals_of_tasks_and_no_record_is_forgotten_for_less(tmp_path):
    """A journal is written anew by who looks whether all is there: a record that has its trials says more."""
    (tmp_path / "cube").mkdir()
    journal = Journal(tmp_path / "cube", facts())
    journal.add(Trial(episode=0, success=True))
    trial = Trial(episode=0, task="cube", success=True)
    stopped = Stopped(1, 9, "decided")
    write(replace(facts(), trials=(trial,), stopped=stopped), tmp_path / "record.json")
    path = tmp_path / "cube/trials.jsonl"
    os.utime(tmp_path / "record.json", (1, 1))
    assert so_far(tmp_path).stopped == stopped
    journal.add(Trial(episode=1, success=False))
    unfinished = so_far(tmp_path)
    assert (unfinished.unfinished, len(unfinished.trials)) == (True, 2)
    os.utime(path, (0, 0))
    assert so_far(tmp_path).stopped == stopped  # a table that was made shorter: its journal has more


@pytest.mark.parametrize("of", identity.OF_ROBOT)
def test_a_changed_robot_file_is_another_evaluation_and_so_is_one_that_does_not_say(tmp_path, caplog, of):
    for digests in ({}, {of: "a1"}, {of: "b2"}):
        journal = Journal(tmp_path, facts(digests=digests))
        assert journal.trials == {}
        journal.add(Trial(episode=0, success=True))
    assert Journal(tmp_path, facts(digests={of: "b2"})).trials.keys() == {0}
    silent, changed = caplog.messages
    assert "another evaluation (schema 3, which says less of the suite than this one)" in silent
    assert f"another evaluation ({of}: a1 there, b2 here)" in changed
    assert identity.differences(facts(), facts(digests={of: "b2"})) == []  # but the two can be compared


def test_one_process_evaluates_into_a_folder(tmp_path):
    words = f"{tmp_path}: another process evaluates into it; wait, or give another folder"
    with alone(tmp_path), pytest.raises(MorphVlaError, match=re.escape(words)), alone(tmp_path):
        pytest.fail("both may")
    with alone(None), alone(None), alone(tmp_path):
        pass


# -------------------------------------------------------------------------------- one task, then all of them


def test_one_tasks_evaluation_makes_room_for_several_and_goes_on(held, caplog):
    make_room(held, begun("cube", "can"))
    assert caplog.messages == []
    assert [path.name for path in held.iterdir()] == ["cube"]
    assert (held / "cube/videos/000.mp4").is_file()
    assert Journal(held / "cube", facts()).trials.keys() == {0, 1}
    write(facts(), held / "record.json")
    make_room(held, begun("cube", "can"))  # the record of these tasks themselves stays
    assert (held / "record.json").is_file()


@pytest.mark.parametrize(("tasks", "there"), [(["can", "mug"], ()), (["cube", "can"], ("cube",))])
def test_what_is_no_task_of_several_is_kept_beside_them(held, caplog, tasks, there):
    for name in there:
        (held / name).mkdir()
    make_room(held, begun(*tasks))
    assert caplog.messages == [f"{held} held an evaluation of cube; it is kept in {held / 'earlier-1'}"]
    assert sorted(path.name for path in held.iterdir()) == [*there, "earlier-1"]
    write(facts(), held / "record.json")
    (held / "trials.jsonl").write_text("")  # of which nothing can be read
    make_room(held, begun("can", "mug"))
    assert sorted(path.name for path in (held / "earlier-2").iterdir()) == ["record.json", "trials.jsonl"]


def evaluated(folder: Path, *tasks: str, episodes: int = 2, **success) -> Record:
    """An evaluation of several tasks that ended, in the folders of its tasks."""
    every = begun(*tasks, **success)
    for task, record in every.items():
        journal = Journal(folder / task, record)
        for episode in range(episodes):
            journal.add(Trial(episode=episode, success=task == "cube"))
        write(replace(record, trials=tuple(journal.trials.values())), folder / task / "record.json")
    of_tasks = {task: record.suite.tasks[task] for task, record in every.items()}
    pairs = [(task, n) for task in tasks for n in range(episodes)]
    trials = tuple(Trial(episode=n, success=task == "cube", task=task) for task, n in pairs)
    whole = replace(facts(**success), suite=replace(facts().suite, tasks=of_tasks), trials=trials)
    write(whole, folder / "record.json")
    return whole


def test_a_key_that_changed_moves_every_task_of_before_at_once(tmp_path, caplog):
    """Half of the tasks from before and half of now would be read as one evaluation, and paired so."""
    evaluated(tmp_path, "cube", "can")
    make_room(tmp_path, begun("cube", "can", dwell_seconds=0.05))
    assert [path.name for path in tmp_path.iterdir()] == ["earlier-1"]
    assert "success.dwell_seconds: 0.5 there, 0.05 here" in caplog.messages[0]
    assert sorted(path.name for path in (tmp_path / "earlier-1").iterdir()) == ["can", "cube", "record.json"]
    make_room(tmp_path, begun("cube", "can", dwell_seconds=0.05))
    assert read(tmp_path) is None


def test_so_it_does_where_the_one_before_was_interrupted(tmp_path, caplog):
    """There is no record of all tasks then."""
    evaluated(tmp_path, "cube", "can")
    (tmp_path / "record.json").unlink()
    make_room(tmp_path, begun("cube", "can", "mug"))
    assert caplog.messages == []
    make_room(tmp_path, begun("cube", "can", "mug", dwell_seconds=0.05))
    assert [path.name for path in tmp_path.iterdir()] == ["earlier-1"]


def test_a_task_that_did_not_change_stays(tmp_path):
    whole = evaluated(tmp_path, "cube", "can")
    changed = {**begun("cube", "can"), "can": begun("can", dwell_seconds=0.05)["can"]}
    make_room(tmp_path, changed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cube", "earlier-1"]
    assert Journal(tmp_path / "cube", changed["cube"]).trials.keys() == {0, 1}
    assert whole.suite.tasks.keys() == {"cube", "can"}


def test_a_record_without_its_tasks_folders_goes_on(tmp_path, caplog):
    """As `merge` writes it, or one that was copied alone: its episodes are not played again."""
    evaluated(tmp_path, "cube", "can", episodes=3)
    for task in ("cube", "can"):
        for path in (tmp_path / task).iterdir():
            path.unlink()
        (tmp_path / task).rmdir()
    every = begun("cube", "can")
    make_room(tmp_path, every)
    for task, record in every.items():
        journal = Journal(tmp_path / task, record)
        assert journal.trials.keys() == {0, 1, 2}
        assert {(trial.task, trial.success) for trial in journal.trials.values()} == {(task, task == "cube")}
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
