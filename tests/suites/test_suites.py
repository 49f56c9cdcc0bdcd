"""The shipped suites of other bodies: their facts, their experts, their targets, and what is recorded."""

import dataclasses
import importlib.util
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines import success as criterion
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import Suite, initial_state, load

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp")):
    pytest.skip("the scripted experts need the extra 'sim'", allow_module_level=True)

from morph_vla.demonstrations import check
from morph_vla.demonstrations import recording as record
from morph_vla.demonstrations.experts import PickAndPlace, disturbed
from morph_vla.engines.engine import step_one
from morph_vla.engines.episode import Episodes
from morph_vla.engines.mujoco.engine import MujocoEngine

FACTS = {  # name -> text, rate, cameras, where the object lies in the target when at rest [m]
    "so101_pick_orange": ("Grab orange and place into plate", 30, ["front", "wrist"], (0.01, -0.005, 0.05)),
    "g1_dex1_red_block": (
        "Pick up the red block and place it inside the yellow box.", 30,
        ["cam_left_high", "cam_left_wrist", "cam_right_wrist"], (0.01, -0.005, 0.05),
    ),
    "droid_panda:can_in_mug": ("put the can in the mug", 15, ["exterior", "wrist"], (0.005, -0.003, 0.056)),
    "droid_panda:banana_in_bin": ("put banana in the bin", 15, ["exterior", "wrist"], (0.01, -0.005, 0.03)),
}  # fmt: skip
NAMES = tuple(FACTS)
QUICK = "droid_panda:banana_in_bin"


def small(name: str) -> Suite:
    """The suite with frames of 24 x 24."""
    suite = load(name)
    cameras = {key: dataclasses.replace(one, width=24, height=24) for key, one in suite.cameras.items()}
    return dataclasses.replace(suite, cameras=cameras)


@pytest.fixture(scope="module", params=NAMES)
def engine(request):
    suite = small(request.param)
    engine = MujocoEngine(robots.load(suite.robot), suite)
    yield engine
    engine.close()


def begin(engine: MujocoEngine, number: int) -> None:
    engine.reset({0: initial_state(engine.suite, number, len(engine.robot.joints))})


def put(engine: MujocoEngine, offset, velocity=(0.0, 0.0, 0.0)) -> None:
    """The object at `offset` [m] from the target, by script."""
    data, success = engine.data(0), engine.suite.success
    free = data.joint(f"{success.object}/free")
    free.qpos[:3] = data.body(success.target).xpos + np.asarray(offset)
    free.qpos[3:] = [1.0, 0.0, 0.0, 0.0]
    free.qvel[:] = [*velocity, 0.0, 0.0, 0.0]


def test_a_suite_has_its_papers_text_rate_and_cameras(engine):
    suite, robot = engine.suite, engine.robot
    text, rate, cameras, _ = FACTS[suite.label]
    assert (suite.task, suite.control_rate, list(suite.cameras)) == (text, rate, cameras)
    assert suite.control_rate == robot.control_rate
    if robot.side.cameras:  # a Panda's are the laboratory's, not the robot's
        assert set(suite.cameras) <= set(robot.side.cameras)
    assert all(camera.width == camera.height == 96 for camera in load(suite.label).cameras.values())


# ---------------------------------------------------------------------------------------------- the experts


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_expert_does_the_task_from_the_states_that_are_evaluated(name):
    """Disturbed as it is when it is recorded; `morph-vla suites check` runs all 300."""
    done = check.check(load(name), 13, workers=1)
    assert len(done.outcomes) == 13
    assert done.successes >= 12, done.failed
    assert done.seconds is not None
    assert done.seconds < 0.75 * load(name).episode_seconds


@pytest.mark.parametrize("name", NAMES)
def test_demonstrations_differ_from_what_is_evaluated(name):
    suite, joints = load(name), 7
    evaluated = {str(initial_state(suite, i, joints).poses) for i in range(101)}
    shown = {str(initial_state(suite, i, joints, stream="demonstration").poses) for i in range(101)}
    assert not evaluated & shown


