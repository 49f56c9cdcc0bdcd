"""Inverse kinematics of many poses at once, held against forward kinematics."""

import numpy as np
import pytest

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
