"""The first sections of the page: what was measured, in a sentence, in tables, in bars and as a curve."""

from collections.abc import Sequence
from itertools import groupby

from morph_vla.errors import MorphVlaError
from morph_vla.report import hero
from morph_vla.report.bars import difference_bars, outcome_bars, success_bars
from morph_vla.report.episodes import FAILED_AT, failed_at
from morph_vla.report.lines import learning_curve
from morph_vla.report.markup import Markup, bracket, el, join, percent, points, table
from morph_vla.report.reading import Evaluation, disagreement, task_text, the_policy
from morph_vla.report.times import success_by_time
from morph_vla.results import curves
from morph_vla.results.comparison import Comparison, RateDifference, compare
from morph_vla.results.record import Study
from morph_vla.results.statistics import Average, Rates, Times

COLUMNS = 4  # evaluations that stand side by side in a table; more of them are its rows


def headline(evaluations: Sequence[Evaluation]) -> str:
    """The measured result in one sentence: the last evaluation that has trials."""
    main = _measured(evaluations)[-1]
    summary = main.summary
    return (
        f"{the_policy(main)} succeeds in {summary.successes} of {summary.trials} trials: "
        f"{percent(summary.rate)} {bracket(summary.low, summary.high)}"
    )


def header(study: Study, evaluations: Sequence[Evaluation], films: Markup | None = None) -> Markup:
    """Title, headline, why the others failed and the sentence below it; films beside them."""
    main = _measured(evaluations)[-1]
    time = (study.time or main.record.time).replace("T", " ").replace("Z", " UTC")
    words = [study.kind, main.suite.robot, main.suite.name, *engines(evaluations), time]
    others = [evaluation for evaluation in evaluations if evaluation is not main]
    texts = [text for task in main.tasks if (text := task_text(main, task))]
    quoted = ", ".join(f"“{text}”" for text in dict.fromkeys(texts))
    lead = [f"Task{'s' if len(texts) > 1 else ''}: {quoted}." if texts else None]
    lead += map(_in_short, others) if len(others) <= 2 else []
    lead += map(stopped, evaluations)
    lead.append("Brackets hold 95% Wilson intervals, in per cent.")
    warnings = [words for words in map(disagreement, evaluations) if words]
    reasons = hero.why(main.summary)
    sentences = el(
        "div",
        el("p", " · ".join(word for word in words if word), class_="kicker"),
        el("h1", headline(evaluations)),
        el("p", reasons, class_="why") if reasons else None,
        el("p", " ".join(sentence for sentence in lead if sentence), class_="lead"),
        (el("p", words, class_="note warn") for words in warnings),
    )
    return el("header", sentences, films, class_="with-films" if films else None)


def engines(evaluations: Sequence[Evaluation]) -> list[str]:
    """The engines of the evaluations, each once."""
    return list(
        dict.fromkeys(
            evaluation.record.engine.label for evaluation in evaluations if evaluation.record.engine
        )
    )


def stopped(evaluation: Evaluation) -> str | None:
    """In words, that an evaluation was stopped early; None where it was not."""
    end = evaluation.record.stopped
    if end is None:
        return None
    return f"{the_policy(evaluation)} was stopped after {end.episodes} of {end.of} episodes: {end.reason}."


def result(evaluations: Sequence[Evaluation]) -> Markup:
    """Success bars, the tables, and each later evaluation against the first of its suite."""
    tasks = list(dict.fromkeys(task for evaluation in evaluations for task in evaluation.summary.tasks))
    several = tasks if len(tasks) > 1 else []
    compared = [_difference(a, b) for a, b in _against(evaluations)]
    listed = el("div", _table(evaluations), el("p", _note(evaluations), class_="note"), class_="stack")
    bars = el("figure", success_bars([(evaluation.label, evaluation.summary) for evaluation in evaluations]))
    if not several and len(evaluations) <= 2:
        left = el("div", bars, compared, success_by_time(evaluations), class_="stack")
        return el("section", el("h2", "Success"), el("div", left, listed, class_="two"))
    rates = el("div", _rates(evaluations, several), _average_note(several), class_="stack")
    panels = [
        el("figure", el("figcaption", task, class_="over"), success_bars(_rows(evaluations, task), task))
        for task in several
    ]
    whole = el("figure", el("figcaption", "all trials", class_="over") if several else None, bars)
    return el(
        "section",
        el("h2", "Success"),
        rates,
        el("div", whole, panels, success_by_time(evaluations), class_="panels"),
        el("details", el("summary", "Each against the first"), compared) if len(compared) > 2 else compared,
        el("details", el("summary", "Every number"), listed),
    )


