"""The demo's arm, its copy and its suite: made once in a folder, and anew where the arm has changed since.

What a user changed by hand is never replaced, nor is anything that was recorded or trained with the arm of
before. `demo.json` says of which arm a folder is, and how the demo left its files.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from morph_vla import robots
from morph_vla.demo.settings import ARM, TASKS, Settings
from morph_vla.demonstrations import new_suite
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_bytes, write_text
from morph_vla.robots import Robot, adding, meshes
from morph_vla.suites import suite as suites
from morph_vla.suites.suite import Suite

LOG = logging.getLogger(__name__)
FILE_NAME, PICTURE = "demo.json", "joint_graph.png"
HOURS = ("dataset", "train")
"""What a demo's folder has once something was recorded or trained"""


@dataclasses.dataclass(frozen=True)
class Made:
    """What an earlier run made in a folder; nothing is known of a folder without `demo.json`."""

    suite: str = ""
    """Its name"""
    robot: tuple[str, ...] = ()
    """The digests of its URDF and of its side file"""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The digests of the arm's files, by their names in the folder, as the demo left them"""


def tasks(folder: Path, settings: Settings) -> tuple[Suite, ...]:
    """The tasks of the demo's suite; a suite of its own is made by its first run, and where its arm changed.

    Raises MorphVlaError for a folder of another demo, where what is there is another arm's and is to stay,
    and as `adding.add_arm` and `new_suite.make` do.
    """
    made = read(folder)
    if made.suite and made.suite != settings.suite_name:
        raise MorphVlaError(
            f"{folder} is a demo of '{made.suite}'; give another folder for '{settings.suite_name}' (-o)"
        )
    before = _digests(folder, settings)
    known = _tasks(folder, settings, made)
    robot = robots.load(known[0].robot)
    if _is_another(robot, made):
        (folder / PICTURE).unlink(missing_ok=True)
    after = _digests(folder, settings)
    files = {
        name: made.files.get(name, "") if before.get(name) == now else now for name, now in after.items()
    }
    about = Made(settings.suite_name, _of(robot), files)
    write_text(folder / FILE_NAME, json.dumps(dataclasses.asdict(about), indent=1))
    return known


def read(folder: Path) -> Made:
    """What `demo.json` says; of a damaged one, nothing."""
    try:
        known = json.loads((folder / FILE_NAME).read_text("utf-8"))
        files = {str(name): str(digest) for name, digest in known["files"].items()}
        return Made(str(known["suite"]), tuple(map(str, known["robot"])), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Made()


def _tasks(folder: Path, settings: Settings, made: Made) -> tuple[Suite, ...]:
    if settings.robot is not None:
        with added(settings.robot, folder, made) as path:
            return _written(folder, settings.suite_name, robots.load(path), made)
    if settings.writes_suite:
        return _written(folder, settings.suite_name, robots.load(ARM), made, TASKS)
    return suites.load_tasks(settings.suite_name)


@contextlib.contextmanager
def added(source: Path, folder: Path, made: Made = Made()) -> Iterator[str | Path]:
    """A robot that is registered; of a file, the copy that the folder gets if it is used.

    A copy of an earlier file of this name gives way, with all that was made of it, and comes back where the
    new one is refused. Raises MorphVlaError as `tasks`.
    """
    is_name = str(source) == source.name and not source.suffix and not source.is_file()
    if is_name:
        with adding.completed(str(source)) as path:
            yield path
        return
    copy = folder / "urdf_descriptors" / f"{source.stem}.urdf"
    gone = _of_before(source, copy, folder, made) if source.is_file() else {}
    if gone:
        LOG.warning("%s has changed: its copy and its suite in %s are made anew", source, folder)
    for path in gone:
        path.unlink()
    try:
        with adding.only_if_used(source, "", copy.parent) as path:
            yield path
    except BaseException:
        for path, data in gone.items():
            write_bytes(path, data)
        raise


def _of_before(source: Path, copy: Path, folder: Path, made: Made) -> dict[Path, bytes]:
    """What the demo made of an earlier file, with its bytes: nothing where the copy is this one's."""
    side, theirs = copy.with_suffix(".yaml"), source.with_suffix(".yaml")
    pairs = {copy: source, side: theirs}
    changed = [mine for mine, given in pairs.items() if _differ(mine, given)]
    if not changed:
        return {}
    _check_hours(folder, f"{changed[0]} is not {pairs[changed[0]]}")
    there = [*_files(folder, source.stem)]
    by_hand = [path for path in there if not _is_as_made(folder, path, made)]
    if side in by_hand and not theirs.is_file():
        by_hand.remove(side)  # it stays: what the user wrote of the arm holds for the mended file too
        there.remove(side)
    if by_hand:
        what = f"{changed[0]} is not {pairs[changed[0]]}"
        what += "" if by_hand == changed[:1] else f", and {by_hand[0]} was changed by hand"
        raise MorphVlaError(f"{folder} is of another arm: {what}; choose another folder (-o), or remove it")
    return {path: path.read_bytes() for path in there}


def _check_hours(folder: Path, what: str) -> None:
    """Raise MorphVlaError where something was recorded or trained with the arm as it was."""
    if hours := [name for name in HOURS if (folder / name).exists()]:
        raise MorphVlaError(
            f"{folder} is of another arm: {what}, with which {folder / hours[0]} was made; choose another "
            "folder (-o)"
        )


def _differ(mine: Path, given: Path) -> bool:
    return mine.is_file() and given.is_file() and mine.read_bytes() != given.read_bytes()


def _written(
    folder: Path, name: str, robot: Robot, made: Made, tasks: Sequence[str] = (new_suite.DEFAULT,)
) -> tuple[Suite, ...]:
    """The suite that the demo made for the arm, or makes now."""
    path = _suite(folder, name)
    if path.exists() and _is_another(robot, made):
        _check_hours(folder, f"'{robot.name}' has changed")
        if not _is_as_made(folder, path, made):
            raise MorphVlaError(
                f"{path} was changed by hand, and '{robot.name}' has changed since: remove the file, which "
                "is then made anew, or choose another folder (-o)"
            )
        LOG.warning("%s is made anew: '%s' has changed", path, robot.name)
        new_suite.make(name, robot, tasks, path, overwrite=True)
    elif not path.exists():
        new_suite.make(name, robot, tasks, path)
    return suites.load_tasks(path)


def _suite(folder: Path, name: str) -> Path:
    return folder / "eval" / f"{name}.yaml"


def _of(robot: Robot) -> tuple[str, str]:
    return robot.urdf_sha256, robot.side_sha256


def _is_another(robot: Robot, made: Made) -> bool:
    """Whether an earlier run saw another URDF or side file of the robot."""
    return bool(made.robot) and made.robot != _of(robot)


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Those of an arm and of its suite that are there."""
    copy = folder / "urdf_descriptors" / f"{name}.urdf"
    several = [copy, copy.with_suffix(".yaml"), *meshes.kept_beside(copy).rglob("*"), _suite(folder, name)]
    return (path for path in several if path.is_file())


def _digests(folder: Path, settings: Settings) -> dict[str, str]:
    """Those of a suite of the demo's own, and of its arm's files."""
    paths = _files(folder, settings.suite_name) if settings.writes_suite else ()
    return {path.relative_to(folder).as_posix(): _digest(path) for path in paths}


def _is_as_made(folder: Path, path: Path, made: Made) -> bool:
    return made.files.get(path.relative_to(folder).as_posix()) == _digest(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
