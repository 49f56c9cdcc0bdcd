"""`morph-vla suites list | show | check | new`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from morph_vla.cli import files, suites_new
from morph_vla.cli.common import add_engine, add_number, refuse, search
from morph_vla.cli.render import print_json, render

if TYPE_CHECKING:
    from morph_vla.suites.environment import EnvironmentSuite

EXAMPLES = """
  morph-vla suites list
  morph-vla suites show droid_panda
  morph-vla suites show droid_panda:can_in_mug episodes=20 --json
  morph-vla suites check droid_panda --episodes 50
  morph-vla suites check so101_pick_orange --episodes 64 --engine isaaclab
  morph-vla suites new my_arm --robot ~/Downloads/my_arm.urdf
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla suites`."""
    summary = "measure how often a suite's expert succeeds; try another simulator's environment for a moment"
    making = "write a suite for any single arm, from its kinematics"
    more, alone = {"check": (summary, run_check)}, {"new": (making, suites_new.run)}
    verbs = files.configure(parser, "suites", load, more=more, alone=alone)
    suites_new.configure(verbs["new"])
    check = verbs["check"]
    add_number(check, "--episodes", None, "initial states to try (default: as many as the suite says)")
    add_number(check, "--workers", None, "processes (default: one per core)", least=1)
    add_engine(check)
    add_number(check, "--parallel", 64, "environments that isaaclab steps at once")


def load(name: str, overrides: list[str], folders: list[str]) -> Any:
    """A suite's file, checked."""
    from morph_vla.suites import environment

    return environment.load_file(name, overrides, folders)


def run_check(arguments: argparse.Namespace) -> int:
    """Print the expert's success rate in each task, its interval and what failed; status 1 below 95%.

    Another simulator's environment has no expert of ours: print what is wrong with it, status 1 for an error.
    """
    from morph_vla.cli.progress import Bar
    from morph_vla.demonstrations.check import ENOUGH, check
    from morph_vla.engines import by_name as engines
    from morph_vla.suites.environment import EnvironmentSuite, load_tasks
    from morph_vla.suites.suite import Suite

    search(arguments.folders)
    unheard = {"workers": None} if engines.lockstep(arguments.engine) else {"parallel": 64}
    refuse(arguments, f"with {arguments.engine}", **unheard)
    checks, tasks = [], load_tasks(arguments.name, arguments.overrides, arguments.folders)
    if environments := [task for task in tasks if isinstance(task, EnvironmentSuite)]:
        why = "another simulator's environment is tried for a moment, by no expert"
        refuse(arguments, why, episodes=None, workers=None, engine="mujoco")
        return _probe(environments, arguments)
    for task in tasks:
        assert isinstance(task, Suite)
        episodes = task.episodes if arguments.episodes is None else arguments.episodes
        with Bar("the expert", episodes, "episode") as bar:
            done = check(
                task, episodes, workers=arguments.workers, progress=bar.at, engine=arguments.engine,
                parallel=arguments.parallel,
            )  # fmt: skip
        checks.append(done)
        if not arguments.json:
            print(done)
    if arguments.json:
        plain = [done.as_dict() for done in checks]
        print_json(plain[0] if len(plain) == 1 else plain)
    return 0 if all(done.successes >= ENOUGH * len(done.outcomes) for done in checks) else 1


def _probe(tasks: "Sequence[EnvironmentSuite]", arguments: argparse.Namespace) -> int:
    """Print what a short trial of each task's environment found."""
    from morph_vla.engines.gymnasium.probe import probe
    from morph_vla.findings import errors, tally

    findings, lines = [], []
    for task in tasks:
        found = probe(task).findings
        findings += found
        lines += [*([f"{task.label}:"] if len(tasks) > 1 else []), *map(str, found)]
    render(findings, arguments.json, text="\n".join([*lines, tally(findings)]))
    return 1 if errors(findings) else 0
