"""Robosuite's tasks on seven arms. What needs robosuite runs where it is installed: `make test-robosuite`."""

import dataclasses
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.demonstrations import recording
from morph_vla.demonstrations import robosuite as experts
from morph_vla.demonstrations.reach import Reach
from morph_vla.engines.gymnasium import making, reading
from morph_vla.engines.gymnasium.making import Made
from morph_vla.engines.gymnasium.stage import Environments
from morph_vla.engines.mujoco.scene import mujoco
from morph_vla.engines.robosuite import arms as robots_arms
from morph_vla.engines.robosuite import theirs, world
from morph_vla.engines.robosuite.vector import VIEWS, ArmAtTable, Scene
from morph_vla.engines.robosuite.world import OPENINGS, World
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.robots.geometry import POSE, matrix_of, rotation
from morph_vla.robots.tool import tool_space
from morph_vla.suites.environment import EnvironmentSuite, load_recordable, load_tasks
from morph_vla.suites.suite import InitialState

needs_robosuite = pytest.mark.skipif(
    find_spec("robosuite") is None, reason="robosuite is not installed: make test-robosuite"
)
ARMS = tuple(theirs.ARMS)


@pytest.fixture
def example(root):
    """A task of `docs/examples`, without cameras."""

    def load(name: str, *overrides: str) -> EnvironmentSuite:
        (task,) = load_tasks(root / f"docs/examples/robosuite_{name}", ["images={}", *overrides])
        assert isinstance(task, EnvironmentSuite)
        return task

    return load


# ------------------------------------------------------------------------------------- without robosuite


@pytest.mark.parametrize("task", theirs.TASKS)
def test_a_suite_has_a_task_for_each_arm_and_says_what_is_repaired(root, task):
    path = root / f"docs/examples/robosuite_{task.lower()}.yaml"
    tasks = load_recordable(path)
    assert [each.task_name for each in tasks] == [arm.lower() for arm in ARMS]
    for each, arm in zip(tasks, ARMS, strict=True):
        assert isinstance(each, EnvironmentSuite)
        assert (each.id, each.kwargs, each.control_rate) == (task, {"arm": arm}, world.RATE)
        assert each.robot == ("panda" if arm == "Panda" else f"robosuite_{arm.lower()}")
        assert len(experts.layout(dataclasses.replace(each, robot="")).joints) == theirs.ARMS[arm] + 1
    text = (root / "docs/examples/robosuite_lift.yaml").read_text()
    assert all(word in text for word in ("multiccd", "Sawyer", "XArm7"))


def test_a_missing_robosuite_is_one_sentence_that_says_how_to_install_it(example, monkeypatch):
    def absent(module: str, extra: str):
        raise MissingExtraError(f"'{module}' is not installed")

    monkeypatch.setattr(theirs, "require", absent)
    with pytest.raises(
        MissingExtraError, match=r"^robosuite is not installed: pip install 'morph-vla\[robosu"
    ):
        making.facts(example("lift.yaml:panda"))