def test_a_plan_moves_the_limb_alone_within_its_limits(engine):
    begin(engine, 5)
    robot, plan = engine.robot, PickAndPlace(engine).plan(0)
    rest = np.asarray(robot.to_dataset(robot.rest))
    assert np.array_equal(plan.actions[:, ~engine.limb], np.tile(rest[~engine.limb], (len(plan.free), 1)))
    native = robot.to_native(plan.actions)
    assert np.all(native >= robot.lower - 1e-6)
    assert np.all(native <= robot.upper + 1e-6)
    arm = engine.limb & ~np.array([joint.is_gripper for joint in robot.joints])
    assert np.abs(np.diff(native[:, arm], axis=0)).max() * engine.suite.control_rate < 3.6  # [rad/s] no jump
    assert native[0, arm] == pytest.approx(engine.native(0)[arm], abs=0.1)
    executed = robot.to_native(disturbed(plan, engine, 5))
    assert np.array_equal(executed[:, ~arm], native[:, ~arm])
    assert 0.005 < np.abs(executed - native)[:, arm].max() < 0.15


def test_a_plan_is_the_same_for_the_same_state(engine):
    begin(engine, 5)
    first = PickAndPlace(engine).plan(0).actions
    begin(engine, 7)
    PickAndPlace(engine).plan(0)
    begin(engine, 5)
    assert np.array_equal(PickAndPlace(engine).plan(0).actions, first)


def test_commands_and_states_are_in_the_datasets_order_and_units(engine):
    begin(engine, 5)
    robot, spec = engine.robot, engine.suite.expert
    assert engine.state(0) == pytest.approx(robot.to_dataset(engine.native(0)), abs=1e-4)
    actions = PickAndPlace(engine).plan(0).actions
    for j, joint in enumerate(robot.joints):
        ends = robot.side.grippers.get(joint.name)
        if ends is None or not engine.limb[j]:
            continue
        width = ends.dataset_closed - ends.dataset_open
        wanted = [ends.dataset_open + share * width for share in (spec.opened, spec.closed)]
        assert [actions[:, j].min(), actions[:, j].max()] == pytest.approx(sorted(wanted))
        if not spec.grip_seconds:  # DROID's gripper is told open or closed, and is as quick as it can be
            continue
        # A command that jumps would ask for more than the joint's velocity limit.
        assert joint.velocity is not None
        native = robot.to_native(actions)[:, j]
        assert np.abs(np.diff(native)).max() * engine.suite.control_rate < joint.velocity


def test_joints_that_no_action_drives_are_not_in_the_model(engine):
    names = {engine.model.joint(i).name for i in range(engine.model.njnt)}
    free = {f"{name}/free" for name in engine.suite.objects}
    assert names - free == {drive[0] for drive in engine.robot.drives()}


# ----------------------------------------------------------------------------------------------- the targets


def test_a_resting_object_is_at_rest_by_a_margin(engine, record_property):
    """The suite's thresholds must tell lying from moving: measured here, and named in the YAML file."""
    begin(engine, 2)
    put(engine, FACTS[engine.suite.label][3])
    hold = engine.state(0).astype(np.float64)
    for _ in range(61):  # fall, and lie still
        step_one(engine, 0, hold)
    readings = [step_one(engine, 0, hold) for _ in range(31)]
    speed, spin = max(reading.speed for reading in readings), max(reading.spin for reading in readings)
    record_property("resting_speed_m_s", speed)
    record_property("resting_spin_rad_s", spin)
    print(f"{engine.suite.label}: resting at {speed:.2g} m/s, {spin:.2g} rad/s")
    success = engine.suite.success
    assert speed < success.max_speed / 10
    assert spin < success.max_spin / 10
    inside = readings[-1].object_position - readings[-1].target_position
    assert np.all(np.asarray(success.low) + 0.004 < inside)
    assert np.all(inside < np.asarray(success.high) - 0.004)
    held = criterion.clauses(criterion.begin(readings[0], engine.suite.table.height), readings[-1], success)
    assert held["inside"]
    assert held["upright"]


