"""What a page says, as values: each evaluation, the differences, and the curves."""

from dataclasses import dataclass, replace

from morph_vla.report.reading import evaluations, pairs
from morph_vla.results.comparison import Comparison, compare
from morph_vla.results.curves import Panel, curves_if_any, suite_label
from morph_vla.results.record import Study
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


def numbers(study: Study) -> Numbers:
    """The numbers of a page about a study. Raises MorphVlaError when none has a single trial."""
    shown, rows, differences = evaluations(study.evaluations), [], []
    for evaluation in shown:
        record, suite = evaluation.record, suite_label(evaluation.record)
        engine = record.engine.label if record.engine else None
        rows.append(Row(evaluation.label, suite, engine, record.policy.step, evaluation.summary))
    for first, other in pairs(shown, study.kind):
        differences.append(replace(compare(first.record, other.record), a=first.label, b=other.label))
    return Numbers(rows, differences, curves_if_any(study.evaluations))
