"""`morph-vla robots vary ROBOT --seed N [--set NAME | changes]`."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla import robots
from morph_vla.cli.common import add, add_number, refuse
from morph_vla.cli.render import print_json
from morph_vla.errors import MissingExtraError, MorphVlaError

if TYPE_CHECKING:
    from morph_vla.relatives.draft import Changes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots vary`, apart from the robot, `--folder` and `--json`."""
    add_number(parser, "--seed", 0, "what is drawn; the same seed gives the same files", least=0)
    add_number(parser, "--count", 1, "how many", least=1)
    add(
        parser,
        "--set",
        "interpolation, extrapolation or composition; the changes of a set",
        "NAME",
        default="",
    )
    range_words = "RANGE is LEAST:MOST, or several separated by commas"
    add(parser, "--links", f"factors of link lengths; {range_words}", "RANGE", type=ranges, default=())
    add(parser, "--limits", f"shares of joint ranges; {range_words}", "RANGE", type=ranges, default=())
    add_number(parser, "--remove", 0, "joints of the arm to fix where they rest", least=0)
    add_number(parser, "--add", 0, "joints to add to the arm", least=0)
    add(parser, "--twist", "two neighbouring joints exchange the directions of their axes")
    add(parser, "--mirror", "mirror the robot, left to right")
    add(parser, "--hand", "another hand: a parallel gripper of another size")
    about = "also write a suite for each, with this task or several with commas (default cube_in_bowl); "
    about += "a body whose expert does not succeed is drawn again"
    add(parser, "--suites", about, "TASK", nargs="?", const="cube_in_bowl")
    add_number(parser, "--trials", 20, "of --suites: states in which the expert tries each task", least=1)
    about = "of --suites: the hand's camera is ahead, as seen from the base (default), or by its own x axis"
    add(parser, "--camera-side", about, "SIDE", choices=("ahead", "hand"), default="ahead")
    add_number(parser, "--workers", None, "of --suites: processes (default: one per core)", least=1)
    about = "URDFs, side files, relatives.json and sheet.png go here (default: ROBOT_relatives)"
    add(parser, "-o --output", about, "FOLDER", type=Path)


def run(arguments: argparse.Namespace) -> int:
    """Draw, write, and print what was changed; 1 where a body could not be given a suite."""
    from morph_vla.relatives import vary
    from morph_vla.robots import draw

    if not arguments.suites:
        refuse(arguments, "without --suites no task is tried", trials=20, workers=None, camera_side="ahead")
    robot = robots.load(arguments.robot, arguments.folders)
    changes, label = _changes(arguments), arguments.set or "vary"
    folder = arguments.output or Path(f"{robot.name}_relatives")
    names, expert, remarks = vary.names(robot, arguments.seed, arguments.count, label), None, []
    if arguments.suites:
        expert, remarks = _tried(arguments, changes, names, folder)
        names = tuple(expert)
    drawn = [vary.drawn(robot, changes, name) for name in names]
    vary.write(drawn, folder)
    try:
        pictured = str(draw.write_sheet([robot, *(item.robot for item in drawn)], folder / "sheet.png"))
    except MissingExtraError as error:
        pictured = f"no picture: {error}"
    if arguments.json:
        print_json([item.as_dict() for item in drawn])
    else:
        print("\n".join([vary.summary(drawn, expert), *remarks]))
        print(f"\nwrote {folder}; {pictured}")
        if drawn:
            print(f"next: `morph-vla robots show {drawn[0].robot.name} --folder {shlex.quote(str(folder))}`")
    return int(len(drawn) < arguments.count)


def _changes(arguments: argparse.Namespace) -> "Changes":
    """Those of the set, or those that are asked for."""
    from morph_vla.relatives import vary
    from morph_vla.relatives.draft import Changes

    asked = {key: getattr(arguments, key) for key in ("links", "limits", "remove", "add", "mirror", "hand")}
    changes = Changes(**asked, twist=int(arguments.twist))
    if arguments.set:
        if changes != Changes():
            raise MorphVlaError(f"--set {arguments.set} says what is changed; give it or the changes")
        return vary.named_set(arguments.set)
    if changes == Changes():
        raise MorphVlaError("nothing to change; give --set, --links, --limits, --remove, --add, --twist, ...")
    return changes


def _tried(
    arguments: argparse.Namespace, changes: "Changes", names: Sequence[str], folder: Path
) -> tuple[dict[str, str], list[str]]:
    """How the expert did with each body that was kept, and a sentence on each draw that was not."""
    from morph_vla.cli.progress import Bar
    from morph_vla.demonstrations import bodies
    from morph_vla.suites.new import check_tasks

    check_tasks(arguments.suites.split(","))
    job = bodies.Job(
        arguments.robot, tuple(arguments.folders), changes, folder,
        tuple(arguments.suites.split(",")), arguments.trials, arguments.camera_side,
    )  # fmt: skip
    with Bar("suites", len(names), "relative") as bar:
        settled = bodies.settle(job, names, arguments.workers, bar.at)
    kept = [trials[-1] for trials in settled.values() if not trials[-1].refused]
    return {trial.name: str(trial) for trial in kept}, [
        str(trial) for trials in settled.values() for trial in trials if trial.refused
    ]


def ranges(text: str) -> tuple[tuple[float, float], ...]:
    """`0.8:1.25`, or `0.7:0.85,1.18:1.4`."""
    try:
        pairs = [tuple(map(float, part.split(":"))) for part in text.split(",")]
        return tuple((low, high) for low, high in pairs)
    except ValueError as error:
        raise MorphVlaError(f"'{text}' is no range; expected LEAST:MOST, such as 0.8:1.25") from error
