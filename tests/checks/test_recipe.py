"""Recipes held against their data: the report as a whole, tables, episodes, and the command."""

import json
import shutil

import numpy as np
import pytest
from recipe_checks import (
    BYTES,
    LENGTHS,
    NAMES,
    check_sentences,
    edit_info,
    edit_table,
    episodes,
    once,
    recipe_of,
    replaced,
)

from morph_vla.checks import recipe as check
from morph_vla.checks import same_robot
from morph_vla.files import dropin
from morph_vla.recipes import recipe as config


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_a_good_dataset_has_no_problem(write, version):
    root = write(version)
    report = check.check(recipe_of(root))
    assert [str(p) for p in report.problems if p.severity != "note"] == []
    (facts,) = report.datasets
    assert (facts.version, facts.episodes, facts.frames, facts.fps) == (version, 5, sum(LENGTHS), 30)
    assert 0 < facts.held_out < 5
    converted = (
        f"note: {root}: LeRobot {version}; training converts it to v3.0 once, with LeRobot's converter"
    )
    assert any(str(p).startswith(converted) for p in report.problems) == (version != "v3.0")


def test_everything_is_said_at_once_and_errors_first(write, tmp_path):
    given = episodes()
    given[3]["action"][4, 2] = np.nan
    root = write("v2.1", given)
    next(root.rglob("observation.images.front/episode_000001.mp4")).unlink()
    report = check.check(recipe_of(root, "data.robot=so100", "data.held_out=0.0", f"weights={tmp_path}"))
    lines = [str(p) for p in report.problems]
    for word in (
        "not finite",
        "lack their video",
        "no robot 'so100'; did you mean 'so101'?",
        "is not a checkpoint",
    ):
        assert sum(word in text for text in lines) == 1, (word, lines)
    severities = [p.severity for p in report.problems]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert severities.count("error") == 4


def test_a_base_that_is_not_here(write, tmp_path, monkeypatch):
    monkeypatch.setattr(dropin, "packaged", lambda folder: [tmp_path / folder])
    root, missing = write(), rf"pi05-nano is not here \({tmp_path}/bases/pi05_nano is missing\)"
    assert once(check_sentences(root, "weights=pi05-nano"), f"error: weights: {missing}.*")
    monkeypatch.setenv("MORPH_VLA_PI05_NANO", "hf://me/nano")
    sentences = check_sentences(root, "weights=pi05-nano", notes=True)
    assert once(sentences, "note: weights: hf://me/nano is not on this machine.*")


def test_no_dataset(tmp_path):
    assert once(
        check_sentences(tmp_path / "no"),
        rf"error: data\.dataset: {tmp_path}/no: no such folder \(a dataset of the Hub is called "
        r"USER/NAME\); name a LeRobot dataset's folder; `morph-vla stats USER/NAME` fetches one",
    )
    (line,) = check_sentences("somebody/nothing")
    assert "no copy of the Hub's dataset is on this machine" in line


@pytest.mark.parametrize("episodes", ["[-1]", "[-1, 1000000000000, 1]"])
def test_a_share_of_episodes_that_are_not_there(write, episodes):
    lines = check_sentences(write(), f"data.episodes={episodes}", "data.share=0.9")
    assert any("there is no episode -1" in line for line in lines)


def test_a_dataset_without_the_table_of_its_episodes(write):
    root = write()
    shutil.rmtree(root / "meta/episodes")
    (line,) = check_sentences(root)
    assert "v3.0 without the table of its episodes (meta/episodes is missing)" in line


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_table_that_was_cut_or_is_missing(write, version):
    root = write(version)
    first, second = sorted((root / "data").rglob("*.parquet"))[:2]
    first.write_bytes(first.read_bytes()[:-99])
    second.unlink()
    lines = check_sentences(root)
    lost = r"0, 1, 2" if version == "v3.0" else "0"
    assert once(
        lines,
        f"error: {root}: episode 0: {first}: cannot be read as parquet: .*; restore it, or leave out "
        rf"what it holds \(episode {lost}\)",
    )
    assert once(
        lines, rf"error: {root}: episode \d: {second}: the file is missing; restore it, or leave out .*"
    )


