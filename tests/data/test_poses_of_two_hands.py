"""Objects' poses told to a robot of two hands."""

import numpy as np

from morph_vla import robots
from morph_vla.data import space
from morph_vla.robots.geometry import POSE


def test_places_are_counted_from_the_middle_of_both_tools():
    robot = robots.load("g1_dex1")
    known = space.tools_of(robot)
    bent = robot.rest + np.linspace(0, 0.3, len(robot.rest))
    state = known.seen(robot.to_dataset(bent[None])).astype(np.float32)
    places = state[:, : known.of_poses].reshape(1, -1, 9)[:, :, :3]
    assert places.shape[1] == 2
    names = [f"cup {value}" for value in POSE]
    seen = space.poses_seen(robot, "tool", names, np.ones((1, 7), np.float32), state)
    np.testing.assert_allclose(seen[:, :3], 1 - places.mean(axis=1), atol=1e-6)
