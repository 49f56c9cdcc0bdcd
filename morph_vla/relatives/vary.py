"""Relatives of a robot, drawn by a seed: other lengths, ranges and axes, a joint more or fewer, another hand.

A relative's name says its robot, its set, the seed and its number, and the name alone starts its random
numbers: the same name and options give the same bytes, however many are drawn beside it. Every relative
passes the check of its robot's kind; one that does not is drawn again.

Three sets, for what a policy has seen and what it has not. `interpolation` is what one trains on (with
another seed for what one tests on); `extrapolation` has sizes and ranges beyond it; `composition` has two
changes of structure at once, where the first has one at most.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_bytes
from morph_vla.relatives.draft import Changes, Draft, Rejected, Relative
from morph_vla.robots.robot import Robot
from morph_vla.wording import table

TRIES = 50
SETS = {
    "interpolation": Changes(links=((0.85, 1.18),), limits=((0.8, 1.0),), structure=(0, 1)),
    "extrapolation": Changes(links=((0.7, 0.85), (1.18, 1.4)), limits=((0.6, 0.8),), structure=(0, 1)),
    "composition": Changes(links=((0.85, 1.18),), limits=((0.8, 1.0),), structure=(2, 2)),
}
"""The changes of each set, by its name."""


def named_set(name: str) -> Changes:
    """The changes of a set. Raises MorphVlaError for an unknown name, naming the nearest."""
    if name not in SETS:
        raise MorphVlaError(f"no set '{name}'{nearest(name, SETS)} ({', '.join(SETS)})")
    return SETS[name]


def draw(
    robot: Robot, changes: Changes, seed: int, count: int = 1, label: str = "vary"
) -> tuple[Relative, ...]:
    """`count` relatives of a robot, named `ROBOT_LABELSEED_NUMBER`.

    Raises MorphVlaError for a robot without an arm, for changes that it cannot have, and where none of so
    many tries passes the check.
    """
    sound = not Draft(robot, random.Random(0)).unsound(robot)
    names = [f"{robot.name}_{label}{seed}_{index:03d}" for index in range(count)]
    return tuple(_drawn(robot, changes, name, sound) for name in names)


def summary(drawn: Sequence[Relative]) -> str:
    """A table: name, joints, reach, and what was changed."""
    header = ("robot", "joints", "reach [m]", "changes")
    rows = [(r.robot.name, len(r.robot.joints), r.reach, "; ".join(r.changes) or "none") for r in drawn]
    return "\n".join(table(header, rows))


def _drawn(robot: Robot, changes: Changes, name: str, sound: bool) -> Relative:
    why = ""
    for attempt in range(TRIES):
        draft = Draft(robot, random.Random(f"{name}/{attempt}"), sound)
        try:
            draft.change(changes)
            return draft.finished(name)
        except Rejected as rejected:
            why = str(rejected)
    raise MorphVlaError(
        f"no relative of {robot.name} passes the check in {TRIES} tries (the last: {why}); ask for less"
    )


def write(drawn: Sequence[Relative], folder: Path) -> list[Path]:
    """Each relative's URDF and side file, and `relatives.json`, which lists them all; returns the paths.

    Raises MorphVlaError, before anything is written, where another file has the name of a URDF or side file.
    """
    files = {folder / f"{item.robot.name}.urdf": item.text for item in drawn}
    files |= {folder / f"{item.robot.name}.yaml": item.side for item in drawn}
    for path, data in files.items():
        if path.is_file() and path.read_bytes() != data:
            raise MorphVlaError(f"{path} exists and is another file; choose another seed or folder")
    listed = [item.as_dict() for item in drawn]
    files[folder / "relatives.json"] = f"{json.dumps(to_plain(listed), indent=2)}\n".encode()
    for path, data in files.items():
        write_bytes(path, data)
    return [*files]
