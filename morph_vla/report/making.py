"""How it was made: training, robot, suite, what counts as a success, machine, versions."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from morph_vla.report.reading import Evaluation, data_uri, in_its_folder, media_type
from morph_vla.report.words import Table, count, duration, value_words
from morph_vla.results.record import Json, Sampler, Study, SuiteFacts, Target, TaskFacts
from morph_vla.results.trial import inside
from morph_vla.results.values import listing, mapping, number, numbers

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
    seconds, parameters = number(facts.get("seconds")), facts.get("parameters")
    total = ", ".join(f"{count(value)} {name}" for name, value in mapping(parameters).items())
    if number(parameters) is not None:
        total = count(parameters)
    steps = facts.get("steps")
    return [
        ("steps", None if steps is None else count(steps)),
        ("time", None if seconds is None else duration(seconds)),
        ("parameters", total),
    ]


def parameters(facts: Json) -> Table:
    """The parameters of each part of the model."""
    rows = [
        (part, count(mapping(counts).get("trainable")), count(mapping(counts).get("frozen")))
        for part, counts in mapping(facts.get("parameters_by_part")).items()
    ]
    return Table("Parameters by part", ("parameters", "trainable", "frozen"), rows)


def joints(robot: Json) -> Table:
    """The joints of the robot with their limits."""
    known = filter(None, map(mapping, listing(robot.get("joints"))))
    rows = [
        (f"{place}  {joint.get('name')}", joint.get("type"), _limit(joint, "lower"), _limit(joint, "upper"))
        for place, joint in enumerate(known, start=1)
    ]
    return Table("Joints", ("joint", "type", "lower", "upper"), rows)


def picture(folder: Path, name: object) -> str | None:
    """A picture as a `data:` address; None when it is not named, not there, no image, or too large."""
    if name is None:
        return None
    path = in_its_folder(folder, inside(folder, name))
    image = str(media_type(path)).startswith("image/") and path.is_file()
    return data_uri(path) if image and path.stat().st_size <= PICTURE_BYTES else None


def recording(facts: Json) -> Pairs:
    """What was recorded; where it lies and a time that was never taken say nothing to a reader."""
    return [
        (name, _fact(name, value))
        for name, value in facts.items()
        if name not in ("dataset", "folder") and not (name == "seconds" and not value)
    ]


def stages(seconds_by_stage: Json) -> Table:
    """The time of each stage, with a bar, and their sum."""
    known = [(str(name), number(value)) for name, value in seconds_by_stage.items()]
    timed = [(name, value) for name, value in known if value is not None]
    longest = max((value for _, value in timed), default=0.0) or 1.0
    bar = Markup('<i class="share" style="width:{:.1f}%"></i>')
    rows = [(name, duration(value), bar.format(100 * max(value, 0.0) / longest)) for name, value in timed]
    rows.append(("together", duration(sum(value for _, value in timed)), Markup()))
    return Table("Time by stage", ("stage", "time", ""), rows if timed else ())


def suites(evaluations: Sequence[Evaluation]) -> list[SuiteFacts]:
    """The suites that the records say something of, each once."""
    several: list[SuiteFacts] = []
    for evaluation in evaluations:
        several += [evaluation.suite] if evaluation.suite not in (*several, SuiteFacts()) else []
    return several


def suite(facts: SuiteFacts) -> Pairs:
    """What its tasks share."""
    return [(name, _fact(name, value)) for name, value in facts.to_json().items() if name != "tasks"]


def tasks(facts: SuiteFacts) -> Table:
    """Its tasks: the sentence that the policy is given, and the table of initial states."""
    code = Markup("<code>{}</code>")
    rows = [
        (name, task.task or "", code.format((task.initial_states_sha256 or "–")[:12]))
        for name, task in facts.tasks.items()
    ]
    return Table("Tasks", ("task", "text", "initial states"), rows)


def criterion(facts: SuiteFacts) -> tuple[str, Table] | None:
    """The rest and the time that a success needs, and each task's box; None where the record says none."""
    rows = []
    for name, task in facts.tasks.items():
        box = _box(task)
        if box:
            seconds = "–" if task.episode_seconds is None else f"{task.episode_seconds:g} s"
            rows.append((name, (task.target or Target()).name or "target", box, seconds))
    shared = dict.fromkeys(clause for task in facts.tasks.values() for clause in _clauses(task))
    words = "The object's centre is inside the box around the target"
    words += f", {', '.join(shared)}." if shared else ", at rest and released for a while."
    table = Table("Success criterion", ("task", "target", "box [cm]: x, y, z", "episode"), rows)
    return (words, table) if rows else None


