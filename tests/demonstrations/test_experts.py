"""The scripted expert: its way, its walk, its disturbance, and that it does the task."""

import dataclasses
import importlib.util
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.engines import success as criterion
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import ExpertSpec, initial_state, load

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp")):
    pytest.skip("the scripted expert needs the extra 'sim'", allow_module_level=True)

from morph_vla.demonstrations.experts import (
    PickAndPlace,
    Plan,
    Waypoint,
    disturb,
    slewed,
    walk,
    waypoints,
)
from morph_vla.engines.episode import Episodes
from morph_vla.engines.mujoco.engine import MujocoEngine

ARM = np.array([1.0] * 7 + [0.0])


@pytest.fixture(scope="module")
def engine():
    suite = load("droid_panda:cube_in_bowl", ["cameras.exterior.width=32", "cameras.wrist.width=32"])
    engine = MujocoEngine(robots.load("panda"), suite)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def expert(engine):
    return PickAndPlace(engine)


def test_a_plan_begins_where_the_tool_stands_whatever_link_it_is_described_on(engine):
    """Of one frame: the turn that it begins with is the tool's, not that of the link it is fixed to."""
    first = []
    for tool, grip in (
        ("panda_grasptarget", (0.0, 1.0, 0.0)),
        ("panda_link8", (0.7071, 0.7071, 0.0)),
    ):
        offset = (0.0, 0.0, 0.0 if tool == "panda_grasptarget" else 0.2104)
        spec = dataclasses.replace(engine.suite.expert, tool=tool, offset=offset, grip=grip)
        world = MujocoEngine(robots.load("panda"), dataclasses.replace(engine.suite, expert=spec))
        world.reset({0: initial_state(world.suite, 3, 8)})
        first.append(PickAndPlace(world).plan(0).actions[0] - world.native(0))
        world.close()
    assert np.abs(first[1][:7]).max() < 0.1
    assert first[1][:7] == pytest.approx(first[0][:7], abs=0.05)


@pytest.fixture(scope="module")
def plan(engine, expert) -> Plan:
    begin(engine, 3)
    return expert.plan(0)


def begin(engine: MujocoEngine, number: int) -> None:
    state = initial_state(engine.suite, number, len(engine.robot.joints), stream="demonstration")
    engine.reset({0: state})


# ------------------------------------------------------------------------------------- way and the walk

PLACE = st.tuples(st.floats(0.3, 0.6), st.floats(-0.3, 0.3), st.floats(0.0, 0.1)).map(np.array)
YAW = st.floats(-7.0, 7.0)
SPEC = ExpertSpec("pick_and_place", "hand", hover=0.13, release_height=0.11, speed=0.2)


@given(thing=PLACE, yaw=YAW, target=PLACE)
def test_the_way_lead_over_the_object_to_the_target_and_away(thing, yaw, target):
    way = waypoints(thing, yaw, target, SPEC, 15.0)
    positions = np.array([waypoint.position for waypoint in way])
    assert [waypoint.gripper for waypoint in way] == [0, 0, 0, 1, 1, 1, 1, 0, 0]
    assert positions[:5, :2] == pytest.approx(np.tile(thing[:2], (5, 1)))
    assert positions[5:, :2] == pytest.approx(np.tile(target[:2], (4, 1)))
    assert positions[0, 2] == pytest.approx(thing[2] + 0.13)
    assert positions[2:4, 2].min() > thing[2]  # the fingertips stay clear of the table
    assert positions[6:8, 2] == pytest.approx(target[2] + 0.11)
    assert positions[8, 2] > positions[7, 2]
    # Fingers close and open standing still, and nothing disturbs them there.
    for waypoint in (way[3], way[7]):
        assert waypoint.hold == 6  # 0.4 s
        assert not waypoint.free


