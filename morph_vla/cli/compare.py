"""`morph-vla compare A B`."""

import argparse
from pathlib import Path
from typing import Any

from morph_vla.cli import records
from morph_vla.cli.common import add_json, print_json

EXAMPLES = """
  morph-vla compare runs/before runs/after
  morph-vla compare runs/before/record.json runs/after --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla compare`."""
    for name in ("a", "b"):
        parser.add_argument(
            name, type=Path, metavar=name.upper(), help="an evaluation's folder, or its record.json"
        )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print rate_b - rate_a with Newcombe's interval, and the paired counts where episodes are the same."""
    from morph_vla.sim import comparison

    result = comparison.compare(records.evaluation(arguments.a), records.evaluation(arguments.b))
    if arguments.json:
        print_json(result)
    else:
        print("\n".join(sentences(result, str(arguments.a), str(arguments.b))))


def sentences(result: dict[str, Any], a: str, b: str) -> list[str]:
    """What `comparison.compare` found, in words."""
    if result["difference"] is None:
        return ["nothing to compare: one of the two has no trials"]
    confidence = f"{result['confidence']:.0%}"
    lines = [
        f"A {result['a']} ({a}): {result['rate_a']:.1%}",
        f"B {result['b']} ({b}): {result['rate_b']:.1%}",
        f"B - A: {100 * result['difference']:+.1f} points, {confidence} interval "
        f"[{100 * result['low']:+.1f}, {100 * result['high']:+.1f}] ({result['interval']})",
    ]
    paired = result["paired"]
    if paired is None:
        return [*lines, f"not paired: {result['reason']}"]
    counts = f"both {paired['both']}, only A {paired['only_a']}, only B {paired['only_b']}"
    return [*lines, f"same episodes: {counts}, neither {paired['neither']}"]
