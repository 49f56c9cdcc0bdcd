"""The expert that pushes: its way, its retries, and that the puck ends on the square."""

import dataclasses
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.errors import ConfigError
from morph_vla.suites import new
from morph_vla.suites.suite import ExpertSpec, initial_state, load

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp")):
    pytest.skip("the scripted expert needs the extra 'sim'", allow_module_level=True)

from morph_vla.demonstrations import attempts, push, recording
from morph_vla.engines.engine import step_one
from morph_vla.engines.isaaclab import assets
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import MorphVlaError

SPEC = ExpertSpec("push", "hand", 0.13, 0.0, 0.4, retreat=0.07, clearance=0.005, behind=0.11)
places = st.tuples(*[st.floats(-0.5, 0.5)] * 2).map(lambda place: np.array([*place, 0.02]))


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    plan = new.plan(robots.load("panda"))
    path = tmp_path_factory.mktemp("eval") / "pushing.yaml"
    path.write_text(new.text("pushing", plan, ["push"]))
    return path


@pytest.fixture(scope="module")
def engine(path):
    engine = MujocoEngine(robots.load("panda"), load(path))
    yield engine
    engine.close()


@given(thing=places, target=places)
def test_the_hand_comes_down_behind_the_object_and_pushes_it_to_the_target(thing, target):
    assume(np.linalg.norm(target - thing) > 1e-3)
    way = push.waypoints(thing, target, SPEC)
    over, _, start, end, off, up = (waypoint.position for waypoint in way)
    along = (target - thing)[:2] / np.linalg.norm((target - thing)[:2])
    assert (start - thing)[:2] == pytest.approx(-SPEC.behind * along, abs=1e-9)
    assert (end - target)[:2] == pytest.approx(-push.TOUCHING * SPEC.behind * along, abs=1e-9)
    assert {start[2], end[2], off[2]} == {0.02 + SPEC.clearance}
    assert (over - start) == pytest.approx([0, 0, SPEC.hover])
    assert (up - off) == pytest.approx([0, 0, SPEC.retreat])
    assert np.linalg.norm((off - target)[:2]) > np.linalg.norm((end - target)[:2])  # it backs off
    assert {waypoint.gripper for waypoint in way} == {1.0}
    assert max(abs(waypoint.yaw_rad) for waypoint in way) <= math.pi / 4 + 1e-9


@given(thing=places, target=places, quarters=st.integers(0, 3))
def test_a_quarter_turn_of_the_scene_turns_the_way_and_not_the_hand(thing, target, quarters):
    assume(np.linalg.norm(target - thing) > 1e-3)
    cos, sin = round(math.cos(quarters * math.pi / 2)), round(math.sin(quarters * math.pi / 2))
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]], float)
    way, turned = (push.waypoints(m @ thing, m @ target, SPEC) for m in (np.eye(3), turn))
    for before, after in zip(way, turned, strict=True):
        assert after.position == pytest.approx(turn @ before.position, abs=1e-9)
        # At an eighth of a turn either side of the hand will do.
        assert math.cos(4 * (after.yaw_rad - before.yaw_rad)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_the_expert_does_the_task_and_nothing_moves_the_square(engine):
    assert [attempts.attempts(engine, [number])[0].ended for number in range(5)] == ["success"] * 5
    pose = initial_state(engine.suite, 4, len(engine.robot.joints)).poses["square"]
    place, turn = engine.pose(0, "square")
    assert place[:2].tolist() == list(pose[:2])
    assert turn.tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["near", "low", "target", "anywhere"])
def test_it_does_the_task_from_elsewhere_too(engine, kind):
    assert attempts.demonstration(engine, 3, kind).ended == "success"


def test_what_ends_beside_the_square_is_pushed_again(engine, monkeypatch):
    ways, real = [], push.waypoints

    def short(thing, target, spec):
        ways.append(thing)
        return real(thing, thing + 0.3 * (target - thing) if len(ways) == 1 else target, spec)

    monkeypatch.setattr(push, "waypoints", short)
    (status,) = attempts.attempts(engine, [1])
    assert status.ended == "success"
    assert len(ways) == 2
    assert 0.02 < np.linalg.norm(ways[1] - ways[0]) < 0.15  # planned from where the first push left it
    assert attempts.expert_of(engine).again(engine.sight(0)) == []  # it lies in the square