def curve(evaluations: Sequence[Evaluation]) -> Markup | None:
    """Success against training steps with bands; None where no run has two checkpoints."""
    try:
        panels = curves.curves([evaluation.record for evaluation in evaluations])
    except MorphVlaError as error:
        return el("section", el("h2", "Learning curve"), el("p", str(error), class_="note"))
    if not panels:
        return None
    figures = [
        el(
            "figure",
            el("figcaption", panel.suite, class_="over"),
            learning_curve(panel),
            el(
                "p",
                (
                    join(el("i", class_=f"key c{place % 6}"), el("span", run.run))
                    for place, run in enumerate(panel.runs)
                ),
                class_="note legend",
            ),
        )
        for panel in panels
    ]
    words = (
        "A line a run, over all trials; bands and hairs are each checkpoint's own 95% Wilson interval. They "
        "say how well a checkpoint was measured, not how much another training seed would differ."
    )
    return el(
        "section",
        el("h2", "Learning curve"),
        el("div", figures, class_="two" if len(figures) > 1 else "wide"),
        el("p", words, class_="note"),
    )


def failures(evaluations: Sequence[Evaluation]) -> Markup | None:
    """How the trials ended: success, the clause that failed, error; None when nothing failed."""
    order = clauses_of(evaluations)
    if not order and not any(evaluation.summary.errors for evaluation in evaluations):
        return None
    tasks = list(dict.fromkeys(task for evaluation in evaluations for task in evaluation.summary.tasks))
    keys = [("s-success", "success")]
    keys += [(f"s-{place}", failed_at(clause)) for place, clause in enumerate(order)] + [("s-error", "error")]
    legend = [
        el("span", el("i", class_=f"swatch {class_}"), el("span", words), class_="pair")
        for class_, words in keys
    ]
    groups = [("", [(evaluation.label, evaluation.summary) for evaluation in evaluations])]
    if len(tasks) > 1:
        groups = [("all trials", groups[0][1])] + [(task, _rows(evaluations, task)) for task in tasks]
    figures = [
        el("figure", el("figcaption", name, class_="over") if name else None, outcome_bars(rows, order))
        for name, rows in groups
    ]
    return el(
        "section",
        el("h2", "How the trials ended"),
        el("p", "The clause of the success criterion at which each failure stopped.", class_="note"),
        el("p", legend, class_="note legend"),
        el("div", figures, class_="panels"),
    )