def test_a_feature_that_is_not_there_and_one_of_another_width(write):
    root = write()
    assert once(
        check_sentences(root, "data.action=[actoin]"),
        rf"error: {root}: no feature 'actoin'; did you mean 'action'\?; name the dataset's keys with "
        "`state` and `action`",
    )
    features = json.loads((root / "meta/info.json").read_text())["features"]
    edit_info(root, features={**features, "action": {**features["action"], "shape": [5]}})
    assert once(
        check_sentences(root),
        rf"error: {root}: episode 0: 'action' has 6 values, and info\.json says 5; correct the shape in "
        r"meta/info\.json, or record the episode again",
    )
    assert once(
        check_sentences(root, "data.robot=panda"),
        rf"error: {root}: actions have 6 values, robot 'panda' has 8 joints \(panda_joint1, .*\); training "
        "needs a value of each, and no others: choose the robot recorded, or as many joints in a side "
        "file",
    )
    assert once(
        check_sentences(root, "data.robot=panda", "data.preset=so101"),
        r"warning: data: robot: panda, where the preset 'so101' is of so101; its units, gripper and keys "
        "stay in force; for another robot set preset: null and say them yourself",
    )


def test_names_in_another_order(write):
    root = write(names=[NAMES[1], NAMES[0], *NAMES[2:]])
    lines = check_sentences(root)
    assert lines[0].startswith(
        f"error: {root}: episode 0: action, observation.state: the names are in another order"
    )
    assert "write joints: [shoulder_lift, shoulder_pan, " in lines[0]


