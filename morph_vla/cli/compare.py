"""`morph-vla compare A B ...`."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla.cli import words
from morph_vla.cli.common import add, add_json, add_number
from morph_vla.cli.render import render, table
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.results.comparison import RateDifference
    from morph_vla.results.several import Against, Row, SideBySide, Watched
    from morph_vla.results.statistics import Average, Rates

EXAMPLES = """
  morph-vla compare runs/before runs/after
  morph-vla compare runs/host/eval runs/mix/eval runs/film/eval --json
  morph-vla compare runs/first/eval500 runs/first/eval1000 runs/first/eval1500 --plot runs/first/curve.svg
  morph-vla compare runs/before runs/after --sequential
"""
MOST = 5  # conditions named in the line; all are in --json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla compare`."""
    about = "two or more evaluations: a folder, or its record.json; each is compared with the first"
    add(parser, "given", about, "RECORD", nargs="+", type=Path)
    about = "for two evaluations, finished or not: is it decided which is better? Ask as often as you like"
    add(parser, "--sequential", about)
    about = "with --sequential: a difference smaller than this counts as none"
    add_number(parser, "--margin", 10.0, about, "POINTS")
    about = "with --sequential: the largest chance of a wrong decision"
    add_number(parser, "--error", 0.05, about, "PROBABILITY")
    add(parser, "--plot", "draw the learning curve (svg, png, pdf)", "FILE", type=Path)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """A table of success rates, and the difference of each to the first with its interval."""
    from morph_vla.results import curves, record, several

    given: list[Path] = arguments.given
    if not 2 <= len(given) <= len(several.LETTERS):
        most = len(several.LETTERS)
        raise MorphVlaError(f"compare takes 2 to {most} evaluations, got {len(given)}")
    if arguments.sequential:
        watch(arguments)
        return
    answer = several.side_by_side([*map(str, given)], [record.read(path) for path in given])
    if arguments.plot:
        curves.write(answer.curves, arguments.plot)
    plot = [str(arguments.plot)] if arguments.plot else []
    render(answer, arguments.json, lambda answer: (*lines(answer), *plot))


def watch(arguments: argparse.Namespace) -> None:
    """Whether it is decided which of two evaluations is better, finished or not."""
    from morph_vla.evaluation import journal
    from morph_vla.results import several
    from morph_vla.results.sequential import sentence

    if len(arguments.given) != 2:
        raise MorphVlaError(f"--sequential takes two evaluations, got {len(arguments.given)}")
    a, b = (journal.so_far(path) for path in arguments.given)
    sides = [f"{letter} ({path})" for letter, path in zip("AB", arguments.given, strict=True)]

    def lines(watched: "Watched") -> Iterator[str]:
        whole = watched.whole
        yield sentence(whole, *sides)
        if whole.episodes:
            turns = ", the tasks taking turns" if watched.tasks else ""
            counts = (
                f"both {whole.both}, only A {whole.only_a}, only B {whole.only_b}, neither {whole.neither}"
            )
            yield f"{whole.episodes} episodes in the table's order{turns}: {counts}"
        yield from (f"  {task}: {sentence(look)}" for task, look in watched.tasks.items())

    watched = several.watched(a, b, arguments.error, arguments.margin / 100)
    tasks = {task: {**vars(look), "says": sentence(look, *sides)} for task, look in watched.tasks.items()}
    whole = {**vars(watched.whole), "says": sentence(watched.whole, *sides), "tasks": tasks}
    render(whole if arguments.json else watched, arguments.json, lines)


def lines(answer: "SideBySide") -> Iterator[str]:
    """The table, then a line or two for each difference."""
    rows = answer.evaluations
    tasks = list(dict.fromkeys(task for row in rows for task in row.summary.tasks))
    tasks = tasks if len(tasks) > 1 else []
    head = ["", "policy", "all trials", "95%", *(["average"] if tasks else []), *tasks, "trials", "errors"]
    yield from table(head, [_row(row, tasks) for row in rows], right=range(2, len(head)))
    engines = {row.engine for row in rows if row.engine}
    if len(engines) == 1:
        yield f"engine: {engines.pop()}"
    elif engines:
        yield "engines: " + ", ".join(f"{row.letter} {row.engine or 'not recorded'}" for row in rows)
    yield from (f"{row.letter}: {row.record}" for row in rows)
    yield from (f"{row.letter} was {words.stopped(row.stopped)}" for row in rows if row.stopped)
    for difference in answer.differences:
        yield ""
        yield from sentences(difference)
    if answer.unknown and any(difference.measured for difference in answer.differences):
        yield f"\nnote: {answer.unknown}"


def sentences(against: "Against") -> Iterator[str]:
    """A comparison in words: over all trials, then by task."""
    letter, conditions = against.letter_b, against.conditions
    yield f"{letter} - {against.letter_a}: {_difference(against, letter)}"
    if conditions:
        rest = f"; and {len(conditions) - MOST} more" if len(conditions) > MOST else ""
        yield f"  conditions differ (A and {letter}): {'; '.join(conditions[:MOST])}{rest}"
    if against.common is not None:
        yield (
            f"  over the {against.common} episodes that both have, because one was stopped early; after an "
            "early stop the interval is biased towards the decision"
        )
    yield from (f"  {task}: {_difference(of_task, letter)}" for task, of_task in against.tasks.items())


def rate(measured: "Rates | Average | None") -> str:
    """A success rate as in the paper's tables, `36.0 ± 5.4` in per cent, or `not measured`."""
    if measured is None or measured.rate is None or measured.half_width is None:
        return "not measured"
    return f"{100 * measured.rate:.1f} ± {100 * measured.half_width:.1f}"


def _row(row: "Row", tasks: Sequence[str]) -> list[object]:
    summary, low, high = row.summary, row.summary.low, row.summary.high
    step = "" if row.step is None else f", step {row.step}"
    return [
        row.letter,
        f"{row.policy}{step}" if row.policy != str(row.step) else f"step {row.step}",
        rate(summary),
        "" if low is None or high is None else f"[{100 * low:.1f}, {100 * high:.1f}]",
        *([rate(summary.average_of_tasks)] if tasks else []),
        *(rate(summary.tasks.get(task)) for task in tasks),
        summary.trials,
        summary.errors,
    ]


def _difference(difference: "RateDifference", letter: str) -> str:
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
