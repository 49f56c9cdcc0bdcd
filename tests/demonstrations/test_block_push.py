"""The expert that pushes two blocks onto two squares: every way, in any order, from the attempt's number."""

import dataclasses
import importlib.util
import json
from collections import Counter

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import ConfigError
from morph_vla.suites.suite import initial_state, load, resolved

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp")):
    pytest.skip("the scripted expert needs the extra 'sim'", allow_module_level=True)

from morph_vla.demonstrations import attempts, recording
from morph_vla.engines import success as criterion
from morph_vla.engines.mujoco.engine import MujocoEngine


@pytest.fixture(scope="module")
def engine():
    engine = MujocoEngine(robots.load("panda"), load("block_push", ["cameras={}"]))
    yield engine
    engine.close()


def first_pair(engine, expert, number: int) -> tuple[float, float]:
    """Which block the expert goes to first, and to which square: their x [m]."""
    seen = expert.aimed(engine.sight(0), number)
    return float(seen.object_position[0]), float(seen.target_position[0])


def test_which_block_goes_first_and_where_is_drawn_from_the_number_all_alike(engine):
    engine.reset({0: initial_state(engine.suite, 0, 8)})
    expert = attempts.expert_of(engine)
    drawn = Counter(first_pair(engine, expert, number) for number in range(400))
    assert len(drawn) == 4
    # Within four standard deviations of a hundred each.
    assert all(abs(count - 100) < 35 for count in drawn.values())
    assert [first_pair(engine, expert, number) for number in (3, 3)] == [first_pair(engine, expert, 3)] * 2


def test_the_block_that_is_there_is_left_and_the_other_one_pushed_to_the_other_square(engine):
    engine.reset({0: initial_state(engine.suite, 0, 8)})
    expert, before = attempts.expert_of(engine), engine.sight(0)
    for number in range(11):
        seen = expert.aimed(before, number)
        put = [
            dataclasses.replace(one, object_position=seen.target_position + [0.03, 0.03, 0.02])
            if one.object_position is seen.object_position
            else one
            for one in (before, *before.also)
        ]
        after = expert.aimed(dataclasses.replace(put[0], also=tuple(put[1:])), number)
        assert abs(after.object_position[0] - seen.object_position[0]) > 0.05
        assert abs(after.target_position[0] - seen.target_position[0]) > 0.05


def test_the_expert_does_the_task_in_the_way_that_was_drawn(engine):
    for number in (0, 1):
        (status,) = attempts.attempts(engine, [number])
        assert status.ended == "success"
        placed = criterion.placed(status.progress, engine.suite.success)
        engine.reset({0: initial_state(engine.suite, number, 8)})
        thing, goal = first_pair(engine, attempts.expert_of(engine), number)
        assert placed[0] == (
            "red_block" if thing < 0.5 else "green_block",
            "near_square" if goal < 0.5 else "far_square",
        )
        assert {name for pair in placed for name in pair} == set(engine.suite.objects)
        assert attempts.expert_of(engine).again(attempts.expert_of(engine).aimed(engine.sight(0), number))


def test_a_demonstration_says_its_mode(engine):
    attempt = recording.demonstrate(engine, 2)
    assert attempt.failed_clause is None
    assert attempt.mode.count("_block in ") == 2
    assert np.shape(attempt.frames[0]["observation.environment_state"]) == (28,)


def test_a_recording_counts_its_modes():
    told = recording.Recording("s", "f", 3, 2, 9, 15.0, {"inside": 1}, modes={"a in x, b in y": 2})
    assert str(told).splitlines() == [
        "kept 2 of 3 demonstrations (9 frames), 1 dropped (failed: 1 inside)",
        "modes of 2 episodes: a in x, b in y 2; entropy 0.00 of 2.00 bits",
    ]


def test_suites_of_one_object_are_what_they_were():
    one, two = load("droid_panda:cube_in_bowl"), load("block_push")
    assert '"also"' not in json.dumps(resolved(one)) + recording._identity([one], 3)
    assert '"also"' in json.dumps(resolved(two))
    assert '"also"' in recording._identity([two], 3)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "success.also={gren_block: far_square}",
            "no object is called 'gren_block'; did you mean 'green_block'?",
        ),
        (
            "success.also={green_block: near_square}",
            "'near_square' is named twice among the objects and targets",
        ),
        (
            "success.max_moved=0.1",
            "success.max_moved: is of one target alone; leave it out beside success.also",
        ),
        (
            "expert.kind=pick_and_place",
            "expert.kind: 'pick_and_place' moves one object alone; with success.also it must be 'push'",
        ),
    ],
)
def test_each_contradiction_has_its_sentence(override, sentence):
    with pytest.raises(ConfigError) as problem:
        load("block_push", [override])
    assert str(problem.value).endswith(sentence)
    assert np.size(str(problem.value).splitlines()) == 1
