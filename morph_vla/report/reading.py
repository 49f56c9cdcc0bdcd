"""What a report reads: the evaluations of a record, and the files beside it, kept inside their folder."""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from os.path import commonpath
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.results import curves
from morph_vla.results.record import Json, Record, Study, SuiteFacts
from morph_vla.results.statistics import Summary
from morph_vla.results.trial import Trial, by_task, inside
from morph_vla.results.values import Real, mapping, numbers

MOST_BYTES = 32_000_000  # a larger file is no table of a policy's inside
IMAGES = ("png", "jpeg", "gif", "webp")
MEDIA = {".mp4": "video/mp4", ".webm": "video/webm", ".jpg": "image/jpeg"}
MEDIA |= {f".{kind}": f"image/{kind}" for kind in IMAGES}


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of one policy, with the name it has on the page."""

    label: str
    record: Record

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Those of the record."""
        return self.record.trials

    @property
    def summary(self) -> Summary:
        """Computed anew from the trials."""
        return self.record.summary

    @cached_property
    def tasks(self) -> dict[str, list[Trial]]:
        """Task -> its trials; a single "" where trials name none, empty without trials."""
        return by_task(self.trials)

    @property
    def suite(self) -> SuiteFacts:
        """What was asked."""
        return self.record.suite

    @property
    def subject(self) -> str:
        """The policy as the subject of a sentence."""
        if self.label == "scratch":
            return "The policy from scratch"
        of_demo = self.label in ("trained", "untrained", "zero-shot", "fine-tuned")
        return f"The {self.label} policy" if of_demo else f"Policy “{self.label}”"

    def task_text(self, task: str) -> str | None:
        """The sentence that the policy is given in a task, where the record says it."""
        facts = self.suite.tasks.get(task) or (self.suite.tasks.get("") if len(self.tasks) <= 1 else None)
        return facts.task if facts else None


def evaluations(records: Sequence[Record]) -> tuple[Evaluation, ...]:
    """The evaluations of a page, in their order. Raises MorphVlaError when none has a single trial."""
    if not any(record.trials for record in records):
        raise MorphVlaError(
            "this record holds no trials: nothing was measured, so there is nothing to report"
        )
    return tuple(map(Evaluation, _labels(records), records))


def pairs(shown: Sequence[Evaluation], kind: str) -> list[tuple[Evaluation, Evaluation]]:
    """Which evaluations a page compares: each with the first of its suite; of a demo the last with each."""
    measured = [evaluation for evaluation in shown if evaluation.trials]
    if kind == "demo":
        return [(other, measured[-1]) for other in measured[:-1]]
    by_suite = sorted(measured, key=lambda evaluation: str(evaluation.suite.name))
    suites = [list(group) for _, group in groupby(by_suite, key=lambda evaluation: evaluation.suite.name)]
    return [(first, other) for first, *others in suites for other in others]


def in_its_folder(folder: Path, path: Path) -> Path:
    """The path of a file that a record in `folder` names. Raises MorphVlaError for a link that leads out."""
    if not path.resolve().is_relative_to(folder.resolve()):
        name = path.relative_to(folder).as_posix()
        raise MorphVlaError(f"the record names the file {name!r}, a link that leads out of its folder")
    return path


def inner(study: Study, evaluations: Sequence[Evaluation], kind: str) -> Iterator[tuple[Json, int]]:
    """What files of a `kind` say of a policy's inside, and of which evaluation; the whole study's first.

    `kind` is `attention` or `image_tokens`. Files that cannot be read are left out. Raises MorphVlaError for
    one outside its folder.
    """
    name, last = study.pictures.get(kind), len(evaluations) - 1
    places = [(study.folder, inside(study.folder, name), last)] if name is not None else []
    for place, record in reversed([(at, evaluation.record) for at, evaluation in enumerate(evaluations)]):
        path = getattr(record, kind)
        places += [] if path is None else [(record.folder, path, place)]
    for folder, path, place in places:
        if in_its_folder(folder, path).is_file() and path.stat().st_size <= MOST_BYTES:
            with suppress(ValueError, RecursionError):
                yield mapping(json.loads(path.read_text(encoding="utf-8"))), place


def media_type(path: Path) -> str | None:
    """The MIME type of a picture or video a browser shows, by its suffix; None for any other file."""
    return MEDIA.get(path.suffix.lower())


def data_uri(path: Path) -> str:
    """The whole file as a `data:` address."""
    return f"data:{media_type(path)};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def encoded_size(path: Path) -> int:
    """Bytes the file takes in the page: base64 writes 4 for every 3."""
    return 4 * ((path.stat().st_size + 2) // 3) + 64


def square(matrix: object) -> list[list[Real]] | None:
    """The matrix as rows of finite numbers when it is square and not empty, else None."""
    if not isinstance(matrix, list | tuple) or not all(isinstance(row, list) for row in matrix):
        return None
    rows = [numbers([float(cell) if isinstance(cell, bool) else cell for cell in row]) for row in matrix]
    known = [row for row in rows if row is not None and len(row) == len(matrix)]
    return known if known and len(known) == len(matrix) else None


def _labels(records: Sequence[Record]) -> list[str]:
    """A name for each evaluation; two of the same name are told apart by step, engine, folder, or number.

    A policy that is called like its step is named after its run, or where that says no more, as that step.
    """
    policies = [record.policy for record in records]
    engines = [record.engine.label if record.engine else "" for record in records]
    labels = [policy.label for policy in policies]
    steps = [None if policy.step is None else f"step {policy.step}" for policy in policies]
    for place, (record, policy) in enumerate(zip(records, policies, strict=True)):
        if policy.label == str(policy.step):
            run = curves.run_of(record).rpartition("/")[2]
            labels[place] = f"step {run}" if run == policy.label else run
    nothing = [None] * len(records)
    for additions in (steps, engines if len(set(engines)) > 1 else nothing, _folders(records)):
        labels = [
            f"{label}, {addition}" if labels.count(label) > 1 and addition and addition != label else label
            for label, addition in zip(labels, additions, strict=True)
        ]
    return [
        f"{label} ({labels[: place + 1].count(label)})" if labels.count(label) > 1 else label
        for place, label in enumerate(labels)
    ]


def _folders(records: Sequence[Record]) -> list[str | None]:
    """The first part of each record's folder in which they differ; None for one that has all others in it."""
    folders = [record.folder.absolute() for record in records]
    above = Path(commonpath(folders))
    return [next(iter(folder.relative_to(above).parts), None) for folder in folders]
