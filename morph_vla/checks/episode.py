"""One episode of a dataset played on a robot: every joint's range, every path, every finding, a picture."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.checks import draw_path, playback, playback_rules
from morph_vla.checks.playback import Played, Trace
from morph_vla.checks.playback_rules import mostly
from morph_vla.data import values, versions
from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding, tally
from morph_vla.robots.robot import Robot
from morph_vla.robots.side import Features
from morph_vla.wording import count, table

MOST_PATHS = 8  # in words
REMARKS = {
    "not-finite": "not finite",
    "names-in-another-order": "order",
    "names-nearer-to-others": "order",
    "names-of-the-other-side": "side",
    "names-unlike": "name",
    "a-little-beyond": "beyond its limits",
    "leaves-limits": "leaves its limits",
    "never-moves": "never moves",
    "one-of-two-moves": "one of two moves",
    "too-fast": "too fast",
    "not-radians": "unit",
    "counts-on": "counts on",
    "radians": "unit",
    "percent": "unit",
    "not-percent": "unit",
    "gripper-unit": "unit",
    "gripper-beyond": "beyond its ends",
    "gripper-inverted": "inverted?",
    "never-closed": "never closed",
}
"""A word or two about a joint, by the code of a finding"""


@dataclass(frozen=True)
class JointRow:
    """What the episode says of one joint."""

    joint: str
    name: str | None
    """The dataset's name of its value"""
    column: int
    dataset: tuple[float, float]
    """Smallest and largest value, as recorded"""
    unit: str
    native: tuple[float, float]
    """The same in [rad] or [m]"""
    limits: tuple[float, float]
    """[rad] or [m]"""
    share: float
    """How much of the limits is used, 0..1 and more; NaN without limits"""
    mostly_open: float | None
    """Of a gripper: how far it is open most of the time, 0..1"""
    remarks: tuple[str, ...]

    def cells(self) -> tuple[str, ...]:
        """The row of a table: joint, value, dataset, unit, native, limits, used, remarks."""
        remarks = [*self.remarks]
        if self.mostly_open is not None:
            remarks.append(f"mostly {self.mostly_open:.0%} open")
        value = str(self.column) if self.name is None else f"{self.column} {self.name}"
        used = "" if math.isnan(self.share) else f"{self.share:.0%}"
        pairs = (self.dataset, self.native, self.limits)
        dataset, native, limits = (" .. ".join(f"{end:.4g}" for end in pair) for pair in pairs)
        return self.joint, value, dataset, self.unit, native, limits, used, ", ".join(remarks)


@dataclass(frozen=True)
class LinkPath:
    """The path of one end effector, in the frame of the robot's root."""

    link: str
    length: float
    """[m]"""
    extent: tuple[float, ...]
    """Of the box around it [m]"""
    fastest: float
    """[m/s]"""
    start: tuple[float, ...]
    """[m]"""
    end: tuple[float, ...]
    """[m]"""


@dataclass(frozen=True)
class PlayedFeature:
    """One feature of the episode, such as `action`."""

    joints: tuple[JointRow, ...]
    paths: tuple[LinkPath, ...]


@dataclass(frozen=True)
class PlayedEpisode:
    """What playing an episode showed."""

    dataset: Path
    index: int
    version: str
    robot_type: str
    fps: float
    frames: int
    features: dict[str, PlayedFeature]
    findings: tuple[Finding, ...]
    picture: Path | None
    no_picture: str | None
    """Why there is none; None also where no feature could be played"""

    def __str__(self) -> str:
        """A table and the paths of each feature, then every finding, then the picture."""
        return "\n".join(_lines(self))


