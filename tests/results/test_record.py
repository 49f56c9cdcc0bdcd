"""The door for records: every schema that was written is read, and what cannot be is one sentence."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import journal
from morph_vla.results import record
from morph_vla.results.record import EngineFacts, PolicyCard, Record, Sampler, Stopped, Study, from_json
from morph_vla.results.trial import Trial, inside
from morph_vla.results.values import real

GOLDEN = Path(__file__).with_name("golden")
BARE = {"schema": 3, "kind": "evaluation", "trials": []}


def golden(name: str) -> dict:
    return json.loads((GOLDEN / name).read_text())


def test_a_record_of_schema_2_as_ef79165_wrote_it_is_read_and_written_as_it_was():
    read = record.read(GOLDEN / "record_ef79165.json")
    assert (read.schema, read.policy.step, read.engine) == (2, 1500, EngineFacts("mujoco", "4.0.0"))
    task = read.suite.tasks["cube_in_bowl"]
    assert (task.task, task.resolved) == ("put the cube in the bowl", None)
    assert task.target is not None
    assert (task.target.name, task.target.low) == ("bowl", [-0.06, -0.06, 0.0])
    assert read.trials[0].video == GOLDEN / "videos/000.mp4"
    assert json.loads(json.dumps(read.to_json())) == golden("record_ef79165.json")


def test_a_journal_as_ef79165_wrote_it_is_read(tmp_path: Path):
    shutil.copy(GOLDEN / "journal_ef79165.jsonl", tmp_path / "trials.jsonl")
    unfinished, finished = journal.read(tmp_path), record.read(GOLDEN / "record_ef79165.json")
    assert unfinished is not None
    assert (unfinished.unfinished, unfinished.schema, unfinished.rows) == (True, 2, (0, 2))
    assert unfinished.suite == finished.suite
    assert [trial.outcome for trial in unfinished.trials] == ["success", "failure"]
    assert unfinished.trials[0].video == tmp_path / "videos/000.mp4"


def test_a_record_of_schema_1_has_one_task_without_a_name():
    plain = golden("record_7ad9bef.json")
    read = from_json(plain)
    assert isinstance(read, Record)
    (facts,) = read.suite.tasks.values()
    assert list(read.suite.tasks) == [""]
    assert (facts.task, facts.object) == (plain["suite"]["task"], plain["suite"]["object"])
    assert read.suite.seed == plain["suite"]["seed"]
    assert [trial.key for trial in read.trials] == [("", 0), ("", 1)]
    assert read.trials[0].begun_anew is None
    assert from_json(json.loads(json.dumps(read.to_json()))) == read


def whole(folder: Path) -> Record:
    """A record with every field that an evaluation can have."""
    first = record.read(GOLDEN / "record_ef79165.json")
    return Record(
        suite=first.suite,
        policy=PolicyCard("trained", "x/7", 7, "ab", Sampler(10, 0.0), 10, {"family": "pi0.5"}),
        engine=EngineFacts("isaaclab", "3.0", {"physics": "newton"}),
        open_loop=8,
        overrides=("objects.cube.mass=1",),
        rows=(0, 7),
        stopped=Stopped(2, 7, "decided"),
        trials=(
            Trial(task="can", episode=0, success=True, time_s=2.5, video=folder / "can/videos/000.mp4"),
            Trial(
                task="can", episode=1, success=False, ended="error", error="nan", initial={"can": [0.5, 1]}
            ),
        ),
        wall_s=3.5,
        timing={"policy_s": 1.5},
        notes=("a note",),
        parallel=5,
        command="morph-vla eval",
        versions={"python": "3.12"},
        time="2026-11-22T01:00:00Z",
        parts=({"trials": 1},),
        unfinished=True,
        attention=folder / "attention.json",
        folder=folder,
    )


def test_what_is_written_is_read_back_and_files_are_named_relative_to_the_record(tmp_path: Path):
    written = whole(tmp_path)
    record.write(written, tmp_path / "record.json")
    plain = json.loads((tmp_path / "record.json").read_text())
    assert (plain["trials"][0]["video"], plain["attention"]) == ("can/videos/000.mp4", "attention.json")
    assert (plain["summary"]["successes"], plain["policy"]["family"]) == (1, "pi0.5")
    assert record.read(tmp_path) == written
    assert (record.read(tmp_path).stored, record.read(tmp_path).folder) == (plain["summary"], tmp_path)


def test_a_study_is_read_back_and_its_last_evaluation_is_the_record(tmp_path: Path):
    (tmp_path / "eval").mkdir()
    trained = whole(tmp_path / "eval")
    study = Study(evaluations=(Record(), trained), robot={"name": "panda"}, folder=tmp_path)
    record.write(study, tmp_path / "record.json")
    plain = json.loads((tmp_path / "record.json").read_text())
    assert plain["evaluations"][1]["trials"][0]["video"] == "eval/can/videos/000.mp4"
    assert record.load(tmp_path) == study
    assert record.read(tmp_path) == trained


def test_the_python_of_the_docs_runs(tmp_path: Path, monkeypatch, capsys):
    page = Path(__file__).parents[2].joinpath("docs/evaluation.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for name in "ab":
        folder = tmp_path / f"runs/{name}/eval"
        folder.mkdir(parents=True)
        shutil.copy(GOLDEN / "record_ef79165.json", folder / "record.json")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/evaluation.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0.5 0.09")
    assert lines[1:] == ["[None]", "0.0"]


def test_a_file_elsewhere_is_not_named(tmp_path: Path):
    with pytest.raises(MorphVlaError, match=r"is not inside .*, where its record is written"):
        record.write(whole(tmp_path / "a"), tmp_path / "b/record.json")


def test_what_is_malformed_counts_as_not_said():
    names = ("suite", "policy", "engine", "rows", "stopped", "timing", "versions", "parts", "notes", "wall_s")
    for nonsense in (3, "words", [None], {"name": 7, "tasks": 5}):
        read = from_json({**BARE, **dict.fromkeys(names, nonsense)})
        assert isinstance(read, Record)
        assert (read.suite.name, read.engine, read.stopped, read.trials) == (None, None, None, ())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "recording"}, "not a record: expected kind 'evaluation' or 'demo', got 'recording'"),
        ({"kind": None}, "not a record: expected kind 'evaluation' or 'demo'"),
        ({"schema": 4}, "this record has schema 4, expected 1, 2 or 3"),
        ({"trials": None}, "this is not an evaluation record: it has no list of trials"),
        ({"trials": [7]}, "trial 0 is int, expected a mapping"),
        (
            {"trials": [{"episode": 0, "success": True}] * 2},
            "episode 0 appears twice, expected one trial",
        ),
        (
            {"trials": [{"episode": 0, "success": True, "video": "../x.mp4"}]},
            "the record names the file '../x.mp4', which is not inside its folder",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_file(tmp_path: Path, changes: dict, words: str):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**BARE, **changes}))
    with pytest.raises(MorphVlaError, match=f"^{re.escape(f'{path}: {words}')}"):
        record.read(tmp_path)


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 5000], ids=["brackets", "digits"])
def test_a_strangers_file_without_end_is_one_sentence(tmp_path, text):
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(MorphVlaError, match=r"record\.json: cannot be read: "):
        record.load(tmp_path)


@pytest.mark.parametrize("value", [10**400, 1e308, -1e16, math.inf, math.nan, True, "1"], ids=str)
def test_a_number_beyond_all_measure_counts_as_absent(value):
    assert real(value) is None


def test_half_a_character_names_no_file(tmp_path):
    with pytest.raises(MorphVlaError, match="expected a path relative to its folder"):
        inside(tmp_path, "videos/\udc80.mp4")
