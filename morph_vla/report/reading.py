"""What a report reads: the evaluations of a record, and the files beside it, kept inside their folder."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.results import curves
from morph_vla.results.record import Json, Record, SuiteFacts
from morph_vla.results.statistics import Summary
from morph_vla.results.trial import Trial, by_task
from morph_vla.results.values import mapping

MEDIA = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
ATTENTION_BYTES = 32_000_000  # a file larger than this is no table of mean weights between joints


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of one policy, with the name it has on the page."""

    label: str
    record: Record

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Its trials."""
        return self.record.trials

    @property
    def summary(self) -> Summary:
        """What its trials say."""
        return self.record.summary

    @cached_property
    def tasks(self) -> dict[str, list[Trial]]:
        """Task -> its trials; a single "" where trials name none, empty without trials."""
        return by_task(self.trials)

    @property
    def suite(self) -> SuiteFacts:
        """What the record says of its suite."""
        return self.record.suite


def evaluations(records: Sequence[Record]) -> tuple[Evaluation, ...]:
    """The evaluations of a page, in their order. Raises MorphVlaError when none has a single trial."""
    if not any(record.trials for record in records):
        raise MorphVlaError(
            "this record holds no trials: nothing was measured, so there is nothing to report"
        )
    return tuple(map(Evaluation, _labels(records), records))


def task_text(evaluation: Evaluation, task: str) -> str | None:
    """The sentence that the policy is given in a task, where the record says it."""
    tasks = evaluation.suite.tasks
    facts = tasks.get(task) or (tasks.get("") if len(evaluation.tasks) <= 1 else None)
    return facts.task if facts else None


def disagreement(evaluation: Evaluation) -> str | None:
    """In words, where the stored summary differs from what the trials say; None where it does not."""
    stored = evaluation.record.stored
    for key in ("successes", "trials", "errors"):
        counted = getattr(evaluation.summary, key)
        if key in stored and stored[key] != counted:
            stated = f"The record's summary of {evaluation.label} says {stored[key]} {key}"
            return f"{stated}, its trials say {counted}."
    return None


def the_policy(evaluation: Evaluation) -> str:
    """The policy as the subject of a sentence."""
    label = evaluation.label
    return f"The {label} policy" if label in ("trained", "untrained") else f"Policy “{label}”"


def in_its_folder(folder: Path, path: Path) -> Path:
    """The path of a file that a record in `folder` names. Raises MorphVlaError for a link that leads out."""
    if not path.resolve().is_relative_to(folder.resolve()):
        name = path.relative_to(folder).as_posix()
        raise MorphVlaError(f"the record names the file {name!r}, a link that leads out of its folder")
    return path


def media_type(path: Path) -> str | None:
    """The MIME type of a picture or video a browser shows, by its suffix; None for any other file."""
    return MEDIA.get(path.suffix.lower())


def data_uri(path: Path) -> str:
    """The whole file as a `data:` address."""
    return f"data:{media_type(path)};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def encoded_size(path: Path) -> int:
    """Bytes the file takes in the page: base64 writes 4 for every 3."""
    return 4 * ((path.stat().st_size + 2) // 3) + 64


def attention(folder: Path, path: Path) -> Json | None:
    """The attention file `{"joints": [...], "layers": [...]}`, or None when it cannot be read."""
    path = in_its_folder(folder, path)
    if not path.is_file() or path.stat().st_size > ATTENTION_BYTES:
        return None
    try:
        content = mapping(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return None
    return content if isinstance(content.get("layers"), list) else None


def _labels(records: Sequence[Record]) -> list[str]:
    """A name for each evaluation; two of the same name are told apart by step, engine, or number.

    A policy that is called like its step is named after its run.
    """
    labels = []
    for record in records:
        policy = record.policy
        after_step = policy.label == str(policy.step)
        labels.append(curves.run_of(record).rpartition("/")[2] if after_step else policy.label)
    steps = [record.policy.step for record in records]
    labels = [
        f"{label}, step {step}" if labels.count(label) > 1 and step is not None else label
        for label, step in zip(labels, steps, strict=True)
    ]
    engines = [record.engine.label if record.engine else "" for record in records]
    labels = [
        f"{label}, {engine}" if labels.count(label) > 1 and engine and len(set(engines)) > 1 else label
        for label, engine in zip(labels, engines, strict=True)
    ]
    return [
        f"{label} ({labels[: place + 1].count(label)})" if labels.count(label) > 1 else label
        for place, label in enumerate(labels)
    ]
