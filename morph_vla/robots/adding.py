"""A robot, checked and put into the user's own folder: a URDF, and the side file that goes with it.

A MuJoCo model is added as a URDF of its bodies and joints. So a robot stays one kind of file: whoever reads
one needs no simulator, and its text, its findings and its digest are those of any other robot.
"""

import contextlib
import logging
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.files import typed_yaml
from morph_vla.files.dropin import KINDS, PATH_VARIABLE, available, check_name, search_path
from morph_vla.files.home import expanded
from morph_vla.files.writing import write_bytes
from morph_vla.robots import choose, limb, meshes, mjcf, parallel_jaw, template
from morph_vla.robots.descriptors import limits
from morph_vla.robots.examine import Examination, examine, examine_text
from morph_vla.robots.records import Joint
from morph_vla.robots.robot import Robot, action_order
from morph_vla.robots.side import Attached, Side, side_text
from morph_vla.robots.text import urdf_text
from morph_vla.wording import count

LOG = logging.getLogger(__name__)
MJCF = (".xml", ".mjcf")
MANY_FACES = 100_000
"""Of all meshes together, above which films take noticeably longer: three times with 200,000 in one link"""
OTHER_FORMATS = (".xacro", ".sdf", ".usd", ".usda", ".usdc")


@dataclass(frozen=True)
class Added:
    """A robot that was added."""

    robot: Robot
    urdf: Path
    """Its copy"""
    written: tuple[Path, ...]
    """The files written; what was there already, the same, is not among them"""
    side_file: str
    """The text of the side file, written or to be filled in"""
    hides: Path | None = None
    """Another robot's file of the same name, which is found no more"""
    kept: Path | None = None
    """A side file that was there, where none was to be written: from now on it is this robot's"""

    @property
    def is_used(self) -> bool:
        """Whether its name is found as this copy: another's may stand first on the search path."""
        first = available("robots").get(self.urdf.stem)
        return first is not None and first.resolve() == self.urdf.resolve()

    def __str__(self) -> str:
        """Warnings, what was written, and what to do next."""
        return "\n".join(_lines(self))


def add(
    examination: Examination,
    name: str = "",
    folder: Path | None = None,
    *,
    chosen: bool = False,
    write_side: bool = False,
) -> Added:
    """Copy an examined URDF, and the side file beside it, into `folder` (default: `user_folder()`).

    `name` is the robot's (default: the file's). With `chosen`, the joints were chosen in `examine`, and the
    side file beside the URDF is written with them; where there is none, one to fill in, as with `write_side`.
    A URDF that was made here has one in any case: it says where the numbers are from; the one it was made
    with, where that knows its gripper.

    Raises MorphVlaError as `Examination.loaded`, for a name that is a path, and, before anything is written,
    where another file is there: none is ever replaced.
    """
    source, robot = examination.path, examination.loaded()
    folder = folder or user_folder()
    check_name(name or source.stem, "robot")
    target = folder / f"{name or source.stem}.urdf"
    chosen = chosen or examination.text is not None
    side = _side_beside(examination, robot, chosen)
    complete = examination.text is not None and robot.side.grippers
    text = side or (side_text(robot.side) if complete else template.side_file(robot))
    data = source.read_bytes() if examination.text is None else examination.text
    beside = _meshes(examination, target)
    places = (place / target.name for place in search_path("robots"))
    hides = next((file for file in places if file.is_file() and file.resolve() != target.resolve()), None)
    files, side_path = {target: data}, target.with_suffix(".yaml")
    if side or write_side or chosen:
        files[side_path] = text.encode()
    kept = side_path if side_path.is_file() and side_path not in files else None
    return Added(robot, target, _write({**files, **beside}), text, hides, kept)


