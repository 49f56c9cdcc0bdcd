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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_bytes
from morph_vla.relatives.draft import Changes, Draft, Rejected, Relative
from morph_vla.robots.robot import Robot
from morph_vla.wording import table

TRIES = 50
SETS = {
    "interpolation": Changes(links=((0.85, 1.18),), limits=((0.8, 1.0),), structure=(0, 1)),
    "extrapolation": Changes(
        links=((0.7, 0.85), (1.18, 1.4)), base=1.0, limits=((0.6, 0.8),), structure=(0, 1)
    ),
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
    sound = _is_sound(robot)
    return tuple(_drawn(robot, changes, name, sound) for name in names(robot, seed, count, label))


def names(robot: Robot, seed: int, count: int, label: str = "vary") -> tuple[str, ...]:
    """What `count` relatives of a robot are called."""
    return tuple(f"{robot.name}_{label}{seed}_{index:03d}" for index in range(count))


def drawn(robot: Robot, changes: Changes, name: str) -> Relative:
    """The relative of that name. Raises as `draw`."""
    return _drawn(robot, changes, name, _is_sound(robot))


def _is_sound(robot: Robot) -> bool:
    return not Draft(robot, random.Random(0)).unsound(robot)


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


def summary(relatives: Sequence[Relative], expert: Mapping[str, str] | None = None) -> str:
    """A table: name, joints, reach, what was changed, and of each name how the `expert` did, if it tried."""
    header = ["robot", "joints", "reach [m]", "changes"]
    rows = [[r.robot.name, len(r.robot.joints), r.reach, "; ".join(r.changes) or "none"] for r in relatives]
    if expert is not None:
        header.insert(3, "expert")
        for row, relative in zip(rows, relatives, strict=True):
            row.insert(3, expert[relative.robot.name])
    return "\n".join(table(header, rows))


def write(relatives: Sequence[Relative], folder: Path) -> list[Path]:
    """Each relative's URDF and side file, and `relatives.json`, which lists them all; returns the paths.

    Those that were drawn into the folder before stay listed. Raises as `write_bodies`, and for another
    relatives.json.
    """
    listed, new = folder / "relatives.json", {item.robot.name: item.as_dict() for item in relatives}
    before = {name: fields for name, fields in _listed(listed).items() if name not in new}
    paths = write_bodies(relatives, folder)
    write_json(listed, [*before.values(), *new.values()])
    return [*paths, listed]


def _listed(path: Path) -> dict[str, dict[str, Any]]:
    """The relatives that a folder's list has, by name."""
    if not path.is_file():
        return {}
    try:
        return {str(fields["name"]): dict(fields) for fields in json.loads(path.read_bytes())}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MorphVlaError(f"{path} is no list of relatives; move it, or choose another folder") from error


def write_bodies(relatives: Sequence[Relative], folder: Path) -> list[Path]:
    """Each relative's URDF and side file; returns the paths.

    Raises MorphVlaError, before anything is written, where another file has one of these names.
    """
    files = {folder / f"{item.robot.name}.urdf": item.text for item in relatives}
    files |= {folder / f"{item.robot.name}.yaml": item.side for item in relatives}
    for path, data in files.items():
        refuse_another(path, data)
    for path, data in files.items():
        write_bytes(path, data)
    return [*files]


def refuse_another(path: Path, data: bytes) -> None:
    """Raise MorphVlaError where the file is there with other bytes: none is ever replaced."""
    if path.is_file() and path.read_bytes() != data:
        raise MorphVlaError(f"{path} exists and is another file; choose another seed or folder")


def write_json(path: Path, values: object) -> None:
    """Write plain values, or dataclasses."""
    write_bytes(path, f"{json.dumps(to_plain(values), indent=2)}\n".encode())
