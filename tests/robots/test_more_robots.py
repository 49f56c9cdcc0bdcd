"""The two shipped robots that stretch the format: two arms on a table, and a hand whose fingers mimic."""

from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.robots.geometry import rotation
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.urdf import read

SHIPPED = ("panda", "so101", "g1_dex1", "aloha", "inspire_hand")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_robot_is_free_of_errors_and_warnings(name: str):
    robot = robots.load(name)
    assert not [str(finding) for finding in robot.findings if finding.severity != "note"]
    assert not [str(finding) for finding in robot.findings if "no <contact>" in finding.found]
    assert robot.side.source
    assert "Apache-2.0" in robot.side.licence


# ------------------------------------------------------------------------------------------------------ aloha

ARM = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate")
HOME = np.array([0.536494, 0.0, 0.42705])
"""The hand of a ViperX-300 at zero [m], and its joints as screws (axis; a point on it): its maker's."""
SCREWS = (
    ((0.0, 0.0, 1.0), (0.0, 0.0, 0.0)),
    ((0.0, 1.0, 0.0), (0.0, 0.0, 0.12705)),
    ((0.0, 1.0, 0.0), (0.05955, 0.0, 0.42705)),
    ((1.0, 0.0, 0.0), (0.0, 0.0, 0.42705)),
    ((0.0, 1.0, 0.0), (0.35955, 0.0, 0.42705)),
    ((1.0, 0.0, 0.0), (0.0, 0.0, 0.42705)),
)


def test_aloha_is_what_lerobot_says():
    aloha = robots.load("aloha")
    assert aloha.side.names == tuple(
        f"{side}_{part}" for side in ("left", "right") for part in (*ARM, "gripper")
    )
    assert aloha.control_rate == 50
    assert aloha.side.cameras == ("cam_high", "cam_low", "cam_left_wrist", "cam_right_wrist")
    assert [joint.is_gripper for joint in aloha.joints] == ([False] * 6 + [True]) * 2
    values = np.zeros(14)
    values[6] = 1.0
    where = aloha.positions(aloha.to_native(values))
    assert (where["left_left_finger"], where["left_right_finger"]) == pytest.approx((0.057, -0.057))
    assert (where["right_left_finger"], where["right_right_finger"]) == pytest.approx((0.021, -0.021))


def test_alohas_arms_meet_in_the_table():
    aloha = robots.load("aloha")
    edges = {tuple(pair) for pair in np.argwhere(np.triu(aloha.adjacency, 1)).tolist()}
    assert edges == {(i, i + 1) for start in (0, 7) for i in range(start, start + 6)} | {(0, 7)}


def test_alohas_arms_move_as_their_makers_screws():
    """exp(S1 q1) ... exp(S6 q6) M in the frame of the arm's base, for both arms."""
    aloha = robots.load("aloha")
    generator = np.random.default_rng(5)
    for values in generator.uniform(aloha.lower, aloha.upper, size=(17, 14)):
        poses = aloha.forward_kinematics(values)
        for start, side in ((0, "left"), (7, "right")):
            expected = np.eye(4)
            for (axis, point), angle in zip(SCREWS, values[start : start + 6], strict=True):
                step = np.eye(4)
                step[:3, :3] = rotation(axis, float(angle))
                step[:3, 3] = np.array(point) - step[:3, :3] @ point
                expected = expected @ step
            expected[:3, 3] += expected[:3, :3] @ HOME
            base = poses[f"{side}_base_link"]
            np.testing.assert_allclose(poses[f"{side}_grasp_link"], base @ expected, atol=1e-6)
    assert abs(poses["left_base_link"][0, 3] - poses["right_base_link"][0, 3]) == pytest.approx(0.938)


def test_alohas_hands_face_each_other_over_the_table_at_rest():
    aloha = robots.load("aloha")
    poses = aloha.forward_kinematics(aloha.rest)
    left, right = (poses[f"{side}_grasp_link"] for side in ("left", "right"))
    assert left[0, 0] > 0.9
    assert right[0, 0] < -0.9
    assert 0.1 < left[2, 3] < 0.5
    np.testing.assert_allclose(left[:3, 3] * [-1, 1, 1], right[:3, 3], atol=1e-6)


# ------------------------------------------------------------------------------------------------------- hand


def test_the_hand_branches_at_the_palm_and_its_fingers_fold_by_six_values():
    hand = robots.load("inspire_hand")
    assert len(hand.joints) == 6
    palm = [0, 1, 2, 3, 5]
    assert hand.adjacency[np.ix_(palm, palm)].all()
    assert hand.distances[4].tolist() == [2, 2, 2, 2, 0, 1]
    drives = {name: rest for name, *rest in hand.drives()}
    assert len(drives) == 12
    assert drives["thumb_intermediate_joint"] == [4, 1.334, 0.0]
    assert drives["thumb_distal_joint"] == [4, 0.667, 0.0]
    assert drives["pinky_intermediate_joint"] == [0, 1.06399, -0.04545]


def test_the_hand_moves_as_the_public_one(shared: Path):
    hand, public = robots.load("inspire_hand"), read(shared / "urdf_zoo" / "inspire_hand_left.urdf")
    there = {joint.name: joint for joint in public.joints}
    for joint in hand.urdf.joints:
        other = there[joint.name]
        assert (joint.type, joint.parent, joint.child) == (other.type, other.parent, other.child)
        if joint.type != "fixed":
            assert joint.axis == other.axis
            assert joint.limit
            assert other.limit
            assert (joint.limit.lower, joint.limit.upper) == (other.limit.lower, other.limit.upper)
    for values in np.random.default_rng(11).uniform(hand.lower, hand.upper, size=(17, 6)):
        ours = hand.forward_kinematics(values)
        theirs = link_poses(public, dict(zip(hand.names, values.tolist(), strict=True)))
        assert ours.keys() == theirs.keys()
        for link, pose in ours.items():
            np.testing.assert_allclose(pose, theirs[link], atol=1e-6, err_msg=link)


# ------------------------------------------------------------------------------------------------- simulation


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_robot_holds_its_rest_pose_for_a_second(name: str):
    """Under gravity, each joint held by a servo no stronger than the URDF's effort."""
    mj = pytest.importorskip("mujoco")
    robot = robots.load(name)
    spec = mj.MjSpec.from_file(str(robot.urdf_path))
    spec.option.integrator = mj.mjtIntegrator.mjINT_IMPLICITFAST
    for joint in robot.urdf.actuated:
        effort = joint.limit.effort if joint.limit and joint.limit.effort else 1.0
        actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mj.mjtTrn.mjTRN_JOINT)
        actuator.set_to_position(kp=(100 if joint.type == "prismatic" else 20) * effort, dampratio=1.0)
        actuator.forcerange, actuator.forcelimited = [-effort, effort], True
    model = spec.compile()
    data, rest = mj.MjData(model), robot.positions(robot.rest)
    for joint, value in rest.items():
        data.qpos[model.joint(joint).qposadr] = value
    start = data.qpos.copy()
    for index in range(model.nu):
        data.ctrl[index] = rest.get(model.actuator(index).name, 0.0)
    for _ in range(round(1 / model.opt.timestep)):
        mj.mj_step(model, data)
    assert np.isfinite(data.qacc).all()
    np.testing.assert_allclose(data.qpos, start, atol=0.03)
    assert np.abs(data.qvel).max() < 0.02
