"""Running a grid: what is missing of it, cell by cell, each kept as a record of a few KB a body.

    FOLDER/records/SPLIT/CONDITION/SEED.json   finished cells: the only thing worth keeping
    FOLDER/failed/SPLIT/CONDITION/SEED.txt     why a cell failed; the next run tries it again
    FOLDER/work/SPLIT/CONDITION/SEED/          checkpoints and evaluations of a cell under way
    FOLDER/locks/SPLIT/CONDITION/SEED          empty, held by the process that is at the cell; never removed
    FOLDER/frames/                             pictures, decoded once for all cells; removed after the last

A killed cell continues from its newest checkpoint, or from its last episode. Several processes may run in one
folder: each takes cells that no other is at.
"""

import json
import logging
import shlex
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from morph_vla.doctor import machine
from morph_vla.engines.engine import Policy
from morph_vla.errors import MorphVlaError, reason
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.evidence import theirs
from morph_vla.evidence.grid import Cell, Grid, Plan, cells, digest, is_seen, plan
from morph_vla.evidence.same import check_judged, check_recordings, check_settings, described
from morph_vla.evidence.status import RECORDS, failure_of, read_all, record_of
from morph_vla.files.writing import taken, write_text
from morph_vla.hosts.lerobot import options
from morph_vla.hosts.lerobot.options import Training
from morph_vla.hosts.lerobot.theirs import LerobotPolicy
from morph_vla.process import source, versions
from morph_vla.results import cells as results
from morph_vla.results.cells import CellRecord, Judged
from morph_vla.results.trial import ERROR
from morph_vla.serving import policy as policies
from morph_vla.termination import Terminated
from morph_vla.training import loop
from morph_vla.wording import count, span

LOG = logging.getLogger(__name__)
WORK, LOCKS, FRAMES = "work", "locks", "frames"
Bars = Callable[[str, str], AbstractContextManager[Any]]
"""(label, unit) -> progress bars with `trained` and `evaluated`"""


@dataclass(frozen=True)
class Settings:
    """How much of a grid is run, and where."""

    folder: Path
    grid: str = ""
    """Its file, for the commands in records"""
    part: tuple[int, int] = (1, 1)
    """This machine's share: k of n, from 1"""
    only: Sequence[str] = ()
    """These cells, by their names; all where none is named"""
    most: int | None = None
    """No more cells than that"""
    keep_weights: bool = False
    folders: Sequence[Path | str] = ()


@dataclass(frozen=True)
class Ran:
    """What a run did."""

    measured: int
    failed: int
    there: int
    """Cells that had been measured before"""

    def __str__(self) -> str:
        parts = [f"{self.there} already there"] if self.there else []
        parts += [f"{self.failed} failed (`morph-vla evidence status` says why)"] if self.failed else []
        return ", ".join([f"{count(self.measured, 'cell')} measured", *parts])


@dataclass(frozen=True)
class _Trained:
    """What a cell's training left, whoever trained it."""

    checkpoint: Path
    parameters: int | None
    loss: float | None
    held_out_loss: float | None
    versions: Mapping[str, str]
    """Of what the trainer stands on, beside ours"""


def run(grid: Grid, settings: Settings, bars: Bars, say: Callable[[str], None] = LOG.info) -> Ran:
    """Measure the cells that are missing; a line each, with the time that is left.

    A cell that fails is noted and the others go on. Raises MorphVlaError for records of other settings, and
    Terminated where SIGTERM stopped a training.
    """
    chosen = _chosen(grid, settings)
    known, planned = read_all(settings.folder), plan(grid, settings.folders)
    wanted = {cell.name: digest(planned.settings(cell)) for cell in chosen}
    check_settings(settings.folder / RECORDS, wanted, known)
    check_recordings(planned, [cell for cell in chosen if cell.name in known], known)
    missing = [cell for cell in chosen if cell.name not in known]
    check_judged(planned, missing, known)
    there, measured, failed = len(chosen) - len(missing), 0, 0
    began = time.monotonic()
    for index, cell in enumerate(missing):
        if settings.most is not None and measured + failed >= settings.most:
            break
        with taken(settings.folder / LOCKS / cell.name) as free:
            if not free or record_of(settings.folder, cell).exists():
                continue  # another process is at it, or was
            began_cell = time.monotonic()
            try:
                record = _measure(planned, cell, settings, bars)
            except Exception as error:
                failed += 1
                write_text(failure_of(settings.folder, cell), _failure(error))
                say(f"{cell.name} failed: {reason(error)}")
                continue
            measured += 1
            failure_of(settings.folder, cell).unlink(missing_ok=True)
            if not settings.keep_weights:
                shutil.rmtree(settings.folder / WORK / cell.name, ignore_errors=True)
        jax.clear_caches()  # the next condition is another program
        left = len(missing) - index - 1
        if settings.most is not None:
            left = min(left, settings.most - measured - failed)
        pace = (time.monotonic() - began) / (measured + failed)
        rest = f"; {left} left, about {span(left * pace)}" if left else ""
        say(f"{there + measured}/{len(chosen)}  {record}  ({span(time.monotonic() - began_cell)}{rest})")
    _tidy(settings, grid)
    return Ran(measured, failed, there)


