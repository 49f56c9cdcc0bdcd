"""`morph-vla record SUITE`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add_folders, add_json, print_json
from morph_vla.cli.progress import Bar, counting

EXAMPLES = """
  morph-vla record droid_panda -o runs/droid --attempts 300
  morph-vla record droid_panda:cube_in_bowl -o runs/cube --attempts 100
  morph-vla record droid_panda:cube_in_bowl expert.noise=0 -o runs/clean --attempts 50
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla record`."""
    parser.add_argument("suite", metavar="SUITE", help="a suite's name or file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the suite")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="the dataset's folder"
    )
    parser.add_argument("--attempts", type=int, default=100, help="demonstrations to try (default 100)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Record the suite's scripted expert as a LeRobot v3.0 dataset."""
    from morph_vla.demonstrations import recording as record
    from morph_vla.doctor import require_gl
    from morph_vla.files.plain import to_plain
    from morph_vla.suites import suite

    require_gl()
    chosen = suite.load_tasks(arguments.suite, arguments.overrides, arguments.folders)
    with Bar("recording", arguments.attempts, "episode") as bar:
        done = record.record(
            chosen, arguments.output, arguments.attempts, workers=arguments.workers, progress=counting(bar)
        )
    if arguments.json:
        print_json({**to_plain(done), "dropped": done.dropped, "dataset": str(arguments.output)})
    else:
        print(sentence(done))
        print(arguments.output)


def sentence(done: object) -> str:
    """What was kept and what was dropped, in words."""
    from morph_vla.demonstrations.beginnings import tally
    from morph_vla.demonstrations.recording import Recording

    assert isinstance(done, Recording)
    why = ", ".join(f"{count} {clause}" for clause, count in sorted(done.failed_clauses.items()))
    dropped = f"{done.dropped} dropped" + (f" (failed: {why})" if why else "")
    kept = f"kept {done.episodes} of {done.attempted} demonstrations ({done.frames} frames), {dropped}"
    return kept if set(done.kinds) <= {"rest"} else f"{kept}; by how they begin: {tally(done.kinds)}"
