"""`morph-vla robots add`: a URDF, checked, into the user's own folder, and the side file to go with it."""

import argparse
import os
from pathlib import Path

from morph_vla.cli.common import print_json
from morph_vla.errors import MorphVlaError
from morph_vla.files.dropin import KINDS, PATH_VARIABLE
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_bytes
from morph_vla.robots import choose, template
from morph_vla.robots.examine import examine
from morph_vla.robots.robot import Robot


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots add`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a URDF; a side file beside it comes along")
    parser.add_argument("--name", metavar="NAME", help="what the robot will be called; default: FILE's name")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help="default: the first folder of MORPH_VLA_PATH, else ./urdf_descriptors",
    )
    parser.add_argument("--write-side", action="store_true", help="write the side file to fill in, too")


def run(arguments: argparse.Namespace) -> int:
    """Check, copy, and print what to put into a side file; 1, and nothing copied, on errors."""
    source: Path = arguments.file.expanduser()
    _refuse(source)
    examination = examine(source, arguments.joints)
    problems = examination.urdf_errors
    if problems:
        for finding in problems:
            print(finding)
        print(f"\nnothing was copied: {len(problems)} error{'s' * (len(problems) > 1)} in {source.name}")
        return 1
    robot = examination.loaded()
    folder = arguments.to.expanduser() if arguments.to else user_folder()
    target = folder / f"{arguments.name or source.stem}.urdf"
    if Path(target.name).name != target.name or target.parent.resolve() != folder.resolve():
        raise MorphVlaError(f"--name {arguments.name}: expected a name, not a path")
    beside = source.with_suffix(".yaml")
    side = beside.read_text("utf-8") if beside.is_file() and not arguments.joints else None
    text = side or template.side_file(robot)
    written = [_copy(source.read_bytes(), target)]
    if side or arguments.write_side or arguments.joints:
        written.append(_copy(text.encode(), target.with_suffix(".yaml")))
    _say(arguments, robot, target, text, [path for path in written if path])
    return 0


def user_folder() -> Path:
    """Where a user's own robots go: the first folder of MORPH_VLA_PATH, else `./urdf_descriptors`."""
    for entry in filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep)):
        folder = Path(entry).expanduser()
        return folder if folder.name == KINDS["robots"][0] else folder / KINDS["robots"][0]
    return Path(KINDS["robots"][0])


def _refuse(source: Path) -> None:
    """Raise MorphVlaError for what is no URDF by its name."""
    if source.suffix.lower() in (".xacro", ".xml", ".mjcf", ".sdf", ".usd", ".usda", ".usdc"):
        remedy = (
            "run it through xacro first (`xacro robot.urdf.xacro > robot.urdf`)"
            if source.suffix.lower() == ".xacro"
            else "convert it to URDF first"
        )
        raise MorphVlaError(f"{source}: not a .urdf file; {remedy}")
    if not source.is_file():
        raise MorphVlaError(f"no such file: {source}")
    if source.suffix.lower() != ".urdf":
        raise MorphVlaError(f"{source}: not a .urdf file")


def _copy(data: bytes, target: Path) -> Path | None:
    """Write the file whole; None where it is there already. Another file of the name is never replaced."""
    if target.is_file():
        if target.read_bytes() == data:
            return None
        raise MorphVlaError(f"{target} is there and holds something else; choose another with --name")
    write_bytes(target, data)
    return target


def _say(arguments: argparse.Namespace, robot: Robot, target: Path, text: str, written: list[Path]) -> None:
    beside = target.with_suffix(".yaml")
    if arguments.json:
        print_json(
            {
                "name": target.stem,
                "urdf": str(target),
                "written": [str(path) for path in written],
                "joints": list(robot.names),
                "findings": to_plain(robot.findings),
                "side_file": text,
            }
        )
        return
    for finding in robot.findings:
        if finding.severity == "warning":
            print(finding)
    for path in written:
        print(f"wrote {path}")
    if target not in written:
        print(f"{target} is there already, the same")
    more = choose.too_many(robot.urdf, robot.names)
    if more:
        print(f"\n{more}")
    if beside not in written and not beside.is_file():
        print(f"\nWhat a URDF cannot say goes into {beside} (--write-side writes this):\n\n{text}", end="")
    print(f"\nnext: morph-vla robots draw {target.stem}, and look; then")
    print(f"      morph-vla robots check {target.stem} --episode YOUR_DATASET")
