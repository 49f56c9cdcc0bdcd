"""A recorded episode on a robot: every suspicion fires where its cause was planted, and nowhere else."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.checks import name_match, playback, playback_rules
from morph_vla.findings import Feature, Finding
from morph_vla.robots.side import Gripper, Side

FRAMES, FPS = 211, 30.0
NAMES = ("left_shoulder_joint", "left_elbow_joint", "left_wrist_joint", "left_finger_joint")
LIMITS = ((-1.7, 1.7), (0.2, 2.9), (-2.9, 2.9), (0.0, 0.04))


def urdf() -> robots.Urdf:
    """Three turning joints and a sliding finger."""
    text = "".join(f"<link name='link{i}'/>" for i in range(5))
    kinds = ("revolute", "revolute", "revolute", "prismatic")
    for i, (name, kind, (low, high)) in enumerate(zip(NAMES, kinds, LIMITS, strict=True)):
        text += (
            f"<joint name='{name}' type='{kind}'><parent link='link{i}'/><child link='link{i + 1}'/>"
            f"<origin xyz='0 0 0.2'/><axis xyz='0 1 0'/>"
            f"<limit lower='{low}' upper='{high}' effort='5' velocity='{0.2 if i == 3 else 3}'/></joint>"
        )
    return robots.parse(f"<robot name='tiny'>{text}</robot>".encode(), "tiny.urdf")


GRIPPER = Gripper("left_finger_joint", open=0.04, closed=0.0, dataset_open=100.0, dataset_closed=0.0)


def robot(**keys) -> robots.Robot:
    side = Side(gripper=GRIPPER, control_rate=FPS)
    return robots.build(urdf(), replace(side, **keys), Path("tiny.urdf"))


def motion(seconds: float = FRAMES / FPS) -> np.ndarray:
    """A slow motion well within the limits [rad, m], the finger from open to closed and back."""
    t = np.linspace(0, 1, round(seconds * FPS))[:, None]
    middle = np.array([0.1, 1.4, -0.2, 0.02])
    return middle + np.array([0.9, 0.8, 1.6, 0.02]) * np.cos(2 * math.pi * t + np.array([0, 1, 2, 0]))


def remarks(body, values, names=None, state=None, fps=FPS, timestamps=None) -> tuple[Finding, ...]:
    """Everything said of an action, or of an action and a state."""
    names = [name.removesuffix("_joint") for name in body.names] if names is None else names
    said, played = [], []
    features = {"action": values} | ({} if state is None else {"observation.state": state})
    for feature, array in features.items():
        one, more = playback.play(body, feature, array, names, fps)
        said += more
        played += [one] if one is not None else []
    return playback.merged([*said, *playback_rules.judge(body, played, fps, timestamps)])


def sentences(*arguments, **keys) -> str:
    return "\n".join(map(str, remarks(*arguments, **keys)))


@pytest.mark.parametrize(
    "keys",
    [{}, {"unit": "degrees"}, {"unit": "percent"}, {"signs": {NAMES[0]: -1}, "zeros": {NAMES[1]: 0.3}}],
)
def test_nothing_is_said_of_an_episode_that_fits(keys):
    body = robot(**keys)
    recorded = body.to_dataset(motion())
    times = np.arange(FRAMES) / FPS
    assert sentences(body, recorded, state=recorded + 1e-4, timestamps=times) == ""


# ------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("left_shoulder_pitch_joint", "kLeftShoulderPitch", True),
        ("shoulder_pan", "shoulder_pan.pos", True),
        ("joint_1", "joint1.pos", True),
        ("joint_1", "joint_2", False),
        ("left_elbow", "right_elbow", False),
        ("l_elbow", "left_elbow", True),
        ("left_wrist_roll_joint", "left_wrist_pitch", False),
        ("elbow", "gripper", False),
        ("joint" + "9" * 5000, "joint0" + "9" * 5000, True),
    ],
)
def test_names_are_compared_by_what_they_say(one, two, same):
    assert (name_match.likeness(name_match.words(one), name_match.words(two)) >= name_match.NEAR) is same


@given(st.permutations(range(4)))
def test_a_permutation_of_named_values_is_found_and_played_by_name(order):
    body = robot()
    names = [NAMES[j].removesuffix("_joint") for j in order]
    shuffled = body.to_dataset(motion())[:, list(order)]
    one, said = playback.play(body, "action", shuffled, names, FPS)
    assert one is not None
    np.testing.assert_allclose(one.native, motion(), atol=1e-9)
    if list(order) == [0, 1, 2, 3]:
        assert said == []
        return
    (remark,) = said
    assert remark.severity == "warning"
    assert "the names are in another order than the joints: value " in remark.found
    wanted = ", ".join(NAMES[j] for j in order)
    assert f"played by name; training goes by place: write joints: [{wanted}]" in remark.consequence
    assert set(remark.subject) == {NAMES[j] for j, place in enumerate(order) if place != j}


def test_the_side_files_names_come_first():
    body = robot(names=("m_a", "m_b", "m_c", "m_d"))
    recorded = body.to_dataset(motion())
    assert sentences(body, recorded, names=["m_a", "m_b", "m_c", "m_d"]) == ""
    assert "the names are in another order" in sentences(body, recorded, names=["m_b", "m_a", "m_c", "m_d"])


def test_a_gripper_is_found_by_its_function():
    body = robot()
    names = ["left_shoulder", "left_elbow", "left_wrist", "left_gripper"]
    assert sentences(body, body.to_dataset(motion()), names=names) == ""


def left_and_right(names) -> list[str]:
    return [name.replace("left", side) for side in ("right", "left") for name in names]


def test_a_left_arm_is_found_in_a_recording_of_two_and_is_no_right_one():
    body, recorded = robot(), robot().to_dataset(motion())
    names = [name.removesuffix("_joint") for name in NAMES]
    both = np.concatenate([np.zeros_like(recorded), recorded], axis=1)
    one, _ = playback.play(body, "action", both, left_and_right(names), FPS)
    assert one is not None
    np.testing.assert_allclose(one.native, motion(), atol=1e-9)
    right = [name.replace("left", "right") for name in names]
    assert "4 of 4 names are unlike the joints'" in sentences(body, recorded, names=right)
    assert sentences(body, recorded, names=[name.replace("left_", "") for name in names]) == ""


def test_a_wider_feature_is_played_by_name():
    body = robot()
    wide = np.concatenate([np.zeros((FRAMES, 1)), body.to_dataset(motion())], axis=1)
    names = ["left_hip", *(name.removesuffix("_joint") for name in NAMES)]
    one, said = playback.play(body, "action", wide, names, FPS)
    assert one is not None
    np.testing.assert_allclose(one.native, motion(), atol=1e-9)
    assert str(said[0]) == (
        "action: warning: 5 values for 4 joints; not played: 'left_hip'; expected 4 values;"
        " found by their names; training needs a value per joint"
    )


def test_widths_that_do_not_match_are_an_error_with_a_way_out():
    body = robot()
    one, (said,) = playback.play(body, "action", motion()[:, :3], ["left_shoulder", "x", "left_wrist"], FPS)
    assert one is None
    assert said.severity == "error"
    assert said.found.startswith("3 values for 4 joints ('left_shoulder_joint', ")
    assert (
        "2 of them have a value of their name, not 'left_elbow_joint', 'left_finger_joint'"
        in said.consequence
    )
    assert "write joints: [left_shoulder_joint, left_wrist_joint] into a side file" in said.consequence
    one, (said,) = playback.play(body, "action", np.zeros((7, 2)), ["x", "y"], FPS)
    assert one is None
    assert "no joint is called like one of its values ('x', 'y')" in said.consequence
    one, (said,) = playback.play(body, "action", np.zeros((7, 2)), (), FPS)
    assert one is None
    assert "its values have no names; choose as many joints" in said.consequence


def test_names_that_say_nothing_or_something_else():
    body, recorded = robot(), robot().to_dataset(motion())
    for names in ([], ["motor_0", "motor_1", "motor_2", "motor_3"]):
        (remark,) = remarks(body, recorded, names=names)
        assert str(remark) == (
            "action: note: the dataset does not say what its 4 values are; expected the joints' names; played"
            " in the robot's order"
        )
    said = sentences(body, recorded, names=["a", "b", "c", "d"])
    assert (
        "warning: 4 of 4 names are unlike the joints': value 0 'a' for joint 0 'left_shoulder_joint'" in said
    )
    said = sentences(body, recorded, names=["left_elbow", "thumb", "toe", "ear"])
    assert "names nearest to other joints than those in their place: value 0 'left_elbow' for joint 1" in said
    said = sentences(body, recorded, names=["left_elbow"])
    assert "warning: 1 names for 4 values; expected a name per value; the names are not used" in said


def test_values_that_are_not_finite_are_an_error():
    body = robot()
    recorded = body.to_dataset(motion())
    recorded[5, 1] = np.nan
    recorded[7, 2] = np.inf
    (remark,) = remarks(body, recorded)
    assert str(remark) == (
        "action: error: 2 values are not finite, the first of 'left_elbow_joint' in frame 5; expected"
        " numbers; training refuses the dataset"
    )
    assert remark.subject == NAMES[1:3]
    recorded[:, 0] = np.nan
    assert "error: " in sentences(body, recorded)


# ------------------------------------------------------------------------------------------------- units


def test_degrees_where_radians_are_expected():
    recorded = robot(unit="degrees").to_dataset(motion())
    said = sentences(robot(), recorded)
    assert "action: warning: values up to 126 on 3 of 3 turning joints ('left_shoulder_joint', " in said
    assert "they look like degrees, which keep every joint within its limits: unit: degrees" in said
    assert "leaves" not in said
    assert "velocity" not in said


def test_radians_where_degrees_are_expected():
    said = sentences(robot(unit="degrees"), robot().to_dataset(motion()))
    assert "warning: no turning joint leaves 2.2 either way; expected degrees; they look like radians" in said


def percent(native: np.ndarray) -> np.ndarray:
    low, high = np.array(LIMITS[:3]).T
    arm = (native[:, :3] - low) / (high - low) * 200 - 100
    return np.concatenate([arm, robot().to_dataset(native)[:, 3:]], axis=1)


def wide_motion() -> np.ndarray:
    """As `motion`, the first joint from stop to stop."""
    native = motion()
    native[:, 0] = 1.7 * np.cos(np.linspace(0, 2 * math.pi, FRAMES))
    return native


def test_percent_where_degrees_are_expected():
    said = sentences(robot(unit="degrees"), percent(wide_motion()))
    assert "values that end at 100: 'left_shoulder_joint' ends at -100, its limit is -97.4 degrees" in said
    assert "they look like -100..100 of each joint's range, unit: percent; read so, '" in said
    assert "-100..100" not in sentences(
        robot(unit="degrees"), robot(unit="degrees").to_dataset(wide_motion())
    )


def test_percent_where_radians_are_expected():
    said = sentences(robot(), percent(wide_motion()))
    assert "they look like -100..100 of each joint's range, unit: percent: 'left_shoulder_joint' ends" in said


def test_degrees_or_radians_where_percent_is_expected():
    said = sentences(robot(unit="percent"), robot(unit="degrees").to_dataset(motion()))
    assert (
        "warning: values up to 126 on 2 of 3 turning joints ('left_elbow_joint', 'left_wrist_joint')" in said
    )
    assert "expected -100..100; they look like degrees, which keep every joint within its limits" in said
    said = sentences(robot(unit="percent"), robot().to_dataset(motion()))
    assert "no turning joint leaves 2.2 either way; expected -100..100; they look like radians" in said
    native = motion()
    native[:, 0] += 7
    said = sentences(robot(unit="percent"), robot(unit="degrees").to_dataset(native))
    assert "neither percent nor degrees keep the joints within their limits" in said


def test_a_joint_with_a_scale_of_its_own_is_no_evidence():
    body = robot(scales={NAMES[0]: 1000.0})
    assert sentences(body, body.to_dataset(motion())) == ""


def test_a_gripper_that_was_not_declared_is_named_with_the_unit():
    body = robots.load("so101")
    bare = robots.build(body.urdf, Side(), Path("so101.urdf"))
    t = np.linspace(0, 2 * math.pi, FRAMES)[:, None]
    said = sentences(bare, 40 + 30 * np.cos(t + np.arange(len(bare.joints))))
    assert "'gripper' is declared no gripper: say its two ends under gripper:" in said


# ------------------------------------------------------------------------------------------ sign and zero


def planted(body, change) -> str:
    native = motion()
    native[:, 1] = change(native[:, 1])
    return sentences(body, body.to_dataset(native))


def test_a_flipped_sign_is_proposed():
    said = planted(robot(), lambda q: -q)
    assert (
        "'left_elbow_joint' goes from -2.2 to -0.6001 rad, 2.4 beyond its limits; expected 0.2 to 2.9" in said
    )
    assert "mirrored it would fit: signs: {left_elbow_joint: -1}" in said
    assert "signs: {left_elbow_joint: 1}" in planted(robot(signs={NAMES[1]: -1}), lambda q: -q)


def test_a_zero_elsewhere_is_proposed():
    said = planted(robot(), lambda q: q + math.pi / 2)
    assert "shifted by -90 degrees it would fit: zeros: {left_elbow_joint: -1.5708}" in said
    assert "shifted by" in planted(robot(), lambda q: q + 1.0)
    # What the proposal says, done: nothing more is said.
    recorded = robot().to_dataset(motion())
    recorded[:, 1] += math.pi / 2
    assert sentences(robot(zeros={NAMES[1]: -math.pi / 2}), recorded) == ""


def test_a_range_wider_than_the_limits_cannot_be_repaired():
    said = planted(robot(), lambda q: 1.4 + 2 * (q - 1.4))
    assert "it moves further than its limits allow: is this another unit or joint?" in said


def test_a_little_beyond_the_limits_is_a_note():
    native = motion()
    native[:, 0] *= 1.75 / native[:, 0].max()
    (remark,) = remarks(robot(), robot().to_dataset(native))
    assert remark.severity == "note"
    assert "calibration, or limits narrower than the real ones" in remark.consequence


def test_a_sliding_joint_in_other_units():
    bare = robots.build(urdf(), Side(), Path("tiny.urdf"))
    for factor, words in ((25, "it looks like 0..1 of its travel"), (1000, "in millimetres it would fit")):
        native = motion()
        native[:, 3] = np.round(native[:, 3], 6) * factor
        assert words in sentences(bare, native)


# ---------------------------------------------------------------------------------------------- grippers


def test_values_beyond_a_grippers_ends():
    body = robot(gripper=replace(GRIPPER, dataset_open=1.0))
    said = sentences(body, robot().to_dataset(motion()))
    assert (
        "'left_finger_joint' has values from 0 to 100; expected 1 open, 0 closed; they look like 0..100"
        in said
    )
    said = sentences(body, robot(gripper=replace(GRIPPER, dataset_open=7.0)).to_dataset(motion()))
    assert "its two ends are others: see dataset_open and dataset_closed" in said


def test_a_gripper_in_parts_of_one():
    said = sentences(robot(), robot(gripper=replace(GRIPPER, dataset_open=1.0)).to_dataset(motion()))
    assert "expected 100 open, 0 closed; they look like 0..1: say so" in said


def test_a_gripper_that_never_closes_is_a_note():
    native = motion()
    native[:, 3] = 0.01 + 0.75 * native[:, 3]
    (remark,) = remarks(robot(), robot().to_dataset(native))
    assert (remark.severity, remark.code) == ("note", "never-closed")
    assert "it stays 25% open at the least" in remark.consequence
    one, _ = playback.play(robot(), "action", robot().to_dataset(native), (), FPS)
    assert one is not None
    assert playback_rules.mostly(one, 3) == pytest.approx(0.975)


def grasp() -> tuple[np.ndarray, np.ndarray]:
    """The finger is told to close and stays 30% open, held off by a thing."""
    action, state = motion(), motion()
    action[:, 3] = 0.04 * (np.arange(FRAMES) < 101)
    state[:, 3] = np.maximum(np.convolve(action[:, 3], np.ones(5) / 5, mode="same"), 0.012)
    state[:3, 3] = state[-3:, 3] = 0.04, 0.04, 0.04
    return action, state


HELD = ("gripper-right", "gripper-inverted")


def test_open_and_closed_are_told_by_what_the_gripper_holds():
    body = robot()
    recorded, seen = (body.to_dataset(native) for native in grasp())
    said = [str(item) for item in remarks(body, recorded, state=seen) if item.code in HELD]
    assert len(said) == 1
    assert said[0].startswith("note: 'left_finger_joint' stands still and off its target in ")
    assert "its open and closed ends are probably right" in said[0]
    inverted = robot(gripper=replace(GRIPPER, dataset_open=0.0, dataset_closed=100.0))
    (said,) = [item for item in remarks(inverted, recorded, state=seen) if item.code in HELD]
    assert (said.severity, said.code) == ("warning", "gripper-inverted")
    assert "it seems inverted: exchange dataset_open and dataset_closed" in said.consequence


def test_a_gripper_that_only_lags_tells_nothing():
    body = robot()
    recorded = body.to_dataset(motion())
    late = np.concatenate([recorded[:3], recorded[:-3]])
    assert not [item for item in remarks(body, recorded, state=late) if item.code in HELD]


# ------------------------------------------------------------------------------------------------ motion


def test_a_joint_that_never_moves():
    native = motion()
    native[:, 2] = 0.3
    recorded = robot().to_dataset(native)
    said = sentences(robot(), recorded, state=recorded)
    assert said.startswith(
        "action, observation.state: warning: 'left_wrist_joint' never moves; expected some"
    )
    assert "no joint ever moves" in sentences(robot(), np.broadcast_to(recorded[0], recorded.shape))


def test_a_joint_that_moves_in_one_feature_only():
    moving, native = robot().to_dataset(motion()), motion()
    native[:, 2] = 0.3
    still = robot().to_dataset(native)
    told = "warning: 'left_wrist_joint' moves in the action and never in the state; expected both or neither"
    seen = "warning: 'left_wrist_joint' moves in the state and never in the action; expected both or neither"
    assert told in sentences(robot(), moving, state=still)
    assert seen in sentences(robot(), still, state=moving)


def test_a_jump_faster_than_the_joint():
    native = motion()
    native[100:, 0] -= 0.5
    said = sentences(robot(), robot().to_dataset(native))
    assert "'left_shoulder_joint' goes 15" in said
    assert (
        "rad/s after frame 99 (1 of 210 steps are too fast); expected at most its velocity limit, 3" in said
    )
    assert "lost frames, another unit or another frame rate" in said
    native = motion()
    native[:, 2] = np.linspace(0, 2 * math.pi, FRAMES)
    wide = robots.build(urdf(), Side(gripper=GRIPPER), Path("tiny.urdf"))
    native[:, 2] = (native[:, 2] + math.pi) % (2 * math.pi) - math.pi
    assert "a full turn between two frames: the values wrap" in sentences(wide, wide.to_dataset(native))


def test_an_end_effector_that_flies():
    native = motion()
    native[::2, 0] -= 1.0
    assert " m/s after frame " in sentences(robot(), robot().to_dataset(native))


def test_the_frame_rate():
    recorded = robot().to_dataset(motion())
    times = np.arange(FRAMES) / FPS
    said = sentences(robot(control_rate=15.0), recorded)
    assert said == (
        "warning: recorded at 30 Hz; expected control_rate 15 Hz;"
        " a policy trained on it acts at another rate than the robot"
    )
    said = sentences(robot(), recorded, timestamps=times * 2)
    assert "warning: its time stamps are 0.06667 s apart; expected 1/30 s" in said
    times[50:] += 0.5
    said = sentences(robot(), recorded, timestamps=times)
    assert (
        "warning: 1 gaps between time stamps, the first after frame 49; expected a frame every 0.03333 s"
        in said
    )


def test_errors_come_first_and_what_two_features_share_is_said_once():
    note = Finding("x", "note", Feature("action"), (), "a", "b", "c")
    error = Finding("y", "error", Feature("action"), (), "d", "e", "f")
    other = replace(note, where=Feature("state"), found="of its own")
    both = replace(note, where=Feature("action, state"))
    assert playback.merged([note, error, replace(note, where=Feature("state")), other]) == (
        error,
        both,
        other,
    )


# ------------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("panda", ("panda_hand",)),
        ("so101", ("gripper_frame_link",)),
        ("g1_dex1", ("left_dex1_base_link", "right_dex1_base_link")),
    ],
)
def test_the_end_effector_carries_the_gripper(name, links):
    assert playback.tips(robots.load(name)) == links


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1"])
def test_a_path_is_the_forward_kinematics_of_every_frame(name):
    body = robots.load(name)
    native = np.random.default_rng(7).uniform(body.lower, body.upper, (5, len(body.joints)))
    for link in playback.tips(body):
        wanted = [body.forward_kinematics(pose)[link][:3, 3] for pose in native]
        np.testing.assert_allclose(playback.follow_link(body, link, native), wanted, atol=1e-12)


def test_length_extent_and_speed_of_a_path():
    trace = playback.Trace("tip", np.array([[0.0, 0, 0], [0.3, 0.4, 0], [0.3, 0.4, -1.0]]), 10.0)
    assert trace.length == pytest.approx(1.5)
    np.testing.assert_allclose(trace.extent, [0.3, 0.4, 1.0])
    np.testing.assert_allclose(trace.speeds, [5, 10])


@pytest.mark.parametrize(
    ("name", "count"),
    [("ur10e_dex", 1), ("abb_irb6640_mimic", 1), ("robotiq_2f85", 1), ("g1_29dof", 4), ("ur5e_shadow", 5)],
)
def test_public_robots_have_an_end_effector_per_branch(shared, name, count):
    path = shared / "urdf_zoo" / f"{name}.urdf"
    if not path.is_file():
        pytest.skip("shared/urdf_zoo is not beside this checkout")
    body = robots.load(path)
    links, poses = playback.tips(body), body.forward_kinematics(body.rest)
    assert len(links) == count
    for link in links:
        at = playback.follow_link(body, link, body.rest[None])[0]
        np.testing.assert_allclose(at, poses[link][:3, 3], atol=1e-9)
