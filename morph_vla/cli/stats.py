"""`morph-vla stats DATASET`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add_json, print_json, print_table

EXAMPLES = """
  morph-vla stats runs/demo/dataset
  morph-vla stats runs/demo/dataset --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla stats`."""
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="the folder of a LeRobot dataset")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Quantiles, mean and standard deviation of states and actions; no video is decoded."""
    from dataclasses import asdict

    from morph_vla.data import lerobot, stats

    found = lerobot.read(arguments.dataset)
    both = {"state": stats.compute(found.state), "action": stats.compute(found.action)}
    if arguments.json:
        print_json({name: asdict(value) for name, value in both.items()})
        return
    size = f"{len(found.starts)} episodes, {found.frames} frames, {found.fps:g} Hz"
    print(f"{found.root}: LeRobot {found.version}, {size}")
    rows = [
        [name, d, value.q01[d], value.q99[d], value.mean[d], value.std[d]]
        for name, value in both.items()
        for d in range(len(value.mean))
    ]
    print_table(["feature", "value", "q01", "q99", "mean", "std"], rows)