@pytest.mark.parametrize(
    ("task", "arm", "sentence"),
    [
        (
            "Lifft",
            "Panda",
            r"^no task is called 'Lifft'; did you mean 'Lift'\?; there are Lift, Stack, PickPl",
        ),
        ("Lift", "sawyer", r"^no arm is called 'sawyer'; did you mean 'Sawyer'\?; there are Panda, Sawyer"),
    ],
)
def test_an_unknown_task_or_arm_is_named(task, arm, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        theirs.environment(task, arm, seed=0)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"arms": "Panda"}, r"^kwargs.arms: no such key; did you mean 'arm'\?$"),
        ({"arm": 7}, "^kwargs.arm: expected a name, got 7$"),
        ({"size": 0}, "^kwargs.size: expected a number of pixels, got 0$"),
    ],
)
def test_what_a_scene_cannot_be_is_named(kwargs, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        Scene.of(kwargs)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("id=Lifft", r"^no task is called 'Lifft'; did you mean 'Lift'\?; there are Lift, Stack, PickPl"),
        ("kwargs.arm=Pandda", r"^no arm is called 'Pandda'; did you mean 'Panda'\?; there are Panda, Saw"),
        (
            "state=[joints, hand]",
            r"state: a recording has one value for each action, \[joints, gripper\], not",
        ),
        (
            "images={front: render}",
            r"images.front: 'render' cannot be recorded \(expected one of agentview, ",
        ),
    ],
)
def test_what_cannot_be_recorded_is_one_sentence(example, change, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        recording.layout(example("lift.yaml:panda", change))


def test_an_arm_that_was_not_added_is_named_with_the_command_that_adds_it(example):
    words = r"^no robot 'robosuite_ur5e' .*; `morph-vla robots add robosuite:UR5e` makes it$"
    with pytest.raises(MorphVlaError, match=words):
        recording.layout(example("lift.yaml:ur5e"))
    with pytest.raises(MorphVlaError, match=r"^no robot 'ur5' \(the robots are .*\)$"):
        recording.layout(example("lift.yaml:ur5e", "robot=ur5"))


def test_only_robosuite_has_an_expert(example):
    with pytest.raises(
        MorphVlaError, match=r"of other simulators only robosuite has an expert, not 'gymnasi"
    ):
        experts.Expert(dataclasses.replace(example("lift.yaml:panda"), kind="gymnasium"))


def test_a_recording_without_cameras_has_the_poses_of_the_suite(example, root):
    named = tuple(f"cube {value}" for value in POSE)
    assert recording.layout(example("lift.yaml:panda")).poses == named
    (with_cameras,) = load_tasks(root / "docs/examples/robosuite_lift.yaml:panda")
    assert recording.layout(with_cameras).poses == ()
    stack = recording.layout(example("stack.yaml:panda")).poses
    assert (len(stack), stack[0], stack[7]) == (14, "object x", "target x")
    assert recording.layout(example("pickplacecan.yaml:panda")).poses == stack


class Point:
    """An environment that only counts its steps, and is seen when it is looked at."""

    num_envs: int = 1
    render_mode: str | None = None
    metadata: Mapping[str, object] = {}
    single_action_space: object = np.zeros(1)

    def __init__(self):
        self.steps, self.looks = 0, 0

    def reset(self, *, seed):
        self.steps = 0
        return np.zeros((1, 1)), {}

    def step(self, actions):
        self.steps += 1
        info = {"near": [self.steps % 2], "success": [0], "distance": [abs(3 - self.steps)]}
        return np.zeros((1, 1)), [0.0], [False], [False], info

    def view(self):
        self.looks += 1
        return np.full((4, 6, 3), self.steps, np.uint8)

    def render(self) -> Sequence[object]:
        return []

    def get_attr(self, name):
        return ()

    def set_attr(self, name, values):
        pass

    def close(self):
        pass


def test_views_are_rendered_when_a_policy_looks_and_what_decides_nothing_is_noted(example, monkeypatch):
    given = ["images={near: near}", "state=[observation]", "noted=[near]", "measured=[distance]"]
    suite, point = example("lift.yaml:panda", *given), Point()
    monkeypatch.setattr(
        "morph_vla.engines.gymnasium.stage.make",
        lambda *_: Made(point, reading.leaves, {"near": point.view}),
    )
    stage = Environments(suite, 1)
    stage.reset({0: InitialState(0, {}, ())})
    assert stage.status[0].error is None
    for _ in range(5):
        standing = stage.step({0: np.zeros(1)})[0]
    assert point.looks == 0
    assert stage.observe(0)["images/near"].max() == 5  # pyright: ignore[reportAttributeAccessIssue]
    assert (point.looks, standing.noted, standing.least) == (1, {"near": 3}, {"distance": 0.0})


# ------------------------------------------------------------------------------------- with robosuite


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
