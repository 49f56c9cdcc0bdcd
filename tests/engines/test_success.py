"""The criterion, met by objects that are moved by script."""

import dataclasses
import math

import numpy as np
import pytest
from bowl import DWELL, RATE, SUCCESS, TABLE, TABLE_HEIGHT, TARGET, about, reading, run
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.engines import success as criterion
from morph_vla.engines.success import (
    AWAY,
    BELOW,
    CLAUSES,
    DRAGGED,
    KNOCKED,
    LIFTED,
    Reading,
    away_steps,
    begin,
    dragged,
    dwell_steps,
    failed_clause,
    pushed_in,
    times,
)
from morph_vla.suites.suite import Success

GOOD = reading()
MOVING = reading(speed=0.021)
SPINNING = reading(spin=0.31)
HELD = reading(opening=0.2, touching=True, grasping=True)
TOUCHED = reading(touching=True)
CARRIED = reading((0.3, -0.2, 0.02 + LIFTED + 0.01), speed=0.3, opening=0.2, touching=True, grasping=True)
OUT = reading((0.061, 0.0, 0.03))
KNOCKED_AWAY = reading((0.3 + KNOCKED + 0.001, -0.2, 0.02))
FALLEN = reading((0.9, 0.0, TABLE_HEIGHT - TARGET[2] - BELOW - 0.001))
HELD_ALL = {"inside": True, "upright": True, "at_rest": True, "released": True}


def clauses(measured: Reading, success: Success = SUCCESS) -> dict[str, bool]:
    """The momentary clauses of an episode that began at TABLE."""
    return criterion.clauses(begin(TABLE, TABLE_HEIGHT), measured, success)


# ------------------------------------------------------------------------------------- the momentary clauses


@pytest.mark.parametrize(
    ("offset", "inside"),
    [
        ((0.0, 0.0, 0.03), True),
        ((0.0, 0.0, 0.0), True),  # on the boundary: belongs to the box
        ((0.0, 0.0, -0.001), False),  # below: fell through, or lies under the target
        ((0.0, 0.0, 0.071), False),  # above: still carried
        ((0.059, -0.049, 0.069), True),
        ((0.061, 0.0, 0.03), False),
        ((-0.061, 0.0, 0.03), False),
        ((0.0, 0.051, 0.03), False),
        ((0.0, -0.051, 0.03), False),
    ],
)
def test_inside_means_inside_on_every_axis(offset, inside):
    assert clauses(reading(offset)) == {**HELD_ALL, "inside": inside}


def test_the_corners_belong_to_the_box():
    low, high = np.asarray(SUCCESS.low), np.asarray(SUCCESS.high)
    nothing = 1e-12 * (high - low)  # [m] what is left of rounding
    for corner in (low + nothing, high - nothing):
        assert clauses(dataclasses.replace(GOOD, object_position=TARGET + corner))["inside"]


@pytest.mark.parametrize(
    ("change", "name", "holds"),
    [
        ({"speed": 0.02}, "at_rest", True),
        ({"speed": 0.0201}, "at_rest", False),
        ({"spin": 0.3}, "at_rest", True),
        ({"spin": 0.301}, "at_rest", False),
        ({"opening": 0.6}, "released", True),
        ({"opening": 0.599}, "released", False),
        ({"touching": True}, "released", False),
    ],
)
def test_each_clause_at_its_edge(change, name, holds):
    assert clauses(reading(**change)) == {**HELD_ALL, name: holds}


def test_the_box_follows_a_target_that_was_pushed():
    away = dataclasses.replace(GOOD, target_position=TARGET + np.array([0.07, 0.0, 0.0]))
    assert not clauses(away)["inside"]
    together = dataclasses.replace(away, object_position=GOOD.object_position + np.array([0.07, 0.0, 0.0]))
    assert clauses(together)["inside"]


# -------------------------------------------------------------------------------------------- the dwell time


def test_success_takes_exactly_the_dwell():
    assert run([GOOD] * (DWELL - 1)).success_step is None
    assert run([GOOD] * DWELL).success_step == DWELL
    assert run([TABLE, TABLE, *[GOOD] * DWELL]).success_step == DWELL + 2


@pytest.mark.parametrize("break_", [OUT, MOVING, SPINNING, HELD, TOUCHED, reading((0.0, 0.0, -0.001))])
def test_one_bad_step_starts_the_dwell_anew(break_):
    before = [GOOD] * (DWELL - 1)
    assert run([*before, break_, *before]).success_step is None
    assert run([*before, break_, *before, GOOD]).success_step == 2 * DWELL


