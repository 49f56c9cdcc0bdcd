"""What real files have beside what the format asks for: each is read for what it means, or said."""

import math

import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.files import dropin
from morph_vla.robots import adding, limb, template
from morph_vla.robots.bodies import filled
from morph_vla.robots.examine import examine
from morph_vla.robots.kinematics import follow
from morph_vla.robots.urdf import read

JOINT = (
    '<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
    '<origin xyz="0 0 {up}"/>'
    '<axis xyz="{axis}"/><limit lower="-2" upper="2" effort="9" velocity="{velocity}"/>{more}</joint>'
)


def chain(*joints, up="0.2", inertia='ixx="1" iyy="1" izz="1"') -> str:
    """A URDF of links 0, 1, ..., each on the one before; joints are changes to JOINT."""
    links = "".join(
        f'<link name="l{n}"><inertial><mass value="1"/><inertia {inertia}/></inertial></link>'
        for n in range(len(joints) + 1)
    )
    plain = {"kind": "revolute", "velocity": "1", "more": "", "up": up}
    lines = [
        JOINT.format(**{
            **plain, "name": f"j{n}", "parent": f"l{n}", "child": f"l{n + 1}",
            "axis": ("0 0 1", "0 1 0")[n % 2], **change,
        })
        for n, change in enumerate(joints)
    ]  # fmt: skip
    return f'<robot name="arm">{links}{"".join(lines)}</robot>'


@pytest.fixture
def write(tmp_path):
    def call(text: str, name: str = "arm.urdf", side: str = ""):
        (tmp_path / name).write_text(text)
        if side:
            (tmp_path / name).with_suffix(".yaml").write_text(side)
        return tmp_path / name

    return call


def test_a_negative_speed_is_none(write):
    robot = robots.load(write(chain({"velocity": "-1"}, {})))
    assert [joint.velocity for joint in robot.joints] == [None, 1.0]
    (found,) = [finding for finding in robot.findings if finding.code == "negative-bound"]
    said = "joint 'j0': its velocity limit is -1; expected 0 or more; it counts as left out: none is known"
    assert str(found).endswith(said)


def test_a_speed_of_0_is_none_and_a_note(write):
    robot = robots.load(write(chain({"velocity": "0"}, {})))
    assert [joint.velocity or None for joint in robot.joints] == [None, 1.0]
    (found,) = [finding for finding in robot.findings if finding.code == "no-effort-or-velocity"]
    assert str(found).endswith("joint 'j0': its velocity limit is 0; expected more than 0; none is known")


def test_an_inertia_that_says_the_diagonal_alone_is_simulated(write):
    robot = robots.load(write(chain({}, {})))
    assert {link.inertial.inertia[1] for link in filled(robot).links if link.inertial} == {0.0}
    assert any("which lacks ixy, ixz, iyz" in finding.found for finding in robot.findings)


@pytest.mark.parametrize("kind", ["planar", "floating", "fixed"])
def test_what_is_frozen_neither_follows_nor_leads(write, kind):
    mimic = '<mimic joint="{}" multiplier="2" offset="0.3"/>'
    urdf = read(write(chain({}, {"kind": kind, "more": mimic.format("j0")}, {"more": mimic.format("j1")})))
    assert follow(urdf) == {"j2": (None, 2.0, 0.3)}


def test_a_joint_that_turns_without_end_rests_where_its_side_file_says(write):
    path = write(chain({"kind": "continuous"}, {}), side="rest: [3.5, 0]")
    assert robots.load(path).rest.tolist() == [3.5, 0.0]
    with pytest.raises(MorphVlaError, match=r"rest: 3\.5 for 'j1' is outside its limits -2 to 2"):
        robots.load(write(chain({"kind": "continuous"}, {}), side="rest: [0, 3.5]"))


def test_a_keyframe_is_taken_by_full_turns_and_what_is_cut_is_said(caplog):
    model = pytest.importorskip("mujoco").MjModel.from_xml_string(
        '<mujoco><worldbody><body name="a"><joint name="h" axis="0 0 1"/><geom size="0.1"/><body name="b">'
        '<joint name="s" type="slide" axis="1 0 0"/><geom size="0.1"/></body></body></worldbody>'
        '<keyframe><key qpos="4 1.5"/></keyframe></mujoco>'
    )
    known = adding.examine_model(model, "kf.xml", "kf")
    assert known.robot is not None
    assert known.robot.rest.tolist() == [pytest.approx(4 - 2 * math.pi), 1.0]
    assert caplog.messages == ["kf.xml: its keyframe has 's' at 1.5, and -1 to 1 is its range"]


def test_an_arm_without_a_length_gets_no_gripper_proposed(write):
    robot = robots.load(write(chain({}, {}, {}, {}, {}, up="0")))
    assert "attach: parallel_jaw" not in template.side_file(robot)


def test_a_gripper_is_no_joint_of_a_short_arm(write):
    urdf = read(write(chain({}, {}, {}, {"name": "gripper_joint"})))
    with pytest.raises(
        MorphVlaError, match="no arm: its longest limb has 3 turning joints; expected at least 4"
    ):
        limb.find(urdf)


@pytest.mark.parametrize("name", ["gripper_rotate", "finger_2"])
def test_a_joint_within_an_arm_may_be_called_after_its_gripper(write, name):
    arm = limb.find(read(write(chain({}, {}, {}, {"name": name}, {}, {}))))
    assert arm.joints == ("j0", "j1", "j2", name, "j4", "j5")


