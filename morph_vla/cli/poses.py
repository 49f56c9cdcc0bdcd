"""`morph-vla poses train | check`: where objects are, from a camera's pictures."""

import argparse
import shlex
from pathlib import Path

from morph_vla import process
from morph_vla.cli import common
from morph_vla.cli.common import add, add_number
from morph_vla.cli.progress import Bar
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla poses check poses-exterior --suite my_arm --sheet runs/seen.png    # in mm; it is shipped
  morph-vla poses train my_arm other_arm -o runs/poses      # one for the objects of these suites
  morph-vla poses train my_arm --from poses-exterior --steps 500 -o runs/on    # trained on
  morph-vla poses check runs/poses variation.colors=1 --suite my_arm --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla poses`."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="train | check")
    about = "render pictures of suites and train an estimator on them"
    train = verbs.add_parser("train", help=about, description=about)
    add(train, "suites", "suites' names or files", "SUITE", nargs="+")
    common.add_output(train, "where the pictures, the training's state and the estimator go")
    add(train, "--camera", "the fixed camera to look through", "NAME", default="exterior")
    add_number(train, "--size", 128, "pixels of a side of a picture", least=16)
    add_number(train, "--attempts", 3, "of the expert in each showing of a task", least=1)
    add(train, "--from", "an estimator to begin with (default: random parameters)", "ESTIMATOR", dest="start")
    add_number(train, "--steps", 4000, "training steps of 64 pictures", least=1)
    add_number(train, "--seed", 0, "of the parameters and the pictures", least=0)
    add_number(train, "--workers", None, "processes that render (default: one per core)", least=1)
    common.add_common(train)
    train.set_defaults(run=run_train)
    about = "measure how far an estimator's poses are from the simulator's"
    check = verbs.add_parser("check", help=about, description=about)
    add(check, "estimator", "its folder, or poses-exterior, which comes with the package", "ESTIMATOR")
    common.add_overrides(check, "suite")
    add(check, "--suite", "a suite's name or file", "SUITE", required=True)
    add_number(check, "--attempts", 5, "of the expert in each task", least=1)
    add(check, "--sheet", "pictures: rings where things are, crosses where they are said", "FILE", type=Path)
    common.add_common(check)
    check.set_defaults(run=run_check)


def run_train(arguments: argparse.Namespace) -> None:
    """Render, train, and print what the estimator was shown."""
    process.prepare()
    from morph_vla.doctor import require_gl
    from morph_vla.perception import fitting, frames, load
    from morph_vla.suites.suite import load_tasks

    require_gl()
    folders = [Path(folder) for folder in common.search(arguments.folders)]
    tasks = [task for name in arguments.suites for task in load_tasks(name, (), folders)]
    start = load(arguments.start) if arguments.start else None
    settings = fitting.Settings(steps=arguments.steps, seed=arguments.seed)
    rendering = frames.Rendering(arguments.size, arguments.camera, arguments.attempts, seed=arguments.seed)
    options = ("camera", "size", "attempts", "steps", "seed")
    words = [*arguments.suites, *(f"--{option}={getattr(arguments, option)}" for option in options)]
    words += [f"--from={arguments.start}"] if start else []
    with (
        Bar("rendering", len(tasks), "task") as rendered,
        Bar("training", settings.of_both, "step") as trained,
    ):
        listeners = fitting.Listeners(rendered.at, lambda line, _: trained.at(line.step, **line.words))
        made = fitting.train(
            tasks, arguments.output, settings, rendering, workers=arguments.workers, folders=folders,
            start=start, listeners=listeners, command=shlex.join(["morph-vla", "poses", "train", *words]),
        )  # fmt: skip
    render(made.about.to_json(), arguments.json, text=f"{arguments.output}: {made.about}")


def run_check(arguments: argparse.Namespace) -> None:
    """Print a line for each task and role."""
    process.prepare()
    from morph_vla.doctor import require_gl
    from morph_vla.perception import drawing, load, measuring
    from morph_vla.suites.suite import load_tasks
    from morph_vla.wording import table

    require_gl()
    drawing.check(arguments.sheet)
    tasks = load_tasks(arguments.suite, arguments.overrides, common.search(arguments.folders))
    measured = measuring.measure(load(arguments.estimator), tasks, arguments.attempts)
    if arguments.sheet:
        drawing.sheet(measured.images, measured.true, measured.guessed, arguments.sheet)
    head = ["task", "what", "pictures", "mm: half", "90%", "97%", "degrees: half", "90%", "97%"]
    rows = [[e.task, e.role, e.pictures, *e.millimetres, *e.degrees] for e in measured.errors]
    render(list(measured.errors), arguments.json, text="\n".join(table(head, rows)))
