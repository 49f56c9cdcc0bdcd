"""The side file to start from: valid as it stands, and saying what the URDF alone says."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.robots import template
from morph_vla.robots.side import Gripper
from morph_vla.robots.urdf import parse

ODD = """<robot name="odd">
  <link name="base"/><link name="a"/><link name="b"/><link name="c"/>
  <joint name="on" type="revolute"><parent link="base"/><child link="a"/><axis xyz="0 0 1"/>
    <limit lower="0.3000000000000004" upper="1" effort="1" velocity="1"/></joint>
  <joint name="左 &quot;arm\\" type="continuous"><parent link="a"/><child link="b"/>
    <axis xyz="0 0 1"/></joint>
  <joint name="gripper: 1" type="prismatic"><parent link="b"/><child link="c"/><axis xyz="0 0 1"/>
    <limit lower="0" upper="0.04" effort="1" velocity="1"/></joint>
</robot>"""


def again(robot: robots.Robot, folder: Path) -> robots.Robot:
    """The robot of the same URDF with the template beside it."""
    path = folder / robot.urdf_path.name
    path.write_bytes(robot.urdf_path.read_bytes())
    path.with_suffix(".yaml").write_text(template.side_file(robot), encoding="utf-8")
    return robots.load(path)


def assert_same(one: robots.Robot, other: robots.Robot) -> None:
    assert one.joints == other.joints
    assert np.array_equal(one.rest, other.rest)
    assert np.array_equal(one.distances, other.distances)
    assert np.array_equal(one.descriptors, other.descriptors)


def test_odd_names_survive(tmp_path: Path):
    path = tmp_path / "odd.urdf"
    path.write_text(ODD, encoding="utf-8")
    robot = robots.load(path)
    text = template.side_file(robot)
    assert robot.names == ("on", '左 "arm\\', "gripper: 1")
    assert 'joint: "gripper: 1", open: 0.04, closed: 0, dataset_open: 0, dataset_closed: 1' in text
    (tmp_path / "there").mkdir()
    assert_same(again(robot, tmp_path / "there"), robot)


def test_every_guess_is_valid_once_its_mark_is_taken_away(tmp_path: Path):
    path = tmp_path / "odd.urdf"
    path.write_text(ODD, encoding="utf-8")
    lines = template.side_file(robots.load(path)).splitlines()
    kept = [
        line[2:] if line.startswith(("# gripper", "#   -", "# unit", "# signs", "# contact")) else line
        for line in lines
    ]
    text = "\n".join(kept)
    path.with_suffix(".yaml").write_text(text, encoding="utf-8")
    robot = robots.load(path)
    assert robot.joints[-1].is_gripper
    assert [joint.unit for joint in robot.joints] == ["deg", "deg", "0 open, 1 closed"]


def hand(axis: str) -> str:
    """An arm of one joint and two fingers that turn, 3 cm to either side and 5 cm long."""
    turning = """<joint name="{name}" type="revolute"><parent link="arm"/><child link="{name}_finger"/>
      <origin xyz="0 {y} 0"/><axis xyz="{axis}"/><limit lower="0" upper="0.6" effort="1" velocity="1"/>
      {mimic}</joint><joint name="{name}_end" type="fixed"><parent link="{name}_finger"/>
      <child link="{name}_tip"/><origin xyz="0 0 0.05"/></joint>
      <link name="{name}_finger"/><link name="{name}_tip"/>"""
    mimic = '<mimic joint="finger_a" multiplier="-1"/>'
    fingers = turning.format(name="finger_a", y=0.03, axis=axis, mimic="")
    fingers += turning.format(name="finger_b", y=-0.03, axis=axis, mimic=mimic)
    return f"""<robot name="hand"><link name="base"/><link name="arm"/><joint name="shoulder" type="revolute">
      <parent link="base"/><child link="arm"/><axis xyz="0 0 1"/>
      <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>{fingers}</robot>"""


@pytest.mark.parametrize(
    ("axis", "ends"), [("1 0 0", "open: 0, closed: 0.6"), ("-1 0 0", "open: 0.6, closed: 0")]
)
def test_a_hand_is_open_where_its_fingers_are_apart(tmp_path: Path, axis: str, ends: str):
    """About x a finger to the left turns inwards as its value grows, as a Robotiq's do."""
    path = tmp_path / "hand.urdf"
    path.write_text(hand(axis), encoding="utf-8")
    side = template.side_file(robots.load(path))
    assert f"joint: finger_a, {ends}" in side
    assert "# tools: {finger_a: {link: arm, xyz: [0, 0, 0.1]}}" in side


def test_the_thumb_of_a_hand_is_no_gripper(tmp_path: Path):
    """Where what carries it carries two other fingers too, that are named otherwise."""
    one = '<joint name="{0}" type="revolute"><parent link="arm"/><child link="{0}_link"/><axis xyz="1 0 0"/>'
    one += '<limit lower="0" upper="0.6" effort="1" velocity="1"/></joint><link name="{0}_link"/>'
    for others, is_gripper in ((("index",), True), (("index", "ring"), False)):
        text = hand("1 0 0").replace("</robot>", "".join(map(one.format, others)) + "</robot>")
        path = tmp_path / f"{len(others)}.urdf"
        path.write_text(text, encoding="utf-8")
        assert ("joint: finger_a, open" in template.side_file(robots.load(path))) is is_gripper


