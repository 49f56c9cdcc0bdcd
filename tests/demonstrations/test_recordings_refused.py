"""Recordings that do not begin: another's folder, another's parts, what no dataset can hold."""

import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest

from morph_vla import doctor
from morph_vla.demonstrations import recording
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.files.writing import taken
from morph_vla.suites.suite import Suite, load

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp", "lerobot", "av")):
    pytest.skip("recording needs the extras 'sim' and 'lerobot'", allow_module_level=True)

ATTEMPTS = 3


@pytest.fixture(scope="module")
def suite() -> Suite:
    sizes = {"exterior.width": 34, "exterior.height": 22, "wrist.width": 26, "wrist.height": 38}
    changes = ["expert.begin={rest: 1}", *(f"cameras.{key}={pixels}" for key, pixels in sizes.items())]
    return load("droid_panda:cube_in_bowl", changes)


def test_a_rate_that_no_dataset_can_say_is_refused(suite, tmp_path):
    slower = dataclasses.replace(suite, control_rate=12.5, physics_rate=250.0)
    with pytest.raises(MorphVlaError, match=r"^control_rate is 12\.5 Hz; a LeRobot dataset's rate is"):
        recording.record(slower, tmp_path / "set", ATTEMPTS)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "{}", '{"suite": 1, "more": 2}'])
def test_a_summary_that_cannot_be_read_is_one_sentence(suite, tmp_path, text):
    (tmp_path / recording.SUMMARY).write_text(text)
    with pytest.raises(
        MorphVlaError, match=r"recording\.json: not what a recording says of itself \(.*; move or"
    ):
        recording.record(suite, tmp_path, ATTEMPTS)


def test_a_foreign_folder_is_not_touched(suite, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").write_text("cat")
    sentence = f"{photos} is not empty and holds no recording; give another folder or empty it"
    for folder in (photos, photos / "cat.jpg"):
        with pytest.raises(MorphVlaError, match=re.escape(sentence.replace(str(photos), str(folder)))):
            recording.record(suite, folder, ATTEMPTS)
    (tmp_path / "demos.parts").mkdir()
    (tmp_path / "demos.parts" / "mine.txt").write_text("mine")
    (tmp_path / "others.parts").mkdir()
    (tmp_path / "others.parts" / "identity").write_text("my own notes")
    with pytest.raises(MorphVlaError, match=r"others\.parts holds something else, and a recording keeps its"):
        recording.record(suite, tmp_path / "others", ATTEMPTS)
    assert (tmp_path / "others.parts" / "identity").read_text() == "my own notes"
    with pytest.raises(
        MorphVlaError, match=r"demos\.parts holds something else, and a recording keeps its parts there"
    ):
        recording.record(suite, tmp_path / "demos", ATTEMPTS)
    assert (photos / "cat.jpg").read_text() == "cat"
    assert (tmp_path / "demos.parts" / "mine.txt").read_text() == "mine"


def begun(suite, folder, attempts: int) -> Path:
    """What an interrupted recording leaves: one finished part, which kept nothing."""
    parts = folder.with_name(f"{folder.name}.parts")
    (parts / "0000").mkdir(parents=True)
    (parts / "identity").write_text(recording._identity((suite,), attempts))
    (parts / "0000" / "recording.json").write_text('[["rest", "near", 61, ""], ["rest", "near", 61, ""]]')
    return parts


def test_two_processes_do_not_record_into_one_folder(suite, tmp_path):
    parts = begun(suite, tmp_path / "demos", ATTEMPTS)
    words = f"{tmp_path / 'demos'}: another process records there; wait, or give another folder"
    with taken(parts / ".lock"), pytest.raises(MorphVlaError, match=f"^{re.escape(words)}$"):
        recording.record(suite, tmp_path / "demos", ATTEMPTS)
    assert (parts / "0000" / "recording.json").is_file()


def test_finished_parts_of_other_options_are_never_thrown_away(suite, tmp_path):
    parts = begun(suite, tmp_path / "demos", 7)
    words = (
        f"{parts} holds 1 part of another recording that was not finished, of 7 attempts: go on with its own"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(words)} options, give another folder than "):
        recording.record(suite, tmp_path / "demos", ATTEMPTS)
    assert (parts / "0000" / "recording.json").is_file()
    (parts / "0000" / "recording.json").unlink()
    recording._begin(parts, recording._identity((suite,), ATTEMPTS), tmp_path / "demos")
    assert {path.name for path in parts.iterdir()} == {"identity", ".lock"}


def test_a_mount_point_is_refused_before_hours_of_work(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(recording.os.path, "ismount", lambda path: True)
    words = f"{tmp_path / 'data'} is a mount point, whose place nothing can take; give a folder within it"
    with pytest.raises(MorphVlaError, match=f"^{re.escape(words)}$"):
        recording.record(suite, tmp_path / "data", ATTEMPTS)


@pytest.mark.parametrize("name", [".", "..", "a/.."])
def test_the_folder_one_stands_in_is_refused(suite, folder, name):
    words = f"{Path(name)}: a recording takes a folder's place when it is whole; name a folder within it"
    with pytest.raises(MorphVlaError, match=f"^{re.escape(words)}$"):
        recording.record(suite, Path(name), ATTEMPTS)
    assert not [*folder.iterdir()]


@pytest.mark.parametrize("content", ["", "[[", "5", '[["rest", null, 61, ""]]'])
def test_a_part_that_a_power_cut_spoilt_is_recorded_again(tmp_path, content):
    """The last one says that it kept a demonstration, and has no dataset."""
    (tmp_path / "recording.json").write_text(content)
    assert recording._written(tmp_path) is None
    (tmp_path / "recording.json").write_text('[["rest", "near", 61]]')
    assert recording._written(tmp_path) == [("rest", "near", 61, "")]


@pytest.mark.usefixtures("pip_installs")
def test_what_is_not_installed_is_said_at_once_and_before_anything_is_written(suite, tmp_path, monkeypatch):
    installed = doctor._installed
    monkeypatch.setattr(
        doctor, "_installed", lambda name: None if name in ("mink", "grain") else installed(name)
    )
    words = r"^a recording needs 'mink', 'grain', not installed here; install the extra: pip install 'morph-v"
    with pytest.raises(MissingExtraError, match=words + r"la\[sim,lerobot\]'$"):
        recording.record(suite, tmp_path / "demos", 3)
    assert not list(tmp_path.iterdir())


def test_a_frame_that_no_video_can_hold_is_refused(suite, tmp_path):
    odd = dataclasses.replace(suite.cameras["wrist"], width=31)
    with pytest.raises(
        MorphVlaError, match=r"^camera 'wrist' has 31 x 38 pixels; a recording's video needs even numbers$"
    ):
        recording.record(dataclasses.replace(suite, cameras={"wrist": odd}), tmp_path / "demos", ATTEMPTS)
    assert not list(tmp_path.iterdir())
