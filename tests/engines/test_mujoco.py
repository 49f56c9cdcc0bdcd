"""The embedded engine: what a reset, a step, a reading and a frame promise."""

import dataclasses
import importlib.metadata
import importlib.util
import math

import numpy as np
import pytest
from three_worlds import state_of, wave

from morph_vla import robots
from morph_vla.engines import by_name, hands
from morph_vla.engines.engine import Worlds, actions_of, step_one
from morph_vla.engines.success import Reading
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.suite import Placement, initial_state

if importlib.util.find_spec("mujoco") is None:  # not importorskip: mujoco reads MUJOCO_GL when it is imported
    pytest.skip("the embedded engine needs the extra 'sim'", allow_module_level=True)

from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites.shapes import resting_height


def everything(engine: MujocoEngine, index: int) -> np.ndarray:
    data = engine.data(index)
    return np.concatenate([data.qpos, data.qvel, data.ctrl, data.qacc_warmstart, [data.time]])


# ------------------------------------------------------------------------------------------ reset and worlds


def test_two_engines_agree_to_the_last_bit(panda, suite, trio):
    other = MujocoEngine(panda, suite)
    for engine, index in ((trio, 1), (other, 0)):
        engine.reset({index: state_of(engine, 5)})
        for step in range(11):
            step_one(engine, index, wave(step))
    assert np.array_equal(everything(trio, 1), everything(other, 0))


def test_a_reset_leaves_nothing_of_what_came_before(trio):
    trio.reset({0: state_of(trio, 7)})
    fresh = everything(trio, 0)
    for step in range(7):
        step_one(trio, 0, wave(step))
    assert not np.array_equal(everything(trio, 0), fresh)
    trio.reset({0: state_of(trio, 7)})
    assert np.array_equal(everything(trio, 0), fresh)


def test_a_world_does_not_know_of_the_others(trio):
    for index in range(3):
        trio.reset({index: state_of(trio, index)})
    before = [everything(trio, index) for index in range(3)]
    for step in range(5):
        step_one(trio, 1, wave(step))
    trio.reset({2: state_of(trio, 11)})
    assert np.array_equal(everything(trio, 0), before[0])
    assert not np.array_equal(everything(trio, 1), before[1])
    assert not np.array_equal(everything(trio, 2), before[2])


def test_a_reset_puts_objects_and_arm_where_the_table_says(trio, suite, panda):
    state = state_of(trio, 13)
    trio.reset({0: state})
    for name in ("cube", "bowl"):
        body, (x, y, yaw) = trio.data(0).body(name), state.poses[name]
        assert body.xpos[:2] == pytest.approx([x, y], abs=2e-3)
        assert abs(body.xpos[2] - resting_height(suite.objects[name])) < 2e-3
        assert body.xquat == pytest.approx([math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)], abs=5e-3)
    start = panda.rest + np.array([*state.arm[:7], 0.0])
    assert trio.native(0) == pytest.approx(start, abs=5e-3)


def test_an_arm_begins_where_the_suite_says(panda, suite):
    begun = dataclasses.replace(suite, start={"panda_joint2": 0.31, "panda_joint4": -2.3})
    engine, state = MujocoEngine(panda, begun), initial_state(begun, 3, 8)
    engine.reset({0: state})
    expected = panda.rest + np.array([*state.arm[:7], 0.0])
    for index, value in ((1, 0.31), (3, -2.3)):
        expected[index] = value + state.arm[index]
    assert engine.native(0) == pytest.approx(expected, abs=5e-3)
    engine.close()


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (
            {"panda_join2": 0.1},
            r"start: robot 'panda' moves no joint 'panda_join2'; did you mean 'panda_joint2'\?",
        ),
        (
            {"panda_joint4": 0.1},
            r"start\.panda_joint4: 0\.1 is outside the joint's limits \[-3\.1416, 0\]",
        ),
    ],
)
def test_a_start_that_the_robot_cannot_take_is_said(panda, suite, start, words):
    wrong = dataclasses.replace(suite, start=start)
    with pytest.raises(MorphVlaError, match=words):
        hands.start(panda, wrong)
    with pytest.raises(MorphVlaError, match=words):
        hands.first_posture(panda, wrong, initial_state(wrong, 0, 8))


def test_it_has_every_member_of_worlds(panda, suite):
    worlds: Worlds = MujocoEngine(panda, suite, 2)  # pyright holds it against every signature
    members = {name for name in (*vars(Worlds), *Worlds.__annotations__) if not name.startswith("_")}
    assert {"robot", "lockstep", "place", "step", "scene_view", "close"} <= members
    assert members <= {*dir(worlds), *vars(worlds)}
    assert (worlds.count, worlds.lockstep) == (2, False)