@given(yaw=YAW, quarters=st.integers(-3, 3))
def test_the_gripper_turns_by_an_eighth_at_most_as_a_box_does(yaw, quarters):
    here, there = np.array([0.5, -0.1, 0.02]), np.array([0.5, 0.1, 0.0])

    def turn(of: float) -> float:
        return waypoints(here, of, there, SPEC, 15.0)[0].yaw_rad

    assert -math.pi / 4 - 1e-9 <= turn(yaw) <= math.pi / 4 + 1e-9
    # The same modulo a quarter turn as the object itself, however often that has turned.
    for other in (yaw, yaw + quarters * math.pi / 2):
        assert math.sin(2 * (turn(yaw) - other)) == pytest.approx(0.0, abs=1e-9)


@given(
    points=st.lists(st.tuples(PLACE, st.floats(-0.8, 0.8)), min_size=1, max_size=5),
    speed=st.floats(0.05, 1.0),
    rate=st.sampled_from([7.0, 15.0, 31.0]),
)
def test_a_walk_never_jumps(points, speed, rate):
    """A half-cosine is at most pi/2 times as fast as its mean, on every segment."""
    start, start_yaw = np.array([0.4, 0.0, 0.3]), 0.1
    way = [Waypoint(position, yaw, 0.0, hold=2) for position, yaw in points]
    poses = walk(start, start_yaw, way, speed, rate)
    positions = np.array([start, *(pose[0] for pose in poses)])
    yaws = np.array([start_yaw, *(pose[1] for pose in poses)])
    peak = math.pi / 2 * (1 + 1e-9)
    assert np.linalg.norm(np.diff(positions, axis=0), axis=1).max() <= peak * speed / rate + 1e-12
    assert np.abs(np.diff(yaws)).max() <= peak * 1.5 / rate + 1e-12
    assert np.array_equal(poses[-1][0], points[-1][0])
    assert poses[-1][1] == points[-1][1]


def test_a_walk_reaches_every_waypoint_and_holds_there():
    up = np.array([0.0, 0.0, 0.1])
    way = [Waypoint(up, 0.0, 0.0, free=True), Waypoint(up, 0.0, 1.0, hold=3), Waypoint(2 * up, 0.0, 1.0)]
    poses = walk(np.zeros(3), 0.0, way, 0.1, 5.0)
    assert len(poses) == 5 + 3 + 5
    assert [gripper for _, _, gripper, _ in poses] == [0.0] * 5 + [1.0] * 8
    assert [free for *_, free in poses] == [True] * 5 + [False] * 8
    heights = [position[2] for position, *_ in poses]
    assert heights[4:8] == pytest.approx([0.1] * 4)
    assert heights[:5] == pytest.approx([0.05 - 0.05 * math.cos(math.pi * i / 5) for i in range(1, 6)])


@given(
    start=st.floats(-1, 2),
    wanted=st.lists(st.floats(0, 1), min_size=1, max_size=31),
    step=st.floats(0.05, 0.5),
)
def test_a_slewed_command_never_jumps_and_goes_where_it_is_told(start, wanted, step):
    found = slewed(start, wanted, step)
    path = np.array([start, *found])
    assert len(found) == len(wanted)
    assert np.abs(np.diff(path)).max() <= step + 1e-9
    for before, now, told in zip(path, found, wanted, strict=False):  # never past what is asked
        assert min(before, told) - 1e-9 <= now <= max(before, told) + 1e-9
        assert now == pytest.approx(told) or abs(now - before) == pytest.approx(step)


# -------------------------------------------------------------------------------------------------- the plan


def test_a_plan_is_in_the_robots_order_and_units(engine, plan):
    assert plan.actions.shape == (len(plan.free), 8)
    assert set(plan.actions[:, 7]) == {0.0, 1.0}
    for j, joint in enumerate(engine.robot.joints[:7]):
        assert plan.actions[:, j].min() >= joint.lower
        assert plan.actions[:, j].max() <= joint.upper
    assert set(plan.free) == {0.0, 1.0}
    assert len(plan.free) < engine.suite.max_steps


