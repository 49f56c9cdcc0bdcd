"""`morph-vla evidence check | run | again | inside | status | report GRID`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add, add_common, add_json, add_number, add_output, add_verbs, search, shard
from morph_vla.cli.evidence_cells import run_again, run_inside, run_run
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla evidence check quick           # shipped; or a file, configs/evidence/quick.yaml
  morph-vla evidence run configs/evidence/quick.yaml -o runs/quick --shard 2/8
  morph-vla evidence again configs/evidence/quick.yaml -o runs/quick --only both/mix/0
  morph-vla evidence inside configs/evidence/quick.yaml -o runs/quick --only both/mix/0
  morph-vla evidence status configs/evidence/quick.yaml -o runs/quick
  morph-vla evidence report configs/evidence/quick.yaml -o runs/quick --with runs/other_machine
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla evidence`."""
    verbs = {
        "check": ("hold a grid against its recipes, suites and datasets; status 1 on an error", run_check),
        "run": ("measure the missing cells, each a training and its evaluations", run_run),
        "again": ("measure finished cells once more; status 1 where their counts are others", run_again),
        "inside": ("look into the policies whose weights were kept: do they listen to the body?", run_inside),
        "status": ("show what is done, missing and failed, and the hours left", run_status),
        "report": ("say what follows: a page, its numbers as JSON, tables for the docs", run_report),
    }
    made = add_verbs(parser, verbs)
    for name, verb in made.items():
        about = "a YAML file of conditions, bodies, splits, seeds (docs/studies.md), or a shipped one's name"
        add(verb, "grid", about, "GRID", type=Path)
        if name != "check":
            add_output(verb, "the folder of the study")
        if name in ("run", "status"):
            about = "this machine's share of the cells: part K of N"
            add(verb, "--shard", about, "K/N", type=shard, default=(1, 1))
        (add_common if name != "status" else add_json)(verb)
    about = "this cell alone (may be repeated)"
    add(made["run"], "--only", about, "SPLIT/CONDITION/SEED", action="append", default=[])
    add_number(made["run"], "--limit", None, "measure no more cells than that", least=1)
    about = "a cell that is finished (may be repeated; default: some from the first to the last)"
    add(made["again"], "--only", about, "SPLIT/CONDITION/SEED", action="append", default=[])
    add_number(made["again"], "--count", 3, "how many, where none are named", least=1)
    about = "this cell alone (may be repeated; default: all whose weights are there)"
    add(made["inside"], "--only", about, "SPLIT/CONDITION/SEED", action="append", default=[])
    add_number(made["inside"], "--episodes", 1, "how many of each body are played", least=1)
    about = "the study's folder on another machine, copied here (may be repeated)"
    add(made["report"], "--with", about, "FOLDER", type=Path, action="append", default=[], dest="others")
    about = "suites and recordings are to be the same within a seed alone: seeds may be of several machines"
    add(made["report"], "--within-seeds", about)
    about = "recordings are told apart by meta/info.json alone: recording.json may name more than it did"
    add(made["report"], "--by-info", about)
    add(made["run"], "--keep-weights", "keep checkpoints and whole evaluations in FOLDER/work")


def run_check(arguments: argparse.Namespace) -> int:
    """Print every problem of a grid, and the parameters of its conditions."""
    from morph_vla.evidence import check, grid
    from morph_vla.findings import errors

    search(arguments.folders)
    checked = check.check(grid.load(arguments.grid), arguments.folders)
    render(checked, arguments.json)
    return int(bool(errors(checked.findings)))


def run_status(arguments: argparse.Namespace) -> None:
    """Print how the cells stand."""
    from morph_vla.evidence import grid, status

    render(status.status(grid.load(arguments.grid), arguments.output, arguments.shard), arguments.json)


def run_report(arguments: argparse.Namespace) -> None:
    """Write evidence.html, evidence.json and evidence.md into the folder, and print the verdicts."""
    from morph_vla.evidence import answer, grid
    from morph_vla.report import evidence as page

    search(arguments.folders)
    study = answer.answer(
        grid.load(arguments.grid),
        [arguments.output, *arguments.others],
        arguments.within_seeds,
        arguments.by_info,
    )
    path = page.write(arguments.output, study)
    render(study, arguments.json, text=f"{study}\n{path}", report=path)
