"""Parts of one evaluation make the record that one evaluation would have written, whatever their order."""

import itertools
import json
import os
import re
from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import journal
from morph_vla.results import comparison, merging
from morph_vla.results.record import Record, record_from_json

TASKS = ("can", "banana")


def part(episodes, tasks=TASKS, **changes) -> dict:
    """Some episodes of an evaluation in which every seventh fails."""
    trials = [
        {
            "task": task,
            "episode": i,
            "success": i % 7 != 0,
            "time_s": 2.5 + i if i % 7 else None,
            "ended": "success" if i % 7 else "time",
            "failed_clause": None if i % 7 else "lifted",
            "initial": {"can": [0.1 * i, 0.2, 0.0]},
            "video": f"{task}/videos/{i:03d}.mp4" if i < 2 else None,
        }
        for task in tasks
        for i in episodes
    ]
    return {
        "schema": 2,
        "kind": "evaluation",
        "suite": {"name": "droid_panda", "version": 1, "seed": 3, "tasks": {task: {} for task in TASKS}},
        "policy": {"name": "1500", "checkpoint": "x/1500", "step": 1500, "sha256": "abc"},
        "engine": {"name": "mujoco", "version": "4.0.0"},
        "open_loop": 8,
        "trials": trials,
        "wall_s": 3.5,
        "time": f"2026-11-21T0{min(episodes, default=0)}:00:00Z",
        "versions": {"python": "3.12.1", "jax": "0.9"},
        "command": f"eval {list(episodes)}",
        **changes,
    }


def merge(parts: dict[str, dict]) -> dict:
    """What is written of records as they are read."""
    return merged(parts).to_json()


def merged(parts: dict[str, dict]) -> Record:
    return merging.merge({name: record_from_json(plain) for name, plain in parts.items()})


def trials_of(plain: dict) -> object:
    """A record's trials as they are written by now."""
    return record_from_json(plain).to_json()["trials"]


SAME = ("schema", "kind", "suite", "policy", "engine", "open_loop", "trials", "summary")


def test_parts_in_any_order_are_the_whole():
    whole = record_from_json(part(range(9))).to_json()
    parts = {"x": part(range(3)), "y": part(range(3, 7), versions={"jax": "0.9"}), "z": part(range(5, 9))}
    results = [merge({name: parts[name] for name in order}) for order in itertools.permutations(parts)]
    assert all(result == results[0] for result in results)
    assert {key: results[0][key] for key in SAME} == {key: whole[key] for key in SAME}
    assert results[0]["wall_s"] == 10.5
    assert results[0]["time"] == "2026-11-21T05:00:00Z"
    assert results[0]["versions"] == {"jax": "0.9"}
    assert [record_of_part["trials"] for record_of_part in results[0]["parts"]] == [6, 8, 8]
    assert merging.missing(record_from_json(results[0])) is None


def test_tasks_may_be_the_parts_and_keep_the_suites_order():
    result = merge({"b": part(range(5), ["banana"]), "a": part(range(5), ["can"])})
    assert result["trials"] == trials_of(part(range(5)))
    assert list(result["summary"]["tasks"]) == ["can", "banana"]


def test_a_gap_is_said():
    result = merged({"a": part(range(3)), "b": part([5, 6])})
    assert merging.missing(result) == (
        "not in any part: 2 episodes of banana (the first is 3), 2 episodes of can (the first is 3)"
    )


def test_a_tail_that_was_cut_off_is_said_and_an_early_stops_is_not():
    """The first episodes to end are no fair sample of those that were asked for."""
    begun = {"a": part(range(4), ["can"], rows=[0, 4]), "b": part(range(4, 7), ["can"], rows=[4, 10])}
    words = "not in any part: 3 episodes of can (the first is 7)"
    assert merging.missing(merged(begun)) == words
    begun["b"] |= {"stopped": {"episodes": 3, "of": 6, "reason": "decided"}}
    assert merging.missing(merged(begun)) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"open_loop": 4}, "open_loop: 8 in a, 4 in b"),
        ({"engine": {"name": "isaaclab", "version": "4.0.0"}}, "engine.name: mujoco in a, isaaclab in b"),
        ({"policy": {"name": "1500", "sha256": "abd"}}, "policy.sha256: abc in a, abd in b"),
        ({"suite": {"name": "droid_panda", "version": 2, "seed": 3}}, "suite.version: 1 in a, 2 in b"),
        ({"suite": {"name": "droid_panda", "version": 1, "seed": 5}}, "suite.seed: 3 in a, 5 in b"),
    ],
)
def test_parts_of_other_evaluations_are_refused_with_both_sides(changes: dict, words: str):
    with pytest.raises(
        MorphVlaError, match=f"^a and b are not parts of one evaluation: .*{re.escape(words)}"
    ):
        merge({"a": part(range(3)), "b": part(range(3, 5), **changes)})