def _tidy(settings: Settings, grid: Grid) -> None:
    """Remove the decoded pictures, some gigabytes, where no cell of this part will read them again."""
    part = cells(grid) if settings.only else cells(grid, settings.part)
    if all(record_of(settings.folder, cell).exists() for cell in part):
        remove_frames(settings.folder)


def remove_frames(folder: Path) -> None:
    """Remove a study's decoded pictures, unless a process is at a cell there; the next run decodes anew."""
    for lock in [path for path in (folder / LOCKS).rglob("*") if path.is_file()]:
        with taken(lock) as free:
            if not free:
                return
    shutil.rmtree(folder / FRAMES, ignore_errors=True)


def _chosen(grid: Grid, settings: Settings) -> tuple[Cell, ...]:
    if not settings.only:
        return cells(grid, settings.part)
    if settings.part != (1, 1):
        raise MorphVlaError(
            "a part (--shard) and cells by name (--only) both choose the cells; give one of them"
        )
    by_name = {cell.name: cell for cell in cells(grid)}
    for name in settings.only:
        if name not in by_name:
            raise MorphVlaError(f"no cell '{name}'; expected SPLIT/CONDITION/SEED of this grid")
    return tuple(by_name[name] for name in dict.fromkeys(settings.only))


def _failure(error: Exception) -> str:
    """Why a cell failed: the sentence of what a user can repair, the trace of anything else."""
    if isinstance(error, MorphVlaError):
        return f"{error}\n"
    return f"{reason(error)}\n\n{''.join(traceback.format_exception(error))}"


