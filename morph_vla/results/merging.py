"""Parts of one evaluation, made into the record that one evaluation would have written.

Parts are records, finished or not, of the same suite, policy, open loop and engine: two machines that each
took half of the table, or an evaluation and the rest of it. Pure functions of records; `videos` copies files.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.results import identity
from morph_vla.results.films import poster_of
from morph_vla.results.record import Json, Record, TaskFacts
from morph_vla.results.trial import Key, Trial, name_in

ABSENT = "(not said)"
SINCE_3 = (".resolved.", ".sampler.", "policy.batch")  # facts that records before schema 3 do not have
NAMES = ("name", "checkpoint")  # of a policy: where it lay, which may differ between two machines


def merge(parts: Mapping[str, Record]) -> Record:
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
    trials: dict[Key, Trial] = {}
    owner: dict[Key, str] = {}
    for name in names:
        for trial in parts[name].trials:
            if trial.key in trials:
                _check_equal(owner[trial.key], trials[trial.key], name, trial)
            if trial.key not in trials or not trials[trial.key].video:
                trials[trial.key], owner[trial.key] = trial, name
    whole = _whole([parts[name] for name in names])
    tasks = list(whole.suite.tasks)

    def place(trial: Trial) -> tuple[int, str, int]:
        """Its task's place in the suite, then its number."""
        return (tasks.index(trial.task) if trial.task in tasks else len(tasks)), *trial.key

    return replace(whole, trials=tuple(sorted(trials.values(), key=place)))


def videos(record: Record, parts: Mapping[str, Record], folder: Path) -> tuple[Record, int]:
    """Copy the videos of a merged record into `folder`; the record with them there, and how many there were.

    Raises MorphVlaError for a link that leads out of the folder of its part.
    """
    homes = {trial.video: part.folder for part in parts.values() for trial in part.trials if trial.video}
    trials, copied = [], 0
    for trial in record.trials:
        video = trial.video
        if video is not None:
            home = homes[video]
            target = folder / name_in(home, video)
            if not video.resolve().is_relative_to(home.resolve()):
                name = name_in(home, video)
                raise MorphVlaError(f"{home} names the video '{name}', a link that leads out of its folder")
            if video.is_file():
                _copy(video, target)
                if poster_of(video).is_file() and not poster_of(video).is_symlink():
                    _copy(poster_of(video), poster_of(target))
                copied += 1
            trial = replace(trial, video=target)
        trials.append(trial)
    return replace(record, trials=tuple(trials), folder=folder), copied


def _copy(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".unfinished{target.suffix}")
    shutil.copyfile(source, unfinished)
    unfinished.replace(target)


def missing(record: Record) -> str | None:
    """In words, which episodes up to the last of a task nobody ran; None when all are there."""
    tasks: dict[str, set[int]] = {}
    for task, episode in sorted(trial.key for trial in record.trials):
        tasks.setdefault(task, set()).add(episode)
    gaps = []
    for task, episodes in tasks.items():
        gone = sorted(set(range(max(episodes) + 1)) - episodes)
        if gone:
            gaps.append(f"{len(gone)} episodes{f' of {task}' if task else ''} (the first is {gone[0]})")
    return f"not in any part: {', '.join(gaps)}" if gaps else None


def _check_same(name_a: str, a: Record, name_b: str, b: Record) -> None:
    shared = a.suite.tasks.keys() & b.suite.tasks.keys()  # parts may also be tasks
    left, right = _identity(a, shared), _identity(b, shared)
    unknown = ("urdf_sha256", *(() if identity.is_whole(a) and identity.is_whole(b) else SINCE_3))
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
    if not a.suite.name:
        raise MorphVlaError(f"{name_a} does not say of which suite it is: only records that do are merged")


def _identity(record: Record, tasks: Collection[str]) -> dict[str, object]:
    """What parts of one evaluation share, by dotted name; of the suite's tasks these."""
    policy = record.policy.to_json()
    if record.policy.sha256:
        policy = {key: value for key, value in policy.items() if key not in NAMES}
    # A digest of what is compared itself would name a difference twice.
    chosen = {task: replace(record.suite.tasks[task], resolved_sha256=None) for task in tasks}
    facts = {
        "suite": replace(record.suite, tasks=chosen).to_json(),
        "policy": policy,
        "engine": record.engine.to_json() if record.engine else {},
    }
    return {"open_loop": record.open_loop, **identity.flat(facts)}


def _check_equal(name_a: str, a: Trial, name_b: str, b: Trial) -> None:
    names = sorted(field.name for field in fields(Trial) if field.name != "video")
    different = [name for name in names if getattr(a, name) != getattr(b, name)]
    if different:
        sides = "; ".join(f"{name}: {getattr(a, name)!r} and {getattr(b, name)!r}" for name in different[:3])
        raise MorphVlaError(f"episode {a.episode}{a.of_task} differs between {name_a} and {name_b}: {sides}")


def _whole(records: Sequence[Record]) -> Record:
    """Everything about the evaluation that does not depend on how it was cut up, and how it came to be."""
    least = next((record for record in records if not identity.is_whole(record)), records[0])
    most = max(records, key=lambda record: len(record.suite.tasks))  # its tasks are in the suite's order
    tasks = dict.fromkeys(task for record in (most, *records) for task in record.suite.tasks)
    rows = [record.rows for record in records if record.rows]
    first = records[0].versions
    return Record(
        schema=min(record.schema for record in records),
        suite=replace(records[0].suite, tasks={task: _known(task, records) for task in tasks}),
        policy=least.policy,  # nobody says more for it
        engine=least.engine,
        open_loop=least.open_loop,
        overrides=least.overrides,
        rows=(min(row[0] for row in rows), max(row[1] for row in rows)) if rows else None,
        wall_s=round(sum(record.wall_s or 0.0 for record in records), 2),
        versions={k: v for k, v in first.items() if all(part.versions.get(k) == v for part in records)},
        time=max(record.time for record in records),
        parts=tuple(map(_part, records)),
    )


def _known(task: str, records: Sequence[Record]) -> TaskFacts:
    """What every part that has the task says of it: what one of them leaves out is unknown of the whole."""
    facts = [record.suite.tasks[task] for record in records if task in record.suite.tasks]
    names = [field.name for field in fields(TaskFacts)]
    unknown = {name: None for name in names if any(getattr(task_facts, name) is None for task_facts in facts)}
    return replace(facts[0], **unknown)


def _part(record: Record) -> Json:
    """What one part was."""
    keys = ("command", "time", "wall_s", "parallel", "versions", "stopped", "notes")
    values = {key: to_plain(getattr(record, key)) for key in keys if getattr(record, key)}
    return {**values, "trials": len(record.trials)}
