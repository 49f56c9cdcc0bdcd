"""How it was made: training, robot, suite, what counts as a success, machine, versions."""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import acos, degrees
from pathlib import Path

from morph_vla.report.reading import Evaluation, data_uri, in_its_folder, media_type
from morph_vla.report.words import Table, count, duration, plain, value_words
from morph_vla.results.record import Json, Record, Sampler, Study, SuiteFacts, Target
from morph_vla.results.trial import inside
from morph_vla.results.values import Real, mapping, number, numbers

Pairs = list[tuple[str, str | None]]
DIGITS = 12  # of a digest: enough to see that two differ
PICTURE_BYTES = 3_000_000  # a larger picture would push the videos out of the page
CLAUSES = {
    "min_upright": "the target tilted by at most {:.0f}°",
    "max_moved": "the target moved by at most {:g} m",
    "max_speed": "slower than {:g} m/s",
    "max_spin": "turning less than {:g} rad/s",
    "min_opening": "the gripper open by {:.0%} or more and clear of it",
    "dwell_seconds": "all of it for {:g} s without a break",
}
BOX = ("object", "target", "low", "high")  # what the table of boxes says


def training(facts: Json) -> Pairs:
    """Its steps, its time and its number of parameters."""
    parameters = facts.get("parameters")
    total = ", ".join(f"{count(value)} {name}" for name, value in mapping(parameters).items())
    return [
        ("steps", fact("steps", facts.get("steps"))),
        ("time", fact("seconds", facts.get("seconds"))),
        ("parameters", count(parameters) if number(parameters) is not None else total),
    ]


def recipe(facts: Json) -> str | None:
    """What the training was asked for, as JSON; None where the record does not say it."""
    known = mapping(facts.get("recipe"))
    return json.dumps(known, indent=2, ensure_ascii=False, default=str) if known else None


def picture(folder: Path, name: object) -> str | None:
    """A picture as a `data:` address; None when it is not named, not there, no image, or too large."""
    if name is None:
        return None
    path = in_its_folder(folder, inside(folder, name))
    image = str(media_type(path)).startswith("image/") and path.is_file()
    return data_uri(path) if image and path.stat().st_size <= PICTURE_BYTES else None


def stages(seconds_by_stage: Json) -> list[tuple[str, str, float]]:
    """(stage, its time, in per cent of the longest), and their sum; empty where no time is known."""
    known = [(str(name), number(value)) for name, value in seconds_by_stage.items()]
    timed = [(name, value) for name, value in known if value is not None]
    longest = max((value for _, value in timed), default=0.0) or 1.0
    rows = [(name, duration(value), 100 * max(value, 0.0) / longest) for name, value in timed]
    return [*rows, ("together", duration(sum(value for _, value in timed)), 0.0)] if rows else []


def suites(evaluations: Sequence[Evaluation]) -> list[SuiteFacts]:
    """The suites that the records say something of, each once."""
    several: list[SuiteFacts] = []
    for evaluation in evaluations:
        several += [evaluation.suite] if evaluation.suite not in (*several, SuiteFacts()) else []
    return several


def criterion(facts: SuiteFacts) -> tuple[str, Table] | None:
    """What a success needs, and each task's box; None where the record says none."""
    rows, shared = [], []
    for name, task in facts.tasks.items():
        success, target = mapping((task.resolved or {}).get("success")), task.target or Target()
        shared += _clauses(success)
        box = _box(target.low or numbers(success.get("low")), target.high or numbers(success.get("high")))
        if box:
            rows.append((name, target.name or "target", box))
    words = "The object's centre is inside the box around the target"
    words += f", {', '.join(dict.fromkeys(shared))}." if shared else ", at rest and released for a while."
    return (
        (words, Table("Success criterion", ("task", "target", "box [cm]: x, y, z"), rows)) if rows else None
    )


def _clauses(success: Json) -> list[str]:
    """A task's criterion apart from its box: the clauses that have words, then all others by their names."""
    values = {key: number(success.get(key)) for key in CLAUSES}
    if (cosine := values["min_upright"]) is not None and abs(cosine) <= 1:
        values["min_upright"] = degrees(acos(cosine))
    known = [CLAUSES[key].format(value) for key, value in values.items() if value is not None]
    others = {key: value for key, value in success.items() if key not in (*CLAUSES, *BOX)}
    named = [
        plain(key) if value is True else f"{plain(key)} {value_words(value)}"
        for key, value in others.items()
        if value is not None and value is not False
    ]
    return known + named