def _meshes(examination: Examination, target: Path) -> dict[Path, bytes]:
    """The meshes that are used of those beside an examined URDF, by where they go beside its copy.

    Nothing of a URDF that stays where it is. What is not used is warned of, with the reason.
    """
    source, urdf = examination.path, examination.urdf
    named = meshes.of(urdf, source) if examination.text is None else []
    absent = [each for each in named if each.path is None]
    if absent:
        LOG.warning(
            "%s: %d of its %d meshes cannot be used, and capsules stand in their place: '%s' %s%s",
            target.stem, len(absent), len(named), absent[0].name, absent[0].why,
            f", and {len(absent) - 1} more" if absent[1:] else "",
        )  # fmt: skip
    if (faces := sum(each.faces for each in named)) > MANY_FACES:
        LOG.warning("%s: its meshes have %d triangles: pictures of them take longer", target.stem, faces)
    if source.resolve() == target.resolve():
        return {}
    folder = meshes.kept_beside(target)
    return {folder / meshes.place_in(each.name): each.path.read_bytes() for each in named if each.path}


def _side_beside(examination: Examination, robot: Robot, chosen: bool) -> str:
    """The side file beside the URDF as it is, or, with `chosen`, with the robot's joints; "" for none."""
    beside = examination.side_path
    if beside is None or not chosen:
        return beside.read_text("utf-8") if beside else ""
    side, gripper = robot.side, typed_yaml.read(beside, Side).gripper
    if isinstance(gripper, Attached) and parallel_jaw.FINGER in robot.names:
        side = replace(side, gripper=gripper)  # the copy's URDF has no gripper either
    return f"# {beside.name} with the joints that were chosen (--joints).\n{side_text(side)}"


def add_arm(source: Path, name: str = "", folder: Path | None = None) -> Added:
    """Add the URDF of an arm as one that an action can drive: its joints and a gripper, as `limb.propose`.

    The side file beside the URDF is copied instead where there is one. A robot that is there with a side file
    of its own keeps it. Raises as `add` and `limb.find`.
    """
    examination = examine_new(source)
    target = (folder or user_folder()) / f"{name or source.stem}.urdf"
    if target.with_suffix(".yaml").is_file() or source.with_suffix(".yaml").is_file():
        added = add(examination, name, folder)
        return replace(added, robot=examine(added.urdf).loaded())
    examination.loaded()
    side = limb.propose(limb.find(examination.urdf))
    examine_text(source.read_bytes(), side, target).loaded()  # before anything is written
    added = add(examination, name, folder)
    head = f"# What {target.name} cannot say, from its kinematics: the arm's joints, and a gripper."
    text = f"{head}\n{side_text(side)}"
    written = _write({target.with_suffix(".yaml"): text.encode()})
    robot = examine(added.urdf).loaded()
    return replace(added, robot=robot, written=(*added.written, *written), side_file=text)


@contextlib.contextmanager
def only_if_used(source: Path, name: str = "", folder: Path | None = None) -> Iterator[Path]:
    """`add_arm`'s copy, taken away again where what follows fails.

    An arm that is refused is mended and given again: the copy of before would be another file of its name.
    """
    added = add_arm(source, name, folder)
    if added.hides and added.is_used:
        LOG.warning("robot '%s' is now %s and hides %s", added.urdf.stem, added.urdf, added.hides)
    try:
        yield added.urdf
    except BaseException:
        for path in added.written:
            path.unlink(missing_ok=True)
        _without_empty_folders(meshes.kept_beside(added.urdf))
        raise


def _without_empty_folders(folder: Path) -> None:
    """Take away folders that hold no file, from the deepest up."""
    for inner in sorted((path for path in (folder, *folder.rglob("*")) if path.is_dir()), reverse=True):
        if not any(inner.iterdir()):
            inner.rmdir()


def completed(robot: str, folders: Sequence[Path | str] = ()) -> AbstractContextManager[str | Path]:
    """A registered robot by its name; one that has no side file gets `add_arm`'s, as `only_if_used`."""
    path = available("robots", folders).get(robot)
    if path is None or path.with_suffix(".yaml").is_file():
        return contextlib.nullcontext(robot)
    return only_if_used(path, robot, path.parent)


