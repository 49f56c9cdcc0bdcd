"""One record of a suite's several tasks, from the record of each.

Rates are pooled over the episodes of all tasks and given for each; the suite's facts hold each task's own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.results import statistics

SAME = (
    "schema",
    "kind",
    "policy",
    "engine",
    "open_loop",
    "overrides",
    "versions",
)  # what parts of one evaluation share


def combine(records: Sequence[Mapping[str, Any]], command: str = "") -> dict[str, Any]:
    """The record of one policy on all tasks, in the order given; videos are named from the common folder.

    A task's own record lies in the folder of its name. Raises MorphVlaError, naming what differs, for records
    that are no parts of one evaluation.
    """
    first = records[0]
    tasks: dict[str, Any] = {}
    for record in records:
        _check_same(first, record)
        again = tasks.keys() & record["suite"]["tasks"].keys()
        if again:
            raise MorphVlaError(f"task '{min(again)}' was evaluated twice")
        tasks |= record["suite"]["tasks"]
    trials = [
        {**trial, "video": f"{trial['task']}/{trial['video']}" if trial.get("video") else None}
        for record in records
        for trial in record["trials"]
    ]
    spent = [record.get("timing") or {} for record in records]
    keys = dict.fromkeys(key for one in spent for key in one)
    return {
        **first,
        "suite": {**first["suite"], "tasks": tasks},
        **({"stopped": _stopped(records, tasks)} if any("stopped" in record for record in records) else {}),
        "trials": trials,
        "summary": statistics.summarise(trials),
        "wall_s": round(sum(record["wall_s"] for record in records), 2),
        "timing": {key: round(sum(one.get(key, 0.0) for one in spent), 2) for key in keys},
        "notes": [note for record in records for note in record.get("notes", [])],
        "command": command or first["command"],
        "time": max(record["time"] for record in records),
    }


def _stopped(records: Sequence[Mapping[str, Any]], tasks: Mapping[str, Any]) -> dict[str, Any]:
    """How many episodes all tasks together saw of how many, and why each that was stopped was."""
    reasons = [
        f"{task}: {record['stopped']['reason']}"
        for task, record in zip(tasks, records, strict=True)
        if record.get("stopped")
    ]
    of = sum(
        record["stopped"]["of"] if record.get("stopped") else len(record["trials"]) for record in records
    )
    return {
        "reason": "; ".join(reasons),
        "episodes": sum(len(record["trials"]) for record in records),
        "of": of,
    }


def _check_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    shared = {key: (one.get(key), other.get(key)) for key in SAME}
    shared |= {
        f"suite.{key}": (value, other["suite"].get(key))
        for key, value in one["suite"].items()
        if key != "tasks"
    }
    for key, (a, b) in shared.items():
        if a != b:
            raise MorphVlaError(f"these tasks are no parts of one evaluation: {key} is {a} and {b}")
