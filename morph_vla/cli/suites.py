"""`morph-vla suites list | show`."""

import argparse

from morph_vla.cli import files

EXAMPLES = """
  morph-vla suites list
  morph-vla suites show panda_cube_in_bowl
  morph-vla suites show panda_cube_in_bowl episodes=20 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla suites`."""
    files.configure(parser, "suites", "morph_vla.sim.suite:load")
