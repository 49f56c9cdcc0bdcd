"""`morph-vla robots check FILE [--episode DATASET[:INDEX]]`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add, add_json
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError
from morph_vla.files.home import expanded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots check`, apart from `--folder` and `--joints`."""
    add(parser, "robot", "the path to a URDF file, or a robot's name", "FILE")
    about = "also play an episode (default: the first) of a LeRobot v2.0, v2.1 or v3.0 dataset, and compare "
    about += "its values with limits, units, signs, names and speeds"
    add(parser, "--episode", about, "DATASET[:INDEX]")
    about = "play this feature of the dataset; default: action and state, under the side file's keys"
    add(parser, "--feature", about, "NAME", action="append", default=[], dest="features")
    about = "the picture of the end effector's path; default: runs/checks/ROBOT_DATASET_INDEX.png"
    add(parser, "--output", about, "FILE", type=Path)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print every finding; the status is 1 when one is an error, so that a script can ask."""
    from morph_vla.findings import counts, errors
    from morph_vla.robots.choose import limbs
    from morph_vla.robots.examine import examine

    if not arguments.episode and (arguments.features or arguments.output):
        raise MorphVlaError("--feature and --output are used with --episode")
    examination, episode = examine(_file(arguments.robot, arguments.folders), arguments.joints), None
    if arguments.episode and examination.robot is not None:
        from morph_vla.checks.episode import play_episode

        place = split(arguments.episode)
        episode = play_episode(examination.robot, *place, arguments.features, arguments.output)
    urdf, action = examination.urdf, examination.action
    plain = {
        "file": examination.path,
        "usable": examination.usable,
        "joints": len(urdf.joints),
        "movable": len(urdf.actuated),
        "mimic": len(urdf.mimicking),
        "action_joints": action,
        "side_file": examination.side_path,
        "findings": examination.findings,
        "limbs": limbs(urdf, action) if examination.advice else None,
        **examination.counts,
        "episode": episode and {**vars(episode), **counts(episode.findings)},
    }
    text = str(examination)
    if arguments.episode:
        text += f"\n\n{episode or 'the episode was not played: the robot has errors'}"
    render(plain, arguments.json, text=text)
    return 1 if not examination.usable or (episode and errors(episode.findings)) else 0


def _file(name: str, folders: list[str]) -> Path:
    """A registered robot, or any file: what is in one that is not called .urdf is judged too."""
    from morph_vla.files import dropin

    given = expanded(name)
    if name not in dropin.available("robots", folders) and (given.is_file() or given.is_dir()):
        return given
    return dropin.find("robots", name, folders)


def split(text: str) -> tuple[Path, int]:
    """The folder and the index of DATASET[:INDEX]; a colon may belong to the folder's name."""
    whole = expanded(text)
    folder, colon, index = text.rpartition(":")
    if whole.is_dir() or not colon:
        return whole, 0
    if index.isascii() and index.isdecimal():
        return expanded(folder), int(index[:18])
    if expanded(folder).is_dir():
        raise MorphVlaError(f"--episode {text}: the index is '{index}'; expected a number from 0")
    return whole, 0
