"""`morph-vla push FOLDER USER/NAME`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add, add_json
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla push runs/first me/first                       # its last checkpoint, and its evaluations
  morph-vla push runs/first/checkpoints/1400 me/first --record runs/first/eval --private
  morph-vla push runs/demo/dataset me/demonstrations       # a dataset
  morph-vla push runs/first me/first --revision trial
  morph-vla push runs/first me/first --base pi05-base      # what was learnt alone: 1.8 GB of 7.6
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla push`."""
    add(parser, "source", "a checkpoint, a run (its last checkpoint) or a dataset", "FOLDER", type=Path)
    add(parser, "repository", "the repository on the Hub, made where it is missing", "USER/NAME")
    add(parser, "--private", "make a new repository private, and refuse a public one")
    add(parser, "--revision", "a branch other than the main one", "BRANCH", default="")
    about = "an evaluation of this checkpoint to go with it (may be repeated)"
    add(parser, "--record", about, "FOLDER", type=Path, action="append", default=[], dest="records")
    about = "a checkpoint everyone can fetch; what equals it stays at home (pi05-base, hf://..., gs://...)"
    add(parser, "--base", about, "NAME", default="")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Upload a folder to the Hub."""
    from morph_vla.sharing.push import push

    pushed = push(
        arguments.source, arguments.repository, private=arguments.private, revision=arguments.revision,
        records=arguments.records, base=arguments.base,
    )  # fmt: skip
    render(pushed, arguments.json)
