"""A suite for each relative of a robot, tried with the scripted expert (`morph-vla robots vary --suites`)."""

import concurrent.futures
import functools
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla import process, robots
from morph_vla.demonstrations import new_suite
from morph_vla.demonstrations.check import ENOUGH
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.files import dropin
from morph_vla.files.writing import locked, write_bytes
from morph_vla.relatives import trials, vary
from morph_vla.relatives.draft import Changes, Relative
from morph_vla.relatives.trials import Trial
from morph_vla.suites import new
from morph_vla.suites.mounts import CameraSide
from morph_vla.termination import ending_workers


@dataclass(frozen=True)
class Job:
    """What is drawn, where it goes, and what the expert tries: all that a worker process needs."""

    robot: str
    """A name or a path"""
    folders: tuple[str, ...]
    """Where it is searched first"""
    changes: Changes
    folder: Path
    """URDFs and side files go here, suites into its `eval`"""
    tasks: tuple[str, ...]
    states: int
    camera_side: CameraSide = "ahead"

    def suite(self, name: str) -> Path:
        """The file of a body's suite."""
        return self.folder / dropin.KINDS["suites"][0] / f"{name}.yaml"


def settle(
    job: Job, names: Sequence[str], workers: int | None, progress: Callable[[int], None]
) -> dict[str, tuple[Trial, ...]]:
    """Each name's trials, in worker processes (default: one per core); what was tried before is kept.

    Raises MorphVlaError where the folder holds trials of other tasks under one of these names.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    known = trials.read(job.folder)
    drawn = {name + letter for name in names for letter in trials.AGAIN}
    for trial in known.values():
        if trial.name in drawn and trial.asked != (job.tasks, job.states, job.camera_side):
            options = f"--suites {','.join(trial.tasks)} --trials {trial.states}"
            options += f" --camera-side {trial.camera_side}"
            raise MorphVlaError(f"{job.folder}: {trial.name} was tried with {options}; choose another folder")
    settled: dict[str, tuple[Trial, ...]] = {}
    with concurrent.futures.ProcessPoolExecutor(
        min(workers or os.cpu_count() or 1, len(names)),
        mp_context=multiprocessing.get_context("spawn"),  # MuJoCo's threads do not survive a fork
        initializer=_prepare,
        initargs=(job.folder,),
    ) as pool:
        waiting = {pool.submit(_settled, job, name, known): name for name in names}
        try:
            with ending_workers():
                for done in concurrent.futures.as_completed(waiting):
                    tried = settled[waiting[done]] = done.result()
                    with locked(job.folder / trials.LOCK):  # what another process tried meanwhile stays
                        known = trials.read(job.folder) | {trial.name: trial for trial in tried}
                        trials.write(job.folder, known)
                    progress(len(settled))
        finally:
            pool.shutdown(cancel_futures=True)
    return {name: settled[name] for name in names}


def _prepare(folder: Path) -> None:
    process.end_with_parent()
    dropin.add_to_path(folder)


def _settled(job: Job, name: str, known: dict[str, Trial]) -> tuple[Trial, ...]:
    robot = robots.load(job.robot, job.folders)

    def attempt(relative: Relative) -> Trial:
        """What became of a body; one that was tried before is read."""
        before = known.get(relative.robot.name)
        if before is None or before.digest != relative.digest:
            return _tried(job, relative)
        return before if before.refused or job.suite(before.name).is_file() else _tried(job, relative)

    return trials.settle(robot, job.changes, name, attempt)


@functools.cache
def _works_level(robot: str, folders: tuple[str, ...]) -> bool:
    """Whether a robot's own table stands at the height of its root: its relatives then work over no other.

    So tasks differ by body alone, and which draw is refused does not hang on where else a table might stand.
    """
    try:
        return not new.plan(robots.load(robot, folders)).field.origin[2]
    except MorphVlaError:  # no place at all: each relative may look for its own
        return False


def _tried(job: Job, relative: Relative) -> Trial:
    """Write a body and its suite; a body in whose suite the expert fails leaves no file behind."""
    name, successes, refused = relative.robot.name, (), ""
    suite, there = job.suite(name), (job.folder / f"{name}.urdf").is_file()
    written = vary.write_bodies([relative], job.folder)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            made = new_suite.make(
                name, robots.load(name, [job.folder]), job.tasks, Path(scratch) / suite.name,
                trials=job.states, workers=1, level=_works_level(job.robot, job.folders),
                camera_side=job.camera_side,
            )  # fmt: skip
            text = made.path.read_bytes()
        successes = tuple(done.successes for done in made.kept)
        failing = [done for done in (*made.kept, *made.dropped) if done.successes < ENOUGH * job.states]
        refused = str(failing[0]).splitlines()[0] if failing else ""
    except MissingExtraError:  # of this machine, and no verdict on the body
        for path in () if there else written:
            path.unlink()
        raise
    except MorphVlaError as error:
        refused, text = str(error), b""
    if not refused:
        vary.refuse_another(suite, text)
        write_bytes(suite, text)
    elif not there:
        for path in written:
            path.unlink()
    return Trial(name, relative.digest, job.tasks, job.states, successes, refused, job.camera_side)
