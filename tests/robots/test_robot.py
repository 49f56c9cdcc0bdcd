"""Robot: order, units, what an action drives, and the side file's errors."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.robots.robot import action_order
from morph_vla.robots.urdf import parse

PANDA = (*(f"panda_joint{number}" for number in range(1, 8)), "panda_finger_joint1")

LOADED = robots.load("panda")

TWO_HANDS = """<robot name="hands"><link name="base"/>{links}
{joints}</robot>"""


def hands(folder: Path, side: str | None = None) -> Path:
    """A base that carries an arm joint and two fingers, tip first, joint10 before joint2."""
    names = (
        ("finger_b", "prismatic"),
        ("finger_a", "prismatic"),
        ("joint10", "revolute"),
        ("joint2", "revolute"),
    )
    links = "".join(f'<link name="{name}_link"/>' for name, _ in names)
    parents = {"joint2": "base", "joint10": "joint2_link"}
    joints = "".join(
        f'<joint name="{name}" type="{kind}"><parent link="{parents.get(name, "joint10_link")}"/>'
        f'<child link="{name}_link"/><axis xyz="0 1 0"/>'
        '<limit lower="-0.02" upper="0.03" effort="1" velocity="1"/></joint>'
        for name, kind in names
    )
    path = folder / "hands.urdf"
    path.write_text(TWO_HANDS.format(links=links, joints=joints))
    if side is not None:
        path.with_suffix(".yaml").write_text(side)
    return path


def test_the_panda_is_what_droid_says():
    panda = robots.load("panda")
    assert panda.names == PANDA
    assert panda.control_rate == 15
    np.testing.assert_array_equal(panda.distances, np.abs(np.subtract.outer(range(8), range(8))))
    np.testing.assert_array_equal(panda.adjacency, panda.distances <= 1)
    np.testing.assert_allclose(panda.rest[[1, 3, 5]], [-np.pi / 5, -4 * np.pi / 5, 3 * np.pi / 5])
    assert [joint.unit for joint in panda.joints] == ["rad"] * 7 + ["0 open, 1 closed"]
    assert [joint.is_gripper for joint in panda.joints] == [False] * 7 + [True]
    assert (panda.joints[-1].opened, panda.joints[-1].closed) == (0.04, 0.0)
    assert not [finding for finding in panda.findings if finding.severity != "note"]


def test_the_so101_is_what_lerobot_says():
    arm = robots.load("so101")
    assert arm.names == ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
    assert arm.side.names == tuple(f"{name}.pos" for name in arm.names)
    native = arm.to_native(np.array([90.0, 0, 0, 0, -45.0, 0.0]))
    np.testing.assert_allclose(native, [np.pi / 2, 0, 0, 0, -np.pi / 4, -0.174533], atol=1e-12)
    np.testing.assert_allclose(arm.to_dataset(arm.upper)[5], 100)


def test_the_g1_joins_its_arms_at_the_torso_and_one_value_moves_two_fingers():
    humanoid = robots.load("g1_dex1")
    assert len(humanoid.joints) == 16
    edges = {tuple(pair) for pair in np.argwhere(np.triu(humanoid.adjacency, 1)).tolist()}
    arms = {(i, i + 1) for start in (0, 7) for i in range(start, start + 6)}
    assert edges == arms | {(0, 7), (6, 14), (13, 15)}
    values = np.zeros(16)
    values[14] = 5.4
    opened = humanoid.positions(humanoid.to_native(values))
    assert opened["left_dex1_finger_joint_1"] == opened["left_dex1_finger_joint_2"] == pytest.approx(0.0245)
    assert opened["right_dex1_finger_joint_1"] == opened["right_dex1_finger_joint_2"] == pytest.approx(-0.02)
    assert "waist_yaw_joint" not in opened


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1"])
def test_the_shipped_robots_have_nothing_to_warn_of(name: str):
    robot = robots.load(name)
    assert not [str(finding) for finding in robot.findings]
    assert "Apache-2.0" in robot.side.licence
    assert robot.side.source


def test_the_gripper_goes_between_travel_and_open_closed():
    panda = robots.load("panda")
    values = np.array([[0.1] * 7 + [0.0], [0.2] * 7 + [1.0], [0.3] * 7 + [0.25]])
    native = panda.to_native(values)
    np.testing.assert_allclose(native[:, 7], [0.04, 0.0, 0.03])
    np.testing.assert_array_equal(native[:, :7], values[:, :7])
    with pytest.raises(MorphVlaError, match=r"panda: to_native expects 8 values on the last axis.*got 3x7"):
        panda.to_native(values[:, :7])


@given(st.lists(st.floats(-3, 3), min_size=8, max_size=8))
def test_the_round_trip_is_exact(values: list[float]):
    given_values = np.array(values)
    there = LOADED.to_dataset(LOADED.to_native(given_values))
    np.testing.assert_array_equal(there[:7], given_values[:7])
    np.testing.assert_allclose(there, given_values, rtol=1e-14, atol=1e-14)


@pytest.mark.slow
@given(st.data(), st.sampled_from(["panda", "so101", "g1_dex1"]))
def test_float32_values_come_back_bit_for_bit(data, name: str):
    robot = robots.load(name)
    ordinary = st.floats(2**-13, 2**13, width=32) | st.floats(-(2**13), -(2**-13), width=32) | st.just(0.0)
    count = len(robot.joints)
    given_values = np.array(data.draw(st.lists(ordinary, min_size=count, max_size=count)), np.float32)
    there = robot.to_dataset(robot.to_native(given_values))
    np.testing.assert_array_equal(np.where(given_values == 0, 0, there.astype(np.float32)), given_values)
    np.testing.assert_allclose(there, given_values, atol=1e-12)


def test_the_second_finger_follows_the_first():
    panda = robots.load("panda")
    positions = panda.positions(np.array([0.0] * 7 + [0.031]))
    assert positions["panda_finger_joint1"] == positions["panda_finger_joint2"] == 0.031
    assert ("panda_finger_joint2", 7, 1.0, 0.0) in panda.drives()
    poses = panda.forward_kinematics(panda.rest)
    left, right = (poses[f"panda_{side}finger"][:3, 3] for side in ("left", "right"))
    np.testing.assert_allclose(np.linalg.norm(left - right), 0.08, rtol=1e-9)
    np.testing.assert_allclose(poses["panda_grasptarget"][:3, 2], [0, 0, -1], atol=1e-9)


def test_a_urdf_alone_is_enough_and_goes_from_base_to_tip(tmp_path: Path):
    robot = robots.load(hands(tmp_path))
    assert robot.names == ("joint2", "joint10", "finger_a", "finger_b")
    assert robot.name == "hands"
    assert [joint.unit for joint in robot.joints] == ["rad", "rad", "m", "m"]
    assert robot.control_rate is None
    np.testing.assert_array_equal(robot.rest, np.zeros(4))


def test_a_rest_pose_lies_within_the_limits():
    text = """<robot name="r"><link name="a"/><link name="b"/><joint name="x" type="revolute">
