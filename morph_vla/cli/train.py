"""`morph-vla train RECIPE`."""

import argparse
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from morph_vla import process
from morph_vla.cli import words
from morph_vla.cli.common import add, add_folders, add_json, add_number, add_output, add_overrides
from morph_vla.cli.progress import Bars
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.recipes.recipe import Recipe
    from morph_vla.results.record import Record
    from morph_vla.training.trackers import Tracker

EXAMPLES = """
  morph-vla train panda_demo data.dataset=runs/demos -o runs/first
  morph-vla train panda_demo data.dataset=runs/demos training.steps=200 -o runs/short
  morph-vla train --resume -o runs/first   # the recipe is read from the folder
  morph-vla train panda_demo data.dataset=runs/demos -o runs/first --tensorboard --wandb my-project
  morph-vla train pi05_g1_dex1 -o runs/g1 --distributed   # under SLURM or on a TPU pod: docs/scale.md
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla train`."""
    add(parser, "recipe", "a recipe's name or file", "RECIPE", nargs="?")
    add_overrides(parser, "recipe")
    add_output(parser, "the folder of the run")
    add(parser, "--resume", "continue the run in FOLDER, with the recipe it began with")
    add(parser, "--overwrite", "remove the run in FOLDER and start again")
    add(parser, "--tensorboard", "also log to FOLDER/tensorboard")
    add(parser, "--wandb", "also log to Weights & Biases (WANDB_MODE=offline works too)", "PROJECT")
    about = "this is one of several processes that train together; the cluster says which"
    add(parser, "--distributed", about)
    about = "where no cluster says it: the address of process 0; needs --processes and --process"
    add(parser, "--coordinator", about, "HOST:PORT")
    add_number(parser, "--processes", None, "how many processes train together")
    add_number(parser, "--process", None, "which of them this is, from 0", "I")
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

    def on_record(suite: str, record: "Record") -> None:
        say(f"{suite}, " + "\n".join(words.evaluation(record)))

    with Bars("evaluating", "episode") as tried, Bars("training", "step") as steps, ExitStack() as stack:
        run = trials.train(
            recipe,
            arguments.output,
            _trackers(arguments, recipe, stack),
            folders=arguments.folders,
            on_record=on_record,
            progress=tried.evaluated,
            on_report=steps.trained,
        )

    def lines(_: object) -> Iterator[str]:
        if run.stopped:
            yield f"stopped by SIGTERM at step {run.checkpoint.name}; the same command goes on"
        yield str(run.checkpoint)

    facts = {"checkpoint": run.checkpoint, "stopped": run.stopped}
    render({**facts, "parameters": run.parameters, "parts": run.parts}, arguments.json, lines)


def join(arguments: argparse.Namespace) -> None:
    """Make this one of several processes that train together, where the command line says so.

    Raises MorphVlaError when it says only a part of it.
    """
    given = {name: getattr(arguments, name) for name in ("coordinator", "processes", "process")}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if len(missing) == 3 and not arguments.distributed:
        return
    if 0 < len(missing) < 3:
        together = "--coordinator, --processes and --process go together"
        raise MorphVlaError(f"{together}; {', '.join(missing)} missing")
    import jax

    try:
        jax.distributed.initialize(*given.values())
    except (ValueError, RuntimeError) as error:
        raise MorphVlaError(
            f"the processes cannot find each other ({error}); --distributed asks SLURM, Open MPI, Kubernetes "
            "or a TPU pod; elsewhere give --coordinator, --processes and --process"
        ) from error
    if jax.process_index():  # what is done is said once, by the first
        logging.getLogger("morph_vla").setLevel(logging.WARNING)


def _recipe(arguments: argparse.Namespace) -> "Recipe":
    """The recipe asked for, or that of the run in the folder."""
    from morph_vla.recipes import recipe

    if arguments.resume and arguments.overwrite:
        raise MorphVlaError("--resume continues a run and --overwrite removes it; give only one of them")
    run = recipe.of_run(arguments.output) if arguments.resume else None
    if arguments.recipe is not None:
        return recipe.load(arguments.recipe, arguments.overrides, arguments.folders)
    if run is None:
        raise MorphVlaError("name a recipe, or continue a run: --resume -o FOLDER")
    return run


def _trackers(arguments: argparse.Namespace, recipe: "Recipe", stack: ExitStack) -> "list[Tracker]":
    """TensorBoard and Weights & Biases where they were asked for, closed with `stack`."""
    from morph_vla.files.plain import to_plain
    from morph_vla.training import sharding, trackers

    folder, chosen = arguments.output, []
    if arguments.tensorboard and sharding.is_first():
        chosen.append(trackers.TensorBoard(folder))
    if arguments.wandb and sharding.is_first():
        chosen.append(trackers.Wandb(folder, arguments.wandb, to_plain(recipe)))
    for tracker in chosen:
        stack.callback(tracker.close)
    return chosen
