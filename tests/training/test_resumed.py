"""A run goes on with the data and the robots that it began with, or says what is another."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.data import layout, lerobot
from morph_vla.errors import MorphVlaError
from morph_vla.recipes.keys import Dataset
from morph_vla.training import checkpoint, datasets, folder, loop, progress, resumed
from morph_vla.training.part import Part


def part(robot="so101", **changed) -> Part:
    recordings = lerobot.Recordings(
        root=Path("recorded"), version="v3.0", fps=15.0, robot_type="", cameras=(), tasks=("lift",),
        state=np.zeros((7, 3), np.float32), action=np.ones((7, 3), np.float32), starts=np.array([0, 3]),
        ends=np.array([3, 7]), task_of=np.zeros(7, np.int64),
    )  # fmt: skip
    nothing = np.zeros(0, np.int64)
    return Part(
        Dataset("recorded", robot), robots.load(robot), dataclasses.replace(recordings, **changed),
        np.zeros(3, bool), None, recordings.action, nothing, nothing,
    )  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"fps": 16.0},
        {"tasks": ("push",)},
        {"state": np.full((7, 3), 1e-7, np.float32)},
        {"action": np.zeros((7, 3), np.float32)},
        {"starts": np.array([0, 4])},
        {"task_of": np.ones(7, np.int64)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_digest_is_of_everything_that_is_learnt_but_pictures(changed):
    assert resumed.data_digest([part()], "so101") == resumed.data_digest([part(), part("panda")], "so101")
    assert resumed.data_digest([part(**changed)], "so101") != resumed.data_digest([part()], "so101")


def test_the_poses_of_objects_have_a_digest_of_their_own():
    """The main input of a policy on numbers; statistics alone do not say in which order they came."""
    poses = np.arange(14, dtype=np.float32).reshape(7, 2)
    parts = [[part(environment=shown, environment_names=("x", "y"))] for shown in (poses, poses[::-1])]
    one, other = (resumed.data_digests(each, ["so101"]) for each in parts)
    assert one["so101"] == other["so101"] == resumed.data_digests([part()], ["so101"])["so101"]
    assert one["so101's poses"] != other["so101's poses"]
    assert "so101's poses" not in resumed.data_digests([part()], ["so101"])


def test_other_poses_are_named_and_those_an_earlier_checkpoint_does_not_say_are_not_compared(tiny_run, about):
    with_poses = {**about, "data": {**about["data"], "panda's poses": "ab"}}
    newest = tiny_run.checkpoint
    resumed.check_same_data(newest, with_poses)
    path = newest / "about" / "data.json"
    before = path.read_text()
    path.write_text(json.dumps({**about["data"], "panda's poses": "cd"}))
    try:
        with pytest.raises(MorphVlaError, match=r"\(panda: its objects' poses\)"):
            resumed.check_same_data(newest, with_poses)
    finally:
        path.write_text(before)


@pytest.fixture
def about(tiny_run):
    """What the run would say of itself today."""
    known = checkpoint.about(tiny_run.checkpoint)
    data = json.loads((tiny_run.checkpoint / "about" / "data.json").read_text())
    assert data.keys() == known["robots"].keys() == {"panda"}
    return {"robots": known["robots"], "data": data}


def test_other_data_or_another_robot_is_named(tiny_run, about):
    newest, panda = tiny_run.checkpoint, about["robots"]["panda"]
    resumed.check_same_data(newest, about)
    nearly = {**panda["state_stats"], "mean": [x * (1 + 1e-9) for x in panda["state_stats"]["mean"]]}
    resumed.check_same_data(newest, {**about, "robots": {"panda": {**panda, "state_stats": nearly}}})
    two = {"robots": {"panda": panda, "so101": panda}, "data": {**about["data"], "so101": "ab"}}
    for changed, words in (
        ({"data": {"panda": "ab"}}, "panda: its recordings"),
        ({"robots": {"panda": {**panda, "urdf_sha256": "ab", "units": []}}}, "panda: urdf_sha256, units"),
        (two, "robot so101"),
    ):
        whole = f"{newest} was trained on other data ({words}): bring them back, or begin a new run with its"
        with pytest.raises(MorphVlaError, match=re.escape(whole)):
            resumed.check_same_data(newest, {**about, **changed})


def test_what_an_earlier_checkpoint_does_not_say_is_not_compared(tiny_run, about, tmp_path):
    older = tmp_path / "6"
    shutil.copytree(tiny_run.checkpoint / "about", older / "about")
    (older / "about" / "data.json").write_text('{"half')
    with pytest.raises(
        MorphVlaError, match=r"data\.json is damaged \(.*\): remove it, and data is not compared"
    ):
        resumed.check_same_data(older, about)
    (older / "about" / "data.json").unlink()
    resumed.check_same_data(older, {**about, "data": {"panda": "ab"}})


def test_a_run_is_not_continued_with_other_recordings(tiny_recipe, tiny_run, monkeypatch):
    monkeypatch.setattr(resumed, "data_digest", lambda parts, robot: "another")
    before = (tiny_run.folder / "log.jsonl").read_bytes()
    with pytest.raises(MorphVlaError, match=r"trained on other data \(panda: its recordings\)"):
        loop.train(tiny_recipe, tiny_run.folder)
    assert (tiny_run.folder / "log.jsonl").read_bytes() == before


def test_one_process_trains_in_a_folder(tiny_recipe, tiny_run):
    words = f"{tiny_run.folder}: another process trains in it; wait, or give another folder"
    with folder.alone(tiny_run.folder):
        with pytest.raises(MorphVlaError, match=re.escape(words)):
            loop.train(tiny_recipe, tiny_run.folder)
        with pytest.raises(MorphVlaError, match=re.escape(words)):
            folder.remove(tiny_run.folder)
        with pytest.raises(MorphVlaError, match=re.escape(words)):
            folder.claim_alone(tiny_run.folder, tiny_recipe, first=True)
    assert dataclasses.replace(loop.train(tiny_recipe, tiny_run.folder), seconds=0.0).checkpoint.is_dir()


def test_a_removal_that_was_interrupted_is_finished_and_nothing_goes_on_from_its_rest(
    tiny_recipe, tiny_run, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    shutil.copytree(tiny_run.folder, run)

    def interrupted(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.remove(run)
    assert (run / "recipe.json").is_file()
    folder.remove(run)
    assert [path.name for path in run.iterdir()] == [folder.LOCK]
    folder.remove(run)  # there is nothing
    shutil.copytree(tiny_run.folder / "checkpoints", run / "checkpoints")
    words = f"{run} holds what a run left and not its recipe (recipe.json is missing); give another folder"
    with pytest.raises(MorphVlaError, match=re.escape(words)):
        folder.claim(run, tiny_recipe)


@pytest.mark.parametrize("damaged", ["state", pytest.param("leaves", marks=pytest.mark.slow), "gone"])
def test_a_damaged_checkpoint_is_named_and_what_goes_on(tiny_recipe, tiny_run, tmp_path, damaged):
    run = tmp_path / "run"
    shutil.copytree(tiny_run.folder, run)
    newest = run / "checkpoints" / "6"
    words = rf"{newest} is damaged \(.*\): remove it, and the same command goes on from step 3$"
    if damaged == "state":
        (newest / "state" / "_METADATA").write_text("{")
    elif damaged == "leaves":
        (newest / "about" / "leaves.json").write_text('["half of')
    else:
        shutil.rmtree(newest / "state")
        words = (
            rf"^{newest} has no state of the optimizer, so it acts and cannot be trained on: begin a new run "
        )
        words += (
            rf"with its weights \(weights={newest}\), or remove it, and the same command goes on from step 3$"
        )
    with pytest.raises(MorphVlaError, match=words):
        loop.train(tiny_recipe, run)
    shutil.rmtree(newest)
    assert loop.train(tiny_recipe, run).checkpoint.name == "6"


def test_a_log_without_its_checkpoints_is_not_cut_off(tiny_recipe, tiny_run, tmp_path):
    """Of a run that never came to its first checkpoint nothing is lost: it begins anew."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run.folder, run)
    shutil.rmtree(run / "checkpoints")
    log = (run / "log.jsonl").read_text()
    words = (
        f"{run}: its log goes to step 6, and {run / 'checkpoints'} has none; bring them back, give another "
        "folder, or begin anew (--overwrite)"
    )
    for made in (False, True):
        if made:
            (run / "checkpoints").mkdir()
        with pytest.raises(MorphVlaError, match=f"^{re.escape(words)}$"):
            folder.claim(run, tiny_recipe)
        assert (run / "log.jsonl").read_text() == log
    (run / "log.jsonl").write_text(log.splitlines()[0] + "\n")
    assert json.loads(log.splitlines()[0])["step"] < tiny_recipe.training.checkpoint_every
    folder.claim(run, tiny_recipe)


