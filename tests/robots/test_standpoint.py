"""Values told from where the hand is: nothing of the base's place and turn or the robot's size is in them."""

from dataclasses import replace

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.relatives import edits
from morph_vla.robots import Robot
from morph_vla.robots.geometry import POSE, rotation
from morph_vla.robots.standpoint import metre, objects_told, of_chunk, root_values, standpoint, told
from morph_vla.robots.tool import TOOL, ToolSpace, poses_of, tool_space

OURS = ("panda", "so101", "g1_dex1", "aloha")


def seen(robot: Robot, rows: int, seed: int = 7) -> np.ndarray:
    """Values in the root's frame, of joint values anywhere within the limits."""
    native = np.random.default_rng(seed).uniform(robot.lower, robot.upper, (rows, len(robot.names)))
    return tool_space(robot).seen(robot.to_dataset(native))


def turned(space: ToolSpace, values: np.ndarray, angle: float) -> np.ndarray:
    """The same, had the base been turned by `angle` about its axis."""
    poses = values[..., : space.of_poses].reshape(*values.shape[:-1], -1, 3)
    poses = poses @ rotation((0.0, 0.0, 1.0), angle).T
    rest = values[..., space.of_poses :]
    return np.concatenate([poses.reshape(*values.shape[:-1], -1), rest], axis=-1).astype(np.float32)


@pytest.mark.parametrize("name", OURS)
def test_back_in_the_root_s_frame_they_are_what_they_were(name):
    robot = robots.load(name)
    space, values = tool_space(robot), seen(robot, 11)
    at = standpoint(space, values)
    np.testing.assert_allclose(root_values(space, told(space, values, at), at), values, atol=1e-6)
    chunk = np.stack([values, values[::-1], values], axis=1)
    back = root_values(space, told(space, chunk, of_chunk(at)), of_chunk(at))
    np.testing.assert_allclose(back, chunk, atol=1e-5)


@pytest.mark.parametrize("name", OURS)
def test_which_way_the_base_is_turned_is_not_in_them(name):
    robot = robots.load(name)
    space, values = tool_space(robot), seen(robot, 13)
    expected = told(space, values, standpoint(space, values))
    for angle in (-2.3, 0.7, np.pi):
        other = turned(space, values, angle)
        np.testing.assert_allclose(told(space, other, standpoint(space, other)), expected, atol=1e-5)


@pytest.mark.parametrize("name", OURS)
def test_what_moves_no_tool_is_untouched(name):
    robot = robots.load(name)
    space, values = tool_space(robot), seen(robot, 5)
    changed = told(space, values, standpoint(space, values))
    np.testing.assert_array_equal(changed[:, space.of_poses :], values[:, space.of_poses :])


def test_a_hand_that_is_mounted_half_a_turn_round_is_the_same():
    robot = robots.load("panda")
    space, values = tool_space(robot), seen(robot, 17)
    other = values.copy()
    other[:, 6:9] *= -1
    at, opposite = standpoint(space, values), standpoint(space, other)
    assert (at.other != opposite.other).all()
    np.testing.assert_allclose(told(space, other, opposite), told(space, values, at), atol=1e-7)
    # Told from where one of the two stands, the other one points the other way: a chunk never flips within.
    np.testing.assert_allclose(told(space, other, at)[:, 6:9], -told(space, values, at)[:, 6:9], atol=1e-7)


def test_of_one_hand_the_place_is_its_height_and_it_opens_to_the_left():
    robot = robots.load("panda")
    space, values = tool_space(robot), seen(robot, 19)
    at = standpoint(space, values)
    result = told(space, values, at)
    np.testing.assert_allclose(result[:, :2], 0, atol=1e-6)
    np.testing.assert_allclose(result[:, 2], values[:, 2], atol=1e-6)
    assert (result[:, 7] > -0.15).all()
    np.testing.assert_allclose(
        np.stack([np.cos(at.turn), np.sin(at.turn)], axis=1) * np.hypot(*values[:, :2].T)[:, None],
        values[:, :2],
        atol=1e-6,
    )


