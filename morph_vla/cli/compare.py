"""`morph-vla compare A B ...`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.cli import records
from morph_vla.cli.common import add_json, print_json, print_table
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.results import comparison, curves, record, sequential
from morph_vla.results.comparison import Comparison, RateDifference
from morph_vla.results.record import Record, Stopped
from morph_vla.results.statistics import Average, Rates, Summary

EXAMPLES = """
  morph-vla compare runs/before runs/after
  morph-vla compare runs/host/eval runs/mix/eval runs/film/eval --json
  morph-vla compare runs/first/eval500 runs/first/eval1000 runs/first/eval1500 --plot runs/first/curve.svg
  morph-vla compare runs/before runs/after --sequential
"""
MOST = 5  # conditions named in the line; all are in --json
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
class Answer:
    """Everything that `compare` says."""

    evaluations: list[Row]
    differences: list[Against]
    unknown: str | None
    curves: list[curves.Panel]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla compare`."""
    parser.add_argument(
        "given",
        nargs="+",
        type=Path,
        metavar="RECORD",
        help="two or more evaluations: a folder, or its record.json; each is compared with the first",
    )
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="of two evaluations, finished or not: is it decided which is better? May be asked at any time",
    )
    parser.add_argument(
        "--margin", type=float, default=10.0, metavar="POINTS",
        help="with --sequential: a difference smaller than this is none (default 10)",
    )  # fmt: skip
    parser.add_argument(
        "--error", type=float, default=0.05,
        help="with --sequential: the chance of a wrong decision (default 0.05)",
    )  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the learning curve (svg, png, pdf)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """A table of success rates, and the difference of each to the first with its interval."""
    if len(arguments.given) < 2:
        raise MorphVlaError("compare takes two evaluations or more (see morph-vla compare --help)")
    if len(arguments.given) > len(LETTERS):
        raise MorphVlaError(f"compare takes at most {len(LETTERS)} evaluations")
    if arguments.sequential:
        watch(arguments)
        return
    answer = compared(arguments.given, [record.read(path) for path in arguments.given])
    if arguments.plot:
        curves.write(answer.curves, arguments.plot)
    if arguments.json:
        print_json(to_plain(answer))
        return
    show(answer)
    if arguments.plot:
        print(arguments.plot)


def watch(arguments: argparse.Namespace) -> None:
    """Whether it is decided which of two evaluations is better, finished or not."""
    if len(arguments.given) != 2:
        raise MorphVlaError(f"--sequential takes two evaluations, got {len(arguments.given)}")
    a, b = (records.so_far(path) for path in arguments.given)
    of = max((rows[1] - rows[0] for rows in (a.rows, b.rows) if rows), default=None)
    pairs = sequential.pairs_so_far(a, b)
    several = pairs if len(pairs) > 1 else {}
    sides = [f"{letter} ({path})" for letter, path in zip("AB", arguments.given, strict=True)]
    settings = arguments.error, arguments.margin / 100
    whole = sequential.watch(sequential.in_turn(pairs), *settings, None if several or not of else of)
    tasks = {task: sequential.watch(of_task, *settings, of) for task, of_task in several.items()}
    if arguments.json:
        looks = {"": whole, **tasks}
        answer = {
            task: {**vars(look), "says": sequential.sentence(look, *sides)} for task, look in looks.items()
        }
        print_json({**answer.pop(""), "tasks": answer})
        return
    print(sequential.sentence(whole, *sides))
    if whole.episodes:
        turns = ", the tasks taking turns" if several else ""
        counts = f"both {whole.both}, only A {whole.only_a}, only B {whole.only_b}, neither {whole.neither}"
        print(f"{whole.episodes} episodes in the table's order{turns}: {counts}")
    for task, look in tasks.items():
        print(f"  {task}: {sequential.sentence(look)}")


