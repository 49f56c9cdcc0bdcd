"""The journal of an evaluation: finished trials as they end, and what can be read of them meanwhile.

`trials.jsonl` begins with a line that says of which evaluation it is (`record` in it holds what the record
will say of suite, policy and engine), then has a line for each finished trial, in the order in which they
ended.
"""

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import taken, write_text
from morph_vla.results import identity, record
from morph_vla.results import trial as trials
from morph_vla.results.record import Json, Record, TaskFacts
from morph_vla.results.trial import Trial
from morph_vla.results.values import mapping
from morph_vla.suites.tasks import EARLIER

LOG = logging.getLogger(__name__)
FILE_NAME, LOCK = "trials.jsonl", ".evaluation.lock"
LEFT = FILE_NAME, record.FILE_NAME, "videos"  # what an evaluation leaves in its folder


@contextlib.contextmanager
def alone(folder: Path | None) -> Iterator[None]:
    """Nobody else evaluates into the folder within the block: two would append to one journal.

    Raises MorphVlaError where another process does.
    """
    if folder is None:
        yield
        return
    with taken(folder / LOCK) as is_ours:
        if not is_ours:
            raise MorphVlaError(f"{folder}: another process evaluates into it; wait, or give another folder")
        yield


class Journal:
    """Finished trials in a JSON-lines file, so that an interrupted evaluation goes on where it stopped.

    Another evaluation in the folder is moved into `earlier-1` in it (or the next number that is free), with
    its record and videos and a warning that names what differs. A last line that is cut short is dropped.
    """

    def __init__(self, folder: Path | None, begun: Record):
        """`begun` is the evaluation's record before its first trial."""
        self._folder = folder
        self.trials: dict[int, Trial] = {}
        if folder is None:
            return
        evaluation, other = identity.of_evaluation(begun), None
        for held in _held(folder):
            if identity.of_evaluation(held) != evaluation:
                other = other or (held if held.trials else None)
            elif held.unfinished or not self.trials:  # a finished record may have come without its journal
                self.trials = {trial.episode: trial for trial in held.trials}
        if other is not None:
            _set_aside(folder, _another(other, begun))
        elif why := _unreadable(folder):  # said before hours are spent, after which it could not be replaced
            _set_aside(folder, f"a record that cannot be read ({why})", (record.FILE_NAME,))
        _begin(folder, begun, self.trials.values())

    def add(self, trial: Trial) -> None:
        """Keep one finished trial."""
        if self._folder is not None:
            with (self._folder / FILE_NAME).open("a") as out:
                out.write(json.dumps(trial.to_json(self._folder)) + "\n")


def _begin(folder: Path, begun: Record, trials: Iterable[Trial]) -> None:
    """Write a journal that begins with these trials."""
    first = {"evaluation": identity.of_evaluation(begun), "record": begun.facts()}
    lines = [first, *(trial.to_json(folder) for trial in trials)]
    write_text(folder / FILE_NAME, "".join(json.dumps(line) + "\n" for line in lines))


def read(folder: Path) -> Record | None:
    """The trials of `folder` so far, as an unfinished record; None when there is no journal in it.

    An evaluation of several tasks keeps a journal for each, in a folder of its own: they are read as one.
    Tasks that another evaluation left, and this one has not come to yet, are left out with a warning. The
    last line of an evaluation that is being written may be cut short, and is left out too.
    """
    if (folder / FILE_NAME).is_file():
        return _read(folder)
    every = [_read(path.parent) for path in sorted(_of_tasks(folder), key=lambda path: path.stat().st_mtime)]
    if not every:
        return None
    newest = _shared(every[-1])
    parts = [part for part in every if _shared(part) == newest]
    if others := sorted(part.folder.name for part in every if _shared(part) != newest):
        LOG.warning("%s: left out, of another evaluation: %s", folder, ", ".join(others))
    named = [replace(trial, task=trial.task or part.folder.name) for part in parts for trial in part.trials]
    tasks: dict[str, TaskFacts] = {}
    for part in parts:
        for task, facts in part.suite.tasks.items():
            tasks.setdefault(task, facts)
    return replace(parts[0], suite=replace(parts[0].suite, tasks=tasks), trials=tuple(named), folder=folder)


