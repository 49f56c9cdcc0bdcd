"""`morph-vla recipes list | show`."""

import argparse

from morph_vla.cli import files

EXAMPLES = """
  morph-vla recipes list
  morph-vla recipes show demo
  morph-vla recipes show demo training.steps=200 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla recipes`."""
    files.configure(parser, "recipes", "morph_vla.training.config:load")