def tasks(facts: SuiteFacts) -> Table | None:
    """What the policy is told in each task, how long an episode is, and which initial states there are.

    A column that is empty for every task is left out; None where no column is left.
    """
    rows = [
        (
            name,
            task.task,
            None if task.episode_seconds is None else f"{task.episode_seconds:g} s",
            (task.initial_states_sha256 or "")[:DIGITS],
        )
        for name, task in facts.tasks.items()
    ]
    head = ("task", "text", "episode", "initial states")
    columns = [column for column in range(1, len(head)) if any(row[column] for row in rows)]
    cells = [(row[0], *(row[column] or "–" for column in columns)) for row in rows]
    return Table("Tasks", (head[0], *(head[column] for column in columns)), cells) if columns else None


def _box(low: Sequence[Real] | None, high: Sequence[Real] | None) -> str | None:
    """`-6..6, -6..6, 0..6`, relative to the target's position; None where its corners are not known."""
    if not low or not high or len(low) != 3 or len(high) != 3:
        return None
    ends = (f"{100 * a:g}..{100 * b:g}" for a, b in zip(low, high, strict=True))
    return ", ".join(ends).replace("-", "−")


def fact(name: str, value: object) -> str | None:
    """A value of a record in words, with its unit by its name; None where there is none to show.

    A time of 0 s was never taken.
    """
    finite = number(value)
    if finite is not None and (name == "seconds" or name.endswith("_seconds")):
        return duration(finite) if finite or name != "seconds" else None
    if isinstance(value, str) and name.endswith("sha256"):
        return value[:DIGITS]
    if value and isinstance(value, Mapping) and not any(value.values()):
        return "none"  # such as a variation of which every part is 0
    whole = isinstance(value, int) and not isinstance(value, bool) and name not in ("seed", "version")
    return None if value is None else count(value) if whole else value_words(value)


def runs(evaluations: Sequence[Evaluation]) -> Pairs:
    """Of each evaluation its engine, its workers, its time and its checkpoint."""
    pairs: Pairs = []
    for label, record in ((evaluation.label, evaluation.record) for evaluation in evaluations):
        words = [
            record.engine.label if record.engine else None,
            f"{record.parallel} in parallel" if record.parallel else None,
            None if record.wall_s is None else duration(record.wall_s),
            None if record.policy.step is None else f"step {record.policy.step}",
            record.policy.checkpoint,
        ]
        pairs.append((label, ", ".join(filter(None, words))))
    return pairs


def asked(evaluations: Sequence[Evaluation]) -> Pairs:
    """How the policies were asked, and on what else their numbers depend; what is equal for all once."""
    labels: dict[str, dict[str, list[str]]] = {}  # name -> what is said -> of whom
    for evaluation in evaluations:
        for name, words in _conditions(evaluation.record):
            if words:
                labels.setdefault(name, {}).setdefault(words, []).append(evaluation.label)
    return [
        (name if len(of) == len(evaluations) else f"{name}, {', '.join(of)}", words)
        for name, several in labels.items()
        for words, of in several.items()
    ]


def _conditions(record: Record) -> Pairs:
    policy, sampler = record.policy, record.policy.sampler or Sampler()
    noise = "" if sampler.noise is None else f", noise times {sampler.noise:g}"
    engine = record.engine.others if record.engine else {}
    return [
        ("rows of the table", f"{record.rows[0]}..{record.rows[1] - 1}" if record.rows else None),
        ("actions executed per answer", None if record.open_loop is None else str(record.open_loop)),
        ("latency [control steps]", None if record.latency is None else str(record.latency)),
        ("real-time chunking", None if record.real_time is None else "yes" if record.real_time else "no"),
        ("observations per batch", None if policy.batch is None else str(policy.batch)),
        ("sampler", None if sampler.steps is None else f"{sampler.steps} steps{noise}"),
        *((f"policy: {plain(name)}", value_words(value)) for name, value in policy.others.items()),
        *((f"engine: {plain(name)}", value_words(value)) for name, value in engine.items()),
        ("changes to the suite", " ".join(record.overrides or ())),
    ]


def versions(study: Study, evaluations: Iterable[Evaluation]) -> Pairs:
    """Package and version; all of them, where the evaluations had several."""
    packages: dict[str, dict[str, None]] = {}
    for known in (study.versions, *(evaluation.record.versions for evaluation in evaluations)):
        for name, version in known.items():
            packages.setdefault(name, {})[value_words(version)] = None
    return [(name, ", ".join(several)) for name, several in packages.items()]