def test_ends_have_all_their_digits(tmp_path: Path):
    """Six of them would lie outside of these limits."""
    path = tmp_path / "hand.urdf"
    path.write_text(hand("1 0 0").replace('upper="0.6"', 'upper="0.2792444444"'), encoding="utf-8")
    robot = robots.load(path)
    lines = template.side_file(robot).splitlines()
    path.with_suffix(".yaml").write_text(
        "\n".join(line[2:] if line.startswith(("# gripper", "#   -")) else line for line in lines)
    )
    assert robots.load(path).side.grippers["finger_a"].closed == 0.2792444444


@pytest.mark.slow
def test_every_public_robot_gets_a_template_that_changes_nothing(shared: Path, tmp_path: Path):
    seen = 0
    for path in sorted((shared / "urdf_zoo").glob("*.urdf")):
        try:
            robot = robots.load(path)
        except MorphVlaError:
            continue
        seen += 1
        assert_same(again(robot, tmp_path), robot)
    assert seen > 50


def test_the_page_of_keys_is_whole(root: Path):
    page = (root / "docs" / "robots.md").read_text(encoding="utf-8")
    from morph_vla.robots import side
    from morph_vla.robots.descriptors import ContactDefaults

    for kind in (side.Side, side.Gripper, side.ToolFrame, side.Follower, side.Features, ContactDefaults):
        for key in kind.__dataclass_fields__:
            assert f"`{key}" in page or f"{key}:" in page or f" {key}" in page, key
    table = page.split("## The side file")[1]
    for key in side.Side.__dataclass_fields__:
        assert f"`{key}`" in table, key


def test_the_example_of_the_page_is_a_side_file(root: Path, tmp_path: Path):
    page = (root / "docs" / "robots.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]
    names = ("arm_1", "arm_2", "jaw_left", "jaw_right")
    links = "".join(f'<link name="{name}_link"/>' for name in names)
    parents = ("base", "arm_1_link", "arm_2_link", "arm_2_link")
    joints = "".join(
        f'<joint name="{name}" type="{"prismatic" if "jaw" in name else "revolute"}">'
        f'<parent link="{parent}"/>'
        f'<child link="{name}_link"/><axis xyz="0 0 1"/><limit lower="-1" upper="1"/></joint>'
        for name, parent in zip(names, parents, strict=True)
    )
    path = tmp_path / "my_arm.urdf"
    path.write_text(f'<robot name="my_arm"><link name="base"/>{links}{joints}</robot>')
    path.with_suffix(".yaml").write_text(text)
    robot = robots.load(path)
    assert yaml.safe_load(text).keys() <= set(robots.Side.__dataclass_fields__)
    native = robot.to_native(np.array([0.0, 90.0, 100.0]))
    np.testing.assert_allclose(native, [0.1, -np.pi / 2, 0.03])


def test_units_in_percent_and_by_scale():
    urdf = parse(ODD.encode(), "odd.urdf")
    side = robots.Side(unit="percent", scales={"gripper: 1": 1000.0}, signs={"on": -1})
    robot = robots.build(urdf, side, Path("odd.urdf"))
    assert [joint.unit for joint in robot.joints] == ["%", "%", "1/1000 m"]
    np.testing.assert_allclose(robot.to_native(np.array([-100.0, 100.0, 31.0])), [1.0, np.pi, 0.031])
    np.testing.assert_allclose(robot.to_native(np.array([0.0, 0.0, 0.0])), [0.65, 0.0, 0.0], atol=1e-15)


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ({"unit": "percent", "zeros": {"on": 0.5}}, "zeros: 'on' is in percent, which is 0 halfway between"),
        ({"scales": {"onn": 2.0}}, "scales: 'onn' is not one of the action's joints; did you mean 'on'?"),
        (
            {"signs": {"gripper: 1": -1}, "gripper": Gripper("gripper: 1", 0.04, 0.0)},
            "signs: 'gripper: 1' is a gripper; its two ends say its scale, sign and zero",
        ),
    ],
)
def test_units_that_make_no_sense(side, words):
    with pytest.raises(MorphVlaError) as caught:
        robots.build(parse(ODD.encode(), "odd.urdf"), robots.Side(**side), Path("odd.urdf"))
    assert words in str(caught.value)


def test_a_scale_has_no_sign():
    with pytest.raises(
        MorphVlaError, match=r"scales: -2 for 'on'; expected more than 0 \(a sign goes into signs\)"
    ):
        robots.Side(scales={"on": -2.0})


def test_percent_of_a_joint_that_cannot_move():
    text = ODD.replace('lower="0.3000000000000004"', 'lower="1"')
    with pytest.raises(
        MorphVlaError, match="percent of 'on' has no meaning: its limits are both 1; give it a scale"
    ):
        robots.build(parse(text.encode(), "odd.urdf"), robots.Side(unit="percent"), Path("odd.urdf"))
