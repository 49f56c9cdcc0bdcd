"""How often a suite's scripted expert succeeds: the drop-in check of a suite.

The expert runs as it is recorded, disturbance and all, but from the states that are *evaluated*, and without
frames. A suite whose expert fails has no demonstrations to learn from, or asks for what its robot cannot do.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any

from morph_vla import robots
from morph_vla.demonstrations.attempts import attempt, attempts
from morph_vla.engines import by_name as engines
from morph_vla.engines import success as criterion
from morph_vla.errors import MorphVlaError
from morph_vla.results.intervals import Interval, wilson
from morph_vla.suites.suite import Suite

CHUNK = 25  # episodes a worker takes at once
ERROR = "error"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One episode of the expert: the clause that failed (None: success), or an error's sentence."""

    episode: int
    failed_clause: str | None
    seconds: float  # of simulated time, to success or to the end
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Check:
    """The expert's outcomes on a suite's initial states, in order."""

    suite: str
    outcomes: tuple[Outcome, ...]

    @property
    def successes(self) -> int:
        """Episodes in which the task was done."""
        return sum(outcome.failed_clause is None for outcome in self.outcomes)

    @property
    def interval(self) -> Interval:
        """Wilson's 95% interval of the success rate."""
        return wilson(self.successes, len(self.outcomes))

    @property
    def failed(self) -> dict[str, list[int]]:
        """Failed clause (or "error") -> the episodes it failed in."""
        found: dict[str, list[int]] = {}
        for outcome in self.outcomes:
            if outcome.failed_clause is not None:
                found.setdefault(outcome.failed_clause, []).append(outcome.episode)
        return dict(sorted(found.items()))

    @property
    def seconds(self) -> float | None:
        """Median simulated time to success [s]; None where nothing succeeded."""
        times = sorted(outcome.seconds for outcome in self.outcomes if outcome.failed_clause is None)
        return times[len(times) // 2] if times else None


def check(
    suite: Suite,
    episodes: int | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    engine: str = engines.DEFAULT,
    parallel: int = 64,
) -> Check:
    """Run the expert on the first `episodes` rows of the suite's table (default: as many as it says).

    The outcomes do not depend on the number of `workers` (processes; default: one per core). `progress` is
    called with (episodes done, episodes in all). Engines whose worlds step together hold `parallel` of them,
    in this process. Raises MorphVlaError for fewer than one episode, and where
    the scene cannot be built.
    """
    count = suite.episodes if episodes is None else episodes
    if count < 1:
        raise MorphVlaError(f"--episodes must be at least 1, not {count}")
    engines.check(engine)
    if engines.split(engine)[0] != "mujoco":
        return Check(suite.label, tuple(_together(suite, count, min(parallel, count), engine, progress)))
    chunks = [range(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
    processes = min(workers or os.cpu_count() or 1, len(chunks))
    if processes == 1:
        return Check(suite.label, tuple(_gathered((run(suite, chunk) for chunk in chunks), count, progress)))
    context = multiprocessing.get_context("spawn")  # MuJoCo's renderers and threads do not survive a fork
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        parts = pool.map(run, [suite] * len(chunks), chunks)
        return Check(suite.label, tuple(_gathered(parts, count, progress)))


def _together(
    suite: Suite, count: int, parallel: int, engine: str, progress: Callable[[int, int], None] | None
) -> list[Outcome]:
    """The expert in worlds that step together, in waves."""
    worlds = engines.worlds(suite, parallel, engine)
    try:
        waves = [range(first, min(first + parallel, count)) for first in range(0, count, parallel)]
        parts = (
            [_judged(suite, *one) for one in zip(wave, attempts(worlds, wave, "evaluation"), strict=True)]
            for wave in waves
        )
        return _gathered(parts, count, progress)
    finally:
        worlds.close()


def _judged(suite: Suite, number: int, ended: Any) -> Outcome:
    """An attempt's outcome: how it ended, or the error it ended in."""
    if isinstance(ended, MorphVlaError):  # physics that diverged is that episode's failure
        return Outcome(number, ERROR, 0.0, str(ended))
    progress, reading = ended
    clause = criterion.failed_clause(progress, reading, suite.success)
    return Outcome(number, clause, progress.steps / suite.control_rate)


def _gathered(parts: Any, count: int, progress: Callable[[int, int], None] | None) -> list[Outcome]:
    found: list[Outcome] = []
    for part in parts:
        found += part
        if progress:
            progress(len(found), count)
    return found


def run(suite: Suite, numbers: Sequence[int]) -> list[Outcome]:
    """The expert from the rows `numbers` of the suite's table, in this process."""
    from morph_vla.engines.mujoco.engine import MujocoEngine

    engine = MujocoEngine(robots.load(suite.robot), suite)
    return [_outcome(engine, number) for number in numbers]


def _outcome(engine: Any, number: int) -> Outcome:
    try:
        ended: Any = attempt(engine, number, "evaluation")
    except MorphVlaError as error:
        ended = error
    return _judged(engine.suite, number, ended)
