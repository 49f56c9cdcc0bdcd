"""`morph-vla train RECIPE`."""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla.cli.common import add_folders, add_json, print_json
from morph_vla.cli.progress import Bar

if TYPE_CHECKING:
    from morph_vla.training.config import Recipe
    from morph_vla.training.loop import Run
    from morph_vla.training.progress import Report

EXAMPLES = """
  morph-vla train panda_demo data.dataset=runs/demos -o runs/first
  morph-vla train panda_demo data.dataset=runs/demos training.steps=200 -o runs/short
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla train`."""
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe's name or file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the run goes"
    )
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Fine-tune by a recipe; a folder with an unfinished run of it goes on from its newest checkpoint."""
    from morph_vla.training import config

    recipe = config.load(arguments.recipe, arguments.overrides, arguments.folders)
    done = train(recipe, arguments.output, quiet=arguments.json)
    if arguments.json:
        facts = {"checkpoint": str(done.checkpoint), "stopped": done.stopped}
        print_json({**facts, "parameters": done.parameters, "parts": done.parts})
    else:
        if done.stopped:
            print(f"stopped by SIGTERM at step {done.checkpoint.name}; the same command goes on")
        print(done.checkpoint)


def train(recipe: "Recipe", folder: Path, quiet: bool = False) -> "Run":
    """Train with a bar, the stages before it, and the table of what learns."""
    from morph_vla.training import loop

    say: Callable[..., None] = (lambda *_: None) if quiet else print
    with ExitStack() as stack:
        bars: list[Any] = []

        def on_report(report: "Report") -> None:
            if not bars:
                bars.append(stack.enter_context(Bar("training", report.steps, "step")))
            facts = {"loss": f"{report.loss:.4f}", "lr": f"{report.lr:.1e}"}
            if len(report.robots) > 1:
                facts |= {name: f"{loss:.4f}" for name, loss in report.robots.items()}
            if report.held_out_loss is not None:
                facts["held out"] = f"{report.held_out_loss:.4f}"
            bars[0].at(report.step, **facts)

        return loop.train(
            recipe, folder, on_report=on_report, on_stage=say, on_start=lambda parts: _print_parts(parts, say)
        )


def _print_parts(parts: dict[str, dict[str, int]], say: Callable[..., None]) -> None:
    width = max(map(len, parts))
    say(f"{'part':<{width}}  {'trainable':>13}  {'frozen':>13}")
    for name, row in parts.items():
        say(f"{name:<{width}}  {row['trainable']:>13,}  {row['frozen']:>13,}")
