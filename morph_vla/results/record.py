"""The record of an evaluation: what was asked, of which policy, in which engine, and every trial.

`read` and `load` are the only door for records on disk: they take every schema that was ever written, and
what they return is well formed. A record of an earlier schema keeps its number and says no more than it did.

Schema 1 has one task, whose facts stand beside those of the suite. Schema 2 has several, with a few facts
each. Schema 3 holds each task's whole suite as it was resolved (`resolved`), and the policy's sampler.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text
from morph_vla.results import trial
from morph_vla.results.modes import Sorting, sorting
from morph_vla.results.statistics import Summary, summarise
from morph_vla.results.trial import Jumps, Trial, inside, name_in, pooled
from morph_vla.results.values import Real, integer, listing, mapping, number, read_as, text
from morph_vla.wording import count, span

FILE_NAME = "record.json"
BELOW = ("evaluations", "eval")  # in a repository that `morph-vla push` wrote; in a demo's, `--zero-shot`
SCHEMA = 3
SCHEMAS = (1, 2, 3)
KINDS = ("evaluation", "demo")
FILES = ("attention", "image_tokens")  # of what goes on inside a policy
LAST = (
    "wall_s",
    "timing",
    "notes",
    "parallel",
    "command",
    "versions",
    "time",
)  # of a record, after its trials
Json = Mapping[str, object]


@dataclass(frozen=True)
class Target:
    """The box around the target that the object must be inside, relative to the target's position [m]."""

    name: str | None = None
    low: list[Real] | None = None
    high: list[Real] | None = None


@dataclass(frozen=True)
class TaskFacts:
    """What a record says of one task. None where it does not say it."""

    task: str | None = None
    """The sentence that the policy is given."""
    episode_seconds: Real | None = None
    object: str | None = None
    target: Target | None = None
    initial_states_sha256: str | None = None
    """Of the whole table of initial states."""
    resolved: Json | None = None
    """The whole suite of this task, overrides included; None before schema 3."""
    resolved_sha256: str | None = None


@dataclass(frozen=True)
class SuiteFacts:
    """What a record says of its suite: what the tasks share, then each of them by its name."""

    name: str | None = None
    version: int | None = None
    seed: int | None = None
    robot: str | None = None
    urdf_sha256: str | None = None
    """Of the robot's URDF; None in records that were written before it was kept."""
    side_sha256: str | None = None
    """Of what the robot's side file says; None likewise."""
    control_rate: Real | None = None
    variation: Json | None = None
    tasks: Mapping[str, TaskFacts] = field(default_factory=dict)
    """The task of a record of schema 1 has the name ""."""

    def to_json(self) -> dict[str, object]:
        """Plain values, without what is not known."""
        tasks = {name: _known(task) for name, task in self.tasks.items()}
        return {**_known(self, "tasks"), **({"tasks": tasks} if tasks else {})}


@dataclass(frozen=True)
class Sampler:
    """How a flow policy draws an answer: the integration steps, and the factor on its initial noise."""

    steps: int | None = None
    noise: Real | None = None


@dataclass(frozen=True)
class PolicyCard:
    """What a record says of the policy that was evaluated."""

    name: str | None = None
    checkpoint: str | None = None
    """Its path when it was evaluated."""
    step: int | None = None
    sha256: str | None = None
    """Of the checkpoint's content: one trained anew in the same place is another policy."""
    sampler: Sampler | None = None
    batch: int | None = None
    others: Json = field(default_factory=dict)
    """What else was said of it, by name."""

    @property
    def label(self) -> str:
        """Its name as shown to people."""
        return self.name or "policy"

    def to_json(self) -> dict[str, object]:
        """Plain values; what is not known is left out, but for the name, checkpoint and step."""
        always = {"name": self.name, "checkpoint": self.checkpoint, "step": self.step}
        return {**always, **_known(self, "others"), **self.others}


@dataclass(frozen=True)
class EngineFacts:
    """The simulator."""

    name: str
    version: str | None = None
    others: Json = field(default_factory=dict)
    """What else its numbers depend on, by the engine's own names."""

    @property
    def label(self) -> str:
        """`mujoco 4.0.0`."""
        return f"{self.name} {self.version or ''}".strip()

    def to_json(self) -> dict[str, object]:
        """Plain values, the engine's own facts among the others."""
        return {**_known(self, "others"), **self.others}


