"""How robosuite's expert turns and leans the hand, and which of its equal orientations a thing is given."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.demonstrations import attempts, reach
from morph_vla.demonstrations import robosuite as experts
from morph_vla.engines.engine import Diverged
from morph_vla.engines.episode import UNSETTLED
from morph_vla.engines.robosuite import world
from morph_vla.errors import MorphVlaError
from morph_vla.robots.geometry import matrix_of, rotation
from morph_vla.suites.environment import ActionMap, EnvironmentSuite, load_tasks


@pytest.mark.parametrize("tilt", [0.0, 0.3])
def test_the_hand_points_down_and_keeps_its_yaw(tilt):
    down = rotation((1.0, 0.0, 0.0), math.pi)
    turned = rotation((0.0, 0.0, 1.0), 0.7) @ down
    straight = experts._pointing_down(turned @ rotation((0.0, 1.0, 0.0), tilt))
    np.testing.assert_allclose(straight, turned, atol=1e-12)


def test_a_cube_is_met_by_the_least_turn_that_is_the_same_for_it():
    for angle in np.linspace(-7, 7, 57):
        least = experts._quarter(angle)
        assert abs(least) <= math.pi / 4
        assert math.isclose(math.sin(4 * least), math.sin(4 * angle), abs_tol=1e-9)


def test_a_finger_is_kept_from_the_other_cube():
    beside = np.array([0.05, 0.0, 0.0])
    assert experts._in_the_way(beside, 0.2)
    assert not experts._in_the_way(beside, 1.4)
    assert not experts._in_the_way(4 * beside, 0.2)


@given(st.lists(st.floats(-4, 4), min_size=3, max_size=3), st.integers(0, 23))
def test_orientations_in_which_a_cube_looks_the_same_are_one(angles, other):
    assert len({np.round(equal, 9).tobytes() for equal in world.CUBE}) == 24
    axes = np.eye(3)
    for axis, angle in zip(np.eye(3), angles, strict=True):
        axes = axes @ rotation(tuple(axis), angle)
    shown = world.least_turned(axes)
    turned_rad = math.acos(min(1.0, max(-1.0, (np.trace(shown) - 1) / 2)))
    assert turned_rad <= math.radians(62.8)  # no orientation is farther from a cube's 24
    again = world.least_turned(axes @ world.CUBE[other])
    assert np.trace(again) == pytest.approx(np.trace(shown), abs=1e-9)
    flat = world.least_turned(rotation((0.0, 0.0, 1.0), angles[0]))
    np.testing.assert_allclose(np.trace(flat), 1 + 2 * math.cos(experts._quarter(angles[0])), atol=1e-9)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["actions.scale=[2, 2, 2, 2, 2, 2, 2, 1]"], "actions: a recording has the expert's rows as the arm"),
        (["robot=so101"], "robot: 'so101' has 6 joints, and robosuite's Panda 8, its gripper included$"),
        (["state=[joints]"], r"state: a recording has one value for each action, \[joints, gripper\], not"),
    ],
)
def test_what_would_be_recorded_as_something_else_is_refused(overrides, words):
    (suite,) = load_tasks("docs/examples/robosuite_lift.yaml:panda", ["images={}", *overrides])
    assert isinstance(suite, EnvironmentSuite)
    with pytest.raises(MorphVlaError, match=f"^robosuite_lift:panda: {words}"):
        experts.layout(suite)


def test_a_settle_that_diverges_is_an_error(monkeypatch):
    """What is asked for next would be a policy's answer to no number."""
    diverging = object.__new__(world.World)
    diverging.arm, diverging.data = "Panda", SimpleNamespace(qpos=np.zeros(3), qvel=np.zeros(3))
    monkeypatch.setattr(world, "reset", lambda *_: None)
    monkeypatch.setattr(world.World, "q", lambda self: np.zeros(3))
    monkeypatch.setattr(world.World, "_advance", lambda self, target: self.data.qvel.fill(np.nan))
    diverging._env = None
    with pytest.raises(Diverged, match=r"^the physics diverged while the world settled$"):
        diverging.reset(3)


def test_actions_that_change_nothing_are_recorded():
    """Clipped to the arm's limits or not, and columns and factors that are written out."""
    same = ActionMap(tuple(range(8)), (1.0,) * 8, (0.0,) * 8, clip=False)
    assert not experts._maps(same, 8)
    assert not experts._maps(ActionMap(), 8)
    assert experts._maps(dataclasses.replace(same, columns=(1, 0, *range(2, 8))), 8)
    assert experts._maps(dataclasses.replace(same, scale=(1.0,) * 7 + (2.0,)), 8)
    assert experts._maps(dataclasses.replace(same, offset=(0.1,) + (0.0,) * 7), 8)