@pytest.mark.parametrize("quarters", range(4))
def test_the_box_turns_with_its_target_as_the_criterion_has_it(engine, quarters):
    """An oblong: what lies along it is there, and what lies across is not."""
    engine.reset({0: initial_state(engine.suite, 0, len(engine.robot.joints))})
    expert, half = attempts.expert_of(engine), math.pi / 4 * quarters
    success = dataclasses.replace(engine.suite.success, low=(-0.15, -0.04, -0.1), high=(0.15, 0.04, 0.1))
    expert.suite = dataclasses.replace(engine.suite, success=success)
    turned = (math.cos(half), 0.0, 0.0, math.sin(half))
    along = np.array([math.cos(2 * half), math.sin(2 * half), 0.0])
    across = np.array([-along[1], along[0], 0.0])
    seen = dataclasses.replace(engine.sight(0), target_quaternion=turned)
    for offset, is_there in ((0.12 * along, True), (0.12 * across, False)):
        put = dataclasses.replace(seen, object_position=seen.target_position + offset)
        assert (expert.again(put) == []) == is_there
        reading = dataclasses.replace(
            engine.reading(0), object_position=put.object_position, target_position=seen.target_position,
            target_quaternion=turned,
        )  # fmt: skip
        assert attempts.criterion._in_box(reading, reading, success) == is_there


def test_a_hand_that_stands_behind_the_object_goes_on_pushing(engine):
    engine.reset({0: initial_state(engine.suite, 2, len(engine.robot.joints))})
    expert = attempts.expert_of(engine)
    whole = expert.waypoints(engine.sight(0))
    down = expert.follow(engine.sight(0), whole[:3])
    for action in down.actions:
        step_one(engine, 0, action)
    rest = expert.waypoints_from_here(engine.sight(0))
    assert len(rest) == 3
    assert rest[0].position == pytest.approx(whole[3].position, abs=2e-3)


def test_a_square_is_seen(engine):
    engine.reset({0: initial_state(engine.suite, 0, len(engine.robot.joints))})
    frame = engine.render(0, "exterior").astype(int)
    yellow = (frame[..., 0] > 150) & (frame[..., 1] > 120) & (frame[..., 2] < 80)
    assert yellow.sum() > 100


def test_a_push_that_misses_its_mark_failed_at_inside(engine):
    suite = dataclasses.replace(engine.suite, episode_seconds=1.0)
    assert suite.success.by_pushing
    engine.reset({0: initial_state(suite, 0, len(engine.robot.joints))})
    progress = attempts.criterion.begin(engine.reading(0), 0.0)
    away = dataclasses.replace(progress, reached=True, knocked=True)
    assert attempts.criterion.failed_clause(progress, engine.reading(0), suite.success) == "reached"
    assert attempts.criterion.failed_clause(away, engine.reading(0), suite.success) == "inside"


def test_recordings_from_before_there_were_pushes_are_the_same(path):
    assert '"behind"' in recording._identity([load(path)], 3)
    assert '"behind"' not in recording._identity([load("so101_pick_orange")], 3)


def test_what_a_push_cannot_be_is_said_at_once(path):
    with pytest.raises(ConfigError) as problems:
        load(path, ["expert.behind=0", "expert.begin.carry=0.25"])
    assert [line.partition("pushing.yaml: ")[2] for line in str(problems.value).splitlines()] == [
        "expert.behind: must be above 0 for a push, not 0",
        "expert.begin.carry: must be 0 for a push, which grasps nothing, not 0.25",
    ]
    area = load(path).objects["square"]
    with pytest.raises(MorphVlaError, match=r"^the engine isaaclab has no objects of the shape 'area' yet$"):
        assets.object_usd(area)