@dataclass(frozen=True)
class Stopped:
    """That an evaluation was stopped after `episodes` of `of` episodes, and why."""

    episodes: int
    of: int
    reason: str | None = None

    def __str__(self) -> str:
        """`stopped after 20 of 50 episodes: decided: ...`."""
        return f"stopped after {self.episodes} of {self.of} episodes: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one evaluation of one policy measured. Files are named by paths that can be opened as they are."""

    schema: int = SCHEMA
    suite: SuiteFacts = SuiteFacts()
    policy: PolicyCard = PolicyCard()
    engine: EngineFacts | None = None
    open_loop: int | None = None
    """Actions of an answer that were executed."""
    latency: int | None = None
    """Control steps until an answer is there; None where all are there at once, each for itself."""
    real_time: bool | None = None
    """Whether an answer went on from the one that was executed meanwhile."""
    overrides: tuple[str, ...] | None = None
    """Those the suite was loaded with; None before schema 3."""
    rows: tuple[int, int] | None = None
    """The rows of the table that were asked for, the second one excluded."""
    stopped: Stopped | None = None
    trials: tuple[Trial, ...] = ()
    wall_s: Real | None = None
    timing: Mapping[str, Real] = field(default_factory=dict)
    """Where the seconds went."""
    notes: tuple[str, ...] = ()
    """What went wrong without costing an episode."""
    parallel: int | None = None
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    time: str = ""
    parts: tuple[Json, ...] = ()
    """What each part was, of a record that was merged."""
    unfinished: bool = False
    """Whether it was read from the journal of an evaluation that has no record yet."""
    attention: Path | None = None
    """A file of attention between joints."""
    image_tokens: Path | None = None
    """A file of the image tokens that are kept."""
    stored: Json = field(default_factory=dict, compare=False)
    """The summary as it stood in the file."""
    folder: Path = field(default=Path(), compare=False)
    """Where its files lie."""

    @property
    def chunking(self) -> dict[str, object]:
        """How answers were executed, as plain values; the latency where there was one."""
        late = {"latency": self.latency, "real_time": self.real_time}
        return {
            "open_loop": self.open_loop,
            **{key: value for key, value in late.items() if value is not None},
        }

    @cached_property
    def summary(self) -> Summary:
        """What the trials say."""
        return summarise(self.trials)

    def __str__(self) -> str:
        """Success rate and interval, of several tasks each; where it was stopped early, why."""
        label, whole = self.policy.label, self.summary
        if self.stopped:
            so_far = f"{whole.successes} of {whole.trials} succeeded so far"
            return f"{label}: {self.stopped}\n{so_far}; after an early stop the decision counts, not the rate"
        tasks = whole.tasks if len(whole.tasks) > 1 else {}
        lines = [whole.sentence(label), *(f"  {rates.sentence(task)}" for task, rates in tasks.items())]
        lines += map(str, self.sorting.values())
        if self.latency is not None and (jumps := self.jumps):
            lines.append(str(jumps))
        return "\n".join(lines)

    @property
    def sorting(self) -> dict[str, Sorting]:
        """Task -> how far several objects came, and by which ways, of the tasks that have several."""
        found = {task: sorting(trials) for task, trials in trial.by_task(self.trials).items()}
        return {task: known for task, known in found.items() if known}

    @property
    def jumps(self) -> Jumps | None:
        """How far targets jumped where one answer took over from another, over all trials."""
        return pooled([trial.jumps for trial in self.trials if trial.jumps])

    def facts(self) -> dict[str, object]:
        """What is known of an evaluation before its first episode, as plain values."""
        return {
            "schema": self.schema,
            "kind": "evaluation",
            "suite": self.suite.to_json(),
            "policy": self.policy.to_json(),
            "engine": self.engine.to_json() if self.engine else None,
            **self.chunking,
            **({} if self.overrides is None else {"overrides": list(self.overrides)}),
            **({} if self.rows is None else {"rows": list(self.rows)}),
        }

    def to_json(self, folder: Path | None = None) -> dict[str, object]:
        """The record as plain values, with files named relative to `folder` (default: the record's own).

        Raises MorphVlaError for a file that does not lie in the folder.
        """
        home = self.folder if folder is None else folder
        of_some = {"parts": list(self.parts), "unfinished": self.unfinished}
        return {
            **self.facts(),
            **({"stopped": to_plain(self.stopped)} if self.stopped else {}),
            "trials": [item.to_json(home) for item in self.trials],
            "summary": to_plain(self.summary),
            **{name: to_plain(getattr(self, name)) for name in LAST},
            **{key: name_in(home, path) for key in FILES if (path := getattr(self, key)) is not None},
            **{key: value for key, value in of_some.items() if value},
        }


