"""`morph-vla report FOLDER ...`."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla.cli.common import add_json, print_json

if TYPE_CHECKING:
    from morph_vla.results.record import Record

EXAMPLES = """
  morph-vla report runs/demo
  morph-vla report runs/host/eval runs/mix/eval runs/film/eval -o runs/three.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla report`."""
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER",
        help="a folder with a record.json of `eval` or `demo`; several make one page",
    )  # fmt: skip
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the page (default: report.html in the first folder)",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write one page about a record or several, and print its path; with --json, the numbers in it too."""
    from morph_vla import report
    from morph_vla.results import record

    loaded = [record.load(given) for given in arguments.folders]
    several = [(part,) if isinstance(part, record.Record) else part.evaluations for part in loaded]
    evaluations = [evaluation for part in several for evaluation in part]
    path = arguments.output or loaded[0].folder / report.FILE_NAME
    report.write(path.parent, loaded[0] if len(loaded) == 1 else evaluations, path)
    if arguments.json:
        print_json({"report": str(path), **numbers(evaluations)})
    else:
        print(path)


def numbers(records: "Sequence[Record]") -> "dict[str, object]":
    """What the page says, as plain values: each evaluation, its difference to the first, the curves."""
    from morph_vla.files.plain import to_plain
    from morph_vla.report.reading import Evaluation, evaluations
    from morph_vla.results import comparison, curves

    shown = evaluations(records)
    firsts: dict[str, Evaluation] = {}
    differences = []
    for evaluation in shown:
        if evaluation.trials:
            first = firsts.setdefault(curves.suite_label(evaluation.record), evaluation)
            if first is not evaluation:
                difference = comparison.compare(first.record, evaluation.record)
                differences.append(dataclasses.replace(difference, a=first.label, b=evaluation.label))
    rows = [
        {
            "label": evaluation.label,
            "suite": curves.suite_label(evaluation.record),
            "engine": evaluation.record.engine.label if evaluation.record.engine else None,
            "step": evaluation.record.policy.step,
            "summary": evaluation.summary,
        }
        for evaluation in shown
    ]
    return to_plain({"evaluations": rows, "differences": differences, "curves": curves.curves(records)})
