"""`morph-vla recipes list | show | check | scale | variants | presets`."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from morph_vla.cli import files, words
from morph_vla.cli.common import add, add_number
from morph_vla.cli.render import render, table

if TYPE_CHECKING:
    from morph_vla.checks.recipe import Report
    from morph_vla.data.presets import Preset
    from morph_vla.recipes.held import Held
    from morph_vla.training.counted import Counted
    from morph_vla.training.estimate import Estimate

EXAMPLES = """
  morph-vla recipes list
  morph-vla recipes show panda_demo
  morph-vla recipes show panda_demo training.steps=200 --json
  morph-vla recipes variants pi05_droid
  morph-vla recipes show panda_demo@table1.tokens-mix-film
  morph-vla recipes variants panda_demo --names   # one name a line; configs/README.md trains the whole grid
  morph-vla recipes show panda_demo training.kind=expert 'model={morphology: {}}'   (counts at full size)
  morph-vla recipes check panda_demo data.dataset=runs/demos
  morph-vla recipes scale pi05_g1_dex1 training.mesh.fsdp=8
  morph-vla recipes presets
"""
TERA = 1e12


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla recipes`."""
    check = "check a recipe and its datasets before training; status 1 on an error"
    scale = "estimate a step's time for several numbers of devices; nothing is run"
    variants = "list the variants of the paper's Tables 1 to 5 and 11, for any recipe: NAME@VARIANT"
    verbs = files.configure(
        parser,
        "recipes",
        load,
        count,
        more={"check": (check, run_check), "scale": (scale, run_scale)},
        alone={
            "variants": (variants, run_variants),
            "presets": ("show what `preset` in a dataset's entry fills in", run_presets),
        },
    )
    about = "a recipe; variants that its model cannot have are marked"
    add(verbs["variants"], "name", about, "RECIPE", nargs="?", default="")
    add_number(verbs["variants"], "--table", None, "only the variants of one table")
    add(verbs["variants"], "--names", "print only the names, for a loop")


def load(name: str, overrides: list[str], folders: list[str]) -> Any:
    """A recipe, checked."""
    from morph_vla.recipes import recipe

    return recipe.load(name, overrides, folders)


def count(recipe: Any) -> "tuple[Counted, Iterator[str]]":
    """The counts of a recipe's model, and the same as lines."""
    from morph_vla.training import counted as counting

    counted = counting.count(recipe)
    return counted, lines_of_counts(counted)


def lines_of_counts(counted: "Counted") -> Iterator[str]:
    """The counts as comments, so that what is printed stays a recipe."""
    about = counted.counted_for
    keys = ("parameters", "trainable")
    together = {"part": "together", **{key: sum(part[key] for part in counted.parts) for key in keys}}
    rows = [(row["part"], *(f"{row[key]:,}" for key in keys)) for row in (*counted.parts, together)]
    yield "\n# Counted without allocating anything:\n#"
    header = ("parameters", "all", f"trained ({about['kind']})")
    yield from table(header, rows, before="#   ", right=(1, 2))
    yield from (f"#   {pairs}" for pairs in counted.pairs)
    for kind, split in counted.kinds.items():
        yield f"#   kind: {kind}: {split['trainable']:,} trainable, {split['frozen']:,} frozen"
    yield from (f"#   {line}" for line in counted.memory["words"])
    yield "#   tokens: " + ", ".join(f"{size} {name}" for name, size in counted.tokens.items()) + "\n#"
    lines = [
        (
            row.variant, f"{row.new_parameters:,}", row.kinematic_tokens,
            f"{row.training_step_flop / TERA:.4g}", f"{100 * row.training_step_over_host:+.2f}%",
            f"{row.sampling_call_flop / TERA:.4g}", f"{100 * row.sampling_call_over_host:+.2f}%",
        )
        for row in counted.variants
    ]  # fmt: skip
    header = ("variant at this size", "new parameters", "tokens", "TFLOP/step", "", "TFLOP/call", "")
    yield from table(header, lines, before="#   ", right=range(1, 7))
    yield (
        f"#   step: kind {about['kind']}, batch {about['batch']}, {about['flow_samples']} noise draws; "
        f"call: {about['steps']} Euler steps, batch 1; matrix products only"
    )


