"""The difference of two evaluations: paired where both met the same initial states, else independent.

Pure functions of evaluation records. Trials are paired by (task, episode). Where two records say that what
they measured is not the same (`identity.MEASURED`), there is no difference of rates; conditions may differ,
and are named.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.results import identity
from morph_vla.results.intervals import NEWCOMBE, TANGO, Interval, mcnemar, newcombe, tango
from morph_vla.results.record import Record, read
from morph_vla.results.statistics import summarise
from morph_vla.results.trial import Trial, by_key, by_task


@dataclass(frozen=True)
class Counts:
    """How many episodes both, only a, only b and neither solved."""

    both: int
    only_a: int
    only_b: int
    neither: int


@dataclass(frozen=True)
class Pairs(Counts):
    """Counts of pairs, with the p value of the exact McNemar test."""

    p_value: float


@dataclass(frozen=True)
class Bounds(Interval):
    """An interval of a difference of rates, and which one it is."""

    interval: str


@dataclass(frozen=True, kw_only=True)
class RateDifference:
    """rate_b - rate_a of two lists of trials, in [-1, 1]; None, with a reason, where it is not measured.

    Where both hold the same episodes from equal initial states, `low` and `high` are Tango's paired interval.
    Otherwise they are Newcombe's interval of independent samples, `paired` is None and `reason` says why.
    `independent` is Newcombe's in either case.
    """

    rate_a: float | None
    rate_b: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    interval: str | None = None
    paired: Pairs | None = None
    independent: Bounds | None = None
    reason: str | None

    @property
    def measured(self) -> Bounds | None:
        """The interval around the difference; None where there is no difference."""
        if self.low is None or self.high is None or self.interval is None:
            return None
        return Bounds(self.low, self.high, self.interval)


@dataclass(frozen=True, kw_only=True)
class Comparison(RateDifference):
    """The difference of two records over all trials, and of each task that both have."""

    a: str
    b: str
    engine_a: str | None
    engine_b: str | None
    conditions: list[str]
    """What differs of the conditions under which it was measured."""
    unknown: str | None
    """Which facts cannot be compared, because a record of an earlier schema does not say them."""
    common: int | None
    """Where one was stopped early, how many episodes both have: all numbers speak of those."""
    tasks: dict[str, RateDifference]

    @property
    def over(self) -> str:
        """In words, where one was stopped early, what all numbers speak of; "" where none was."""
        if self.common is None:
            return ""
        return (
            f"over the {self.common} episodes that both have, because one was stopped early; after an early "
            "stop the interval is biased towards the decision"
        )

    def __str__(self) -> str:
        """`trained - untrained: +74.0 points [+61.2, +83.9] (95%, Tango 1998, paired)`, or why not."""
        bounds = self.measured
        if bounds is None or self.difference is None:
            return f"not compared: {self.reason}"
        around = f"[{100 * bounds.low:+.1f}, {100 * bounds.high:+.1f}]"
        kind = f"({self.confidence:.0%}, {bounds.interval})"
        text = f"{self.b} - {self.a}: {100 * self.difference:+.1f} points {around} {kind}"
        return text if self.paired else f"{text}; {self.reason}"


def record_of(given: Record | str | Path) -> Record:
    """A record, or the one that lies in a folder or file. Raises MorphVlaError as `record.read` does."""
    return given if isinstance(given, Record) else read(given)


def compare(
    record_a: Record | str | Path, record_b: Record | str | Path, confidence: float = 0.95
) -> Comparison:
    """How much better b is than a, over all trials and for each task; each is a record or where one lies.

    What was not measured, or cannot be compared because the suites, their versions, their tasks or what
    counts as success differ, has the difference None and a reason, never 0. Where one was stopped early,
    only the episodes that both have are compared. Raises MorphVlaError as `record.read` does.
    """
    record_a, record_b = record_of(record_a), record_of(record_b)
    apart, seeds = suite_difference(record_a, record_b), None
    a, b = record_a.suite.seed, record_b.suite.seed
    if a is not None and b is not None and a != b:
        seeds = f"the seeds differ, and with them the initial states: {a} and {b}"
    trials_a, trials_b, common = _common(record_a, record_b)
    tasks_a, tasks_b = by_task(trials_a), by_task(trials_b)
    shared = [task for task in tasks_a if task and task in tasks_b]
    tasks = {
        task: _compare(tasks_a[task], tasks_b[task], apart, seeds, confidence)
        for task in (shared if len(tasks_a) > 1 or len(tasks_b) > 1 else ())
    }
    named_a, named_b = ({trial.task for trial in record.trials} - {""} for record in (record_a, record_b))
    if not apart and named_a and named_b and named_a != named_b:
        apart = f"the tasks differ: {', '.join(sorted(named_a))} and {', '.join(sorted(named_b))}"
    return Comparison(
        **vars(_compare(trials_a, trials_b, apart, seeds, confidence)),
        a=record_a.policy.label,
        b=record_b.policy.label,
        engine_a=record_a.engine.label if record_a.engine else None,
        engine_b=record_b.engine.label if record_b.engine else None,
        conditions=[difference.words() for difference in identity.conditions(record_a, record_b)],
        unknown=unknown({"a": record_a, "b": record_b}),
        common=common,
        tasks=tasks,
    )


def unknown(records: Mapping[str, Record]) -> str | None:
    """In words, which of the records (by name) do not hold their whole suite; None where all do."""
    partial = [name for name, record in records.items() if not identity.is_whole(record)]
    if not partial:
        return None
    return (
        f"{', '.join(partial)} {'does' if len(partial) == 1 else 'do'} not say the whole criterion, objects, "
        "servos, cameras and sampler (written before schema 3): whether these are the same is unknown"
    )


def suite_difference(record_a: Record, record_b: Record, *, seeds: bool = False) -> str | None:
    """In words, where two records say that they measure different things; None where they do not.

    Compared are suite, version, robot, control rate, length, criterion, objects and text; with `seeds` also
    the seeds.
    """
    a, b = record_a.suite, record_b.suite
    for name, of_a, of_b in (
        ("suites", a.name, b.name),
        ("versions of the suite", a.version, b.version),
        ("seeds", a.seed if seeds else None, b.seed),
    ):
        if of_a is not None and of_b is not None and of_a != of_b:
            return f"the {name} differ: {of_a} and {of_b}"
    measured = identity.measured(record_a, record_b)
    return f"what is measured differs: {identity.listed(measured)}" if measured else None


def check_comparable(records: Mapping[str, Record]) -> None:
    """Raise MorphVlaError where records (by where they are from) do not measure the same thing."""
    first_name, first = next(iter(records.items()))
    for name, record in records.items():
        if difference := suite_difference(first, record):
            raise MorphVlaError(
                f"{first_name} and {name}: {difference}; success rates of different tasks are neither "
                "compared nor pooled"
            )


def states_differ(trial_a: Trial, trial_b: Trial) -> str | None:
    """Why two trials of the same number are not a pair, in words; None when they are."""
    episode = f"episode {trial_a.episode}{trial_a.of_task}"
    if trial_a.initial is None or trial_b.initial is None:
        return f"{episode} does not say from which initial state it started"
    if (trial_a.initial, trial_a.first_seen) != (trial_b.initial, trial_b.first_seen):
        return f"the initial states differ, first in {episode}"
    return None


def paired_counts(pairs: Sequence[tuple[bool, bool]]) -> Counts:
    """The counts of (a succeeded, b succeeded)."""
    counts = Counter(pairs)
    return Counts(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


def _compare(
    trials_a: Sequence[Trial],
    trials_b: Sequence[Trial],
    apart: str | None,
    seeds: str | None,
    confidence: float,
) -> RateDifference:
    """One comparison of two lists of trials; `apart` says why there is none, `seeds` that they differ."""
    a, b = summarise(trials_a, confidence), summarise(trials_b, confidence)
    if a.rate is None or b.rate is None or apart:
        reason = apart or "one of the two has no trials"
        return RateDifference(rate_a=a.rate, rate_b=b.rate, confidence=confidence, reason=reason)
    newcombes = newcombe(a.successes, a.trials, b.successes, b.trials, confidence)
    independent = Bounds(**vars(newcombes), interval=NEWCOMBE)
    bounds, pairs, unpaired = independent, None, seeds or _why_not_paired(trials_a, trials_b)
    if not unpaired:
        of_b = by_key(trials_b)
        counts = paired_counts([(trial.success, of_b[trial.key].success) for trial in trials_a])
        pairs = Pairs(**vars(counts), p_value=mcnemar(counts.only_a, counts.only_b))
        tangos = tango(pairs.only_a, pairs.only_b, a.trials, confidence)
        bounds = Bounds(**vars(tangos), interval=TANGO)
    return RateDifference(
        rate_a=a.rate,
        rate_b=b.rate,
        difference=b.rate - a.rate,
        **vars(bounds),
        confidence=confidence,
        paired=pairs,
        independent=independent,
        reason=unpaired,
    )


def _common(record_a: Record, record_b: Record) -> tuple[Sequence[Trial], Sequence[Trial], int | None]:
    """The trials of each, and how many both have where one was stopped early: then only those, else None."""
    shared = by_key(record_a.trials).keys() & by_key(record_b.trials).keys()
    if not shared or not (record_a.stopped or record_b.stopped):
        return record_a.trials, record_b.trials, None
    a, b = ([trial for trial in record.trials if trial.key in shared] for record in (record_a, record_b))
    return a, b, len(shared)


def _why_not_paired(trials_a: Sequence[Trial], trials_b: Sequence[Trial]) -> str | None:
    a, b = by_key(trials_a), by_key(trials_b)
    if a.keys() != b.keys():
        only_a, only_b = a.keys() - b.keys(), b.keys() - a.keys()
        return f"the episodes differ: {len(only_a)} only in a, {len(only_b)} only in b"
    return next((words for key in sorted(a) if (words := states_differ(a[key], b[key]))), None)