<parent link="a"/><child link="b"/><limit lower="0.5" upper="1"/></joint></robot>"""
    robot = robots.build(parse(text.encode()), robots.Side(), Path("r.urdf"))
    np.testing.assert_array_equal(robot.rest, [0.5])


def test_one_value_may_drive_several_joints_in_other_units(tmp_path: Path):
    side = """
joints: [joint10, joint2, finger_a]
drives: {finger_a: [{joint: finger_b, multiplier: -1, offset: 0.01}]}
gripper: {joint: finger_a, open: 0.03, closed: -0.02, dataset_open: 5, dataset_closed: 0}
unit: degrees
signs: {joint2: -1}
zeros: {joint10: 0.01}
rest: [0, 0.01, 0.03]
"""
    robot = robots.load(hands(tmp_path, side))
    assert robot.names == ("joint10", "joint2", "finger_a")
    native = robot.to_native(np.array([[0.0, 90.0, 5.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(native, [[0.01, -np.pi / 2, 0.03], [0.01 + np.pi / 180, 0, -0.02]], atol=1e-15)
    np.testing.assert_allclose(robot.to_dataset(native), [[0, 90, 5], [1, 0, 0]], atol=1e-12)
    assert robot.positions(np.array([0.0, 0.0, 0.03])) == pytest.approx(
        {"finger_b": -0.02, "finger_a": 0.03, "joint10": 0.0, "joint2": 0.0}
    )
    assert [joint.unit for joint in robot.joints] == ["deg", "deg", "5 open, 0 closed"]
    np.testing.assert_array_equal(robot.distances, [[0, 1, 1], [1, 0, 2], [1, 2, 0]])


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ("jonts: []", "jonts: no such key; did you mean 'joints'?"),
        ("joints: [joint3]", "hands.yaml: joints: no joint 'joint3' in hands.urdf; did you mean 'joint2'?"),
        ("joints: [joint2, joint2]", "joints: joint 'joint2' is driven twice (first under joints)"),
        (
            "joints: [joint2, finger_a]\ndrives: {finger_a: [{joint: joint2}]}",
            "drives.finger_a: joint 'joint2' is driven twice (first under joints)",
        ),
        (
            "joints: [joint2]\nsigns: {joint10: -1}",
            "signs: 'joint10' is not one of the action's joints; did you mean 'joint2'?",
        ),
        ("rest: [0, 0]", "rest: 2 values for 4 joints"),
        ("rest: [0, 9, 0, 0]", "rest: 9 for 'joint10' is outside its limits -0.02 to 0.03"),
        (
            "gripper: {joint: finger_a, open: 0.5, closed: 0}",
            "gripper.open: 0.5 for 'finger_a' is outside its limits -0.02 to 0.03",
        ),
        (
            "gripper: {joint: finger_a, open: 0, closed: 0}",
            "open and closed are both 0; expected two different",
        ),
        (
            "gripper: {joint: finger_a, open: 0, closed: 0.01, dataset_open: 1}",
            "dataset_open and dataset_closed are equal; expected two different values",
        ),
        ("unit: degree", "unit: expected 'radians', 'degrees' or 'percent', got \"degree\"; did you mean"),
        ("control_rate: 0", "control_rate is 0; expected more than 0 Hz"),
    ],
)
def test_a_side_file_that_does_not_fit_says_why(tmp_path: Path, side: str, words: str):
    with pytest.raises(ConfigError) as caught:
        robots.load(hands(tmp_path, side))
    assert words in str(caught.value)


def test_a_follower_that_is_taken_beyond_its_limits_is_a_warning(tmp_path: Path):
    side = "joints: [joint10, joint2, finger_a]\ndrives: {finger_a: [{joint: finger_b, multiplier: %s}]}"
    (warning,) = (
        finding
        for finding in robots.load(hands(tmp_path, side % 2)).findings
        if finding.code == "follower-beyond-limits"
    )
    assert str(warning) == (
        "hands.yaml: warning: drives.finger_a: 'finger_a' moves 'finger_b' from -0.04 to 0.06; expected "
        "within its limits -0.02 to 0.03; a simulator holds it at its limit, the kinematics do not"
    )
    codes = {finding.code for finding in robots.load(hands(tmp_path, side % 1)).findings}
    assert "follower-beyond-limits" not in codes


def test_a_joint_that_is_left_out_and_cannot_stand_at_0_is_a_warning(tmp_path: Path):
    path = hands(tmp_path, "joints: [joint10, finger_a]")
    assert "frozen-beyond-limits" not in {finding.code for finding in robots.load(path).findings}
    text = path.read_text()
    place = text.index('<joint name="joint2"')
    path.write_text(text[:place] + re.sub('lower="[^"]*"', 'lower="0.01"', text[place:], count=1))
    (warning,) = (f for f in robots.load(path).findings if f.code == "frozen-beyond-limits")
    assert str(warning) == (
        "hands.yaml: warning: 'joint2' is driven by no action and stands at 0; expected within its limits "
        "0.01 to 0.03; kinematics and descriptors are of a pose that it cannot have: put it among `joints`, "
        "or its value in `stands`"
    )


def test_every_problem_of_a_side_file_is_said_at_once(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        robots.load(hands(tmp_path, "joints: [joint3, joint2]\nrest: [0]\nsigns: {joint1: -1}"))
    assert len(str(caught.value).splitlines()) == 3


def test_a_broken_urdf_is_refused_with_every_error(tmp_path: Path):
    path = hands(tmp_path)
    path.write_text(path.read_text().replace('type="revolute"', 'type="spherical"'))
    with pytest.raises(MorphVlaError, match="spherical") as caught:
        robots.load(path)
    assert len(str(caught.value).splitlines()) == 2


def test_a_urdf_without_a_joint_that_moves_is_no_robot(tmp_path: Path):
    path = tmp_path / "box.urdf"
    path.write_text('<robot name="box"><link name="a"/></robot>')
    with pytest.raises(MorphVlaError, match=r"box\.urdf:1: error: no joint that an action could drive"):
        robots.load(path)


def test_other_action_joints_can_be_chosen():
    robot = robots.load("panda", joints=("panda_finger_joint1", "panda_joint4"))
    assert robot.names == ("panda_finger_joint1", "panda_joint4")
    np.testing.assert_allclose(robot.rest, [0.04, -4 * np.pi / 5])
    assert robot.joints[0].is_gripper
    np.testing.assert_array_equal(robot.distances, [[0, 1], [1, 0]])
    with pytest.raises(
        MorphVlaError, match=r"no joint 'panda_joint9' to choose; did you mean 'panda_joint7'"
    ):
        robots.load("panda", joints=("panda_joint9",))
    with pytest.raises(MorphVlaError, match=r"joints: joint 'panda_joint8' is fixed; an action drives"):
        robots.load("panda", joints=("panda_joint8",))


def test_dropping_a_file_in_registers_it(tmp_path: Path):
    hands(tmp_path)
    assert {"hands", "panda"} <= set(robots.available([tmp_path]))
    assert robots.load("hands", [tmp_path]).name == "hands"
    with pytest.raises(MorphVlaError, match="no robot 'pnda'; did you mean 'panda'"):
        robots.load("pnda")


def test_it_is_plain_values_for_json():
    panda = robots.load("panda")
    plain = json.loads(json.dumps(panda.as_dict()))
    row = plain["joints"][2]
    assert (row["name"], row["neighbours"]) == ("panda_joint3", ["panda_joint2", "panda_joint4"])
    assert row["features"]["hard_lower"] == pytest.approx(-2.9671)
    assert list(row["features"]) == list(robots.NAMES)
    assert plain["drives"][-1] == ["panda_finger_joint2", 7, 1.0, 0.0]


def test_siblings_are_ordered_by_name_and_number():
    joints = "".join(
        f'<joint name="{name}" type="continuous"><parent link="base"/><child link="{name}"/></joint>'
        for name in ("b2", "a10", "a2", "b1", "a02")
    )
    assert action_order(parse(f'<robot name="r">{joints}</robot>'.encode())) == (
        "a02",
        "a2",
        "a10",
        "b1",
        "b2",
    )


@pytest.mark.parametrize("digits", [1, 4300, 4301, 10_000])
def test_a_name_of_any_number_of_digits_is_ordered_by_value(digits: int):
    names = [f"j{zeros}{number}" for zeros in ("", "00") for number in ("9" * digits, "1" + "0" * digits)]
    joints = "".join(
        f'<joint name="{name}" type="continuous"><parent link="base"/><child link="{name}"/></joint>'
        for name in names
    )
    order = action_order(parse(f'<robot name="r">{joints}</robot>'.encode()))
    assert order == (names[2], names[0], names[3], names[1])


def test_its_arrays_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        robots.load("panda").rest[0] = 1.0
