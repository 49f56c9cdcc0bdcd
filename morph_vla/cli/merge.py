"""`morph-vla merge A B -o FOLDER`."""

import argparse
import dataclasses
from pathlib import Path

from morph_vla.cli import records
from morph_vla.cli.common import add_json, print_json
from morph_vla.errors import MorphVlaError

EXAMPLES = """
  morph-vla merge runs/first/half runs/first/other_half -o runs/first/eval
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla merge`."""
    parser.add_argument(
        "parts", nargs="+", type=Path, metavar="PART",
        help="folders of the same evaluation's parts (`eval --episodes 0:150`), finished or not",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the whole goes"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the record that one evaluation would have written, and copy the parts' videos."""
    from morph_vla.cli.eval import sentence
    from morph_vla.files.plain import to_plain
    from morph_vla.results import comparison, merging, record

    target = arguments.output / record.FILE_NAME
    if target.exists():
        raise MorphVlaError(f"{target} is there already; merge into a folder without a record")
    if len({path.resolve() for path in arguments.parts}) < len(arguments.parts):
        raise MorphVlaError("a part is named twice")
    parts = {str(path): records.so_far(path) for path in arguments.parts}
    merged, copied = merging.videos(merging.merge(parts), parts, arguments.output)
    command = f"morph-vla merge {' '.join(map(str, arguments.parts))} -o {arguments.output}"
    whole = dataclasses.replace(merged, command=command)
    record.write(whole, target)
    gap, unknown = merging.missing(whole), comparison.unknown(parts)
    if arguments.json:
        answer = {"record": target, "videos": copied, "missing": gap, "unknown": unknown}
        print_json(to_plain({**answer, **vars(whole.summary)}))
        return
    print(sentence(whole))
    if gap:
        print(gap)
    if unknown:
        print(f"note: {unknown}")
    print(f"{target}, from {len(parts)} parts, with {copied} videos")
