"""A policy on a suite: whether it fits, each of its tasks in turn, one record; what is there is read back."""

import contextlib
import dataclasses
import logging
import operator
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.engines.engine import Policy
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.evaluation import benchmark, fit, journal, rollout
from morph_vla.evaluation.benchmark import Benchmark, Task
from morph_vla.evaluation.rollout import Settings
from morph_vla.evaluation.sampler import Sampler
from morph_vla.files.plain import as_typed, to_plain
from morph_vla.findings import errors
from morph_vla.results import comparison, identity, sequential
from morph_vla.results.merging import check_together, combine
from morph_vla.results.record import FILE_NAME, Record, write

LOG = logging.getLogger(__name__)
Progress = Callable[[str, int, int, int], None]  # a task, its episodes done, in all, and its successes


def evaluate(
    policy: Policy,
    suite: Task | Sequence[Task],
    *,
    folder: str | Path | None = None,
    name: str = "",
    against: Record | str | Path | None = None,
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
    **settings: Any,
) -> Record:
    """The record of a policy on one task or on all of a suite's (`load_suite`).

        record = morph_vla.evaluate(policy, suite, episodes=20, folder="runs/first/eval")

    `settings` are the fields of `Settings`: episodes, parallel, open_loop, videos, engine, ... With `folder`
    the record, its journal and its videos are written there, an interrupted evaluation goes on where it
    stopped, and a finished one is read back; several tasks have a record each in the folder of their name,
    and one of all; what one of them left in `folder` itself is moved there and goes on. `name` is the
    policy's in the record. With the record `against` (or where it lies), a task stops once it is decided
    which of the two is better. `overrides` are those that the suite was loaded with, for the record.
    `progress` is told how each task stands, first of all with 0 episodes done.
    Raises MorphVlaError with both sides where the policy does not fit a task, what an engine lacks, and as
    `record.read` does.
    """
    about = _about(policy, name)
    place = None if folder is None else Path(folder)
    other = None if against is None else comparison.record_of(against)
    run = _Run(policy, _settings(settings), about, other, overrides, progress)
    check_given(suite)
    given = suite if isinstance(suite, Sequence) else [suite]
    tasks = [benchmark.of(task, run.settings.engine, policy) for task in given]
    for task in tasks:
        task.check()
    for task in tasks:
        if problems := errors(task.findings(policy)):
            sentences = "; ".join(map(fit.sentence, problems))
            where = about["checkpoint"] or about["name"]
            raise MorphVlaError(f"{where} does not fit suite '{task.label}': {sentences}")
    stops = [run.stop(task) for task in tasks]  # what it has no record of is said before hours are spent
    before = _kept(place)
    if len(tasks) == 1:
        record = run.task(tasks[0], place, stops[0])
        _warn_of_fewer(before, record, place)
        return record
    check_together([Record(suite=task.facts(), engine=task.engine()) for task in tasks])
    with journal.alone(place):
        if place is not None:
            empty = {
                task.task_key: rollout.record_before(task, policy, run.settings, about) for task in tasks
            }
            journal.make_room(place, empty)
        places = [place and place / task.task_key for task in tasks]
        parts = [run.task(*each) for each in zip(tasks, places, stops, strict=True)]
        whole = combine(parts, run.command(tasks[0].name, tasks[0], place))
        run.keep(whole, place)
    _warn_of_fewer(before, whole, place)
    return whole


def check_given(suite: object) -> None:
    """Raise MorphVlaError for a suite's name, and for no task at all."""
    if not suite or isinstance(suite, str):
        what = f"the name '{suite}'" if isinstance(suite, str) and suite else "nothing"
        raise MorphVlaError(f"{what} is no task to evaluate on; give load_suite(NAME), or one task of it")


def _about(policy: Policy, name: str | None) -> dict[str, Any]:
    """What the record says of a policy. Raises MorphVlaError for a `describe` that says no name."""
    rollout.check_policy(policy)
    describe = getattr(policy, "describe", None)
    if describe is None:
        return {"name": name or type(policy).__name__, "checkpoint": None, "step": None}
    about = to_plain(describe())
    if not isinstance(about, dict) or not (name or isinstance(about.get("name"), str)):
        raise MorphVlaError(
            f"describe() of {type(policy).__name__} gives {about!r:.60}; expected a dictionary with a name"
        )
    known = {"checkpoint": None, "step": None, **about}
    return {**known, "name": name or about["name"]}


def _settings(given: Mapping[str, object]) -> Settings:
    """`Settings` of keyword arguments. Raises MorphVlaError for an unknown one, and where a count is none."""
    kinds = {field.name: field.type for field in dataclasses.fields(Settings)}
    chosen = Settings()
    for key, value in given.items():
        if key not in kinds:
            raise MorphVlaError(f"no setting '{key}'{nearest(key, kinds)} ({', '.join(kinds)})")
        is_count = int in (kinds[key], *typing.get_args(kinds[key]))
        if is_count and value is not None:
            try:
                value = operator.index(value)  # pyright: ignore[reportArgumentType] (that is what is asked)
            except TypeError:
                raise MorphVlaError(f"{key} is {value!r:.60}; expected a whole number") from None
        chosen = dataclasses.replace(chosen, **{key: value})
    return chosen


