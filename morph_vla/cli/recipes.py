"""`morph-vla recipes list | show`."""

import argparse

from morph_vla.cli import files

EXAMPLES = """
  morph-vla recipes list
  morph-vla recipes show demo
  morph-vla recipes show demo training.steps=200 --json
  morph-vla recipes show panda_demo training.kind=expert 'model={morphology: {}}'   (counts at full size)
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla recipes`."""
    files.configure(parser, "recipes", "morph_vla.training.config:load", "morph_vla.cli.counts")