def _lines(added: Added) -> Iterator[str]:
    robot, target, side = added.robot, added.urdf, added.urdf.with_suffix(".yaml")
    yield from (str(finding) for finding in robot.findings if finding.severity == "warning")
    folder = meshes.kept_beside(target)
    copied = [path for path in added.written if path.is_relative_to(folder)]
    yield from (f"wrote {path}" for path in added.written if path not in copied)
    if copied:
        yield f"wrote {folder}: {count(len(copied), 'mesh file')}"
    if target not in added.written:
        yield f"{target} is already there, the same"
    if more := choose.too_many(robot.urdf, robot.names):
        yield f"\n{more}"
    if added.kept:
        warning = "\nwarning: " if target in added.written else ""
        yield f"{warning}{added.kept} was there before, and is this robot's side file"
    if side not in added.written and not side.is_file():
        yield f"\nWhat a URDF cannot say goes into {side}, which is not written (--write-side writes it):\n"
        yield added.side_file.rstrip("\n")
    name = shlex.quote(target.stem)
    yield f"\nnext: `morph-vla robots draw {name}`, and look at the picture; then"
    yield f"      `morph-vla robots check {name} --episode YOUR_DATASET`"
    if added.hides and added.is_used:
        yield f"\nwarning: from here '{target.stem}' is now this robot and hides {added.hides}, also for the"
        yield "         suites and recipes that name it; `--name` gives it another name"
    elif added.hides:
        yield f"\nwarning: from here '{target.stem}' is still {added.hides}, not this robot; see --name"


def examine_new(source: Path, joints: Sequence[str] = ()) -> Examination:
    """`examine` a file that is to be added. Raises MorphVlaError for one that is not a URDF by its name."""
    suffix = source.suffix.lower()
    if suffix in OTHER_FORMATS:
        xacro = "run it through xacro first (`xacro robot.urdf.xacro > robot.urdf`)"
        remedy = xacro if suffix == ".xacro" else "convert it to URDF first"
        raise MorphVlaError(f"{source}: not a .urdf file; {remedy}")
    if source.is_dir():
        raise MorphVlaError(f"{source} is a folder; expected a .urdf file")
    if not source.is_file():
        raise MorphVlaError(f"no such file: {source}")
    if suffix != ".urdf":
        raise MorphVlaError(f"{source}: not a .urdf file")
    return examine(source, joints)


def examine_model(
    model: mjcf.MjModel,
    file: str,
    name: str,
    side: Side | None = None,
    *,
    root: str = "",
    strip: Sequence[str] = (),
    joints: Sequence[str] = (),
) -> Examination:
    """The URDF made of a compiled MuJoCo model, judged; its first keyframe is the rest pose.

    `file` is where the model is from; `name` the robot's. `root` and `strip` as in `mjcf.records`, `joints`
    as in `examine`. Raises as `mjcf.records`.
    """
    urdf, values = mjcf.records(model, file, root, strip), mjcf.home(model, strip)
    known = side or Side(source=f"{file}, an MJCF file")
    if values:
        order = action_order(urdf)
        rest = tuple(_in_range(urdf.by_name[joint], values[joint], file) for joint in order)
        known = replace(known, joints=order, rest=rest)
    path = Path(f"{name}.urdf")
    return examine_text(urdf_text(urdf).encode(), known, path, joints, urdf.problems)


def _in_range(joint: Joint, value: float, file: str) -> float:
    """A keyframe's value where the joint can be; what had to be cut is logged, a full turn makes no odds."""
    if joint.type == "continuous":
        return math.remainder(value, 2 * math.pi)
    low, high = limits(joint)
    if not low <= value <= high:
        LOG.warning(
            "%s: its keyframe has '%s' at %g, and %g to %g is its range", file, joint.name, value, low, high
        )
    return min(max(value, low), high)


def user_folder() -> Path:
    """Where a user's own robots go: the first folder of MORPH_VLA_PATH, else `./urdf_descriptors`.

    A folder that holds robots itself keeps doing so: a subfolder would be searched in its place.
    """
    name, suffix = KINDS["robots"]
    for entry in filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep)):
        folder = expanded(entry)
        flat = folder.name == name or any(folder.glob(f"*{suffix}"))
        return folder if flat and not (folder / name).is_dir() else folder / name
    return Path(name)


def _write(files: Mapping[Path, bytes]) -> tuple[Path, ...]:
    """Write those that are not there yet, and return them; before the first, refuse to replace another."""
    there = [path for path in files if path.is_file()]
    for path in there:
        if path.read_bytes() != files[path]:
            raise MorphVlaError(
                f"{path} exists and is another file: remove it to take this one, or give the robot another "
                "name"
            )
    missing = tuple(path for path in files if path not in there)
    for path in missing:
        write_bytes(path, files[path])
    return missing