def _measure(planned: Plan, cell: Cell, settings: Settings, bars: Bars) -> CellRecord:
    """Train, judge, and write the record."""
    work, facts = settings.folder / WORK / cell.name, planned.settings(cell)
    datasets, code = described(planned, cell.split), source()
    _begin(work, digest({**facts, "described": datasets}), cell.name)
    with _timed(work, "train") as note, bars(f"training {cell.name}", "step") as bar:
        trained = _train(planned, cell, work / "train", settings.folder / FRAMES, _noting(note, bar.trained))
    with _timed(work, "evaluate") as note, bars(f"judging {cell.name}", "episode") as bar:
        on_report = _noting(note, bar.evaluated)
        bodies = tuple(_judge(planned, cell, trained.checkpoint, work, on_report))
    words = ["morph-vla", "evidence", "run", settings.grid, "--only", cell.name, "-o", "FOLDER"]
    record = CellRecord(
        split=cell.split,
        condition=cell.condition,
        seed=cell.seed,
        settings_sha256=digest(facts),
        settings=facts,
        datasets=datasets,
        parameters=trained.parameters,
        loss=trained.loss,
        held_out_loss=trained.held_out_loss,
        judged=bodies,
        seconds=_spent(work),
        machine=machine(),
        versions={**versions(), **trained.versions, "source": code},
        command=shlex.join(words),
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    results.write(record, record_of(settings.folder, cell))
    return record


def _train(planned: Plan, cell: Cell, folder: Path, frames: Path, on_report: Callable[..., None]) -> _Trained:
    """By our trainer, whose decoded pictures are in `frames`, or by LeRobot's.

    Raises Terminated where SIGTERM stopped it: the next run does the rest.
    """
    if isinstance(planned.conditions[cell.condition], Training):
        made = theirs.train(planned, cell, folder, on_report)
        return _Trained(made.checkpoint, made.parameters, made.loss, None, options.versions())
    trained = loop.train(planned.recipe(cell), folder, on_report=on_report, frames=frames)
    if trained.stopped:
        raise Terminated
    loss, held_out_loss = (_last(trained.curve, key) for key in ("loss", "held_out_loss"))
    return _Trained(trained.checkpoint, trained.parameters, loss, held_out_loss, {})


def _begin(work: Path, settings_sha256: str, name: str) -> None:
    """Note which settings a cell is begun under, and remove what was begun under others.

    A training of another recipe would refuse to go on in that folder, now and at every later run.
    """
    path = work / BEGUN
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    begun = [work / part for part in ("train", "eval", SPENT) if (work / part).exists()]
    if begun and known != settings_sha256:
        LOG.warning("%s was begun under other settings than this grid's: it begins anew", name)
        for part in begun:
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    write_text(path, settings_sha256)


def _last(curve: Sequence[dict[str, Any]], key: str) -> float | None:
    """The last value of a log's lines."""
    values = [line[key] for line in curve if line.get(key) is not None]
    return values[-1] if values else None


def _judge(
    planned: Plan, cell: Cell, checkpoint: Path, work: Path, on_report: Callable[..., None]
) -> Iterator[Judged]:
    """Each body of the split; the parameters are read once.

    Raises MorphVlaError where rows broke: they say nothing of the policy, and would count as failures of it.
    """
    grid = planned.grid
    policy_of = _policies(planned, cell, checkpoint)
    for name in grid.splits[cell.split].judge:
        task, seen = planned.tasks[name], is_seen(grid, cell.split, name)
        policy = policy_of(task.robot)
        folder = work / "eval" / name
        record = evaluate(
            policy, task, folder=folder, name=name, episodes=grid.episodes, videos=0, progress=on_report
        )
        if broken := [trial for trial in record.trials if trial.outcome == ERROR]:
            shutil.rmtree(folder, ignore_errors=True)  # or the next run would read these rows back
            rows = f"{len(broken)} of {len(record.trials)} rows broke"
            raise MorphVlaError(f"{name}: {rows}: {broken[0].error}")
        yield results.judged(record, name, seen)


def _policies(planned: Plan, cell: Cell, checkpoint: Path) -> Callable[[str], Policy]:
    """The policy of a cell for a robot; its parameters are read once."""
    if isinstance(planned.conditions[cell.condition], Training):
        theirs_alone = LerobotPolicy(checkpoint)
        return lambda _: theirs_alone
    grid, loaded = planned.grid, None

    def ours(robot: str) -> Policy:
        """The checkpoint driving that robot."""
        nonlocal loaded
        policy = policies.load(
            checkpoint, robot=robot, batch=policies.EVALUATION_BATCH, loaded=loaded,
            steps=grid.sampler_steps, noise=grid.noise,
        )  # fmt: skip
        loaded = policy.loaded
        return policy

    return ours


@contextmanager
def _timed(work: Path, stage: str) -> Iterator[Callable[[], None]]:
    """Add the seconds of this block to those that the stage took before it was interrupted.

    Yields what notes them on the way, so that a process which is killed loses a few at most.
    """
    before, began = _spent(work).get(stage, 0.0), time.monotonic()
    noted = began

    def note(least: float = NOTED) -> None:
        """Write the seconds down, if so many have passed since the last time."""
        nonlocal noted
        now = time.monotonic()
        if now - noted >= least:
            noted = now
            seconds = round(before + now - began, 1)
            write_text(work / SPENT, json.dumps(_spent(work) | {stage: seconds}))

    try:
        yield note
    finally:
        note(0.0)


def _noting(note: Callable[[], None], tell: Callable[..., None]) -> Callable[..., None]:
    """`tell`, and the time."""

    def on_report(*facts: object) -> None:
        """Note the time, then tell."""
        note()
        tell(*facts)

    return on_report


def _spent(work: Path) -> dict[str, float]:
    path = work / SPENT
    return json.loads(path.read_text()) if path.exists() else {}


SPENT, BEGUN = "seconds.json", "settings.sha256"
NOTED = 5.0  # [s]
