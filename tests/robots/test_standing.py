"""Joints that no action drives stand where the side file says, and so do their followers and relatives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_trees import tree, trees

from morph_vla import robots
from morph_vla.errors import ConfigError
from morph_vla.relatives.vary import draw, named_set
from morph_vla.robots.descriptors import limits
from morph_vla.robots.examine import examine_text
from morph_vla.robots.kinematics import follow, link_poses
from morph_vla.robots.robot import action_order
from morph_vla.robots.side import Side, side_text
from morph_vla.robots.standing import stood

ARM = """<robot name="arm">
  <link name="base"/><link name="l1"/><link name="l2"/><link name="l3"/><link name="l4"/>
  <joint name="waist" type="revolute"><parent link="base"/><child link="l1"/>
    <origin xyz="0 0 0.3" rpy="0.1 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-0.5" upper="1.1" effort="7" velocity="3"/></joint>
  <joint name="lift" type="prismatic"><parent link="l1"/><child link="l2"/>
    <origin xyz="0 0 0.2"/>
    <axis xyz="0 0 1"/><limit lower="0.13" upper="0.71" effort="7" velocity="3"/></joint>
  <joint name="shoulder" type="revolute"><parent link="l2"/><child link="l3"/>
    <origin xyz="0.1 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="7" velocity="3"/></joint>
  <joint name="counter" type="revolute"><parent link="l1"/><child link="l4"/>
    <origin xyz="0 0.1 0"/>
    <axis xyz="0 1 0"/><mimic joint="waist" multiplier="-0.5" offset="0.05"/>
    <limit lower="-2" upper="2" effort="7" velocity="3"/></joint>
</robot>"""


def arm(folder: Path, side: str) -> Path:
    path = folder / "arm.urdf"
    path.write_text(ARM)
    path.with_suffix(".yaml").write_text(side)
    return path


@given(trees(), st.data())
def test_links_are_where_the_joints_would_take_them(spec, data):
    """The same links as of the URDF itself with these joints at these values, whatever the others do."""
    urdf = tree(spec)
    order = action_order(urdf)
    standing = data.draw(st.sets(st.sampled_from(order))) if order else set()
    values = {}
    for name in sorted(standing):
        low, high = limits(urdf.by_name[name])
        values[name] = data.draw(st.floats(low, high))
    after = stood(urdf, Side(stands=values), Path("a.yaml"))
    assert action_order(after) == tuple(name for name in order if name not in standing)
    others = {name: data.draw(st.floats(-1.0, 1.0)) for name in action_order(after)}
    theirs = link_poses(urdf, {**others, **values})
    for name, pose in link_poses(after, others).items():
        np.testing.assert_allclose(pose, theirs[name], atol=1e-9)


def test_a_robot_stands_as_its_side_file_says_and_so_does_what_mimics(tmp_path: Path):
    robot = robots.load(arm(tmp_path, "stands: {waist: 0.7, lift: 0.31}"))
    assert robot.names == ("shoulder",)
    raw = examine_text(ARM.encode(), Side(), Path("arm.urdf")).loaded()
    values = {"waist": 0.7, "lift": 0.31, "shoulder": -0.9}
    poses = raw.forward_kinematics(np.array([values[name] for name in raw.names]))
    for name, pose in robot.forward_kinematics(np.array([-0.9])).items():
        np.testing.assert_allclose(pose, poses[name], atol=1e-12)
    assert "counter" not in follow(robot.urdf)  # it stands too, at 0.05 - 0.35
    assert not [finding for finding in robot.findings if finding.code == "frozen-beyond-limits"]
    assert "joints that stand: waist = 0.7, lift = 0.31" in str(robot)
    assert robot.as_dict()["stands"] == {"waist": 0.7, "lift": 0.31}


def test_where_it_stands_is_part_of_what_the_robot_is(tmp_path: Path):
    hashes = {
        robots.load(arm(tmp_path, f"joints: [shoulder]\nstands: {{lift: {value}}}")).side_sha256
        for value in (0.2, 0.3)
    }
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ("{wrist: 1}", "arm.yaml: stands: no joint 'wrist' in arm.urdf"),
        ("{lifd: 0.2}", "arm.yaml: stands: no joint 'lifd' in arm.urdf; did you mean 'lift'?"),
        ("{counter: 0.2}", "stands: joint 'counter' mimics 'waist' in arm.urdf; say where that one stands"),
        ("{lift: 0.8}", "stands: 0.8 for 'lift' is outside its limits 0.13 to 0.71"),
        ("{shoulder: 0.8}\njoints: [shoulder]", "stands: joint 'shoulder' is under joints too"),
        ("{waist: .nan}", "stands.waist: nan; expected a finite number"),
    ],
)
def test_what_cannot_stand_there_is_said(tmp_path: Path, side: str, words: str):
    with pytest.raises(ConfigError) as caught:
        robots.load(arm(tmp_path, f"stands: {side}"))
    assert words in str(caught.value)


def test_a_joint_that_stands_is_no_choice_for_an_action(tmp_path: Path):
    path = arm(tmp_path, "stands: {lift: 0.2}")
    with pytest.raises(ConfigError) as caught:
        robots.load(path, joints=["waist", "lift"])
    assert "joint 'lift' stands where `stands` says: leave it out of one" in str(caught.value)


def test_a_fixed_joint_has_no_value_to_stand_at(tmp_path: Path):
    path = arm(tmp_path, "stands: {lift: 0.2}")
    path.write_text(ARM.replace('name="lift" type="prismatic"', 'name="lift" type="fixed"'))
    with pytest.raises(ConfigError) as caught:
        robots.load(path)
    assert "joint 'lift' is fixed; it has no value to stand at" in str(caught.value)


def test_a_joint_that_cannot_stand_at_0_is_told_of_both_ways_out(tmp_path: Path):
    (warning,) = (
        finding
        for finding in robots.load(arm(tmp_path, "joints: [shoulder]")).findings
        if finding.code == "frozen-beyond-limits"
    )
    assert str(warning).endswith("put it among `joints`, or its value in `stands`")


def test_relatives_of_it_stand_too(tmp_path: Path):
    """A relative's own URDF has the joint fixed, and its side file says nothing of it."""
    panda = robots.load("panda")
    side = replace(
        panda.side, joints=panda.names[1:], rest=tuple(panda.rest[1:]), stands={panda.names[0]: 0.6}
    )
    path = tmp_path / "arm.urdf"
    path.write_bytes(panda.urdf_path.read_bytes())
    path.with_suffix(".yaml").write_text(side_text(side))
    (relative,) = draw(robots.load(path), named_set("interpolation"), 3)
    assert panda.names[0] not in relative.robot.names
    assert relative.robot.urdf.by_name[panda.names[0]].type == "fixed"
    assert not relative.robot.side.stands
