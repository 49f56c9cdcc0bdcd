"""One record of a suite's several tasks, from the record of each.

Rates are pooled over the episodes of all tasks and given for each; the suite's facts hold each task's own.
"""

from collections.abc import Sequence
from dataclasses import replace

from morph_vla.errors import MorphVlaError
from morph_vla.results.record import Record, Stopped, TaskFacts


def combine(records: Sequence[Record], command: str = "") -> Record:
    """The record of one policy on all tasks, in the order given.

    A task's own record lies in the folder of its name. Raises MorphVlaError, naming what differs, for records
    that are no parts of one evaluation.
    """
    first = records[0]
    tasks: dict[str, TaskFacts] = {}
    for record in records:
        _check_same(first, record)
        again = tasks.keys() & record.suite.tasks.keys()
        if again:
            raise MorphVlaError(f"task '{min(again)}' was evaluated twice")
        tasks |= record.suite.tasks
    names = dict.fromkeys(name for record in records for name in record.timing)
    return replace(
        first,
        suite=replace(first.suite, tasks=tasks),
        stopped=_stopped(records, list(tasks)) if any(record.stopped for record in records) else None,
        trials=tuple(trial for record in records for trial in record.trials),
        wall_s=round(sum(record.wall_s or 0.0 for record in records), 2),
        timing={name: round(sum(record.timing.get(name, 0.0) for record in records), 2) for name in names},
        notes=tuple(note for record in records for note in record.notes),
        command=command or first.command,
        time=max(record.time for record in records),
        folder=first.folder.parent,
    )


def _stopped(records: Sequence[Record], tasks: Sequence[str]) -> Stopped:
    """How many episodes all tasks together saw of how many, and why each that was stopped was."""
    ends = [record.stopped for record in records]
    reasons = [f"{task}: {end.reason}" for task, end in zip(tasks, ends, strict=True) if end]
    of = sum(end.of if end else len(record.trials) for end, record in zip(ends, records, strict=True))
    return Stopped(sum(len(record.trials) for record in records), of, "; ".join(reasons))


def _check_same(one: Record, other: Record) -> None:
    a, b = (_shared(record) for record in (one, other))
    for key in a | b:
        if a.get(key) != b.get(key):
            raise MorphVlaError(
                f"these tasks are no parts of one evaluation: {key} is {a.get(key)} and {b.get(key)}"
            )


def _shared(record: Record) -> dict[str, object]:
    """What parts of one evaluation share."""
    facts, suite = record.facts(), record.suite.to_json()
    shared = {key: facts.get(key) for key in ("schema", "policy", "engine", "open_loop", "overrides")}
    shared |= {f"suite.{key}": value for key, value in suite.items() if key != "tasks"}
    return {**shared, "versions": record.versions}
