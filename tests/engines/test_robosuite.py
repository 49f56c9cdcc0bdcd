"""Robosuite's tasks on seven arms, where robosuite is installed: `make test-robosuite`."""

import math
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.demonstrations import robosuite as experts
from morph_vla.demonstrations.reach import Reach
from morph_vla.engines.gymnasium.stage import Environments
from morph_vla.engines.mujoco.scene import mujoco
from morph_vla.engines.robosuite import arms as robots_arms
from morph_vla.engines.robosuite import theirs, world
from morph_vla.engines.robosuite.vector import VIEWS, ArmAtTable, Scene
from morph_vla.engines.robosuite.world import OPENINGS, World
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.robots.geometry import matrix_of, rotation
from morph_vla.robots.tool import tool_space
from morph_vla.suites.suite import InitialState

needs_robosuite = pytest.mark.skipif(
    find_spec("robosuite") is None, reason="robosuite is not installed: make test-robosuite"
)
ARMS = tuple(theirs.ARMS)


@pytest.fixture(scope="module", params=ARMS)
def table(request):
    """Lift with each arm."""
    made = World("Lift", request.param)
    yield made
    made.close()


def aside(table: World) -> None:
    """Put the cube where no hand comes."""
    table.data.qpos[table.model.joint("cube_joint0").qposadr[0]] += 0.5


@needs_robosuite
def test_grippers_open_and_shut_as_they_do_where_nothing_had_to_be_repaired(table):
    """By a table, so that a MuJoCo that moves the contacts is seen: 3.8 did, and the Robotiq blew up."""
    table.reset(3)
    wide, shut = OPENINGS[table.arm]
    assert table.gap() == pytest.approx(wide, abs=0.002)
    assert table.gripper() == pytest.approx(0, abs=0.03)
    aside(table)
    rest = table.q()
    for _ in range(40):
        table.step(np.append(rest, 1.0))
        assert np.abs(table.data.qvel[table.velocities]).max() < 10
    assert table.gap() == pytest.approx(shut, abs=0.002)
    assert table.gripper() == pytest.approx(1, abs=0.03)


@needs_robosuite
def test_a_row_begins_alike_whatever_came_before(table):
    table.reset(3)
    first = table.data.qpos.copy()
    table.reset(4)
    assert not np.array_equal(table.data.qpos, first)
    table.step(np.append(table.q() + 0.1, 1.0))
    table.reset(3)
    np.testing.assert_array_equal(table.data.qpos, first)
    assert np.abs(table.data.qvel).max() < 0.05  # at rest
    assert not table.judged().instant


@needs_robosuite
def test_joints_go_where_they_are_told(table):
    """Also the Sawyer's first one, which robosuite locks."""
    table.reset(3)
    aside(table)
    goal = table.q() + 0.2 * np.where(np.arange(len(table.joints)) % 2, -1, 1)
    for _ in range(40):
        table.step(np.append(goal, 0.0))
    np.testing.assert_allclose(table.q(), goal, atol=0.01)


@needs_robosuite
def test_the_hand_is_brought_to_a_pose(table):
    table.reset(3)
    position, axes = table.hand()
    goal, turned = position + [0.05, 0.1, -0.05], rotation((0.0, 0.0, 1.0), 0.3) @ axes
    hand = Reach(table)
    for _ in range(5):
        joints = hand.to(goal, turned)
    table.data.qpos[table.positions] = joints
    table._mj.mj_forward(table.model, table.data)
    np.testing.assert_allclose(table.hand()[0], goal, atol=1e-3)
    np.testing.assert_allclose(table.hand()[1], turned, atol=1e-2)


@needs_robosuite
def test_a_cube_is_shown_where_and_as_it_lies(table):
    for row in (3, 4, 5):
        table.reset(row)
        turn = matrix_of(table.quaternion(0))
        assert turn[2, 2] == pytest.approx(1, abs=1e-3)  # flat on the table
        heading_rad = math.atan2(turn[1, 0], turn[0, 0])
        assert experts._quarter(heading_rad - table.yaw(0)) == pytest.approx(0, abs=1e-3)
        assert abs(heading_rad) <= math.pi / 4 + 1e-3


