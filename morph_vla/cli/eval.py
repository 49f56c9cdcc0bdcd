"""`morph-vla eval CHECKPOINT --suite SUITE`."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla import process
from morph_vla.cli.common import add_engine, add_folders, add_json, print_json
from morph_vla.cli.progress import Bars
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.results.record import Record
    from morph_vla.results.statistics import Rates

EXAMPLES = """
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda -o runs/first/eval
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda:can_in_mug --episodes 50 -o runs/first/can
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --episodes 150:300 -o runs/first/other_half
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --engine isaaclab -o runs/first/isaac
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --noise 0 -o runs/first/mean
  morph-vla eval runs/b/1500 --suite droid_panda --against runs/a/eval --stop-when-decided -o runs/b/eval
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla eval`."""
    from morph_vla.evaluation.rollout import Settings
    from morph_vla.evaluation.sampler import Sampler

    def number(option: str, default: int | float | None, about: str, metavar: str = "N") -> None:
        kind = float if isinstance(default, float) else int
        shown = "" if default is None else f" (default {default:g})"
        parser.add_argument(option, type=kind, default=default, metavar=metavar, help=f"{about}{shown}")

    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint's folder")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the suite")
    parser.add_argument("--suite", required=True, help="a suite's name or file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the record goes"
    )
    parser.add_argument(
        "--episodes", type=_rows, default=(0, None), metavar="N | A:B",
        help="the first N rows of the table, or rows A to B - 1 (default: as many as the suite says)",
    )  # fmt: skip
    number("--parallel", Settings.parallel, "environments at once")
    number("--workers", Settings.workers, "processes (default: cores - 1)")
    add_engine(parser)
    number("--open-loop", Settings.open_loop, "actions executed per answer (default: 8/15 s of them)")
    number(
        "--noise", Sampler.noise, "times the sampler's initial noise; 0: one answer, near the mean", "FACTOR"
    )
    number("--sampler-steps", Sampler.steps, "steps of the flow sampler")
    number(
        "--timeout", Settings.answer_seconds,
        "a policy's answer may take; the first, which may compile, ten times that", "SECONDS",
    )  # fmt: skip
    number("--videos", Settings.videos, "episodes filmed")
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
    from morph_vla.evaluation.evaluate import check_against, evaluate
    from morph_vla.results import record as records
    from morph_vla.suites import suite

    process.prepare()
    for name in ("parallel", "open_loop", "sampler_steps"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise MorphVlaError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if not (math.isfinite(arguments.noise) and arguments.noise >= 0):
        raise MorphVlaError(f"--noise must be a finite number of at least 0, not {arguments.noise:g}")
    if arguments.stop_when_decided and not arguments.against:
        raise MorphVlaError("--stop-when-decided wants --against RECORD: the evaluation to be better than")
    against = records.read(arguments.against) if arguments.against else None
    tasks = suite.load_tasks(arguments.suite, arguments.overrides, arguments.folders)
    if against:
        check_against(tasks, against, str(arguments.against))
    from morph_vla.serving import policy as policies

    policy = policies.load(
        arguments.checkpoint, robot=tasks[0].robot, steps=arguments.sampler_steps, noise=arguments.noise
    )
    (first, episodes), settings = arguments.episodes, ("parallel", "workers", "open_loop", "videos", "engine")
    with Bars(f"evaluating {arguments.checkpoint.name}", "episode") as bars:
        record = evaluate(
            policy, tasks, folder=arguments.output, against=against if arguments.stop_when_decided else None,
            overrides=arguments.overrides, progress=bars.evaluated, first=first, episodes=episodes,
            answer_seconds=arguments.timeout, **{name: getattr(arguments, name) for name in settings},
        )  # fmt: skip
    show(record, arguments, against)


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