def _kept(folder: Path | None) -> Record | None:
    """The record in a folder; None where there is none, or it cannot be read, which is said later."""
    with contextlib.suppress(MorphVlaError):
        return rollout.finished(folder)
    return None


def _warn_of_fewer(before: Record | None, now: Record, folder: Path | None) -> None:
    """Say that a record of more episodes of the same evaluation stood there; its journal has them still."""
    if before is None or identity.of_evaluation(before) != identity.of_evaluation(now):
        return
    gone = {trial.key for trial in before.trials} - {trial.key for trial in now.trials}
    if gone and folder is not None:
        LOG.warning(
            "%s had %d episodes, and has now the %d that were asked for; the journal keeps the others: ask "
            "for as many again (--episodes), and none is played twice",
            folder / FILE_NAME, len(before.trials), len(now.trials),
        )  # fmt: skip


def check_against(suite: Sequence[Task], against: Record, name: str) -> None:
    """Raise MorphVlaError where the record `against`, called `name`, does not measure what the suite does."""
    parts = [benchmark.of(task).facts() for task in suite]
    tasks = {key: facts for part in parts for key, facts in part.tasks.items()}
    this = Record(suite=dataclasses.replace(parts[0], tasks=tasks))
    comparison.check_comparable({name: against, "this evaluation": this})


@dataclasses.dataclass(frozen=True)
class _Run:
    """What the tasks of one evaluation share."""

    policy: Policy
    settings: Settings
    about: dict[str, Any]
    against: Record | None
    overrides: Sequence[str]
    progress: Progress | None

    def stop(self, task: Benchmark) -> rollout.Stop | None:
        """What says that a task is decided. Raises MorphVlaError where there is nothing to decide against."""
        if self.against is None:
            return None
        return sequential.stopper(self.against, task.facts(), task.task_key, self.settings.first)

    def task(self, task: Benchmark, folder: Path | None, stop: rollout.Stop | None) -> Record:
        """The record of one task, kept in `folder`, which `stop` may end early."""
        progress = self.progress
        notes = [fit.sentence(finding) for finding in task.findings(self.policy)]
        for note in notes:
            LOG.warning("%s", note)
        self._warn_of_a_namesake(task, folder)
        if progress:
            progress(task.task_key, 0, self.settings.episodes or task.episodes, 0)
        record = rollout.evaluate(
            task, self.policy, self.settings, about=self.about, folder=folder, notes=notes, stop=stop,
            command=self.command(task.label, task, folder), overrides=self.overrides,
            progress=progress and (lambda done, total, won: progress(task.task_key, done, total, won)),
        )  # fmt: skip
        self.keep(record, folder)
        return record

    def _warn_of_a_namesake(self, task: Benchmark, folder: Path | None) -> None:
        """Say that trials are read back of a policy of which nothing but its name is known."""
        if folder is None or any(self.about.get(key) for key in ("sha256", "checkpoint", "server")):
            return
        with contextlib.suppress(MorphVlaError):
            before = journal.so_far(folder)
            now = rollout.record_before(task, self.policy, self.settings, self.about)
            if before.trials and identity.of_evaluation(before) == identity.of_evaluation(now):
                LOG.warning(
                    "%s: %d episodes of an earlier evaluation of '%s' are read back: a policy whose "
                    "describe() says no sha256 is known by its name alone: give another folder or name",
                    folder, len(before.trials), self.about["name"],
                )  # fmt: skip

    def keep(self, record: Record, folder: Path | None) -> None:
        """Write a record, unless it is the one that is there."""
        if folder is not None and record == rollout.finished(folder):
            LOG.info("already there: %s", folder / FILE_NAME)
        elif folder is not None:
            write(record, folder / FILE_NAME)

    def command(self, suite: str, task: Benchmark, folder: Path | None) -> str:
        """The command that makes this record; nothing for a policy that no command line can name."""
        checkpoint, server = self.about.get("checkpoint"), self.about.get("server")
        if not (checkpoint or server) or folder is None:
            return ""
        settings, default = self.settings, Settings()
        rows = str(settings.episodes or task.episodes)
        if settings.first:
            rows = f"{settings.first}:{settings.first + int(rows)}"
        sampler = Sampler(**self.about.get("sampler") or {})
        source = ["--policy", str(server), *self.overrides]
        if checkpoint:
            source = [checkpoint, *self.overrides, *sampler.options()]
            source += ["--poses-from", self.about["poses_from"]] if "poses_from" in self.about else []
        words = [*source, "--suite", suite, "--episodes", rows]
        if settings.open_loop != default.open_loop:
            words += ["--open-loop", str(settings.open_loop)]
        words += ["--latency", str(settings.latency)] if settings.latency else []
        words += ["--real-time"] if settings.real_time else []
        if settings.engine != default.engine:
            words += ["--engine", settings.engine]
        return shlex.join(["morph-vla", "eval", *words, "-o", as_typed(folder)])
