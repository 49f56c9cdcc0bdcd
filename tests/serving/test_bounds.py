"""What goes out to a robot stays within its limits; what was within them is not touched."""

import dataclasses
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from stand_ins import PANDA, limits, rest

from morph_vla import robots
from morph_vla.serving import bounds

chunks = arrays.arrays(np.float32, (5, 8), elements=st.floats(-100, 100, width=32))


@hypothesis.given(chunks, st.floats(0, 2))
@hypothesis.settings(max_examples=60)
def test_every_target_is_within_the_urdfs_limits_and_the_jump(chunk, jump_s):
    known = limits(jump_s)
    sent, _ = known.apply(chunk, rest())
    native = PANDA.to_native(sent)
    assert (native >= PANDA.lower - 1e-6).all()
    assert (native <= PANDA.upper + 1e-6).all()
    seconds = jump_s + np.arange(5)[:, None] / 15.0
    speed = np.array([joint.velocity for joint in PANDA.joints])
    assert (np.abs(native - PANDA.to_native(rest())) <= speed * seconds + 1e-5).all()
    again, limited = known.apply(sent, rest())
    assert limited is None
    assert again is sent


@pytest.mark.parametrize("jump_s", [0.0, 0.5])
def test_a_joint_of_unknown_speed_has_its_limits_alone(jump_s):
    """Infinitely fast times no time is no number, and a robot is sent none."""
    known = dataclasses.replace(limits(jump_s), speed=np.where(np.arange(8) < 3, np.inf, limits(0.0).speed))
    chunk = np.tile(rest(), (5, 1)) + np.float32(0.1)
    sent, _ = known.apply(chunk, rest())
    assert np.isfinite(sent).all()
    np.testing.assert_array_equal(sent[:, :3], chunk[:, :3])
    assert jump_s or (sent[0, 3:] == rest()[3:]).all()


def test_what_is_within_them_goes_out_bit_for_bit():
    chunk = np.tile(rest(), (5, 1)) + np.linspace(0, 0.01, 5, dtype=np.float32)[:, None]
    sent, limited = limits(0.5).apply(chunk, rest())
    assert sent is chunk
    assert limited is None


def test_it_says_which_joints_were_limited_and_by_what():
    chunk = np.tile(rest(), (5, 1))
    chunk[:, 3] = 1.0  # beyond the upper limit of the fourth joint, 0 rad
    chunk[0, 0] = rest()[0] + 2.5  # more than it moves in half a second
    _, limited = limits(0.5).apply(chunk, rest())
    assert limited == bounds.Limited(("panda_joint4",), ("panda_joint1", "panda_joint4"), 6)
    _, limited = limits(10.0).apply(chunk, rest())
    assert limited == bounds.Limited(("panda_joint4",), (), 5)


@pytest.mark.parametrize("name", ["panda", "so101", "aloha", "g1_dex1"])
def test_a_robots_rest_pose_is_within_its_bounds(name):
    robot = robots.load(name)
    affine = [(joint.scale, joint.zero) for joint in robot.joints]
    pose = robot.to_dataset(robot.rest).astype(np.float32)[None]
    sent, _ = bounds.of(robot, affine, 30.0).apply(pose, pose[0])
    np.testing.assert_allclose(sent, pose, rtol=1e-6, atol=1e-6)


def test_a_joint_that_turns_without_end_goes_the_short_way_whatever_turn_its_value_is_of():
    """3.13 and -3.10 rad are 0.05 apart: a driver may tell them so, and a policy answer so."""
    endless = np.full(8, np.inf)
    endless[0] = 2 * np.pi
    known = dataclasses.replace(
        limits(0.1), lower=np.full(8, -np.inf), upper=np.full(8, np.inf), turn=endless
    )
    state = rest()
    state[0] = 3.13
    chunk = np.tile(state, (5, 1))
    chunk[:, 0] = -3.13, -3.12, -3.11, -3.10, -3.09
    sent, limited = known.apply(chunk, state)
    assert sent is chunk
    assert limited is None
    chunk[:, 0] = -2.0  # 1.15 rad on, faster than it turns
    sent, limited = known.apply(chunk, state)
    assert limited is not None
    assert limited.jump == ("panda_joint1",)
    reach = known.speed[0] * (0.1 + np.arange(5) / known.rate)
    np.testing.assert_allclose(sent[:, 0], np.minimum(3.13 + reach, 2 * np.pi - 2.0) - 2 * np.pi, atol=1e-5)
    fixed = dataclasses.replace(known, turn=np.full(8, np.inf))
    assert fixed.apply(chunk, state)[0][0, 0] > 2.5  # a joint with stops goes all the way back


