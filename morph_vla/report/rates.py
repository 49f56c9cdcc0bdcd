"""What was measured: the sentences at the top of the page, the tables of rates, and the differences."""

from collections import Counter
from collections.abc import Sequence

from morph_vla.report.charts import difference_bars
from morph_vla.report.episodes import SAID
from morph_vla.report.reading import Evaluation, pairs
from morph_vla.report.words import Table, bracket, failed_at, in_order, percent, plain, points
from morph_vla.results import identity
from morph_vla.results.comparison import Comparison, RateDifference, compare, unknown
from morph_vla.results.statistics import Average, Rates

COLUMNS = 4  # evaluations that stand side by side in a table; more of them are its rows
Groups = list[tuple[str, list[tuple[str, Rates]]]]


def headline(main: Evaluation) -> str:
    """The measured result in one sentence."""
    summary = main.summary
    return (
        f"{main.subject} succeeds in {summary.successes} of {summary.trials} trials: {in_brackets(summary)}"
    )


def task_texts(evaluation: Evaluation) -> list[str]:
    """What the policy is told in each task, where the record says it, each sentence once."""
    texts = map(evaluation.task_text, evaluation.tasks)
    return list(dict.fromkeys(text for text in texts if text))


def disagreement(evaluation: Evaluation) -> str | None:
    """In words, where the stored summary differs from what the trials say; None where it does not."""
    stored = evaluation.record.stored
    for key in ("successes", "trials", "errors"):
        counted = getattr(evaluation.summary, key)
        if key in stored and stored[key] != counted:
            stated = f"The record's summary of {evaluation.label} says {stored[key]} {key}"
            return f"{stated}, its trials say {counted}."
    return None


def groups(evaluations: Sequence[Evaluation]) -> Groups:
    """(name, (label, rates) of each evaluation): all trials, then each task where there are several."""
    tasks = list(dict.fromkeys(task for evaluation in evaluations for task in evaluation.summary.tasks))
    whole: list[tuple[str, Rates]] = [(evaluation.label, evaluation.summary) for evaluation in evaluations]
    if len(tasks) < 2:
        return [("", whole)]
    rows = [
        [(e.label, e.summary.tasks[task]) for e in evaluations if task in e.summary.tasks] for task in tasks
    ]
    return [("all trials", whole), *zip(tasks, rows, strict=True)]


def rates_table(evaluations: Sequence[Evaluation], tasks: Sequence[str]) -> Table:
    """A row for each evaluation, a column for each task, as the paper's tables have them."""
    rows = []
    for evaluation in evaluations:
        summary = evaluation.summary
        average = [rate(summary.average_of_tasks)] if tasks else []
        each = [rate(summary.tasks.get(task)) for task in tasks]
        counts = f"{summary.successes} / {summary.trials}"
        rows.append((evaluation.label, rate(summary), *average, *each, counts, summary.errors))
    average = ["average of tasks"] if tasks else []
    head = ("", "all trials", *average, *tasks, "successes / trials", "errors")
    return Table("Success rates", head, rows)


def rate(rates: Rates | Average | None) -> str:
    """`76.0 ± 8.3`, in per cent; with the interval itself where that is lopsided."""
    if rates is None or rates.rate is None or rates.low is None or rates.high is None:
        return "not measured"
    above, below = rates.high - rates.rate, rates.rate - rates.low
    if min(above, below) < max(above, below) / 2:  # ± would name rates that cannot be, such as -1.2
        return f"{100 * rates.rate:.1f}\u00a0{bracket(rates.low, rates.high)}"
    return f"{100 * rates.rate:.1f}\u00a0±\u00a0{50 * (rates.high - rates.low):.1f}"


def every_number(evaluations: Sequence[Evaluation]) -> Table:
    """One column for each evaluation, or for many of them one row each."""
    clauses = clauses_of(evaluations)
    facts = list(dict.fromkeys(fact for evaluation in evaluations for fact in _true(evaluation)))
    columns = []
    for evaluation in evaluations:
        counts = Counter(_true(evaluation))
        noted = {f"noted: {plain(fact)}": counts[fact] for fact in facts}
        columns.append((evaluation.label, _numbers(evaluation.summary, clauses) | noted))
    names, rows = ("", *columns[0][1]), [(label, *numbers.values()) for label, numbers in columns]
    if len(evaluations) > COLUMNS:
        return Table("Results", names, rows)
    head, *rows = zip(names, *rows, strict=True)
    return Table("Results", head, rows)


def _true(evaluation: Evaluation) -> list[str]:
    """The facts that were noted of its trials, one name a trial and fact."""
    everything = [item for trial in evaluation.trials for item in vars(trial).items()]
    return [name for name, value in everything if value is True and name not in SAID]


