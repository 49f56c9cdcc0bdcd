"""What an evaluation asked for: the criterion of success, and how the policy was asked."""

from collections.abc import Mapping, Sequence
from typing import Any

from morph_vla.report.markup import Markup, el, facts, join, mapping, number, numbers, table, value_words
from morph_vla.report.reading import Evaluation


def criterion(suite: Mapping[str, Any]) -> Markup | None:
    """The box, the rest and the time that a success needs, task by task; None where the record says none."""
    rows = []
    for name, task in mapping(suite.get("tasks")).items():
        own = mapping(task)
        target, whole = mapping(own.get("target")), _whole(own)
        box = _box(mapping(whole.get("success")), target)
        if box:
            rows.append(
                (name, str(target.get("name") or "target"), box, _seconds(own.get("episode_seconds")))
            )
    tasks = mapping(suite.get("tasks")).values()
    shared = dict.fromkeys(clause for task in tasks for clause in _clauses(mapping(task)))
    words = "The object's centre is inside the box around the target"
    words += f", {', '.join(shared)}." if shared else ", at rest and released for a while."
    if not rows:
        return None
    listed = table(rows, ("task", "target", "box [cm]: x, y, z", "episode"), "Success criterion")
    return join(el("p", words, class_="note"), listed)


def _whole(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The whole suite of a task, where its record keeps it."""
    return mapping(task.get("suite")) or mapping(task.get("resolved")) or task


def _box(success: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    """`-6..6, -6..6, 0..6`, relative to the target's position; None where its corners are not known."""
    low, high = (numbers(target.get(key)) or numbers(success.get(key)) for key in ("low", "high"))
    if not low or not high or len(low) != 3 or len(high) != 3:
        return None
    ends = (f"{100 * a:g}..{100 * b:g}" for a, b in zip(low, high, strict=True))
    return ", ".join(ends).replace("-", "−")


def _clauses(task: Mapping[str, Any]) -> list[str]:
    """The thresholds beside the box, in words, as far as the record has them."""
    success = mapping(_whole(task).get("success"))
    found = []
    for key, words in (
        ("max_speed", "slower than {:g} m/s"),
        ("max_spin", "turning less than {:g} rad/s"),
        ("min_opening", "the gripper open by {:.0%} or more and clear of it"),
        ("dwell_seconds", "all of it for {:g} s without a break"),
    ):
        value = number(success.get(key))
        if value is not None:
            found.append(words.format(value))
    return found


def asked(evaluations: Sequence[Evaluation]) -> Markup | None:
    """How the policies were asked: actions of an answer, the sampler, what was changed; equal ones once."""
    lines: dict[tuple[str, str], list[str]] = {}
    for one in evaluations:
        policy = mapping(one.record.get("policy"))
        sampler = mapping(policy.get("sampler"))
        changed = one.record.get("overrides") or one.suite.get("overrides")
        pairs = {
            "actions executed per answer": one.record.get("open_loop"),
            "sampler": _sampler(sampler),
            "changes to the suite": " ".join(map(str, changed)) if isinstance(changed, list) else None,
        }
        for name, value in pairs.items():
            if value not in (None, ""):
                lines.setdefault((name, value_words(value)), []).append(one.label)
    rows = [
        (name if len(labels) == len(evaluations) else f"{name}, {', '.join(labels)}", words)
        for (name, words), labels in lines.items()
    ]
    return facts(rows) if rows else None


def _sampler(sampler: Mapping[str, Any]) -> str | None:
    steps, noise = number(sampler.get("steps")), number(sampler.get("noise"))
    if steps is None:
        return None
    return f"{steps:g} steps" + ("" if noise is None else f", noise times {noise:g}")


def _seconds(value: object) -> str:
    found = number(value)
    return "–" if found is None else f"{found:g} s"
