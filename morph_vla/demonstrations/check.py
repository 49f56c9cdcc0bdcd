"""How often a suite's scripted expert succeeds: the drop-in check of a suite.

The expert runs as it is recorded, disturbance and all, but from the states that are *evaluated*, and without
frames. A suite whose expert fails has no demonstrations to learn from, or asks for what its robot cannot do.
"""

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from functools import partial

from morph_vla import process, robots
from morph_vla.demonstrations.attempts import ALREADY, attempts, failed_clause
from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import Worlds
from morph_vla.errors import MorphVlaError
from morph_vla.results.intervals import Interval, wilson
from morph_vla.results.statistics import percent
from morph_vla.suites import on_robot
from morph_vla.suites.suite import Suite
from morph_vla.termination import ending_workers

ENOUGH = 0.95  # of the initial states; below it, the suite or its expert needs work
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
        episodes: dict[str, list[int]] = {}
        for outcome in self.outcomes:
            if outcome.failed_clause is not None:
                episodes.setdefault(outcome.failed_clause, []).append(outcome.episode)
        return dict(sorted(episodes.items()))

    @property
    def seconds(self) -> float | None:
        """Median simulated time to success [s]; None where nothing succeeded."""
        times = [outcome.seconds for outcome in self.outcomes if outcome.failed_clause is None]
        return statistics.median(times) if times else None

    def as_dict(self) -> dict[str, object]:
        """Plain values: counts, the rate with its interval, and the episodes that failed, by clause."""
        trials = len(self.outcomes)
        return {
            "suite": self.suite,
            "successes": self.successes,
            "trials": trials,
            "rate": self.successes / trials,
            "low": self.interval.low,
            "high": self.interval.high,
            "median_seconds": self.seconds,
            "failed": self.failed,
            "errors": {str(outcome.episode): outcome.error for outcome in self.outcomes if outcome.error},
        }

    def __str__(self) -> str:
        """The rate in words, a line for each clause that failed, and each error once."""
        trials, bounds = len(self.outcomes), self.interval
        rate = percent(self.successes / trials, bounds.low, bounds.high)
        text = f"{self.suite}: the expert succeeded in {self.successes} of {trials} initial states, {rate}"
        lines = [text if self.seconds is None else f"{text}, median {self.seconds:.1f} s to success"]
        for clause, numbers in self.failed.items():
            more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
            first = ", ".join(map(str, numbers[:10]))
            lines.append(f"  failed at '{clause}': {len(numbers)} (episodes {first}{more})")
        if ALREADY in self.failed:
            lines.append(
                "  the object lies where it belongs from the first step on, and a policy that never moves "
                "succeeds; keep its places apart from the target's"
            )
        return "\n".join(
            [*lines, *sorted({f"  {outcome.error}" for outcome in self.outcomes if outcome.error})]
        )


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
    in this process. Raises MorphVlaError for fewer than one episode, and where the scene cannot be built.
    """
    count = suite.episodes if episodes is None else episodes
    if count < 1:
        raise MorphVlaError(f"--episodes must be at least 1, not {count}")
    on_robot.check(suite, robots.load(suite.robot))
    engines.check(engine)
    size = min(parallel, count) if engines.lockstep(engine) else CHUNK
    chunks = [range(first, min(first + size, count)) for first in range(0, count, size)]
    processes = min(workers or os.cpu_count() or 1, len(chunks))
    outcomes: list[Outcome] = []
    with contextlib.ExitStack() as stack:
        if engines.lockstep(engine):
            worlds = stack.enter_context(contextlib.closing(engines.worlds(suite, size, engine)))
            parts = (run(worlds, chunk) for chunk in chunks)
        elif processes == 1:
            parts = (_run_chunk(suite, chunk, engine) for chunk in chunks)
        else:
            context = multiprocessing.get_context("spawn")  # MuJoCo's threads do not survive a fork
            pool = concurrent.futures.ProcessPoolExecutor(
                processes, mp_context=context, initializer=process.end_with_parent
            )
            parts = stack.enter_context(pool).map(partial(_run_chunk, suite, engine=engine), chunks)
            stack.enter_context(ending_workers())
        for part in parts:
            outcomes += part
            if progress:
                progress(len(outcomes), count)
    return Check(suite.label, tuple(outcomes))


def _run_chunk(suite: Suite, numbers: Sequence[int], engine: str) -> list[Outcome]:
    """The expert from the rows `numbers` of the table, one after the other."""
    worlds = engines.worlds(suite, 1, engine)
    return [outcome for number in numbers for outcome in run(worlds, [number])]


def run(worlds: Worlds, numbers: Sequence[int]) -> list[Outcome]:
    """The expert from the rows `numbers` of the suite's table, each in a world of its own."""
    outcomes, suite = [], worlds.suite
    for number, status in zip(numbers, attempts(worlds, numbers), strict=True):
        if status.error is not None:  # physics that diverged is that episode's failure
            outcomes.append(Outcome(number, ERROR, 0.0, status.error))
            continue
        clause = failed_clause(status, suite)
        outcomes.append(Outcome(number, clause, status.progress.steps / suite.control_rate))
    return outcomes