def clauses_of(evaluations: Sequence[Evaluation]) -> list[str]:
    """The clauses at which any trial failed, in the criterion's order; empty where no record says one."""
    clauses = in_order([clause for evaluation in evaluations for clause in evaluation.summary.failed_clauses])
    return [] if clauses == ["unknown"] else clauses


def differences(evaluations: Sequence[Evaluation], kind: str) -> list[tuple[object, str, Table | None]]:
    """(chart, sentence, table by task) of the pairs that a page of this `kind` compares (`reading.pairs`)."""
    return [_difference(first, other) for first, other in pairs(evaluations, kind)]


def _difference(first: Evaluation, other: Evaluation) -> tuple[object, str, Table | None]:
    comparison = compare(first.record, other.record)
    name, tasks = f"{other.label} minus {first.label}", comparison.tasks
    chart = difference_bars(name, [("all trials" if tasks else "", comparison), *tasks.items()])
    rows = [(task, _points(of_task), *_pairs(of_task)) for task, of_task in tasks.items()]
    table = Table(f"{name}, by task", ("task", "difference", "p", "gained\u00a0/ lost"), rows)
    differing = identity.conditions(first.record, other.record)
    others = [fact.words() for fact in differing if fact.bare.partition(".")[0] != "engine"]
    unsaid = unknown({first.label: first.record, other.label: other.record})
    words = _in_words(name, comparison, others, first.label, other.label, unsaid)
    return chart, words, table if tasks else None


def _points(difference: RateDifference) -> str:
    """`+12.0 [+5.1, +18.7]`, or in words that it is not compared."""
    bounds = difference.measured
    if bounds is None or difference.difference is None:
        return f"not compared: {difference.reason}"
    return f"{points(difference.difference)} [{points(bounds.low)},\u00a0{points(bounds.high)}]"


def _pairs(difference: RateDifference) -> tuple[str, str]:
    """McNemar's p, and the episodes that were gained and lost."""
    pairs = difference.paired
    return (_p_value(pairs.p_value), f"{pairs.only_b} / {pairs.only_a}") if pairs else ("–", "not paired")


def _in_words(
    name: str, comparison: Comparison, others: list[str], a: str, b: str, unsaid: str | None
) -> str:
    """The difference in a sentence; of its conditions `others` differ, `unsaid` is what none says."""
    bounds, pairs = comparison.measured, comparison.paired
    if bounds is None or comparison.difference is None:
        return f"{b} is not compared with {a}: {comparison.reason}."
    verb = "excludes" if bounds.low > 0 or bounds.high < 0 else "includes"
    words = (
        f"{name}: {points(comparison.difference)} percentage points, 95% interval "
        f"[{points(bounds.low)}, {points(bounds.high)}] ({bounds.interval}); the interval {verb} zero. "
    )
    if over := comparison.over:
        words += f"{over[:1].upper()}{over[1:]}. "
    if unsaid:
        words += f"Note: {unsaid}. "
    engine_a, engine_b = comparison.engine_a, comparison.engine_b
    if engine_a != engine_b and engine_a and engine_b:
        words += f"Engines: {engine_a} and {engine_b}. "
    if others:
        words += f"Conditions that differ: {'; '.join(others)}. "
    if pairs is None:
        return f"{words}Not paired: {comparison.reason}."
    return (
        f"{words}On the same {pairs.both + pairs.only_a + pairs.only_b + pairs.neither} initial "
        f"states: both {pairs.both}, only {b} {pairs.only_b}, only {a} {pairs.only_a}, "
        f"neither {pairs.neither}; exact McNemar p\u00a0{_p_value(pairs.p_value)}."
    )


def _p_value(p: float) -> str:
    return "<\u00a00.0001" if p < 0.0001 else f"=\u00a0{p:.4f}"


def in_brackets(rates: Rates) -> str:
    """`76.0% [66.8, 83.3]`."""
    return f"{percent(rates.rate)} {bracket(rates.low, rates.high)}"


def _numbers(summary: Rates, clauses: Sequence[str]) -> dict[str, object]:
    times = summary.time_to_success_s
    bounds = None if times is None or times.low is None or times.high is None else (times.low, times.high)
    return {
        "successes / trials": f"{summary.successes} / {summary.trials}",
        "success rate": percent(summary.rate),
        "95% interval": bracket(summary.low, summary.high),
        "half-width": "–" if summary.half_width is None else f"± {100 * summary.half_width:.1f}",
        "errors": summary.errors,
        "time to success, median": f"{times.median:.2f} s" if times else "–",
        "95% interval of it": f"[{bounds[0]:.2f}, {bounds[1]:.2f}] s" if bounds else "–",
        "time to success, mean": f"{times.mean:.2f} s" if times else "–",
        **{f"failed: {failed_at(clause)}": summary.failed_clauses.get(clause, 0) for clause in clauses},
    }