def compared(given: Sequence[Path], evaluations: Sequence[Record]) -> Answer:
    """Everything that `compare` says. Raises MorphVlaError for records of different suites."""
    comparison.check_comparable(dict(zip(map(str, given), evaluations, strict=True)))
    first = evaluations[0]
    named = dict(zip(LETTERS, evaluations, strict=False))
    return Answer(
        [
            Row(
                letter=letter,
                policy=evaluation.policy.label,
                step=evaluation.policy.step,
                record=str(path),
                suite=evaluation.suite.name,
                engine=evaluation.engine.label if evaluation.engine else None,
                stopped=evaluation.stopped,
                summary=evaluation.summary,
            )
            for path, (letter, evaluation) in zip(given, named.items(), strict=True)
        ],
        [
            Against(**vars(comparison.compare(first, evaluation)), letter_a="A", letter_b=letter)
            for letter, evaluation in list(named.items())[1:]
        ],
        comparison.unknown(named),
        curves.curves(evaluations),
    )


def show(answer: Answer) -> None:
    """The table, then a line or two for each difference."""
    rows = answer.evaluations
    tasks = list(dict.fromkeys(task for row in rows for task in row.summary.tasks))
    several = tasks if len(tasks) > 1 else []
    average = ["average"] if several else []
    head = ["", "policy", "all trials", "95%", *average, *several, "trials", "errors"]
    print_table(head, [_row(row, several) for row in rows], right=range(2, len(head)))
    engines = {row.engine for row in rows if row.engine}
    if len(engines) == 1:
        print(f"engine: {engines.pop()}")
    elif engines:
        print("engines: " + ", ".join(f"{row.letter} {row.engine or 'not said'}" for row in rows))
    for row in rows:
        print(f"{row.letter}: {row.record}")
    for row in rows:
        if row.stopped:
            print(f"{row.letter} was {stopped(row.stopped)}")
    for difference in answer.differences:
        print()
        print("\n".join(sentences(difference)))
    if answer.unknown and any(difference.measured for difference in answer.differences):
        print(f"\nnote: {answer.unknown}")


def sentences(against: Against) -> list[str]:
    """A comparison in words: over all trials, then by task."""
    letter, conditions = against.letter_b, against.conditions
    lines = [f"{letter} - {against.letter_a}: {_difference(against, letter)}"]
    if conditions:
        rest = f"; and {len(conditions) - MOST} more" if len(conditions) > MOST else ""
        lines.append(f"  conditions differ (A and {letter}): {'; '.join(conditions[:MOST])}{rest}")
    if against.common is not None:
        lines.append(
            f"  over the {against.common} episodes that both have, because one was stopped early: "
            "an interval after an early stop is tilted towards its decision"
        )
    return lines + [f"  {task}: {_difference(own, letter)}" for task, own in against.tasks.items()]


def stopped(end: Stopped) -> str:
    """'stopped after 20 of 50 episodes: decided: ...'."""
    return f"stopped after {end.episodes} of {end.of} episodes: {end.reason}"


def rate(measured: Rates | Average | None) -> str:
    """A success rate as in the paper's tables, `36.0 ± 5.4` in per cent, or `not measured`."""
    if measured is None or measured.rate is None or measured.half_width is None:
        return "not measured"
    return f"{100 * measured.rate:.1f} ± {100 * measured.half_width:.1f}"


def _row(row: Row, tasks: Sequence[str]) -> list[object]:
    summary = row.summary
    low, high = summary.low, summary.high
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


def _difference(difference: RateDifference, letter: str) -> str:
    bounds, pairs = difference.measured, difference.paired
    if bounds is None or difference.difference is None:
        return f"not compared: {difference.reason}"
    words = (
        f"{100 * difference.difference:+.1f} points, {difference.confidence:.0%} interval "
        f"[{100 * bounds.low:+.1f}, {100 * bounds.high:+.1f}] ({bounds.interval})"
    )
    if pairs is None:
        return f"{words}; not paired: {difference.reason}"
    p = pairs.p_value
    return (
        f"{words}; same initial states: both {pairs.both}, only A {pairs.only_a}, only {letter} "
        f"{pairs.only_b}, neither {pairs.neither}; exact McNemar p {'<' if p < 1e-4 else '='} "
        f"{max(p, 1e-4):.4f}"
    )