def test_a_name_of_several_lines_writes_no_yaml(write):
    mimic = '<mimic joint="j0"/>'
    robot = robots.load(write(chain({}, {"name": "B&#10;rest: [1]", "more": mimic})))
    assert not any(line.startswith("rest:") for line in template.side_file(robot).splitlines())


def test_xacro_alone_is_called_by_its_name(write):
    text = '<robot name="x" xmlns:xacro="http://wiki.ros.org/xacro"><xacro:arm prefix="a"/></robot>'
    assert "xacro" in [finding.code for finding in examine(write(text)).findings]


def test_a_folder_and_a_file_that_is_here_are_named(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some/where").mkdir(parents=True)
    with pytest.raises(
        MorphVlaError, match=r"^some/where is a folder; expected a \.urdf file, or the name of one$"
    ):
        dropin.find("robots", "some/where")
    with pytest.raises(MorphVlaError, match=r"where is a folder; expected a \.urdf file$"):
        adding.examine_new(tmp_path / "some/where")
    write(chain({}), "mine.urdf")
    with pytest.raises(
        MorphVlaError, match=r"^no robot 'mine'; for the file here, give its whole name: mine\.urdf$"
    ):
        dropin.find("robots", "mine")


@pytest.mark.parametrize(
    ("gripper", "sentences"),
    [
        ("{attach: parallel_jaw, link: l2, approach: [0, 0]}", ["gripper.approach.2: missing"]),
        (
            "{joint: j1, open: 1, closd: 0}",
            ["gripper.closed: missing", "gripper.closd: no such key; did you mea"],
        ),
        (
            "[{joint: j1, open: 1, closd: 0}]",
            ["gripper.0.closed: missing", "gripper.0.closd: no such key; did"],
        ),
        ("jaw", ['gripper: expected the keys joint, open, closed, dataset_open, dataset_closed, got "jaw"']),
    ],
)
def test_a_mistake_in_a_gripper_is_said_of_what_it_looks_like(write, gripper, sentences):
    examination = examine(write(chain({}, {}), side=f"gripper: {gripper}"))
    errors = [finding.found for finding in examination.findings if finding.severity == "error"]
    assert len(errors) == len(sentences)
    assert all(text.startswith(start) for text, start in zip(errors, sentences, strict=True))


def test_a_side_file_with_another_ending_is_not_passed_over_in_silence(write, tmp_path):
    path = write(chain({}))
    assert not [finding for finding in examine(path).findings if finding.code == "side-file-name"]
    (tmp_path / "arm.yml").write_text("joints: [j0]\n")
    said = [str(finding) for finding in examine(path).findings if finding.code == "side-file-name"]
    expected = "expected arm.yaml, if it is this robot's side file"
    assert said == [f"arm.urdf:1: warning: arm.yml lies beside it; {expected}; it is not read"]
    (tmp_path / "arm.yaml").write_text("joints: [j0]\n")
    assert not [finding for finding in examine(path).findings if finding.code == "side-file-name"]


LINKS = '<link name="base"/>' + "".join(f'<link name="{side}{n}"/>' for side in "ab" for n in (1, 2))
HAND = "{attach: parallel_jaw, link: a2}"


def two_arms() -> str:
    joints = [
        JOINT.format(
            name=f"{side}j{n}", parent=f"{side}{n - 1}" if n > 1 else "base", child=f"{side}{n}",
            kind="revolute", up=0.2, axis="0 1 0", velocity=1, more="",
        )
        for side in "ab"
        for n in (1, 2)
    ]  # fmt: skip
    return f'<robot name="arm">{LINKS}{"".join(joints)}</robot>'


def test_the_value_of_a_gripper_of_ours_is_the_actions_last(write):
    """Also where it is on the first of two arms, and depth first it would stand between them."""
    path = write(two_arms(), side=f"gripper: {HAND}")
    assert robots.load(path).names == ("aj1", "aj2", "bj1", "bj2", "parallel_jaw_joint")
    named = "[parallel_jaw_joint, aj1, aj2, bj1, bj2]"
    assert (
        robots.load(write(two_arms(), side=f"gripper: {HAND}\njoints: {named}")).names[0]
        == "parallel_jaw_joint"
    )


@pytest.mark.parametrize("rest", ["[0.1, 0.2]", "[0.1, 0.2, 0.03]"])
def test_rest_beside_a_gripper_of_ours_may_count_it_or_leave_it_to_us(write, rest):
    side = f"joints: [aj1, bj2]\nrest: {rest}\ngripper: {HAND}"
    robot = robots.load(write(two_arms(), side=side))
    assert robot.rest.tolist() == [0.1, 0.2, 0.03 if "0.03" in rest else 0.0]
    with pytest.raises(MorphVlaError, match=r"rest: 4 values for 3 joints"):
        robots.load(write(two_arms(), side=side.replace(rest, "[0, 0, 0, 0]")))


def test_a_joint_that_follows_nobody_is_not_said_to_follow_none(write):
    text = chain({}, {"more": '<mimic joint="nobody"/>'}, {})
    with pytest.raises(MorphVlaError, match=r"joint 'j1' mimics 'nobody' in .*; leave it out"):
        robots.load(write(text, side="joints: [j0, j1]"))
