"""A fixed camera: what it sees is the same for similar scenes, and says where things are."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.errors import MorphVlaError
from morph_vla.perception.view import Optics, View, view_of
from morph_vla.robots.geometry import quaternion_about, turned_about_z, vectors_turned_about_z
from morph_vla.suites.suite import Camera

EXTERIOR = Camera((1.45, 0.0, 0.8), (0.78, 0.0, 0.05), 45.0, 97, 97)
numbers = st.floats(-1.0, 1.0)
vectors = st.tuples(numbers, numbers, numbers)


def poses_of(places, turns) -> np.ndarray:
    """Poses of objects from places and rotation vectors."""
    rows = [[*place, *quaternion_about(turn)] for place, turn in zip(places, turns, strict=True)]
    poses = np.asarray(rows, np.float64)
    return np.concatenate([poses[:, :3], np.where(poses[:, 3:4] < 0, -1, 1) * poses[:, 3:]], axis=1)


def test_what_it_looks_at_is_a_distance_ahead():
    view = view_of(EXTERIOR)
    np.testing.assert_allclose(view.seen(view.look_at), [0, 0, -1], atol=1e-12)
    np.testing.assert_allclose(view.axes.T @ view.axes, np.eye(3), atol=1e-12)
    assert np.linalg.det(view.axes) == pytest.approx(1.0)
    assert view.axes[2, 0] == 0  # its x is level
    assert view.optics(128).rise == pytest.approx(math.atan2(0.75, 0.67))


@given(places=st.lists(vectors, min_size=3, max_size=3), turns=st.lists(vectors, min_size=3, max_size=3))
def test_poses_come_back(places, turns):
    view, poses = view_of(EXTERIOR), poses_of(places, turns)
    seen = view.objects_seen(poses)
    assert seen.shape == (3, 9)
    back = view.poses(seen)
    np.testing.assert_allclose(back[:, :3], poses[:, :3], atol=2e-6)
    assert (back[:, 3] >= 0).all()
    alike = np.abs((back[:, 3:] * poses[:, 3:]).sum(axis=1))  # q and -q are one orientation
    np.testing.assert_allclose(alike, 1.0, atol=1e-5)


@given(place=vectors, turn=vectors, factor=st.floats(0.2, 5.0), angle=st.floats(-3.0, 3.0))
def test_a_similar_scene_looks_the_same(place, turn, factor, angle):
    """All of it as many times as large, and turned about the vertical: the same numbers."""
    poses, view = poses_of([place], [turn]), view_of(EXTERIOR)
    moved = poses.copy()
    moved[:, :3] = vectors_turned_about_z(factor * poses[:, :3], angle)
    moved[:, 3:] = turned_about_z(poses[:, 3:], angle)
    position, look_at = (vectors_turned_about_z(factor * v, angle) for v in (view.position, view.look_at))
    other = View(position, look_at, view.fovy)
    np.testing.assert_allclose(other.objects_seen(moved), view.objects_seen(poses), atol=1e-5)
    assert other.optics(64) == pytest.approx(view.optics(64))


def test_columns_that_are_no_rotation_become_the_nearest():
    view = view_of(EXTERIOR)
    seen = view.objects_seen(poses_of([(0.7, 0.1, 0.02)], [(0.0, 0.0, 0.4)]))
    longer = np.concatenate([seen[:, :3], 3.7 * seen[:, 3:]], axis=1)
    np.testing.assert_allclose(view.poses(longer), view.poses(seen), atol=1e-5)
    for nothing in (np.zeros((1, 6)), np.array([[1.0, 0, 0, 1, 0, 0]])):  # no direction; two that are one
        pose = view.poses(np.concatenate([seen[:, :3], nothing], axis=1))
        assert np.linalg.norm(pose[0, 3:]) == pytest.approx(1.0, abs=1e-5)


def test_the_lens():
    optics = Optics(128, 90.0, 0.5)
    assert optics.focal == pytest.approx(64.0)
    assert np.linalg.norm(optics.up) == pytest.approx(1.0)


def test_cameras_of_which_nothing_is_estimated():
    moving = Camera((0.1, 0.0, 0.0), (0.0, 0.0, 0.1), 75.0, 97, 97, link="panda_hand")
    with pytest.raises(
        MorphVlaError, match=re.escape("camera 'wrist' moves with 'panda_hand': poses are estimated from")
    ):
        view_of(moving, "wrist")
    with pytest.raises(
        MorphVlaError, match=re.escape("camera 'exterior' looks straight down: an estimator's looks from")
    ):
        view_of(Camera((0.5, 0.0, 1.0), (0.5, 0.0, 0.0), 45.0, 97, 97))
