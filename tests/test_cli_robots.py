"""`morph-vla robots list`, `show`, `draw` and `add`."""

import json
from pathlib import Path

import pytest

from morph_vla import robots
from morph_vla.robots import adding

ARM = """<robot name="arm">
  <link name="base"/><link name="upper"/><link name="jaw"/>
  <joint name="elbow" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 0 2"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
  <joint name="jaw_joint" type="prismatic"><parent link="upper"/><child link="jaw"/><axis xyz="0 1 0"/>
    <limit lower="0" upper="0.05" effort="1" velocity="1"/></joint>
</robot>
"""


@pytest.fixture
def arm(folder: Path) -> Path:
    path = folder / "downloads" / "my_arm.urdf"
    path.parent.mkdir()
    path.write_text(ARM)
    return path


def test_add_copies_and_prints_a_side_file(run, folder, arm):
    status, out, err = run(f"robots add {arm}")
    assert (status, err) == (0, "")
    target = Path("urdf_descriptors/my_arm.urdf")
    assert target.read_bytes() == arm.read_bytes()
    assert not target.with_suffix(".yaml").exists()
    assert "warning: joint 'elbow': axis 0 0 2 has the length 2" in out
    assert f"wrote {target}" in out
    assert "  - elbow      # revolute, -1 to 1 rad" in out
    assert "joint: jaw_joint, open: 0.05, closed: 0, dataset_open: 0, dataset_closed: 1" in out
    assert "morph-vla robots check my_arm --episode YOUR_DATASET" in out
    assert "my_arm" in run("robots list")[1]
    assert "is already there, the same" in run(f"robots add {arm}")[1]
    assert sorted(path.name for path in target.parent.iterdir()) == ["my_arm.urdf"]


def test_add_never_replaces(run, folder, arm):
    run(f"robots add {arm}")
    arm.write_text(ARM.replace('upper="1"', 'upper="2"'))
    status, _, err = run(f"robots add {arm}")
    assert status == 2
    assert (
        "my_arm.urdf exists and is another file: remove it to take this one, or give the robot another name"
        in err
    )
    status, out, _ = run(f"robots add {arm} --name other")
    assert status == 0
    assert "hides" not in out
    out = run(f"robots add {arm} --name panda")[1]  # the package has one
    assert "warning: from here 'panda' is now this robot and hides " in out
    words = "also for the\n         suites and recipes that name it; `--name` gives it another name\n"
    assert out.endswith(f"urdf_descriptors/panda.urdf, {words}")
    assert run(f"robots add {arm} --name panda")[1].endswith(words)  # said again, though nothing is written
    out = run(f"robots add {arm} --name so101 --to elsewhere")[1]  # a folder in which no name is sought
    assert "warning: from here 'so101' is still " in out
    assert "urdf_descriptors/so101.urdf, not this robot; see --name\n" in out
    assert "which is not written (--write-side writes it):" in out
    assert robots.load("other").upper[0] == 2
    status, _, err = run(f"robots add {arm} --name ../elsewhere")
    assert (status, err) == (
        2,
        "error: the robot's name is '../elsewhere'; expected one without '/', ':' or a dot before it\n",
    )


def test_add_writes_no_urdf_where_another_side_file_is_there(run, folder, arm):
    target = Path("urdf_descriptors/my_arm.urdf")
    target.parent.mkdir()
    target.with_suffix(".yaml").write_text("joints: [elbow]\n")
    status, _, err = run(f"robots add {arm} --write-side")
    assert (status, target.exists()) == (2, False)
    assert (
        "my_arm.yaml exists and is another file: remove it to take this one, or give the robot another name"
        in err
    )
    status, out, _ = run(f"robots add {arm}")
    words = f"{target.with_suffix('.yaml')} was there before, and is this robot's side file\n"
    assert status == 0
    assert f"\nwarning: {words}" in out
    again = run(f"robots add {arm}")[1]
    assert f"\n{words}" in again
    assert "warning: urdf" not in again


def test_add_stops_at_errors_and_copies_nothing(run, folder, arm):
    arm.write_text(ARM.replace('<child link="jaw"/>', ""))
    status, out, _ = run(f"robots add {arm}")
    assert status == 1
    assert "error: joint 'jaw_joint' has no child link" in out
    assert "nothing was copied: 1 error in my_arm.urdf" in out
    status, out, _ = run(f"robots add {arm} --json")
    assert (status, json.loads(out)["written"], len(json.loads(out)["findings"])) == (1, [], 1)
    assert not Path("urdf_descriptors").exists()


