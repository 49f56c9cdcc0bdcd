"""The space of tools: forward it is the robot's own kinematics, and back it moves the tool where it was."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from random_trees import tree, trees

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.relatives import edits
from morph_vla.robots import Robot, Side, tool
from morph_vla.robots.geometry import pose, rotation, transform
from morph_vla.robots.records import Pose
from morph_vla.robots.side import Gripper, ToolFrame
from morph_vla.robots.tool import TOOL, guessed, listed, poses_of, tool_space

FIRST = {  # the left one; of arms face to face the one further back
    "g1_dex1": ["left_dex1_finger_joint_1", "right_dex1_finger_joint_1"],
    "aloha": ["left_left_finger", "right_left_finger"],
}
OURS = ("panda", "so101", "g1_dex1", "aloha")


def near(robot: Robot, rows: int, far: float, seed: int = 7) -> np.ndarray:
    """Joint values [rad] or [m] about the rest pose, within the limits."""
    values = robot.rest + np.random.default_rng(seed).uniform(-far, far, (rows, len(robot.names)))
    return np.clip(values, robot.lower, robot.upper)


def told(robot: Robot, side: Side) -> Robot:
    return robots.build(robot.urdf, side, robot.urdf_path)


@pytest.mark.parametrize("name", OURS)
def test_a_tool_moves_as_the_link_that_carries_it(name):
    robot = robots.load(name)
    space, native = tool_space(robot), near(robot, 5, 0.4)
    seen = space.seen(robot.to_dataset(native))
    assert seen.shape == (5, len(space.names))
    for index, moved in enumerate(space.tools):
        link = robot.urdf.by_name[moved.name].parent
        poses = poses_of(seen[:, index * len(TOOL) : (index + 1) * len(TOOL)])
        carried = [robot.forward_kinematics(row)[link] for row in native]
        between = np.array([np.linalg.inv(a) @ b for a, b in zip(carried, poses, strict=True)])
        np.testing.assert_allclose(between, np.broadcast_to(between[:1], between.shape), atol=1e-5)


@pytest.mark.parametrize("name", ["g1_dex1", "aloha"])
def test_the_left_tool_is_the_first_in_whatever_order_grippers_are_named(name):
    robot = robots.load(name)
    named = robot.side.grippers.values()
    space, other = (
        tool_space(told(robot, replace(robot.side, gripper=order)))
        for order in ((*named,), (*reversed([*named]),))
    )
    assert len(space.tools) == 2
    assert space.names == other.names
    places = space.seen(robot.to_dataset(robot.rest))[[1, 1 + len(TOOL)]]
    assert [tool.name for tool in space.tools] == FIRST[name]
    assert places[0] > places[1] - 1e-6  # y: to the left, but for arms face to face
    closing = [robot.names[column] for column in space.rest if robot.joints[column].is_gripper]
    assert closing == [tool.name for tool in space.tools]
    joints = near(robot, 5, 0.3)[:, None]
    moved = space.seen(robot.to_dataset(joints))
    back = other.joints(robot.to_dataset(joints[:, 0]), moved)
    np.testing.assert_allclose(space.seen(back), moved, atol=1e-3)


def test_which_tool_is_the_left_one():
    near_by = tool.SAME_PLACE
    assert tool.left_first([(0.3, -0.2), (0.3, 0.2)]) == [1, 0]
    assert tool.left_first([(0.3, 0.2), (0.1, -0.2), (0.0, 0.5)]) == [2, 0, 1]
    assert tool.left_first([(0.3, 0.01), (-0.3, 0.011)]) == [1, 0]  # noise makes none the left one
    assert tool.left_first([(0.3, 0.011), (-0.3, 0.01)]) == [1, 0]
    assert tool.left_first([(0.3, 0.0), (-0.3, 1.01 * near_by)]) == [1, 0]
    assert tool.left_first([(-0.3, 0.0), (0.3, 1.01 * near_by)]) == [1, 0]
    assert tool.left_first([(0.3, 0.0), (0.3 - near_by / 2, near_by / 2)]) == [0, 1]
    assert tool.left_first([]) == []


def test_what_others_follow_seems_to_close_a_hand():
    panda = robots.load("panda")
    finger = panda.names[-1]
    urdf = replace(
        panda.urdf,
        joints=tuple(
            replace(
                joint,
                name={finger: "slide"}.get(joint.name, joint.name.replace("finger", "other")),
                mimic=None if joint.mimic is None else replace(joint.mimic, joint="slide"),
            )
            for joint in panda.urdf.joints
        ),
    )
    joints = (*panda.names[:-1], "slide")
    robot = robots.build(urdf, Side(joints=joints), Path("arm.urdf"))
    assert tool.unnamed(robot) == ("slide",)
    alone = replace(urdf, joints=tuple(joint for joint in urdf.joints if joint.mimic is None))
    assert tool.unnamed(robots.build(alone, Side(joints=joints), Path("arm.urdf"))) == ()


@pytest.mark.parametrize("name", ["g1_dex1", "aloha"])
def test_joints_in_another_order_change_no_value_of_a_tool(name):
    robot = robots.load(name)
    turned = robots.build(
        robot.urdf,
        replace(robot.side, joints=robot.names[::-1], rest=tuple(robot.rest[::-1].tolist()), names=()),
        robot.urdf_path,
    )
    space, other = tool_space(robot), tool_space(turned)
    native = near(robot, 5, 0.3)
    of_tools = space.of_poses + 2
    seen = other.seen(turned.to_dataset(native[:, ::-1]))
    np.testing.assert_allclose(
        space.seen(robot.to_dataset(native))[:, :of_tools], seen[:, :of_tools], atol=1e-5
    )


@settings(max_examples=60, deadline=None)
@given(trees(least=3), st.integers(0, 10**6))
def test_of_a_random_arm_it_is_forward_kinematics(spec, seed):
    robot = robots.build(tree(_in_a_row(spec)), Side(), Path("arm.urdf"))
    try:
        space, rng = tool_space(robot), np.random.default_rng(seed)
    except MorphVlaError:  # joints in one place carry nothing anywhere
        reject()
    native = rng.uniform(robot.lower, robot.upper, (3, len(robot.names)))
    last = robot.urdf.by_name[space.tools[0].name].child
    for row, values in zip(native, space.seen(native), strict=True):
        frame = robot.forward_kinematics(row)[last]
        np.testing.assert_allclose(values[:3], frame[:3, 3], atol=1e-4)
        np.testing.assert_allclose(values[3:6], frame[:3, 2], atol=1e-5)
        np.testing.assert_allclose(np.abs(values[6:9]), np.abs(frame[:3, 1]), atol=1e-5)


def _in_a_row(spec: list[dict]) -> list[dict]:
    """The joints of a tree one behind the other; none slides or follows."""
    turns = {"prismatic": "revolute", "fixed": "continuous"}
    return [
        {
            **joint,
            "type": turns.get(joint["type"], joint["type"]),
            "parent": f"l{int(joint['child'][1:]) - 1}",
            "mimic": (),
        }
        for joint in spec
    ]


@pytest.mark.parametrize("name", OURS)
def test_back_the_tool_is_where_it_was_and_the_rest_is_untouched(name):
    robot = robots.load(name)
    space = tool_space(robot)
    start = near(robot, 11, 0.2)
    steps = np.random.default_rng(3).uniform(-0.03, 0.03, (11, 13, len(robot.names)))
    wanted = np.clip(start[:, None] + np.cumsum(steps, axis=1), robot.lower, robot.upper)
    chunk = space.seen(robot.to_dataset(wanted))
    joints = space.joints(robot.to_dataset(start), chunk)
    np.testing.assert_allclose(space.seen(joints), chunk, atol=2e-3)
    untouched = robot.to_dataset(wanted)[..., space.rest]
    np.testing.assert_allclose(joints[..., space.rest], untouched, rtol=1e-5, atol=1e-5)


def test_who_asks_to_stay_stays():
    robot = robots.load("panda")
    state = robot.to_dataset(near(robot, 7, 0.3)).astype(np.float32)
    space = tool_space(robot)
    held = np.repeat(space.seen(state)[:, None], 5, axis=1)
    np.testing.assert_allclose(space.joints(state, held), np.repeat(state[:, None], 5, axis=1), atol=1e-5)


def test_a_pose_out_of_reach_is_approached_within_the_limits():
    robot = robots.load("panda")
    space, state = tool_space(robot), robot.to_dataset(robot.rest)[None]
    far = np.repeat(space.seen(state)[:, None], 3, axis=1)
    far[..., :3] = [3.0, 0.0, 0.4]
    joints = space.joints(state, far)
    native = robot.to_native(joints[0])
    assert (native >= robot.lower - 1e-6).all()
    assert (native <= robot.upper + 1e-6).all()
    assert (space.seen(joints)[0, :, 0] > space.seen(state)[0, 0] + 0.2).all()


def test_a_joint_without_limits_goes_on_turning():
    urdf = robots.load("panda").urdf
    joints = tuple(replace(j, type="continuous") if j.name == "panda_joint7" else j for j in urdf.joints)
    robot = robots.build(replace(urdf, joints=joints), robots.load("panda").side, Path("panda.urdf"))
    space, native = tool_space(robot), near(robot, 3, 0.1)
    native[:, 6] = [-7.0, 3.2, 11.0]
    state = robot.to_dataset(native).astype(np.float32)
    held = np.repeat(space.seen(state)[:, None], 2, axis=1)
    np.testing.assert_allclose(space.joints(state, held), np.repeat(state[:, None], 2, axis=1), atol=1e-5)


@pytest.mark.parametrize("turn", [-0.002, 0.0, 0.002])
def test_hands_that_open_to_and_fro_are_alike(turn):
    """Which way across it is does not hang on a thousandth of a radian where fingers open ahead."""
    robot = robots.load("panda")
    rest = robot.rest.copy()
    rest[6] += turn - np.pi / 4
    twin = told(robot, replace(robot.side, rest=tuple(rest.tolist())))
    across = tool_space(twin).seen(twin.to_dataset(rest))[6:9]
    np.testing.assert_allclose(np.abs(across), [1, 0, 0], atol=0.003)
    assert across[0] > 0


def test_directions_need_not_be_right():
    values = np.array([[1, 2, 3, 0, 0, -2, 0.3, 0.5, 0.7]], np.float32)
    matrix = poses_of(values)[0]
    np.testing.assert_allclose(matrix[:3, :3] @ matrix[:3, :3].T, np.eye(3), atol=1e-12)
    assert np.linalg.det(matrix[:3, :3]) == pytest.approx(1)
    np.testing.assert_allclose(matrix[:3, 2], [0, 0, -1])
    np.testing.assert_allclose(matrix[:3, 3], [1, 2, 3])
    assert matrix[2, 1] == pytest.approx(0)


def test_half_a_turn_of_a_parallel_hand_is_the_same_tool():
    robot = robots.load("panda")
    joints = tuple(
        replace(joint, origin=_turned(joint.origin)) if joint.name == "panda_hand_joint" else joint
        for joint in robot.urdf.joints
    )
    twin = robots.build(replace(robot.urdf, joints=joints), robot.side, robot.urdf_path)
    native = near(robot, 3, 0.2)
    assert not np.allclose(
        robot.forward_kinematics(native[0])["panda_hand"], twin.forward_kinematics(native[0])["panda_hand"]
    )
    values = robot.to_dataset(native)
    np.testing.assert_allclose(tool_space(twin).seen(values), tool_space(robot).seen(values), atol=1e-5)


def _turned(origin: Pose) -> Pose:
    turned = transform(origin)
    turned[:3, :3] = turned[:3, :3] @ rotation((0.0, 0.0, 1.0), np.pi)
    return pose(turned)


def test_a_side_file_says_where_the_hand_takes_hold():
    robot = robots.load("so101")
    at_rest = robot.to_dataset(robot.rest)[None]
    plain = tool_space(robot).seen(at_rest)[0]
    link = robot.urdf.by_name["gripper"].parent
    frame = robot.forward_kinematics(robot.rest)[link]
    stated = told(robot, replace(robot.side, tools={"gripper": ToolFrame(link, (0.0, 0.0, -0.1))}))
    seen = tool_space(stated).seen(at_rest)[0]
    np.testing.assert_allclose(seen[:3], (frame @ [0, 0, -0.1, 1])[:3], atol=1e-6)
    assert not np.allclose(seen[:3], plain[:3])


def test_what_is_guessed_is_said():
    robot = robots.load("so101")
    assert guessed(robot) == ("gripper",)
    assert "gripper: a guess, where fingers begin that turn; `tools` in the side file says it" in listed(
        robot
    )
    stated = told(robot, replace(robot.side, tools={"gripper": ToolFrame("gripper_link")}))
    assert (guessed(stated), guessed(robots.load("panda"))) == ((), ())
    assert "a guess" not in listed(stated)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_in_a_mirror_the_tool_is_the_mirrored_one(seed):
    robot, rng = robots.load("so101"), np.random.default_rng(seed)
    link = robot.urdf.by_name["gripper"].parent
    numbers = [tuple(rng.uniform(-1, 1, 3).tolist()) for _ in range(2)]
    frame = ToolFrame(link, *numbers)
    side = replace(robot.side, tools={"gripper": frame})
    plain = told(robot, side)
    twin = robots.build(
        edits.mirrored(robot.urdf),
        replace(side, tools={"gripper": edits.mirrored_frame(frame)}),
        robot.urdf_path,
    )
    values = robot.to_dataset(near(robot, 3, 0.3))
    seen, seen_in_mirror = (tool_space(one).seen(values) for one in (plain, twin))
    np.testing.assert_allclose(seen_in_mirror[:, :6], seen[:, :6] * np.tile([1, -1, 1], 2), atol=1e-5)
    np.testing.assert_allclose(np.abs(seen_in_mirror[:, 6:9]), np.abs(seen[:, 6:9]), atol=1e-5)


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1"])
def test_a_hand_closes_from_0_to_1_whatever_its_dataset_counts(name):
    robot = robots.load(name)
    space, columns = tool_space(robot), [robot.names.index(hand) for hand in robot.side.grippers]
    ends = np.tile(robot.to_dataset(robot.rest), (2, 1))
    for column, hand in zip(columns, robot.side.grippers.values(), strict=True):
        ends[:, column] = hand.dataset_open, hand.dataset_closed
    seen = space.seen(ends)
    closed = [place for place, value in enumerate(space.names) if value in robot.side.grippers]
    np.testing.assert_allclose(seen[:, closed], np.outer([0.0, 1.0], np.ones(len(closed))), atol=1e-6)
    back = space.joints(ends, seen[:, None])[:, 0]
    np.testing.assert_allclose(back[:, columns], ends[:, columns], atol=1e-4)


def test_rows_are_computed_in_parts(monkeypatch):
    robot = robots.load("g1_dex1")
    space, values = tool_space(robot), robot.to_dataset(near(robot, 23, 0.2))
    whole = space.seen(values)
    monkeypatch.setattr(tool, "ROWS", 7)
    np.testing.assert_array_equal(space.seen(values), whole)


def test_a_tool_on_no_link_or_of_no_joint_is_named():
    robot = robots.load("so101")
    link = robot.urdf.by_name["gripper"].parent
    with pytest.raises(ConfigError, match=f"tools: no link '{link}x' in so101.urdf; did you mean '{link}'"):
        told(robot, replace(robot.side, tools={"gripper": ToolFrame(f"{link}x")}))
    with pytest.raises(ConfigError, match="tools: 'wrist_roll' is no gripper"):
        told(robot, replace(robot.side, tools={"wrist_roll": ToolFrame(link)}))
    with pytest.raises(ConfigError, match="tools: 'griper' is not one of the action's joints; did you mean"):
        told(robot, replace(robot.side, tools={"griper": ToolFrame(link)}))


JOINT = """<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>
  <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/>{more}</joint>"""


def _of(*joints: tuple[str, str, str, str, str]) -> Robot:
    """A robot called `it` of joints: name, type, parent, child, what else the file says."""
    keys = ("name", "kind", "parent", "child", "more")
    links = "".join(f'<link name="{name}"/>' for name in "abcd")
    text = "".join(JOINT.format(**dict(zip(keys, joint, strict=True))) for joint in joints)
    return robots.build(
        robots.parse(f'<robot name="it">{links}{text}</robot>'.encode(), "it.urdf"), Side(), Path("it.urdf")
    )


@pytest.mark.parametrize(
    ("robot", "why"),
    [
        (
            _of(("waist", "revolute", "a", "b", ""), ("left", "revolute", "b", "c", ""),
                ("right", "revolute", "b", "d", "")),
            "joint 'waist' moves two tools, of 'left' and of 'right'",
        ),
        (
            _of(("rail", "prismatic", "a", "b", ""), ("elbow", "revolute", "b", "c", "")),
            "joint 'rail', which moves 'elbow', slides",
        ),
        (
            _of(("leader", "revolute", "a", "d", ""), ("tip", "revolute", "b", "c", ""),
                ("twin", "revolute", "a", "b", '<mimic joint="leader"/>')),
            "joint 'twin', which moves 'tip', follows another",
        ),
    ],
)  # fmt: skip
def test_robots_without_a_space_of_tools_say_why(robot, why):
    with pytest.raises(MorphVlaError, match=f"^robot 'it' has no space of tools: {why}; choose data.space"):
        tool_space(robot)


def test_a_hand_is_not_moved_by_what_closes_it():
    robot = robots.load("so101")
    jaw = robot.urdf.by_name["gripper"].child
    closing = told(robot, replace(robot.side, tools={"gripper": ToolFrame(jaw)}))
    with pytest.raises(MorphVlaError, match="tools: 'gripper', which closes a hand, moves 'gripper'; choose"):
        tool_space(closing)


def test_without_a_length_nothing_is_moved():
    with pytest.raises(MorphVlaError, match="between 'pan' and the tool there is no length; choose"):
        tool_space(_of(("pan", "revolute", "a", "b", ""), ("tilt", "revolute", "b", "c", "")))


def test_a_gripper_that_nothing_moves_is_no_tool():
    side = Side(gripper=Gripper("jaw", 0.0, 1.0))
    robot = robots.build(_of(("jaw", "revolute", "a", "b", "")).urdf, side, Path("it.urdf"))
    with pytest.raises(MorphVlaError, match="no space of tools: no joint moves 'jaw'"):
        tool_space(robot)
