"""Several records made into the one that a single evaluation would have written: its tasks, or its parts.

The tasks of one evaluation are run by one command (`combine`). Parts are records, finished or not, of the
same suite, policy, open loop and engine: two machines that each took half of the table, or an evaluation and
the rest of it (`merge`). Pure functions of records; `videos` copies files.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_bytes
from morph_vla.results import identity
from morph_vla.results.films import poster_of
from morph_vla.results.identity import NONE
from morph_vla.results.record import Json, Record, Stopped, TaskFacts
from morph_vla.results.trial import Key, Trial, inside, name_in

SINCE_3 = (".resolved.", ".sampler.", "policy.batch")  # facts that records before schema 3 do not have
OF_ITS_RUN = ("video", "begun_anew")  # of a trial: not how it ended
NAMES = ("name", "checkpoint")  # of a policy: where it lay, which may differ between two machines


def combine(records: Sequence[Record], command: str = "") -> Record:
    """The record of one policy on all tasks, in the order given.

    A task's own record lies in the folder of its name. Raises MorphVlaError, naming what differs, for records
    that are not parts of one evaluation.
    """
    first = records[0]
    tasks: dict[str, TaskFacts] = {}
    check_together(records)
    for record in records:
        if again := tasks.keys() & record.suite.tasks.keys():
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
        overrides=first.overrides if all(each.overrides == first.overrides for each in records) else (),
        versions=_common_versions(records),
        command=command or first.command,
        time=max(record.time for record in records),
        folder=first.folder.parent,
    )


def check_together(records: Sequence[Record]) -> None:
    """Raise MorphVlaError, naming what differs, for tasks that one record cannot hold."""
    for record in records[1:]:
        if differences := identity.apart(_shared(records[0]), _shared(record)):
            sides = identity.listed(differences)
            raise MorphVlaError(
                f"these tasks are not parts of one evaluation: {sides}; evaluate them one by one (SUITE:TASK)"
            )


def _stopped(records: Sequence[Record], tasks: Sequence[str]) -> Stopped:
    """How many episodes all tasks together saw of how many, and why each that was stopped was."""
    ends = [record.stopped for record in records]
    reasons = [f"{task}: {end.reason}" for task, end in zip(tasks, ends, strict=True) if end]
    of = sum(end.of if end else len(record.trials) for end, record in zip(ends, records, strict=True))
    return Stopped(sum(len(record.trials) for record in records), of, "; ".join(reasons))


def _still_stopped(whole: Record, parts: Mapping[str, Record], done: int) -> Stopped | None:
    """That a part was stopped, where no other part has the rest of its episodes."""
    reasons = dict.fromkeys(part.stopped.reason or "early" for part in parts.values() if part.stopped)
    of = (whole.rows[1] - whole.rows[0]) * max(len(whole.suite.tasks), 1) if whole.rows else done
    return Stopped(done, of, "; ".join(reasons)) if reasons and done < of else None


def _shared(record: Record) -> dict[str, object]:
    """What the tasks of one evaluation share."""
    facts, suite = record.facts(), {**record.suite.to_json(), "tasks": {}}
    shared = {key: facts.get(key) for key in ("schema", "engine")}
    policy = record.policy.to_json()
    if record.policy.sha256:  # and so wherever it lay
        policy = {key: value for key, value in policy.items() if key != "checkpoint"}
    return identity.flat({**shared, **record.chunking, "policy": policy, "suite": suite})


def merge(parts: Mapping[str, Record]) -> Record:
    """One record of the trials of all parts (where they are from -> record); their order does not matter.

    An episode that several parts have must have ended in the same way in each. `parts` of the result says
    what each part was. Raises MorphVlaError for parts of different evaluations, with both sides of every
    difference, and for episodes that ended differently, with their numbers.
    """
    if len(parts) < 2:
        raise MorphVlaError("merging needs at least two parts")
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
    whole = replace(whole, stopped=_still_stopped(whole, parts, len(trials)))

    def place(trial: Trial) -> tuple[int, str, int]:
        """Its task's place in the suite, then its number."""
        return (tasks.index(trial.task) if trial.task in tasks else len(tasks)), *trial.key

    return replace(whole, trials=tuple(sorted(trials.values(), key=place)))