def _of_tasks(folder: Path) -> list[Path]:
    """The journals of an evaluation's tasks."""
    return [path for path in folder.glob(f"*/{FILE_NAME}") if not path.parent.name.startswith(EARLIER)]


def _shared(evaluation: Record) -> str:
    """What the tasks of one evaluation share, as a digest."""
    return identity.of_evaluation(replace(evaluation, suite=replace(evaluation.suite, tasks={})))


def _is_told(folder: Path, unfinished: Record) -> bool:
    """Whether the record of `folder` has every trial of its journals: then it says more than they do.

    A journal is written anew by who only looks whether all is there, and may be copied after its record.
    """
    with contextlib.suppress(MorphVlaError):
        if (folder / record.FILE_NAME).is_file():
            whole = record.read(folder)
            has_all = {trial.key for trial in unfinished.trials} <= {trial.key for trial in whole.trials}
            return has_all and _shared(whole) == _shared(unfinished)
    return False


def newer(folder: Path) -> bool:
    """Whether a journal of `folder` has been written to since its record was."""
    journal, path = folder / FILE_NAME, folder / record.FILE_NAME
    if not path.is_file():
        return True
    journals = [journal] if journal.is_file() else _of_tasks(folder)
    return any(each.stat().st_mtime > path.stat().st_mtime for each in journals)


def make_room(folder: Path, begun: Mapping[str, Record]) -> None:
    """Make room in `folder` for the record of several tasks, each of which has a folder of its own in it.

    `begun` has of each task its record before its first trial. One task's evaluation in `folder` itself moves
    into that task's folder, where it goes on, and a record whose tasks have no folders (of `merge`, or copied
    alone) is dealt out to them. What is of another evaluation, such as a record of other tasks or by another
    policy, and every task of which one key was changed since, moves into `earlier-1` at once: half of it
    beside half of this one would be read as one evaluation.
    """
    tasks, first = begun.keys(), next(iter(begun.values()))
    if why := _unreadable(folder):
        _set_aside(folder, f"a record that cannot be read ({why})", (record.FILE_NAME,))
    if not (folder / FILE_NAME).exists() and (folder / record.FILE_NAME).is_file():
        whole = record.read(folder)
        others = _others(whole, begun)
        if _shared(whole) != _shared(first):
            _set_aside(folder, _another(whole, first), (record.FILE_NAME, *whole.suite.tasks))
        elif others:
            _set_aside(folder, _another(whole, begun[others[0]]), (record.FILE_NAME, *others))
        else:
            _deal(folder, whole, begun)
    elif not (folder / FILE_NAME).exists():
        held_by = {task: _held(folder / task) for task in tasks}
        others = [task for task, held in held_by.items() if held and _others(held[0], {task: begun[task]})]
        if others:
            _set_aside(folder, _another(held_by[others[0]][0], begun[others[0]]), others)
    held = [task for evaluation in _held(folder) for task in evaluation.suite.tasks]
    if not (folder / FILE_NAME).exists() and set(held) <= set(tasks):
        return
    if held and held[0] in tasks and not (folder / held[0]).exists():
        LOG.info("%s held the evaluation of task '%s'; it goes on in %s", folder, held[0], folder / held[0])
        _move(folder, folder / held[0])
    else:
        _set_aside(folder, f"an evaluation of {', '.join(dict.fromkeys(held)) or 'another task'}")


def _others(held: Record, begun: Mapping[str, Record]) -> list[str]:
    """The tasks of which `held` is another evaluation than the one that begins."""
    tasks = [task for task in held.suite.tasks if task in begun]
    of = identity.of_evaluation
    return [task for task in tasks if of(_of_task(held, task)) != of(begun[task])]