def test_success_once_is_kept():
    progress = run([*[GOOD] * DWELL, OUT, MOVING, HELD])
    assert progress.success_step == DWELL
    assert progress.steps == DWELL + 3
    assert progress.running["all"] == 0
    assert failed_clause(progress, HELD, SUCCESS) is None


@pytest.mark.parametrize(
    ("seconds", "rate", "steps"),
    [(0.5, 15.0, 8), (0.5, 30.0, 15), (1.0, 7.0, 7), (0.001, 15.0, 1), (0.0, 13.0, 1)],
)
def test_the_dwell_in_steps_is_at_least_one(seconds, rate, steps):
    assert dwell_steps(dataclasses.replace(SUCCESS, dwell_seconds=seconds), rate) == steps


ANY = st.sampled_from([GOOD, GOOD, GOOD, TABLE, MOVING, SPINNING, HELD, TOUCHED, CARRIED, OUT])


@given(readings=st.lists(ANY, max_size=31))
def test_there_is_no_success_without_the_dwell(readings):
    """The definition itself, looked for by hand in the whole sequence."""
    good = [all(clauses(one).values()) for one in readings]
    ends = [i for i in range(DWELL, len(good) + 1) if all(good[i - DWELL : i])]
    progress = run(readings)
    assert progress.success_step == (ends[0] if ends else None)
    assert progress.steps == len(readings)
    if readings:
        assert (failed_clause(progress, readings[-1], SUCCESS) is None) == bool(ends)


@given(readings=st.lists(ANY, max_size=31))
def test_the_recorded_times_are_the_longest_stretches(readings):
    progress = run(readings)
    for name, seconds in times(progress, RATE).items():
        held = [clauses(one) for one in readings]
        marks = "".join(
            "x" if (all(now.values()) if name == "all_s" else now[name.removesuffix("_s")]) else " "
            for now in held
        )
        longest = max(map(len, marks.split()), default=0)
        assert seconds == pytest.approx(longest / RATE)
    names = ["inside_s", "upright_s", "at_rest_s", "released_s", "all_s"]
    assert list(times(progress, RATE)) == (names if readings else [])


# --------------------------------------------------------------------------------------- the failed clause


@pytest.mark.parametrize(
    ("readings", "clause"),
    [
        ([TABLE], "reached"),
        ([TABLE, reading((0.3, -0.2, 0.02), touching=True), TABLE], "grasped"),
        ([TABLE, reading((0.3, -0.2, 0.02), touching=True), KNOCKED_AWAY], "knocked"),
        ([TABLE, KNOCKED_AWAY, CARRIED, KNOCKED_AWAY], "inside"),
        ([TABLE, CARRIED, FALLEN, FALLEN], "lost"),
        ([TABLE, FALLEN], "lost"),
        ([TABLE, CARRIED, reading(turn=about((0.0, 1.0, 0.0), 0.5))], "upright"),
        ([TABLE, reading((0.3, -0.2, 0.02), touching=True, grasping=True), TABLE], "lifted"),
        ([TABLE, CARRIED, TABLE], "inside"),
        ([TABLE, CARRIED, OUT], "inside"),
        ([TABLE, CARRIED, HELD], "released"),
        ([TABLE, CARRIED, TOUCHED], "released"),
        ([TABLE, CARRIED, MOVING], "at_rest"),
        ([TABLE, CARRIED, reading(speed=0.1, opening=0.1)], "at_rest"),
        ([TABLE, CARRIED, *[GOOD] * (DWELL - 1)], "dwell"),
        ([TABLE, CARRIED, *[GOOD] * DWELL], None),
    ],
)
def test_the_first_clause_in_the_way_is_named(readings, clause):
    assert failed_clause(run(readings), readings[-1], SUCCESS) == clause
    assert clause is None or clause in CLAUSES


def test_pushed_in_counts_as_inside_though_never_lifted():
    pushed = [TABLE, reading((0.1, 0.0, 0.02), touching=True), *[GOOD] * DWELL]
    progress = run(pushed)
    assert progress.success_step == len(pushed)
    assert progress.reached
    assert not progress.grasped
    assert not progress.lifted


def test_an_untouched_object_that_rises_is_not_lifted():
    start, higher = TABLE.object_position[2], LIFTED + 0.01
    flung = dataclasses.replace(CARRIED, touching=False, grasping=False)
    assert flung.object_position[2] == pytest.approx(start + higher)
    assert not run([TABLE, flung]).lifted
    assert run([TABLE, CARRIED]).lifted
    barely = reading((0.3, -0.2, 0.02 + LIFTED - 0.001), touching=True)
    assert not run([TABLE, barely]).lifted


