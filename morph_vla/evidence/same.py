"""Whether what finished cells were measured with is what is here now, before hours are spent beside them.

`asked` holds records against what a grid says; here it is what the grid's names stand for on this machine:
settings, recordings and robots that were trained on, suites and bodies that judged.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import benchmark
from morph_vla.evidence.grid import Cell, Plan, as_read_now, digest
from morph_vla.results.cells import CellRecord, Judged
from morph_vla.wording import count

LOG = logging.getLogger(__name__)
DESCRIBED = ("meta/info.json", "recording.json")
URDF, SIDE = "URDF", "side file"


def described(planned: Plan, split: str) -> dict[str, str]:
    """`BODY/FILE` -> SHA-256 of what describes each body that a split trains on: the dataset's layout and
    recording, and the robot's URDF and side file where it has one.
    """
    files: dict[str, str] = {}
    for name in planned.grid.splits[split].train:
        folder, robot = Path(planned.grid.bodies[name].dataset), planned.tasks[name].robot
        paths = (folder / file for file in DESCRIBED)
        whole = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}
        files |= {f"{name}/{path.relative_to(folder).as_posix()}": sha for path, sha in whole.items()}
        if robot:
            known = robots.load(robot)
            files |= {f"{name}/{URDF}": known.urdf_sha256, f"{name}/{SIDE}": known.side_sha256}
    return files


def check_settings(folder: Path, wanted: dict[str, str], known: dict[str, CellRecord]) -> None:
    """Raise MorphVlaError where a finished cell was measured under other settings than the grid's."""
    others = [name for name, sha in wanted.items() if name in known and not _is_of(known[name], sha)]
    if others:
        raise MorphVlaError(
            f"{folder}: {count(len(others), 'cell')} measured under other settings than this "
            f"grid's, first {others[0]}; give another folder, or remove those records"
        )


def _is_of(record: CellRecord, settings_sha256: str) -> bool:
    """Whether a record is of these settings, or of what was known of them when it was measured."""
    return settings_sha256 == record.settings_sha256 or settings_sha256 == digest(
        as_read_now(record.settings)
    )


def check_recordings(planned: Plan, cells: Sequence[Cell], known: Mapping[str, CellRecord]) -> None:
    """Raise MorphVlaError where a dataset is another than the one that a finished cell was trained on."""
    here = {split: described(planned, split) for split in {cell.split for cell in cells}}
    for cell in cells:
        for what, sha in known[cell.name].datasets.items():
            if here[cell.split].get(what, sha) != sha:
                body, _, file = what.partition("/")
                kind = "robot under" if file in (URDF, SIDE) else "recording of"
                raise MorphVlaError(
                    f"{cell.name} was trained on another {kind} '{body}' than the one that is here "
                    f"({file} is another); bring the earlier one back, or give another folder"
                )


def check_judged(planned: Plan, missing: Sequence[Cell], known: Mapping[str, CellRecord]) -> None:
    """Raise MorphVlaError where a finished cell was judged in another suite than a missing one would be.

    Cells of one seed are compared row by row. Where seeds differ too, `report --within-seeds` takes both:
    that is logged.
    """
    here: dict[str, tuple[str | None, str | None]] = {}
    for record in known.values():
        is_ours = record.condition in planned.conditions
        seeds = {cell.seed: cell for cell in missing if is_ours and cell.split == record.split}
        for body in record.judged if seeds else ():
            if body.body not in planned.tasks:
                continue
            if body.body not in here:
                here[body.body] = _judges(planned, body.body)
            for what in _others(body, here[body.body]):
                words = f"{record.name} judged '{body.body}' by another {what} than the one that is here"
                if record.seed in seeds:
                    raise MorphVlaError(
                        f"{words}, and {seeds[record.seed].name} is to be compared with it row by row; bring "
                        "the earlier one back, or give another folder"
                    )
                LOG.warning("%s: a report on both wants --within-seeds", words)


def _judges(planned: Plan, name: str) -> tuple[str | None, str | None]:
    """SHA-256 of the suite that judges on a body, and of its URDF, as records have them."""
    facts = benchmark.of(planned.tasks[name]).facts()
    (task,) = facts.tasks.values()
    return task.resolved_sha256, facts.urdf_sha256


def _others(body: Judged, here: tuple[str | None, str | None]) -> Iterator[str]:
    """What is another now; what one of the two does not know is none."""
    then = body.resolved_sha256, body.urdf_sha256
    for what, old, new in zip(("suite", "URDF"), then, here, strict=True):
        if None not in (old, new) and old != new:
            yield what
