"""The criterion, met by objects that are moved by script."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pytest
from bowl import DWELL, RATE, SUCCESS, TARGET
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.engines import success as criterion
from morph_vla.engines.success import (
    CLAUSES,
    LIFTED,
    LOST,
    Progress,
    Reading,
    begin,
    clauses,
    dwell_steps,
    failed_clause,
    lost_steps,
    pushed_in,
    times,
    update,
)


def reading(
    offset: tuple[float, float, float] = (0.0, 0.0, 0.03),
    *,
    speed: float = 0.001,
    spin: float = 0.01,
    opening: float = 1.0,
    touching: bool = False,
    grasping: bool = False,
) -> Reading:
    """By default at rest in the bowl and released."""
    return Reading(TARGET + np.array(offset), TARGET, speed, spin, opening, touching, grasping)


GOOD = reading()
TABLE = reading((0.3, -0.2, 0.02))
MOVING = reading(speed=0.021)
SPINNING = reading(spin=0.31)
HELD = reading(opening=0.2, touching=True, grasping=True)
TOUCHED = reading(touching=True)
CARRIED = reading((0.3, -0.2, 0.02 + LIFTED + 0.01), speed=0.3, opening=0.2, touching=True, grasping=True)
OUT = reading((0.061, 0.0, 0.03))


def run(readings: Iterable[Reading], start: Reading = TABLE) -> Progress:
    progress = begin(start)
    for one in readings:
        progress = update(progress, one, SUCCESS, RATE)
    return progress


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
    assert clauses(reading(offset), SUCCESS) == {"inside": inside, "at_rest": True, "released": True}


def test_the_corners_belong_to_the_box():
    for corner in (SUCCESS.low, SUCCESS.high):
        at = dataclasses.replace(GOOD, object_position=TARGET + np.asarray(corner))
        assert clauses(at, SUCCESS)["inside"]


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
    expected = {"inside": True, "at_rest": True, "released": True, name: holds}
    assert clauses(reading(**change), SUCCESS) == expected


def test_the_box_follows_a_target_that_was_pushed():
    away = dataclasses.replace(GOOD, target_position=TARGET + np.array([0.07, 0.0, 0.0]))
    assert not clauses(away, SUCCESS)["inside"]
    together = dataclasses.replace(away, object_position=GOOD.object_position + np.array([0.07, 0.0, 0.0]))
    assert clauses(together, SUCCESS)["inside"]


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
    assert progress.running[3] == 0
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
    good = [all(clauses(one, SUCCESS).values()) for one in readings]
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
        held = [clauses(one, SUCCESS) for one in readings]
        marks = "".join(
            "x" if (all(now.values()) if name == "all_s" else now[name.removesuffix("_s")]) else " "
            for now in held
        )
        longest = max(map(len, marks.split()), default=0)
        assert seconds == pytest.approx(longest / RATE)
    assert list(times(progress, RATE)) == ["inside_s", "at_rest_s", "released_s", "all_s"]


# --------------------------------------------------------------------------------------- the failed clause


@pytest.mark.parametrize(
    ("readings", "clause"),
    [
        ([TABLE], "reached"),
        ([TABLE, reading((0.3, -0.2, 0.02), touching=True), TABLE], "grasped"),
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
    assert run([]).longest == (0, 0, 0, 0)
    assert run([CARRIED, MOVING]).longest == (1, 0, 1, 0)  # inside, at rest, released, all three
    assert run([CARRIED, MOVING, TABLE]).longest == (1, 1, 2, 0)


# -------------------------------------------------------------------------------------- dropped and pushed in

LOST_STEPS = 6  # 0.5 s at 11 Hz, rounded up
AWAY = reading((0.2, 0.1, 0.02))  # out of the gripper, out of the box
FLYING = reading((0.2, 0.1, 0.4), speed=2.0)
SLIDING = reading((0.2, 0.1, 0.02), speed=0.3, spin=4.0)


def test_lost_in_steps_is_rounded_up():
    assert [lost_steps(rate) for rate in (11.0, 15.0, 30.0, 1.0)] == [6, 8, 15, 1]


@pytest.mark.parametrize("where", [AWAY, FLYING, SLIDING, TABLE])
def test_a_lifted_object_that_stays_away_was_dropped(where):
    assert not run([CARRIED, *[where] * (LOST_STEPS - 1)]).dropped
    assert run([CARRIED, *[where] * LOST_STEPS]).dropped


@pytest.mark.parametrize("break_", [GOOD, PASSED := reading(speed=1.0), TOUCHED, HELD, CARRIED])
def test_what_comes_back_to_gripper_or_box_in_time_was_not_dropped(break_):
    almost = [AWAY] * (LOST_STEPS - 1)
    assert not run([CARRIED, *almost, break_, *almost]).dropped
    assert run([CARRIED, *almost, break_, *almost, AWAY]).dropped


def test_an_object_that_was_never_lifted_is_not_dropped():
    assert not run([TABLE] * 31).dropped
    assert not run([reading((0.2, 0.1, 0.02), touching=True), *[FLYING] * 31]).dropped  # flung, not carried


def test_let_go_above_the_box_is_not_dropped():
    """Free fall from any height a gripper carries to takes less than LOST, and then it is in the box."""
    heights = [0.3 - 9.81 / 2 * (step / RATE) ** 2 for step in range(1, LOST_STEPS + 1)]
    falling = [reading((0.0, 0.0, max(z, 0.03)), speed=1.0) for z in heights]
    assert 9.81 / 2 * LOST**2 > 1.2
    assert not run([CARRIED, *falling, *[GOOD] * DWELL]).dropped


def test_dropped_stays_noted_when_it_is_put_in_after_all():
    progress = run([CARRIED, *[AWAY] * LOST_STEPS, CARRIED, *[GOOD] * DWELL])
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
        ([CARRIED, AWAY], False),
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
    found = [clauses(one, SUCCESS) for one in script]
    for name in ("inside", "at_rest", "released"):
        assert [now[name] for now in found] == rows[name], name
    assert [all(now.values()) for now in found] == rows["all three"]
    noted = [run(script[:step]) for step in range(1, 18)]
    assert [one.reached for one in noted].index(True) + 1 == 2
    assert [one.lifted for one in noted].index(True) + 1 == 4
    assert noted[-1].success_step == 17
    assert not noted[-1].dropped