def play_episode(
    robot: Robot, folder: Path, index: int = 0, features: Sequence[str] = (), picture: Path | None = None
) -> PlayedEpisode:
    """Play an episode of a LeRobot dataset, and draw the paths of the end effectors.

    Args:
        robot: Whose joints, limits and units the values are held against.
        folder: The dataset's, or its name on the Hub (`user/name`), which is fetched once.
        index: The episode's number.
        features: Which features; none takes action and state, under the keys of the robot's side file.
        picture: Where to draw; default: runs/checks/ROBOT_DATASET_INDEX.png.

    Raises MorphVlaError as `versions.located` and `values.read` do. Without matplotlib there is no picture.
    """
    episode = _read(robot, folder, index, features)
    played: list[Played] = []
    findings: list[Finding] = []
    for feature, array in episode.values.items():
        piece, on_names = playback.play(
            robot, feature, array, episode.names[feature], episode.fps, episode.robot_type
        )
        played += [piece] if piece is not None else []
        findings += on_names
    findings += playback_rules.judge(robot, played, episode.fps, episode.timestamps)
    merged = playback.merged(findings)
    drawn, why_not = None, None
    if played:
        try:
            default = Path("runs/checks", f"{robot.name}_{folder.resolve().name}_{index}.png")
            drawn = draw_path.write(played, picture or default)
        except MorphVlaError as error:  # the rest is still worth having
            why_not = str(error)
    return PlayedEpisode(
        dataset=episode.root,
        index=episode.index,
        version=episode.version,
        robot_type=episode.robot_type,
        fps=episode.fps,
        frames=episode.frames,
        features={
            piece.feature: PlayedFeature(_rows(piece, merged), tuple(map(_path, piece.traces)))
            for piece in played
        },
        findings=merged,
        picture=drawn,
        no_picture=why_not,
    )


def _lines(episode: PlayedEpisode) -> Iterator[str]:
    recorded = f", recorded on '{episode.robot_type}'" if episode.robot_type else ""
    size = f"{count(episode.frames, 'frame')} at {episode.fps:g} Hz"
    yield f"episode {episode.index} of {episode.dataset}: LeRobot {episode.version}, {size}{recorded}"
    header = ("joint", "value", "dataset", "unit", "native", "limits", "used", "remarks")
    for feature, content in episode.features.items():
        yield f"\n{feature}"
        yield from table(header, [row.cells() for row in content.joints])
        for path in content.paths[:MOST_PATHS]:
            box = " x ".join(f"{side:.2f}" for side in path.extent)
            length = f"{path.length:.2f} m long in a box of {box} m"
            yield f"path of {path.link}: {length}, at most {path.fastest:.2f} m/s"
        if len(content.paths) > MOST_PATHS:
            yield f"and {len(content.paths) - MOST_PATHS} more paths"
    yield from ("", *map(str, episode.findings), *([""] if episode.findings else []))
    yield "native values and limits in rad (revolute) or m (prismatic); paths in the frame of the root link"
    yield tally(episode.findings)
    if episode.picture:
        yield str(episode.picture)
    elif episode.no_picture:
        yield f"no picture: {episode.no_picture}"


def _read(robot: Robot, folder: Path, index: int, asked: Sequence[str]) -> values.Episode:
    """The features asked for, else action and state under the keys that the side file gives them."""
    folder = versions.located(folder)
    keys = robot.side.features
    if asked or keys == Features():
        return values.read(folder, index, asked)
    parts = {"action": keys.action, "observation.state": keys.state}
    return values.joined(values.read(folder, index, [*keys.action, *keys.state]), parts)


def _rows(played: Played, findings: Sequence[Finding]) -> tuple[JointRow, ...]:
    def row(j: int) -> JointRow:
        """Of the robot's joint `j`."""
        joint = played.robot.joints[j]
        recorded, native = played.values[played.finite, j], played.native[played.finite, j]
        about = [REMARKS[f.code] for f in findings if joint.name in f.subject and f.code in REMARKS]
        return JointRow(
            joint=joint.name,
            name=played.names[j] if played.names else None,
            column=(played.match.columns or ())[j],
            dataset=(float(recorded.min()), float(recorded.max())),
            unit=joint.unit,
            native=(float(native.min()), float(native.max())),
            limits=(joint.lower, joint.upper),
            share=played.share(j),
            mostly_open=mostly(played, j) if joint.is_gripper else None,
            remarks=tuple(dict.fromkeys(about)),
        )

    return tuple(map(row, range(len(played.robot.joints))))


def _path(trace: Trace) -> LinkPath:
    start, end = (tuple(trace.points[place].tolist()) for place in (0, -1))
    fastest = float(trace.speeds.max()) if len(trace.points) > 1 else 0.0
    return LinkPath(trace.link, trace.length, tuple(trace.extent.tolist()), fastest, start, end)
