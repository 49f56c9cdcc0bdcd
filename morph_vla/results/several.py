"""Several evaluations side by side, each compared with the first; two of them watched while they run."""

from collections.abc import Sequence
from dataclasses import dataclass

from morph_vla.results import sequential
from morph_vla.results.comparison import Comparison, check_comparable, compare, unknown
from morph_vla.results.curves import Panel, curves
from morph_vla.results.intervals import Real
from morph_vla.results.record import Record, Stopped
from morph_vla.results.sequential import Look
from morph_vla.results.statistics import Summary

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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


@dataclass(frozen=True)
class SideBySide:
    """Several evaluations, and the difference of each to the first."""

    evaluations: list[Row]
    differences: list[Against]
    unknown: str | None
    """See `comparison.unknown`"""
    curves: list[Panel]


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
    return SideBySide(rows, differences, unknown(lettered), curves(records))


def watched(a: Record, b: Record, error: Real, margin: Real) -> Watched:
    """Two evaluations, finished or not; `error` and `margin` as in `sequential.watch`.

    Of several tasks, the pairs of all take turns. Raises as `sequential.pairs_so_far` and `watch`.
    """
    of = max((record.rows[1] - record.rows[0] for record in (a, b) if record.rows), default=None)
    pairs = sequential.pairs_so_far(a, b)
    several = pairs if len(pairs) > 1 else {}
    whole = sequential.watch(sequential.in_turn(pairs), error, margin, None if several else of)
    return Watched(whole, {task: sequential.watch(p, error, margin, of) for task, p in several.items()})
