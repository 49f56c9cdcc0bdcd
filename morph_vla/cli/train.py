"""`morph-vla train RECIPE`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla import process
from morph_vla.cli.common import add, add_common, add_number, add_output, add_overrides, search
from morph_vla.cli.progress import Bars
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.recipes.keys import Recipe

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
    add(parser, "--distributed", "one of several processes that train together; the cluster says which")
    about = "where no cluster says it: the address of process 0; needs --processes and --process"
    add(parser, "--coordinator", about, "HOST:PORT")
    add_number(parser, "--processes", None, "how many processes train together")
    add_number(parser, "--process", None, "which of them this is, from 0", "I")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Fine-tune by a recipe; a folder with an unfinished run of it goes on from its newest checkpoint."""
    process.prepare()
    search(arguments.folders)
    recipe, output = _recipe(arguments), arguments.output
    from morph_vla.serving import trials
    from morph_vla.training import folder, sharding, trackers

    place = arguments.coordinator, arguments.processes, arguments.process
    if arguments.distributed or any(given is not None for given in place):
        sharding.join(*place)
    first = sharding.is_first()
    if arguments.overwrite:
        sharding.first_then_others("overwrite", lambda: folder.remove(output, recipe) if first else None)
    # Before a tracker goes on with the line of another run.
    sharding.first_then_others("claim", lambda: folder.claim_alone(output, recipe, first))

    def on_record(suite: str, record: object) -> None:
        if not arguments.json:
            print(f"{suite}, {record}")

    with (
        Bars("evaluating", "episode") as tried,
        Bars("training", "step") as steps,
        trackers.opened(output, recipe, arguments.tensorboard, arguments.wandb) as opened,
    ):
        run = trials.train(
            recipe, output, opened, folders=arguments.folders, on_record=on_record,
            progress=tried.evaluated, on_report=steps.trained,
        )  # fmt: skip
    early = f"stopped by SIGTERM at step {run.checkpoint.name}; the same command goes on\n"
    facts = {name: getattr(run, name) for name in ("checkpoint", "stopped", "parameters", "parts")}
    render(facts, arguments.json, text=f"{early if run.stopped else ''}{run.checkpoint}")


def _recipe(arguments: argparse.Namespace) -> "Recipe":
    """The recipe asked for, or that of the run in the folder."""
    from morph_vla.recipes import recipe

    if arguments.resume and arguments.overwrite:
        raise MorphVlaError("--resume continues a run and --overwrite removes it; give only one of them")
    if "=" in (name := arguments.recipe or "") and not Path(name).is_file():
        raise MorphVlaError(f"name the recipe that is changed, before {name}")
    run = recipe.of_run(arguments.output) if arguments.resume else None
    if arguments.recipe is not None:
        return recipe.load(arguments.recipe, arguments.overrides, arguments.folders)
    if run is None:
        raise MorphVlaError("name a recipe, or continue a run: --resume -o FOLDER")
    return run
