"""The first sections of the page: what was measured, in a sentence, in tables, in bars and as a curve."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.report import hero
from morph_vla.report.bars import difference_bars, outcome_bars, success_bars
from morph_vla.report.episodes import FAILED_AT, failed_at
from morph_vla.report.lines import learning_curve
from morph_vla.report.markup import Markup, bracket, el, join, percent, points, table
from morph_vla.report.reading import Evaluation, disagreement, task_text, the_policy
from morph_vla.report.times import success_by_time
from morph_vla.results import comparison, curves

COLUMNS = 4  # evaluations that stand side by side in a table; more of them are its rows


def headline(evaluations: Sequence[Evaluation]) -> str:
    """The measured result in one sentence: the last evaluation that has trials."""
    main = [one for one in evaluations if one.trials][-1]
    s = main.summary
    return (
        f"{the_policy(main)} succeeds in {s['successes']} of {s['trials']} trials: "
        f"{percent(s['rate'])} {bracket(s['low'], s['high'])}"
    )


def header(
    record: Mapping[str, Any], evaluations: Sequence[Evaluation], films: Markup | None = None
) -> Markup:
    """Title, headline, why the others failed and the sentence below it; films beside them."""
    main = [one for one in evaluations if one.trials][-1]
    suite = main.suite
    time = str(record.get("time") or main.record.get("time") or "").replace("T", " ").replace("Z", " UTC")
    words = [record.get("kind"), suite.get("robot"), suite.get("name"), *engines(evaluations), time]
    others = [one for one in evaluations if one is not main]
    texts = [text for task in main.tasks if (text := task_text(main, task))]
    quoted = ", ".join(f"“{text}”" for text in dict.fromkeys(texts))
    lead = [f"Task{'s' if len(texts) > 1 else ''}: {quoted}." if texts else None]
    lead += [_in_short(one) for one in others] if len(others) <= 2 else []
    lead += [words for words in map(stopped, evaluations) if words]
    lead.append("Brackets hold 95% Wilson intervals, in per cent.")
    warnings = [words for words in map(disagreement, evaluations) if words]
    reasons = hero.why(main.summary)
    said = el(
        "div",
        el("p", " · ".join(str(word) for word in words if word), class_="kicker"),
        el("h1", headline(evaluations)),
        el("p", reasons, class_="why") if reasons else None,
        el("p", " ".join(sentence for sentence in lead if sentence), class_="lead"),
        (el("p", words, class_="note warn") for words in warnings),
    )
    return el("header", said, films, class_="with-films" if films else None)


def engines(evaluations: Sequence[Evaluation]) -> list[str]:
    """The engines of the evaluations, each once."""
    found = (comparison.engine_label(one.record) for one in evaluations)
    return list(dict.fromkeys(label for label in found if label))


def stopped(evaluation: Evaluation) -> str | None:
    """In words, that an evaluation was stopped early; None where it was not."""
    found = evaluation.record.get("stopped")
    if not isinstance(found, Mapping):
        return None
    return (
        f"{the_policy(evaluation)} was stopped after {found.get('episodes')} of {found.get('of')} episodes: "
        f"{found.get('reason')}."
    )


def result(evaluations: Sequence[Evaluation]) -> Markup:
    """Success bars, the tables, and each later evaluation against the first of its suite."""
    tasks = list(dict.fromkeys(task for one in evaluations for task in one.summary["tasks"]))
    several = tasks if len(tasks) > 1 else []
    compared = [_difference(a, b) for a, b in _against(evaluations)]
    listed = el("div", _table(evaluations), el("p", _note(evaluations), class_="note"), class_="stack")
    bars = el("figure", success_bars([(one.label, one.summary) for one in evaluations]))
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
        panels = curves.curves([one.record for one in evaluations])
    except MorphVlaError as error:
        return el("section", el("h2", "Learning curve"), el("p", str(error), class_="note"))
    if not panels:
        return None
    figures = [
        el(
            "figure",
            el("figcaption", panel["suite"], class_="over"),
            learning_curve(panel),
            el(
                "p",
                (
                    join(el("i", class_=f"key c{place % 6}"), el("span", run["run"]))
                    for place, run in enumerate(panel["runs"])
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
    named = {clause for one in evaluations for clause in one.summary["failed_clauses"]}
    if not named and not any(one.summary["errors"] for one in evaluations):
        return None
    order = [clause for clause in FAILED_AT if clause in named] + sorted(named - FAILED_AT.keys())
    tasks = list(dict.fromkeys(task for one in evaluations for task in one.summary["tasks"]))
    keys = [("s-success", "success")]
    keys += [(f"s-{place}", failed_at(clause)) for place, clause in enumerate(order)] + [("s-error", "error")]
    legend = [
        el("span", el("i", class_=f"swatch {class_}"), el("span", words), class_="pair")
        for class_, words in keys
    ]
    groups = [("", [(one.label, one.summary) for one in evaluations])]
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


def _against(evaluations: Sequence[Evaluation]) -> list[tuple[Evaluation, Evaluation]]:
    """(the first of a suite, another of it) for all that have trials."""
    measured = [one for one in evaluations if one.trials]
    by_suite = sorted(measured, key=lambda one: str(one.suite.get("name")))
    groups = [list(group) for _, group in groupby(by_suite, key=lambda one: str(one.suite.get("name")))]
    return [(group[0], other) for group in groups for other in group[1:]]


def _rows(evaluations: Sequence[Evaluation], task: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(one.label, one.summary["tasks"][task]) for one in evaluations if task in one.summary["tasks"]]


def _in_short(one: Evaluation) -> str:
    s = one.summary
    if not one.trials:
        return f"{the_policy(one)} was not measured."
    return (
        f"{the_policy(one)} in {s['successes']} of {s['trials']}: "
        f"{percent(s['rate'])} {bracket(s['low'], s['high'])}."
    )


def _difference(first: Evaluation, other: Evaluation) -> Markup:
    """One comparison in words, with its bars: over all trials, and by task."""
    found = comparison.compare(first.record, other.record)
    name = f"{other.label} minus {first.label}"
    rows = [("all trials" if found["tasks"] else "", found), *found["tasks"].items()]
    words: list[Markup] = [el("p", _in_words(name, found, first.label, other.label), class_="note")]
    if found["tasks"]:
        cells = [(task, percent_points(own), _p(own), _pairs(own)) for task, own in found["tasks"].items()]
        head = ("task", "difference", "p", "gained\u00a0/ lost")
        words.append(table(cells, head, f"{name}, by task"))
    return el("figure", difference_bars(name, rows), el("div", words, class_="said"), class_="two against")


def percent_points(found: Mapping[str, Any]) -> str:
    """`+12.0 [+5.1, +18.7]`, or in words that it is not compared."""
    if found["difference"] is None:
        return f"not compared: {found['reason']}"
    low, high = (points(found[key]) for key in ("low", "high"))
    return f"{points(found['difference'])} [{low},\u00a0{high}]"


def _in_words(name: str, found: Mapping[str, Any], a: str, b: str) -> str:
    if found["difference"] is None:
        return f"{b} is not compared with {a}: {found['reason']}."
    low, high = found["low"], found["high"]
    sure = "the interval excludes zero" if low > 0 or high < 0 else "the interval includes zero"
    words = (
        f"{name}: {points(found['difference'])} percentage points, "
        f"95% interval [{points(low)}, {points(high)}] ({found['interval']}); {sure}. "
    )
    if found["engine_a"] != found["engine_b"] and found["engine_a"] and found["engine_b"]:
        words += f"Engines: {found['engine_a']} and {found['engine_b']}. "
    others = [one for one in found["conditions"] if not one.startswith("engine")]
    if others:
        words += f"Conditions that differ: {'; '.join(others)}. "
    paired = found["paired"]
    if paired is None:
        return f"{words}Not paired: {found['reason']}."
    return (
        f"{words}On the same {sum(paired[k] for k in ('both', 'only_a', 'only_b', 'neither'))} initial "
        f"states: both {paired['both']}, only {b} {paired['only_b']}, only {a} {paired['only_a']}, "
        f"neither {paired['neither']}; exact McNemar p\u00a0{_p_value(paired['p_value'])}."
    )


def _pairs(found: Mapping[str, Any]) -> str:
    paired = found["paired"]
    return "not paired" if paired is None else f"{paired['only_b']} / {paired['only_a']}"


def _p(found: Mapping[str, Any]) -> str:
    return _p_value(found["paired"]["p_value"]) if found["paired"] else "–"


def _p_value(p: float) -> str:
    return "<\u00a00.0001" if p < 0.0001 else f"=\u00a0{p:.4f}"


def _rates(evaluations: Sequence[Evaluation], tasks: Sequence[str]) -> Markup:
    """A row for each evaluation, a column for each task, as the paper's tables have them."""
    rows = [
        (
            one.label,
            _rate(one.summary),
            *([_rate(one.summary["average_of_tasks"])] if tasks else []),
            *(_rate(one.summary["tasks"].get(task)) for task in tasks),
            f"{one.summary['successes']} / {one.summary['trials']}",
            one.summary["errors"],
        )
        for one in evaluations
    ]
    head = (
        "",
        "all trials",
        *(["average of tasks"] if tasks else []),
        *tasks,
        "successes / trials",
        "errors",
    )
    return table(rows, head, "Success rates")


