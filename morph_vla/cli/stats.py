"""`morph-vla stats DATASET | RECIPE`."""

import argparse
import json
import time
from pathlib import Path

from morph_vla.cli.common import add, add_common, add_overrides, search
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError
from morph_vla.files.home import expanded
from morph_vla.files.writing import write_text

EXAMPLES = """
  morph-vla stats runs/demo/dataset
  morph-vla stats runs/demo/dataset --json
  morph-vla stats panda_demo data.dataset=runs/demos data.actions=delta --output stats.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla stats`."""
    dataset = "a LeRobot dataset of any version (a folder, or USER/NAME on the Hub): its values as recorded"
    about = f"{dataset}; or a recipe: the values that each of its robots learns, over all its datasets"
    add(parser, "source", about, "DATASET|RECIPE")
    add_overrides(parser, "recipe")
    about = "of a recipe: also write them as JSON, for its `data.statistics`"
    add(parser, "--output", about, "FILE", type=Path)
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Quantiles, mean and standard deviation of states and actions; no video is decoded."""
    from morph_vla.recipes import ablations

    begun, source = time.perf_counter(), arguments.source
    is_recipe = ablations.split(source)[0].endswith((".yaml", ".yml")) or "/" not in source
    if expanded(source).is_dir() or not is_recipe:
        from morph_vla.training.measured import measure

        if arguments.overrides:
            raise MorphVlaError(f"{arguments.overrides[0]}: KEY=VALUE needs a recipe, and this is a dataset")
        if arguments.output:
            raise MorphVlaError(
                "--output needs a recipe, which says what each robot learns, and this is a dataset; run "
                f"`morph-vla stats RECIPE data.dataset={arguments.source} --output {arguments.output}`"
            )
        measured = measure(arguments.source)
        plain, text = measured.plain(), str(measured)
    else:
        from morph_vla.recipes import recipe as recipes
        from morph_vla.training import datasets, statistics

        search(arguments.folders)
        recipe = recipes.load(arguments.source, arguments.overrides, arguments.folders)
        robots = datasets.statistics_of(recipe)
        plain = statistics.plain(robots, recipe.model.horizon)
        text = "\n".join(statistics.listed(robots, recipe.model.horizon))
    if arguments.output:
        write_text(arguments.output, json.dumps(plain, indent=2))
    took = f"measured in {time.perf_counter() - begun:.1f} s; no image was decoded"
    render(plain, arguments.json, text=f"{text}\n{took}")
