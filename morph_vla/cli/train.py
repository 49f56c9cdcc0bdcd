"""`morph-vla train RECIPE`."""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla import process
from morph_vla.cli.common import add_folders, add_json, print_json
from morph_vla.cli.eval import sentence
from morph_vla.cli.progress import Bar, Bars
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.recipes.recipe import Recipe
    from morph_vla.training.progress import Report
    from morph_vla.training.trackers import Tracker

EXAMPLES = """
  morph-vla train panda_demo data.dataset=runs/demos -o runs/first
  morph-vla train panda_demo data.dataset=runs/demos training.steps=200 -o runs/short
  morph-vla train --resume -o runs/first   # as the same command does
  morph-vla train panda_demo data.dataset=runs/demos -o runs/first --tensorboard --wandb my-project
  morph-vla train pi05_g1_dex1 -o runs/g1 --distributed   # under SLURM or on a TPU pod: docs/scale.md
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla train`."""
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="a recipe's name or file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the run goes"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in FOLDER, by its own recipe"
    )
    parser.add_argument("--overwrite", action="store_true", help="remove the run in FOLDER and begin anew")
    parser.add_argument("--tensorboard", action="store_true", help="write FOLDER/tensorboard too")
    parser.add_argument("--wandb", metavar="PROJECT", help="log to Weights & Biases too (WANDB_MODE=offline)")
    parser.add_argument(
        "--distributed", action="store_true", help="one of several processes; the cluster tells which"
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="with --processes and --process instead")
    parser.add_argument("--processes", type=int, metavar="N", help="how many processes train together")
    parser.add_argument("--process", type=int, metavar="I", help="which of them this is, from 0")
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Fine-tune by a recipe; a folder with an unfinished run of it goes on from its newest checkpoint."""
    process.prepare()
    join(arguments)
    recipe = _recipe(arguments)
    from morph_vla.serving import trials
    from morph_vla.training import folder

    if arguments.overwrite:
        folder.remove(arguments.output)
    say: Callable[..., None] = (lambda *_: None) if arguments.json else print
    with ExitStack() as stack:
        run = trials.train(
            recipe,
            arguments.output,
            _trackers(arguments, recipe, stack),
            folders=arguments.folders,
            on_record=lambda suite, record: say(f"{suite}, {sentence(record)}"),
            progress=stack.enter_context(Bars("evaluating", "episode")).evaluated,
            on_report=Progress(stack),
        )
    if arguments.json:
        facts = {"checkpoint": run.checkpoint, "stopped": run.stopped}
        print_json({**facts, "parameters": run.parameters, "parts": run.parts})
    else:
        if run.stopped:
            print(f"stopped by SIGTERM at step {run.checkpoint.name}; the same command goes on")
        print(run.checkpoint)


def join(arguments: argparse.Namespace) -> None:
    """Make this one of several processes that train together, where the command line says so.

    Raises MorphVlaError when it says only a part of it.
    """
    given = {name: getattr(arguments, name) for name in ("coordinator", "processes", "process")}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if len(missing) == 3 and not arguments.distributed:
        return
    if 0 < len(missing) < 3:
        raise MorphVlaError(
            f"--coordinator, --processes and --process go together; {', '.join(missing)} missing"
        )
    import logging

    import jax

    try:
        jax.distributed.initialize(given["coordinator"], given["processes"], given["process"])
    except (ValueError, RuntimeError) as error:
        raise MorphVlaError(
            f"the processes do not find each other ({error}); --distributed asks SLURM, Open MPI, Kubernetes "
            "or a TPU pod; elsewhere give --coordinator, --processes and --process"
        ) from error
    if jax.process_index():  # what is done is said once, by the first
        logging.getLogger("morph_vla").setLevel(logging.WARNING)


def _recipe(arguments: argparse.Namespace) -> "Recipe":
    """The recipe asked for, or that of the run in the folder."""
    from morph_vla.recipes import recipe as config

    if not arguments.resume:
        if arguments.recipe is None:
            raise MorphVlaError("name a recipe, or go on with a run: --resume -o FOLDER")
        return config.load(arguments.recipe, arguments.overrides, arguments.folders)
    if arguments.overwrite:
        raise MorphVlaError("--resume goes on with a run and --overwrite removes it; give one of them")
    run = config.of_run(arguments.output)
    if arguments.recipe is None:
        return run
    return config.load(arguments.recipe, arguments.overrides, arguments.folders)


def _trackers(arguments: argparse.Namespace, recipe: "Recipe", stack: ExitStack) -> "list[Tracker]":
    """TensorBoard and Weights & Biases where they were asked for, closed with `stack`."""
    from morph_vla.files.plain import to_plain
    from morph_vla.training import sharding, trackers

    chosen: list[Tracker] = []
    if arguments.tensorboard and sharding.is_first():
        chosen.append(trackers.TensorBoard(arguments.output))
    if arguments.wandb and sharding.is_first():
        chosen.append(trackers.Wandb(arguments.output, arguments.wandb, to_plain(recipe)))
    for tracker in chosen:
        stack.callback(tracker.close)
    return chosen


class Progress:
    """A bar of steps, from the first report on, closed with `stack`."""

    def __init__(self, stack: ExitStack):
        self._stack = stack
        self._bar: Bar | None = None

    def __call__(self, report: "Report") -> None:
        """Move the bar to a report's step, with its numbers beside it."""
        self._bar = self._bar or self._stack.enter_context(Bar("training", report.steps, "step"))
        self._bar.at(report.step, **_beside(report))


def _beside(report: "Report") -> dict[str, str]:
    """What stands beside the bar."""
    facts = {
        "loss": f"{report.loss:.4f}",
        "lr": f"{report.lr:.1e}",
        "samples/s": f"{report.samples_per_s:.3g}",
    }
    if report.waiting >= 0.01:
        facts["waiting for data"] = f"{report.waiting:.0%}"
    if len(report.robots) > 1:
        facts |= {name: f"{loss:.4f}" for name, loss in report.robots.items()}
    if report.held_out_loss is not None:
        facts["held out"] = f"{report.held_out_loss:.4f}"
    return facts
