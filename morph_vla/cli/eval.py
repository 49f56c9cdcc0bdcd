"""`morph-vla eval CHECKPOINT --suite SUITE`."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla import process
from morph_vla.cli import compare, words
from morph_vla.cli.common import (
    add,
    add_engine,
    add_folders,
    add_json,
    add_number,
    add_output,
    add_overrides,
)
from morph_vla.cli.progress import Bars
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.engines.engine import Policy
    from morph_vla.results.record import Record
    from morph_vla.suites.suite import Suite

EXAMPLES = """
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda -o runs/first/eval
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda:can_in_mug --episodes 50 -o runs/first/can
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --episodes 150:300 -o runs/first/other_half
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --engine isaaclab -o runs/first/isaac
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda --noise 0 -o runs/first/mean
  morph-vla eval --policy ws://127.0.0.1:8000 --suite droid_panda -o runs/first/served
  morph-vla eval runs/b/1500 --suite droid_panda --against runs/a/eval --stop-when-decided -o runs/b/eval
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla eval`."""
    from morph_vla.evaluation.rollout import Settings
    from morph_vla.evaluation.sampler import Sampler

    add(parser, "checkpoint", "a checkpoint's folder; none with --policy", "CHECKPOINT", nargs="?")
    add_overrides(parser, "suite")
    about = "a server of openpi's protocol in place of a checkpoint; its key is $MORPH_VLA_API_KEY"
    add(parser, "--policy", about, "ws://HOST:PORT")
    about = "the keys of its requests, where it does not say them: droid, libero, aloha or so101"
    add(parser, "--preset", f"with --policy: {about}", "NAME", default="")
    add(parser, "--suite", "a suite's name or file", "SUITE", required=True)
    add_output(parser, "where the record goes")
    about = "the first N initial states, or those from A to B - 1 (default: as many as the suite says)"
    add(parser, "--episodes", about, "N | A:B", type=_rows, default=(0, None))
    add_number(parser, "--parallel", Settings.parallel, "environments at once", least=1)
    add_number(parser, "--workers", Settings.workers, "processes (default: cores - 1)")
    add_engine(parser)
    about = "actions executed before the policy is asked again (default: those of 8/15 s)"
    add_number(parser, "--open-loop", Settings.open_loop, about, least=1)
    about = "scale of the sampler's initial noise; with 0 the answer is always the same, near the mean"
    add_number(parser, "--noise", Sampler.noise, about, "FACTOR", least=0)
    add_number(parser, "--sampler-steps", Sampler.steps, "steps of the flow sampler", least=1)
    about = "how long the policy may take to answer; ten times that for the first, which may compile"
    add_number(parser, "--timeout", Settings.answer_seconds, about, "SECONDS")
    add_number(parser, "--videos", Settings.videos, "episodes to film")
    add(parser, "--against", "an evaluation of the same suite to compare with", "RECORD", type=Path)
    about = "end a task once it is decided which of the two is better, or that neither is by 10 points"
    about = f"with --against: {about}; the chance of a wrong decision is at most 5%%"
    add(parser, "--stop-when-decided", about)
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate a checkpoint on a suite; an interrupted evaluation goes on where it stopped."""
    from morph_vla.evaluation.evaluate import check_against, evaluate
    from morph_vla.results import record as records
    from morph_vla.suites import suite

    process.prepare()
    if arguments.stop_when_decided and not arguments.against:
        raise MorphVlaError("--stop-when-decided needs --against RECORD, the evaluation to compare with")
    against = records.read(arguments.against) if arguments.against else None
    if arguments.policy and arguments.checkpoint:
        arguments.overrides.insert(0, arguments.checkpoint)  # the first word; the policy is elsewhere
    tasks = suite.load_tasks(arguments.suite, arguments.overrides, arguments.folders)
    if against:
        check_against(tasks, against, str(arguments.against))
    policy = _policy(arguments, tasks)
    (first, episodes), settings = arguments.episodes, ("parallel", "workers", "open_loop", "videos", "engine")
    name = arguments.policy or Path(arguments.checkpoint).name
    with Bars(f"evaluating {name}", "episode") as bars:
        record = evaluate(
            policy, tasks, folder=arguments.output, against=against if arguments.stop_when_decided else None,
            overrides=arguments.overrides, progress=bars.evaluated, first=first, episodes=episodes,
            answer_seconds=arguments.timeout, **{name: getattr(arguments, name) for name in settings},
        )  # fmt: skip
    show(record, arguments, against)


def _policy(arguments: argparse.Namespace, tasks: Sequence["Suite"]) -> "Policy":
    """The policy of a checkpoint, or of a server, which is asked once before the first episode."""
    if arguments.policy:
        from morph_vla.evaluation.asking import FIRST
        from morph_vla.serving import remote

        timeout_s = FIRST * arguments.timeout
        return remote.connect(arguments.policy, tasks, preset=arguments.preset, timeout_s=timeout_s)
    if not arguments.checkpoint:
        raise MorphVlaError("what is evaluated? a checkpoint's folder, or --policy ws://HOST:PORT")
    from morph_vla.serving import policy as policies

    return policies.load(
        Path(arguments.checkpoint), robot=tasks[0].robot, batch=policies.EVALUATION_BATCH,
        steps=arguments.sampler_steps, noise=arguments.noise,
    )  # fmt: skip


def show(record: "Record", arguments: argparse.Namespace, against: "Record | None") -> None:
    """The result of an evaluation, and beside it `against`; if stopped early, its decision, no interval."""
    path, stopped = arguments.output / "record.json", record.stopped

    def lines(_: object) -> Iterator[str]:
        if stopped:
            yield f"{record.policy.label}: {words.stopped(stopped)}"
            yield (
                f"{record.summary.successes} of {record.summary.trials} succeeded so far; after an early "
                "stop the decision counts, not the rate; the same command without --stop-when-decided runs "
                "the rest"
            )
        else:
            yield from words.evaluation(record)
        yield str(path)
        if against and not stopped:
            from morph_vla.results.several import side_by_side

            yield ""
            names = [str(arguments.against), str(arguments.output)]
            yield from compare.lines(side_by_side(names, [against, record]))

    more = {"stopped": stopped} if stopped else {}
    render(record.summary, arguments.json, lines, record=path, **more)


def _rows(text: str) -> tuple[int, int]:
    """(first row, how many): `100` is rows 0 to 99, `150:300` rows 150 to 299."""
    numbers = text.split(":")
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise MorphVlaError(f"--episodes expects a number or A:B, for example 150:300, not '{text}'")
    first, end = (0, int(text)) if len(numbers) == 1 else map(int, numbers)
    if end > first:
        return first, end - first
    if len(numbers) == 1:
        raise MorphVlaError(f"--episodes must be at least 1, not {end}")
    raise MorphVlaError(f"--episodes {text} is empty: A:B begins with A and ends before B")
