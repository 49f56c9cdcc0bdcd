"""`morph-vla robots check FILE [--episode DATASET[:INDEX]]`."""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla.cli import words
from morph_vla.cli.common import add, add_json
from morph_vla.cli.render import render, table
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.checks.episode import JointRow, PlayedEpisode
    from morph_vla.robots.examine import Examination

MOST_PATHS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots check`, apart from `--folder` and `--joints`."""
    add(parser, "robot", "the path to a URDF file, or a robot's name", "FILE")
    about = "also play an episode (default: the first) of a LeRobot v2.0, v2.1 or v3.0 dataset, and compare "
    about += "its values with limits, units, signs, names and speeds"
    add(parser, "--episode", about, "DATASET[:INDEX]")
    about = "play this feature of the dataset; default: action and state, under the side file's keys"
    add(parser, "--feature", about, "NAME", action="append", default=[], dest="features")
    about = "the picture of the end effector's path; default: ROBOT_DATASET_INDEX.png in the current folder"
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

    def lines(_: object) -> Iterator[str]:
        yield from lines_of_robot(examination)
        if episode:
            yield from lines_of_episode(episode)
        elif arguments.episode:
            yield "\nthe episode was not played: the robot has errors"

    render(plain, arguments.json, lines)
    return 1 if not examination.usable or (episode and errors(episode.findings)) else 0


def _file(name: str, folders: list[str]) -> Path:
    """A registered robot, or any file: what is in one that is not called .urdf is judged too."""
    from morph_vla.files import dropin

    given = Path(name).expanduser()
    if name not in dropin.available("robots", folders) and (given.is_file() or given.is_dir()):
        return given
    return dropin.find("robots", name, folders)


def split(text: str) -> tuple[Path, int]:
    """The folder and the index of DATASET[:INDEX]; a colon may belong to the folder's name."""
    whole = Path(text).expanduser()
    folder, colon, index = text.rpartition(":")
    if whole.is_dir() or not colon:
        return whole, 0
    if index.isascii() and index.isdecimal():
        return Path(folder).expanduser(), int(index[:18])
    if Path(folder).expanduser().is_dir():
        raise MorphVlaError(f"--episode {text}: the index is '{index}'; expected a number from 0")
    return whole, 0


def lines_of_robot(examination: "Examination") -> Iterator[str]:
    """Every finding, and one line about the file."""
    yield from map(str, examination.findings)
    if examination.findings:
        yield ""
    if examination.advice:
        yield f"{examination.advice}\n"
    side = f"side file {examination.side_path.name}" if examination.side_path else "no side file"
    urdf, action = examination.urdf, words.count(len(examination.action), "action joint")
    joints = (
        f"{words.count(len(urdf.joints), 'joint')}, {len(urdf.actuated)} movable, {len(urdf.mimicking)} mimic"
    )
    yield f"{examination.path}, {side}: {joints}, {action}; {words.counts(examination.counts)}"


def lines_of_episode(episode: "PlayedEpisode") -> Iterator[str]:
    """A table and the paths of each feature, then every finding, then the picture."""
    from morph_vla.findings import counts

    recorded = f", recorded on '{episode.robot_type}'" if episode.robot_type else ""
    size = f"{words.count(episode.frames, 'frame')} at {episode.fps:g} Hz"
    yield f"\nepisode {episode.index} of {episode.dataset}: LeRobot {episode.version}, {size}{recorded}"
    header = ("joint", "value", "dataset", "unit", "native", "limits", "used", "remarks")
    for feature, content in episode.features.items():
        yield f"\n{feature}"
        yield from table(header, map(_cells, content.joints))
        for path in content.paths[:MOST_PATHS]:
            box = " x ".join(f"{side:.2f}" for side in path.extent)
            length = f"{path.length:.2f} m long in a box of {box} m"
            yield f"path of {path.link}: {length}, at most {path.fastest:.2f} m/s"
        if len(content.paths) > MOST_PATHS:
            yield f"and {len(content.paths) - MOST_PATHS} more paths (--json has them)"
    yield ""
    yield from map(str, episode.findings)
    if episode.findings:
        yield ""
    yield "native values and limits in rad (revolute) or m (prismatic); paths in the frame of the root link"
    yield words.counts(counts(episode.findings))
    if episode.picture:
        yield str(episode.picture)
    elif episode.no_picture:
        yield f"no picture: {episode.no_picture}"


def _cells(row: "JointRow") -> tuple[str, ...]:
    remarks = [*row.remarks]
    if row.mostly_open is not None:
        remarks.append(f"mostly {row.mostly_open:.0%} open")
    value = str(row.column) if row.name is None else f"{row.column} {row.name}"
    used = "" if math.isnan(row.share) else f"{row.share:.0%}"
    ends = (" .. ".join(f"{end:.4g}" for end in pair) for pair in (row.dataset, row.native, row.limits))
    dataset, native, limits = ends
    return row.joint, value, dataset, row.unit, native, limits, used, ", ".join(remarks)
