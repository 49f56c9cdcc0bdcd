"""`morph-vla robots add FILE`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add
from morph_vla.cli.render import render
from morph_vla.wording import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots add`, apart from `--joints` and `--json`."""
    add(parser, "file", "a URDF; a side file beside it is copied too", "FILE", type=Path)
    add(parser, "--name", "the robot's name; default: the file's", "NAME", default="")
    about = "default: the first folder of MORPH_VLA_PATH, else ./urdf_descriptors"
    add(parser, "--to", about, "FOLDER", type=Path)
    add(parser, "--write-side", "also write the side file to fill in, which is printed otherwise")


def run(arguments: argparse.Namespace) -> int:
    """Check, copy, and print what to put into a side file; 1, and nothing copied, on errors."""
    from morph_vla.robots import adding

    examination = adding.examine_new(arguments.file.expanduser(), arguments.joints)
    if problems := examination.urdf_errors:
        print(*problems, sep="\n")
        print(f"\nnothing was copied: {count(len(problems), 'error')} in {examination.path.name}")
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
    render(plain, arguments.json, text=added)
    return 0