@dataclass(frozen=True, kw_only=True)
class Study:
    """Several evaluations in one record, and how they came to be: those of a demo, its trained policy's last.

    Everything but the evaluations is shown as it is, so it stays plain values.
    """

    evaluations: tuple[Record, ...]
    kind: str = "demo"
    schema: int = 1
    robot: Json = field(default_factory=dict)
    base: Json = field(default_factory=dict)
    """Of what was fine-tuned: its `source`, digest and number of `robots`; empty from random weights."""
    recording: Json = field(default_factory=dict)
    training: Json = field(default_factory=dict)
    scratch: Json = field(default_factory=dict)
    """Beside a base: the training from random weights, and the `difference` to it."""
    difference: Json = field(default_factory=dict)
    """Of the last evaluation to the first."""
    pictures: Json = field(default_factory=dict)
    machine: Json = field(default_factory=dict)
    versions: Json = field(default_factory=dict)
    command: str = ""
    seconds_by_stage: Json = field(default_factory=dict)
    time: str = ""
    folder: Path = field(default=Path(), compare=False)

    @property
    def origins(self) -> Mapping[str, str]:
        """With a base, by the policies' names: where each one's parameters are from."""
        if not self.base:
            return {}
        source, among = self.base.get("source"), "not among" if self.base.get("unseen") else "one of"
        many = count(integer(self.base.get("robots")) or 0, "robot")
        steps, tuned = (f"{facts.get('steps')} steps from" for facts in (self.scratch, self.training))
        spans = [span(number(facts.get("seconds")) or 0) for facts in (self.scratch, self.training)]
        words = (
            f"{source} as it is, trained on {many}; {self.robot.get('name')} is {among} them",
            f"{steps} random weights, in {spans[0]}",
            f"{tuned} {source}, in {spans[1]}",
        )
        return dict(zip((record.policy.label for record in self.evaluations), words, strict=False))

    def to_json(self) -> dict[str, object]:
        """Plain values, with files named relative to the study's folder; nothing of a base without one."""
        without = {"folder", *(() if self.base else ("base", "scratch"))}
        plain = {key.name: getattr(self, key.name) for key in fields(self) if key.name not in without}
        return {**plain, "evaluations": [record.to_json(self.folder) for record in self.evaluations]}


def read(given: str | Path) -> Record:
    """The record of one evaluation, from its folder or file; of a demo, that of its trained policy, the last.

    Raises MorphVlaError as `load` does, and where a demo holds no evaluation yet.
    """
    record = load(Path(given))
    if isinstance(record, Record):
        return record
    if not record.evaluations:
        raise MorphVlaError(f"{given}: the demo's record holds no evaluation yet")
    return record.evaluations[-1]


def load(given: Path) -> Record | Study:
    """Whatever record is in the folder, or the file, `given`; of a shared checkpoint, or of a demo without a
    study, its evaluation.

    Raises MorphVlaError, one sentence, where there is none, it cannot be read, or it is no record.
    """
    path = given / FILE_NAME if given.is_dir() else given
    if given.is_dir() and not path.exists():
        below = sorted(file for place in BELOW for file in given.glob(f"{place}/*/{FILE_NAME}"))
        if len(below) > 1:
            names = ", ".join(str(file.parent.relative_to(given)) for file in below)
            raise MorphVlaError(f"{given} holds several evaluations; name one of {names}")
        path = below[0] if below else path
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = f"{given} holds no {FILE_NAME}" if given.is_dir() else f"no such folder or file: {given}"
        raise MorphVlaError(f"{hint}; a record is written by `morph-vla eval` and `morph-vla demo`") from None
    except json.JSONDecodeError as error:
        raise MorphVlaError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (OSError, ValueError, RecursionError) as error:  # not text; digits or brackets without end
        raise MorphVlaError(f"{path}: cannot be read: {error}") from error
    try:
        return from_json(plain, path.parent)
    except MorphVlaError as error:
        raise MorphVlaError(f"{path}: {error}") from error