def resolved(schema: int = 3, dwell: float = 0.5) -> dict:
    """Changes to a part: its tasks say their whole suite, and its policy the sampler."""
    task = {"task": "do it", "resolved": {"success": {"dwell_seconds": dwell}}, "resolved_sha256": str(dwell)}
    if schema < 3:
        task = {"task": "do it"}
    policy = {"name": "1500", "sha256": "abc", **({"sampler": {"steps": 10}} if schema > 2 else {})}
    suite = {"name": "droid_panda", "version": 1, "seed": 3, "tasks": dict.fromkeys(TASKS, task)}
    return {"schema": schema, "suite": suite, "policy": policy, "overrides": []}


def test_parts_of_another_criterion_are_refused_by_its_name_and_values():
    whole = merge({"a": part([0], **resolved()), "b": part([1], **resolved())})
    assert whole["suite"] == resolved()["suite"]
    assert (whole["schema"], whole["overrides"]) == (3, [])
    words = (
        "a and b are not parts of one evaluation: "
        "suite.tasks.banana.resolved.success.dwell_seconds: 0.5 in a, 0.05 in b; "
        "suite.tasks.can.resolved.success.dwell_seconds: 0.5 in a, 0.05 in b"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(words)}$"):
        merge({"a": part([0], **resolved()), "b": part([1], **resolved(dwell=0.05))})


def test_a_whole_says_no_more_than_each_of_its_parts():
    parts = {"a": part([0], **resolved()), "b": part([1], **resolved(schema=2))}
    for order in (("a", "b"), ("b", "a")):
        whole = merge({name: parts[name] for name in order})
        assert whole["schema"] == 2
        assert whole["suite"]["tasks"] == {"can": {"task": "do it"}, "banana": {"task": "do it"}}
        assert "sampler" not in whole["policy"]
    records = {name: record_from_json(plain) for name, plain in parts.items()}
    assert (comparison.unknown(records) or "").startswith("b does not say the whole criterion")


def test_where_a_checkpoint_lay_does_not_matter_if_its_bytes_are_the_same():
    elsewhere = {"name": "mine", "checkpoint": "y/1500", "step": 1500, "sha256": "abc"}
    assert len(merge({"a": part([0]), "b": part([1], policy=elsewhere)})["trials"]) == 4
    nameless = [part([i], policy={"name": name}) for i, name in ((0, "x"), (1, "y"))]
    with pytest.raises(MorphVlaError, match=r"policy\.name: x in a, y in b"):
        merge({"a": nameless[0], "b": nameless[1]})


def test_an_episode_of_both_must_have_ended_alike():
    a, b = part(range(3)), part(range(2, 5))
    a["trials"][2]["begun_anew"] = True  # a worker died in one of them
    assert len(merge({"a": a, "b": b})["trials"]) == 10
    b["trials"][0]["success"], b["trials"][0]["time_s"] = False, None
    words = "episode 2 of task 'can' differs between a and b: success: True and False; time_s: 4.5 and None"
    with pytest.raises(MorphVlaError, match=re.escape(words)):
        merge({"a": a, "b": b})


def test_one_part_and_parts_of_nothing_are_refused():
    with pytest.raises(MorphVlaError, match="merging needs at least two parts"):
        merge({"a": part([0])})
    with pytest.raises(MorphVlaError, match="a does not name its suite"):
        merge({"a": part([0], suite={}), "b": part([1], suite={})})


def test_videos_come_along_from_whichever_part_has_them(tmp_path: Path):
    folders = {name: tmp_path / name for name in ("a", "b")}
    parts = {"a": part([0, 3]), "b": part([1, 3])}
    for name, number in (("a", 0), ("b", 1)):
        path = folders[name] / f"can/videos/{number:03d}.mp4"
        path.parent.mkdir(parents=True)
        path.write_bytes(name.encode())
    records = {name: record_from_json(plain, folders[name]) for name, plain in parts.items()}
    whole, copied = merging.videos(merging.merge(records), records, tmp_path / "c")
    assert copied == 2  # those of the other task are gone
    copies = {path.name: path.read_bytes() for path in (tmp_path / "c/can/videos").iterdir()}
    assert copies == {"000.mp4": b"a", "001.mp4": b"b"}
    assert [trial.video for trial in whole.trials][:3] == [
        *sorted((tmp_path / "c/can/videos").iterdir()),
        None,
    ]
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    path = folders["a"] / "can/videos/000.mp4"
    path.unlink()
    path.symlink_to(tmp_path / "secret.mp4")
    with pytest.raises(
        MorphVlaError, match=r"a names the video 'can/videos/000.mp4', a link that leads out of"
    ):
        merging.videos(merging.merge(records), records, tmp_path / "d")