# ------------------------------------------------------------------------------------- order, units, motion


def test_joints_come_in_the_robots_order(trio, panda):
    names = [trio.model.joint(int(j)).name for j in trio.model.jnt_dofadr.argsort()]
    addresses = {name: int(trio.model.joint(name).qposadr[0]) for name in names}
    assert trio.state_addresses == [addresses[joint.name] for joint in panda.joints]


def test_the_state_is_in_the_datasets_units(trio, panda):
    trio.reset({0: state_of(trio, 0)})
    state = trio.state(0)
    assert state.dtype == np.float32
    assert state.shape == (8,)
    assert state[:7] == pytest.approx(trio.native(0)[:7], abs=1e-6)
    assert state[7] == pytest.approx(0.0, abs=0.02)  # open
    assert trio.reading(0).opening == pytest.approx(1.0, abs=0.02)
    closed = np.asarray(panda.to_dataset(panda.rest), dtype=np.float64)
    closed[7] = 1.0
    for _ in range(17):
        step_one(trio, 0, closed)
    assert trio.state(0)[7] == pytest.approx(1.0, abs=0.02)
    assert trio.reading(0).opening == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("joint", range(7))
def test_a_step_moves_each_joint_towards_its_target(trio, panda, joint):
    trio.reset({0: state_of(trio, 3)})
    hold = trio.state(0).astype(np.float64)
    target = hold.copy()
    target[joint] += 0.1
    step_one(trio, 0, target)
    first = trio.state(0)
    assert 0.0 < first[joint] - hold[joint] < 0.11
    for _ in range(14):
        step_one(trio, 0, target)
    assert trio.state(0) == pytest.approx(target, abs=0.02)


def test_a_target_beyond_a_limit_is_held_at_the_limit(trio, panda):
    trio.reset({0: state_of(trio, 3)})
    step_one(trio, 0, np.full(8, 99.0))
    upper = [joint.upper for joint in panda.joints[:7]]
    assert trio.data(0).ctrl[:7] == pytest.approx(upper)
    assert trio.data(0).ctrl[7:] == pytest.approx([0.0, 0.0])  # both fingers closed, not past it


def test_a_joint_that_turns_without_end_is_driven_past_half_a_turn(panda, suite, tmp_path):
    urdf, side = panda.files
    before, joint, after = urdf.read_text().partition('<joint name="panda_joint7" type="revolute">')
    assert joint
    (tmp_path / "arm.urdf").write_text(before + joint.replace("revolute", "continuous") + after)
    (tmp_path / "arm.yaml").write_text(side.read_text())
    robot = robots.load(tmp_path / "arm.urdf")
    assert (robot.upper[6], robot.stops[1][6], robot.stops[0][5]) == (np.pi, np.inf, robot.lower[5])
    engine = MujocoEngine(robot, suite)
    engine.reset({0: state_of(engine, 3)})
    target = engine.state(0).astype(np.float64)
    while target[6] < 4.1:  # a turn of 4.1 rad, and not the short way to the same angle
        target[6] += 0.1
        step_one(engine, 0, target)
    for _ in range(14):
        step_one(engine, 0, target)
    assert engine.state(0)[6] == pytest.approx(target[6], abs=0.02)


def test_a_suite_may_begin_beyond_half_a_turn(panda, suite):
    joints = tuple(dataclasses.replace(joint, type="continuous") for joint in panda.joints)
    posture = hands.start(
        dataclasses.replace(panda, joints=joints), dataclasses.replace(suite, start={"panda_joint7": 3.5})
    )
    assert posture[6] == 3.5


def test_both_fingers_follow_the_one_action(trio):
    trio.reset({0: state_of(trio, 3)})
    action = trio.state(0).astype(np.float64)
    action[7] = 0.5
    for _ in range(13):
        step_one(trio, 0, action)
    fingers = [trio.data(0).joint(f"panda_finger_joint{i}").qpos[0] for i in (1, 2)]
    assert fingers == pytest.approx([0.02, 0.02], abs=1e-3)


def test_the_arm_does_not_sag(trio):
    trio.reset({0: state_of(trio, 3)})
    hold = trio.state(0).astype(np.float64)
    for _ in range(31):
        step_one(trio, 0, hold)
    assert trio.state(0)[:7] == pytest.approx(hold[:7], abs=2e-3)


