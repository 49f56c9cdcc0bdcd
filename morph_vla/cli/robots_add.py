"""`morph-vla robots add FILE`."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla.cli import words
from morph_vla.cli.common import add
from morph_vla.cli.render import render

if TYPE_CHECKING:
    from morph_vla.robots.adding import Added


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots add`, apart from `--joints` and `--json`."""
    add(parser, "file", "a URDF; a side file beside it is copied too", "FILE", type=Path)
    add(parser, "--name", "the robot's name; default: the file's", "NAME", default="")
    about = "default: the first folder of MORPH_VLA_PATH, else ./urdf_descriptors"
    add(parser, "--to", about, "FOLDER", type=Path)
    add(parser, "--write-side", "also write the side file to fill in")


def run(arguments: argparse.Namespace) -> int:
    """Check, copy, and print what to put into a side file; 1, and nothing copied, on errors."""
    from morph_vla.robots import adding

    examination = adding.examine_new(arguments.file.expanduser(), arguments.joints)
    if problems := examination.urdf_errors:
        print(*problems, sep="\n")
        print(f"\nnothing was copied: {words.count(len(problems), 'error')} in {examination.path.name}")
        return 1
    folder = arguments.to and arguments.to.expanduser()
    chosen, write_side = bool(arguments.joints), arguments.write_side
    added = adding.add(examination, arguments.name, folder, chosen=chosen, write_side=write_side)
    plain = {
        "name": added.urdf.stem,
        "urdf": added.urdf,
        "written": added.written,
        "joints": added.robot.names,
        "findings": added.robot.findings,
        "side_file": added.side_file,
    }
    render(plain, arguments.json, lambda _: lines(added))
    return 0


def lines(added: "Added") -> Iterator[str]:
    """Warnings, what was written, and what to do next."""
    from morph_vla.robots import choose

    robot, target, side = added.robot, added.urdf, added.urdf.with_suffix(".yaml")
    yield from (str(finding) for finding in robot.findings if finding.severity == "warning")
    yield from (f"wrote {path}" for path in added.written)
    if target not in added.written:
        yield f"{target} is already there, the same"
    if more := choose.too_many(robot.urdf, robot.names):
        yield f"\n{more}"
    if side not in added.written and not side.is_file():
        yield f"\nWhat a URDF cannot say goes into {side} (--write-side writes this):\n"
        yield added.side_file.rstrip("\n")
    yield f"\nnext: `morph-vla robots draw {target.stem}`, and look at the picture; then"
    yield f"      `morph-vla robots check {target.stem} --episode YOUR_DATASET`"