def test_add_brings_the_side_file_or_writes_the_chosen_joints(run, folder, arm):
    arm.with_suffix(".yaml").write_text("control_rate: 13\n")
    run(f"robots add {arm}")
    assert robots.load("my_arm").control_rate == 13
    status, out, _ = run(f"robots add {arm} --name only_jaw --joints 'jaw*' --json")
    added = json.loads(out)
    assert (status, added["joints"]) == (0, ["jaw_joint"])
    assert [Path(path).name for path in added["written"]] == ["only_jaw.urdf", "only_jaw.yaml"]
    assert robots.load("only_jaw").names == ("jaw_joint",)


def test_chosen_joints_keep_what_the_side_file_beside_the_urdf_says(run, folder, arm):
    arm.with_suffix(".yaml").write_text(
        "unit: degrees\nsigns: {elbow: -1}\nzeros: {elbow: 0.25}\nrest: [0.5, 0.02]\nnames: [e.pos, j.pos]\n"
        "control_rate: 13\nfeatures: {state: [q], action: [a]}\nsource: measured\n"
    )
    added = json.loads(run(f"robots add {arm} --joints 'jaw*,elbow' --json")[1])
    copy, given = robots.load("my_arm"), robots.load(arm)
    assert copy.names == ("jaw_joint", "elbow")
    assert (*copy.rest, *copy.side.names) == (0.02, 0.5, "j.pos", "e.pos")
    assert (copy.joints[1], copy.side.features) == (given.joints[0], given.side.features)
    assert (copy.control_rate, copy.side.source) == (13, "measured")
    assert added["side_file"] == Path("urdf_descriptors/my_arm.yaml").read_text()
    run(f"robots add {arm} --name elbow_alone --joints elbow")
    assert robots.load("elbow_alone").rest.tolist() == [0.5]


def test_chosen_joints_keep_a_gripper_of_ours(run, folder, arm):
    gripper = "gripper: {attach: parallel_jaw, link: upper, opening: 0.06}\n"
    arm.with_suffix(".yaml").write_text(f"{gripper}rest: [0.5, 0.01]\n")
    assert run(f"robots add {arm} --joints 'elbow,parallel_jaw_joint'")[0] == 0
    copy = robots.load("my_arm")
    assert copy.names == ("elbow", "parallel_jaw_joint")
    assert (copy.joints[1].opened, copy.rest.tolist()) == (0.0, [0.5, 0.01])
    assert run(f"robots add {arm} --name bare --joints elbow")[0] == 0
    assert robots.load("bare").names == ("elbow",)


def test_a_side_file_that_does_not_fit_is_not_copied(run, folder, arm):
    arm.with_suffix(".yaml").write_text("jonts: [elbow]\n")
    status, _, err = run(f"robots add {arm}")
    assert status == 2
    assert "jonts: no such key; did you mean 'joints'?" in err
    assert not Path("urdf_descriptors").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("arm.urdf.xacro", "not a .urdf file; run it through xacro first"),
        ("arm.sdf", "not a .urdf file; convert it to URDF first"),
        ("arm.xml", "arm.xml: the outermost element is <robot>; expected <mujoco>"),
        ("arm.urdf --root base", "--root and --strip are used with an MJCF file (.xml, .mjcf)"),
        ("arm.urdf --accept-license", "--accept-license is used with rd:NAME"),
        ("arm.txt", "not a .urdf file"),
        ("gone.urdf", "no such file: gone.urdf"),
    ],
)
def test_add_says_what_is_no_urdf(run, folder, name, words):
    if not name.startswith("gone"):
        Path(name.split()[0]).write_text(ARM)
    status, _, err = run(f"robots add {name}")
    assert status == 2
    assert words in err


def test_capital_letters_and_other_encodings(run, folder):
    text = "<?xml version='1.0' encoding='latin-1'?>\n" + ARM.replace("elbow", "ellbögen")
    Path("T.URDF").write_bytes(text.encode("latin-1"))
    assert run("robots add T.URDF --write-side")[0] == 0
    assert robots.load("T").names == ("ellbögen", "jaw_joint")
    assert Path("urdf_descriptors/T.urdf").read_bytes() == text.encode("latin-1")


def test_the_users_folder(monkeypatch, tmp_path):
    assert adding.user_folder() == Path("urdf_descriptors")
    monkeypatch.setenv("MORPH_VLA_PATH", f"{tmp_path}:/elsewhere")
    assert adding.user_folder() == tmp_path / "urdf_descriptors"
    monkeypatch.setenv("MORPH_VLA_PATH", str(tmp_path / "urdf_descriptors"))
    assert adding.user_folder() == tmp_path / "urdf_descriptors"


