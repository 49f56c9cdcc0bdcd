"""Parts of one evaluation, made into the record that one evaluation would have written.

Parts are records, finished or not, of the same suite, policy, open loop and engine: two machines that each
took half of the table, or an evaluation and the rest of it. Pure functions of records; `videos` copies files.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.results import identity
from morph_vla.results.comparison import Key, by_key
from morph_vla.results.films import poster_of
from morph_vla.results.statistics import check_trials, summarise, trials_of

ABSENT = "(not said)"
DIGESTS = ("resolved_sha256",)  # of what is compared itself
SINCE_3 = (".resolved.", ".sampler.", "policy.batch")  # facts that records before schema 3 do not have
NAMES = ("name", "checkpoint")  # of a policy: where it lay, which may differ between two machines


def merge(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One record of the trials of all parts (where they are from -> record); their order does not matter.

    An episode that several parts have must have ended in the same way in each. `parts` of the result says
    what each part was. Raises MorphVlaError for parts of different evaluations, with both sides of every
    difference, and for episodes that ended differently, with their numbers.
    """
    if len(parts) < 2:
        raise MorphVlaError("merging takes two parts or more")
    names = sorted(parts)
    for name in names[1:]:
        _check_same(names[0], parts[names[0]], name, parts[name])
    trials: dict[Key, Mapping[str, Any]] = {}
    owner: dict[Key, str] = {}
    for name in names:
        check_trials(trials_of(parts[name]))
        for key, trial in by_key(trials_of(parts[name])).items():
            if key in trials:
                _check_equal(key, owner[key], trials[key], name, trial)
            if key not in trials or not trials[key].get("video"):
                trials[key], owner[key] = trial, name
    records = [parts[name] for name in names]
    shared = _shared(records)
    ordered = [trials[key] for key in sorted(trials, key=lambda key: _place(shared, key))]
    return {**shared, "trials": ordered, "summary": summarise(ordered), **_made(records)}


def owners(parts: Mapping[str, Mapping[str, Any]]) -> dict[Key, str]:
    """(task, episode) -> the part whose video of it is taken: the first by name that has one."""
    found: dict[Key, str] = {}
    for name in sorted(parts, reverse=True):
        found |= {key: name for key, trial in by_key(trials_of(parts[name])).items() if trial.get("video")}
    return found


def videos(parts: Mapping[str, Mapping[str, Any]], folders: Mapping[str, Path], target: Path) -> int:
    """Copy the videos that the parts name from their folders to `target`; returns how many were there.

    Raises MorphVlaError for a name that leads out of its folder.
    """
    copied = 0
    for key, name in owners(parts).items():
        video = by_key(trials_of(parts[name]))[key]["video"]
        source, goal = folders[name] / str(video), target / str(video)
        if not source.resolve().is_relative_to(folders[name].resolve()):
            raise MorphVlaError(f"{name} names the video '{video}', which is not inside its folder")
        if source.is_file():
            _copy(source, goal)
            if poster_of(source).is_file() and not poster_of(source).is_symlink():
                _copy(poster_of(source), poster_of(goal))
            copied += 1
    return copied