@pytest.mark.parametrize(("here", "asked"), [(500.0, 0.0), (0.0, 20.0), (0.0, 91.4), (-7.0, 7.0)])
def test_a_wheel_that_counts_on_is_no_turn_nearer(here: float, asked: float):
    """Wrapping explains one turn; a target many turns away is as far as it says."""
    known = dataclasses.replace(
        limits(0.5),
        lower=np.full(8, -np.inf),
        upper=np.full(8, np.inf),
        turn=np.where(np.arange(8) == 0, 2 * np.pi, np.inf),
    )
    state = rest()
    state[0] = here
    chunk = np.tile(state, (5, 1))
    chunk[:, 0] = asked
    sent, limited = known.apply(chunk, state)
    assert limited is not None
    assert limited.jump == ("panda_joint1",)
    reach = known.speed[0] * (0.5 + np.arange(5) / known.rate)
    np.testing.assert_allclose(np.abs(sent[:, 0] - here), reach, rtol=1e-4)


def test_a_turn_is_one_in_the_datasets_unit():
    """179 and -179 degrees are neighbours, and 358 degrees apart is no way."""
    panda = robots.load("panda")
    joints = tuple(
        replace(
            joint,
            type="continuous",
            limit=None if joint.limit is None else replace(joint.limit, lower=None, upper=None),
        )
        if joint.name == panda.names[6]
        else joint
        for joint in panda.urdf.joints
    )
    side = replace(panda.side, unit="degrees")
    robot = robots.build(replace(panda.urdf, joints=joints), side, Path("panda.urdf"))
    known = bounds.of(robot, [(joint.scale, joint.zero) for joint in robot.joints], 15.0)
    assert known.jump_s == bounds.JUMP_S == 0.5
    assert known.turn[6] == pytest.approx(360)
    state = robot.to_dataset(robot.rest).astype(np.float32)
    state[6] = 179
    chunk = np.tile(state, (5, 1))
    chunk[:, 6] = -179
    sent, limited = known.apply(chunk, state)
    assert sent is chunk
    assert limited is None
    counted = [(joint.scale, joint.zero) for joint in robot.joints]
    counted[6] = (-counted[6][0], counted[6][1])  # a dataset that counts the other way
    mirrored = bounds.of(robot, counted, 15.0)
    assert mirrored.turn[6] == pytest.approx(360)
    assert mirrored.apply(chunk, state)[1] is None


def test_wrapping_explains_one_turn_and_no_second():
    """From 6.2 to -6.2 is 0.17 rad by two turns; a driver's values wrap by one."""
    turn = np.where(np.arange(8) == 0, 2 * np.pi, np.inf)
    free = dataclasses.replace(limits(0.1), lower=np.full(8, -np.inf), upper=np.full(8, np.inf), turn=turn)
    state = rest()
    state[0] = 6.2
    chunk = np.tile(state, (5, 1))
    chunk[:, 0] = -6.2
    sent, limited = free.apply(chunk, state)
    assert limited is not None
    reach = free.speed[0] * (0.1 + np.arange(5) / free.rate)
    np.testing.assert_allclose(sent[:, 0], 6.2 - 2 * np.pi - reach, atol=1e-5)


def test_bounds_are_rounded_inwards():
    upper = np.full(8, 0.1)
    assert float(np.float32(0.1)) > 0.1
    known = dataclasses.replace(
        limits(9.0), lower=-upper, upper=upper, speed=np.full(8, np.inf), turn=np.full(8, np.inf)
    )
    for asked in (-7.0, 7.0):
        sent, _ = known.apply(np.full((5, 8), asked, np.float32), np.zeros(8, np.float32))
        assert (np.abs(sent.astype(np.float64)) <= 0.1).all()


def test_joints_whose_speed_nobody_knows_are_named():
    known = dataclasses.replace(limits(0.5), speed=np.where(np.arange(8) == 3, np.inf, limits(0.5).speed))
    assert known.unbounded == ("panda_joint4",)
    assert limits(0.5).unbounded == ()


def test_a_state_that_no_robot_has_is_told():
    """Half a range beyond the limits, and beyond what was recorded: degrees, or another robot's."""
    known = limits(0.5)
    assert not known.strays(rest()).any()
    span = known.upper - known.lower
    assert not known.strays(known.upper + 0.49 * span).any()
    assert known.strays(known.upper + 0.51 * span).all()
    assert known.strays(known.lower - 0.51 * span).all()
    recorded = np.stack([known.lower, known.upper + 3 * span])  # by limits that are not the robot's
    wider = dataclasses.replace(known, recorded=recorded)
    assert not wider.strays(known.upper + 3.4 * span).any()
    assert wider.strays(known.lower - 0.51 * span).all()
    held = dataclasses.replace(known, lower=known.upper)  # limits that say nothing
    assert not held.strays(known.upper + 1).any()
    endless = dataclasses.replace(known, upper=np.full(8, np.inf))
    assert not endless.strays(known.upper + 100 * span).any()
