"""`morph-vla recipes list | show | check | scale | variants | presets`."""

import argparse
from typing import Any

from morph_vla.cli import files
from morph_vla.cli.common import add, add_number, search
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla recipes list
  morph-vla recipes show panda_demo
  morph-vla recipes show panda_demo training.steps=200 --json
  morph-vla recipes variants pi05_droid
  morph-vla recipes show panda_demo@table1.tokens-mix-film
  morph-vla recipes variants panda_demo --names   # one name a line; configs/README.md trains the whole grid
  morph-vla recipes show panda_demo training.kind=expert 'model={morphology: {}}'   # counts at full size
  morph-vla recipes check panda_demo data.dataset=runs/demos
  morph-vla recipes scale pi05_g1_dex1 training.mesh.fsdp=8
  morph-vla recipes presets
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla recipes`."""
    check = "check a recipe and its datasets before training; status 1 on an error"
    scale = "estimate a step's time for several numbers of devices; nothing is run"
    variants = "list the variants of the paper's Tables 1 to 5 and 11, and ours, for any recipe: NAME@VARIANT"
    presets = "show what `preset` in a dataset's entry fills in"
    verbs = files.configure(
        parser,
        "recipes",
        load,
        count,
        more={"check": (check, run_check), "scale": (scale, run_scale)},
        alone={"variants": (variants, run_variants), "presets": (presets, run_presets)},
    )
    listing, about = verbs["variants"], "a recipe; variants that its model cannot have are marked"
    add(listing, "name", about, "RECIPE", nargs="?", default="")
    add_number(listing, "--table", None, "only the variants of one table")
    add(listing, "--names", "print only the names, for a loop")


def load(name: str, overrides: list[str], folders: list[str]) -> Any:
    """A recipe, checked."""
    from morph_vla.recipes import recipe

    return recipe.load(name, overrides, search(folders))


def count(recipe: Any) -> object:
    """What a recipe's model counts; as text, comments."""
    from morph_vla.training import counted

    return counted.count(recipe)


def run_check(arguments: argparse.Namespace) -> int:
    """Print every problem, errors first; a few pictures are decoded and nothing is fetched."""
    from morph_vla.checks import recipe as checks
    from morph_vla.findings import counts, errors

    report = checks.check(load(arguments.name, arguments.overrides, arguments.folders))
    render(report, arguments.json, **counts(report.problems))
    return int(bool(errors(report.problems)))


def run_scale(arguments: argparse.Namespace) -> None:
    """Print an estimate for every number of devices that the recipe's batch can be split over."""
    from morph_vla.training import counted, estimate

    rows = counted.scaling(load(arguments.name, arguments.overrides, arguments.folders))
    text = "\n".join(estimate.listed(rows))
    render(rows, arguments.json, "least", "most", text=text, machine=estimate.H200.name)


def run_variants(arguments: argparse.Namespace) -> int:
    """A row for each variant; status 1 when the recipe's model refuses one, with the reason."""
    from morph_vla.recipes import held

    rows = held.variants(arguments.name, arguments.table or 0, arguments.folders)
    names = [row.name for row in rows if not row.refused]
    render(rows, arguments.json, text="\n".join(names if arguments.names else held.listed(rows)))
    return int(any(row.refused for row in rows))


def run_presets(arguments: argparse.Namespace) -> None:
    """Every preset, with its robot, cameras, keys and units."""
    from morph_vla.data.presets import PRESETS

    lines = (f"{name}: {preset}" for name, preset in PRESETS.items())
    render(PRESETS, arguments.json, text="\n".join(lines))
