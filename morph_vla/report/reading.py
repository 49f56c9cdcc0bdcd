"""What a report reads: the record, judged, and the files beside it, kept inside their folder."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.report.markup import mapping
from morph_vla.results import comparison, curves, statistics

SCHEMAS = (1, 2, 3)
KINDS = ("demo", "evaluation")
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
    """One evaluation of one policy: its record, and what its trials say."""

    label: str
    record: Mapping[str, Any]
    trials: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    folder: Path = Path()  # that its record names files in

    @property
    def tasks(self) -> dict[str, list[Mapping[str, Any]]]:
        """Task -> its trials; a single "" where trials name none, empty without trials."""
        return statistics.by_task(self.trials)

    @property
    def suite(self) -> Mapping[str, Any]:
        """What the record says of its suite."""
        return mapping(self.record.get("suite"))


def evaluations(record: Mapping[str, Any], folders: Sequence[Path] = ()) -> tuple[Evaluation, ...]:
    """Every evaluation in the record, in its order, summarised from its trials.

    `folders` are those that each one's files lie in. Raises MorphVlaError, one sentence, for another schema
    or kind, for trials that are not well formed, and when no evaluation has a single trial.
    """
    if record.get("schema") not in SCHEMAS:
        known = " or ".join(map(str, SCHEMAS))
        raise MorphVlaError(f"this record has schema {record.get('schema')!r}, expected {known}")
    kind = record.get("kind")
    if kind not in KINDS:
        hint = nearest(str(kind), KINDS)
        raise MorphVlaError(f"a report shows a record of kind 'demo' or 'evaluation', got {kind!r}{hint}")
    single = kind == "evaluation" and "evaluations" not in record
    found = [record] if single else record.get("evaluations")
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise MorphVlaError(f"this record of kind '{kind}' has no list of evaluations")
    trials = [statistics.trials_of(item) for item in found]
    if not any(trials):
        raise MorphVlaError(
            "this record holds no trials: nothing was measured, so there is nothing to report"
        )
    places = list(folders) or [Path()] * len(found)
    return tuple(
        Evaluation(label, item, own, statistics.summarise(own), place)
        for label, item, own, place in zip(_labels(found), found, trials, places, strict=True)
    )


def task_text(evaluation: Evaluation, task: str) -> str | None:
    """The sentence that the policy is given in a task, where the record says it."""
    own = mapping(mapping(evaluation.suite.get("tasks")).get(task)).get("task")
    found = own or (evaluation.suite.get("task") if len(evaluation.tasks) <= 1 else None)
    return str(found) if found else None


def disagreement(evaluation: Evaluation) -> str | None:
    """In words, where the stored summary differs from what the trials say; None where it does not."""
    stored = mapping(evaluation.record.get("summary"))
    for key in ("successes", "trials", "errors"):
        if key in stored and stored[key] != evaluation.summary[key]:
            own = evaluation.summary[key]
            return (
                f"The record's summary of {evaluation.label} says {stored[key]} {key}, its trials say {own}."
            )
    return None


def the_policy(evaluation: Evaluation) -> str:
    """The policy as the subject of a sentence."""
    label = evaluation.label
    return f"The {label} policy" if label in ("trained", "untrained") else f"Policy “{label}”"


def inside(folder: Path, name: object) -> Path:
    """The path of a file named in a record, which must lie in the record's folder.

    Raises MorphVlaError for an absolute path, for `..`, for a link that leads out of the folder and for a
    name that is no text: a record is data from elsewhere, and must not make us publish other files.
    """
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise MorphVlaError(f"the record names a file {name!r}, expected a path relative to its folder")
    windows = PureWindowsPath(name)  # reads both separators, so it sees `..\\x` on every system
    if windows.drive or windows.root or PurePosixPath(name).is_absolute() or ".." in windows.parts:
        raise MorphVlaError(f"the record names the file {name!r}, which is not inside its folder")
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise MorphVlaError(f"the record names the file {name!r}, a link that leads out of its folder")
    return folder / name


def media_type(path: Path) -> str | None:
    """The MIME type of a picture or video a browser shows, by its suffix; None for any other file."""
    return MEDIA.get(path.suffix.lower())


def data_uri(path: Path) -> str:
    """The whole file as a `data:` address."""
    return f"data:{media_type(path)};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def encoded_size(path: Path) -> int:
    """Bytes the file takes in the page: base64 writes 4 for every 3."""
    return 4 * ((path.stat().st_size + 2) // 3) + 64


def in_folders(folders: Iterable[Path], name: object) -> Path | None:
    """The file of that name in the first of the folders that has it; None where none does."""
    return next((path for folder in folders if (path := inside(folder, name)).is_file()), None)


def attention(path: Path) -> Mapping[str, Any] | None:
    """The attention file `{"joints": [...], "layers": [...]}`, or None when it cannot be read."""
    if not path.is_file() or path.stat().st_size > ATTENTION_BYTES:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return found if isinstance(found, Mapping) and isinstance(found.get("layers"), list) else None


def _labels(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """A name for each evaluation; two of the same name are told apart by step, engine, or number.

    A policy that is called like its step is named after its run.
    """
    found = list(records)
    steps = [mapping(item.get("policy")).get("step") for item in found]
    names = [
        curves.run_of(item).rpartition("/")[2]
        if statistics.policy_label(item) == str(step)
        else statistics.policy_label(item)
        for item, step in zip(found, steps, strict=True)
    ]
    engines = [comparison.engine_label(item) for item in found]
    plain = [
        f"{name}, step {step}" if names.count(name) > 1 and step is not None else name
        for name, step in zip(names, steps, strict=True)
    ]
    plain = [
        f"{name}, {engine}" if plain.count(name) > 1 and engine and len(set(engines)) > 1 else name
        for name, engine in zip(plain, engines, strict=True)
    ]
    return [
        f"{name} ({plain[: place + 1].count(name)})" if plain.count(name) > 1 else name
        for place, name in enumerate(plain)
    ]
