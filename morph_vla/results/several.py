"""Several evaluations side by side, each compared with the first; two of them watched while they run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from morph_vla.results import sequential
from morph_vla.results.comparison import Comparison, RateDifference, check_comparable, compare, unknown
from morph_vla.results.curves import Panel, curves_if_any
from morph_vla.results.intervals import Real
from morph_vla.results.record import Record, Stopped
from morph_vla.results.sequential import Look
from morph_vla.results.statistics import Average, Rates, Summary
from morph_vla.wording import table

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST = 5  # conditions named in a line


@dataclass(frozen=True)
class Row:
    """One evaluation in the table."""

    letter: str
    policy: str
    step: int | None
    record: str
    suite: str | None
    engine: str | None
    stopped: Stopped | None
    summary: Summary


@dataclass(frozen=True)
class Against(Comparison):
    """One evaluation compared with the first, by their letters."""

    letter_a: str
    letter_b: str

    def __str__(self) -> str:
        """Over all trials, then by task."""
        letter, conditions = self.letter_b, self.conditions
        lines = [f"{letter} - {self.letter_a}: {_difference(self, letter)}"]
        if conditions:
            rest = f"; and {len(conditions) - MOST} more" if len(conditions) > MOST else ""
            lines.append(f"  conditions differ (A and {letter}): {'; '.join(conditions[:MOST])}{rest}")
        if self.over:
            lines.append(f"  {self.over}")
        lines += [f"  {task}: {_difference(of_task, letter)}" for task, of_task in self.tasks.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class SideBySide:
    """Several evaluations, and the difference of each to the first."""

    evaluations: list[Row]
    differences: list[Against]
    unknown: str | None
    """See `comparison.unknown`"""
    curves: list[Panel]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True)
class Watched:
    """Whether it is decided which of two evaluations is better: over all tasks, and in each of several."""

    whole: Look
    tasks: dict[str, Look]


def side_by_side(names: Sequence[str], records: Sequence[Record]) -> SideBySide:
    """At most 26 records, called by letters; `names` say where each is from.

    Raises MorphVlaError for records of different suites.
    """
    check_comparable(dict(zip(names, records, strict=True)))
    lettered = dict(zip(LETTERS, records, strict=False))
    rows = [
        Row(
            letter=letter,
            policy=record.policy.label,
            step=record.policy.step,
            record=name,
            suite=record.suite.name,
            engine=record.engine.label if record.engine else None,
            stopped=record.stopped,
            summary=record.summary,
        )
        for name, (letter, record) in zip(names, lettered.items(), strict=True)
    ]
    differences = [
        Against(**vars(compare(records[0], record)), letter_a="A", letter_b=letter)
        for letter, record in list(lettered.items())[1:]
    ]
    return SideBySide(rows, differences, unknown(lettered), curves_if_any(records))


def watched(a: Record, b: Record, error: Real, margin: Real) -> Watched:
    """Two evaluations, finished or not; `error` and `margin` as in `sequential.watch`.

    Of several tasks, the pairs of all take turns. Raises as `sequential.pairs_so_far` and `watch`.
    """
    rows = [record.rows for record in (a, b) if record.rows]
    of = min(end for _, end in rows) - max(first for first, _ in rows) if rows else None  # where both are
    pairs = sequential.pairs_so_far(a, b)
    several = pairs if len(pairs) > 1 else {}
    whole = sequential.watch(sequential.in_turn(pairs), error, margin, None if several else of)
    return Watched(whole, {task: sequential.watch(p, error, margin, of) for task, p in several.items()})


def _lines(answer: SideBySide) -> Iterator[str]:
    """The table, then a line or two for each difference."""
    rows = answer.evaluations
    tasks = list(dict.fromkeys(task for row in rows for task in row.summary.tasks))
    tasks = tasks if len(tasks) > 1 else []
    head = ["", "policy", "all trials", "95%", *(["average"] if tasks else []), *tasks, "trials", "errors"]
    yield from table(head, [_cells(row, tasks) for row in rows], right=range(2, len(head)))
    engines = {row.engine for row in rows if row.engine}
    if len(engines) == 1:
        yield f"engine: {engines.pop()}"
    elif engines:
        yield "engines: " + ", ".join(f"{row.letter} {row.engine or 'not recorded'}" for row in rows)
    yield from (f"{row.letter}: {row.record}" for row in rows)
    yield from (f"{row.letter} was {row.stopped}" for row in rows if row.stopped)
    yield from (f"\n{difference}" for difference in answer.differences)
    if answer.unknown and any(difference.measured for difference in answer.differences):
        yield f"\nnote: {answer.unknown}"


def _cells(row: Row, tasks: Sequence[str]) -> list[object]:
    summary, low, high = row.summary, row.summary.low, row.summary.high
    step = "" if row.step is None else f", step {row.step}"
    return [
        row.letter,
        f"{row.policy}{step}" if row.policy != str(row.step) else f"step {row.step}",
        _rate(summary),
        "" if low is None or high is None else f"[{100 * low:.1f}, {100 * high:.1f}]",
        *([_rate(summary.average_of_tasks)] if tasks else []),
        *(_rate(summary.tasks.get(task)) for task in tasks),
        summary.trials,
        summary.errors,
    ]


def _rate(measured: Rates | Average | None) -> str:
    """A success rate as in the paper's tables, `36.0 ± 5.4` in per cent, or `not measured`."""
    if measured is None or measured.rate is None or measured.half_width is None:
        return "not measured"
    return f"{100 * measured.rate:.1f} ± {100 * measured.half_width:.1f}"


def _difference(difference: RateDifference, letter: str) -> str:
    bounds, pairs = difference.measured, difference.paired
    if bounds is None or difference.difference is None:
        return f"not compared: {difference.reason}"
    text = (
        f"{100 * difference.difference:+.1f} points, {difference.confidence:.0%} interval "
        f"[{100 * bounds.low:+.1f}, {100 * bounds.high:+.1f}] ({bounds.interval})"
    )
    if pairs is None:
        return f"{text}; not paired: {difference.reason}"
    p = pairs.p_value
    return (
        f"{text}; same initial states: both {pairs.both}, only A {pairs.only_a}, only {letter} "
        f"{pairs.only_b}, neither {pairs.neither}; exact McNemar p {'<' if p < 1e-4 else '='} "
        f"{max(p, 1e-4):.4f}"
    )
