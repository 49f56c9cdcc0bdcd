"""`training.turn_degrees`: rows turned about the vertical, hand, objects and moves as one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tool_space import changes

from morph_vla import robots
from morph_vla.data.space import poses_turned, values_turned
from morph_vla.errors import ConfigError
from morph_vla.recipes import recipe as recipes
from morph_vla.robots.geometry import POSE, matrix_of, rotation
from morph_vla.robots.tool import poses_of, tool_space
from morph_vla.training.source import Source

NAMES = [f"{what} {value}" for what in ("cup", "plate") for value in POSE]
ANGLES = st.floats(-3.1, 3.1)


@pytest.mark.slow
@settings(max_examples=25)
@given(angle=ANGLES, seed=st.integers(0, 2**16), name=st.sampled_from(["panda", "so101", "g1_dex1"]))
def test_an_arm_whose_first_joint_turns_is_a_hand_that_turns(angle, seed, name):
    """Every pose of a tool after a turn is the turned one, its grippers as they were."""
    robot, rng = robots.load(name), np.random.default_rng(seed)
    known = tool_space(robot)
    seen = known.seen(robot.to_dataset(robot.rest + 0.2 * rng.normal(size=(3, len(robot.names)))))
    turned = values_turned(robot, seen, np.full(3, angle))
    turn = np.eye(4)
    turn[:3, :3] = rotation((0.0, 0.0, 1.0), angle)
    for start in range(0, known.of_poses, 9):
        one, other = (poses_of(values[:, start : start + 9]) for values in (seen, turned))
        np.testing.assert_allclose(other, turn @ one, atol=1e-5)
    np.testing.assert_array_equal(turned[:, known.of_poses :], seen[:, known.of_poses :])


def test_a_first_joint_about_the_vertical_turns_the_same_way():
    """The law holds of kinematics that nobody here wrote down: Panda's first axis is its root's z."""
    robot, angle = robots.load("panda"), 0.41
    joints = np.tile(robot.rest, (2, 1))
    joints[1, 0] += angle
    seen = tool_space(robot).seen(robot.to_dataset(joints))
    np.testing.assert_allclose(values_turned(robot, seen[:1], np.array([angle])), seen[1:], atol=1e-5)


@given(angle=ANGLES, seed=st.integers(0, 2**16))
def test_objects_turn_about_the_hand(angle, seed):
    values = np.random.default_rng(seed).normal(size=(3, 14)).astype(np.float32)
    for start in (3, 10):
        values[:, start : start + 4] /= np.linalg.norm(values[:, start : start + 4], axis=1, keepdims=True)
    turned, turn = poses_turned(NAMES, values, np.full(3, angle)), rotation((0.0, 0.0, 1.0), angle)
    for start in (0, 7):
        place, lies = slice(start, start + 3), slice(start + 3, start + 7)
        np.testing.assert_allclose(turned[:, place], values[:, place] @ turn.T, atol=1e-5)
        for one, other in zip(_matrices(values[:, lies]), _matrices(turned[:, lies]), strict=True):
            np.testing.assert_allclose(other, turn @ one, atol=1e-4)
    points = values[:, :2]
    np.testing.assert_array_equal(poses_turned(["a x", "a y"], points, np.full(3, angle)), points)


def _matrices(quaternions):
    return [matrix_of((float(w), float(x), float(y), float(z))) for w, x, y, z in quaternions]


@pytest.fixture(scope="module")
def sources(dataset, tmp_path_factory):
    """The same rows as recorded, and turned."""
    return [
        Source(
            recipes.load("panda_demo", changes(dataset, f"training.turn_degrees={degrees}")),
            tmp_path_factory.mktemp("cache"),
        )
        for degrees in (0, 180)
    ]


def test_a_step_learns_the_turned_row(sources):
    """State, objects and the whole chunk of every row are turned by one angle, which differs between rows."""
    plain, turned = sources
    angles = turned.angles(3)
    assert len(set(angles.tolist())) == 5
    assert np.abs(angles).max() <= np.pi
    robot, stats = plain.parts[0].robot, plain.stats["panda"]
    one, other = plain.at(3), turned.at(3)
    width = len(tool_space(robot).names)
    for known, values in (
        (stats.state, lambda batch: batch.observation.state),
        (stats.action, lambda batch: batch.actions),
    ):
        expected = values_turned(robot, known.restore(values(one)[..., :width]).astype(np.float32), angles)
        np.testing.assert_allclose(known.restore(values(other)[..., :width]), expected, atol=2e-5)
    names = plain.parts[0].recordings.environment_names
    recorded, learnt = (
        source.poses["panda"].restore(batch.observation.environment).astype(np.float32)
        for source, batch in ((plain, one), (turned, other))
    )
    np.testing.assert_allclose(learnt, poses_turned(names, recorded, angles), atol=2e-5)


def test_steps_are_the_same_when_a_run_goes_on_and_differ_from_each_other(sources):
    _, turned = sources
    np.testing.assert_array_equal(turned.angles(7), turned.angles(7))
    assert (turned.angles(7) != turned.angles(8)).all()


def test_processes_share_the_angles_of_one_batch(sources, tmp_path):
    _, whole = sources
    training = dataclasses.replace(whole.recipe.training, batch=6)
    recipe = dataclasses.replace(whole.recipe, training=training)
    together = Source(recipe, tmp_path).at(2).actions
    shares = [Source(recipe, tmp_path, process=index, processes=3).at(2).actions for index in range(3)]
    np.testing.assert_array_equal(np.concatenate(shares), together)


def test_held_out_rows_are_as_recorded(sources):
    one, other = (source.held_out()["panda"] for source in sources)
    np.testing.assert_array_equal(one.actions, other.actions)
    np.testing.assert_array_equal(one.observation.state, other.observation.state)


def test_places_of_objects_have_the_ranges_of_all_directions(sources):
    """Of a full turn x and y have one range, about zero; the height's is as it was."""
    plain, turned = sources
    x, y, z = range(3)
    known = turned.poses["panda"]
    assert known.q99[x] == pytest.approx(known.q99[y], rel=0.05)
    assert known.q01[x] == pytest.approx(-known.q99[x], rel=0.05)
    as_recorded = plain.poses["panda"]
    assert (known.q01[z], known.q99[z]) == pytest.approx((as_recorded.q01[z], as_recorded.q99[z]), abs=2e-3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["training.turn_degrees=181"], r"training.turn_degrees: must lie in \[0, 180\], not 181"),
        (["training.turn_degrees=-1"], r"training.turn_degrees: must lie in \[0, 180\], not -1"),
        (
            ["data.space=joints"],
            "which data.space: joints does not have; choose tool or hand, or 0",
        ),
        (["data.statistics=own"], "data.statistics: own are of poses as recorded; choose robot"),
        (
            ["data.cameras={a: front}", "model.cameras=[a]"],
            "pictures would not turn; leave out data.cameras, or choose 0",
        ),
    ],
)
def test_what_does_not_turn_is_refused(more, words):
    with pytest.raises(ConfigError, match=words):
        recipes.load("panda_demo", changes("nowhere", "training.turn_degrees=30", *more))
