"""`morph-vla robots check`: words, status and JSON, on our robots, on public ones and on rubbish."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from morph_vla import cli, robots
from morph_vla.cli import robots_check
from morph_vla.errors import MorphVlaError


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run `morph-vla robots check ...` in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str, str]:
        status = cli.main(["robots", "check", *shlex.split(line)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


# ----------------------------------------------------------------------------------------------- a file


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1"])
def test_a_shipped_robot_passes(run, name):
    status, out, err = run(name)
    assert (status, err) == (0, "")
    joints = len(robots.load(name).joints)
    assert f"{name}.urdf, side file {name}.yaml: " in out
    assert f"{joints} action joints; 0 errors, " in out.splitlines()[-1]


def test_every_finding_is_printed_and_an_error_is_status_1(run, tmp_path):
    (tmp_path / "arm.urdf").write_text(
        "<robot name='arm'>\n<link name='a'/>\n<link name='b'/>\n<joint name='j' type='revolut'>\n"
        "<parent link='a'/><child link='b'/></joint>\n</robot>\n"
    )
    (tmp_path / "arm.yaml").write_text("unit: degres\n")
    status, out, _ = run("arm.urdf")
    assert status == 1
    assert "arm.urdf:4: error: joint 'j' has the type 'revolut'; did you mean 'revolute'?" in out
    assert (
        "arm.yaml:1: error: unit: expected 'radians', 'degrees' or 'percent', got \"degres\"; did you" in out
    )
    assert "; the side file cannot be used\n" in out
    assert out.splitlines()[-1].endswith("2 errors, 0 warnings, 1 note")
    answer = json.loads(run("arm.urdf --json")[1])
    assert (answer["errors"], answer["usable"], answer["episode"]) == (2, False, None)
    assert {finding["severity"] for finding in answer["findings"]} == {"error", "note"}
    places = [(finding["where"]["file"], finding["where"]["line"]) for finding in answer["findings"]]
    assert places == [("arm.urdf", 3), ("arm.urdf", 4), ("arm.yaml", 1)]


@pytest.mark.parametrize(
    ("name", "content", "status", "words"),
    [
        ("x.urdf", b"", 1, "x.urdf:1: error: text that is not XML (no element found)"),
        ("x.urdf", b"\x89PNG\r\n\x1a\n\x00", 1, "text that is not XML"),
        ("notes.txt", b"hello", 1, "notes.txt:1: error: text that is not XML"),
        ("x.xacro", b"<robot xmlns:xacro='http://ros.org/wiki/xacro'><xacro:include/></robot>", 1, "xacro"),
    ],
)
def test_rubbish_ends_in_words(run, tmp_path, name, content, status, words):
    (tmp_path / name).write_bytes(content)
    result, out, err = run(name)
    assert (result, err) == (status, "")
    assert words in out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (".", "error: . is a folder; expected a URDF file"),
        ("pnda", "error: no robot 'pnda'; did you mean 'panda'?"),
        ("none.urdf", "error: no such file: none.urdf"),
        ("panda --output x.png", "error: --feature and --output are used with --episode"),
        ("panda --episode nowhere", "error: nowhere: no such folder"),
        (
            "panda --episode somebody/nothing:3",
            "fetching dataset somebody/nothing from the Hub\n"
            "error: somebody/nothing: no such folder, and the Hub cannot be reached",
        ),
        ("panda --episode .", "error: .: no LeRobot dataset here (meta/info.json is missing)"),
        ("panda --episode .:-1", "error: --episode .:-1: the index is '-1'; expected a number from 0"),
        ("panda --episod x", "error: no option --episod; did you mean '--episode'?"),
    ],
)
def test_a_wrong_word_is_one_sentence_and_status_2(run, line, sentence):
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert err.startswith(sentence)


def test_too_many_joints_are_listed_limb_by_limb(run, tmp_path):
    links = "".join(f"<link name='l{i}'/>" for i in range(41))
    joints = "".join(
        f"<joint name='j{i}' type='continuous'><parent link='l{0 if i == 20 else i}'/>"
        f"<child link='l{i + 1}'/><axis xyz='0 0 1'/></joint>"
        for i in range(40)
    )
    (tmp_path / "many.urdf").write_text(f"<robot name='many'>{links}{joints}</robot>")
    status, out, _ = run("many.urdf")
    assert status == 0
    assert "40 joints that an action could drive; expected at most 32" in out
    assert "many.urdf has 40 action joints, and a model of 32 action values cannot drive them all." in out
    assert "\n   20  j0 ... j19\n   20  j20 ... j39\n" in out
    assert [len(limb) for limb in json.loads(run("many.urdf --json")[1])["limbs"]] == [20, 20]
    status, out, _ = run("many.urdf --joints 'j1?' --json")
    assert (status, json.loads(out)["limbs"]) == (0, None)
    assert json.loads(out)["action_joints"] == [f"j1{i}" for i in range(10)]


def test_every_public_file_ends_in_a_status(run, shared):
    folder = shared / "urdf_zoo"
    if not folder.is_dir():
        pytest.skip("shared/urdf_zoo is not beside this checkout")
    for path in sorted(folder.glob("*.urdf")):
        assert run(f"{path} --json")[0] == 0, path.name
    statuses = {path.stem: run(str(path))[0] for path in sorted((folder / "edge").glob("*.urdf"))}
    assert set(statuses.values()) == {0, 1}
    assert statuses["drake_bad_not_xml"] == statuses["empty_spot"] == 1


# -------------------------------------------------------------------------------------------- an episode


def recording(body: robots.Robot, frames: int = 61) -> np.ndarray:
    """A slow motion about the rest pose, in the dataset's units."""
    t = np.linspace(0, 2 * np.pi, frames)[:, None]
    spans = body.upper - body.lower
    middle = np.clip(body.rest, body.lower + 0.25 * spans, body.upper - 0.25 * spans)
    return body.to_dataset(middle + 0.24 * spans * np.cos(t + np.arange(len(spans))))


