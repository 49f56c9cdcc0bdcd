"""`morph-vla report FOLDER ...`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add, add_json
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla report runs/demo
  morph-vla report runs/host/eval runs/mix/eval runs/film/eval -o runs/three.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla report`."""
    about = "a folder with a record.json of `eval` or `demo`; several make one page"
    add(parser, "folders", about, "FOLDER", nargs="+", type=Path)
    add(parser, "-o --output", "the page (default: report.html in the first folder)", "FILE", type=Path)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write one page about one record or several, and print its path; with --json, its numbers too."""
    from morph_vla import report
    from morph_vla.report.numbers import numbers
    from morph_vla.results import record

    loaded = [record.load(given) for given in arguments.folders]
    several = [(part,) if isinstance(part, record.Record) else part.evaluations for part in loaded]
    evaluations = [evaluation for part in several for evaluation in part]
    path = arguments.output or loaded[0].folder / report.FILE_NAME
    report.write(path.parent, loaded[0] if len(loaded) == 1 else evaluations, path)
    render(numbers(evaluations), arguments.json, text=path, report=path)
