"""The mistakes that made public simulators' numbers wrong, each caught by a test that can fail.

Each law here is stated twice: of ours, which keeps it, and of a criterion, a table or a count that makes the
mistake, which does not.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from morph_vla.sim import statistics
from morph_vla.sim.success import Reading, begin, clauses, update
from morph_vla.sim.suite import InitialState, Success, initial_state, initial_states

RATE = 11.0  # [Hz]
DWELL = 5  # control steps
SUCCESS = Success(
    object="cube",
    target="bowl",
    low=(-0.06, -0.05, 0.0),
    high=(0.06, 0.05, 0.07),
    dwell_seconds=DWELL / RATE,
    max_speed=0.02,
    max_spin=0.3,
)
TARGET = np.array([0.5, 0.125, 0.25])


def reading(x: float, z: float, *, speed: float = 0.0, touching: bool = False) -> Reading:
    return Reading(TARGET + np.array([x, 0.0, z]), TARGET, speed, 0.0, 1.0, touching, touching)


IN, TABLE = reading(0.0, 0.03), reading(0.3, 0.02)
BELOW = reading(0.0, -0.3)  # fell off the table, under the target
PASSING = reading(0.0, 0.03, speed=0.5)

Verdict = Callable[[Sequence[Reading]], bool]


def ours(readings: Iterable[Reading]) -> bool:
    progress = begin(TABLE)
    for one in readings:
        progress = update(progress, one, SUCCESS, RATE)
    return progress.success_step is not None


def held(readings: Sequence[Reading]) -> list[bool]:
    return [all(clauses(one, SUCCESS).values()) for one in readings]


def dwelt(good: Sequence[bool]) -> bool:
    return any(all(good[i : i + DWELL]) for i in range(len(good) - DWELL + 1))


def fires_on_leaving(readings: Sequence[Reading]) -> bool:
    good = held(readings)
    return any(before and not now for before, now in itertools.pairwise(good))


def without_a_lower_bound(readings: Sequence[Reading]) -> bool:
    bottomless = dataclasses.replace(SUCCESS, low=(*SUCCESS.low[:2], -np.inf))
    return dwelt([all(clauses(one, bottomless).values()) for one in readings])


def at_any_single_step(readings: Sequence[Reading]) -> bool:
    return any(held(readings))


def at_the_last_step(readings: Sequence[Reading]) -> bool:
    return held(readings)[-1]


def by_place_alone(readings: Sequence[Reading]) -> bool:
    return dwelt([clauses(one, SUCCESS)["inside"] for one in readings])


def in_all(readings: Sequence[Reading]) -> bool:
    return sum(held(readings)) >= DWELL


@pytest.mark.parametrize(
    ("mistaken", "readings", "right"),
    [
        (fires_on_leaving, [TABLE, *[IN] * (DWELL - 1), TABLE, TABLE], False),
        (fires_on_leaving, [TABLE, *[IN] * DWELL], True),
        (without_a_lower_bound, [TABLE, *[BELOW] * (2 * DWELL)], False),
        (at_any_single_step, [TABLE, IN, TABLE], False),
        (at_the_last_step, [TABLE, PASSING, IN], False),
        (at_the_last_step, [*[IN] * DWELL, TABLE], True),
        (by_place_alone, [PASSING] * DWELL, False),
        (by_place_alone, [reading(0.0, 0.03, touching=True)] * DWELL, False),
        (in_all, [IN, TABLE] * DWELL, False),
    ],
)
def test_a_mistaken_criterion_would_judge_otherwise(mistaken: Verdict, readings, right):
    assert ours(readings) is right
    assert mistaken(readings) is not right  # so this script can tell the two apart


# ---------------------------------------------------------------------------------------- the table of states

Table = Callable[[int], InitialState]


def depends_on_nothing_else(table: Table, count: int = 7) -> bool:
    """Whether the states are the same backwards, again, one alone, and after someone seeded NumPy anew."""
    forward = [table(i) for i in range(count)]
    np.random.seed(3)  # what a suite must not care about  # noqa: NPY002
    backward = [table(i) for i in reversed(range(count))][::-1]
    return forward == backward and table(count - 1) == forward[-1]


def test_seeds_set_after_creation(tiny_suite):
    """A table drawn from the generator of the moment changes with whoever seeds it, and when."""

    def mistaken(episode: int) -> InitialState:
        x, y, yaw = np.random.uniform(0.4, 0.6, 3)  # noqa: NPY002
        return InitialState(episode, {"cube": (x, y, yaw)}, ())

    assert depends_on_nothing_else(lambda i: initial_state(tiny_suite, i, 8))
    assert not depends_on_nothing_else(mistaken)


def test_the_table_is_made_before_any_world(tiny_suite):
    """Rows are values of (suite, version, seed, episode); a longer table begins with the shorter one."""
    table = initial_states(tiny_suite, 11, 8)
    assert table[:5] == initial_states(tiny_suite, 5, 8)
    for change in ({"version": 2}, {"seed": tiny_suite.seed + 1}, {"name": "another"}):
        other = initial_states(dataclasses.replace(tiny_suite, **change), 11, 8)
        assert all(a.poses != b.poses for a, b in zip(table, other, strict=True))


# ------------------------------------------------------------------------------------------- what is counted


def test_an_unmeasured_success_is_not_0_percent():
    nothing = statistics.summarise([])
    assert (nothing["trials"], nothing["rate"], nothing["low"], nothing["high"]) == (0, None, None, None)
    failed = {"episode": 0, "success": False, "time_s": None, "ended": "time", "failed_clause": "reached"}
    assert statistics.summarise([failed])["rate"] == 0.0