def on_so101(write_dataset, version="v3.0", change=None, **keys) -> Path:
    values = recording(robots.load("so101"))
    values = values if change is None else change(values)
    names = {"action": list(robots.load("so101").side.names)} | keys.pop("names", {})
    episodes = [{"action": values[::-1]}, {"action": values}]
    return write_dataset(version, episodes, names=names, **keys)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_an_episode_is_played_and_drawn(run, write_dataset, tmp_path, version):
    pytest.importorskip("matplotlib")
    on_so101(write_dataset, version)
    status, out, err = run("so101 --episode recorded:1")
    assert (status, err) == (0, "")
    assert f"episode 1 of recorded: LeRobot {version}, 61 frames at 30 Hz, recorded on 'tiny'" in out
    assert "joint          value                dataset" in out
    (line,) = [line for line in out.splitlines() if line.startswith("wrist_flex ")]
    assert line.split()[:3] == ["wrist_flex", "3", "wrist_flex.pos"]
    assert "path of gripper_frame_link: " in out
    assert out.endswith("runs/checks/so101_recorded_1.png\n")
    assert (tmp_path / "runs/checks/so101_recorded_1.png").read_bytes().startswith(b"\x89PNG")
    assert run("so101 --episode recorded --output paths/a.png")[1].endswith("paths/a.png\n")


def test_the_json_holds_what_the_table_shows(run, write_dataset):
    on_so101(write_dataset)
    status, out, _ = run("so101 --episode recorded:1 --json")
    answer = json.loads(out)["episode"]
    rows = answer["features"]["action"]["joints"]
    body = robots.load("so101")
    assert status == 0
    assert (answer["version"], answer["frames"], answer["errors"]) == ("v3.0", 61, 0)
    assert [row["joint"] for row in rows] == list(body.names)
    assert [row["limits"] for row in rows] == [[joint.lower, joint.upper] for joint in body.joints]
    values = recording(body)
    for j, row in enumerate(rows):
        np.testing.assert_allclose(row["dataset"], [values[:, j].min(), values[:, j].max()])
        native = body.to_native(values)[:, j]
        np.testing.assert_allclose(row["native"], [native.min(), native.max()])
        assert row["share"] == pytest.approx(0.48, abs=0.01)
    (path,) = answer["features"]["action"]["paths"]
    end = body.forward_kinematics(body.to_native(values)[-1])["gripper_frame_link"][:3, 3]
    np.testing.assert_allclose(path["end"], end, atol=1e-6)


def test_what_cannot_be_played_is_status_1(run, write_dataset):
    on_so101(write_dataset, change=lambda values: values[:, :5], names={"action": None})
    status, out, _ = run("so101 --episode recorded")
    assert status == 1
    assert "action: error: 5 values for 6 joints ('shoulder_pan', " in out
    assert "1 error, 0 warnings, 0 notes" in out
    assert not list(Path().glob("*.png"))


def test_a_warning_is_status_0(run, write_dataset):
    on_so101(write_dataset, fps=15)
    status, out, _ = run("so101 --episode recorded")
    assert status == 0
    assert "warning: recorded at 15 Hz; expected control_rate 30 Hz" in out


def test_a_feature_can_be_chosen(run, write_dataset):
    values = recording(robots.load("so101"))
    write_dataset("v2.1", [{"action": values[:, :2], "observation.state": values, "effort": values}])
    assert run("so101 --episode recorded")[0] == 1
    status, out, _ = run("so101 --episode recorded --feature observation.state --json")
    assert status == 0
    assert list(json.loads(out)["episode"]["features"]) == ["observation.state"]
    assert "no feature 'efort'; did you mean 'effort'?" in run("so101 --episode recorded --feature efort")[2]