def _rate(summary: Mapping[str, Any] | None) -> str:
    if summary is None or summary["rate"] is None:
        return "not measured"
    above, below = summary["high"] - summary["rate"], summary["rate"] - summary["low"]
    if min(above, below) < max(above, below) / 2:  # ± would name rates that cannot be, such as -1.2
        return f"{100 * summary['rate']:.1f}\u00a0{bracket(summary['low'], summary['high'])}"
    return f"{100 * summary['rate']:.1f}\u00a0±\u00a0{100 * summary['half_width']:.1f}"


def _average_note(tasks: Sequence[str]) -> Markup | None:
    words = "Per cent ± half of the 95% interval, or the interval where it is lopsided. "
    words += "All trials: Wilson's interval of every trial. "
    words += "Average of tasks: the plain mean of the tasks' rates, with an interval from theirs."
    return el("p", words, class_="note") if tasks else None


def _table(evaluations: Sequence[Evaluation]) -> Markup:
    """One column for each evaluation, or for many of them one row each."""
    summaries = [one.summary for one in evaluations]
    rows: list[tuple[object, ...]] = [
        ("successes / trials", *(f"{s['successes']} / {s['trials']}" for s in summaries)),
        ("success rate", *(percent(s["rate"]) for s in summaries)),
        ("95% interval", *(bracket(s["low"], s["high"]) for s in summaries)),
        (
            "half-width",
            *("–" if s["half_width"] is None else f"± {100 * s['half_width']:.1f}" for s in summaries),
        ),
        ("errors", *(s["errors"] for s in summaries)),
        ("time to success, median", *(_seconds(s, "median") for s in summaries)),
        ("95% interval of it", *(_seconds_interval(s) for s in summaries)),
        ("time to success, mean", *(_seconds(s, "mean") for s in summaries)),
    ]
    named = {clause for s in summaries for clause in s["failed_clauses"]}
    order = [clause for clause in FAILED_AT if clause in named] + sorted(named - FAILED_AT.keys())
    for clause in order:
        rows.append(
            (f"failed: {failed_at(clause)}", *(s["failed_clauses"].get(clause, 0) for s in summaries))
        )
    head = ("", *(one.label for one in evaluations))
    if len(evaluations) > COLUMNS:
        names, *values = zip(*rows, strict=True)
        lines = [(one.label, *own) for one, own in zip(evaluations, values, strict=True)]
        return table(lines, ("", *names), "Results")
    return table(rows, head, "Results")


def _note(evaluations: Sequence[Evaluation]) -> str:
    words = "Every trial counts; one that ended in an error is a trial that did not succeed."
    if any(one.summary["time_to_success_s"] for one in evaluations):
        words += " Times are those of successes only; their interval bounds the median, by order statistics."
    if len(evaluations) > 2:
        words += (
            " Each interval and p value stands for itself: none is widened for the number of comparisons."
        )
    return words


def _seconds(summary: Mapping[str, Any], key: str) -> str:
    found = summary["time_to_success_s"]
    return "–" if found is None else f"{found[key]:.2f} s"


def _seconds_interval(summary: Mapping[str, Any]) -> str:
    found = summary["time_to_success_s"]
    if found is None or found["low"] is None:
        return "–"
    return f"[{found['low']:.2f}, {found['high']:.2f}] s"
