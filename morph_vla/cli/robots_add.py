"""`morph-vla robots add SOURCE`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla.cli.common import add, refuse
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError
from morph_vla.files.home import expanded
from morph_vla.wording import count

if TYPE_CHECKING:
    from morph_vla.robots.examine import Examination

ROBOSUITE = "robosuite:"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots add`, apart from `--joints` and `--json`."""
    about = "a URDF (a side file beside it is copied too), an MJCF file, rd:NAME of robot_descriptions, or"
    about += " robosuite:ARM"
    add(parser, "source", about, "SOURCE")
    add(parser, "--name", "the robot's name; default: the source's", "NAME", default="")
    about = "default: the first folder of MORPH_VLA_PATH, else ./urdf_descriptors"
    add(parser, "--to", about, "FOLDER", type=Path)
    add(parser, "--write-side", "also write the side file to fill in, which is printed otherwise")
    about = "of MJCF: the body that is the robot's base; default: the one body that carries every joint"
    add(parser, "--root", about, "BODY", default="")
    about = "of MJCF: take this off the front of names (may be repeated)"
    add(parser, "--strip", about, "PREFIX", action="append", default=[])
    add(parser, "--accept-license", "of rd:NAME: add it although its licence may forbid commercial use")


def run(arguments: argparse.Namespace) -> int:
    """Check, copy, and print what to put into a side file; 1, and nothing copied, on errors."""
    from morph_vla.robots import adding

    examination = _examined(arguments)
    if problems := examination.urdf_errors:
        why = f"nothing was copied: {count(len(problems), 'error')} in {examination.path.name}"
        text = "\n".join([*map(str, problems), f"\n{why}"])
        render({"written": [], "findings": problems}, arguments.json, text=text)
        return 1
    folder = arguments.to and expanded(arguments.to)
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


def _examined(arguments: argparse.Namespace) -> "Examination":
    """What the source says, whatever kind it is of."""
    from morph_vla.robots import adding, described
    from morph_vla.robots.examine import examine_text
    from morph_vla.robots.side import Side

    joints, path = arguments.joints, expanded(arguments.source)
    name, within, side = path.stem, None, None
    if arguments.source.startswith(described.SCHEME):
        robot = described.described(arguments.source.removeprefix(described.SCHEME), arguments.accept_license)
        name, path, within = robot.name, robot.path, robot.repository
        side = Side(source=robot.source, licence=robot.licence)
    elif arguments.source.startswith(ROBOSUITE):
        from morph_vla.engines.robosuite import arms

        why = f"{ROBOSUITE}NAME is added as robosuite has it"
        refuse(arguments, why, joints=[], root="", strip=[], accept_license=False)
        return arms.examined(arguments.source.removeprefix(ROBOSUITE))
    elif arguments.accept_license:
        raise MorphVlaError("--accept-license is used with rd:NAME")
    if path.suffix.lower() in adding.MJCF:
        from morph_vla.engines.mujoco import mjcf

        model, options = mjcf.compiled(path, within), {"root": arguments.root, "strip": arguments.strip}
        return adding.examine_model(model, path.name, name, side, joints=joints, **options)
    if arguments.root or arguments.strip:
        raise MorphVlaError(f"--root and --strip are used with an MJCF file ({', '.join(adding.MJCF)})")
    if side is not None:
        return examine_text(path.read_bytes(), side, Path(f"{name}.urdf"), joints)
    return adding.examine_new(path, joints)
