"""`morph-vla robots check FILE [--episode DATASET[:INDEX]]`."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla.cli.common import add_json, print_json, print_table
from morph_vla.errors import MissingExtraError, MorphVlaError

if TYPE_CHECKING:
    from morph_vla.checks.playback import Played
    from morph_vla.data.values import Episode
    from morph_vla.findings import Finding
    from morph_vla.robots.examine import Examination
    from morph_vla.robots.robot import Robot

SHORT = {
    "not-finite": "not finite",
    "names-in-another-order": "order",
    "names-nearer-to-others": "order",
    "names-unlike": "name",
    "a-little-beyond": "beyond its limits",
    "leaves-limits": "leaves its limits",
    "never-moves": "never moves",
    "one-of-two-moves": "one of two moves",
    "too-fast": "too fast",
    "not-radians": "unit",
    "radians": "unit",
    "percent": "unit",
    "not-percent": "unit",
    "gripper-unit": "unit",
    "gripper-beyond": "beyond its ends",
    "gripper-inverted": "inverted?",
    "never-closed": "never closed",
}
"""A word or two for the table, by the code of a finding"""
EXAMPLES = """
  morph-vla robots check ./my_arm.urdf
  morph-vla robots check so101 --episode ~/datasets/lift:7 --output path.png
  morph-vla robots check so101 --episode ~/datasets/lift --feature action --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots check`, apart from `--folder` and `--joints`."""
    parser.add_argument("robot", metavar="FILE", help="the path to a URDF file, or a robot's name")
    parser.add_argument(
        "--episode",
        metavar="DATASET[:INDEX]",
        help="also play an episode (the first unless told) of a LeRobot v2.0, v2.1 or v3.0 dataset: values"
        " against limits, units, signs, names and speeds",
    )
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        metavar="NAME",
        dest="features",
        help="play this feature of the dataset; default: action and state, under the side file's keys",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="the picture of the end effector's path; default: ROBOT_DATASET_INDEX.png in the current folder",
    )
    add_json(parser)


def run_check(arguments: argparse.Namespace) -> int:
    """Print every finding; the status is 1 when one is an error, so that a script can ask."""
    from morph_vla.robots.examine import examine

    if not arguments.episode and (arguments.features or arguments.output):
        raise MorphVlaError("--feature and --output go with --episode")
    examination = examine(_file(arguments.robot, arguments.folders), arguments.joints)
    episode = None
    if arguments.episode and examination.robot is not None:
        episode = _episode(examination.robot, arguments)
    if arguments.json:
        print_json({**_plain(examination), "episode": episode and episode["plain"]})
    else:
        _print(examination)
        if episode:
            _print_episode(episode)
        elif arguments.episode:
            print("\nthe episode was not played: the robot has errors")
    failed = not examination.usable or bool(episode and episode["plain"]["errors"])
    return 1 if failed else 0


def _file(name: str, folders: list[str]) -> Path:
    """A registered robot, or any file: what is in one that is not called .urdf is judged too."""
    from morph_vla.files import dropin

    given = Path(name).expanduser()
    registered = dropin.available("robots", folders)
    if name not in registered and (given.is_file() or given.is_dir()):
        return given
    return dropin.find("robots", name, folders)


# -------------------------------------------------------------------------------------------- the robot


def _plain(examination: "Examination") -> dict[str, Any]:
    from morph_vla.files.plain import to_plain
    from morph_vla.robots.choose import limbs

    urdf, action = examination.urdf, examination.action
    return {
        "file": str(examination.path),
        "usable": examination.usable,
        "joints": len(urdf.joints),
        "movable": len(urdf.actuated),
        "mimic": len(urdf.mimicking),
        "action_joints": list(action),
        "side_file": None if examination.side_path is None else str(examination.side_path),
        "findings": to_plain(examination.findings),
        "limbs": [list(limb) for limb in limbs(urdf, action)] if examination.advice else None,
        **examination.counts,
    }


def _print(examination: "Examination") -> None:
    for finding in examination.findings:
        print(finding)
    if examination.findings:
        print()
    if examination.advice:
        print(f"{examination.advice}\n")
    side = f"side file {examination.side_path.name}" if examination.side_path else "no side file"
    urdf = examination.urdf
    print(
        f"{examination.path}, {side}: {count(len(urdf.joints), 'joint')}, {len(urdf.actuated)} movable,"
        f" {len(urdf.mimicking)} mimic, {count(len(examination.action), 'action joint')};"
        f" {', '.join(count(number, noun[:-1]) for noun, number in examination.counts.items())}"
    )


def count(number: int, noun: str) -> str:
    """`1 joint`, `2 joints`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


# ------------------------------------------------------------------------------------------ the episode


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


def _episode(robot: "Robot", arguments: argparse.Namespace) -> dict[str, Any]:
    from morph_vla.checks import playback, playback_rules

    folder, index = split(arguments.episode)
    episode = _read(robot, folder, index, arguments.features)
    played: list[Played] = []
    findings: list[Finding] = []
    for feature, array in episode.values.items():
        piece, on_names = playback.play(robot, feature, array, episode.names[feature], episode.fps)
        played += [piece] if piece is not None else []
        findings += on_names
    findings += playback_rules.judge(robot, played, episode.fps, episode.timestamps)
    merged = playback.merged(findings)
    default = Path(f"{robot.name}_{folder.resolve().name}_{index}.png")
    picture, why_not = _draw(played, arguments.output or default) if played else (None, None)
    return {
        "played": played,
        "findings": merged,
        "why_not": why_not,
        "plain": _episode_plain(episode, played, merged, picture),
    }


def _read(robot: "Robot", folder: Path, index: int, asked: list[str]) -> "Episode":
    """The features asked for, else action and state under the keys that the side file gives them."""
    from morph_vla.data import values
    from morph_vla.robots.side import Features

    keys = robot.side.features
    if asked or keys == Features():
        return values.read(folder, index, asked)
    parts = {"action": keys.action, "observation.state": keys.state}
    return values.joined(values.read(folder, index, [*keys.action, *keys.state]), parts)


def _draw(played: list["Played"], output: Path) -> tuple[Path | None, str | None]:
    """The picture, or why there is none: without matplotlib the table is still worth printing."""
    from morph_vla.checks import draw_path

    try:
        return draw_path.write(played, output), None
    except MissingExtraError as error:
        return None, f"no picture: {error}"


def _episode_plain(
    episode: "Episode", played: list["Played"], findings: Sequence["Finding"], picture: Path | None
) -> dict[str, Any]:
    from morph_vla.files.plain import to_plain
    from morph_vla.findings import counts

    return {
        "dataset": str(episode.root),
        "index": episode.index,
        "version": episode.version,
        "robot_type": episode.robot_type,
        "fps": episode.fps,
        "frames": episode.frames,
        "features": {
            piece.feature: {"joints": _rows(piece, findings), "paths": _paths(piece)} for piece in played
        },
        "findings": to_plain(findings),
        **counts(findings),
        "picture": None if picture is None else str(picture),
    }


def _rows(played: "Played", findings: Sequence["Finding"]) -> list[dict[str, Any]]:
    from morph_vla.checks.playback_rules import mostly

    rows = []
    for j, joint in enumerate(played.robot.joints):
        values, native = played.values[played.finite, j], played.native[played.finite, j]
        about = [SHORT[f.code] for f in findings if joint.name in f.subject and f.code in SHORT]
        rows.append(
            {
                "joint": joint.name,
                "name": played.names[j] if played.names else None,
                "column": (played.match.columns or ())[j],
                "dataset": [float(values.min()), float(values.max())],
                "unit": joint.unit,
                "native": [float(native.min()), float(native.max())],
                "limits": [joint.lower, joint.upper],
                "share": played.share(j),
                "mostly_open": mostly(played, j) if joint.is_gripper else None,
                "remarks": list(dict.fromkeys(about)),
            }
        )
    return rows


def _paths(played: "Played") -> list[dict[str, Any]]:
    return [
        {
            "link": trace.link,
            "length": trace.length,
            "extent": trace.extent.tolist(),
            "fastest": float(trace.speeds.max()) if len(trace.points) > 1 else 0.0,
            "start": trace.points[0].tolist(),
            "end": trace.points[-1].tolist(),
        }
        for trace in played.traces
    ]


def _print_episode(episode: dict[str, Any]) -> None:
    plain = episode["plain"]
    recorded = f", recorded on '{plain['robot_type']}'" if plain["robot_type"] else ""
    size = f"{count(plain['frames'], 'frame')} at {plain['fps']:g} Hz"
    print(f"\nepisode {plain['index']} of {plain['dataset']}: LeRobot {plain['version']}, {size}{recorded}")
    header = ("joint", "value", "dataset", "unit", "native", "limits", "used", "remarks")
    for feature, content in plain["features"].items():
        print(f"\n{feature}")
        print_table(header, [_cells(row) for row in content["joints"]])
        for path in content["paths"][:8]:
            box = " x ".join(f"{side:.2f}" for side in path["extent"])
            print(f"path of {path['link']}: {path['length']:.2f} m long in a box of {box} m,", end=" ")
            print(f"at most {path['fastest']:.2f} m/s")
        if len(content["paths"]) > 8:
            print(f"and {len(content['paths']) - 8} more paths (--json has them)")
    print()
    for finding in episode["findings"]:
        print(finding)
    if episode["findings"]:
        print()
    print("native values and limits in rad (turning) or m (sliding); paths in the frame of the root")
    print(", ".join(count(plain[key], key[:-1]) for key in ("errors", "warnings", "notes")))
    if plain["picture"] or episode["why_not"]:
        print(plain["picture"] or episode["why_not"])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    remarks = list(row["remarks"])
    if row["mostly_open"] is not None:
        remarks.append(f"mostly {row['mostly_open']:.0%} open")
    value = str(row["column"]) if row["name"] is None else f"{row['column']} {row['name']}"
    used = "" if math.isnan(row["share"]) else f"{row['share']:.0%}"
    ends = (" .. ".join(f"{end:.4g}" for end in row[key]) for key in ("dataset", "native", "limits"))
    dataset, native, limits = ends
    return row["joint"], value, dataset, row["unit"], native, limits, used, ", ".join(remarks)
