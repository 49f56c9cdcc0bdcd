"""What a page says, as values: each evaluation, its difference to the first of its suite, and the curves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from morph_vla.report.reading import Evaluation, evaluations
from morph_vla.results.comparison import Comparison, compare
from morph_vla.results.curves import Panel, curves_if_any, suite_label
from morph_vla.results.record import Record
from morph_vla.results.statistics import Summary


@dataclass(frozen=True)
class Row:
    """One evaluation, by the name it has on the page."""

    label: str
    suite: str
    engine: str | None
    step: int | None
    summary: Summary


@dataclass(frozen=True)
class Numbers:
    """The numbers of a page."""

    evaluations: list[Row]
    differences: list[Comparison]
    curves: list[Panel]


def numbers(records: Sequence[Record]) -> Numbers:
    """The numbers of a page about `records`. Raises MorphVlaError when none has a single trial."""
    rows, differences = [], []
    firsts: dict[str, Evaluation] = {}
    for evaluation in evaluations(records):
        record, suite = evaluation.record, suite_label(evaluation.record)
        engine = record.engine.label if record.engine else None
        rows.append(Row(evaluation.label, suite, engine, record.policy.step, evaluation.summary))
        if evaluation.trials and (first := firsts.setdefault(suite, evaluation)) is not evaluation:
            difference = compare(first.record, record)
            differences.append(replace(difference, a=first.label, b=evaluation.label))
    return Numbers(rows, differences, curves_if_any(records))
