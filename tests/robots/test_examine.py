"""What `robots check` finds in a file: all of it at once, and never a traceback."""

from collections import Counter
from pathlib import Path

import pytest

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.findings import errors
from morph_vla.robots.choose import MODEL_VALUES, limbs
from morph_vla.robots.examine import examine

LINK = "<link name='{0}'/>"
JOINT = (
    "<joint name='{0}' type='{1}'><parent link='{2}'/><child link='{3}'/><axis xyz='0 0 1'/>"
    "<limit lower='-1' upper='1' effort='1' velocity='1'/></joint>"
)


def tree(parents: list[int], kind: str = "revolute") -> str:
    """Joint i turns link i + 1 on link parents[i]."""
    links = "".join(LINK.format(f"l{i}") for i in range(len(parents) + 1))
    joints = "".join(JOINT.format(f"j{i}", kind, f"l{p}", f"l{i + 1}") for i, p in enumerate(parents))
    return f"<robot name='tree'>{links}{joints}</robot>"


def write(folder: Path, text: str, side: str | None = None) -> Path:
    path = folder / "tree.urdf"
    path.write_text(text)
    if side is not None:
        path.with_suffix(".yaml").write_text(side)
    return path


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1"])
def test_a_shipped_robot_is_without_errors(name):
    path = robots.available()[name]
    examination = examine(path)
    assert examination.usable
    assert examination.counts["errors"] == 0
    assert examination.robot is not None
    assert examination.action == examination.robot.names
    assert examination.side_path == path.with_suffix(".yaml")


def test_findings_of_the_file_and_problems_of_the_side_file_come_together(tmp_path):
    text = tree([0, 1, 1]).replace("<axis xyz='0 0 1'/>", "", 1)
    examination = examine(write(tmp_path, text, "joints: [j0, j2, j9]\nrest: [0]\n"))
    assert examination.robot is None
    assert not examination.usable
    assert any("has no <axis>" in str(finding) for finding in examination.findings)
    unusable = "the side file cannot be used"
    assert [str(finding) for finding in examination.findings if finding.severity == "error"] == [
        f"tree.yaml: error: joints: no joint 'j9' in tree.urdf; {unusable}",
        f"tree.yaml: error: rest: 1 values for 3 joints; {unusable}",
    ]
    assert examination.counts["errors"] == 2


def test_a_gripper_on_a_link_that_is_not_there_is_an_error(tmp_path):
    side = "gripper: {attach: parallel_jaw, link: l4}\n"
    examination = examine(write(tmp_path, tree([0, 1, 2]).replace("l3", "hand_l3"), side))
    assert not examination.usable
    (problem,) = errors(examination.findings)
    words = "gripper.link: no link 'l4' in tree.urdf"
    assert str(problem) == f"tree.yaml: error: {words}; the side file cannot be used"
    with pytest.raises(ConfigError, match=f"^tree.yaml: {words}$"):
        examination.loaded()


@pytest.mark.parametrize("link", ["l0", "l1", "l3"])
def test_a_gripper_on_links_in_a_loop_leaves_the_loop_an_error(tmp_path, link):
    joint = "<joint name='back' type='revolute'><parent link='l3'/><child link='l1'/></joint>"
    loop = tree([0, 1, 2]).replace("</robot>", f"{joint}</robot>")
    examination = examine(write(tmp_path, loop, f"gripper: {{attach: parallel_jaw, link: {link}}}\n"))
    (problem,) = errors(examination.findings)
    assert problem.code == "two-parents"


def test_a_side_file_that_is_no_yaml(tmp_path):
    examination = examine(write(tmp_path, tree([0]), "joints: [j0\n"))
    assert "tree.yaml:2: error: not YAML: expected ',' or ']'" in str(examination.findings[-1])
    assert examination.counts["errors"] == 1
    with pytest.raises(ConfigError, match=r"tree\.yaml:2: not YAML"):
        examination.loaded()
    examination = examine(write(tmp_path, tree([0]), "jonts: [j0]\n"))
    assert "tree.yaml:1: error: jonts: no such key; did you mean 'joints'?" in str(examination.findings[-1])


@pytest.mark.parametrize(
    "text", [tree([0, 1], "fixed"), tree([0]).replace("</joint>", "<mimic joint='none'/></joint>")]
)
def test_nothing_to_drive_is_an_error(tmp_path, text):
    examination = examine(write(tmp_path, text))
    (error,) = [str(finding) for finding in examination.findings if finding.severity == "error"]
    assert error.startswith(
        "tree.urdf:1: error: no joint that an action could drive; "
        "expected one that is revolute, continuous or prismatic, and not a mimic of another joint; "
    )
    assert not examination.usable


def test_more_joints_than_the_model_has_values(tmp_path):
    count = MODEL_VALUES + 1
    path = write(tmp_path, tree(list(range(count))))
    examination = examine(path)
    (warning,) = [finding for finding in examination.findings if "could drive" in finding.found]
    assert str(warning) == (
        "tree.urdf:1: warning: 33 joints that an action could drive; expected at most 32, as many values as"
        " an action of pi0.5 has; choose those your dataset has, in its order, with joints: in tree.yaml"
    )
    assert examination.usable
    chosen = ", ".join(f"j{i}" for i in range(MODEL_VALUES))
    examination = examine(write(tmp_path, path.read_text(), f"joints: [{chosen}]\n"))
    assert not [finding for finding in examination.findings if "could drive" in finding.found]


def test_joints_can_be_chosen(tmp_path):
    path = write(tmp_path, tree(list(range(37))))
    examination = examine(path, ["j1?", "j2"])
    assert examination.action == (*(f"j1{i}" for i in range(10)), "j2")
    assert examination.robot is not None
    assert examination.robot.names == examination.action
    assert examination.advice == ""
    assert examine(path).advice.startswith("tree.urdf has 37 action joints")
    with pytest.raises(MorphVlaError, match="no joint 'k'"):
        examine(path, ["k"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "text that is not XML (no element found)"),
        (b"\x00\x01\x02", "text that is not XML"),
        (b"joints: [a]\n", "text that is not XML"),
        (b"<mujoco/>", "the outermost element is <mujoco>; expected <robot>"),
        (b"<robot name='r'/>", "no <link> and no <joint> in <robot>"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><robot/>", "a document type or entity declaration"),
    ],
)
def test_what_is_no_robot_ends_in_words(tmp_path, content, sentence):
    path = tmp_path / "tree.urdf"
    path.write_bytes(content)
    examination = examine(path)
    assert any(sentence in str(finding) for finding in examination.findings)
    assert examination.counts["errors"] >= 1
    assert examination.robot is None


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(MorphVlaError, match="is a folder; expected a URDF file"):
        examine(tmp_path)
    with pytest.raises(MorphVlaError, match="cannot be read: No such file"):
        examine(tmp_path / "none.urdf")


def test_a_public_robot_of_too_many_joints(shared):
    path = shared / "urdf_zoo" / "ginger_all_continuous.urdf"
    if not path.is_file():
        pytest.skip("shared/urdf_zoo is not beside this checkout")
    examination = examine(path)
    assert examination.usable
    assert "49 joints that an action could drive; expected at most 32" in "\n".join(
        map(str, examination.findings)
    )
    listed = Counter(name for limb in limbs(examination.urdf, examination.action) for name in limb)
    assert listed == Counter(examination.action)
