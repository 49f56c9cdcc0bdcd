"""Evaluation: a policy on a task, over a fixed table of initial states, into a record.

Every episode of the table is started, counted and judged, whatever else happens: an error of the policy or
the simulator is that episode's failure with its reason. Which environments run side by side changes nothing:
an episode's initial state, and where its policy takes random numbers from, depend on its number alone.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from morph_vla.engines import by_name as engines
from morph_vla.engines import workers
from morph_vla.engines.engine import Policy
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import benchmark
from morph_vla.evaluation.asking import Asker
from morph_vla.evaluation.benchmark import Benchmark, InitialState, Task
from morph_vla.evaluation.chunking import Chunking
from morph_vla.evaluation.fit import Reads
from morph_vla.evaluation.flights import Flights
from morph_vla.evaluation.journal import Journal, alone
from morph_vla.process import versions
from morph_vla.results.record import FILE_NAME, Record, Stopped, policy_from_json, read
from morph_vla.results.trial import Trial

LOG = logging.getLogger(__name__)

Stop = Callable[[Sequence[Trial]], str | None]  # the trials so far -> why it is enough, or None
OPEN_LOOP_SECONDS = 8 / 15


@dataclasses.dataclass(frozen=True)
class Settings:
    """How an evaluation is run; `open_loop`, `latency` and `real_time` alone change what an episode meets."""

    episodes: int | None = None  # rows of the table; None: as many as the suite says
    parallel: int = 20
    workers: int | None = None  # None: `default_workers`
    open_loop: int | None = None  # actions executed before the policy is asked again; None: `open_loop_at`
    latency: int = 0  # control steps until an answer is there; see `chunking`
    real_time: bool = False  # whether a policy is told what is executed until its answer is there
    videos: int = 6  # episodes that are filmed, the first of the table
    answer_seconds: float = 60.0  # a call of the policy may take; ten times that until one has returned
    first: int = 0  # row of the table: two machines may take a half each (`morph-vla merge`)
    groups: int = 2  # of environments, in turn: one moves while the policy thinks about another
    engine: str = engines.DEFAULT  # `engines`: its name and options


def evaluate(
    task: Task,
    policy: Policy,
    settings: Settings = Settings(),
    *,
    about: Mapping[str, object] | None = None,
    folder: Path | None = None,
    command: str = "",
    notes: Sequence[str] = (),
    progress: Callable[[int, int, int], None] | None = None,
    stop: Stop | None = None,
    overrides: Sequence[str] = (),
) -> Record:
    """Run `policy` on the task's table of initial states and return the record.

    `about` describes the policy in the record (default: its class's name). With `folder`, finished episodes
    are kept there as they end, and videos are written to its `videos/`; an interrupted evaluation of the
    same policy and suite goes on, also with more rows. Another evaluation there, by the whole suite, policy,
    engine or actions per answer, is moved into `earlier-1` in it, with a warning. `overrides` are those that
    the suite was loaded with, for the record. `notes` are sentences for the record, to which it adds what
    went wrong without costing an episode. `progress` is called with (episodes done, episodes in all,
    successes). `stop` is asked after every episode: with a reason, no further one is begun, those that were
    begun are finished and counted, and the record says so under `stopped`. Raises MorphVlaError while another
    process evaluates into `folder`.
    """
    _check(settings, policy)
    with alone(folder):
        return _evaluate(task, policy, settings, about, folder, command, notes, progress, stop, overrides)


def _evaluate(
    task: Task,
    policy: Policy,
    settings: Settings,
    about: Mapping[str, object] | None,
    folder: Path | None,
    command: str,
    notes: Sequence[str],
    progress: Callable[[int, int, int], None] | None,
    stop: Stop | None,
    overrides: Sequence[str],
) -> Record:
    played = benchmark.of(task, settings.engine, policy)
    rows = _rows(played, settings)
    count, table = len(rows), played.states(max(rows.stop, played.episodes))
    chunking = _chunking(played, settings, policy)
    if chunking.real_time and played.maps_actions:
        raise MorphVlaError(
            f"{played.label}: its `actions` make other values of an answer, and with --real-time a policy is "
            "told its own; leave --real-time out"
        )
    empty = dataclasses.replace(
        _record_before(played, table, about or {"name": type(policy).__name__}, settings),
        overrides=tuple(overrides), command=command, folder=folder or Path(),
    )  # fmt: skip
    journal, earlier = Journal(folder, empty), finished(folder)
    trials = {number: trial for number, trial in journal.trials.items() if number in rows}
    start_s = time.monotonic()
    reason = stop(list(trials.values())) if stop and trials else None
    last = max(trials) if reason else rows.stop  # of those that had begun when it was stopped
    waiting = [table[row] for row in rows if row not in trials and row < last]
    timing, all_notes = {}, list(notes)
    before = earlier if earlier and {trial.episode for trial in earlier.trials} <= set(trials) else None
    if waiting:
        slots = min(settings.parallel, len(waiting))
        with (
            played.pool(slots, settings.workers or default_workers()) as pool,
            Asker(policy, played.actions, settings.answer_seconds) as asker,
        ):
            groups = 1 if pool.waves else settings.groups
            filmed = settings.first + settings.videos if folder is not None else 0
            flights = Flights(pool, asker, played, chunking, groups, folder, filmed)
            for trial in flights.run(waiting):
                trials[trial.episode] = trial
                journal.add(trial)
                if progress:
                    progress(len(trials), count, sum(trial.success for trial in trials.values()))
                if stop and not reason and (reason := stop(list(trials.values()))):
                    flights.begin_no_more()
            timing = {key: round(s, 2) for key, s in {**pool.spent, "policy_s": asker.spent}.items()}
            all_notes += [*asker.notes, *flights.notes]
    ordered = tuple(trials[row] for row in sorted(trials))
    stopped = Stopped(len(ordered), len(rows), reason) if len(ordered) < len(rows) else None
    if not waiting and earlier and earlier.trials == ordered:
        if (earlier.stopped and earlier.stopped.of) == (stopped and stopped.of):
            return earlier  # with its own time and duration, not those of looking it up
        # More were asked for now, and what is there decides; or fewer, of which none is missing.
        return dataclasses.replace(earlier, rows=empty.rows, command=command, stopped=stopped)
    seconds = time.monotonic() - start_s if waiting else None
    if seconds is not None and before is not None:  # it went on: the seconds of all sessions
        seconds += before.wall_s or 0.0
        timing = {key: round(s + before.timing.get(key, 0.0), 2) for key, s in timing.items()}
    return dataclasses.replace(
        empty, stopped=stopped,
        trials=ordered, wall_s=None if seconds is None else round(seconds, 2), timing=timing,
        notes=tuple(all_notes),
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )  # fmt: skip


def record_before(task: Task, policy: Policy, settings: Settings, about: Mapping[str, object]) -> Record:
    """What a task's record will say, before anything is evaluated."""
    played = benchmark.of(task, settings.engine, policy)
    return _record_before(played, played.states(played.episodes), about, settings)


def _record_before(
    played: Benchmark, table: Sequence[InitialState], about: Mapping[str, object], settings: Settings
) -> Record:
    """The record before the first episode."""
    rows = _rows(played, settings)
    return Record(
        suite=played.facts(table[: played.episodes]),  # more rows than its own are the same evaluation
        policy=policy_from_json(about),
        engine=played.engine(),
        rows=(rows.start, rows.stop),
        parallel=settings.parallel,
        versions=versions(),
        **_chunking(played, settings).facts(),
    )


def _rows(played: Benchmark, settings: Settings) -> range:
    count = played.episodes if settings.episodes is None else settings.episodes
    return range(settings.first, settings.first + count)


def _chunking(played: Benchmark, settings: Settings, policy: Policy | None = None) -> Chunking:
    """How answers are executed. Where nothing is given and the policy's own loop differs, that is said."""
    open_loop = settings.open_loop or open_loop_at(played.control_rate)
    executes = policy.executes if isinstance(policy, Reads) else None
    if settings.open_loop is None and executes not in (None, open_loop):
        LOG.warning(
            "%d actions of an answer are executed; the policy's own n_action_steps is %d: --open-loop %d",
            open_loop, executes, executes,
        )  # fmt: skip
    return Chunking(open_loop, settings.latency, settings.real_time)


def open_loop_at(control_rate: float) -> int:
    """Actions executed per answer by default: those of 8/15 s, whatever the control rate [Hz].

    openpi's client of DROID executes 8 at 15 Hz. What counts is the time: a small policy that was asked every
    8 actions at 30 Hz wavered above the block, and grasped it when asked every 16 (docs/several_robots.md).
    """
    return max(1, round(OPEN_LOOP_SECONDS * control_rate))


def default_workers() -> int:
    """Simulator processes: a core each, but for the one that the policy thinks on meanwhile."""
    return max(1, (os.cpu_count() or 1) - 1)


def _check(settings: Settings, policy: Policy) -> None:
    """Raises MorphVlaError where nothing can be measured: in this process, or under these settings."""
    workers.check_main()
    check_policy(policy)
    for name in ("episodes", "parallel", "open_loop", "groups"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise MorphVlaError(f"{name.replace('_', '-')} must be at least 1, not {value}")
    if settings.real_time and getattr(policy, "real_time", False) is not True:
        raise MorphVlaError(
            "this policy does not go on from what is being executed (real-time chunking); a checkpoint does, "
            "and a server that was started with `morph-vla serve --real-time`"
        )
    if settings.latency < 0:
        raise MorphVlaError(f"latency must be at least 0 control steps, not {settings.latency}")
    if settings.first < 0:
        raise MorphVlaError(f"the first row of the table is 0, not {settings.first}")
    if not settings.answer_seconds > 0:
        raise MorphVlaError(f"timeout must be above 0 seconds, not {settings.answer_seconds:g}")


def check_policy(policy: object) -> None:
    """Raise MorphVlaError for what cannot be asked, before every episode of a table fails at it."""
    if isinstance(policy, type) or not callable(getattr(policy, "infer", None)):
        kind = f"the class {policy.__name__}" if isinstance(policy, type) else f"a {type(policy).__name__}"
        raise MorphVlaError(
            "a policy is an object with infer(observation) -> {'actions': [horizon, joints]}, and this is "
            f"{kind}; that of a checkpoint: morph_vla.load_policy(FOLDER)"
        )


def finished(folder: Path | None) -> Record | None:
    """The record of an earlier evaluation in `folder`, or None."""
    return read(folder) if folder is not None and (folder / FILE_NAME).exists() else None