def test_a_flat_folder_of_robots_stays_one(run, folder, arm, monkeypatch):
    flat = folder / "mine"
    flat.mkdir()
    (flat / "older.urdf").write_text(ARM)
    monkeypatch.setenv("MORPH_VLA_PATH", str(flat))
    assert run(f"robots add {arm}")[0] == 0
    assert {path.name for path in flat.iterdir()} == {"older.urdf", "my_arm.urdf"}
    assert {"older", "my_arm"} <= robots.available().keys()
    (flat / "urdf_descriptors").mkdir()
    assert adding.user_folder() == flat / "urdf_descriptors"  # it is searched in place of the flat one


def test_show_explains_too_many_joints(run, shared):
    path = shared / "urdf_zoo" / "tiago_dual.urdf"
    _, out, _ = run(f"robots show {path}")
    assert (
        "tiago_dual.urdf has 101 action joints, and a model of 32 action values cannot drive them all." in out
    )
    assert "    7  arm_left_1_joint ... arm_left_7_joint" in out
    _, out, _ = run(f"robots show {path} --joints 'arm_left_*,arm_right_*'")
    assert "tiago_dual: 14 action joints" in out
    assert "cannot drive them all" not in out


def test_show_holds_the_papers_row(run):
    shown = json.loads(run("robots show panda --json")[1])
    assert list(shown["joints"][0]["features"].values()) == pytest.approx(
        [0, 1, 0, 0, 1, -2.9671, 2.9671, 6.90776, 1, 1, 0.1, 10.30895], abs=1e-4
    )
    assert shown["side"]["control_rate"] == 15


def test_robots_list(run, folder):
    status, out, _ = run("robots list --json")
    listed = {row["name"]: row for row in json.loads(out)}
    assert status == 0
    assert listed["panda"]["joints"] == 8
    assert Path(listed["panda"]["path"]).parts[-2:] == ("urdf_descriptors", "panda.urdf")
    assert "panda" in run("robots list")[1]


def test_a_robot_that_cannot_be_read_is_listed_with_its_reason(run, folder):
    (folder / "broken.urdf").write_text("<robot name='broken'>")
    status, out, _ = run("robots list --json --folder .")
    listed = {row["name"]: row for row in json.loads(out)}
    assert status == 1
    assert listed["broken"]["joints"] is None
    assert listed["broken"]["problem"]
    assert listed["panda"]["problem"] is None
    status, out, _ = run("robots list --folder .")
    assert "broken" in out
    assert listed["broken"]["problem"] in out


def test_robots_show(run, folder):
    status, out, _ = run("robots show panda")
    assert status == 0
    assert out.startswith("panda: 8 action joints, 15 Hz, from ")
    lines = out.splitlines()
    assert lines[2].startswith("#  joint                type                axis ")
    assert lines[3].split()[:3] == ["0", "panda_joint1", "revolute"]
    shown = json.loads(run("robots show panda --json")[1])
    assert [joint["name"] for joint in shown["joints"]][-1] == "panda_finger_joint1"
    assert len(shown["adjacency"]) == len(shown["descriptors"]) == len(shown["rest"]) == 8


def test_robots_show_geometry(run, folder):
    status, out, _ = run("robots show so101 --descriptors geometry")
    plain = run("robots show so101")[1]
    assert status == 0
    assert out.startswith(plain.rstrip())
    assert "axis_x" not in plain
    assert "\nlink_length  " in out
    shown = json.loads(run("robots show so101 --descriptors geometry --json")[1])
    assert shown["geometry"]["type_rev"] == [1] * 6
    assert len(shown["geometry"]["move_z"]) == 6


def test_robots_draw(run, folder):
    pytest.importorskip("matplotlib")
    status, out, err = run("robots draw panda")
    assert (status, out, err) == (0, "panda_joint_graph.png\n", "")
    assert (folder / "panda_joint_graph.png").read_bytes().startswith(b"\x89PNG")


def test_a_misspelt_task_is_said_before_a_robot_is_drawn(run, tmp_path):
    command = f"robots vary panda --set interpolation --count 2 --suites cube_in_bow -o {tmp_path / 'bodies'}"
    status, out, err = run(command)
    assert (status, out) == (2, "")
    assert err.startswith("error: no task 'cube_in_bow'; did you mean 'cube_in_bowl'?")
    assert not list(tmp_path.rglob("*.urdf"))


@pytest.mark.parametrize("name", ["..", ".hidden", "a:b"])
def test_a_robots_name_is_one_that_lists_find(run, arm, name):
    status, _, err = run(f"robots add {arm} --name {name}")
    words = "expected one without '/', ':' or a dot before it"
    assert (status, err) == (2, f"error: the robot's name is '{name}'; {words}\n")


@pytest.mark.parametrize(
    "command", ["suites check droid_panda", "record droid_panda -o x", "eval x --suite y"]
)
def test_workers_are_counted_from_1(run, command):
    status, _, err = run(f"{command} --workers -1")
    assert (status, err.splitlines()[0]) == (2, "error: --workers must be at least 1, not -1")