def test_physics_that_diverges_is_said(trio):
    trio.reset({0: state_of(trio, 3)})
    trio.data(0).joint("cube/free").qvel[:] = 2000.0
    trio.reset({1: state_of(trio, 3)})
    measured = trio.step({0: wave(0), 1: wave(0)})
    assert isinstance(measured[0], MorphVlaError)
    assert isinstance(measured[1], Reading)  # the world beside it does not notice
    trio.data(0).joint("cube/free").qvel[:] = 2000.0
    with pytest.raises(MorphVlaError, match="the physics diverged: a joint or object moves faster than 1000"):
        step_one(trio, 0, wave(0))
    trio.reset({0: state_of(trio, 3)})
    trio.data(0).joint("cube/free").qvel[:] = 1e11  # of which MuJoCo by itself would begin anew
    with pytest.raises(MorphVlaError, match="the physics diverged"):
        step_one(trio, 0, wave(0))
    trio.reset({0: state_of(trio, 3)})  # contained: the world is as good as new
    assert np.isfinite(everything(trio, 0)).all()


# --------------------------------------------------------------------------------------------- the readings


def test_a_cube_lying_in_the_bowl_is_at_rest_by_a_margin(trio, suite, record_property):
    """The suite's thresholds must tell lying from moving: measured here, and named in the YAML file."""
    state = state_of(trio, 2)
    trio.reset({0: state})
    free = trio.data(0).joint("cube/free")
    x, y, _ = state.poses["bowl"]
    free.qpos[:3] = [x + 0.01, y - 0.005, 0.06]
    hold = trio.state(0).astype(np.float64)
    for _ in range(31):  # fall, and lie still
        step_one(trio, 0, hold)
    readings = [step_one(trio, 0, hold) for _ in range(31)]
    speed, spin = max(reading.speed for reading in readings), max(reading.spin for reading in readings)
    record_property("resting_speed_m_s", speed)
    record_property("resting_spin_rad_s", spin)
    print(f"resting in the bowl: {speed:.2g} m/s, {spin:.2g} rad/s")
    assert speed < suite.success.max_speed / 10
    assert spin < suite.success.max_spin / 10
    low, high = np.asarray(suite.success.low), np.asarray(suite.success.high)
    inside = readings[-1].object_position - readings[-1].target_position
    assert np.all(low + 0.005 < inside)
    assert np.all(inside < high - 0.005)
    assert not readings[-1].touching


def test_speed_and_spin_are_the_objects_own(trio):
    trio.reset({0: state_of(trio, 2)})
    free = trio.data(0).joint("cube/free")
    free.qpos[2] = 0.5
    free.qvel[:] = [0.3, -0.4, 0.0, 0.0, 0.0, 1.7]
    trio._mj.mj_forward(trio.model, trio.data(0))
    assert trio.reading(0).speed == pytest.approx(0.5)
    assert trio.reading(0).spin == pytest.approx(1.7)
    assert trio.reading(0).object_position[2] == pytest.approx(0.5)


def test_fingers_that_touch_are_told_apart(trio):
    """The cube between the open fingers touches neither; between closed ones, both."""
    trio.reset({0: state_of(trio, 2)})
    hold = trio.state(0).astype(np.float64)
    tool = trio.data(0).body(trio.suite.expert.tool)
    free = trio.data(0).joint("cube/free")
    pose = [*tool.xpos, *tool.xquat]
    free.qpos[:], free.qvel[:] = pose, 0.0
    trio._mj.mj_forward(trio.model, trio.data(0))
    assert not trio.reading(0).touching
    hold[7] = 1.0
    reading = trio.reading(0)
    for _ in range(5):
        for _ in range(4):
            free.qpos[:], free.qvel[:] = pose, 0.0
            trio._mj.mj_forward(trio.model, trio.data(0))
        reading = step_one(trio, 0, hold)
    assert reading.touching
    assert reading.grasping
    assert 0.2 < reading.opening < 0.8


@pytest.mark.parametrize("link", ["panda_link5", "panda_link7", "panda_hand"])
def test_any_link_that_touches_the_object_counts_and_only_fingers_grasp(trio, link):
    """The cube in the middle of a link: whichever of its shapes it meets, the robot has not let go."""
    trio.reset({0: state_of(trio, 2)})
    data = trio.data(0)
    shapes = np.flatnonzero(trio.model.geom_bodyid == trio.model.body(link).id)
    data.joint("cube/free").qpos[:3] = data.geom_xpos[shapes[0]]
    trio._mj.mj_forward(trio.model, data)
    reading = trio.reading(0)
    assert (reading.touching, reading.grasping) == (True, False)