def test_over_the_base_the_way_out_is_the_root_s():
    robot = robots.load("panda")
    space, values = tool_space(robot), seen(robot, 2)
    values[:, :3] = [[0.004, -0.003, 0.5], [0.0, 0.0, 0.5]]
    np.testing.assert_array_equal(standpoint(space, values).turn, 0)


@pytest.mark.parametrize("factor", [0.37, 1.9])
def test_a_robot_of_another_size_that_moves_alike_says_the_same(factor):
    robot = robots.load("panda")
    urdf = edits.scaled(robot.urdf, {link.name: factor for link in robot.urdf.links})
    ends = robot.side.grippers["panda_finger_joint1"]
    gripper = replace(ends, open=factor * ends.open)
    joints = tuple(
        replace(j, limit=replace(j.limit, upper=factor * j.limit.upper))
        if j.type == "prismatic" and j.limit is not None and j.limit.upper is not None
        else j
        for j in urdf.joints
    )
    larger = robots.build(
        replace(urdf, joints=joints),
        replace(robot.side, gripper=gripper, rest=(*robot.side.rest[:-1], 0.0)),
        robot.urdf_path,
    )
    assert metre(larger) * factor == pytest.approx(metre(robot))
    native = np.random.default_rng(5).uniform(robot.lower, robot.upper, (5, len(robot.names)))
    native[:, -1] = 0
    pairs = [(each, tool_space(each)) for each in (robot, larger)]
    one, other = (space.seen(each.to_dataset(native)) for each, space in pairs)
    (_, small), (_, large) = pairs
    expected = told(small, one, standpoint(small, one))
    np.testing.assert_allclose(told(large, other, standpoint(large, other)), expected, atol=2e-5)


def test_a_hand_that_opens_less_makes_a_metre_longer():
    assert metre(robots.load("panda")) == pytest.approx(1.0)
    assert metre(robots.load("so101")) == 1.0  # its finger turns: nothing says how far it opens


def test_an_object_lies_to_the_hand_as_it_did():
    """Hand and object told from one standpoint: the pose between them is what it was, in told lengths."""
    robot = robots.load("panda")
    space, values = tool_space(robot), seen(robot, 7)
    rng = np.random.default_rng(3)
    quaternions = rng.normal(size=(7, 2, 4))
    quaternions /= np.linalg.norm(quaternions, axis=-1, keepdims=True)
    poses = np.concatenate([rng.normal(size=(7, 2, 3)), quaternions], axis=-1).astype(np.float32)
    at, height = standpoint(space, values), values[:, 2]
    result = objects_told(robot, poses, at, height)
    hands = told(space, values, at)
    for before, after in ((0, 3), (3, 6), (6, 9)):
        for index in range(2):
            between = poses[:, index, :3] - values[:, :3]
            direction = values[:, before:after] if before else between
            afterwards = hands[:, before:after] if before else result[:, index, :3]
            np.testing.assert_allclose(
                np.abs(np.sum(between * direction, axis=1)),
                np.abs(np.sum(result[:, index, :3] * afterwards, axis=1)),
                atol=1e-5,
            )
    assert (result[..., 3] >= 0).all()
    # One that lies as the hand does before lies as the hand does after.
    w, x, y, z = poses[:, 0, 3:].T
    ahead = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    w, x, y, z = result[:, 0, 3:].T
    later = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    cos, sin = np.cos(at.turn), np.sin(at.turn)
    expected = np.stack(
        [cos * ahead[:, 0] + sin * ahead[:, 1], -sin * ahead[:, 0] + cos * ahead[:, 1], ahead[:, 2]], axis=1
    )
    np.testing.assert_allclose(later, expected, atol=1e-5)
    assert len(POSE) == 7


def test_told_directions_are_still_a_pose():
    robot = robots.load("aloha")
    space, values = tool_space(robot), seen(robot, 5)
    result = told(space, values, standpoint(space, values))
    for start in range(0, space.of_poses, len(TOOL)):
        matrix = poses_of(result[:, start : start + len(TOOL)])
        np.testing.assert_allclose(matrix[:, :3, 2], result[:, start + 3 : start + 6], atol=1e-5)
        np.testing.assert_allclose(matrix[:, :3, 1], result[:, start + 6 : start + 9], atol=1e-5)