def write(record: Record | Study, path: Path) -> None:
    """Write a record whole or not at all, its files named relative to the folder of `path`."""
    plain = record.to_json(path.parent) if isinstance(record, Record) else record.to_json()
    write_text(path, json.dumps(plain, indent=1))


def from_json(plain: object, folder: Path = Path()) -> Record | Study:
    """A record from plain values, its files in `folder`.

    Raises MorphVlaError, one sentence, for another kind or schema, for trials that cannot be, and for a file
    outside `folder`. Anything else that is malformed counts as not said.
    """
    kind = mapping(plain).get("kind")
    if not isinstance(plain, Mapping) or kind not in KINDS:
        hint = f", got {kind!r}{nearest(str(kind), KINDS)}" if kind else ""
        raise MorphVlaError(f"not a record: expected kind 'evaluation' or 'demo'{hint}")
    if plain.get("schema") not in SCHEMAS:
        known = f"{', '.join(map(str, SCHEMAS[:-1]))} or {SCHEMAS[-1]}"
        raise MorphVlaError(f"this record has schema {plain.get('schema')!r}, expected {known}")
    if kind == "evaluation" and "evaluations" not in plain:
        return record_from_json(plain, folder)
    evaluations = plain.get("evaluations", [])
    if not isinstance(evaluations, list) or not all(isinstance(item, Mapping) for item in evaluations):
        raise MorphVlaError(f"this record of kind '{kind}' has no list of evaluations")
    return read_as(
        Study,
        plain,
        evaluations=tuple(record_from_json(item, folder) for item in evaluations),
        schema=integer(plain["schema"]) or SCHEMA,
        folder=folder,
    )


def record_from_json(plain: Json, folder: Path = Path()) -> Record:
    """One evaluation from plain values, also from an unfinished one's; raises as `from_json` does."""
    attention = plain.get("attention") or mapping(plain.get("pictures")).get("attention")
    tokens = plain.get("image_tokens")
    rows = [row for row in map(integer, listing(plain.get("rows"))) if row is not None]
    stopped = mapping(plain.get("stopped"))
    episodes, of = integer(stopped.get("episodes")), integer(stopped.get("of"))
    return read_as(
        Record,
        plain,
        schema=integer(plain.get("schema")) or 1,
        suite=suite_from_json(mapping(plain.get("suite"))),
        policy=policy_from_json(mapping(plain.get("policy"))),
        engine=engine_from_json(mapping(plain.get("engine"))),
        rows=(rows[0], rows[1]) if len(rows) == 2 and rows[0] < rows[1] else None,
        stopped=None
        if episodes is None or of is None
        else read_as(Stopped, stopped, episodes=episodes, of=of),
        trials=trial.list_from_json(plain.get("trials"), folder),
        image_tokens=None if tokens is None else inside(folder, tokens),
        attention=None if attention is None else inside(folder, attention),
        stored=mapping(plain.get("summary")),
        folder=folder,
    )


def suite_from_json(plain: Json) -> SuiteFacts:
    """What a record says of its suite; in schema 1 the facts of its one task stand beside the suite's."""
    tasks = {str(name): _task_from_json(mapping(task)) for name, task in mapping(plain.get("tasks")).items()}
    alone = _task_from_json(plain)
    return read_as(SuiteFacts, plain, tasks={"": alone} if not tasks and alone != TaskFacts() else tasks)


def policy_from_json(plain: Json) -> PolicyCard:
    """What a record says of the policy."""
    sampler = mapping(plain.get("sampler"))
    return read_as(PolicyCard, plain, sampler=read_as(Sampler, sampler) if sampler else None)


def engine_from_json(plain: Json) -> EngineFacts | None:
    """What a record says of the engine; None where it does not name one."""
    return read_as(EngineFacts, plain) if text(plain.get("name")) else None


def _task_from_json(plain: Json) -> TaskFacts:
    box = mapping(plain.get("target"))
    return read_as(TaskFacts, plain, target=read_as(Target, box) if box else None)


def _known(facts: object, *without: str) -> dict[str, object]:
    """The fields that are not None, as plain values, and no None within dataclasses."""
    plain = to_plain(facts)
    known = {key: value for key, value in plain.items() if value is not None and key not in without}
    for key in ("target", "sampler"):
        if key in known:
            known[key] = {name: value for name, value in known[key].items() if value is not None}
    return known
