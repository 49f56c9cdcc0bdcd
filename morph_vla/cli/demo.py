"""`morph-vla demo`: the main job, small, real, end to end."""

import argparse
import shlex
import sys
from dataclasses import fields
from pathlib import Path

from morph_vla import process
from morph_vla.cli.common import add, add_json, add_number, add_overrides
from morph_vla.cli.progress import Bars, now, passing
from morph_vla.cli.render import render
from morph_vla.demo import ALONE, ARMS, BASE, FROM_BASE, NO_BASE
from morph_vla.doctor import DEMO_EXTRAS, require_extras

EXAMPLES = """
  morph-vla demo
  morph-vla demo --base none -o runs/from_random_weights
  morph-vla demo --robot ~/Downloads/my_arm.urdf --zero-shot -o runs/my_arm     # a minute, no demonstration
  morph-vla demo --robot ~/Downloads/my_arm.urdf --zero-shot --poses-from poses-exterior -o runs/my_arm
  morph-vla demo --robot ~/Downloads/my_arm.urdf -o runs/my_arm
  morph-vla demo --robot ~/Downloads/my_arm.urdf --base pi05-nano -o runs/tuned
  morph-vla demo training.steps=200 --attempts 60 --episodes 20 -o runs/quick
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla demo`."""
    add_overrides(parser, "recipe", " nano_demo, or without a base panda_demo")
    about = "the folder for everything that it makes (default runs/demo; with --robot runs/NAME)"
    add(parser, "-o --output", about, "FOLDER", type=Path)
    about = (
        "tasks, such as droid_panda:cube_in_bowl (default: with a base a suite made for it, else droid_panda)"
    )
    add(parser, "--suite", about, "SUITE")
    about = "a URDF of an arm or a registered robot, which gets a suite of its own, in place of --suite"
    add(parser, "--robot", about, "URDF|NAME", type=Path)
    about = "a checkpoint to fine-tune, which first acts as it is, and is held against random weights; "
    about += f"{NO_BASE}: random weights are trained, without anything beside them "
    about += f"(default {BASE}; with --suite or --robot {NO_BASE})"
    add(parser, "--base", about, "SOURCE")
    about = f"the base acts as it is, and nothing is recorded or trained (default of --base then: {ARMS})"
    add(parser, "--zero-shot", about)
    about = "with --zero-shot: poses of objects are estimated from pictures by this estimator, such as "
    add(parser, "--poses-from", f"{about}poses-exterior", "ESTIMATOR", default="")
    default = f"(default {FROM_BASE.attempts}, without a base {ALONE.attempts})"
    add_number(parser, "--attempts", None, f"demonstrations to try {default}", least=10)
    default = f"(default {FROM_BASE.episodes}, without a base {ALONE.episodes})"
    about = f"initial states of each task in which the trained policy is evaluated {default}"
    add_number(parser, "--episodes", None, about, least=1)
    about = "the same for policies beside it (default: as many, but without a base at most 5)"
    add_number(parser, "--untrained-episodes", None, about, least=1)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing of the stages, a line each, and print the result."""
    process.prepare()
    require_extras(*DEMO_EXTRAS, who="the demo")
    from morph_vla import report
    from morph_vla.demo import job, words
    from morph_vla.results.record import FILE_NAME

    def say(line: str) -> None:
        """Print a line below the progress bars."""
        now("")
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    settings = job.Settings(**{key.name: getattr(arguments, key.name) for key in fields(job.Settings)})
    folder = arguments.output or Path("runs") / (settings.suite_name if settings.robot else "demo")
    say(f"The demo, in {folder}. Ctrl-C stops it; the same command goes on.\n")
    page, record = folder / report.FILE_NAME, folder / FILE_NAME
    prefix = f"MORPH_VLA_PATH={shlex.quote(str(folder))} " if settings.writes_suite else ""
    with passing():
        if settings.zero_shot:
            acted = job.act(folder, settings, say, Bars)
            record = acted.folder / FILE_NAME
            lines = words.of_zero_shot(
                acted, page, settings.source, settings.suite_name, prefix, settings.poses_from
            )
        else:
            study = job.run(folder, settings, say, Bars)
            overrides = job.of_robot(study.robot, settings)
            lines = words.lines(study, page, settings.suite_name, settings.size.episodes, prefix, overrides)
    result = {"folder": folder, "report": page, "record": record}
    render(result, arguments.json, text="\n".join(lines))
