"""`morph-vla train RECIPE`."""

import argparse
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla import process
from morph_vla.cli.common import add_folders, add_json, print_json
from morph_vla.cli.progress import Bar
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.recipes.recipe import Recipe
    from morph_vla.training.loop import Run
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
    if arguments.overwrite:
        remove_run(arguments.output)
    done = train(
        recipe,
        arguments.output,
        quiet=arguments.json,
        tensorboard=arguments.tensorboard,
        wandb=arguments.wandb,
        folders=arguments.folders,
    )
    if arguments.json:
        facts = {"checkpoint": str(done.checkpoint), "stopped": done.stopped}
        print_json({**facts, "parameters": done.parameters, "parts": done.parts})
    else:
        if done.stopped:
            print(f"stopped by SIGTERM at step {done.checkpoint.name}; the same command goes on")
        print(done.checkpoint)


def join(arguments: argparse.Namespace) -> None:
    """Make this one of several processes that train together, where the command line says so.

    Raises MorphVlaError when it says only a part of it.
    """
    own = {name: getattr(arguments, name) for name in ("coordinator", "processes", "process")}
    missing = [f"--{name}" for name, value in own.items() if value is None]
    if len(missing) == 3 and not arguments.distributed:
        return
    if 0 < len(missing) < 3:
        raise MorphVlaError(
            f"--coordinator, --processes and --process go together; {', '.join(missing)} missing"
        )
    import jax

    try:
        jax.distributed.initialize(own["coordinator"], own["processes"], own["process"])
    except (ValueError, RuntimeError) as error:
        raise MorphVlaError(
            f"the processes do not find each other ({error}); --distributed asks SLURM, Open MPI, Kubernetes "
            "or a TPU pod; elsewhere give --coordinator, --processes and --process"
        ) from error


def _recipe(arguments: argparse.Namespace) -> "Recipe":
    """The recipe asked for, or that of the run in the folder."""
    from morph_vla.recipes import recipe as config

    if not arguments.resume:
        if arguments.recipe is None:
            raise MorphVlaError("name a recipe, or go on with a run: --resume -o FOLDER")
        return config.load(arguments.recipe, arguments.overrides, arguments.folders)
    if arguments.overwrite:
        raise MorphVlaError("--resume goes on with a run and --overwrite removes it; give one of them")
    own = config.of_run(arguments.output)
    if arguments.recipe is None:
        return own
    return config.load(arguments.recipe, arguments.overrides, arguments.folders)


OF_A_RUN = ("recipe.json", "log.jsonl", "checkpoints", "cache", "tensorboard", "wandb", "evaluations")


def remove_run(folder: Path) -> None:
    """Remove what a run left in its folder, and nothing else.

    Raises MorphVlaError for a folder that holds other things and no run.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / "recipe.json").exists():
        raise MorphVlaError(f"{folder} holds no run (recipe.json is missing); nothing is removed")
    for name in OF_A_RUN:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def train(
    recipe: "Recipe",
    folder: Path,
    quiet: bool = False,
    tensorboard: bool = False,
    wandb: str | None = None,
    folders: Sequence[str] = (),
    on_stage: Callable[[str], None] | None = None,
) -> "Run":
    """Train with a bar, the stages before it, and the table of what learns; `quiet` leaves both out.

    With `on_stage` the stages are told to it, and nothing else is printed.
    The recipe's suites are tried in FOLDER/evaluations; TensorBoard and Weights & Biases when asked.
    """
    from morph_vla.training import loop, sharding, trackers

    check_suites(recipe, folders)
    say: Callable[..., None] = (lambda *_: None) if quiet or on_stage else print
    with ExitStack() as stack:
        told: list[Tracker] = []
        if sharding.is_first():
            told = _trackers(recipe, folder, tensorboard, wandb)
        for tracker in told:
            stack.callback(tracker.close)
        bars: list[Any] = []

        def on_report(report: "Report") -> None:
            if not bars:
                bars.append(stack.enter_context(Bar("training", report.steps, "step")))
            bars[0].at(report.step, **_beside(report))
            for tracker in told:
                tracker.add(report.step, trackers.numbers(report))

        def evaluate(checkpoint: Path) -> None:
            rates = try_out(recipe, checkpoint, folder / "evaluations", folders, say)
            for tracker in told:
                tracker.add(int(checkpoint.name), rates)

        return loop.train(
            recipe,
            folder,
            on_report=on_report,
            on_stage=on_stage or say,
            on_start=lambda parts: _print_parts(parts, say),
            evaluate=evaluate if recipe.evaluation.suites else None,
        )


def _trackers(recipe: "Recipe", folder: Path, tensorboard: bool, wandb: str | None) -> "list[Tracker]":
    from morph_vla.files.plain import to_plain
    from morph_vla.training import trackers

    told: list[Tracker] = [trackers.TensorBoard(folder)] if tensorboard else []
    return told + ([trackers.Wandb(folder, wandb, to_plain(recipe))] if wandb else [])


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


def check_suites(recipe: "Recipe", folders: Sequence[str]) -> None:
    """Raise MorphVlaError for a suite that is not there, or of a robot that is not trained on."""
    from morph_vla.suites import suite

    trained = {source.robot for source in recipe.data.sources}
    for name in recipe.evaluation.suites:
        robot = suite.load_tasks(name, (), folders)[0].robot
        if robot not in trained:
            raise MorphVlaError(
                f"evaluation.suites: '{name}' is of robot '{robot}'; "
                f"this recipe trains {', '.join(sorted(trained))}"
            )


def try_out(
    recipe: "Recipe",
    checkpoint: Path,
    folder: Path,
    folders: Sequence[str],
    say: Callable[..., None],
) -> dict[str, float]:
    """Try a checkpoint in the recipe's suites: a record each in FOLDER/STEP-SUITE, and the rates by suite.

    What is there already is read back, an interrupted evaluation goes on.
    """
    from morph_vla.cli.eval import evaluate, sentence
    from morph_vla.evaluation.rollout import Settings
    from morph_vla.suites import suite

    asked, rates = recipe.evaluation, {}
    for chosen in (task for name in asked.suites for task in suite.load_tasks(name, (), folders)):
        settings = Settings(episodes=asked.episodes, parallel=min(20, asked.episodes), videos=0)
        record = evaluate(
            checkpoint,
            [chosen],
            settings,
            folder / f"{checkpoint.name}-{chosen.label.replace(':', '-')}",
            f"step {checkpoint.name}",
        )
        say(f"{chosen.label}, {sentence(record)}")
        if record.summary.rate is not None:
            rates[f"success/{chosen.label}"] = record.summary.rate
    return rates


def _print_parts(parts: dict[str, dict[str, int]], say: Callable[..., None]) -> None:
    width = max(map(len, parts))
    say(f"{'part':<{width}}  {'trainable':>13}  {'frozen':>13}")
    for name, row in parts.items():
        say(f"{name:<{width}}  {row['trainable']:>13,}  {row['frozen']:>13,}")
