"""The criterion for several objects: each in a target's box, whichever, and which came there first."""

import dataclasses
from itertools import permutations

import numpy as np
import pytest
from bowl import DWELL, RATE, SUCCESS, UPRIGHT, about, reading
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import environment_names, environment_state
from morph_vla.engines.episode import Episodes
from morph_vla.engines.isaaclab.options import Options
from morph_vla.engines.isaaclab.scene import scene_cfg
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.engines.success import Reading
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import initial_state, load

APART = np.array([0.0, 0.31, 0.0])  # from one target to the next
BOTH = dataclasses.replace(SUCCESS, also={"ball": "bin"})
THREE = dataclasses.replace(SUCCESS, also={"ball": "bin", "can": "mug"})


def several(*where: int | None, **changes) -> Reading:
    """Object i at rest in target `where[i]`, or with None on the table; `changes` are of the last object."""
    spots = [reading().object_position + APART * (7 if target is None else target) for target in where]
    goals = [reading().target_position + APART * i for i in range(len(where))]
    every = [
        dataclasses.replace(reading(), object_position=spot, target_position=goal)
        for spot, goal in zip(spots, goals, strict=True)
    ]
    every[-1] = dataclasses.replace(every[-1], **changes)
    return dataclasses.replace(every[0], also=tuple(every[1:]))


def run(readings, success=BOTH):
    progress = criterion.begin(readings[0], 0.24)
    for measured in readings:
        progress = criterion.update(progress, measured, success, RATE)
    return progress


@pytest.mark.parametrize("where", list(permutations(range(3))))
def test_any_object_may_be_in_any_target(where):
    assert run([several(*where)] * DWELL, THREE).success_step == DWELL


@pytest.mark.parametrize("where", [(0, 0), (1, 1), (0, None), (None, 1), (None, None)])
def test_each_needs_a_target_of_its_own(where):
    progress = run([several(*where)] * (DWELL + 3))
    assert progress.success_step is None
    assert criterion.failed_clause(progress, several(*where), BOTH) in ("inside", "reached")


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"speed": 0.5}, "at_rest"),
        ({"spin": 0.5}, "at_rest"),
        ({"touching": True}, "released"),
        ({"target_quaternion": about((1.0, 0.0, 0.0), 1.0)}, "upright"),
    ],
)
def test_the_last_object_is_asked_for_as_much_as_the_first(change, clause):
    held = criterion.clauses(criterion.begin(several(0, 1), 0.24), several(0, 1, **change), BOTH)
    assert not held[clause]
    assert all(criterion.clauses(run([several(0, 1)]), several(1, 0), BOTH).values())


def test_one_of_them_is_enough_to_be_touched_or_lost():
    assert run([several(None, None, touching=True)]).reached
    assert run([several(0, None, object_position=np.array([0.5, 0.1, 0.1]))]).lost
    assert not run([several(0, None)]).reached


def test_what_is_placed_is_named_in_the_order_in_which_it_came_to_rest():
    def steps(*readings):
        return criterion.placed(run(list(readings)), BOTH)

    neither, second, both = several(None, None), several(None, 0), several(1, 0)
    assert steps(neither) == ()
    assert steps(neither, second) == (("ball", "bowl"),)
    assert steps(neither, second, both) == (("ball", "bowl"), ("cube", "bin"))
    # What has left a box is no longer in it; what slides through does not come to rest.
    assert steps(second, several(1, None), both) == (("cube", "bin"), ("ball", "bowl"))
    assert steps(neither, several(None, 0, speed=0.3)) == ()


def test_who_lies_in_its_box_was_neither_dropped_nor_pushed_in_before_the_others_are_there():
    high = dataclasses.replace(several(None, None), touching=True)
    high = dataclasses.replace(high, object_position=high.object_position + np.array([0, 0, 0.3]))
    first = run([several(None, None), high, *[several(0, None)] * 500])
    assert first.lifted
    assert not first.dropped
    assert run([several(None, None), high, *[several(None, None)] * 500]).dropped
    pushed = run([several(None, None), *[several(0, None)] * 5])
    assert criterion.pushed_in(pushed, several(0, None), BOTH)
    assert not criterion.pushed_in(pushed, several(None, 0), BOTH)


def test_more_objects_than_can_be_matched_in_time_are_refused():
    five = dataclasses.replace(SUCCESS, also={f"object {i}": f"target {i}" for i in range(4)})
    six = dataclasses.replace(SUCCESS, also={f"object {i}": f"target {i}" for i in range(5)})
    assert not list(five.problems())
    assert list(six.problems()) == ["success.also: 6 objects; 5 are the most that are matched"]


@pytest.mark.slow
@given(st.lists(st.sampled_from(["none", "first", "second", "both"]), min_size=1, max_size=11))
def test_a_success_has_placed_each_object_once_and_in_another_target(names):
    places = {"none": (None, None), "first": (1, None), "second": (None, 0), "both": (1, 0)}
    progress = run([several(*places[name]) for name in (*names, *["both"] * DWELL)])
    assert progress.success_step is not None
    assert sorted(progress.placed) == [(0, 1), (1, 0)]


def test_a_single_object_has_no_order():
    assert criterion.update(criterion.begin(reading(), 0.24), reading(), SUCCESS, RATE).placed == ()


@pytest.fixture(scope="module")
def engine():
    engine = MujocoEngine(robots.load("panda"), load("block_push", ["cameras={}", "settle_seconds=0.1"]))
    engine.reset({0: initial_state(engine.suite, 5, 8)})
    yield engine
    engine.close()


def test_every_object_and_target_is_read_and_seen(engine):
    state = initial_state(engine.suite, 5, 8)
    first, second = engine.reading(0).every
    for measured, (thing, target) in zip((first, second), engine.suite.success.pairs, strict=True):
        np.testing.assert_allclose(measured.object_position[:2], state.poses[thing][:2], atol=2e-3)
        np.testing.assert_allclose(measured.target_position[:2], state.poses[target][:2], atol=2e-3)
        assert measured.speed < 0.02
        assert measured.target_quaternion != UPRIGHT
    seen = engine.sight(0)
    np.testing.assert_array_equal(seen.also[0].object_position, engine.pose(0, "green_block")[0])
    np.testing.assert_array_equal(seen.also[0].target_position, engine.pose(0, "far_square")[0])


def test_the_poses_of_all_are_shown_pair_by_pair(engine):
    poses, names = environment_state(engine, 0), environment_names(engine.suite.success)
    assert poses.shape == (28,) == (len(names),)
    assert (names[0], names[7], names[14], names[27]) == ("object x", "target x", "object 2 x", "target 2 qz")
    for start, name in zip(
        range(0, 28, 7), ("red_block", "near_square", "green_block", "far_square"), strict=True
    ):
        np.testing.assert_allclose(poses[start : start + 3], engine.pose(0, name)[0], atol=1e-6)


def test_isaac_lab_refuses_several_objects(engine):
    words = r"block_push\.yaml: engine isaaclab reads one object; success\.also needs engine mujoco$"
    with pytest.raises(MorphVlaError, match=words):
        scene_cfg(engine.robot, engine.suite, 1, Options())


def test_an_engine_that_reads_one_object_judges_no_suite_of_two(engine, monkeypatch):
    Episodes(engine).begin([0])
    first = dataclasses.replace(engine.reading(0), also=())
    monkeypatch.setattr(engine, "reading", lambda index: first)
    words = r"block_push\.yaml: the engine reads 1 of 2 objects \(success.also\); use mujoco"
    with pytest.raises(MorphVlaError, match=words):
        Episodes(engine).begin([0])
