"""`morph-vla eval CHECKPOINT --suite SUITE`."""

import argparse
from pathlib import Path

from morph_vla import process
from morph_vla.cli import common, policies
from morph_vla.cli.common import add, add_common, add_engine, add_number, add_output, add_overrides, rows
from morph_vla.cli.progress import Bars
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError
from morph_vla.results.record import FILE_NAME, Record, read
from morph_vla.results.several import side_by_side

EXAMPLES = """
  morph-vla eval runs/first/checkpoints/1400 --suite droid_panda -o runs/first/eval
  morph-vla eval runs/first/checkpoints/1400 --suite droid_panda:can_in_mug --episodes 50 -o runs/first/can
  morph-vla eval runs/first/checkpoints/1400 --suite droid_panda --episodes 150:300 -o runs/first/other_half
  morph-vla eval runs/first/checkpoints/1400 --suite droid_panda --engine isaaclab -o runs/first/isaac
  morph-vla eval pi05-arms --suite eval/my_arm.yaml --noise 0 --poses-from poses-exterior -o runs/seen
  morph-vla eval --policy ws://127.0.0.1:8000 --suite droid_panda -o runs/first/served
  morph-vla eval runs/b/checkpoints/1500 --suite droid_panda --against runs/a --stop-when-decided -o runs/eval
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla eval`."""
    from morph_vla.evaluation.rollout import Settings

    about = "its folder, hf://OWNER/NAME, pi05-arms or pi05-nano; none with --policy"
    add(parser, "checkpoint", about, "CHECKPOINT", nargs="?")
    add_overrides(parser, "suite")
    policies.configure(parser)
    add(parser, "--suite", "a suite's name or file", "SUITE", required=True)
    add_output(parser, "where the record goes")
    about = "the first N initial states, or those from A to B - 1 (default: as many as the suite says)"
    add(parser, "--episodes", about, "N | A:B", type=rows, default=(0, None))
    add_number(parser, "--parallel", Settings.parallel, "environments at once", least=1)
    add_number(parser, "--workers", Settings.workers, "processes (default: cores - 1)", least=1)
    add_engine(parser)
    about = "actions executed before the policy is asked again (default: those of 8/15 s)"
    add_number(parser, "--open-loop", Settings.open_loop, about, least=1)
    add_number(parser, "--latency", Settings.latency, "control steps until an answer is there", least=0)
    add(parser, "--real-time", "real-time chunking: answers go on from the one that is executed meanwhile")
    policies.add_sampler(parser)
    about = "how long the policy may take to answer; ten times that for the first, which may compile"
    add_number(parser, "--timeout", Settings.answer_seconds, about, "SECONDS")
    add_number(parser, "--videos", Settings.videos, "episodes to film", least=0)
    add(parser, "--against", "an evaluation of the same suite to compare with", "RECORD", type=Path)
    about = "with --against: end a task once one of the two is better, or neither by 10 points (error 5%%)"
    add(parser, "--stop-when-decided", about)
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate a checkpoint on a suite; an interrupted evaluation goes on where it stopped."""
    from morph_vla.evaluation.evaluate import check_against, evaluate
    from morph_vla.suites import environment

    process.prepare()
    if arguments.stop_when_decided and not arguments.against:
        raise MorphVlaError("--stop-when-decided needs --against RECORD, the evaluation to compare with")
    against = read(arguments.against) if arguments.against else None
    if arguments.policy and arguments.checkpoint:
        arguments.overrides.insert(0, arguments.checkpoint)  # the first word; the policy is elsewhere
    tasks = environment.load_tasks(arguments.suite, arguments.overrides, common.search(arguments.folders))
    if against:
        check_against(tasks, against, str(arguments.against))
    policy = policies.of(arguments, tasks)
    settings = ("parallel", "workers", "open_loop", "latency", "real_time", "videos", "engine")
    first, episodes = arguments.episodes
    with Bars(f"evaluating {arguments.policy or Path(arguments.checkpoint).name}", "episode") as bars:
        record = evaluate(
            policy, tasks, folder=arguments.output, against=against if arguments.stop_when_decided else None,
            overrides=arguments.overrides, progress=bars.evaluated, first=first, episodes=episodes,
            answer_seconds=arguments.timeout, **{name: getattr(arguments, name) for name in settings},
        )  # fmt: skip
    show(record, arguments, against)


def show(record: Record, arguments: argparse.Namespace, against: Record | None) -> None:
    """The result of an evaluation, and beside it `against`; of one stopped early, what goes on with it."""
    more: dict[str, object] = {"sorting": record.sorting} if record.sorting else {}
    text = f"{record}\n{(path := arguments.output / FILE_NAME)}"
    if record.stopped:
        more["stopped"] = record.stopped
        text += "\nthe same command without --stop-when-decided runs the rest"
    elif against:
        names = [str(arguments.against), str(arguments.output)]
        text += f"\n\n{side_by_side(names, [against, record])}"
    render(record.summary, arguments.json, text=text, record=path, **more)