@needs_robosuite
@pytest.mark.gl
@pytest.mark.parametrize("task", theirs.TASKS)
def test_every_view_shows_the_scene_and_follows_what_moves(task):
    made = ArmAtTable(task, Scene("Panda", 48))
    try:
        made.reset(seed=[3])
        world, frames = made.world, {name: made.view(name) for name in VIEWS}
        for frame in frames.values():
            assert (frame.shape, frame.dtype) == ((48, 48, 3), np.uint8)
            assert frame.astype(float).std() > 10
        place = int(world.model.joint(f"{world.things[0]}_joint0").qposadr[0])
        world.data.qpos[place] += 0.07  # [m]
        mujoco().mj_forward(world.model, world.data)
        for name in ("agentview", "near"):
            assert (made.view(name) != frames[name]).any(axis=-1).sum() >= 4
        world.data.qpos[world.positions[-2]] += 0.4  # [rad]
        mujoco().mj_forward(world.model, world.data)
        assert (made.view("eye_in_hand") != frames["eye_in_hand"]).any(axis=-1).mean() > 0.2
    finally:
        made.close()


@needs_robosuite
@pytest.mark.parametrize("task", [task.lower() for task in theirs.TASKS])
def test_a_policy_without_cameras_is_shown_where_things_are(example, task):
    suite = example(f"{task}.yaml:iiwa")
    stage = Environments(suite, 1)
    stage.reset({0: InitialState(3, {}, ())})
    assert stage.status[0].error is None
    table, shown = stage.vector, stage.observe(0)["environment_state"]
    assert isinstance(table, ArmAtTable)
    assert isinstance(shown, np.ndarray)
    assert shown.shape == (len(suite.pose_names),)
    for index in range(len(suite.poses)):
        pose = [*table.world.position(index), *table.world.quaternion(index)]
        np.testing.assert_allclose(shown[7 * index : 7 * index + 7], pose, atol=1e-6)
    stage.close()


@needs_robosuite
def test_a_cube_that_is_thrown_is_lifted_for_robosuite_and_not_for_us(table):
    table.reset(3)
    rest = table.q()
    table.data.qvel[table.model.joint("cube_joint0").dofadr[0] + 2] = 1.5
    seen = []
    for _ in range(12):
        table.step(np.append(rest, 0.0))
        seen.append(table.judged())
    assert any(judged.instant for judged in seen)
    assert sum(judged.success for judged in seen) <= 1  # at the top it is at rest for an instant


@needs_robosuite
@pytest.mark.parametrize("task", [task.lower() for task in theirs.TASKS])
@pytest.mark.parametrize("arm", ARMS)
def test_the_expert_does_the_task_with_each_arm(example, task, arm):
    expert = experts.Expert(example(f"{task}.yaml:{arm.lower()}"))
    shown = expert.demonstrate(0)
    expert.close()
    assert shown.failed_clause is None
    actions = np.stack([np.asarray(frame["action"]) for frame in shown.frames])
    assert actions.shape[1] == theirs.ARMS[arm] + 1
    assert np.abs(np.diff(actions[:, :-1], axis=0)).max() < 0.2  # [rad] in a control step


@needs_robosuite
def test_a_can_counts_where_it_stands_let_go_of_and_not_while_it_falls():
    table = World("PickPlaceCan", "UR5e")
    table.reset(3)
    rest, there = table.q(), table.model.joint("Can_joint0").qposadr[0]
    base = table.data.xpos[table._base]
    table.data.qpos[there : there + 3] = table.position(1) + base + [-0.03, -0.03, 0.09]
    judged = []
    for _ in range(20):
        table.step(np.append(rest, 0.0))
        judged.append(table.judged())
    assert judged[1].instant
    assert not judged[1].success  # it falls
    assert judged[-1].success
    assert not judged[-1].touched
    assert matrix_of(table.quaternion(0))[2, 2] == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(table.quaternion(1), [1, 0, 0, 0])
    table.data.qpos[there] -= 0.15  # the quarter beside it
    table.step(np.append(rest, 0.0))
    assert not table.judged().instant
    table.close()