def lie(
    engine: MujocoEngine, offset, gripper: float, steps: int = 61
) -> tuple[criterion.Progress, str | None]:
    """The object put at `offset` from the target, with the limb's gripper at a share closed: how it ended."""
    begin(engine, 2)
    native = np.asarray(engine.robot.rest, dtype=np.float64).copy()
    for j, joint in enumerate(engine.robot.joints):
        if joint.is_gripper and engine.limb[j]:
            assert joint.opened is not None
            assert joint.closed is not None
            native[j] = joint.opened + gripper * (joint.closed - joint.opened)
    row = np.asarray(engine.robot.to_dataset(native))
    for _ in range(31):
        step_one(engine, 0, row)
    episodes = Episodes(engine)
    episodes.begin([0])
    put(engine, offset)
    for _ in range(steps):
        episodes.step({0: row})
    status = episodes.status[0]
    return status.progress, criterion.failed_clause(status.progress, status.reading, engine.suite.success)


def test_an_object_in_the_target_is_a_success_once_it_has_lain_there(engine):
    where, suite = FACTS[engine.suite.label][3], engine.suite
    progress, clause = lie(engine, where, gripper=0.0)
    assert clause is None
    assert progress.success_step is not None
    dwell = criterion.dwell_steps(suite.success, suite.control_rate)
    assert progress.success_step >= dwell
    assert lie(engine, where, gripper=0.0, steps=dwell - 1)[1] in ("dwell", "at_rest")


def test_a_gripper_that_is_closed_has_let_go_of_nothing(engine):
    assert lie(engine, FACTS[engine.suite.label][3], gripper=1.0)[1] == "released"


@pytest.mark.parametrize("direction", [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_an_object_beside_the_target_is_outside(engine, direction):
    success = engine.suite.success
    reach = 0.05 + max(*success.high[:2], *(-v for v in success.low[:2]))
    offset = (reach * direction[0], reach * direction[1], 0.04)
    progress, clause = lie(engine, offset, gripper=0.0)
    assert clause in ("reached", "knocked", "grasped", "lost")  # the resting arm may stand there
    assert progress.longest["inside"] == 0


def test_the_arms_first_pose_is_the_limbs_alone(engine):
    begin(engine, 3)
    rest, arm = engine.robot.rest, engine.limb & ~np.array([j.is_gripper for j in engine.robot.joints])
    assert np.all(engine.native(0)[arm] != rest[arm])
    assert engine.native(0)[~engine.limb] == pytest.approx(rest[~engine.limb], abs=2e-3)


# ------------------------------------------------------------------------------------- morph-vla suites check


def test_a_check_prints_the_rate_its_interval_and_the_time(run):
    status, out, _ = run("suites check so101_pick_orange --episodes 3 --workers 1")
    assert status == 0
    assert re.fullmatch(
        r"so101_pick_orange: the expert succeeded in 3 of 3 initial states, 100\.0% \[43\.\d, 100\.0\] "
        r"\(95% Wilson\), median \d\.\d s to success\n",
        out,
    )


@pytest.mark.slow
def test_a_check_of_an_expert_that_fails_names_the_clause(run):
    """A gripper that never closes: the orange is not even touched, or is left where it was."""
    line = "suites check so101_pick_orange expert.closed=0.41 --episodes 3 --workers 1"
    status, out, _ = run(line)
    assert status == 1
    assert "the expert succeeded in 0 of 3 initial states, 0.0% [0.0, 56.1]" in out
    assert re.search(r"  failed at '(reached|grasped|lifted)': \d \(episodes \d", out)
    status, out, _ = run(f"{line} --json")
    said = json.loads(out)
    assert (status, said["successes"], said["trials"], said["median_seconds"]) == (1, 0, 3, None)
    assert sorted(number for numbers in said["failed"].values() for number in numbers) == [0, 1, 2]


def test_a_check_needs_an_episode(run):
    status, _, err = run("suites check so101_pick_orange --parallel 7")
    assert (status, "with mujoco: --parallel would change nothing; leave it out" in err) == (2, True)
    status, _, err = run("suites check so101_pick_orange --episodes 0")
    assert status == 2
    assert err.endswith("error: --episodes must be at least 1, not 0\n")


def test_physics_that_diverges_is_an_error_of_its_episode(monkeypatch):
    def diverge(worlds, actions):
        return dict.fromkeys(actions, MorphVlaError("the physics diverged: here"))

    monkeypatch.setattr(MujocoEngine, "step", diverge)
    done = check.check(small("so101_pick_orange"), 2, workers=1)
    assert done.failed == {"error": [0, 1]}
    assert (done.successes, done.seconds) == (0, None)
    assert [outcome.error for outcome in done.outcomes] == ["the physics diverged: here"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in NAMES if name != QUICK)]
)
def test_a_check_does_not_depend_on_the_number_of_processes(name):
    alone, several = (check.check(load(name), 51, workers=workers) for workers in (1, 2))
    assert alone == several