def test_an_attempt_that_diverges_while_it_settles_has_failed(monkeypatch):
    (suite,) = load_tasks("docs/examples/robosuite_lift.yaml:panda", ["images={}"])
    assert isinstance(suite, EnvironmentSuite)
    expert = experts.Expert(suite)
    for error, kind in ((UNSETTLED, Diverged), ("RuntimeError: no scene", MorphVlaError)):
        standing = SimpleNamespace(error=f"it could not be reset: {error}")
        stage = SimpleNamespace(reset=lambda rows: None, status={0: standing})
        monkeypatch.setattr(expert, "_stage", stage)
        with pytest.raises(kind, match=error):
            expert._begin(3)
    with pytest.raises(MorphVlaError, match="no scene"):
        expert.demonstrate(3)
    standing.error = f"it could not be reset: {UNSETTLED}"
    assert expert.demonstrate(3) == attempts.Demonstration([], "error", "rest")


@pytest.mark.parametrize("angle", [0.0, 1e-12, 0.4, 3.0])
def test_a_rotation_vector_gives_its_rotation_back(angle):
    axis = (0.48, -0.6, 0.64)
    np.testing.assert_allclose(
        reach._rotation_vector(rotation(axis, angle)), angle * np.array(axis), atol=1e-9
    )


def test_two_fingers_take_hold_by_the_least_turn_that_is_the_same_for_them():
    for angle in np.linspace(-7, 7, 57):
        least = experts._half(angle)
        assert abs(least) <= math.pi / 2
        assert math.isclose(math.sin(2 * least), math.sin(2 * angle), abs_tol=1e-9)


@given(st.lists(st.floats(-4, 4), min_size=3, max_size=3), st.floats(-4, 4))
def test_a_can_is_shown_by_its_axis_alone(angles, about):
    axes = np.eye(3)
    for axis, angle in zip(np.eye(3), angles, strict=True):
        axes = axes @ rotation(tuple(axis), angle)
    shown = matrix_of(world.upright(axes[:, 2]))
    along = axes[:, 2] if axes[2, 2] >= 0 else -axes[:, 2]
    np.testing.assert_allclose(shown[:, 2], along, atol=1e-9)
    assert np.trace(shown) == pytest.approx(1 + 2 * along[2], abs=1e-9)  # no turn but the tilt
    turned = axes @ rotation((0.0, 0.0, 1.0), about)
    np.testing.assert_allclose(matrix_of(world.upright(turned[:, 2])), shown, atol=1e-9)
    if abs(axes[2, 2]) > 1e-9:  # flat on the table either end is as near
        np.testing.assert_allclose(matrix_of(world.upright(-axes[:, 2])), shown, atol=1e-9)


@given(st.floats(-1.5, 1.5), st.floats(-1.5, 1.5), st.floats(-3.1, 3.1))
def test_a_can_is_taken_across_the_way_to_it_and_turns_with_the_arm(first, second, heading):
    place, goal = (0.6 * np.array([math.cos(a), math.sin(a), 0.0]) for a in (first, second))
    way = experts._carry(place, goal, heading, experts.Grip())
    taken, put = way[1], way[-1]
    along = heading + taken.yaw_rad  # from finger to finger
    assert abs(math.cos(along - first)) < 1e-9
    assert abs(taken.yaw_rad) <= math.pi / 2
    assert put.yaw_rad - taken.yaw_rad == pytest.approx(second - first)
    assert [waypoint.gripper for waypoint in way] == [0, 0, 1, 1, 1, 1, experts.AJAR, experts.AJAR]
    assert max(waypoint.position[2] for waypoint in way) <= experts.CARRIED + 1e-9


def test_the_hand_leans_outward_with_a_can_and_stands_straight_over_a_cube():
    place, goal = np.array([0.6, 0.0, 0.0]), np.array([0.0, 0.8, 0.0])
    down = np.array([0.0, 0.0, -1.0])
    for spot, lean, outward in ((place, experts.LEANS[0], place), (goal, experts.LEANS[1], goal)):
        ahead = experts._leaning(spot, place, goal) @ down
        assert ahead @ outward / np.linalg.norm(outward) == pytest.approx(math.sin(lean))
        assert ahead[2] == pytest.approx(-math.cos(lean))
    np.testing.assert_array_equal(experts._leaning(place, place, place), np.eye(3))