def test_what_ever_held_is_kept():
    def longest(*readings: Reading) -> list[int]:
        return [run(readings).longest[name] for name in ("inside", "at_rest", "released", "all")]

    assert longest(CARRIED, MOVING) == [1, 0, 1, 0]
    assert longest(CARRIED, MOVING, TABLE) == [1, 1, 2, 0]


# -------------------------------------------------------------------------------------- dropped and pushed in

AWAY_STEPS = 6  # 0.5 s at 11 Hz, rounded up
LYING = reading((0.2, 0.1, 0.02))  # out of the gripper, out of the box
FLYING = reading((0.2, 0.1, 0.4), speed=2.0)
SLIDING = reading((0.2, 0.1, 0.02), speed=0.3, spin=4.0)


def test_away_in_steps_is_rounded_up():
    assert [away_steps(rate) for rate in (11.0, 15.0, 30.0, 1.0)] == [6, 8, 15, 1]


@pytest.mark.parametrize("where", [LYING, FLYING, SLIDING, TABLE])
def test_a_lifted_object_that_stays_away_was_dropped(where):
    assert not run([CARRIED, *[where] * (AWAY_STEPS - 1)]).dropped
    assert run([CARRIED, *[where] * AWAY_STEPS]).dropped


@pytest.mark.parametrize("break_", [GOOD, PASSED := reading(speed=1.0), TOUCHED, HELD, CARRIED])
def test_what_comes_back_to_gripper_or_box_in_time_was_not_dropped(break_):
    almost = [LYING] * (AWAY_STEPS - 1)
    assert not run([CARRIED, *almost, break_, *almost]).dropped
    assert run([CARRIED, *almost, break_, *almost, LYING]).dropped


def test_an_object_that_was_never_lifted_is_not_dropped():
    assert not run([TABLE] * 31).dropped
    assert not run([reading((0.2, 0.1, 0.02), touching=True), *[FLYING] * 31]).dropped  # flung, not carried


def test_let_go_above_the_box_is_not_dropped():
    """Free fall from any height a gripper carries to takes less than AWAY, and then it is in the box."""
    heights = [0.3 - 9.81 / 2 * (step / RATE) ** 2 for step in range(1, AWAY_STEPS + 1)]
    falling = [reading((0.0, 0.0, max(z, 0.03)), speed=1.0) for z in heights]
    assert 9.81 / 2 * AWAY**2 > 1.2
    assert not run([CARRIED, *falling, *[GOOD] * DWELL]).dropped


def test_dropped_stays_noted_when_it_is_put_in_after_all():
    progress = run([CARRIED, *[LYING] * AWAY_STEPS, CARRIED, *[GOOD] * DWELL])
    assert progress.dropped
    assert progress.success_step is not None
    assert not pushed_in(progress, GOOD, SUCCESS)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([TABLE, *[GOOD] * DWELL], True),
        ([reading((0.1, 0.0, 0.02), touching=True), GOOD], True),  # in, though not for the dwell
        ([reading((0.1, 0.0, 0.02), touching=True), MOVING], True),
        ([TABLE, GOOD, OUT], False),  # pushed through and out again
        ([*[GOOD] * DWELL, OUT], True),  # succeeded that way
        ([CARRIED, *[GOOD] * DWELL], False),
        ([CARRIED, LYING], False),
        ([TABLE], False),
    ],
)
def test_pushed_in_is_in_the_box_without_having_been_lifted(readings, expected):
    assert pushed_in(run(readings), readings[-1], SUCCESS) is expected


def test_the_docstrings_timeline_is_what_happens():
    rows = {}
    for line in (criterion.__doc__ or "").splitlines():
        marks = line.split()
        if len(marks) >= 17 and set(marks[-17:]) <= {".", "x"}:
            rows[" ".join(marks[:-17])] = [mark == "x" for mark in marks[-17:]]
    columns = zip(rows["touching"], rows["high"], rows["inside"], rows["at_rest"], strict=True)
    script = []
    for touching, high, inside, at_rest in columns:
        height = 0.03 if inside else 0.02 + high * 2 * LIFTED
        speed = 0.0 if at_rest else 0.5
        place = (0.0 if inside else 0.3, 0.0, height)
        script.append(reading(place, speed=speed, touching=touching, opening=0.2 if touching else 1.0))
    found = [clauses(one) for one in script]
    for name in ("inside", "at_rest", "released"):
        assert [now[name] for now in found] == rows[name], name
    assert [all(now.values()) for now in found] == rows["all three"]
    noted = [run(script[:step]) for step in range(1, 18)]
    assert [one.reached for one in noted].index(True) + 1 == 2
    assert [one.lifted for one in noted].index(True) + 1 == 4
    assert noted[-1].success_step == 17
    assert not noted[-1].dropped


