"""`morph-vla robots vary ROBOT --seed N [--set NAME | changes]`."""

import argparse
from pathlib import Path

from morph_vla import robots
from morph_vla.cli.common import add, add_number
from morph_vla.cli.render import print_json
from morph_vla.errors import MissingExtraError, MorphVlaError


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
    about = "URDFs, side files, relatives.json and sheet.png go here (default: ROBOT_relatives)"
    add(parser, "-o --output", about, "FOLDER", type=Path)


def run(arguments: argparse.Namespace) -> None:
    """Draw, write, and print what was changed."""
    from morph_vla.relatives import vary
    from morph_vla.relatives.draft import Changes
    from morph_vla.robots import draw

    robot = robots.load(arguments.robot, arguments.folders)
    asked = {key: getattr(arguments, key) for key in ("links", "limits", "remove", "add", "mirror", "hand")}
    changes = Changes(**asked, twist=int(arguments.twist))
    if arguments.set:
        if changes != Changes():
            raise MorphVlaError(f"--set {arguments.set} says what is changed; give it or the changes")
        changes = vary.named_set(arguments.set)
    elif changes == Changes():
        raise MorphVlaError("nothing to change; give --set, --links, --limits, --remove, --add, --twist, ...")
    drawn = vary.draw(robot, changes, arguments.seed, arguments.count, arguments.set or "vary")
    folder = arguments.output or Path(f"{robot.name}_relatives")
    vary.write(drawn, folder)
    try:
        pictured = str(draw.write_sheet([robot, *(item.robot for item in drawn)], folder / "sheet.png"))
    except MissingExtraError as error:
        pictured = f"no picture: {error}"
    if arguments.json:
        print_json([item.as_dict() for item in drawn])
    else:
        print(f"{vary.summary(drawn)}\n\nwrote {folder}; {pictured}")
        print(f"next: `morph-vla robots show {drawn[0].robot.name} --folder {folder}`")


def ranges(text: str) -> tuple[tuple[float, float], ...]:
    """`0.8:1.25`, or `0.7:0.85,1.18:1.4`."""
    try:
        pairs = [tuple(map(float, part.split(":"))) for part in text.split(",")]
        return tuple((low, high) for low, high in pairs)
    except ValueError as error:
        raise MorphVlaError(f"'{text}' is no range; expected LEAST:MOST, such as 0.8:1.25") from error
