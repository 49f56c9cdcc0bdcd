"""`morph-vla report FOLDER ...`."""

import argparse
from pathlib import Path
from typing import Any

from morph_vla.cli import records
from morph_vla.cli.common import add_json, print_json

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

    found = [records.read(given) for given in arguments.folders]
    folder, record = found[0] if len(found) == 1 else (found[0][0], together(found))
    folders = [place for place, one in found for _ in _evaluations(one)]
    path = arguments.output or folder / report.FILE_NAME
    report.write(folder, record, folders, path)
    if arguments.json:
        print_json({"report": str(path), **numbers(record)})
    else:
        print(path)


def together(found: list[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """One record of all evaluations in several."""
    evaluations = [one for _, record in found for one in _evaluations(record)]
    return {"schema": max(record.get("schema") or 1 for _, record in found), "kind": "evaluation",
            "evaluations": evaluations}  # fmt: skip


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """What the page says, as plain values: each evaluation, its difference to the first, the curves."""
    from morph_vla.report.reading import evaluations
    from morph_vla.results import comparison, curves

    found = evaluations(record)
    firsts: dict[str, Any] = {}
    differences = []
    for one in found:
        if one.trials:
            first = firsts.setdefault(curves.suite_label(one.record), one)
            if first is not one:
                labels = {"a": first.label, "b": one.label}
                differences.append({**comparison.compare(first.record, one.record), **labels})
    rows = [
        {
            "label": one.label,
            "suite": curves.suite_label(one.record),
            "engine": comparison.engine_label(one.record),
            "step": (one.record.get("policy") or {}).get("step"),
            "summary": one.summary,
        }
        for one in found
    ]
    panels = curves.curves([one.record for one in found])
    return {"evaluations": rows, "differences": differences, "curves": panels}


def _evaluations(record: dict[str, Any]) -> list[dict[str, Any]]:
    return record.get("evaluations") or ([record] if record["kind"] == "evaluation" else [])
