"""The axioms of rotations, and that matrices, quaternions, vectors and poses say the same."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.robots import geometry
from morph_vla.robots.records import Pose

ANGLES = st.floats(-7, 7)
VECTORS = st.tuples(*[st.floats(-3, 3)] * 3)


@st.composite
def axes(draw) -> tuple[float, float, float]:
    vector = np.array(draw(VECTORS.filter(lambda v: math.hypot(*v) > 0.1)))
    x, y, z = (vector / np.linalg.norm(vector)).tolist()
    return x, y, z


TURNS = st.builds(lambda axis, angle: tuple(angle * value for value in axis), axes(), st.floats(-3, 3))


def close(first, second):
    np.testing.assert_allclose(first, second, atol=1e-9)


def test_a_rotation_turns_by_the_right_hand():
    close(geometry.rotation((0.0, 0.0, 1.0), np.pi / 2) @ [1, 0, 0], [0, 1, 0])
    close(geometry.rotation((1.0, 0.0, 0.0), np.pi / 2) @ [0, 1, 0], [0, 0, 1])
    close(geometry.matrix_of(geometry.quaternion_about((0.0, np.pi / 2, 0.0))) @ [0, 0, 1], [1, 0, 0])


@given(axes(), ANGLES, ANGLES)
def test_rotations_about_one_axis_are_a_group(axis, first, second):
    one, two = geometry.rotation(axis, first), geometry.rotation(axis, second)
    close(one @ one.T, np.eye(3))
    assert np.linalg.det(one) == pytest.approx(1.0)
    close(one @ two, geometry.rotation(axis, first + second))
    close(one @ axis, axis)
    assert np.trace(one) == pytest.approx(1 + 2 * math.cos(first))


@given(axes(), st.lists(st.tuples(VECTORS, ANGLES), min_size=1, max_size=5))
def test_points_turn_as_by_their_matrices(axis, drawn):
    points, angles = np.array([p for p, _ in drawn]), np.array([a for _, a in drawn])
    wanted = [geometry.rotation(axis, a) @ p for p, a in zip(points, angles, strict=True)]
    close(geometry.rotated(points, axis, angles), wanted)


@given(VECTORS, VECTORS)
def test_the_matrix_of_a_cross_product(first, second):
    close(geometry.cross(first) @ second, np.cross(first, second))


@given(axes(), st.floats(-3, 3))
def test_a_rotation_vector_is_its_axis_and_angle(axis, angle):
    x, y, z = (angle * value for value in axis)
    close(geometry.matrix_of(geometry.quaternion_about((x, y, z))), geometry.rotation(axis, angle))


@given(TURNS, TURNS)
def test_quaternions_multiply_as_their_matrices(first, second):
    a, b = geometry.quaternion_about(first), geometry.quaternion_about(second)
    assert math.hypot(*geometry.product(a, b)) == pytest.approx(1.0)
    close(geometry.matrix_of(geometry.product(a, b)), geometry.matrix_of(a) @ geometry.matrix_of(b))


@given(TURNS)
def test_a_matrix_gives_back_its_quaternion_but_for_the_sign(turn):
    there = geometry.quaternion_about(turn)
    back = geometry.quaternion_of(geometry.matrix_of(there))
    assert back[0] >= 0
    assert abs(np.dot(there, back)) == pytest.approx(1.0)


@given(VECTORS, VECTORS)
def test_a_pose_turns_about_fixed_x_y_and_z_and_then_shifts(xyz, rpy):
    matrix = geometry.transform(Pose(xyz, rpy))
    point = np.array([0.3, -0.2, 0.5])
    for axis, angle in zip(np.eye(3).tolist(), rpy, strict=True):
        point = geometry.rotation(tuple(axis), angle) @ point
    close(matrix @ [0.3, -0.2, 0.5, 1.0], [*(point + xyz), 1.0])
