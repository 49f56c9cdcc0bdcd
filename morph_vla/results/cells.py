"""The record of one cell of a study: a training and how its policy did on each body, row by row.

A body of 300 rows takes about 5 KB.

The rows of a body are the same initial states for every cell, so that conditions are compared row by row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text
from morph_vla.results.record import Record
from morph_vla.results.trial import ERROR
from morph_vla.results.values import Real, integer, listing, mapping, number, read_as, real

SCHEMA = 1
EVENTS = ("touched", "grasped", "lifted", "knocked", "dropped")
DIGITS = 4  # of a measure in metres or seconds


@dataclass(frozen=True)
class Judged:
    """One body: a letter a row in `rows` and `events`, in the order of the table of initial states.

    `1` yes, `0` no, `e` an error (which is no success), `?` not recorded.
    """

    body: str
    suite: str
    seen: bool
    """Whether it was trained on"""
    rows: str
    """Successes"""
    events: Mapping[str, str] = field(default_factory=dict)
    seconds: Sequence[Real | None] = ()
    """To success, of each row; None where it did not succeed"""
    least: Mapping[str, Sequence[Real | None]] = field(default_factory=dict)
    """Of each row the least of each measure, such as the nearest approach [m]"""
    states_sha256: str | None = None
    """Of the table of initial states"""
    resolved_sha256: str | None = None
    """Of the whole suite"""
    urdf_sha256: str | None = None
    """Of the body; earlier records have none"""
    policy_sha256: str | None = None
    engine: str | None = None

    @property
    def successes(self) -> int:
        """How many rows succeeded."""
        return self.rows.count("1")

    @property
    def rate(self) -> float:
        """The success rate."""
        return self.successes / len(self.rows)


@dataclass(frozen=True, kw_only=True)
class CellRecord:
    """What was trained, and how it did."""

    schema: int = SCHEMA
    split: str
    condition: str
    seed: int
    settings_sha256: str
    """Of everything that its numbers can depend on; two records that share it measured the same thing"""
    settings: Mapping[str, object] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    """File of a dataset that was trained on (`BODY/meta/info.json`) -> SHA-256; earlier records have none"""
    parameters: int | None = None
    loss: Real | None = None
    """Of the last line of the log"""
    held_out_loss: Real | None = None
    judged: tuple[Judged, ...]
    seconds: Mapping[str, Real] = field(default_factory=dict)
    """Of training and evaluation, over all interruptions"""
    machine: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    time: str = ""

    @property
    def name(self) -> str:
        """`SPLIT/CONDITION/SEED`."""
        return f"{self.split}/{self.condition}/{self.seed}"

    def __str__(self) -> str:
        """`leave-panda/mix/0: panda 12 of 300 (unseen), ur5e 280 of 300`."""
        counts = (
            f"{j.body} {j.successes} of {len(j.rows)}{'' if j.seen else ' (unseen)'}" for j in self.judged
        )
        return f"{self.name}: {', '.join(counts)}"


def judged(record: Record, body: str, seen: bool) -> Judged:
    """What a cell keeps of the evaluation of one body, of one task and from its first row on."""
    ((key, task),) = record.suite.tasks.items()
    trials = sorted(record.trials, key=lambda trial: trial.episode)
    assert [trial.episode for trial in trials] == list(range(len(trials)))
    events = {name: "".join(_letter(getattr(trial, name, None)) for trial in trials) for name in EVENTS}
    measures = dict.fromkeys(name for trial in trials for name in trial.least)
    return Judged(
        body=body,
        suite=f"{record.suite.name}:{key}",
        seen=seen,
        rows="".join("e" if trial.outcome == ERROR else _letter(trial.success) for trial in trials),
        events={name: letters for name, letters in events.items() if letters.strip("?")},
        seconds=tuple(_short(trial.time_s) for trial in trials),
        least={name: tuple(_short(trial.least.get(name)) for trial in trials) for name in measures},
        states_sha256=task.initial_states_sha256,
        resolved_sha256=task.resolved_sha256,
        urdf_sha256=record.suite.urdf_sha256,
        policy_sha256=record.policy.sha256,
        engine=record.engine.label if record.engine else None,
    )


def write(record: CellRecord, path: Path) -> None:
    """Write a record whole or not at all."""
    write_text(path, json.dumps(to_plain(record), separators=(",", ":")) + "\n")


def read(path: Path) -> CellRecord:
    """The record in a file. Raises MorphVlaError, one sentence, where it is none or holds what cannot be."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MorphVlaError(f"{path}: not a record of a cell: {error}") from error
    facts = mapping(plain)
    if facts.get("schema") != SCHEMA:
        raise MorphVlaError(f"{path}: schema {facts.get('schema')!r} of a cell's record, expected {SCHEMA}")
    bodies = tuple(_judged(mapping(item)) for item in listing(facts.get("judged")))
    if not bodies or not all(body.rows and set(body.rows) <= set("10e") for body in bodies):
        raise MorphVlaError(f"{path}: a cell's record has rows of 1, 0 and e for every body it judged")
    seed = integer(facts.get("seed"))
    if seed is None:
        raise MorphVlaError(f"{path}: a cell's seed is an integer, not {facts.get('seed')!r}")
    return read_as(
        CellRecord,
        facts,
        schema=SCHEMA,
        split=str(facts.get("split")),
        condition=str(facts.get("condition")),
        seed=seed,
        settings_sha256=str(facts.get("settings_sha256")),
        judged=bodies,
    )


def _judged(plain: Mapping[str, object]) -> Judged:
    rows = str(plain.get("rows") or "")
    return read_as(
        Judged,
        plain,
        rows=rows,
        events={name: str(value) for name, value in mapping(plain.get("events")).items()},
        seconds=tuple(map(real, listing(plain.get("seconds")))),
        least={
            name: tuple(map(real, listing(values))) for name, values in mapping(plain.get("least")).items()
        },
    )


def _letter(value: bool | None) -> str:
    return "?" if value is None else "1" if value else "0"


def _short(value: Real | None) -> Real | None:
    finite = number(value)
    return None if finite is None else round(finite, DIGITS)
