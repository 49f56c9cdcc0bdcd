"""The mistakes that made public simulators' numbers wrong, each caught by a test that can fail.

Each law here is stated twice: of ours, which keeps it, and of a criterion, a table or a count that makes the
mistake, which does not.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from bowl import DWELL, SUCCESS, TABLE, TABLE_HEIGHT, reading, run

from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import Observation
from morph_vla.engines.episode import Status
from morph_vla.engines.pool import Answer, Begin
from morph_vla.engines.success import Progress, Reading, begin, clauses
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.evaluation.rollout import Settings
from morph_vla.results import statistics
from morph_vla.results.trial import Trial
from morph_vla.suites.suite import InitialState, initial_state, initial_states

IN = reading()
BELOW = reading((0.0, 0.0, -0.3))  # fell off the table, under the target
PASSING = reading(speed=0.5)

START = begin(TABLE, TABLE_HEIGHT)
Verdict = Callable[[Sequence[Reading]], bool]


def ours(readings: Iterable[Reading]) -> bool:
    return run(readings).success_step is not None


def held(readings: Sequence[Reading]) -> list[bool]:
    return [all(clauses(START, one, SUCCESS).values()) for one in readings]


def dwelt(good: Sequence[bool]) -> bool:
    return any(all(good[i : i + DWELL]) for i in range(len(good) - DWELL + 1))


def fires_on_leaving(readings: Sequence[Reading]) -> bool:
    good = held(readings)
    return any(before and not now for before, now in itertools.pairwise(good))


def without_a_lower_bound(readings: Sequence[Reading]) -> bool:
    bottomless = dataclasses.replace(SUCCESS, low=(*SUCCESS.low[:2], -np.inf))
    return dwelt([all(clauses(START, one, bottomless).values()) for one in readings])


def at_any_single_step(readings: Sequence[Reading]) -> bool:
    return any(held(readings))


def at_the_last_step(readings: Sequence[Reading]) -> bool:
    return held(readings)[-1]


def by_place_alone(readings: Sequence[Reading]) -> bool:
    return dwelt([clauses(START, one, SUCCESS)["inside"] for one in readings])


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
        (by_place_alone, [reading(touching=True)] * DWELL, False),
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
    for change in ({"version": tiny_suite.version + 1}, {"seed": tiny_suite.seed + 1}, {"name": "another"}):
        other = initial_states(dataclasses.replace(tiny_suite, **change), 11, 8)
        assert all(a.poses != b.poses for a, b in zip(table, other, strict=True))


# ------------------------------------------------------------------------------------------- what is counted


def test_an_unmeasured_success_is_not_0_percent():
    nothing = statistics.summarise([])
    assert (nothing.trials, nothing.rate, nothing.low, nothing.high) == (0, None, None, None)
    failed = Trial(episode=0, success=False, failed_clause="reached")
    assert statistics.summarise([failed]).rate == 0.0


class ScriptedPool:
    """Worlds without physics: episode n takes 2 + 3 (n % 4) control steps; those of 2 and 5 succeed."""

    def __init__(self, _suite=None, slots: int = 1, _workers=None):
        self.slots, self.width, self.waves, self.spent = slots, 1, False, {}
        self._episode: dict[int, list[int]] = {}
        self._answers: dict[int, Answer] = {}
        self.finished: list[tuple[int, bool]] = []  # in the order in which they end
        self.began: dict[int, InitialState] = {}

    def usable(self, slot: int) -> bool:
        return slot >= 0

    def send(self, messages) -> None:
        for slot, message in messages.items():
            if isinstance(message, Begin):
                self._episode[slot] = [message.state.episode, 0]
                self.began[message.state.episode] = message.state
            else:
                self._episode[slot][1] += len(message.actions)
            number, steps = self._episode[slot]
            short, over = number % 4 < 2, steps >= 2 + 3 * (number % 4)
            progress = Progress(steps=steps, success_step=steps if over and short else None)
            if over:
                self.finished.append((number, short))
            ended = ("success" if short else "time") if over else None
            seen: Observation | None = None if over else {"state": np.zeros(2)}
            self._answers[slot] = Answer(Status(TABLE, progress, ended), seen, [])

    def receive(self, slots):
        return {slot: self._answers.pop(slot) for slot in slots}

    def close(self) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Still:
    def infer(self, observation):
        assert observation["step"] >= 0
        return {"actions": np.zeros((1, 8), np.float32)}


@pytest.fixture
def evaluate(tiny_suite, monkeypatch):
    """Evaluate 24 episodes in worlds without physics: (record, the pool)."""
    pools = []

    def made(suite, slots, workers, engine):
        assert engine == "mujoco"
        pools.append(ScriptedPool(suite, slots, workers))
        return pools[-1]

    monkeypatch.setattr(engines, "pool", made)

    def call(parallel: int, episodes: int = 24):
        settings = Settings(episodes, parallel=parallel, videos=0)
        return rollout.evaluate(tiny_suite, Still(), settings), pools[-1] if pools else None

    return call


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 2, 5, 24])
def test_counting_only_the_first_that_finish(evaluate, parallel):
    """Half of these episodes succeed, and those that do are short: whoever stops early counts too many."""
    record, _ = evaluate(parallel)
    assert [trial.episode for trial in record.trials] == list(range(24))
    assert record.summary.rate == 0.5
    assert record.summary.trials == 24
    _, pool = evaluate(24)
    first = pool.finished[:12]  # the mistake: of twice as many started, the first 12 that end
    assert sum(won for _, won in first) / len(first) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [2, 5, 24])
def test_initial_states_that_depend_on_when_other_episodes_ended(evaluate, parallel, tiny_suite):
    table = {state.episode: state for state in initial_states(tiny_suite, 24, 8)}
    alone, one_by_one = evaluate(1)
    together, side_by_side = evaluate(parallel)
    assert one_by_one.began == side_by_side.began == table
    assert together.trials == alone.trials

    # The mistake: whoever resets draws from one generator, in the order in which episodes end.
    def drawn(pool):
        rng = np.random.default_rng(0)
        return {episode: rng.uniform() for episode, _ in pool.finished}

    assert drawn(one_by_one) != drawn(side_by_side)


def test_the_generator_of_the_moment_reaches_no_initial_state(evaluate):
    np.random.seed(7)  # noqa: NPY002
    first, _ = evaluate(5)
    np.random.seed(8)  # noqa: NPY002
    second, _ = evaluate(5)
    assert first.trials == second.trials


@pytest.mark.parametrize("episodes", [0, -3])
def test_no_episodes_are_not_a_measurement(evaluate, episodes):
    with pytest.raises(MorphVlaError, match=f"^episodes must be at least 1, not {episodes}$"):
        evaluate(2, episodes)
