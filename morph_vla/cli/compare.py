"""`morph-vla compare A B ...`."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.cli import records
from morph_vla.cli.common import add_json, print_json, print_table
from morph_vla.errors import MorphVlaError

EXAMPLES = """
  morph-vla compare runs/before runs/after
  morph-vla compare runs/host/eval runs/mix/eval runs/film/eval --json
  morph-vla compare runs/first/eval500 runs/first/eval1000 runs/first/eval1500 --plot runs/first/curve.svg
  morph-vla compare runs/before runs/after --sequential
"""
MOST = 5  # conditions named in the line; all are in --json
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
    answer = compared(arguments.given, [records.evaluation(path) for path in arguments.given])
    if arguments.plot:
        from morph_vla.results import curves

        curves.write(answer["curves"], arguments.plot)
    if arguments.json:
        print_json(answer)
        return
    show(answer)
    if arguments.plot:
        print(arguments.plot)


def watch(arguments: argparse.Namespace) -> None:
    """Whether it is decided which of two evaluations is better, finished or not."""
    from morph_vla.results import sequential

    if len(arguments.given) != 2:
        raise MorphVlaError(f"--sequential takes two evaluations, got {len(arguments.given)}")
    a, b = (records.so_far(path)[1] for path in arguments.given)
    of = max((rows[1] - rows[0] for one in (a, b) if (rows := one.get("rows"))), default=None)
    pairs = sequential.pairs_so_far(a, b)
    several = pairs if len(pairs) > 1 else {}
    sides = [f"{letter} ({path})" for letter, path in zip("AB", arguments.given, strict=True)]
    settings = arguments.error, arguments.margin / 100
    whole = sequential.watch(sequential.in_turn(pairs), *settings, None if several or not of else of)
    tasks = {task: sequential.watch(own, *settings, of) for task, own in several.items()}
    if arguments.json:
        spoken = {task: {**seen, "says": sequential.sentence(seen, *sides)} for task, seen in tasks.items()}
        print_json({**whole, "says": sequential.sentence(whole, *sides), "tasks": spoken})
        return
    print(sequential.sentence(whole, *sides))
    if whole["episodes"]:
        counts = f"both {whole['both']}, only A {whole['only_a']}, only B {whole['only_b']}"
        turns = ", the tasks taking turns" if several else ""
        print(
            f"{whole['episodes']} episodes in the table's order{turns}: {counts}, neither {whole['neither']}"
        )
    for task, seen in tasks.items():
        print(f"  {task}: {sequential.sentence(seen)}")


def compared(given: Sequence[Path], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything `compare` says, as plain values. Raises MorphVlaError for records of different suites."""
    from morph_vla.results import comparison, curves, statistics

    comparison.check_comparable(dict(zip(map(str, given), found, strict=True)))
    rows = [
        {
            "letter": letter,
            "policy": statistics.policy_label(record),
            "step": (record.get("policy") or {}).get("step"),
            "record": str(path),
            "suite": (record.get("suite") or {}).get("name"),
            "engine": comparison.engine_label(record),
            "stopped": record.get("stopped"),
            "summary": statistics.summarise(statistics.trials_of(record)),
        }
        for letter, path, record in zip(LETTERS, given, found, strict=False)
    ]
    differences = [
        {"letter_a": "A", "letter_b": row["letter"], **comparison.compare(found[0], record)}
        for row, record in zip(rows[1:], found[1:], strict=True)
    ]
    unknown = comparison.unknown(dict(zip(LETTERS, found, strict=False)))
    return {
        "evaluations": rows,
        "differences": differences,
        "unknown": unknown,
        "curves": curves.curves(found),
    }


