"""`morph-vla eval CHECKPOINT --suite SUITE`."""

import argparse
import dataclasses
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla import process
from morph_vla.cli.common import add_engine, add_folders, add_json, print_json
from morph_vla.cli.progress import Bar, remark
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.evaluation.rollout import Settings
    from morph_vla.results.record import Record
    from morph_vla.results.statistics import Rates
    from morph_vla.suites.suite import Suite

EXAMPLES = """
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda -o runs/first/eval
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda:can_in_mug --episodes 50 -o runs/first/can
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --episodes 150:300 -o runs/first/other_half
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --engine isaaclab -o runs/first/isaac
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --noise 0 -o runs/first/mean
  morph-vla eval runs/b/1500 --suite droid_panda --against runs/a/eval --stop-when-decided -o runs/b/eval
"""

STEPS, NOISE = 10, 1.0  # the sampler's defaults


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla eval`."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint's folder")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the suite")
    parser.add_argument("--suite", required=True, help="a suite's name or file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the record goes"
    )
    parser.add_argument(
        "--episodes", type=_rows, default=None, metavar="N | A:B",
        help="the first N rows of the table, or rows A to B - 1 (default: as many as the suite says)",
    )  # fmt: skip
    parser.add_argument("--parallel", type=int, default=20, help="environments at once (default 20)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: cores - 1)")
    add_engine(parser)
    parser.add_argument("--open-loop", type=int, default=8, help="actions executed per answer (default 8)")
    parser.add_argument(
        "--noise", type=float, default=NOISE, metavar="FACTOR",
        help="times the sampler's initial noise (default 1: as trained; 0: one answer, near the mean)",
    )  # fmt: skip
    parser.add_argument(
        "--sampler-steps", type=int, default=STEPS, metavar="N", help="steps of the flow sampler (default 10)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="a policy's answer may take (default 60; the first, which may compile, ten times that)",
    )
    parser.add_argument("--videos", type=int, default=6, help="episodes filmed (default 6)")
    parser.add_argument(
        "--against", type=Path, metavar="RECORD", help="an evaluation of the same suite to compare with"
    )
    parser.add_argument(
        "--stop-when-decided", action="store_true",
        help="with --against: begin no further episode of a task once it is decided which of the two is "
        "better, or that neither is by 10 points; wrong with a chance of at most 5%%",
    )  # fmt: skip
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate a checkpoint on a suite; an interrupted evaluation goes on where it stopped."""
    from morph_vla.evaluation import rollout
    from morph_vla.evaluation.rollout import Settings
    from morph_vla.results import comparison, record
    from morph_vla.suites import suite

    process.prepare()
    first, episodes = arguments.episodes or (0, None)
    for name, value in (
        ("episodes", episodes), ("parallel", arguments.parallel), ("open-loop", arguments.open_loop),
        ("sampler-steps", arguments.sampler_steps),
    ):  # fmt: skip
        if value is not None and value < 1:
            raise MorphVlaError(f"--{name} must be at least 1, not {value}")
    if not (math.isfinite(arguments.noise) and arguments.noise >= 0):
        raise MorphVlaError(f"--noise must be a finite number of at least 0, not {arguments.noise:g}")
    if arguments.stop_when_decided and not arguments.against:
        raise MorphVlaError("--stop-when-decided wants --against RECORD: the evaluation to be better than")
    against = record.read(arguments.against) if arguments.against else None
    chosen = suite.load_tasks(arguments.suite, arguments.overrides, arguments.folders)
    if against:
        parts = [rollout.suite_facts(task, ()) for task in chosen]
        tasks = {key: own for part in parts for key, own in part.tasks.items()}
        this = record.Record(suite=dataclasses.replace(parts[0], tasks=tasks))
        comparison.check_comparable({str(arguments.against): against, "this evaluation": this})
    settings = Settings(
        episodes, arguments.parallel, arguments.workers, arguments.open_loop, arguments.videos,
        answer_seconds=arguments.timeout, first=first, engine=arguments.engine,
        groups=2 if arguments.engine == "mujoco" else 1,
    )  # fmt: skip
    evaluated = evaluate(
        arguments.checkpoint, chosen, settings, arguments.output, arguments.checkpoint.name,
        against if arguments.stop_when_decided else None, arguments.overrides,
        noise=arguments.noise, steps=arguments.sampler_steps,
    )  # fmt: skip
    show(evaluated, arguments, against)


def show(record: "Record", arguments: argparse.Namespace, against: "Record | None") -> None:
    """What an evaluation came to, and beside `against`; if stopped early, its decision and no interval."""
    from morph_vla.cli import compare
    from morph_vla.files.plain import to_plain

    path, stopped, summary = arguments.output / "record.json", record.stopped, record.summary
    if arguments.json:
        answer = {"record": path, **({"stopped": stopped} if stopped else {}), **vars(summary)}
        print_json(to_plain(answer))
        return
    if stopped:
        counted = f"{summary.successes} of {summary.trials} succeeded"
        print(f"{record.policy.label}: {compare.stopped(stopped)}")
        print(
            f"{counted} until then: after an early stop read the decision, not the rate; the same command "
            "without --stop-when-decided runs the rest"
        )
    else:
        print(sentence(record))
    print(path)
    if against and not stopped:
        print()
        compare.show(compare.compared([arguments.against, arguments.output], [against, record]))


def _rows(words: str) -> tuple[int, int]:
    """(first row, how many): `100` is rows 0 to 99, `150:300` rows 150 to 299."""
    numbers = words.split(":")
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise MorphVlaError(f"--episodes wants a number of rows or A:B, for example 150:300, not '{words}'")
    first, end = (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else (0, int(numbers[0]))
    if end <= first and len(numbers) == 1:
        raise MorphVlaError(f"--episodes must be at least 1, not {end}")
    if end <= first:
        raise MorphVlaError(f"--episodes {words} has no rows: A:B are the rows from A up to, without, B")
    return first, end - first


def evaluate(
    checkpoint: Path,
    tasks: "Sequence[Suite]",
    settings: "Settings",
    folder: Path,
    name: str,
    against: "Record | None" = None,
    overrides: Sequence[str] = (),
    *,
    noise: float = NOISE,
    steps: int = STEPS,
) -> "Record":
    """The record of a checkpoint on a suite's tasks, written to `folder`; one that is there is read back.

    `steps` and `noise` are the sampler's (`CheckpointPolicy`).
    Several tasks have a record each in the folder of their name, and one of all. With the record `against`, a
    task stops when it is decided which of the two is better. Raises MorphVlaError with both sides when the
    policy does not fit a task.
    """
    from morph_vla.checks.policy import mismatches
    from morph_vla.doctor import require_gl
    from morph_vla.engines import by_name as engines
    from morph_vla.evaluation.rollout import finished
    from morph_vla.results.record import FILE_NAME, write
    from morph_vla.results.tasks import combine
    from morph_vla.serving.policy import CheckpointPolicy

    engines.check(settings.engine)
    if engines.split(settings.engine)[0] == "mujoco":
        require_gl()
    policy = CheckpointPolicy(checkpoint, robot=tasks[0].robot, steps=steps, noise=noise)
    for task in tasks:
        problems = mismatches(policy, task)
        if problems:
            raise MorphVlaError(f"{checkpoint} does not fit suite '{task.label}': " + "; ".join(problems))
    about = {
        "name": name,
        "checkpoint": _shown(checkpoint),
        "step": policy.about["step"],
        "sha256": policy.digest(),  # a checkpoint trained anew in the same place is another policy
        "sampler": policy.sampler,
        "batch": policy.batch,
    }
    words = shlex.join([_shown(checkpoint), *overrides, *_sampler_words(policy.sampler)])
    if len(tasks) == 1:
        return _evaluate_task(policy, tasks[0], settings, folder, about, against, words, overrides)
    parts = [
        _evaluate_task(policy, task, settings, folder / task.task_key, about, against, words, overrides)
        for task in tasks
    ]
    whole = combine(parts, _command(words, tasks[0].name, tasks[0], settings, folder))
    if whole != finished(folder):
        write(whole, folder / FILE_NAME)
    return whole


def _evaluate_task(
    policy: Any,
    task: "Suite",
    settings: "Settings",
    folder: Path,
    about: dict[str, Any],
    against: "Record | None",
    words: str,
    overrides: Sequence[str],
) -> "Record":
    from morph_vla.checks.policy import doubts
    from morph_vla.evaluation import rollout
    from morph_vla.results import sequential
    from morph_vla.results.record import FILE_NAME, write

    suite = rollout.suite_facts(task, ())
    stop = sequential.stopper(against, suite, task.task_key, settings.first) if against else None
    notes = doubts(policy, task)
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    episodes = settings.episodes or task.episodes
    earlier = rollout.finished(folder)
    command = _command(words, task.label, task, settings, folder)
    with Bar(f"evaluating {about['name']}, {task.task_key}", episodes, "episode") as bar:
        record = rollout.evaluate(
            task, policy, settings, about=about, folder=folder, command=command, notes=notes, stop=stop,
            overrides=overrides, say=lambda said: print(f"\nwarning: {said}", file=sys.stderr),
            progress=lambda done, _total, won: bar.at(done, successes=str(won)),
        )  # fmt: skip
    if record == earlier:
        remark(f"already there: {folder / 'record.json'}")
    else:
        write(record, folder / FILE_NAME)
    return record


def _command(words: str, suite: str, task: "Suite", settings: "Settings", folder: Path) -> str:
    rows = str(settings.episodes or task.episodes)
    if settings.first:
        rows = f"{settings.first}:{settings.first + int(rows)}"
    engine = "" if settings.engine == "mujoco" else f" --engine {shlex.quote(settings.engine)}"
    loop = "" if settings.open_loop == 8 else f" --open-loop {settings.open_loop}"
    return f"morph-vla eval {words} --suite {suite} --episodes {rows}{loop}{engine} -o {_shown(folder)}"


def _sampler_words(sampler: dict[str, Any]) -> list[str]:
    """The options that ask for this sampler; none for the default one."""
    noise = [] if sampler["noise"] == NOISE else ["--noise", f"{sampler['noise']:g}"]
    return noise + ([] if sampler["steps"] == STEPS else ["--sampler-steps", str(sampler["steps"])])


def _shown(path: Path) -> str:
    """A path as a person would type it here: relative where it lies below the current folder."""
    absolute, here = path.resolve(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else path.name


def sentence(record: "Record") -> str:
    """'trained: 76 of 100 succeeded, 76.0% [66.8, 83.3] (95% Wilson), median 4.2 s to success'.

    Of several tasks, the sentence of all and an indented one for each.
    """
    lines = [_sentence(record.policy.label, record.summary)]
    tasks = record.summary.tasks
    if len(tasks) > 1:
        lines += [f"  {_sentence(task, rates)}" for task, rates in tasks.items()]
    return "\n".join(lines)


def _sentence(name: str, rates: "Rates") -> str:
    if rates.rate is None or rates.low is None or rates.high is None:
        return f"{name}: not measured"
    text = (
        f"{name}: {rates.successes} of {rates.trials} succeeded, "
        f"{rates.rate:.1%} [{100 * rates.low:.1f}, {100 * rates.high:.1f}] (95% Wilson)"
    )
    if rates.time_to_success_s:
        text += f", median {rates.time_to_success_s.median:.1f} s to success"
    if rates.errors:
        text += f", {rates.errors} ended in an error"
    return text
