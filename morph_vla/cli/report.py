"""`morph-vla report FOLDER`."""

import argparse
from pathlib import Path

from morph_vla.cli import records
from morph_vla.cli.common import add_json, print_json

EXAMPLES = """
  morph-vla report runs/demo
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla report`."""
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a folder with a record.json of `eval` or `demo`"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write report.html beside the record and print its path."""
    from morph_vla.sim import report

    folder, record = records.read(arguments.folder)
    path = report.write(folder, record)
    if arguments.json:
        print_json({"report": str(path)})
    else:
        print(path)
