"""`morph-vla suites list | show | check`."""

import argparse
from typing import TYPE_CHECKING, Any

from morph_vla.cli import files
from morph_vla.cli.common import add_engine, print_json

if TYPE_CHECKING:
    from morph_vla.demonstrations.check import Check

EXAMPLES = """
  morph-vla suites list
  morph-vla suites show droid_panda
  morph-vla suites show droid_panda:can_in_mug episodes=20 --json
  morph-vla suites check droid_panda --episodes 50
  morph-vla suites check so101_pick_orange --episodes 64 --engine isaaclab
"""

ENOUGH = 0.95  # of the initial states; below it, the suite or its expert needs work


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla suites`."""
    summary = "how often a suite's scripted expert succeeds from the states that are evaluated"
    verbs = files.configure(
        parser, "suites", "morph_vla.suites.suite:load_file", more={"check": (summary, run_check)}
    )
    check = verbs["check"]
    check.add_argument("--episodes", type=int, default=None, help="rows of the table (default: the suite's)")
    check.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    add_engine(check)
    check.add_argument("--parallel", type=int, default=64, help="worlds at once in isaaclab (default 64)")


def run_check(arguments: argparse.Namespace) -> int:
    """Print the expert's success rate in each task, its interval and what failed; status 1 below 95%."""
    from morph_vla.cli.progress import Bar, counting
    from morph_vla.demonstrations import check
    from morph_vla.suites import suite

    found = []
    for chosen in suite.load_tasks(arguments.name, arguments.overrides, arguments.folders):
        count = chosen.episodes if arguments.episodes is None else arguments.episodes
        with Bar("the expert", count, "episode") as bar:
            done = check.check(
                chosen, count, workers=arguments.workers, progress=counting(bar), engine=arguments.engine,
                parallel=arguments.parallel,
            )  # fmt: skip
        found.append(done)
        if not arguments.json:
            print(sentence(done))
    if arguments.json:
        print_json(as_dict(found[0]) if len(found) == 1 else [as_dict(done) for done in found])
    return 0 if all(done.successes >= ENOUGH * len(done.outcomes) for done in found) else 1


def as_dict(done: "Check") -> dict[str, Any]:
    """Plain values: counts, the rate with its interval, and the episodes that failed, by clause."""
    interval = done.interval
    return {
        "suite": done.suite,
        "successes": done.successes,
        "trials": len(done.outcomes),
        "rate": done.successes / len(done.outcomes),
        "low": interval.low,
        "high": interval.high,
        "median_seconds": done.seconds,
        "failed": done.failed,
        "errors": {str(one.episode): one.error for one in done.outcomes if one.error},
    }


def sentence(done: "Check") -> str:
    """The rate in words, and a line for each clause that failed."""
    facts = as_dict(done)
    text = (
        f"{done.suite}: the expert succeeded in {facts['successes']} of {facts['trials']} initial states, "
        f"{facts['rate']:.1%} [{100 * facts['low']:.1f}, {100 * facts['high']:.1f}] (95% Wilson)"
    )
    if done.seconds is not None:
        text += f", median {done.seconds:.1f} s to success"
    lines = [
        f"  failed at '{clause}': {len(numbers)} (episodes {_shortened(numbers)})"
        for clause, numbers in done.failed.items()
    ]
    lines += [f"  {sentence}" for sentence in sorted({one.error for one in done.outcomes if one.error})]
    return "\n".join([text, *lines])


def _shortened(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