def test_the_films_of_two_tasks_of_one_name_stay_those_of_their_tasks(tmp_path: Path):
    parts = {}
    for task in ("can", "cube"):
        film = tmp_path / task / "videos" / "000.mp4"
        film.parent.mkdir(parents=True)
        film.write_bytes(task.encode())
        trials = [{"task": task, "episode": 0, "success": False, "video": "videos/000.mp4"}]
        plain = {**part([0]), "suite": {"name": "s", "tasks": {task: {}}}, "trials": trials}
        parts[task] = record_from_json(plain, tmp_path / task)
    whole, copied = merging.videos(merging.merge(parts), parts, tmp_path / "c")
    assert copied == 2
    for trial in whole.trials:
        assert trial.video is not None
        assert trial.video.read_bytes() == trial.task.encode()


def test_a_task_of_a_stranger_leads_no_film_out_of_the_folder(tmp_path: Path):
    parts = {}
    for task in ("../elsewhere", "../../elsewhere"):  # whichever comes second
        home = tmp_path / f"part{len(parts)}"
        (home / "videos").mkdir(parents=True)
        (home / "videos" / "000.mp4").write_bytes(task.encode())
        trials = [{"task": task, "episode": 0, "success": False, "video": "videos/000.mp4"}]
        plain = {**part([0]), "suite": {"name": "s", "tasks": {task: {}}}, "trials": trials}
        parts[task] = record_from_json(plain, home)
    with pytest.raises(MorphVlaError, match="which is not inside its folder"):
        merging.videos(merging.merge(parts), parts, tmp_path / "a" / "b" / "c")
    assert not list(tmp_path.rglob("elsewhere"))


# --- journals


def written(folder: Path, whole: dict, cut: str = "") -> None:
    folder.mkdir(parents=True)
    facts = {key: whole[key] for key in ("schema", "suite", "policy", "engine", "open_loop")}
    lines = [{"evaluation": "0123", "record": facts}, *whole["trials"]]
    (folder / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + cut)


def test_an_unfinished_half_is_a_part(tmp_path: Path):
    written(tmp_path / "a", part(range(2), ["can"]), cut='{"episode": 4, "succ')
    unfinished = journal.read(tmp_path / "a")
    assert unfinished is not None
    assert (unfinished.unfinished, len(unfinished.trials)) == (True, 2)
    second = record_from_json(part([2], ["can"]), tmp_path / "a")
    assert merging.merge({"a": unfinished, "b": second}).to_json(tmp_path / "a")["trials"] == trials_of(
        part(range(3), ["can"])
    )


def test_the_journals_of_several_tasks_are_read_as_one(tmp_path: Path):
    whole = part(range(2))
    for task in TASKS:
        of_task = [{**trial, "task": ""} for trial in whole["trials"] if trial["task"] == task]
        written(tmp_path / task, {**whole, "trials": of_task})
    unfinished = journal.read(tmp_path)
    assert unfinished is not None
    assert {trial.key for trial in unfinished.trials} == {(t, i) for t in TASKS for i in (0, 1)}
    assert journal.read(tmp_path / "nothing") is None


def test_facts_of_every_task_are_read_from_their_journals(tmp_path: Path):
    """Merging would otherwise not see that the second one's criterion is another."""
    for task, other in (("can", 1), ("banana", 2)):
        facts = part([], (task,))
        facts["suite"] = {**facts["suite"], "tasks": {task: {"task": f"take {other}"}}}
        journal.Journal(tmp_path / task, record_from_json(facts))
    os.utime(tmp_path / "can" / journal.FILE_NAME, (1, 1))  # was played first
    record = journal.read(tmp_path)
    assert record is not None
    named = [(task, facts.task) for task, facts in record.suite.tasks.items()]
    assert named == [("can", "take 1"), ("banana", "take 2")]


def test_what_was_stopped_early_stays_so_until_its_episodes_are_there():
    early = part(range(3), rows=[0, 5], stopped={"episodes": 6, "of": 10, "reason": "decided: B is better"})
    rest = part(range(5, 7), rows=[5, 7])
    whole = merged({"a": early, "b": rest})
    assert str(whole.stopped) == "stopped after 10 of 14 episodes: decided: B is better"
    assert merged({"a": early, "b": rest, "c": part(range(3, 5), rows=[3, 5])}).stopped is None


def test_what_is_no_journal_is_refused_in_words(tmp_path: Path):
    (tmp_path / "trials.jsonl").write_text("[1]\n")
    with pytest.raises(MorphVlaError, match=r"trials\.jsonl: not the journal of an evaluation"):
        journal.read(tmp_path)
