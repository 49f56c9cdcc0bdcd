"""What an evaluation asked for: the criterion of success, and how the policy was asked."""

from collections.abc import Sequence

from morph_vla.report.markup import Markup, el, facts, join, table
from morph_vla.report.reading import Evaluation
from morph_vla.results.record import Sampler, SuiteFacts, Target, TaskFacts
from morph_vla.results.values import mapping, number, numbers

CLAUSES = {
    "max_speed": "slower than {:g} m/s",
    "max_spin": "turning less than {:g} rad/s",
    "min_opening": "the gripper open by {:.0%} or more and clear of it",
    "dwell_seconds": "all of it for {:g} s without a break",
}


def criterion(suite: SuiteFacts) -> Markup | None:
    """The box, the rest and the time that a success needs, task by task; None where the record says none."""
    rows = []
    for name, task in suite.tasks.items():
        box = _box(task)
        if box:
            seconds = "–" if task.episode_seconds is None else f"{task.episode_seconds:g} s"
            rows.append((name, (task.target or Target()).name or "target", box, seconds))
    shared = dict.fromkeys(clause for task in suite.tasks.values() for clause in _clauses(task))
    words = "The object's centre is inside the box around the target"
    words += f", {', '.join(shared)}." if shared else ", at rest and released for a while."
    if not rows:
        return None
    listed = table(rows, ("task", "target", "box [cm]: x, y, z", "episode"), "Success criterion")
    return join(el("p", words, class_="note"), listed)


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


def asked(evaluations: Sequence[Evaluation]) -> Markup | None:
    """How the policies were asked: actions of an answer, the sampler, what was changed; equal ones once."""
    lines: dict[tuple[str, str], list[str]] = {}
    for evaluation in evaluations:
        record = evaluation.record
        pairs = {
            "actions executed per answer": "" if record.open_loop is None else str(record.open_loop),
            "sampler": _sampler(record.policy.sampler),
            "changes to the suite": " ".join(record.overrides or ()),
        }
        for name, value in pairs.items():
            if value:
                lines.setdefault((name, value), []).append(evaluation.label)
    rows = [
        (name if len(labels) == len(evaluations) else f"{name}, {', '.join(labels)}", words)
        for (name, words), labels in lines.items()
    ]
    return facts(rows) if rows else None


def _sampler(sampler: Sampler | None) -> str:
    if sampler is None or sampler.steps is None:
        return ""
    return f"{sampler.steps} steps" + ("" if sampler.noise is None else f", noise times {sampler.noise:g}")
