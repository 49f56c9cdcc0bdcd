"""`morph-vla record SUITE`."""

import argparse

from morph_vla.cli.common import add, add_common, add_number, add_output, add_overrides, search
from morph_vla.cli.progress import Bar
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla record droid_panda -o runs/droid --attempts 300
  morph-vla record droid_panda:cube_in_bowl -o runs/cube --attempts 100
  morph-vla record droid_panda:cube_in_bowl expert.noise=0 -o runs/clean --attempts 50
  morph-vla record droid_panda 'cameras={}' -o runs/poses  # object poses instead of images
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla record`."""
    add(parser, "suite", "a suite's name or file", "SUITE")
    add_overrides(parser, "suite")
    add_output(parser, "the folder of the dataset")
    add_number(parser, "--attempts", 100, "demonstrations to try; only successful ones are kept")
    add_number(parser, "--workers", None, "processes (default: one per core)", least=1)
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Record the suite's scripted expert as a LeRobot v3.0 dataset."""
    from morph_vla.demonstrations import recording
    from morph_vla.doctor import require_gl
    from morph_vla.suites import environment

    search(arguments.folders)
    tasks = environment.load_recordable(arguments.suite, arguments.overrides, arguments.folders)
    if any(recording.layout(task).cameras for task in tasks):
        require_gl()
    output, attempts = arguments.output, arguments.attempts
    with Bar("recording", attempts, "episode") as bar:
        made = recording.record(tasks, output, attempts, workers=arguments.workers, progress=bar.at)
    render(made, arguments.json, "dropped", text=f"{made}\n{output}", dataset=output)
