"""From which side cameras look, counted alike on every robot."""

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.robots.views import apart, views

ON_HAND = {"wrist": ("panda_hand", (0.09, 0.0, 0.005), (0.02, 0.0, 0.125))}
POSTURE = {"panda_joint2": -0.2, "panda_joint4": -2.3, "panda_joint6": 2.1, "panda_joint7": 0.785}


@pytest.fixture(scope="module")
def panda():
    return robots.load("panda")


def posture(panda, **values: float) -> np.ndarray:
    angles = panda.rest.copy()
    for name, value in {**POSTURE, **values}.items():
        angles[panda.names.index(name)] = value
    return angles


@pytest.mark.parametrize("turn", [-2.3, -0.7, 0.0, 1.1, 2.9])
def test_an_arm_that_turns_to_its_field_sees_it_from_the_same_side(panda, turn):
    ahead = views(panda, posture(panda), ON_HAND, (0.5, 0.0))["wrist"]
    middle = 0.5 * np.cos(turn), 0.5 * np.sin(turn)
    turned = views(panda, posture(panda, panda_joint1=turn), ON_HAND, middle)["wrist"]
    np.testing.assert_allclose(turned, ahead, atol=1e-12)
    assert np.linalg.norm(turned) == pytest.approx(1.0)


def test_half_a_turn_of_the_hand_is_another_side(panda):
    ahead = views(panda, posture(panda), ON_HAND, (0.5, 0.0))["wrist"]
    behind = views(panda, posture(panda, panda_joint7=0.785 - np.pi), ON_HAND, (0.5, 0.0))["wrist"]
    assert ahead[2] == pytest.approx(behind[2], abs=0.05)  # both from above
    assert apart(behind, [ahead]) > 55
    link, position, look_at = ON_HAND["wrist"]
    moved = {"wrist": (link, (-position[0], *position[1:]), (-look_at[0], *look_at[1:]))}
    again = views(panda, posture(panda, panda_joint7=0.785 - np.pi), moved, (0.5, 0.0))["wrist"]
    np.testing.assert_allclose(again, ahead, atol=1e-9)  # moved to the hand's other side it looks as before


def test_a_fixed_camera_stands_in_the_frame_of_base_and_field(panda):
    fixed = {"front": (None, (0.0, 3.0, 2.0), (0.0, 1.0, 2.0))}
    np.testing.assert_allclose(views(panda, panda.rest, fixed, (0.0, 1.0))["front"], [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(views(panda, panda.rest, fixed, (1.0, 0.0))["front"], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(views(panda, panda.rest, fixed, (0.0, 0.0))["front"], [0, 1, 0], atol=1e-12)


def test_a_camera_on_no_link_of_the_robot_or_that_looks_nowhere_is_left_out(panda):
    up = (0.0, 1.0, 1.0)
    cameras = {"other": ("tool9", up, (0.0, 0.0, 0.0)), "blind": (None, up, up), **ON_HAND}
    assert list(views(panda, panda.rest, cameras, (0.5, 0.0))) == ["wrist"]


def test_the_nearest_view_counts():
    assert apart([1.0, 0.0, 0.0], [[0.0, 1.0, 0.0], [0.6, 0.8, 0.0]]) == pytest.approx(53.1301, abs=1e-3)
    assert apart([1.0, 0.0, 0.0], [[-1.0, 0.0, 0.0]]) == pytest.approx(180.0)
    assert apart([0.6, 0.8, 0.0], [[0.6, 0.8, 0.0]]) == pytest.approx(0.0, abs=1e-5)