def test_what_is_fixed_to_a_finger_is_of_that_finger(panda, tmp_path):
    urdf, side = panda.files
    pads = "".join(
        f'<link name="{name}"/><joint name="{name}_j" type="fixed"><parent link="{on}"/>'
        f'<child link="{name}"/></joint>'
        for name, on in (("pad", "panda_leftfinger"), ("tip", "pad"), ("camera", "panda_hand"))
    )
    (tmp_path / "arm.urdf").write_text(urdf.read_text().replace("</robot>", f"{pads}</robot>"))
    (tmp_path / "arm.yaml").write_text(side.read_text())
    (jaws,) = hands.jaws(robots.load(tmp_path / "arm.urdf"))
    assert jaws == ({"panda_leftfinger", "pad", "tip"}, {"panda_rightfinger"})
    assert not hands.is_held({"pad", "tip", "camera"}, jaws)
    assert hands.is_held({"pad", "panda_rightfinger"}, jaws)
    assert hands.jaws(robots.load("so101"))[0][0] >= hands.fingers(robots.load("so101"))[0] & {"gripper"}


def test_the_targets_orientation_is_read(trio):
    trio.reset({0: state_of(trio, 2)})
    turn = [math.cos(0.35), 0.0, math.sin(0.35), 0.0]
    trio.data(0).joint("bowl/free").qpos[3:] = turn
    trio._mj.mj_forward(trio.model, trio.data(0))
    assert trio.reading(0).target_quaternion == pytest.approx(turn)


# ----------------------------------------------------------------------------------- objects and the policy


def test_a_cylinder_stands_on_its_base(panda, suite):
    can = ObjectSpec("cylinder", (0.03, 0.11, 0.0), 0.2)
    place = Placement((0.5, 0.5), (-0.3, -0.3))
    more = dataclasses.replace(
        suite, objects={**suite.objects, "can": can}, placement={**suite.placement, "can": place}
    )
    engine = MujocoEngine(panda, more)
    engine.reset({0: state_of(engine, 0)})
    assert engine.data(0).body("can").xpos == pytest.approx([0.5, -0.3, 0.055], abs=2e-3)


def test_masses_are_those_of_the_suite(trio, suite):
    for name, thing in suite.objects.items():
        assert trio.model.body(name).mass[0] == pytest.approx(thing.mass)


def test_an_answer_is_cut_to_the_robots_joints():
    actions = actions_of({"actions": np.ones((5, 11))}, 7)
    assert actions.shape == (5, 7)
    assert actions.dtype == np.float32


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"action": 1}, r"the policy's answer has no 'actions' \(got \['action'\]\)"),
        ([1.0], r"the policy's answer has no 'actions' \(got list\)"),
        (
            {"actions": np.ones((5, 6))},
            r"the policy's actions have shape \(5, 6\); expected \(horizon, 7\), one column per joint",
        ),
        ({"actions": np.ones(7)}, r"the policy's actions have shape \(7,\); expected \(horizon, 7\)"),
        ({"actions": np.ones((0, 7))}, r"the policy's actions have shape \(0, 7\); expected \(horizon, 7\)"),
        ({"actions": np.full((3, 7), np.nan)}, "the policy's actions hold 21 values that are not finite"),
    ],
)
def test_an_answer_that_is_none_is_described(answer, sentence):
    with pytest.raises(MorphVlaError, match=f"^{sentence}"):
        actions_of(answer, 7)


@pytest.mark.usefixtures("pip_installs")
def test_without_mujoco_the_extra_is_named(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    remedy = r"engine mujoco is not installed; install the extra: pip install 'morph-vla\[sim\]'"
    with pytest.raises(MissingExtraError, match=remedy):
        by_name.facts("mujoco")


def test_the_state_is_of_the_action_joint_and_not_of_one_that_follows_it(suite, tmp_path):
    """Also where the follower stands first in the file: nothing but its servo holds it to its leader."""
    robot = robots.load("panda")
    text = robot.urdf_path.read_text()
    start = text.index('  <joint name="panda_finger_joint2"')
    end = text.index("</joint>", start) + len("</joint>\n")
    joint, rest = text[start:end], text[:start] + text[end:]
    first = rest.index('  <joint name="panda_finger_joint1"')
    path = tmp_path / "panda.urdf"
    path.write_text(rest[:first] + joint + rest[first:])
    path.with_suffix(".yaml").write_text(robot.urdf_path.with_suffix(".yaml").read_text())
    engine = MujocoEngine(robots.load(path), suite)
    names = [engine.model.joint(i).name for i in range(engine.model.njnt)]
    assert names.index("panda_finger_joint2") < names.index("panda_finger_joint1")
    assert engine.state_addresses[-1] == engine.model.joint("panda_finger_joint1").qposadr[0]
    engine.close()