def test_a_plan_starts_where_the_arm_is_and_moves_smoothly(engine, plan):
    begin(engine, 3)
    assert plan.actions[0, :7] == pytest.approx(engine.state(0)[:7], abs=0.15)
    assert np.abs(np.diff(plan.actions[:, :7], axis=0)).max() < 0.25  # [rad] a step of 1/15 s


def test_a_plan_takes_the_tool_to_the_object_and_to_the_target(engine, plan):
    begin(engine, 3)
    data, suite = engine.data(0), engine.suite
    cube, bowl = (data.body(name).xpos.copy() for name in ("cube", "bowl"))
    tool = []
    for row in plan.actions:
        native = engine.robot.to_native(row)
        tool.append(engine.robot.forward_kinematics(native)[suite.expert.tool][:3, 3])
    path, closed = np.array(tool), plan.actions[:, 7] == 1.0
    grasp = int(np.argmax(closed))
    release = len(closed) - int(np.argmax(closed[::-1]))
    assert path[grasp] == pytest.approx(cube, abs=0.01)
    assert path[release] == pytest.approx([*bowl[:2], bowl[2] + suite.expert.release_height], abs=0.005)
    assert path[grasp:release, 2].max() > cube[2] + suite.expert.hover - 0.01


def test_the_same_state_gives_the_same_plan(engine, expert, plan):
    begin(engine, 11)
    expert.plan(0)  # an expert remembers nothing of what it planned before
    begin(engine, 3)
    again = expert.plan(0)
    assert np.array_equal(again.actions, plan.actions)
    assert np.array_equal(PickAndPlace(engine).plan(0).actions, plan.actions)


def test_an_unknown_tool_is_refused(engine):
    spec = dataclasses.replace(engine.suite.expert, tool="panda_grasp")
    other = dataclasses.replace(engine.suite, expert=spec)
    with pytest.raises(
        MorphVlaError,
        match=r"droid_panda\.yaml: expert\.tool: the robot has no link 'panda_grasp' in simulation",
    ):
        PickAndPlace(MujocoEngine(engine.robot, other))


@pytest.mark.slow
def test_the_expert_does_the_task(engine, expert):
    """Disturbed as it is when it is recorded: what a demonstration is made of."""
    failed = []
    suite = engine.suite
    for number in range(12):
        begin(engine, number)
        planned = expert.plan(0)
        rows = disturb(planned, np.random.default_rng([suite.seed, number]), suite.expert.noise, ARM)
        episodes = Episodes(engine)
        episodes.begin([0])
        for row in [*rows, *[rows[-1]] * 11]:
            episodes.step({0: row})
        progress = episodes.status[0].progress
        clause = criterion.failed_clause(progress, episodes.status[0].reading, suite.success)
        if clause is None:
            assert progress.reached
            assert progress.grasped
            assert progress.lifted
        else:
            failed.append((number, clause))
    assert len(failed) <= 1, failed


# ------------------------------------------------------------------------------------------- the disturbance


def stretch(steps: int = 2003, joints: int = 8) -> Plan:
    return Plan(np.zeros((steps, joints)), np.ones(steps))


def test_a_disturbance_has_the_scale_that_was_asked():
    noise = disturb(stretch(), np.random.default_rng(5), 0.037, ARM)
    assert noise[:, :7].std() == pytest.approx(0.037, rel=0.1)
    assert abs(noise[:, :7].mean()) < 0.004


def test_a_disturbance_is_smooth():
    noise = disturb(stretch(), np.random.default_rng(5), 1.0, ARM)[10:-10, :7]
    assert np.diff(noise, axis=0).std() < 0.5 * noise.std()