def _of_task(evaluation: Record, task: str) -> Record:
    """An evaluation's record of one of its tasks alone."""
    suite = replace(evaluation.suite, tasks={task: evaluation.suite.tasks[task]})
    trials = tuple(trial for trial in evaluation.trials if trial.task in (task, ""))
    return replace(evaluation, suite=suite, trials=trials)


def _deal(folder: Path, whole: Record, begun: Mapping[str, Record]) -> None:
    """Write the trials of a record into journals of its tasks that have no folder, without their videos."""
    for task in begun:
        if task in whole.suite.tasks and not (folder / task).exists():
            trials = [replace(trial, video=None) for trial in _of_task(whole, task).trials]
            _begin(folder / task, begun[task], trials)
            LOG.info(
                "%s has %d episodes of '%s', which go on in %s", folder, len(trials), task, folder / task
            )


def _held(folder: Path) -> list[Record]:
    """What an earlier evaluation left in `folder`, as far as it can be read: its journal, then its record."""
    held = []
    for name, reader in ((FILE_NAME, _read), (record.FILE_NAME, record.read)):
        if (folder / name).is_file():
            with contextlib.suppress(MorphVlaError):
                held.append(reader(folder))
    return held


def _unreadable(folder: Path) -> str:
    """Why the record in `folder` cannot be read; "" where it can, or where there is none."""
    try:
        if (folder / record.FILE_NAME).is_file():
            record.read(folder)
    except MorphVlaError as error:
        return str(error)
    return ""


def _another(there: Record, here: Record) -> str:
    """An evaluation that `here` does not go on with, in words that name what differs."""
    differences = identity.listed(identity.differences(there, here), "there", "here")
    less = f"schema {there.schema}, which says less of the suite than this one"
    return f"another evaluation ({differences or less})"


def _set_aside(folder: Path, evaluation: str, names: Sequence[str] = LEFT) -> None:
    """Move what an evaluation left in `folder` into a new folder in it, and warn of it."""
    numbers = (number for number in range(1, 1_000_000) if not (folder / f"{EARLIER}{number}").exists())
    target = folder / f"{EARLIER}{next(numbers)}"
    LOG.warning("%s held %s; it is kept in %s", folder, evaluation, target)
    _move(folder, target, names)


def _move(folder: Path, target: Path, names: Sequence[str] = LEFT) -> None:
    target.mkdir()
    for name in names:
        if (folder / name).exists():
            (folder / name).rename(target / name)


def _read(folder: Path) -> Record:
    path = folder / FILE_NAME
    # A damaged line costs its own trial, which is played again; the others stay.
    first, *lines = map(_parsed, path.read_text(encoding="utf-8", errors="replace").splitlines() or [""])
    if "evaluation" not in first:
        raise MorphVlaError(f"{path}: not the journal of an evaluation: its first line does not name one")
    finished = [trial for line in lines if "episode" in line and (trial := _trial(line, folder)) is not None]
    last = {trial.key: trial for trial in finished}  # one that was filmed afterwards is there twice
    begun = record.record_from_json({**mapping(first.get("record")), "trials": []}, folder)
    return replace(begun, unfinished=True, trials=tuple(last.values()))


def _parsed(line: str) -> Json:
    """A line of the journal; an empty mapping where it was cut short, or is damaged."""
    try:
        return mapping(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def _trial(line: Json, folder: Path) -> Trial | None:
    """A line's trial; None, and a warning, where the line is damaged."""
    try:
        return trials.from_json(line, folder)
    except MorphVlaError as error:
        LOG.warning("%s: a line is damaged (%s); its episode is played again", folder / FILE_NAME, error)
        return None


def so_far(given: Path) -> Record:
    """An evaluation that may still run, by its folder or a file in it: its record, or a journal with more.

    Raises MorphVlaError as `record.read` does where there is neither.
    """
    if given.name == FILE_NAME and given.is_file():
        given = given.parent
    unfinished = read(given) if given.is_dir() and newer(given) else None
    return record.read(given) if unfinished is None or _is_told(given, unfinished) else unfinished