# ----------------------------------------------------------------------------------------- the target's frame


@pytest.mark.parametrize("angle_rad", [0.3, math.pi / 2, 2.0, math.pi, -1.1])
def test_the_box_turns_with_its_target(angle_rad):
    """What lies just inside a corner of the box is inside however the target turned; just outside is not."""
    turn, (x, y) = about((0.0, 0.0, 1.0), angle_rad), (0.058, 0.048)
    cos, sin = math.cos(angle_rad), math.sin(angle_rad)
    assert clauses(reading((cos * x - sin * y, sin * x + cos * y, 0.03), turn=turn))["inside"]
    beyond = (cos * 0.062 - sin * y, sin * 0.062 + cos * y, 0.03)
    assert not clauses(reading(beyond, turn=turn))["inside"]


def test_the_box_leans_with_its_target():
    """What lies along the up axis of a target on its side is in the box, though not above the target."""
    turn = about((0.0, 1.0, 0.0), math.pi / 2)  # up points along +x
    assert clauses(reading((0.065, 0.0, 0.0), turn=turn))["inside"]
    assert not clauses(reading((0.0, 0.0, 0.065), turn=turn))["inside"]


@pytest.mark.parametrize(
    ("angle_rad", "holds"),
    [(0.0, True), (0.45, True), (0.452, False), (math.pi / 2, False), (math.pi, False)],
)
@pytest.mark.parametrize("axis", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.6, 0.8, 0.0)])
def test_a_target_is_upright_within_its_bound(axis, angle_rad, holds):
    assert math.cos(0.45) > 0.9 > math.cos(0.452)
    assert clauses(reading(turn=about(axis, angle_rad)))["upright"] is holds


def test_a_target_that_turns_about_the_vertical_stays_upright():
    assert all(clauses(reading(turn=about((0.0, 0.0, 1.0), angle)))["upright"] for angle in (0.5, 1.7, 3.0))


def test_what_is_not_asked_for_is_no_clause():
    indifferent = dataclasses.replace(SUCCESS, min_upright=None)
    assert list(clauses(GOOD, indifferent)) == ["inside", "at_rest", "released"]
    asked = dataclasses.replace(SUCCESS, max_moved=0.07)
    assert list(clauses(GOOD, asked)) == ["inside", "upright", "in_place", "at_rest", "released"]
    assert set(clauses(GOOD, asked)) < set(CLAUSES)


def test_a_dragged_target_is_noted_and_fails_only_where_the_suite_asks():
    shift = (DRAGGED + 0.001, 0.0, 0.0)
    away = reading((shift[0], 0.0, 0.03), dragged=shift)
    script = [TABLE, CARRIED, *[away] * DWELL]
    progress = run(script)
    assert progress.success_step == DWELL + 2
    assert dragged(progress, away)
    assert not dragged(progress, GOOD)  # brought back
    strict = dataclasses.replace(SUCCESS, max_moved=0.05)
    assert failed_clause(run(script, strict), away, strict) == "in_place"
    assert run([*script, *[GOOD] * DWELL], strict).success_step == len(script) + DWELL


# ------------------------------------------------------------------------------------------ knocked, and lost


def test_knocked_is_moved_along_the_table_before_it_was_ever_grasped():
    assert not run([reading((0.3 + KNOCKED - 0.001, -0.2, 0.02), touching=True)]).knocked
    assert run([KNOCKED_AWAY]).knocked  # whatever moved it: an elbow, or the target that a hand pushed
    assert run([KNOCKED_AWAY, CARRIED, GOOD]).knocked  # stays noted
    assert not run([CARRIED, KNOCKED_AWAY]).knocked  # carried there
    assert not run([reading((0.3, -0.2, 0.3))]).knocked  # upwards is not along the table


def test_an_object_below_the_table_is_lost():
    edge = TABLE_HEIGHT - TARGET[2] - BELOW
    assert not run([reading((0.9, 0.0, edge + 0.001))]).lost
    assert run([reading((0.9, 0.0, edge - 0.001))]).lost
    assert run([FALLEN, GOOD]).lost  # stays noted