def test_two_robots_of_one_name_are_refused(tiny_recipe, tmp_path):
    for place, rate in (("a", "15"), ("b", "16")):
        (tmp_path / place).mkdir()
        for file in robots.load("panda").files:
            text = file.read_text().replace("control_rate: 15", f"control_rate: {rate}")
            (tmp_path / place / f"arm{file.suffix}").write_text(text)
    (source,) = tiny_recipe.data.sources
    both = tuple(dataclasses.replace(source, robot=f"{tmp_path}/{place}/arm.urdf") for place in "ab")
    data = dataclasses.replace(tiny_recipe.data, dataset="", robot="", cameras={}, datasets=both)
    words = "a/arm.urdf and .*b/arm.urdf are two robots of one name, and a checkpoint keeps one of"
    with pytest.raises(MorphVlaError, match=words):
        datasets.read_parts(dataclasses.replace(tiny_recipe, data=data))


def test_a_name_of_what_is_elsewhere_is_no_file_of_the_runs_folder(
    tiny_recipe, tiny_run, tmp_path, monkeypatch
):
    """`train -o . --overwrite`: `own` is none of the run's files."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run.folder, run)
    monkeypatch.chdir(run)
    data = dataclasses.replace(tiny_recipe.data, statistics="own")
    folder.remove(Path(), dataclasses.replace(tiny_recipe, data=data))
    assert [path.name for path in run.iterdir()] == [folder.LOCK]


def test_damaged_lines_of_the_log_are_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 3, "loss": 1}\n\xff\xfe{"step": 9\nnull\n7\n{"loss": 2}\n{"step": 5}\n{"st')
    assert [line["step"] for line in progress.Curve(path, 7).lines] == [3, 5]
    assert path.read_text() == '{"step": 3, "loss": 1}\n{"step": 5}\n'


@pytest.mark.parametrize("key", ["weights", "data.statistics", "data.dataset"])
def test_what_a_run_begins_with_is_not_removed_first(tiny_recipe, tiny_run, key):
    value = str(tiny_run.checkpoint)
    data = tiny_recipe.data
    changed = {
        "weights": {"weights": value},
        "data.statistics": {"data": dataclasses.replace(data, statistics=value)},
        "data.dataset": {"data": dataclasses.replace(data, dataset=value)},
    }[key]
    words = (
        f"{key}: {value} lies in {tiny_run.folder}, which --overwrite would remove first; give another folder"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(words)}$"):
        folder.remove(tiny_run.folder, dataclasses.replace(tiny_recipe, **changed))
    assert tiny_run.checkpoint.is_dir()


def test_weights_below_the_home_folder_are_not_removed_either(tiny_recipe, tiny_run, monkeypatch):
    monkeypatch.setenv("HOME", str(tiny_run.folder.parent))
    weights = f"~/{tiny_run.folder.name}/checkpoints/{tiny_run.checkpoint.name}"
    with pytest.raises(MorphVlaError, match=f"^weights: {weights} lies in "):
        folder.remove(tiny_run.folder, dataclasses.replace(tiny_recipe, weights=weights))


def test_a_run_is_not_removed_for_one_that_cannot_begin(tiny_recipe, tiny_run, tmp_path):
    data = dataclasses.replace(tiny_recipe.data, dataset=str(tmp_path / "typo"))
    for changed in ({"data": data}, {"weights": str(tmp_path / "typo")}):
        with pytest.raises(MorphVlaError, match="typo"):
            folder.remove(tiny_run.folder, dataclasses.replace(tiny_recipe, **changed))
    assert tiny_run.checkpoint.is_dir()


def test_how_often_is_logged_and_saved_may_change_in_a_run(tiny_recipe, tiny_run):
    training = dataclasses.replace(
        tiny_recipe.training, log_every=5, held_out_every=7, checkpoint_every=11, keep=3
    )
    before = (tiny_run.folder / "recipe.json").read_bytes()
    folder.claim(tiny_run.folder, dataclasses.replace(tiny_recipe, training=training))
    assert (tiny_run.folder / "recipe.json").read_bytes() == before
    other = dataclasses.replace(training, seed=training.seed + 1)
    with pytest.raises(MorphVlaError, match=r"another recipe \(differs in training\.seed\); give another"):
        folder.claim(tiny_run.folder, dataclasses.replace(tiny_recipe, training=other))


def test_datasets_are_looked_at_before_weights_are_fetched(tiny_recipe, tmp_path, monkeypatch):
    """Which may be gigabytes: a dataset that is not there, a feature, a camera, a video."""
    monkeypatch.setattr(loop.weights, "open_checkpoint", lambda *_: pytest.fail("weights were asked for"))
    data = tiny_recipe.data
    source = Path(data.sources[0].dataset)
    camera, own = next(iter(data.sources[0].cameras.items()))
    video = layout.read(source).episodes[0].videos[own].path.relative_to(source)
    cut = shutil.copytree(source, tmp_path / "cut")
    (cut / video).unlink()
    for changed, words in (
        ({"dataset": str(tmp_path / "typo")}, "typo: no such folder"),
        (
            {"state": ("observation.stat",)},
            r"no feature 'observation\.stat'; did you mean 'observation\.state'",
        ),
        ({"cameras": {camera: f"{own}s"}}, rf"no camera '{own}s'; did you mean '{own}'"),
        ({"dataset": str(cut)}, rf"{re.escape(str(video))}: the file is missing"),
    ):
        asked = dataclasses.replace(data, **changed)
        recipe = dataclasses.replace(tiny_recipe, data=asked, weights="pi05-base")
        with pytest.raises(MorphVlaError, match=words):
            loop.train(recipe, tmp_path / "run")
