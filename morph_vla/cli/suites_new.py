"""`morph-vla suites new`."""

import argparse
import math
from pathlib import Path

from morph_vla.cli.common import add, add_number
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError
from morph_vla.files.home import expanded

HIGHEST = 10.0  # [m]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla suites new`, apart from `--folder` and `--json`."""
    add(parser, "name", "the suite's name, and without --robot the robot's", "NAME")
    add(parser, "--robot", "a robot's name, or a URDF, which is added under NAME", "ROBOT", default="")
    about = "a task, or several with commas (default pick_and_place: each that the arm can do)"
    add(parser, "--task", about, "TASK", default="pick_and_place")
    add(parser, "-o --output", "the file to write (default eval/NAME.yaml)", "FILE", type=Path)
    add(parser, "--overwrite", "write the file again where it exists")
    add_number(parser, "--trials", 20, "states in which the expert tries each task; 0: none", least=0)
    about = (
        "the height of its top over the robot's root (default 0; where the arm does nothing there, another)"
    )
    add(parser, "--table", about, "METRES", type=_metres)
    about = (
        "of the hand, where its camera is: ahead, as seen from the base (default), or that of its own x axis"
    )
    add(parser, "--camera-side", about, "SIDE", choices=("ahead", "hand"), default="ahead")
    add_number(parser, "--workers", None, "processes (default: one per core)", least=1)


def _metres(text: str) -> float:
    """A height; refused in words where it is none."""
    try:
        height = float(text)
    except ValueError:
        height = math.nan
    if not abs(height) <= HIGHEST:
        most = f"at most {HIGHEST:g} above or below the root"
        raise MorphVlaError(f"--table must be metres, {most}, not {text[:40]}")
    return height


def run(arguments: argparse.Namespace) -> None:
    """Add the robot where it is a file, write its suite, and print how the expert did."""
    from morph_vla import robots
    from morph_vla.demonstrations import new_suite
    from morph_vla.files.dropin import add_to_path, check_name
    from morph_vla.robots import adding

    source, known = expanded(arguments.robot), arguments.robot or arguments.name
    check_name(arguments.name, "suite")
    for folder in reversed(arguments.folders):  # the suite names the robot, and processes look for it
        add_to_path(Path(folder))
    is_file = bool(arguments.robot) and source.is_file()
    registered = None if is_file else adding.completed(known, arguments.folders)
    with registered or adding.only_if_used(source, arguments.name) as path:
        made = new_suite.make(
            arguments.name, robots.load(path, arguments.folders), arguments.task.split(","), arguments.output,
            trials=arguments.trials, workers=arguments.workers, overwrite=arguments.overwrite,
            table=arguments.table, camera_side=arguments.camera_side,
        )  # fmt: skip
    render({"suite": made.path, "kept": made.kept, "left_out": made.dropped}, arguments.json, text=made)