def runs(evaluations: Sequence[Evaluation]) -> Pairs:
    """Of each evaluation its engine, its workers, its time and its checkpoint."""
    pairs: Pairs = []
    for evaluation in evaluations:
        record = evaluation.record
        words = [
            record.engine.label if record.engine else None,
            f"{record.parallel} in parallel" if record.parallel else None,
            None if record.wall_s is None else duration(record.wall_s),
            None if record.policy.step is None else f"step {record.policy.step}",
            record.policy.checkpoint,
        ]
        pairs.append((evaluation.label, ", ".join(filter(None, words))))
    return pairs


def asked(evaluations: Sequence[Evaluation]) -> Pairs:
    """How the policies were asked: actions of an answer, the sampler, what was changed; equal ones once."""
    labels: dict[tuple[str, str], list[str]] = {}
    for evaluation in evaluations:
        record = evaluation.record
        for fact in (
            ("actions executed per answer", "" if record.open_loop is None else str(record.open_loop)),
            ("sampler", _sampler(record.policy.sampler)),
            ("changes to the suite", " ".join(record.overrides or ())),
        ):
            labels.setdefault(fact, []).append(evaluation.label)
    return [
        (name if len(of) == len(evaluations) else f"{name}, {', '.join(of)}", words)
        for (name, words), of in labels.items()
        if words
    ]


def machine(study: Study) -> Pairs:
    """What it ran on."""
    return [(name, value_words(value)) for name, value in study.machine.items()]


def versions(study: Study, evaluations: Iterable[Evaluation]) -> Pairs:
    """Package and version; all of them, where the evaluations had several."""
    packages: dict[str, dict[str, None]] = {}
    for known in (study.versions, *(evaluation.record.versions for evaluation in evaluations)):
        for name, version in known.items():
            packages.setdefault(name, {})[value_words(version)] = None
    return [(name, ", ".join(several)) for name, several in packages.items()]


def _limit(joint: Json, key: str) -> str:
    value = number(joint.get(key))
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def _box(task: TaskFacts) -> str | None:
    """`-6..6, -6..6, 0..6`, relative to the target's position; None where its corners are not known."""
    box, success = task.target or Target(), mapping((task.resolved or {}).get("success"))
    low, high = box.low or numbers(success.get("low")), box.high or numbers(success.get("high"))
    if not low or not high or len(low) != 3 or len(high) != 3:
        return None
    ends = (f"{100 * a:g}..{100 * b:g}" for a, b in zip(low, high, strict=True))
    return ", ".join(ends).replace("-", "−")


def _clauses(task: TaskFacts) -> list[str]:
    """The thresholds beside the box, in words, as far as the record has them."""
    success = mapping((task.resolved or {}).get("success"))
    known = {key: number(success.get(key)) for key in CLAUSES}
    return [words.format(known[key]) for key, words in CLAUSES.items() if known[key] is not None]


def _sampler(sampler: Sampler | None) -> str:
    if sampler is None or sampler.steps is None:
        return ""
    return f"{sampler.steps} steps" + ("" if sampler.noise is None else f", noise times {sampler.noise:g}")


def _fact(name: str, value: object) -> str | None:
    if value is None:
        return None
    finite = number(value)
    if finite is not None and (name == "seconds" or name.endswith("_seconds")):
        return duration(finite)
    whole = isinstance(value, int) and not isinstance(value, bool) and name not in ("seed", "version")
    return count(value) if whole else value_words(value)