def test_episodes_without_frames_or_of_another_length(write):
    root = write("v2.1")
    lines = [{"episode_index": i, "tasks": ["wave"], "length": n} for i, n in enumerate(LENGTHS)]
    lines[1]["length"] = 99
    (root / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    edit_table(next(root.rglob("episode_000004.parquet")), lambda table: table[:0])
    problems = check_sentences(root)
    assert once(
        problems, rf"error: {root}: episode 4: 1 episode without a frame \(4\); remove them from the dataset"
    )
    assert once(
        problems,
        f"error: {root}: episode 1: the table holds 13 frames, and the meta files say 99; repair the "
        "meta files, or leave the episode out with `episodes`",
    )
    assert once(
        check_sentences(root, "data.episodes=[0, 9]"),
        rf"error: {root}: there is no episode 9; leave it out of `episodes`",
    )
    assert once(
        check_sentences(root, "data.share=0.01"),
        rf"error: data\.share: {root}: a share of 0\.01 of \d episodes selects none; raise `share` or name "
        "`episodes`; or record more",
    )


def test_frames_and_time_stamps_that_do_not_follow(write):
    root = write("v2.1")
    second, third = (next(root.rglob(f"episode_00000{index}.parquet")) for index in (1, 2))
    times = (np.arange(13) / 30).tolist()
    edit_table(second, lambda t: replaced(t, "timestamp", [*times[:6], times[5], *times[7:]]))
    edit_table(third, lambda t: replaced(t, "frame_index", [0, 1, 2, 4, 5, 6, 7]))
    lines = check_sentences(root)
    assert once(
        lines,
        rf"error: {root}: episode 1, frame 6: the time stamps do not increase \(0\.16\d* s, then 0\.16\d* "
        r"s\); write the time stamps anew",
    )
    assert once(
        lines,
        rf"error: {root}: episode 2, frame 3: frame_index is 4 where 3 is expected \(4 rows\); frames were "
        "lost or doubled: look at the recording, or leave the episode out with `episodes`",
    )
    gap = [*times[:6], *(t + 0.2 for t in times[6:])]
    edit_table(second, lambda t: replaced(t, "timestamp", gap))
    assert once(
        check_sentences(root),
        rf"warning: {root}: episode 1, frame 6: 1 gap between time stamps, the first of 0\.2333 s; a "
        r"frame is expected every 0\.03333 s: frames were lost, and a policy learns the jumps",
    )


def test_tasks_that_are_missing(write):
    root = write("v2.1")
    edit_table(next(root.rglob("episode_000002.parquet")), lambda t: replaced(t, "task_index", [3] * 7))
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": " "}))
    lines = check_sentences(root)
    assert once(
        lines,
        f"error: {root}: episode 2, frame 0: its task is 3, which the 1 task of meta do not have; add it "
        "to the tasks in meta",
    )
    assert once(
        lines,
        f"warning: {root}: episode 0: task 0 is empty; a policy is prompted with it: write what is to be "
        "done",
    )


def test_two_rates_of_one_robot(write):
    fast, slow = write(), write(fps=20, folder="slow")
    entry = "robot: so101, cameras: {base_0_rgb: front}"
    data = f"data={{held_out: 0.4, datasets: [{{dataset: {fast}, {entry}}}, {{dataset: {slow}, {entry}}}]}}"
    report = check.check(config.load("panda_demo", [data, "model.max_tokens=61"]))
    assert once(
        [str(p) for p in report.problems],
        f"error: {slow}: recorded at 20 Hz, and {fast} of the same robot at 30 Hz; a robot's actions "
        "have one pace: resample one of them, or leave it out",
    )
    assert [facts.key for facts in report.datasets] == ["data.datasets.0", "data.datasets.1"]


def test_the_command(run, write):
    root = write()
    more = f"data.robot=so101 'data.cameras={{base_0_rgb: front}}' data.held_out=0.4 {' '.join(BYTES)}"
    line = f"recipes check panda_demo data.dataset={root} {more}"
    status, out, _ = run(f"{line} model.max_tokens=61")
    assert status == 0
    assert out.startswith(f"data: {root}: LeRobot v3.0, 5 episodes (")
    assert ", 53 frames at 30 Hz, recorded on 'so101_follower'; robot so101\n" in out
    assert "0 errors, 0 warnings, " in out.splitlines()[-1]
    status, out, _ = run(f"{line} model.max_tokens=13 --json")
    assert status == 1
    plain = json.loads(out)
    assert plain["errors"] == 1
    assert plain["problems"][0]["severity"] == "error"
    assert plain["datasets"][0]["episodes"] == 5


def test_nothing_is_written(write, tmp_path, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    check_sentences(write("v2.0"))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("recorded_on", "remedy"),
    [
        ("piper", "add the URDF of 'piper' with `morph-vla robots add` and name that robot"),
        ("franka", "name robot: panda"),
    ],
)
def test_a_recording_of_another_robot(write, recorded_on, remedy):
    root = write(info={"robot_type": recorded_on})
    assert check_sentences(root) == [
        f"warning: data: recorded on '{recorded_on}', and the entry's robot is 'so101'; {remedy}, or go on "
        "if they are one robot"
    ]


@pytest.mark.parametrize("recorded_on", ["so101", "SO100_follower", "bi-so101_follower", "unknown", ""])
def test_other_names_of_one_robot(write, recorded_on):
    assert check_sentences(write(info={"robot_type": recorded_on})) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("droid", "panda", True),
        ("Franka Emika Panda", "panda", True),
        ("panda_vary3_001", "panda", True),
        ("Unitree_G1_Inspire", "g1_dex1", True),
        ("ur5 e", "ur10 e", False),
        ("joint 7", "arm 7", False),
        ("koch_follower", "so101_follower", False),
        ("GR1ArmsOnly", "g1_dex1", False),
    ],
)
def test_words_that_say_which_robot_it_is(one, other, same):
    assert same_robot.same(one, other) == same