# ------------------------------------------------------------------------------------------- the tool's frame


def test_the_tool_points_where_the_suite_says(engine):
    """Above the object: the place, the approach down or leant, and the grip level."""
    begin(engine, 5)
    suite, expert = engine.suite, PickAndPlace(engine)
    actions = expert.plan(0).actions
    closing = next(j for j, one in enumerate(engine.robot.joints) if one.is_gripper and engine.limb[j])
    held = np.asarray(engine.robot.to_native(actions))[:, closing]
    grasp = int(np.argmin(held))  # in both robots the smaller value is the closed one
    link = engine.robot.forward_kinematics(engine.robot.to_native(actions[grasp]))[suite.expert.tool]
    place = link @ np.array([*suite.expert.offset, 1.0])
    thing = engine.data(0).body(suite.success.object).xpos
    assert place[:3] == pytest.approx(thing + [0.0, 0.0, suite.expert.clearance], abs=0.006)
    tilt = suite.expert.tilt
    approach = link[:3, :3] @ np.asarray(suite.expert.approach)
    wanted = np.array([math.sin(tilt), 0.0, -math.cos(tilt)])
    assert math.acos(min(1.0, float(approach @ wanted))) < 0.35
    assert abs((link[:3, :3] @ np.asarray(suite.expert.grip))[2]) < 0.35


def test_an_approach_along_the_grip_is_refused(engine):
    spec = dataclasses.replace(engine.suite.expert, grip=engine.suite.expert.approach)
    with pytest.raises(
        MorphVlaError, match=r"expert: approach .* and grip .* must be two directions at a right"
    ):
        MujocoEngine(engine.robot, dataclasses.replace(engine.suite, expert=spec))


# ------------------------------------------------------------------------------------------------ recordings


@pytest.mark.slow
@pytest.mark.gl
@pytest.mark.filterwarnings("ignore:::(lerobot|torch|torchcodec|torchvision|datasets)")
def test_a_recording_is_read_by_the_robots_own_keys(engine, tmp_path):
    if importlib.util.find_spec("lerobot") is None:
        pytest.skip("recording needs the extra 'lerobot'")
    from morph_vla.data import lerobot

    folder: Path = tmp_path / "0000"
    attempted = record.record_part(engine.suite, folder, range(2))
    assert [clause for _, clause, *_ in attempted] == [None, None]
    robot, features = engine.robot, engine.robot.side.features
    read = lerobot.read(folder, features.state, features.action)
    described = json.loads((folder / "meta" / "info.json").read_text())["features"]
    for name in (*features.state, *features.action):
        assert described[name]["names"] == list(robot.side.names or robot.names)
    assert read.fps == robot.control_rate
    assert (
        read.state.shape
        == read.action.shape
        == (sum(frames for _, _, frames, _ in attempted), len(robot.joints))
    )
    for values in (read.state, read.action):
        native = robot.to_native(np.asarray(values))
        assert np.all(native >= robot.lower - 0.02)
        assert np.all(native <= robot.upper + 0.02)
    rest = np.asarray(robot.to_dataset(robot.rest))
    idle = ~engine.limb
    assert np.asarray(read.action)[:, idle] == pytest.approx(
        np.tile(rest[idle], (len(read.action), 1)), abs=1e-5
    )
    drift = robot.to_native(np.asarray(read.state))[:, idle] - robot.rest[idle]
    assert np.abs(drift).max(initial=0.0) < 2e-3  # [rad | m]: what does not do the task stands still