def _copy(source: Path, goal: Path) -> None:
    """Copy a file, whole or not at all."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    unfinished = goal.with_suffix(f".unfinished{goal.suffix}")
    shutil.copyfile(source, unfinished)
    unfinished.replace(goal)


def missing(record: Mapping[str, Any]) -> str | None:
    """In words, which episodes up to the last of a task nobody ran; None when all are there."""
    keys = {(str(t.get("task") or ""), t["episode"]) for t in trials_of(record)}
    gaps = []
    for task in sorted({task for task, _ in keys}):
        numbers = {episode for other, episode in keys if other == task}
        gone = sorted(set(range(max(numbers) + 1)) - numbers)
        if gone:
            gaps.append(f"{len(gone)} episodes{f' of {task}' if task else ''} (the first is {gone[0]})")
    return f"not in any part: {', '.join(gaps)}" if gaps else None


def _check_same(name_a: str, a: Mapping[str, Any], name_b: str, b: Mapping[str, Any]) -> None:
    left, right = _identity(a), _identity(b)
    shared = _tasks(a).keys() & _tasks(b).keys()  # parts may also be tasks
    left |= _task_facts(a, shared)
    right |= _task_facts(b, shared)
    unknown = () if identity.is_whole(a) and identity.is_whole(b) else SINCE_3
    differences = [
        f"{key}: {left.get(key, ABSENT)!r} in {name_a}, {right.get(key, ABSENT)!r} in {name_b}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key, ABSENT) != right.get(key, ABSENT)
        and not ((key not in left or key not in right) and any(part in key for part in unknown))
    ]
    if differences:
        raise MorphVlaError(
            f"{name_a} and {name_b} are not parts of one evaluation: {'; '.join(differences)}"
        )
    if not left.get("suite.name"):
        raise MorphVlaError(f"{name_a} does not say of which suite it is: only records that do are merged")


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """What parts of one evaluation share, by dotted name."""
    policy = dict(record.get("policy") or {})
    if policy.get("sha256"):
        policy = {key: value for key, value in policy.items() if key not in NAMES}
    groups = {"suite": record.get("suite") or {}, "policy": policy, "engine": record.get("engine") or {}}
    facts: dict[str, Any] = {"open_loop": record.get("open_loop")}
    for group, own in groups.items():
        facts |= identity.flat({key: value for key, value in own.items() if key != "tasks"}, group)
    return facts


def _task_facts(record: Mapping[str, Any], tasks: Collection[str]) -> dict[str, Any]:
    """What a record says of these tasks, by dotted name, without digests of what is said itself."""
    own = {task: {k: v for k, v in _tasks(record)[task].items() if k not in DIGESTS} for task in tasks}
    return identity.flat(own, "suite.tasks") if own else {}


def _tasks(record: Mapping[str, Any]) -> dict[str, Any]:
    return dict((record.get("suite") or {}).get("tasks") or {})


def _check_equal(key: Key, name_a: str, a: Mapping[str, Any], name_b: str, b: Mapping[str, Any]) -> None:
    left, right = ({k: v for k, v in one.items() if k != "video"} for one in (a, b))
    different = sorted(k for k in left.keys() | right.keys() if left.get(k) != right.get(k))
    if different:
        of = f" of task '{key[0]}'" if key[0] else ""
        sides = "; ".join(f"{k}: {left.get(k)!r} and {right.get(k)!r}" for k in different[:3])
        raise MorphVlaError(f"episode {key[1]}{of} differs between {name_a} and {name_b}: {sides}")


def _place(record: Mapping[str, Any], key: Key) -> tuple[int, str, int]:
    """Where a trial stands: its task's place in the suite, then its number."""
    tasks = list((record.get("suite") or {}).get("tasks") or ())
    return (tasks.index(key[0]) if key[0] in tasks else len(tasks)), key[0], key[1]


def _shared(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything about the evaluation that does not depend on how it was cut up."""
    first = records[0]
    least = next((one for one in records if not identity.is_whole(one)), first)  # nobody says more for it
    most = max(records, key=lambda one: len(_tasks(one)))  # its tasks are in the suite's order
    tasks = {task: _known(task, records) for task in _tasks(most)}
    tasks |= {task: _known(task, records) for one in records for task in _tasks(one) if task not in tasks}
    suite = {**(first.get("suite") or {}), **({"tasks": tasks} if tasks else {})}
    rows = [one["rows"] for one in records if one.get("rows")]
    return {
        "schema": min((one["schema"] for one in records if one.get("schema")), default=None),
        "kind": "evaluation",
        "suite": suite,
        **{key: least.get(key) for key in ("policy", "engine", "open_loop")},
        **({"overrides": least["overrides"]} if "overrides" in least else {}),
        **({"rows": [min(row[0] for row in rows), max(row[1] for row in rows)]} if rows else {}),
    }


def _known(task: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What every part that has the task says of it: what one of them leaves out is unknown of the whole."""
    every = [_tasks(one)[task] for one in records if task in _tasks(one)]
    return {key: value for key, value in every[0].items() if all(key in one for one in every)}


def _made(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How it came to be."""
    keys = ("command", "time", "wall_s", "parallel", "versions", "stopped", "notes")
    parts = [
        {**{key: one[key] for key in keys if one.get(key)}, "trials": len(trials_of(one))} for one in records
    ]
    versions = [dict(one.get("versions") or {}) for one in records]
    same = {key: v for key, v in versions[0].items() if all(other.get(key) == v for other in versions)}
    return {
        "wall_s": round(sum(one.get("wall_s") or 0.0 for one in records), 2),
        "versions": same,
        "time": max((str(one["time"]) for one in records if one.get("time")), default=""),
        "parts": parts,
    }
