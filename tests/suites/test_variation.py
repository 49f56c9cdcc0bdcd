"""Distractors, light and cameras that differ: nothing when off, per episode and nothing else when on."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines.engine import step_one
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.engines.mujoco.scene import mujoco
from morph_vla.errors import ConfigError
from morph_vla.robots.geometry import product, quaternion_about
from morph_vla.suites import suite as suites
from morph_vla.suites.suite import initial_states
from morph_vla.suites.variation import CameraShift, Light, Mark, Paint, turned

NAME = "droid_panda:cube_in_bowl"
SMALL = [
    "cameras.exterior.width=31", "cameras.exterior.height=29", "cameras.wrist.width=31",
    "cameras.wrist.height=29", "settle_seconds=0.1",
]  # fmt: skip
LIGHT, MOVE, TURN, MORE = (
    "variation.light=0.5",
    "variation.camera_position=0.03",
    "variation.camera_angle=0.1",
    "variation.distractors=2",
)
COLORS, MARKS = "variation.colors=0.7", "variation.marks=5"
EVERY = (LIGHT, MOVE, TURN, MORE, COLORS, MARKS)
JOINTS = 8
PLACES = (
    "{cube: {x: [0.42, 0.56], y: [-0.20, -0.02], yaw: [-0.25, 0.25]}, "
    "bowl: {x: [0.42, 0.56], y: [0.09, 0.21], yaw: [0.0, 0.0]}}"
)


def load(*overrides: str) -> suites.Suite:
    return suites.load(NAME, [*SMALL, *overrides])


def table(*overrides: str, count: int = 13):
    return initial_states(load(*overrides), count, JOINTS)


def frames_of(suite, count: int = 3, environments: int = 1) -> list[dict[str, np.ndarray]]:
    """What the cameras see at the beginning of the first episodes, `environments` worlds at once."""
    engine = MujocoEngine(robots.load(suite.robot), suite, environments)
    states = initial_states(suite, count, JOINTS)
    found = []
    for first in range(0, count, environments):
        some = states[first : first + environments]
        for index, state in enumerate(some):
            engine.reset({index: state})
        views = [engine.observe(index) for index in range(len(some))]
        for index in reversed(range(len(some))):  # looked at again in another order
            again = engine.observe(index)
            assert all(np.array_equal(views[index][key], again[key]) for key in views[index])
        found += views
    engine.close()
    return found


@pytest.fixture(scope="module")
def plain():
    return frames_of(load())


def same(one, other, keys=("images/exterior", "images/wrist", "state")) -> list[bool]:
    return [all(np.array_equal(a[key], b[key]) for key in keys) for a, b in zip(one, other, strict=True)]


# ----------------------------------------------------------------------------------------------- the table


def test_off_is_the_table_without_it():
    without, bare = load(), load("distractors={}", f"placement={PLACES}")
    assert without.objects == bare.objects
    assert list(without.distractors) == ["lemon", "tin", "block"]  # what `suites show` can offer
    assert initial_states(bare, 13, JOINTS) == table()
    assert all(state.light is None and state.cameras == {} for state in table())
    assert all(state.paint is None and state.marks == () for state in table())
    assert all(list(state.poses) == ["cube", "bowl"] for state in table())


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [c for n in (1, 2, 6) for c in itertools.combinations(EVERY, n)])
def test_objects_and_arm_begin_where_they_begin_without_it(chosen):
    for off, on in zip(table(), table(*chosen), strict=True):
        assert on.arm == off.arm
        assert {name: on.poses[name] for name in off.poses} == off.poses
    assert suites.fingerprint(table(*chosen)) != suites.fingerprint(table())


def test_each_option_is_drawn_for_itself():
    """Turning one on does not change what another draws."""
    alone, together = table(LIGHT), table(*EVERY)
    assert [state.light for state in alone] == [state.light for state in together]
    moved = [[shift.move for shift in state.cameras.values()] for state in table(MOVE)]
    assert moved == [[shift.move for shift in state.cameras.values()] for state in together]
    assert [state.poses for state in table(MORE)] == [state.poses for state in together]
    assert [state.marks for state in table(MARKS)] == [state.marks for state in together]
    paints = [state.paint.table for state in table(COLORS) if state.paint]
    assert paints == [state.paint.table for state in together if state.paint]
    assert len(paints) == 13


def test_what_is_drawn_stays_within_what_was_asked():
    states = table(LIGHT, MOVE, TURN, count=101)
    lights = [state.light for state in states if state.light]
    assert len({light.color for light in lights}) == 101
    assert all(0.375 <= value <= 1.875 for light in lights for value in light.color)  # (1 +- 0.5)(1 +- 0.25)
    assert all(abs(value) <= 0.5 for light in lights for value in light.turn)
    shifts = [shift for state in states for shift in state.cameras.values()]
    moves, turns = (np.array([getattr(shift, key) for shift in shifts]) for key in ("move", "turn"))
    assert 0.02 < np.abs(moves).max() <= 0.03
    assert 0.08 < np.abs(turns).max() <= 0.1
    assert np.abs(moves.mean(axis=0)).max() < 0.005


def test_what_is_painted_can_be_told_from_the_table():
    """By 0.3 in one of red, green and blue at least; marks may have any colour, and lie about the field."""
    states = table(COLORS, MARKS, MORE, count=101)
    paints = [state.paint for state in states if state.paint]
    assert len({paint.table for paint in paints}) == len(paints) == 101
    assert all(list(paint.objects) == ["cube", "bowl", "lemon", "tin"] for paint in paints)
    apart = [
        np.abs(np.subtract(color, paint.table)).max() for paint in paints for color in paint.objects.values()
    ]
    assert 0.3 <= min(apart) < 0.35
    marks = [mark for state in states for mark in state.marks]
    assert len(marks) == 505
    places = np.array([mark.place for mark in marks])  # the field: x 0.42 to 0.56, y -0.20 to 0.21
    assert (np.abs(places - [0.49, 0.005]) <= [0.14, 0.41]).all()
    sides = np.array([mark.sides for mark in marks]) / 0.41
    assert 0.06 <= sides.min() < 0.08
    assert 0.58 < sides.max() <= 0.6


def test_distractors_lie_clear_of_everything():
    suite = load("variation.distractors=3")
    assert list(suite.objects) == ["cube", "bowl", "lemon", "tin", "block"]
    for state in initial_states(suite, 31, JOINTS):
        for (_, one), (_, other) in itertools.combinations(state.poses.items(), 2):
            assert math.dist(one[:2], other[:2]) >= suite.min_distance
        for name in ("lemon", "tin", "block"):
            (x, y, _), place = state.poses[name], suite.placement[name]
            assert place.x[0] <= x <= place.x[1]
            assert place.y[0] <= y <= place.y[1]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["variation.distractors=4"],
            r"variation.distractors: 4 asked for, the suite has 3 \(lemon, tin, block\)",
        ),
        (["variation.distractors=-1"], "variation.distractors: must be at least 0, not -1"),
        (["variation.camera_angle=-0.1"], "variation.camera_angle: must be at least 0, not -0.1"),
        (["variation.light=1.5"], "variation.light: must be below 1, where a light may go out, not 1.5"),
        (["variation.colors=1.5"], "variation.colors: a share of each colour, at most 1, not 1.5"),
        (["variation.marks=101"], "variation.marks: at most 100, not 101"),
        (["variation.lihgt=0.3"], "did you mean 'light'"),
    ],
)
def test_what_cannot_be_asked_for_is_said(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load(*overrides)


# --------------------------------------------------------------------------------------------- the pixels


def test_off_is_bitwise_the_same_pixels(plain):
    bare = load("distractors={}", f"placement={PLACES}")
    assert same(frames_of(bare), plain) == [True] * 3


@pytest.mark.parametrize("option", EVERY)
def test_on_changes_what_is_seen_and_not_where_the_arm_is(plain, option):
    changed = frames_of(load(option))
    assert same(changed, plain, ["state"]) == [True] * 3
    # Distractors may lie beside what the camera sees.
    assert same(changed, plain, ["images/exterior"]).count(False) >= (2 if option == MORE else 3)


def test_on_does_not_depend_on_the_number_of_environments():
    suite = load(*EVERY)
    alone = frames_of(suite, 6)
    assert same(frames_of(suite, 6, environments=2), alone) == [True] * 6
    assert same(frames_of(suite, 6, environments=3), alone) == [True] * 6


def test_a_plain_episode_after_a_varied_one_looks_plain(plain):
    """Worlds share one model: what one episode wrote into it is taken back."""
    varied = load(LIGHT, MOVE, TURN, COLORS, MARKS)
    engine = MujocoEngine(robots.load(varied.robot), varied, 2)
    engine.reset({0: initial_states(varied, 1, JOINTS)[0]})
    engine.reset({1: initial_states(load(), 1, JOINTS)[0]})
    engine.observe(0)
    assert on_a_floor(engine.observe(1), plain[0])
    engine.observe(0)
    step_one(engine, 1, engine.state(1))
    engine.reset({1: initial_states(load(), 1, JOINTS)[0]})
    assert on_a_floor(engine.observe(1), plain[0])
    engine.close()


def on_a_floor(seen, plain) -> bool:
    """Whether both are the same, but for the floor of a suite that varies in colours: black is then lit."""
    names = ("images/exterior", "images/wrist")
    return all((np.abs(seen[n].astype(int) - plain[n])[plain[n].sum(axis=-1) > 0] == 0).all() for n in names)


def with_first_state(**changes) -> np.ndarray:
    """The exterior camera's view at the first episode's beginning, with this light or these cameras."""
    suite = load()
    engine = MujocoEngine(robots.load(suite.robot), suite)
    engine.reset({0: dataclasses.replace(initial_states(suite, 1, JOINTS)[0], **changes)})
    view = engine.render(0, "exterior").astype(float)
    engine.close()
    return view


def test_a_darker_light_is_darker_and_a_red_one_redder():
    usual = with_first_state()
    dark = with_first_state(light=Light((0.5, 0.5, 0.5), (0.0, 0.0)))
    red = with_first_state(light=Light((1.0, 0.5, 0.5), (0.0, 0.0)))
    assert 0.3 < dark.mean() / usual.mean() < 0.7
    assert abs(red[..., 0].mean() - usual[..., 0].mean()) < 1
    assert red[..., 1].mean() < 0.8 * usual[..., 1].mean()


def test_everything_has_the_colour_that_was_drawn():
    """Painted whole: pixels are shades of five colours and no others; painted by nothing, as it was."""
    suite = load(COLORS)
    state = initial_states(suite, 1, JOINTS)[0]
    red, green, blue = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    paint = Paint(1.0, red, red, green, {"cube": blue, "bowl": blue})
    engine = MujocoEngine(robots.load(suite.robot), suite)
    views = []
    for share in (1.0, 0.0):
        engine.reset({0: dataclasses.replace(state, paint=dataclasses.replace(paint, share=share))})
        views.append(engine.render(0, "exterior").astype(int))
    engine.close()
    whole, nothing = views
    largest = whole.max(axis=-1)
    assert (whole.sum(axis=-1) - largest < 0.45 * largest + 8).all()  # highlights are white
    assert sorted(np.unique(whole.argmax(axis=-1))) == [0, 1, 2]
    plain = frames_of(load(), 1)[0]["images/exterior"]
    assert (nothing[plain.sum(axis=-1) > 0] == plain[plain.sum(axis=-1) > 0]).all()


def test_marks_are_seen_and_not_felt():
    """A mark under the cube changes pixels beside it, and no reading of the physics."""
    suite = load(MARKS)
    state = initial_states(suite, 1, JOINTS)[0]
    x, y, _ = state.poses["cube"]
    mark = Mark((x, y), 0.3, (0.2, 0.1), (0.0, 1.0, 0.0))
    engine, readings, views = MujocoEngine(robots.load(suite.robot), suite), [], []
    for marks in ((), (mark,)):
        engine.reset({0: dataclasses.replace(state, marks=marks)})
        views.append(engine.render(0, "exterior").astype(int))  # before anything has moved
        readings.append([step_one(engine, 0, engine.state(0)).object_position.tolist() for _ in range(5)])
        views.append(engine.render(0, "exterior").astype(int))
    engine.close()
    assert readings[0] == readings[1]
    green = [(view[..., 1] > np.maximum(view[..., 0], view[..., 2]) + 60).sum() for view in views]
    assert green[0] == green[1] == 0
    assert min(green[2:]) > 10
    assert abs(green[2] - green[3]) < 5


def test_a_shifted_camera_is_the_suites_camera_standing_there():
    """A move along an axis of the base frame is that of the suite's own `position` and `look_at`."""
    suite = load()
    move = (0.02, -0.03, 0.01)
    camera = suite.cameras["exterior"]
    there = dataclasses.replace(
        camera,
        position=tuple(np.add(camera.position, move).tolist()),
        look_at=tuple(np.add(camera.look_at, move).tolist()),
    )
    moved = dataclasses.replace(suite, cameras={**suite.cameras, "exterior": there})
    expected = frames_of(moved, 1)[0]["images/exterior"].astype(float)
    found = with_first_state(cameras={"exterior": CameraShift(move, (0.0, 0.0, 0.0))})
    assert np.abs(found - expected).max() <= 1
    assert np.abs(found - with_first_state()).max() > 20


