"""What is wrong, missing, too large or hostile in a record: a closed page all the same, or none."""

import json
import re
from pathlib import Path

import pytest
from report_records import (
    JOINTS,
    PNG,
    assert_closed,
    demo,
    evaluation,
    write_page,
    written,
)

from morph_vla import report
from morph_vla.errors import MorphVlaError
from morph_vla.report import page


def test_everything_in_a_record_is_escaped(tmp_path: Path):
    evil = "<script>alert('x')</script>\"&"
    record = demo(tmp_path)
    trained = record["evaluations"][1]
    trained["policy"]["name"] = trained["suite"]["task"] = trained["suite"]["name"] = trained["command"] = (
        evil
    )
    trained["trials"][7]["error"] = trained["trials"][4]["failed_clause"] = evil
    trained["trials"][0]["initial"] = {evil: [0.5, 0.1, 0.0]}
    record["robot"]["name"] = record["robot"]["joints"][0]["name"] = record["command"] = evil
    record["machine"] = record["seconds_by_stage"] = record["recording"] = {evil: 3.0}
    record["training"]["recipe"] = record["training"]["parameters_by_part"] = {evil: {evil: evil}}
    layers = [{"layer": evil, "masked": False, "matrix": [[1.0]]}]
    (tmp_path / "attention.json").write_text(json.dumps({"joints": [evil], "layers": layers}))
    page = written(tmp_path, record)
    assert_closed(page)
    assert len(page.all("script")) == 1
    assert page.words.count(evil) > 12


def test_lone_surrogates_do_not_stop_the_page(tmp_path: Path):
    assert "cube ? bowl" in written(tmp_path, evaluation("sfs", "cube \ud800 bowl")).words


# --- parts that are missing, and sizes


def test_missing_parts_are_left_out_with_a_note(tmp_path: Path):
    record = {"schema": 1, "kind": "demo", "evaluations": [evaluation("fff", "untrained"), evaluation("ssf")]}
    page = written(tmp_path, record)
    assert_closed(page)
    absent = "the training, the robot's joints, the attention between joints, episode videos"
    assert f"Not in this record, or not readable: {absent}." in page.words


def test_files_that_are_gone_or_broken_are_left_out(tmp_path: Path):
    record = demo(tmp_path)
    (tmp_path / "joint_graph.png").unlink()
    (tmp_path / "attention.json").write_text('{"layers": [')
    for episode in range(3, 11):
        (tmp_path / "videos" / f"{episode:03d}.mp4").unlink()
    page = written(tmp_path, record)
    assert_closed(page)
    assert "This page holds 6 episode videos. 16 named in the record are not in the folder" in page.words
    assert "the attention between joints" in page.words
    # The graph is then drawn from the adjacency in the record.
    assert any((a.get("aria-label") or "") == "Joint graph: 5 joints, 4 edges" for a in page.all("svg"))


@pytest.mark.parametrize(
    "part", ["robot", "recording", "training", "pictures", "machine", "seconds_by_stage"]
)
@pytest.mark.parametrize("nonsense", [None, [], 3, "words", {}, {"curve": [None, {"step": "x", "loss": -1}]}])
def test_malformed_optional_parts_never_stop_the_page(tmp_path: Path, part: str, nonsense: object):
    assert_closed(written(tmp_path, {**demo(tmp_path), part: nonsense}))


@pytest.mark.parametrize(
    "layers",
    [[], [None], [{"layer": 0}], [{"layer": 0, "matrix": [[1.0, 2.0]]}], [{"layer": 0, "matrix": [["a"]]}]],
)
def test_malformed_attention_is_left_out(tmp_path: Path, layers: list):
    record = demo(tmp_path)
    (tmp_path / "attention.json").write_text(json.dumps({"joints": JOINTS, "layers": layers}))
    page = written(tmp_path, record)
    assert_closed(page)
    assert "Attention between joints" not in page.source


def test_a_loss_that_is_not_finite_is_skipped(tmp_path: Path):
    record = demo(tmp_path)
    record["training"]["curve"][5]["loss"] = float("nan")
    page = written(tmp_path, record)
    assert_closed(page)
    curves = page.all("polyline")
    assert curves
    assert all("nan" not in (curve["points"] or "") for curve in curves)


def test_an_evaluation_without_trials_is_not_measured_rather_than_zero(tmp_path: Path):
    record = {"schema": 1, "kind": "demo", "evaluations": [evaluation("", "untrained"), evaluation("ssf")]}
    page = written(tmp_path, record)
    assert_closed(page)
    assert "The untrained policy was not measured." in page.words
    assert " 0.0%" not in page.words


def test_a_summary_that_contradicts_its_trials_is_said(tmp_path: Path):
    record = evaluation("sfs")
    record["summary"]["successes"] = 3
    words = written(tmp_path, record).words
    assert "The record's summary of trained says 3 successes, its trials say 2." in words
    assert "succeeds in 2 of 3 trials" in words


