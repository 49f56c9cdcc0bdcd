"""A demo's folder is of one arm as it is now: what was made of an earlier one is made anew, or refused."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from morph_vla import robots
from morph_vla.demo import arm, job
from morph_vla.errors import MorphVlaError
from morph_vla.robots.text import urdf_text
from morph_vla.suites import suite as suites


@pytest.fixture
def model(folder, monkeypatch) -> Path:
    """A user's URDF, the Panda under another name; a suite is made of its two digests, untried."""
    monkeypatch.setenv("MORPH_VLA_PATH", "")  # to be as it was: a demo searches its folder
    file = folder / "model.urdf"
    file.write_text(urdf_text(robots.load("panda").urdf))

    def make(name, robot, tasks, path, *, overwrite=False):
        assert overwrite == path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} {robot.urdf_sha256} {robot.side_sha256}")

    at = str(folder / "x/urdf_descriptors/model.urdf")
    task = dataclasses.replace(suites.load_tasks("droid_panda")[0], robot=at)
    monkeypatch.setattr(arm.new_suite, "make", make)
    monkeypatch.setattr(arm.suites, "load_tasks", lambda path: (task,))
    return file


def prepared(folder: Path, model: Path) -> str:
    """The suite, once the arm has been read again."""
    arm.tasks(folder / "x", job.Settings(robot=model, zero_shot=True))
    return (folder / "x/eval/model.yaml").read_text()


def mended(model: Path) -> None:
    text = model.read_text()
    assert "2.8973" in text
    model.write_text(text.replace("2.8973", "2.8972"))


def test_a_mended_urdf_is_the_one_that_is_judged(folder, model, caplog):
    """With a suite, a side file and a picture of its own; of what did not change nothing is said."""
    first = prepared(folder, model)
    picture = folder / "x/joint_graph.png"
    picture.write_text("of the first")
    assert prepared(folder, model) == first
    assert picture.exists()
    assert not caplog.text
    mended(model)
    second = prepared(folder, model)
    assert second != first
    assert not picture.exists()
    copy = folder / "x/urdf_descriptors/model.urdf"
    assert copy.read_bytes() == model.read_bytes()
    assert f"{model} has changed: its copy and its suite in {folder / 'x'} are made anew" in caplog.text
    assert prepared(folder, model) == second


def test_a_side_file_that_a_user_writes_in_the_folder_counts(folder, model, caplog):
    """It makes the suite anew, and stays when the URDF is mended."""
    first = prepared(folder, model)
    side = folder / "x/urdf_descriptors/model.yaml"
    side.write_text(side.read_text() + "control_rate: 20\n")
    second = prepared(folder, model)
    assert second != first
    assert f"{folder / 'x/eval/model.yaml'} is made anew: 'model' has changed" in caplog.text
    mended(model)
    assert prepared(folder, model) not in (first, second)
    assert "control_rate: 20" in side.read_text()


def test_what_was_changed_by_hand_is_not_replaced(folder, model):
    suite, side = folder / "x/eval/model.yaml", folder / "x/urdf_descriptors/model.yaml"
    prepared(folder, model)
    suite.write_text("by hand")
    side.write_text(side.read_text() + "control_rate: 20\n")
    with pytest.raises(
        MorphVlaError,
        match=rf"^{suite} was changed by hand, and 'model' has changed since: remove the file, which",
    ):
        prepared(folder, model)
    mended(model)
    copy = folder / "x/urdf_descriptors/model.urdf"
    before = copy.read_bytes()
    with pytest.raises(
        MorphVlaError,
        match=rf"^{folder}/x is of another arm: {copy} is not {model}, and {suite} was changed by hand",
    ):
        prepared(folder, model)
    assert (suite.read_text(), copy.read_bytes()) == ("by hand", before)


@pytest.mark.parametrize("hours", ["dataset", "train"])
def test_what_was_recorded_or_trained_keeps_its_arm(folder, model, hours):
    first = prepared(folder, model)
    (folder / "x" / hours).mkdir()
    mended(model)
    words = rf"model\.urdf is not {re.escape(str(model))}, with which {folder}/x/{hours} was made; "
    with pytest.raises(MorphVlaError, match=words):
        prepared(folder, model)
    model.write_text(model.read_text().replace("2.8972", "2.8973"))
    side = folder / "x/urdf_descriptors/model.yaml"
    side.write_text(side.read_text() + "control_rate: 20\n")
    with pytest.raises(MorphVlaError, match=rf"'model' has changed, with which {folder}/x/{hours} was m"):
        prepared(folder, model)
    assert (folder / "x/eval/model.yaml").read_text() == first


def test_what_was_there_comes_back_where_the_new_file_is_refused(folder, model):
    first = prepared(folder, model)
    files = {path: path.read_bytes() for path in (folder / "x").rglob("*") if path.is_file()}
    assert len(files) == 4
    model.write_text("<robot/>")
    with pytest.raises(MorphVlaError):
        prepared(folder, model)
    assert {path: path.read_bytes() for path in (folder / "x").rglob("*") if path.is_file()} == files
    assert (folder / "x/eval/model.yaml").read_text() == first


def test_another_arm_is_of_another_folder(folder, model):
    """`demo --robot` of a second arm in the first one's folder: before anything is written."""
    prepared(folder, model)
    files = sorted((folder / "x").rglob("*"))
    other = model.rename(folder / "other.urdf")
    with pytest.raises(
        MorphVlaError, match=rf"^{folder}/x is a demo of 'model'; give another folder for 'other' \(-o\)$"
    ):
        prepared(folder, other)
    assert sorted((folder / "x").rglob("*")) == files


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"suite": "model"}', '{"suite": 3, "robot": 4, "files": 5}']
)
def test_of_a_damaged_file_nothing_is_known(folder, model, text):
    """As of a folder of an earlier version, whose arm and suite were taken as they were."""
    first = prepared(folder, model)
    (folder / "x" / arm.FILE_NAME).write_text(text)
    assert arm.read(folder / "x") == arm.Made()
    assert prepared(folder, model) == first
    assert json.loads((folder / "x" / arm.FILE_NAME).read_text())["suite"] == "model"


def test_an_edited_urdf_of_a_folder_that_says_nothing_is_refused(folder, model):
    """Of an earlier version: whether its files were changed by hand is not known."""
    there = folder / "x/urdf_descriptors/model.urdf"
    there.parent.mkdir(parents=True)
    there.write_text("<robot/>")
    words = rf"^{folder}/x is of another arm: {there} is not {model}; choose another folder \(-o\), or"
    with pytest.raises(MorphVlaError, match=words):
        prepared(folder, model)
    assert there.read_text() == "<robot/>"


def test_the_folder_is_named_after_the_arm(folder, monkeypatch, run):
    """`make arm` does so too: a second arm is no longer sent into the first demo's folder."""
    seen = []

    def stopped(where, *_):
        seen.append(where)
        raise MorphVlaError("far enough")

    monkeypatch.setattr(job, "act", stopped)
    monkeypatch.setattr(job, "run", stopped)
    for words in ("--robot ~/my_arm.urdf --zero-shot", "--robot panda", "", "--zero-shot -o here"):
        run(f"demo {words}")
    assert seen == [Path("runs/my_arm"), Path("runs/panda"), Path("runs/demo"), Path("here")]
