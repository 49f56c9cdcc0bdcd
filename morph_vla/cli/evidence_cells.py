"""What `morph-vla evidence run | again | inside` measure, and how they say it."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from morph_vla import process
from morph_vla.cli.common import search
from morph_vla.cli.progress import Bars, done, now, passing
from morph_vla.cli.render import render

if TYPE_CHECKING:
    from morph_vla.evidence.grid import Grid


def run_run(arguments: argparse.Namespace) -> int:
    """Check the grid, then measure what is missing; status 1 where a cell failed."""
    from morph_vla.evidence import run

    read, say = _ready(arguments)
    settings = run.Settings(
        arguments.output, str(arguments.grid), arguments.shard, arguments.only, arguments.limit,
        arguments.keep_weights, arguments.folders,
    )  # fmt: skip
    with passing():
        ran = run.run(read, settings, Bars, say)
    render(ran, arguments.json)
    return int(ran.failed > 0)


def run_again(arguments: argparse.Namespace) -> int:
    """Measure finished cells once more; status 1 where one has other counts."""
    from morph_vla.evidence import again, run

    read, say = _ready(arguments)
    settings = run.Settings(arguments.output, str(arguments.grid), folders=arguments.folders)
    with passing():
        repeated = again.again(read, settings, arguments.only, arguments.count, Bars, say)
    render(repeated, arguments.json, text="")
    return int(not all(each.is_same for each in repeated))


def run_inside(arguments: argparse.Namespace) -> None:
    """Look into policies whose weights are there, and print what was seen."""
    process.prepare()
    from morph_vla.evidence import grid, inside

    search(arguments.folders)
    read = grid.load(arguments.grid)
    given = (arguments.only, arguments.episodes, arguments.folders)
    with passing():
        seen = inside.look(read, arguments.output, *given, say=done)
    now("")
    render(seen, arguments.json, text="\n\n".join(map(str, seen)))


def _ready(arguments: argparse.Namespace) -> tuple["Grid", Callable[[str], None]]:
    """The grid, which is sound, and how a line is said beside the bars."""
    process.prepare()
    from morph_vla.evidence import check, grid

    def say(line: str) -> None:
        now("")
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    search(arguments.folders)
    read = grid.load(arguments.grid)
    check.require_sound(read, arguments.folders)
    return read, say