def test_videos_stop_at_the_size_of_the_page(tmp_path: Path):
    record = evaluation("s" * 23, videos="videos")
    (tmp_path / "videos").mkdir()
    for episode in range(23):
        (tmp_path / "videos" / f"{episode:03d}.mp4").write_bytes(bytes(1_000_003))
    page = written(tmp_path, record)
    size = (tmp_path / "report.html").stat().st_size
    assert report.MAX_BYTES - 1_400_000 < size < report.MAX_BYTES
    assert "This page holds 7 episode videos. 16 more did not fit" in page.words
    assert (len(page.all("a", "cell")), len(page.all("button", "cell"))) == (7, 16)


def test_words_beside_videos_count_too_and_pictures_of_tokens_go_first(tmp_path: Path, monkeypatch):
    record = evaluation("e" * 23, videos="videos")
    (tmp_path / "videos").mkdir()
    for trial in record["trials"]:
        trial["error"] = "so it ended " * 500
        (tmp_path / trial["video"]).write_bytes(bytes(10_007))
    asked = []
    monkeypatch.setattr(page.kept, "find", lambda *_: asked.append(1))
    monkeypatch.setattr(page, "MAX_BYTES", 1_000)
    assert "Pictures of image tokens, where there are any, did not fit" in written(tmp_path, record).words
    assert len(asked) == 1  # not once it is known that the page is too large
    bare = (tmp_path / "report.html").stat().st_size
    monkeypatch.setattr(page, "MAX_BYTES", bare + 100_000)
    shown = written(tmp_path, record)
    assert bare + 50_000 < (tmp_path / "report.html").stat().st_size <= bare + 100_000
    assert_closed(shown)
    assert "more did not fit" in shown.words


def test_frame_strips_are_shown_as_pictures(tmp_path: Path):
    record = evaluation("sf")
    record["trials"][1]["video"] = "strip.png"
    (tmp_path / "strip.png").write_bytes(PNG)
    page = written(tmp_path, record)
    assert [image["alt"] for image in page.all("img")] == ["Episode 1: failed, not inside the target"]


def test_writing_again_replaces_the_page_whole(tmp_path: Path):
    write_page(tmp_path, evaluation("fff"))
    first = (tmp_path / "report.html").read_bytes()
    with pytest.raises(MorphVlaError):
        write_page(tmp_path, {"schema": 1, "kind": "evaluation", "trials": []})
    assert (tmp_path / "report.html").read_bytes() == first
    write_page(tmp_path, evaluation("fff"))
    assert (tmp_path / "report.html").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


# --- records and paths that are refused


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"kind": "evaluation"}, "this record has schema None, expected 1, 2 or 3"),
        ({"schema": 4, "kind": "demo"}, "this record has schema 4, expected 1, 2 or 3"),
        (
            {"schema": 1, "kind": "evalution"},
            "expected kind 'evaluation' or 'demo', got 'evalution'; did you mean 'evaluation'?",
        ),
        ({"schema": 1, "kind": "demo"}, "holds no trials: nothing was measured"),
        ({"schema": 1, "kind": "evaluation"}, "this is not an evaluation record: it has no list of trials"),
        ({"schema": 1, "kind": "evaluation", "trials": []}, "holds no trials: nothing was measured"),
        ({"schema": 1, "kind": "demo", "evaluations": []}, "holds no trials: nothing was measured"),
        (
            {"schema": 1, "kind": "demo", "evaluations": [3]},
            "this record of kind 'demo' has no list of evaluations",
        ),
        ({"schema": 1, "kind": "evaluation", "trials": [{"success": True}]}, "trial 0 has episode None"),
    ],
)
def test_a_bad_record_is_one_sentence_and_no_page(tmp_path: Path, record: dict, sentence: str):
    with pytest.raises(MorphVlaError, match=re.escape(sentence)):
        write_page(tmp_path, record)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../secret.mp4", "/etc/passwd", "videos/../../x.png", r"..\x.mp4", r"C:\x.mp4"]
)
def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str):
    record = evaluation("sf")
    record["trials"][0]["video"] = name
    with pytest.raises(MorphVlaError, match=r"the record names the file .* which is not inside its folder"):
        write_page(tmp_path, record)
    pictured = {**evaluation("sf"), "kind": "demo", "evaluations": [evaluation("sf")]}
    for key in ("joint_graph", "attention"):
        robot = {"name": "panda", "joints": [{"name": "joint1"}]}
        with pytest.raises(MorphVlaError, match="which is not inside its folder"):
            write_page(tmp_path, {**pictured, "robot": robot, "pictures": {key: name}})


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.png").write_bytes(PNG)
    (inner / "strip.png").symlink_to(tmp_path / "secret.png")
    record = evaluation("sf")
    record["trials"][0]["video"] = "strip.png"
    with pytest.raises(MorphVlaError, match="a link that leads out of its folder"):
        write_page(inner, record)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path):
    record = evaluation("sf")
    record["trials"][0]["video"] = 7
    with pytest.raises(
        MorphVlaError, match="the record names a file 7, expected a path relative to its folder"
    ):
        write_page(tmp_path, record)
