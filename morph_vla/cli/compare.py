"""`morph-vla compare A B ...`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add, add_json, add_number, refuse
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError

EXAMPLES = """
  morph-vla compare runs/before runs/after
  morph-vla compare runs/host/eval runs/mix/eval runs/film/eval --json
  morph-vla compare runs/first/eval500 runs/first/eval1000 runs/first/eval1500 --plot runs/first/curve.svg
  morph-vla compare runs/before runs/after --sequential
  morph-vla compare hf://someone/first runs/first/eval
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla compare`."""
    about = "two or more evaluations: a folder, its record.json or hf://OWNER/NAME; each against the first"
    add(parser, "given", about, "RECORD", nargs="+")
    about = "for two evaluations, finished or not: is it decided which is better? Ask as often as you like"
    add(parser, "--sequential", about)
    about = "with --sequential: a difference smaller than this counts as none"
    add_number(parser, "--margin", 10.0, about, "POINTS")
    about = "with --sequential: the largest chance of a wrong decision"
    add_number(parser, "--error", 0.05, about, "PROBABILITY")
    add(parser, "--plot", "draw the learning curve (svg, png, pdf)", "FILE", type=Path)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """A table of success rates, and the difference of each to the first with its interval."""
    from morph_vla.files.remote import folder_of
    from morph_vla.results import curves, record, several

    given: list[str] = arguments.given
    if not 2 <= len(given) <= len(several.LETTERS):
        most = len(several.LETTERS)
        raise MorphVlaError(f"compare takes 2 to {most} evaluations, got {len(given)}")
    if arguments.sequential:
        refuse(arguments, "--sequential draws no picture", plot=None)
        watch(arguments)
        return
    refuse(arguments, "--margin and --error are those of --sequential", margin=10.0, error=0.05)
    records = [record.read(folder_of(place)) for place in given]
    answer = several.side_by_side(given, records)
    if arguments.plot:
        curves.write(curves.curves(records), arguments.plot)
    render(answer, arguments.json, text=f"{answer}\n{arguments.plot}" if arguments.plot else answer)


def watch(arguments: argparse.Namespace) -> None:
    """Whether it is decided which of two evaluations is better, finished or not."""
    from morph_vla.evaluation import journal
    from morph_vla.files.remote import folder_of
    from morph_vla.results import several
    from morph_vla.results.sequential import sentence

    if len(arguments.given) != 2:
        raise MorphVlaError(f"--sequential takes two evaluations, got {len(arguments.given)}")
    if not 0 < arguments.margin < 100:
        raise MorphVlaError(f"--margin must be between 0 and 100 points, got {arguments.margin:g}")
    a, b = (journal.so_far(folder_of(place)) for place in arguments.given)
    sides = [f"{letter} ({path})" for letter, path in zip("AB", arguments.given, strict=True)]
    watched = several.watched(a, b, arguments.error, arguments.margin / 100)
    whole, tasks = watched.whole, {task: sentence(look, *sides) for task, look in watched.tasks.items()}
    says = sentence(
        whole, *sides, waiting=[task for task, look in watched.tasks.items() if not look.episodes]
    )
    lines = [says]
    if whole.episodes:
        turns = ", the tasks taking turns" if tasks else ""
        counts = f"both {whole.both}, only A {whole.only_a}, only B {whole.only_b}, neither {whole.neither}"
        lines.append(f"{whole.episodes} episodes in the table's order{turns}: {counts}")
    lines += [f"  {task}: {sentence(look)}" for task, look in watched.tasks.items()]
    plain = {task: {**vars(look), "says": tasks[task]} for task, look in watched.tasks.items()}
    render({**vars(whole), "says": says, "tasks": plain}, arguments.json, text="\n".join(lines))