@needs_robosuite
def test_our_panda_is_robosuites():
    """The links of `urdf_descriptors/panda.urdf` have the simulator's poses: its tokens mean this arm."""
    table, robot = World("Lift", "Panda"), robots.load("panda")
    table.reset(3)
    table._mj.mj_forward(table.model, table.data)
    poses = robot.forward_kinematics(np.append(table.q(), 0.0))
    base = table.data.body("robot0_base").xpos
    for number in range(1, 8):
        at = table.data.body(f"robot0_link{number}")
        np.testing.assert_allclose(poses[f"panda_link{number}"][:3, 3], at.xpos - base, atol=1e-3)
    table.close()


@needs_robosuite
@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_is_a_robot_whose_kinematics_are_mujocos(arm, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(f"robots add robosuite:{arm}")
    assert (status, err) == (0, ""), out
    assert run(f"robots check urdf_descriptors/robosuite_{arm.lower()}.urdf")[0] == 0
    robot, table = robots.load(f"robosuite_{arm.lower()}"), World("Lift", arm)
    assert robot.names[:-1] == table.joints
    assert (robot.joints[-1].is_gripper, robot.control_rate, robot.side.licence) == (True, world.RATE, "MIT")
    low, high = table.limits
    turning = np.isfinite(low)
    np.testing.assert_allclose(robot.lower[:-1][turning], low[turning])
    np.testing.assert_allclose(robot.upper[:-1][turning], high[turning])
    rng = np.random.default_rng(3)
    for _ in range(5):
        native = rng.uniform(robot.lower, robot.upper)
        placed = robot.positions(native)
        for joint in range(table.model.njnt):
            name = table.model.joint(joint).name.removeprefix("robot0_").removeprefix("gripper0_right_")
            if name in robot.urdf.by_name:
                table.data.qpos[table.model.jnt_qposadr[joint]] = placed.get(name, 0.0)
        table._mj.mj_kinematics(table.model, table.data)
        base = np.linalg.inv(_pose(table, "robot0_base"))
        poses = robot.forward_kinematics(native)
        names = [table.model.body(number).name for number in range(table.model.nbody)]
        compared = 0
        for name in names:
            link = name.removeprefix("robot0_").removeprefix("gripper0_right_")
            if name != link:
                np.testing.assert_allclose(poses[link], base @ _pose(table, name), atol=1e-9)
                compared += 1
        assert compared > len(robot.names)
        place, axes = table.hand()
        seen = tool_space(robot).seen(robot.to_dataset(native))
        np.testing.assert_allclose(seen[:6], [*place, *axes[:, 2]], atol=1e-5)
    table.close()


def _pose(table: World, body: str) -> np.ndarray:
    """A body's pose in the world."""
    there, pose = table.data.body(body), np.eye(4)
    pose[:3, :3], pose[:3, 3] = there.xmat.reshape(3, 3), there.xpos
    return pose


@needs_robosuite
def test_a_hand_is_one_value_between_its_measured_ends():
    """Of the Sawyer's two fingers the first; of the XArm7's six joints the one that leads another."""
    sawyer, xarm = (robots_arms.examined(arm).loaded() for arm in ("Sawyer", "XArm7"))
    finger = sawyer.joints[-1]
    assert finger.name == "l_finger_joint"
    assert finger.opened is not None
    assert finger.closed is not None
    assert abs(finger.closed - finger.opened) == pytest.approx(0.024, abs=0.004), "half of the pads' travel"
    assert xarm.names[-1] == "right_driver_joint"


@needs_robosuite
def test_its_import_says_nothing():
    code = "from morph_vla.engines.robosuite import theirs; theirs.robosuite()"
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@needs_robosuite
def test_a_record_has_both_verdicts_and_what_was_repaired(example):
    suite = example("lift.yaml:panda")
    record = evaluate(experts.Expert(suite), suite, episodes=2, workers=1, parallel=2, open_loop=200)
    assert [trial.success for trial in record.trials] == [True, True]
    for trial in record.trials:
        assert trial.clauses is not None
        assert (trial.clauses["instant_s"] or 0) >= (trial.clauses["success_s"] or 0) == 0.5
        assert trial.least["distance"] < 0.02
        assert trial.first_seen
    assert record.engine is not None
    assert (record.engine.name, record.engine.version) == ("robosuite", "1.5.2")
    assert record.engine.others["repairs"] == theirs.REPAIRS
