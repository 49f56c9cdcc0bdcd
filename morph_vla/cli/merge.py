"""`morph-vla merge A B -o FOLDER`."""

import argparse
import dataclasses
import shlex
from pathlib import Path

from morph_vla.cli.common import add, add_json, add_output
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError

EXAMPLES = """
  morph-vla merge runs/first/half runs/first/other_half -o runs/first/eval
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla merge`."""
    about = "folders with parts of the same evaluation (`eval --episodes 0:150`), finished or not"
    add(parser, "parts", about, "PART", nargs="+", type=Path)
    add_output(parser, "where the merged record goes")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the record that one evaluation would have written, and copy the videos of its parts."""
    from morph_vla.evaluation import journal
    from morph_vla.results import comparison, merging, record

    target = arguments.output / record.FILE_NAME
    if target.exists():
        raise MorphVlaError(f"{target} exists already; choose a folder without a record")
    if (arguments.output / journal.FILE_NAME).exists():
        raise MorphVlaError(f"{arguments.output} holds an evaluation of its own; choose another folder")
    if len({path.resolve() for path in arguments.parts}) < len(arguments.parts):
        raise MorphVlaError("one part is given twice")
    parts = {str(path): journal.so_far(path) for path in arguments.parts}
    merged, copied = merging.videos(merging.merge(parts), parts, arguments.output)
    command = shlex.join(["morph-vla", "merge", *map(str, arguments.parts), "-o", str(arguments.output)])
    whole = dataclasses.replace(merged, command=command)
    record.write(whole, target)
    missing, unknown = merging.missing(whole), comparison.unknown(parts)
    done = f"{target}, from {len(parts)} parts, with {copied} videos"
    lines = [str(whole), missing, unknown and f"note: {unknown}", done]
    more = {"record": target, "videos": copied, "missing": missing, "unknown": unknown}
    render(whole.summary, arguments.json, text="\n".join(filter(None, lines)), **more)