def videos(record: Record, parts: Mapping[str, Record], folder: Path) -> tuple[Record, int]:
    """Copy the videos of a merged record into `folder`; the record with them there, and how many there were.

    Where two are of one name, as those of two tasks are, the later one goes into a folder of its task. Raises
    MorphVlaError for a link that leads out of the folder of its part.
    """
    homes = {trial.video: part.folder for part in parts.values() for trial in part.trials if trial.video}
    trials, copied = [], 0
    owners: dict[str, Path] = {}
    for trial in record.trials:
        if trial.video is not None:
            video, home = trial.video, homes[trial.video]
            name = name_in(home, video)
            if not video.resolve().is_relative_to(home.resolve()):
                raise MorphVlaError(f"{home} names the video '{name}', a link that leads out of its folder")
            if owners.setdefault(name, video) != video:
                name = name_in(folder, inside(folder, f"{trial.task or 'other'}/{name}"))
            if video.is_file():
                poster = poster_of(video)
                for path in (video, poster) if poster.is_file() and not poster.is_symlink() else (video,):
                    write_bytes((folder / name).with_suffix(path.suffix), path.read_bytes())
                copied += 1
            trial = replace(trial, video=folder / name)
        trials.append(trial)
    return replace(record, trials=tuple(trials), folder=folder), copied


def missing(record: Record) -> str | None:
    """In words, which episodes nobody ran, up to the last of a task and of the rows that a part was to run.

    None when all are there. What an early stop left out is not missing.
    """
    asked = record.rows[1] if record.rows and not record.stopped else 0
    tasks: dict[str, set[int]] = {}
    for task, episode in sorted(trial.key for trial in record.trials):
        tasks.setdefault(task, set()).add(episode)
    gaps = []
    for task, episodes in tasks.items():
        gone = sorted(set(range(max(asked, max(episodes) + 1))) - episodes)
        if gone:
            gaps.append(f"{len(gone)} episodes{f' of {task}' if task else ''} (the first is {gone[0]})")
    return f"not in any part: {', '.join(gaps)}" if gaps else None


def _check_same(name_a: str, a: Record, name_b: str, b: Record) -> None:
    shared = a.suite.tasks.keys() & b.suite.tasks.keys()  # parts may also be tasks
    left, right = _identity(a, shared), _identity(b, shared)
    unknown = (*identity.OF_ROBOT, *(() if identity.is_whole(a) and identity.is_whole(b) else SINCE_3))
    differences = [
        difference
        for difference in sorted(identity.apart(left, right))
        if not (NONE in (difference.a, difference.b) and any(part in difference.key for part in unknown))
    ]
    if differences:
        sides = identity.listed(differences, f"in {name_a}", f"in {name_b}", most=len(differences))
        raise MorphVlaError(f"{name_a} and {name_b} are not parts of one evaluation: {sides}")
    if not a.suite.name:
        raise MorphVlaError(f"{name_a} does not name its suite: only records that do can be merged")


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
    return {**record.chunking, **identity.flat(facts)}


def _check_equal(name_a: str, a: Trial, name_b: str, b: Trial) -> None:
    names = sorted(field.name for field in fields(Trial) if field.name not in OF_ITS_RUN)
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
    return Record(
        schema=min(record.schema for record in records),
        suite=replace(records[0].suite, tasks={task: _known(task, records) for task in tasks}),
        policy=least.policy,  # nobody says more for it
        engine=least.engine,
        open_loop=least.open_loop,
        latency=least.latency,
        real_time=least.real_time,
        overrides=least.overrides,
        rows=(min(row[0] for row in rows), max(row[1] for row in rows)) if rows else None,
        wall_s=round(sum(record.wall_s or 0.0 for record in records), 2),
        versions=_common_versions(records),
        time=max(record.time for record in records),
        parts=tuple(map(_part, records)),
    )


def _common_versions(records: Sequence[Record]) -> dict[str, str]:
    """Those that all were measured with: a package may have been upgraded in between."""
    first = records[0].versions
    return {name: v for name, v in first.items() if all(part.versions.get(name) == v for part in records)}


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