def show(answer: Mapping[str, Any]) -> None:
    """The table, then a line or two for each difference."""
    rows = answer["evaluations"]
    tasks = list(dict.fromkeys(task for row in rows for task in row["summary"]["tasks"]))
    several = tasks if len(tasks) > 1 else []
    head = [
        "",
        "policy",
        "all trials",
        "95%",
        *(["average"] if several else []),
        *several,
        "trials",
        "errors",
    ]
    print_table(head, [_row(row, several) for row in rows], right=range(2, len(head)))
    engines = {row["engine"] for row in rows if row["engine"]}
    if len(engines) == 1:
        print(f"engine: {engines.pop()}")
    elif engines:
        print("engines: " + ", ".join(f"{row['letter']} {row['engine'] or 'not said'}" for row in rows))
    for row in rows:
        print(f"{row['letter']}: {row['record']}")
    for row in rows:
        if row["stopped"]:
            print(f"{row['letter']} was {stopped(row['stopped'])}")
    for difference in answer["differences"]:
        print()
        print("\n".join(sentences(difference)))
    if answer["unknown"] and any(one["difference"] is not None for one in answer["differences"]):
        print(f"\nnote: {answer['unknown']}")


def sentences(found: Mapping[str, Any]) -> list[str]:
    """What `comparison.compare` found, in words: over all trials, then by task."""
    name = f"{found['letter_b']} - {found['letter_a']}"
    lines = [f"{name}: {_difference(found, found['letter_b'])}"]
    if found["conditions"]:
        few, more = found["conditions"][:MOST], len(found["conditions"]) - MOST
        rest = f"; and {more} more" if more > 0 else ""
        lines.append(f"  conditions differ (A and {found['letter_b']}): {'; '.join(few)}{rest}")
    if found["common"] is not None:
        lines.append(
            f"  over the {found['common']} episodes that both have, because one was stopped early: "
            "an interval after an early stop is tilted towards its decision"
        )
    return lines + [
        f"  {task}: {_difference(own, found['letter_b'])}" for task, own in found["tasks"].items()
    ]


def stopped(facts: Mapping[str, Any]) -> str:
    """'stopped after 20 of 50 episodes: decided: ...'."""
    return f"stopped after {facts['episodes']} of {facts['of']} episodes: {facts['reason']}"


def rate(summary: Mapping[str, Any] | None) -> str:
    """A success rate as in the paper's tables, `36.0 ± 5.4` in per cent, or `not measured`."""
    if summary is None or summary["rate"] is None:
        return "not measured"
    return f"{100 * summary['rate']:.1f} ± {100 * summary['half_width']:.1f}"


def _row(row: Mapping[str, Any], tasks: Sequence[str]) -> list[object]:
    summary = row["summary"]
    bounds = "" if summary["rate"] is None else f"[{100 * summary['low']:.1f}, {100 * summary['high']:.1f}]"
    average = [rate(summary["average_of_tasks"])] if tasks else []
    step = "" if row["step"] is None else f", step {row['step']}"
    return [
        row["letter"],
        f"{row['policy']}{step}" if row["policy"] != str(row["step"]) else f"step {row['step']}",
        rate(summary),
        bounds,
        *average,
        *(rate(summary["tasks"].get(task)) for task in tasks),
        summary["trials"],
        summary["errors"],
    ]


def _difference(found: Mapping[str, Any], letter: str) -> str:
    if found["difference"] is None:
        return f"not compared: {found['reason']}"
    words = (
        f"{100 * found['difference']:+.1f} points, {found['confidence']:.0%} interval "
        f"[{100 * found['low']:+.1f}, {100 * found['high']:+.1f}] ({found['interval']})"
    )
    paired = found["paired"]
    if paired is None:
        return f"{words}; not paired: {found['reason']}"
    p = paired["p_value"]
    return (
        f"{words}; same initial states: both {paired['both']}, only A {paired['only_a']}, only {letter} "
        f"{paired['only_b']}, neither {paired['neither']}; exact McNemar p {'<' if p < 1e-4 else '='} "
        f"{max(p, 1e-4):.4f}"
    )