@pytest.mark.slow
def test_features_under_the_side_files_keys_are_joined(run, write_dataset, tmp_path):
    body = robots.load("so101")
    (tmp_path / "mine.urdf").write_bytes(body.urdf_path.read_bytes())
    side = body.urdf_path.with_suffix(".yaml").read_text(encoding="utf-8")
    side += "\nfeatures: {action: [arm, hand], state: [arm, hand]}\n"
    (tmp_path / "mine.yaml").write_text(side, encoding="utf-8")
    values, names = recording(body), list(body.side.names)
    parts = {"hand": values[:, 5:], "arm": values[:, :5]}
    write_dataset("v2.1", [parts], names={"hand": names[5:], "arm": names[:5]})
    status, out, _ = run("mine.urdf --episode recorded --json")
    answer = json.loads(out)["episode"]
    assert (status, list(answer["features"])) == (0, ["action", "observation.state"])
    assert [row["name"] for row in answer["features"]["action"]["joints"]] == names
    write_dataset("v2.1", [parts], names={"hand": None, "arm": names[:5]})
    answer = json.loads(run("mine.urdf --episode recorded --json")[1])["episode"]
    assert [row["name"] for row in answer["features"]["action"]["joints"]] == [None] * 6


def test_a_robot_with_errors_plays_nothing(run, write_dataset, tmp_path):
    on_so101(write_dataset)
    (tmp_path / "x.urdf").write_text("")
    status, out, _ = run("x.urdf --episode recorded")
    assert status == 1
    assert out.endswith("the episode was not played: the robot has errors\n")


def test_without_matplotlib_the_table_is_printed(run, write_dataset, monkeypatch):
    from morph_vla.checks import draw_path
    from morph_vla.errors import MissingExtraError

    def missing(*_):
        raise MissingExtraError("'matplotlib' is not installed")

    monkeypatch.setattr(draw_path, "write", missing)
    on_so101(write_dataset)
    status, out, _ = run("so101 --episode recorded")
    assert status == 0
    assert out.endswith("no picture: 'matplotlib' is not installed\n")


def test_a_picture_that_cannot_be_written_costs_no_finding(run, write_dataset, tmp_path):
    on_so101(write_dataset)
    (tmp_path / "runs").write_text("a file in the folder's place")
    status, out, err = run("so101 --episode recorded")
    assert (status, err) == (0, "")
    assert "path of gripper_frame_link: " in out
    assert "no picture: runs/checks/so101_recorded_0.png: " in out


def test_a_dataset_whose_name_has_a_colon_is_a_folder_and_no_address(run, write_dataset, tmp_path):
    on_so101(write_dataset)
    (tmp_path / "recorded").rename(tmp_path / "ds:2")
    status, out, _ = run("so101 --episode ds:2")
    assert (status, "episode 0 of ds:2: LeRobot v3.0" in out) == (0, True)


def test_a_colon_may_belong_to_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:7").mkdir()
    assert robots_check.split("a:7") == (Path("a:7"), 0)
    assert robots_check.split("a:7:3") == (Path("a:7"), 3)
    assert robots_check.split("b:3") == (Path("b"), 3)
    assert robots_check.split("b") == (Path("b"), 0)
    assert robots_check.split("C:\\data") == (Path("C:\\data"), 0)
    with pytest.raises(MorphVlaError, match="the index is 'x'; expected a number from 0"):
        robots_check.split("a:7:x")


# --------------------------------------------------------------------------------------- public datasets


@pytest.fixture
def recorded(shared) -> Path:
    folder = shared / "lerobot_data"
    if not folder.is_dir():
        pytest.skip("shared/lerobot_data is not beside this checkout")
    return folder


def test_a_real_so101_recording_was_not_in_degrees(run, recorded):
    status, out, _ = run(f"so101 --episode {recorded / 'so101_record_test_v30'}")
    assert status == 0
    assert "'elbow_flex' ends at 100, its limit is 96.83 degrees" in out
    assert "they look like -100..100 of each joint's range, unit: percent" in out
    assert "inverted" not in out


def test_a_real_g1_is_played_by_name(run, recorded, shared):
    status, out, _ = run(f"{shared / 'robots/g1_dual_arm.urdf'} --episode {recorded / 'g1_inspire_v21'}:3")
    assert status == 0
    assert (
        "action, observation.state: warning: 26 values for 14 joints; not played: 'kLeftHandPinky', " in out
    )
    assert "path of right_wrist_yaw_link: " in out
    status, out, _ = run(f"g1_dex1 --episode {recorded / 'g1_inspire_v21'}:3")
    assert status == 1
    assert "14 of them have a value of their name, not 'left_dex1_finger_joint_1'" in out


def test_a_real_so101_is_no_panda(run, recorded):
    status, out, _ = run(f"panda --episode {recorded / 'so101_lift_v30'}")
    assert status == 1
    assert "error: 6 values for 8 joints ('panda_joint1', " in out
    assert "the dataset says it was recorded on 'so101_follower'; try `morph-vla robots check so101`" in out
    assert "write joints:" not in out


def test_a_real_piper_is_no_so101(run, recorded):
    status, out, _ = run(f"so101 --episode {recorded / 'piper_act_v30'}")
    assert status == 1
    assert "observation.state: error: 7 values for 6 joints" in out
    assert "recorded on 'piper'; add that robot with `morph-vla robots add`" in out
    assert "warning: recorded at 15 Hz; expected control_rate 30 Hz" in out