@settings(max_examples=30)
@given(free=st.lists(st.booleans(), min_size=11, max_size=61), seed=st.integers(0, 2**31))
def test_grippers_and_rows_that_are_not_free_stay_clean(free, seed):
    rng = np.random.default_rng(seed)
    planned = Plan(rng.normal(size=(len(free), 8)), np.array(free, dtype=float))
    executed = disturb(planned, rng, 0.1, ARM)
    assert np.array_equal(executed[:, 7], planned.actions[:, 7])
    held = ~np.array(free)
    assert np.array_equal(executed[held], planned.actions[held])


def test_a_disturbance_fades_in_and_out_of_free_stretches():
    free = np.zeros(41)
    free[10:30] = 1.0
    quiet = [
        np.abs(disturb(Plan(np.zeros((41, 8)), free), np.random.default_rng(seed), 1.0, ARM)[:, :7])
        for seed in range(101)
    ]
    strength = np.mean(quiet, axis=(0, 2))
    assert strength[9] == strength[30] == 0.0
    assert strength[10] < strength[11] < strength[12]
    assert strength[29] < strength[28] < strength[27]


def test_the_plan_itself_is_not_changed(plan):
    before = plan.actions.copy()
    executed = disturb(plan, np.random.default_rng(7), 0.1, ARM)
    assert np.array_equal(plan.actions, before)
    assert not np.array_equal(executed, before)
    assert np.array_equal(disturb(plan, np.random.default_rng(7), 0.0, ARM), before)


def test_the_same_numbers_give_the_same_disturbance(plan):
    one, two = (disturb(plan, np.random.default_rng([20261, 3]), 0.1, ARM) for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, disturb(plan, np.random.default_rng([20261, 4]), 0.1, ARM))


def test_what_does_not_carry_the_tool_stays_where_the_suite_lets_it_begin():
    """G1's left arm, bent by the suite's `start`: a plan that held it at rest would swing it there first."""
    suite = load("g1_dex1_red_block")
    suite = dataclasses.replace(suite, start={**suite.start, "left_elbow_joint": 0.53})
    engine = MujocoEngine(robots.load(suite.robot), suite)
    begin(engine, 3)
    elbow = engine.robot.names.index("left_elbow_joint")
    assert engine.robot.rest[elbow] != 0.53
    assert not engine.limb[elbow]
    actions = PickAndPlace(engine).plan(0).actions
    assert engine.robot.to_native(actions)[:, elbow] == pytest.approx(np.full(len(actions), 0.53))
    engine.close()


@pytest.mark.parametrize(("speed", "seconds"), [(1e-7, 0.0), (1.0, 1e300), (1e-300, 0.0)])
def test_a_way_longer_than_the_episode_is_its_beginning(speed, seconds):
    """Millimetres for metres would be walked for a day."""
    way = [Waypoint(np.array([0.3, 0.0, 0.0]), 0.0, 0.0, seconds=seconds), Waypoint(np.ones(3), 0.0, 1.0)]
    short, long = (walk(np.zeros(3), 0.0, way, speed, 15.0, most) for most in (31, 61))
    assert (len(short), len(long)) == (31, 61)
    for one, other in zip(short, long[:31], strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    quick = walk(np.zeros(3), 0.0, [Waypoint(np.array([0.3, 0.0, 0.0]), 0.0, 0.0)], 0.3, 15.0, 31)
    np.testing.assert_allclose(quick[-1][0], [0.3, 0, 0], atol=1e-9)


def test_an_attempt_in_a_world_that_diverged_while_it_settled_is_an_error(engine, monkeypatch):
    from morph_vla.demonstrations import attempts
    from morph_vla.engines.engine import Diverged

    state = engine.state
    monkeypatch.setattr(engine, "state", lambda index: state(index) * np.nan)
    (status,) = attempts.attempts(engine, [0])
    assert (status.ended, status.error) == ("error", "the physics diverged while the world settled")
    with pytest.raises(Diverged, match=r"^the physics diverged while the world settled$"):
        attempts.demonstration(engine, 0, "rest")
