"""Inverse kinematics of many poses at once, held against forward kinematics."""

import numpy as np
import pytest

from morph_vla.checks.playback import follow_link
from morph_vla.robots import load
from morph_vla.robots.reach import chain


@pytest.fixture(scope="module")
def panda():
    robot = load("panda")
    return robot, chain(robot, robot.names[:7], "panda_grasptarget", np.eye(4))


def test_forward_kinematics_are_those_of_the_robot(panda):
    robot, arm = panda
    values = np.random.default_rng(5).uniform(robot.lower[:7], robot.upper[:7], (3, 7))
    poses, origins, axes = arm.forward(values)
    for row, pose in zip(values, poses, strict=True):
        links = robot.forward_kinematics(np.array([*row, 0.04]))
        assert pose == pytest.approx(links["panda_grasptarget"], abs=1e-12)
    assert origins[0, 3] == pytest.approx(
        robot.forward_kinematics(np.array([*values[0], 0.04]))["panda_link4"][:3, 3]
    )
    assert np.linalg.norm(axes, axis=2) == pytest.approx(np.ones((3, 7)))


@pytest.mark.parametrize("spin", [True, False])
def test_solutions_reach_their_targets_within_the_limits(panda, spin):
    _robot, arm = panda
    rng = np.random.default_rng(7)
    middle = (arm.lower + arm.upper) / 2
    truth = middle + 0.3 * rng.uniform(-1, 1, (11, 7)) * (arm.upper - arm.lower) / 2
    targets, *_ = arm.forward(truth)
    values, placed, pointing = arm.solve(targets, np.tile(middle, (11, 1)), spin)
    assert placed.mean() > 0.8
    assert (pointing | ~placed).all()
    assert (values >= arm.lower).all()
    assert (values <= arm.upper).all()
    poses, *_ = arm.forward(values)
    assert poses[placed][:, :3, 3] == pytest.approx(targets[placed][:, :3, 3], abs=0.004 * arm.reach)
    turned = poses[placed][:, :3, 0] - targets[placed][:, :3, 0]
    assert (np.abs(turned).max() < 0.05) == spin  # without it the turn about z is free


def test_a_place_beyond_its_reach_is_not_met(panda):
    _, arm = panda
    target = np.diag([1.0, -1.0, -1.0, 1.0])[None]
    target[0, :3, 3] = 2.0, 0.0, 0.1
    _, placed, _ = arm.solve(target, np.zeros((1, 7)), True)
    assert not placed.any()


def test_margin_is_a_share_of_half_the_range(panda):
    _, arm = panda
    middle = (arm.lower + arm.upper) / 2
    quarter = middle + (arm.upper - arm.lower) / 4
    assert arm.margin(np.stack([middle, quarter, arm.upper])) == pytest.approx([1.0, 0.5, 0.0])


def joint(name: str, parent: str, child: str, origin: str, axis: str, more: str = "") -> str:
    limit = '<limit lower="-2" upper="2" effort="1" velocity="1"/>'
    return (
        f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{origin}"/><axis xyz="{axis}"/>{limit}{more}</joint>'
    )


@pytest.mark.parametrize("leader", ["nobody", "aside"])
def test_a_mimicking_joint_whose_leader_stands_still_stands_at_its_offset(tmp_path, leader):
    """Everywhere alike: in the tool's chain, along an episode's path, and in forward kinematics."""
    links = "".join(f'<link name="l{number}"/>' for number in range(6)) + '<link name="side"/>'
    mimic = f'<mimic joint="{leader}" multiplier="3" offset="0.7"/>'
    text = (
        f'<robot name="r">{links}{joint("aside", "l0", "side", "0 0 0", "0 0 1")}'
        f"{joint('a', 'l0', 'l1', '0 0 .3', '0 0 1')}{joint('b', 'l1', 'l2', '0 0 .3', '0 1 0')}"
        f"{joint('m', 'l2', 'l3', '.2 0 0', '0 1 0', mimic)}{joint('c', 'l3', 'l4', '.2 0 0', '0 1 0')}"
        f"{joint('d', 'l4', 'l5', '.2 0 0', '1 0 0')}</robot>"
    )
    (tmp_path / "r.urdf").write_text(text)
    (tmp_path / "r.yaml").write_text("joints: [a, b, c, d]\n")
    robot = load(tmp_path / "r.urdf")
    values = np.array([[0.3, -0.5, 0.7, 1.1]])
    wanted = robot.forward_kinematics(values[0])["l5"]
    assert np.linalg.norm(wanted[:3, 3] - robot.forward_kinematics(0 * values[0])["l5"][:3, 3]) > 0.1
    poses, _, _ = chain(robot, robot.names, "l5", np.eye(4)).forward(values)
    assert poses[0] == pytest.approx(wanted, abs=1e-12)
    assert follow_link(robot, "l5", values)[0] == pytest.approx(wanted[:3, 3], abs=1e-12)
