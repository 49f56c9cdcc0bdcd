"""The journal of an evaluation: finished trials as they end, and what can be read of them meanwhile.

`trials.jsonl` begins with a line that says of which evaluation it is (`record` in it holds what the record
will say of suite, policy and engine), then has a line a finished trial, in the order in which they ended.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text
from morph_vla.results import identity

FILE_NAME = "trials.jsonl"
EARLIER = "earlier-"  # and a number: folders in which other evaluations are kept


class Journal:
    """Finished trials in a JSON-lines file, so that an interrupted evaluation goes on where it stopped.

    Another evaluation in the folder is moved into `earlier-1` in it (or the next number that is free), with
    its record and videos, and `say` is told so in a sentence that names what differs. A last line cut short
    is dropped.
    """

    def __init__(self, folder: Path | None, record: dict[str, Any], say: Callable[[str], None]):
        """`record` is what the evaluation's record will say of suite, policy and engine."""
        self._path = None if folder is None else folder / FILE_NAME
        self.trials: dict[int, dict[str, Any]] = {}
        if folder is None or self._path is None:
            return
        record = json.loads(json.dumps(record))  # as it will be read back
        own = identity.of_evaluation(record)
        if self._path.exists():
            first, *lines = [_parsed(line) for line in self._path.read_text().splitlines()] or [None]
            if isinstance(first, dict) and first.get("evaluation") == own:
                self.trials = {line["episode"]: line for line in lines if isinstance(line, dict)}
        words = _held(folder, record)
        if words is not None:
            say(f"{folder} held another evaluation ({words}); it is kept in {_set_aside(folder)}")
        kept = [{"evaluation": own, "record": record}, *self.trials.values()]
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in kept))

    def add(self, trial: dict[str, Any]) -> None:
        """Keep one finished trial."""
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps(trial) + "\n")


def read(folder: Path) -> dict[str, Any] | None:
    """The trials of `folder` so far, as a record with `unfinished`; None when there is no journal in it.

    An evaluation of several tasks keeps a journal a task, in a folder each: they are read as one. The last
    line of an evaluation that is being written may be cut short, and is left out.
    """
    own = [path for path in folder.glob(f"*/{FILE_NAME}") if not path.parent.name.startswith(EARLIER)]
    tasks = sorted(own, key=lambda p: p.stat().st_mtime)
    if (folder / FILE_NAME).is_file():
        return _one(folder / FILE_NAME)
    found = [_one(path) for path in tasks]
    if not found:
        return None
    trials = [
        {**trial, "task": trial.get("task") or path.parent.name}
        for path, one in zip(tasks, found, strict=True)
        for trial in one["trials"]
    ]
    return {**found[0], "trials": trials}


def newer(folder: Path) -> bool:
    """Whether the journal of `folder` has been written to since its record was."""
    journal, record = folder / FILE_NAME, folder / "record.json"
    if not record.is_file():
        return True
    return journal.is_file() and journal.stat().st_mtime > record.stat().st_mtime


def _held(folder: Path, record: dict[str, Any]) -> str | None:
    """In what another evaluation in `folder` differs from `record`; None where it has no trial of another."""
    for name in (FILE_NAME, "record.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            there = _one(path) if name == FILE_NAME else json.loads(path.read_text(encoding="utf-8"))
        except (MorphVlaError, ValueError):
            continue
        has_trials = isinstance(there, dict) and there.get("trials")
        if has_trials and identity.of_evaluation(there) != identity.of_evaluation(record):
            return _words(there, record)
    return None


def _words(there: dict[str, Any], here: dict[str, Any]) -> str:
    found = identity.differences(there, here)
    if found:
        return identity.listed(found, "there", "here")
    return f"schema {there.get('schema')}, which does not hold the whole suite"


def _set_aside(folder: Path) -> Path:
    """Move what an evaluation left in `folder` into a new folder in it, and return that."""
    numbers = (number for number in range(1, 1_000_000) if not (folder / f"{EARLIER}{number}").exists())
    target = folder / f"{EARLIER}{next(numbers)}"
    target.mkdir()
    for name in (FILE_NAME, "record.json", "videos"):
        if (folder / name).exists():
            (folder / name).rename(target / name)
    return target


def _one(path: Path) -> dict[str, Any]:
    lines = [_parsed(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if not lines or not isinstance(lines[0], dict) or "evaluation" not in lines[0]:
        raise MorphVlaError(f"{path}: not the journal of an evaluation: its first line does not name one")
    trials = {
        (str(line.get("task") or ""), line["episode"]): line
        for line in lines[1:]
        if isinstance(line, dict) and "episode" in line
    }
    facts = lines[0].get("record") or {}
    return {**facts, "kind": "evaluation", "unfinished": True, "trials": list(trials.values())}


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None
