"""A recorded episode on a robot: every suspicion fires where its cause was planted, and nowhere else."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_arm import FPS, FRAMES, GRIPPER, LIMITS, NAMES, motion, remarks, robot, sentences, urdf

from morph_vla import robots
from morph_vla.checks import playback, playback_rules, rules
from morph_vla.findings import Feature, Finding
from morph_vla.robots.side import Side

HELD = ("gripper-right", "gripper-inverted")


@pytest.mark.parametrize(
    "keys",
    [{}, {"unit": "degrees"}, {"unit": "percent"}, {"signs": {NAMES[0]: -1}, "zeros": {NAMES[1]: 0.3}}],
)
def test_nothing_is_said_of_an_episode_that_fits(keys):
    body = robot(**keys)
    recorded = body.to_dataset(motion())
    times = np.arange(FRAMES) / FPS
    assert sentences(body, recorded, state=recorded + 1e-4, timestamps=times) == ""


# ------------------------------------------------------------------------------------------------- units


def test_degrees_where_radians_are_expected():
    recorded = robot(unit="degrees").to_dataset(motion())
    text = sentences(robot(), recorded)
    assert "action: warning: values up to 126 on 3 of 3 turning joints ('left_shoulder_joint', " in text
    assert "they look like degrees, which keep every joint within its limits: unit: degrees" in text
    assert "leaves" not in text
    assert "velocity" not in text


def rolling() -> robots.Robot:
    """The tiny arm whose wrist turns without end."""
    joints = tuple(
        replace(joint, type="continuous", limit=None) if joint.name == NAMES[2] else joint
        for joint in urdf().joints
    )
    return robots.build(replace(urdf(), joints=joints), robot().side, Path("tiny.urdf"))


def test_a_wheel_that_counts_on_makes_no_degrees_of_the_others():
    native = motion()
    native[:, 2] = np.linspace(0, 84, FRAMES)
    text = sentences(rolling(), rolling().to_dataset(native))
    assert (
        "values up to 84 on 1 of 3 turning joints ('left_wrist_joint'); expected at most three turns of"
        in text
    )
    assert "they count on, and a policy meets values that no training had" in text
    assert "degrees" not in text
    degrees = replace(rolling().side, unit="degrees")
    body = robots.build(rolling().urdf, degrees, Path("tiny.urdf"))
    assert "they look like radians" in sentences(body, rolling().to_dataset(native))


def test_degrees_are_degrees_where_a_wheel_is_beside_them_too():
    native = motion()
    native[:, 2] = np.linspace(0, 8.4, FRAMES)
    recorded = np.concatenate([np.degrees(native[:, :3]), robot().to_dataset(native)[:, 3:]], axis=1)
    assert "they look like degrees" in sentences(rolling(), recorded)


def test_radians_where_degrees_are_expected():
    text = sentences(robot(unit="degrees"), robot().to_dataset(motion()))
    assert "warning: no turning joint leaves 2.2 either way; expected degrees; they look like radians" in text


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
    text = sentences(robot(unit="degrees"), percent(wide_motion()))
    assert "values that end at 100: 'left_shoulder_joint' ends at -100, its limit is -97.4 degrees" in text
    assert "they look like -100..100 of each joint's range, unit: percent; read so, '" in text
    assert "-100..100" not in sentences(
        robot(unit="degrees"), robot(unit="degrees").to_dataset(wide_motion())
    )


def test_percent_where_radians_are_expected():
    text = sentences(robot(), percent(wide_motion()))
    assert "they look like -100..100 of each joint's range, unit: percent: 'left_shoulder_joint' ends" in text


def test_degrees_or_radians_where_percent_is_expected():
    text = sentences(robot(unit="percent"), robot(unit="degrees").to_dataset(motion()))
    assert (
        "warning: values up to 126 on 2 of 3 turning joints ('left_elbow_joint', 'left_wrist_joint')" in text
    )
    assert "expected -100..100; they look like degrees, which keep every joint within its limits" in text
    text = sentences(robot(unit="percent"), robot().to_dataset(motion()))
    assert "no turning joint leaves 2.2 either way; expected -100..100; they look like radians" in text
    native = motion()
    native[:, 0] += 7
    text = sentences(robot(unit="percent"), robot(unit="degrees").to_dataset(native))
    assert "neither percent nor degrees keep the joints within their limits" in text


def test_a_joint_with_a_scale_of_its_own_is_no_evidence():
    body = robot(scales={NAMES[0]: 1000.0})
    assert sentences(body, body.to_dataset(motion())) == ""


def test_a_gripper_that_was_not_declared_is_named_with_the_unit():
    body = robots.load("so101")
    bare = robots.build(body.urdf, Side(), Path("so101.urdf"))
    t = np.linspace(0, 2 * math.pi, FRAMES)[:, None]
    text = sentences(bare, 40 + 30 * np.cos(t + np.arange(len(bare.joints))))
    assert "'gripper' is declared no gripper: say its two ends under gripper:" in text


# ------------------------------------------------------------------------------------------ sign and zero


def planted(body, change) -> str:
    native = motion()
    native[:, 1] = change(native[:, 1])
    return sentences(body, body.to_dataset(native))


def test_a_flipped_sign_is_proposed():
    text = planted(robot(), lambda q: -q)
    assert (
        "'left_elbow_joint' goes from -2.2 to -0.6001 rad, 2.4 beyond its limits; expected 0.2 to 2.9" in text
    )
    assert "mirrored it would fit: signs: {left_elbow_joint: -1}" in text
    assert "signs: {left_elbow_joint: 1}" in planted(robot(signs={NAMES[1]: -1}), lambda q: -q)


def test_a_zero_elsewhere_is_proposed():
    text = planted(robot(), lambda q: q + math.pi / 2)
    assert "shifted by -90 degrees it would fit: zeros: {left_elbow_joint: -1.5708}" in text
    assert "shifted by" in planted(robot(), lambda q: q + 1.0)
    # What the proposal says, done: nothing more is said.
    recorded = robot().to_dataset(motion())
    recorded[:, 1] += math.pi / 2
    assert sentences(robot(zeros={NAMES[1]: -math.pi / 2}), recorded) == ""


def test_a_range_wider_than_the_limits_cannot_be_repaired():
    text = planted(robot(), lambda q: 1.4 + 2 * (q - 1.4))
    assert "it moves further than its limits allow: is this another unit or joint?" in text


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
    text = sentences(body, robot().to_dataset(motion()))
    assert (
        "'left_finger_joint' has values from 0 to 100; expected 1 open, 0 closed; they look like 0..100"
        in text
    )
    text = sentences(body, robot(gripper=replace(GRIPPER, dataset_open=7.0)).to_dataset(motion()))
    assert "its two ends are others: see dataset_open and dataset_closed" in text


def test_a_gripper_in_parts_of_one():
    text = sentences(robot(), robot(gripper=replace(GRIPPER, dataset_open=1.0)).to_dataset(motion()))
    assert "expected 100 open, 0 closed; they look like 0..1: say so" in text


def test_a_gripper_that_never_closes_is_a_note():
    native = motion()
    native[:, 3] = 0.01 + 0.75 * native[:, 3]
    (remark,) = remarks(robot(), robot().to_dataset(native))
    assert (remark.severity, remark.code) == ("note", "never-closed")
    assert "it stays 25% open at the least" in remark.consequence
    piece, _ = playback.play(robot(), "action", robot().to_dataset(native), (), FPS)
    assert piece is not None
    assert playback_rules.mostly(piece, 3) == pytest.approx(0.975)


def grasp() -> tuple[np.ndarray, np.ndarray]:
    """The finger is told to close and stays 30% open, held off by a thing."""
    action, state = motion(), motion()
    action[:, 3] = 0.04 * (np.arange(FRAMES) < 101)
    state[:, 3] = np.maximum(np.convolve(action[:, 3], np.ones(5) / 5, mode="same"), 0.012)
    state[:3, 3] = state[-3:, 3] = 0.04, 0.04, 0.04
    return action, state


def test_open_and_closed_are_told_by_what_the_gripper_holds():
    body = robot()
    recorded, seen = (body.to_dataset(native) for native in grasp())
    lines = [str(item) for item in remarks(body, recorded, state=seen) if item.code in HELD]
    assert len(lines) == 1
    assert lines[0].startswith("note: 'left_finger_joint' stands still and off its target in ")
    assert "its open and closed ends are probably right" in lines[0]
    inverted = robot(gripper=replace(GRIPPER, dataset_open=0.0, dataset_closed=100.0))
    (lines,) = [item for item in remarks(inverted, recorded, state=seen) if item.code in HELD]
    assert (lines.severity, lines.code) == ("warning", "gripper-inverted")
    assert "it seems inverted: exchange dataset_open and dataset_closed" in lines.consequence


@pytest.mark.parametrize(
    ("fingers", "judged"),
    [
        ({"L_thumb": "-", "L_index": "-", "L_ring": "-"}, 3),
        ({"L_thumb": "-", "L_index": "+", "L_ring": "-"}, 0),  # a thumb that turns, a finger that lags
        ({"L_thumb": "", "L_index": "", "L_ring": "-"}, 0),  # one of three
        ({"L_thumb": "", "L_index": "-", "L_ring": "-"}, 2),
        ({"L_grip": "-", "R_grip": "+"}, 2),  # two hands, each alone
        ({"grip_a": "-", "grip_b": "+"}, 2),
    ],
)
def test_the_fingers_of_a_hand_are_judged_together(monkeypatch, fingers, judged):
    codes = {"-": "gripper-inverted", "+": "gripper-right"}
    joint = robot().joints[3]

    def each(*_):
        for name, verdict in fingers.items():
            found = rules.remark(codes[verdict], "", (name,), "in 9 frames") if verdict else None
            yield replace(joint, name=name), found

    monkeypatch.setattr(playback_rules, "_fingers", each)
    body = robot()
    recorded, seen = (body.to_dataset(native) for native in grasp())
    assert len([item for item in remarks(body, recorded, state=seen) if item.code in HELD]) == judged


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
    text = sentences(robot(), recorded, state=recorded)
    assert text.startswith(
        "action, observation.state: warning: 'left_wrist_joint' never moves; expected some"
    )
    assert "no joint ever moves" in sentences(robot(), np.broadcast_to(recorded[0], recorded.shape))


def test_a_joint_that_moves_in_one_feature_only():
    moving, native = robot().to_dataset(motion()), motion()
    native[:, 2] = 0.3
    still = robot().to_dataset(native)
    sentence = (
        "warning: 'left_wrist_joint' moves in the action and never in the state; expected both or neither"
    )
    seen = "warning: 'left_wrist_joint' moves in the state and never in the action; expected both or neither"
    assert sentence in sentences(robot(), moving, state=still)
    assert seen in sentences(robot(), still, state=moving)


def test_a_jump_faster_than_the_joint():
    native = motion()
    native[100:, 0] -= 0.5
    text = sentences(robot(), robot().to_dataset(native))
    assert "'left_shoulder_joint' goes 15" in text
    assert (
        "rad/s after frame 99 (1 of 210 steps are too fast); expected at most its velocity limit, 3" in text
    )
    assert "lost frames, another unit or another frame rate" in text
    native = motion()
    native[:, 2] = np.linspace(0, 2 * math.pi, FRAMES)
    wide = robots.build(urdf(), Side(gripper=GRIPPER), Path("tiny.urdf"))
    native[:, 2] = (native[:, 2] + math.pi) % (2 * math.pi) - math.pi
    assert "a full turn between two frames: the values wrap" in sentences(wide, wide.to_dataset(native))
    joints = tuple(dataclasses.replace(joint, velocity=0.0) for joint in wide.joints)  # as of every MJCF
    unknown = dataclasses.replace(wide, joints=joints)
    text = sentences(unknown, unknown.to_dataset(native))
    assert "(1 of 210 steps are too fast); expected less than half a turn; a full turn between two fr" in text


def test_an_end_effector_that_flies():
    native = motion()
    native[::2, 0] -= 1.0
    assert " m/s after frame " in sentences(robot(), robot().to_dataset(native))


def test_the_frame_rate():
    recorded = robot().to_dataset(motion())
    times = np.arange(FRAMES) / FPS
    text = sentences(robot(control_rate=15.0), recorded)
    assert text == (
        "warning: recorded at 30 Hz; expected control_rate 15 Hz;"
        " a policy trained on it acts at another rate than the robot"
    )
    text = sentences(robot(), recorded, timestamps=times * 2)
    assert "warning: its time stamps are 0.06667 s apart; expected 1/30 s" in text
    times[50:] += 0.5
    text = sentences(robot(), recorded, timestamps=times)
    assert (
        "warning: 1 gaps between time stamps, the first after frame 49; expected a frame every 0.03333 s"
        in text
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
