"""`morph-vla doctor`."""

import argparse

from morph_vla import doctor
from morph_vla.cli.common import add_json, print_json
from morph_vla.files.plain import to_plain

EXAMPLES = """
  morph-vla doctor
  morph-vla doctor --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla doctor`."""
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per thing looked at; status 1 when the demo cannot run."""
    checks = doctor.checks()
    if arguments.json:
        print_json([{**to_plain(check), "ok": check.ok} for check in checks])
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok" if check.remedy is None else "absent" if check.ok else "MISSING"
            remedy = f" -> {check.remedy}" if check.remedy else ""
            print(f"{mark:<8}{check.name:<{width}}  {check.found}{remedy}")
    return 0 if all(check.ok for check in checks) else 1
