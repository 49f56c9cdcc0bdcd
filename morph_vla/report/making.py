"""How it was made: training, robot, suite, what counts as a success, machine, versions."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from morph_vla.report.reading import Evaluation, data_uri, in_its_folder, media_type
from morph_vla.report.words import Table, count, duration, value_words
from morph_vla.results.record import Json, Sampler, Study, SuiteFacts, Target
from morph_vla.results.trial import inside
from morph_vla.results.values import Real, mapping, number, numbers

Pairs = list[tuple[str, str | None]]
PICTURE_BYTES = 3_000_000  # a larger picture would push the videos out of the page
CLAUSES = {
    "max_speed": "slower than {:g} m/s",
    "max_spin": "turning less than {:g} rad/s",
    "min_opening": "the gripper open by {:.0%} or more and clear of it",
    "dwell_seconds": "all of it for {:g} s without a break",
}


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
    """The rest and the time that a success needs, and each task's box; None where the record says none."""
    rows, shared = [], {}
    for name, task in facts.tasks.items():
        success, target = mapping((task.resolved or {}).get("success")), task.target or Target()
        values = {key: number(success.get(key)) for key in CLAUSES}
        shared |= {CLAUSES[key].format(value): key for key, value in values.items() if value is not None}
        box = _box(target.low or numbers(success.get("low")), target.high or numbers(success.get("high")))
        if box:
            seconds = "–" if task.episode_seconds is None else f"{task.episode_seconds:g} s"
            rows.append((name, target.name or "target", box, seconds))
    words = "The object's centre is inside the box around the target"
    words += f", {', '.join(shared)}." if shared else ", at rest and released for a while."
    table = Table("Success criterion", ("task", "target", "box [cm]: x, y, z", "episode"), rows)
    return (words, table) if rows else None


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
    """How the policies were asked: actions of an answer, the sampler, what was changed; equal ones once."""
    labels: dict[tuple[str, str], list[str]] = {}
    for label, record in ((evaluation.label, evaluation.record) for evaluation in evaluations):
        sampler = record.policy.sampler or Sampler()
        noise = "" if sampler.noise is None else f", noise times {sampler.noise:g}"
        for name, words in (
            ("actions executed per answer", None if record.open_loop is None else str(record.open_loop)),
            ("sampler", None if sampler.steps is None else f"{sampler.steps} steps{noise}"),
            ("changes to the suite", " ".join(record.overrides or ())),
        ):
            if words:
                labels.setdefault((name, words), []).append(label)
    return [
        (name if len(of) == len(evaluations) else f"{name}, {', '.join(of)}", words)
        for (name, words), of in labels.items()
    ]


def versions(study: Study, evaluations: Iterable[Evaluation]) -> Pairs:
    """Package and version; all of them, where the evaluations had several."""
    packages: dict[str, dict[str, None]] = {}
    for known in (study.versions, *(evaluation.record.versions for evaluation in evaluations)):
        for name, version in known.items():
            packages.setdefault(name, {})[value_words(version)] = None
    return [(name, ", ".join(several)) for name, several in packages.items()]
