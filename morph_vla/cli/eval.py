"""`morph-vla eval CHECKPOINT --suite SUITE`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla.cli.common import add_folders, add_json, print_json
from morph_vla.cli.progress import Bar
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.sim.rollout import Settings
    from morph_vla.sim.suite import Suite

EXAMPLES = """
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda -o runs/first/eval
  morph-vla eval runs/first/checkpoints/1500 --suite droid_panda:can_in_mug --episodes 50 -o runs/first/can
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla eval`."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint's folder")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the suite")
    parser.add_argument("--suite", required=True, help="a suite's name or file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the record goes"
    )
    parser.add_argument("--episodes", type=int, default=None, help="rows of the table (default: the suite's)")
    parser.add_argument("--parallel", type=int, default=20, help="environments at once (default 20)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: cores - 1)")
    parser.add_argument("--open-loop", type=int, default=8, help="actions executed per answer (default 8)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="a policy's answer may take (default 60; the first, which may compile, ten times that)",
    )
    parser.add_argument("--videos", type=int, default=6, help="episodes filmed (default 6)")
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate a checkpoint on a suite; an interrupted evaluation goes on where it stopped."""
    from morph_vla.sim import suite
    from morph_vla.sim.rollout import Settings

    for name in ("episodes", "parallel", "open_loop"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise MorphVlaError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    chosen = suite.load_tasks(arguments.suite, arguments.overrides, arguments.folders)
    settings = Settings(
        arguments.episodes, arguments.parallel, arguments.workers, arguments.open_loop, arguments.videos,
        answer_seconds=arguments.timeout,
    )  # fmt: skip
    record = evaluate(arguments.checkpoint, chosen, settings, arguments.output, arguments.checkpoint.name)
    if arguments.json:
        print_json({"record": str(arguments.output / "record.json"), **record["summary"]})
    else:
        print(sentence(record))
        print(arguments.output / "record.json")


def evaluate(
    checkpoint: Path, tasks: "Sequence[Suite]", settings: "Settings", folder: Path, name: str
) -> dict[str, Any]:
    """The record of a checkpoint on a suite's tasks, written to `folder`; one that is there is read back.

    Several tasks have a record each in the folder of their name, and one of all. Raises MorphVlaError with
    both sides when the policy does not fit a task.
    """
    import json

    from morph_vla.doctor import require_gl
    from morph_vla.robots.dropin import write_text
    from morph_vla.serving.expectations import mismatches
    from morph_vla.serving.policy import CheckpointPolicy
    from morph_vla.sim.rollout import finished
    from morph_vla.sim.tasks import combine

    require_gl()
    policy = CheckpointPolicy(
        checkpoint, robot=tasks[0].robot, batch=-(-settings.parallel // settings.groups)
    )
    for task in tasks:
        problems = mismatches(policy, task)
        if problems:
            raise MorphVlaError(f"{checkpoint} does not fit suite '{task.label}': " + "; ".join(problems))
    about = {
        "name": name,
        "checkpoint": _shown(checkpoint),
        "step": policy.about["step"],
        "sha256": policy.digest(),  # a checkpoint trained anew in the same place is another policy
    }
    if len(tasks) == 1:
        return _evaluate_task(policy, tasks[0], settings, folder, about)
    records = [_evaluate_task(policy, task, settings, folder / task.task_key, about) for task in tasks]
    whole = combine(records, _command(about, tasks[0].name, tasks[0], settings, folder))
    if whole != finished(folder):
        write_text(folder / "record.json", json.dumps(whole, indent=1))
    return whole


def _evaluate_task(
    policy: Any, task: "Suite", settings: "Settings", folder: Path, about: dict[str, Any]
) -> dict[str, Any]:
    import json

    from morph_vla.robots.dropin import write_text
    from morph_vla.serving.expectations import doubts
    from morph_vla.sim import rollout

    notes = doubts(policy, task)
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    episodes = settings.episodes or task.episodes
    earlier = rollout.finished(folder)
    command = _command(about, task.label, task, settings, folder)
    with Bar(f"evaluating {about['name']}, {task.task_key}", episodes, "episode") as bar:
        record = rollout.evaluate(
            task, policy, settings, about=about, folder=folder, command=command, notes=notes,
            progress=lambda done, _total, won: bar.at(done, successes=str(won)),
        )  # fmt: skip
    if record == earlier:
        print(f"already there: {folder / 'record.json'}", file=sys.stderr)
    else:
        write_text(folder / "record.json", json.dumps(record, indent=1))
    return record


def _command(about: dict[str, Any], suite: str, task: "Suite", settings: "Settings", folder: Path) -> str:
    episodes = settings.episodes or task.episodes
    return f"morph-vla eval {about['checkpoint']} --suite {suite} --episodes {episodes} -o {_shown(folder)}"


def _shown(path: Path) -> str:
    """A path as a person would type it here: relative where it lies below the current folder."""
    absolute, here = path.resolve(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else path.name


def sentence(record: dict[str, Any]) -> str:
    """'trained: 76 of 100 succeeded, 76.0% [66.8, 83.3] (95% Wilson), median 4.2 s to success'.

    Of several tasks, the sentence of all and an indented one for each.
    """
    summary = record["summary"]
    lines = [_sentence(record["policy"]["name"], summary)]
    tasks = summary.get("tasks") or {}
    if len(tasks) > 1:
        lines += [f"  {_sentence(task, own)}" for task, own in tasks.items()]
    return "\n".join(lines)


def _sentence(name: str, summary: dict[str, Any]) -> str:
    if summary["rate"] is None:
        return f"{name}: not measured"
    text = (
        f"{name}: {summary['successes']} of {summary['trials']} succeeded, "
        f"{summary['rate']:.1%} [{100 * summary['low']:.1f}, {100 * summary['high']:.1f}] (95% Wilson)"
    )
    time = summary.get("time_to_success_s")
    if time and time.get("median") is not None:
        text += f", median {time['median']:.1f} s to success"
    if summary["errors"]:
        text += f", {summary['errors']} ended in an error"
    return text
