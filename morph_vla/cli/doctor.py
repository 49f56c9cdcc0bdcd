"""`morph-vla doctor`."""

import argparse
from collections.abc import Iterable, Iterator

from morph_vla import doctor
from morph_vla.cli.common import add_json
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla doctor
  morph-vla doctor --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla doctor`."""
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each thing looked at; status 1 when the demo cannot run."""
    checks = doctor.checks()
    render(checks, arguments.json, "ok", text="\n".join(lines(checks)))
    return 0 if all(check.ok for check in checks) else 1


def lines(checks: Iterable[doctor.Check]) -> Iterator[str]:
    """`ok`, `absent` (not needed by the demo) or `MISSING`, what was found, and the remedy."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = "ok" if check.remedy is None else "absent" if check.ok else "MISSING"
        remedy = f" -> {check.remedy}" if check.remedy else ""
        yield f"{mark:<8}{check.name:<{width}}  {check.found}{remedy}"