def _measured(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    return [evaluation for evaluation in evaluations if evaluation.trials]


def _against(evaluations: Sequence[Evaluation]) -> list[tuple[Evaluation, Evaluation]]:
    """(the first of a suite, another of it) for all that have trials."""
    by_suite = sorted(_measured(evaluations), key=lambda evaluation: str(evaluation.suite.name))
    groups = [list(group) for _, group in groupby(by_suite, key=lambda evaluation: evaluation.suite.name)]
    return [(group[0], other) for group in groups for other in group[1:]]


def _rows(evaluations: Sequence[Evaluation], task: str) -> list[tuple[str, Rates]]:
    return [
        (evaluation.label, evaluation.summary.tasks[task])
        for evaluation in evaluations
        if task in evaluation.summary.tasks
    ]


def _in_short(evaluation: Evaluation) -> str:
    summary = evaluation.summary
    if not evaluation.trials:
        return f"{the_policy(evaluation)} was not measured."
    return (
        f"{the_policy(evaluation)} in {summary.successes} of {summary.trials}: "
        f"{percent(summary.rate)} {bracket(summary.low, summary.high)}."
    )


def _difference(first: Evaluation, other: Evaluation) -> Markup:
    """One comparison in words, with its bars: over all trials, and by task."""
    comparison = compare(first.record, other.record)
    name, tasks = f"{other.label} minus {first.label}", comparison.tasks
    rows = [("all trials" if tasks else "", comparison), *tasks.items()]
    words: list[Markup] = [el("p", _in_words(name, comparison, first.label, other.label), class_="note")]
    if tasks:
        cells = [(task, percent_points(own), _p(own), _pairs(own)) for task, own in tasks.items()]
        head = ("task", "difference", "p", "gained\u00a0/ lost")
        words.append(table(cells, head, f"{name}, by task"))
    return el("figure", difference_bars(name, rows), el("div", words, class_="said"), class_="two against")


def percent_points(difference: RateDifference) -> str:
    """`+12.0 [+5.1, +18.7]`, or in words that it is not compared."""
    bounds = difference.measured
    if bounds is None or difference.difference is None:
        return f"not compared: {difference.reason}"
    return f"{points(difference.difference)} [{points(bounds.low)},\u00a0{points(bounds.high)}]"


def _in_words(name: str, comparison: Comparison, a: str, b: str) -> str:
    bounds, pairs = comparison.measured, comparison.paired
    if bounds is None or comparison.difference is None:
        return f"{b} is not compared with {a}: {comparison.reason}."
    sure = "excludes" if bounds.low > 0 or bounds.high < 0 else "includes"
    words = (
        f"{name}: {points(comparison.difference)} percentage points, 95% interval "
        f"[{points(bounds.low)}, {points(bounds.high)}] ({bounds.interval}); the interval {sure} zero. "
    )
    engine_a, engine_b = comparison.engine_a, comparison.engine_b
    if engine_a != engine_b and engine_a and engine_b:
        words += f"Engines: {engine_a} and {engine_b}. "
    others = [words for words in comparison.conditions if not words.startswith("engine")]
    if others:
        words += f"Conditions that differ: {'; '.join(others)}. "
    if pairs is None:
        return f"{words}Not paired: {comparison.reason}."
    return (
        f"{words}On the same {pairs.both + pairs.only_a + pairs.only_b + pairs.neither} initial "
        f"states: both {pairs.both}, only {b} {pairs.only_b}, only {a} {pairs.only_a}, "
        f"neither {pairs.neither}; exact McNemar p\u00a0{_p_value(pairs.p_value)}."
    )


def _pairs(difference: RateDifference) -> str:
    pairs = difference.paired
    return "not paired" if pairs is None else f"{pairs.only_b} / {pairs.only_a}"


def _p(difference: RateDifference) -> str:
    return _p_value(difference.paired.p_value) if difference.paired else "–"


def _p_value(p: float) -> str:
    return "<\u00a00.0001" if p < 0.0001 else f"=\u00a0{p:.4f}"


def _rates(evaluations: Sequence[Evaluation], tasks: Sequence[str]) -> Markup:
    """A row for each evaluation, a column for each task, as the paper's tables have them."""
    rows = []
    for evaluation in evaluations:
        summary = evaluation.summary
        average = [_rate(summary.average_of_tasks)] if tasks else []
        each = [_rate(summary.tasks.get(task)) for task in tasks]
        counts = f"{summary.successes} / {summary.trials}"
        rows.append((evaluation.label, _rate(summary), *average, *each, counts, summary.errors))
    average = ["average of tasks"] if tasks else []
    head = ("", "all trials", *average, *tasks, "successes / trials", "errors")
    return table(rows, head, "Success rates")


def _rate(rates: Rates | Average | None) -> str:
    if rates is None or rates.rate is None or rates.low is None or rates.high is None:
        return "not measured"
    above, below = rates.high - rates.rate, rates.rate - rates.low
    if min(above, below) < max(above, below) / 2:  # ± would name rates that cannot be, such as -1.2
        return f"{100 * rates.rate:.1f}\u00a0{bracket(rates.low, rates.high)}"
    return f"{100 * rates.rate:.1f}\u00a0±\u00a0{50 * (rates.high - rates.low):.1f}"


def _average_note(tasks: Sequence[str]) -> Markup | None:
    words = "Per cent ± half of the 95% interval, or the interval where it is lopsided. "
    words += "All trials: Wilson's interval of every trial. "
    words += "Average of tasks: the plain mean of the tasks' rates, with an interval from theirs."
    return el("p", words, class_="note") if tasks else None


def _table(evaluations: Sequence[Evaluation]) -> Markup:
    """One column for each evaluation, or for many of them one row each."""
    clauses = clauses_of(evaluations)
    names = (
        *("successes / trials", "success rate", "95% interval", "half-width", "errors"),
        *("time to success, median", "95% interval of it", "time to success, mean"),
        *(f"failed: {failed_at(clause)}" for clause in clauses),
    )
    columns = [(evaluation.label, *_numbers(evaluation.summary, clauses)) for evaluation in evaluations]
    if len(evaluations) > COLUMNS:
        return table(columns, ("", *names), "Results")
    head, *rows = zip(("", *names), *columns, strict=True)
    return table(rows, head, "Results")


def _numbers(summary: Rates, clauses: Sequence[str]) -> list[object]:
    times = summary.time_to_success_s
    return [
        f"{summary.successes} / {summary.trials}",
        percent(summary.rate),
        bracket(summary.low, summary.high),
        "–" if summary.half_width is None else f"± {100 * summary.half_width:.1f}",
        summary.errors,
        f"{times.median:.2f} s" if times else "–",
        _seconds_interval(times),
        f"{times.mean:.2f} s" if times else "–",
        *(summary.failed_clauses.get(clause, 0) for clause in clauses),
    ]


def clauses_of(evaluations: Sequence[Evaluation]) -> list[str]:
    """The clauses at which any trial failed, in the criterion's order."""
    named = {clause for evaluation in evaluations for clause in evaluation.summary.failed_clauses}
    return [clause for clause in FAILED_AT if clause in named] + sorted(named - FAILED_AT.keys())


def _seconds_interval(times: Times | None) -> str:
    if times is None or times.low is None or times.high is None:
        return "–"
    return f"[{times.low:.2f}, {times.high:.2f}] s"


def _note(evaluations: Sequence[Evaluation]) -> str:
    words = "Every trial counts; one that ended in an error is a trial that did not succeed."
    if any(evaluation.summary.time_to_success_s for evaluation in evaluations):
        words += " Times are those of successes only; their interval bounds the median, by order statistics."
    if len(evaluations) > 2:
        words += (
            " Each interval and p value stands for itself: none is widened for the number of comparisons."
        )
    return words