def test_a_camera_turned_about_its_own_axis_of_view_turns_the_picture():
    half = with_first_state(cameras={"exterior": CameraShift((0.0, 0.0, 0.0), (0.0, 0.0, math.pi))})
    assert np.abs(half - with_first_state()[::-1, ::-1]).mean() < 2


# -------------------------------------------------------------------------------------------- the rotations


def test_turned_and_rotation_agree_with_their_formulas():
    np.testing.assert_allclose(turned((0.0, 0.0, -1.0), (math.pi / 2, 0.0)), (0.0, 1.0, 0.0), atol=1e-12)
    np.testing.assert_allclose(turned((0.0, 0.0, -1.0), (0.0, math.pi / 2)), (-1.0, 0.0, 0.0), atol=1e-12)
    assert turned((0.1, 0.5, -1.0), (0.0, 0.0)) == (0.1, 0.5, -1.0)
    assert quaternion_about((0.0, 0.0, 0.0)) == (1.0, 0.0, 0.0, 0.0)
    root = math.sqrt(0.5)
    np.testing.assert_allclose(quaternion_about((0.0, math.pi / 2, 0.0)), (root, 0.0, root, 0.0), atol=1e-12)


def test_a_product_of_quaternions_is_mujocos():
    rng = np.random.default_rng(5)
    for _ in range(7):
        a, b = (values / np.linalg.norm(values) for values in rng.normal(size=(2, 4)))
        expected = np.zeros(4)
        mujoco().mju_mulQuat(expected, a, b)
        (aw, ax, ay, az), (bw, bx, by, bz) = a.tolist(), b.tolist()
        np.testing.assert_allclose(product((aw, ax, ay, az), (bw, bx, by, bz)), expected, atol=1e-12)
