"""Where a recording leads the end effector: its path, how long and how quick it is."""

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.checks import playback

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