def run_check(arguments: argparse.Namespace) -> int:
    """Print every problem, errors first; no video is decoded and nothing is fetched."""
    from morph_vla.checks import recipe as checks
    from morph_vla.findings import counts

    report = checks.check(load(arguments.name, arguments.overrides, arguments.folders))
    numbers = counts(report.problems)
    render(report, arguments.json, lines_of_check, **numbers)
    return 1 if numbers["errors"] else 0


def lines_of_check(report: "Report") -> Iterator[str]:
    """A line for each dataset, then every problem."""
    from morph_vla.findings import counts

    for checked in report.datasets:
        head = f"{checked.key}: {checked.dataset}: "
        if not checked.version:
            yield f"{head}not read; robot {checked.robot}"
            continue
        episodes = f"{checked.episodes} episodes ({checked.held_out} held out)"
        recorded = f", recorded on '{checked.recorded_on}'" if checked.recorded_on else ""
        size = f"{episodes}, {checked.frames} frames at {checked.fps:g} Hz{recorded}"
        yield f"{head}LeRobot {checked.version}, {size}; robot {checked.robot}"
    if report.problems:
        yield ""
    yield from map(str, report.problems)
    yield f"\n{words.counts(counts(report.problems))}"


def run_scale(arguments: argparse.Namespace) -> None:
    """Print an estimate for every number of devices that the recipe's batch can be split over."""
    from morph_vla.training import counted, estimate

    rows = counted.scaling(load(arguments.name, arguments.overrides, arguments.folders))
    machine = estimate.H200

    def lines(rows: "list[Estimate]") -> Iterator[str]:
        yield f"an estimate, nothing was run: {machine.name}, {machine.rate / 1e12:.0f} TFLOP/s each"
        header = ["devices", "data", "fsdp", "computing ms", "sending ms", "step ms, at least", "at most"]
        times = [[round(1e3 * s) for s in (row.computing, row.sending, row.least, row.most)] for row in rows]
        sizes = [[row.devices, row.data, row.fsdp] for row in rows]
        yield from table(header, [[*size, *ms] for size, ms in zip(sizes, times, strict=True)])

    render(rows, arguments.json, lines, "least", "most", machine=machine.name)


def run_variants(arguments: argparse.Namespace) -> int:
    """A row for each variant; status 1 when the recipe's model refuses one, with the reason."""
    from morph_vla.recipes import held

    rows = held.variants(arguments.name, arguments.table or 0, arguments.folders)
    names = [row.name for row in rows if not row.refused]
    render(rows, arguments.json, lambda rows: names if arguments.names else lines_of_variants(rows))
    return int(any(row.refused for row in rows))


def lines_of_variants(rows: "Iterable[Held]") -> Iterator[str]:
    """The paper's success rate and notes by variant, then why some are refused."""
    cells = []
    for row in rows:
        notes = {
            "same as": row.same_as,
            "begins from": row.warm_start,
            "refused": row.refused and "see below",
        }
        note = ", ".join(f"{word} {value}" for word, value in notes.items() if value)
        rate, on = f"{row.success} +- {row.half_width}", row.measured_on.partition(",")[0]
        cells.append((row.name, rate, on, note))
    yield from table(("variant", "paper [%]", "on", ""), cells, right=(1,))
    yield from (f"{row.name}: refused: {row.refused}" for row in rows if row.refused)


def run_presets(arguments: argparse.Namespace) -> None:
    """Every preset, with its robot, cameras, keys and units."""
    from morph_vla.data.presets import PRESETS

    render(PRESETS, arguments.json, lines_of_presets)


def lines_of_presets(presets: "Mapping[str, Preset]") -> Iterator[str]:
    """A preset's sentence, then a line for each key that it fills in."""
    for name, preset in presets.items():
        yield f"{name}: {preset.about}"
        for key, value in list(vars(preset).items())[1:]:
            if value not in ((), ""):
                values = value if isinstance(value, tuple) else (value,)
                items = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, Mapping) else values
                yield f"  {key:<9} {', '.join(map(str, items))}"
