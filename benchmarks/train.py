"""`morph-vla bench train`: where a step's time goes, and its ratio to the joint pass and to openpi's step.

One process, one run, random weights. Every part is compiled by itself and takes its turn with the whole, so
that what else the machine does falls on all of them; medians. The step is the trainer's (`subject`). `data`
is what happens to a batch on the device: augmentation, noise (reading it is `morph-vla bench data`). `prefix`
is the pass over images and prompt, with its backward pass where something before the action expert learns,
and `images` its first part; `suffix` the loss and its backward pass; `optimizer` AdamW, clip and average, and
`average` its last part. What data, prefix, suffix and optimizer add up to differs from the whole by what a
compiler shares between them. Our step has a body, openpi's has none. The small model mostly shows what it
costs to start anything at all.
"""

import argparse
import dataclasses
from pathlib import Path

import jax

from benchmarks.harness import Work, add_common, check_names, load, show, take_turns
from benchmarks.openpi_step import openpi_step
from benchmarks.subject import PARTS, SIZES, Subject, config_of, recipe_of
from morph_vla.errors import MorphVlaError

EXAMPLES = """
  morph-vla bench train
  morph-vla bench train --kind expert --repeats 9 --json
  morph-vla bench train --openpi path/of/openpi      # in the environment of make test-openpi
"""
KINDS = ("expert", "full", "lora")


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of fine-tuning: median milliseconds, and what they are of the whole step."""

    kind: str
    step_ms: float
    parts_ms: dict[str, float]
    shares: dict[str, float]
    joint_ms: float
    step_over_joint: float
    openpi_ms: float | None = None
    step_over_openpi: float | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench train`."""
    parser.add_argument("--size", choices=tuple(SIZES), default="small", help="of the model (default small)")
    parser.add_argument(
        "--batch", type=int, default=8, metavar="N", help="observations of a step (default 8)"
    )
    parser.add_argument(
        "--kind", action="append", default=[], metavar="KIND", help=f"of {', '.join(KINDS)}; may repeat"
    )
    parser.add_argument("--openpi", type=Path, metavar="CHECKOUT", help="measure openpi's own step as well")
    add_common(parser, run, repeats=9)


def run(arguments: argparse.Namespace) -> None:
    """Print one row per kind. Raises ConfigError for a kind that there is none of."""
    check_names("kind", arguments.kind, KINDS)
    before, config, rows, missing = load(), config_of(arguments.size), [], ""
    for kind in arguments.kind or KINDS:
        theirs = None
        if arguments.openpi and not missing:
            try:
                theirs = openpi_step(arguments.openpi, config, arguments.batch, kind)[0]
            except MorphVlaError as error:
                missing = str(error)
        with jax.numpy_dtype_promotion("standard"):
            rows.append(
                measured(kind, works(arguments.size, arguments.batch, kind), theirs, arguments.repeats)
            )
    found = {
        "device": jax.devices()[0].device_kind,
        "size": arguments.size,
        "batch": arguments.batch,
        "repeats": arguments.repeats,
        "load_before": before,
        "load_after": load(),
        "openpi": missing or ("measured" if arguments.openpi else "no checkout was given (--openpi)"),
        "rows": rows,
    }
    header = ("kind", "step ms", *PARTS, "joint ms", "step/joint", "openpi ms", "step/openpi")
    show(found, header, _cells, as_json=arguments.json)


def _cells(row: Row) -> tuple[object, ...]:
    parts = (f"{row.parts_ms[part]:.4g} ({100 * row.shares[part]:.0f}%)" for part in PARTS)
    theirs = ("", "") if row.openpi_ms is None else (row.openpi_ms, f"{row.step_over_openpi:.3f}")
    return row.kind, row.step_ms, *parts, row.joint_ms, f"{row.step_over_joint:.3f}", *theirs


def measured(kind: str, parts: dict[str, Work], theirs: Work | None, repeats: int) -> Row:
    """The parts, the whole, the joint pass and openpi's step, all in turn."""
    todo = parts | ({} if theirs is None else {"openpi": theirs})
    ms = {name: 1e3 * seconds for name, seconds in take_turns(todo, repeats).items()}
    return Row(
        kind,
        ms["step"],
        {part: ms[part] for part in PARTS},
        {part: ms[part] / ms["step"] for part in PARTS},
        ms["joint"],
        ms["step"] / ms["joint"],
        ms.get("openpi"),
        ms["step"] / ms["openpi"] if theirs else None,
    )


def works(size: str, batch: int, kind: str) -> dict[str, Work]:
    """The whole step, its parts and the joint pass, each to be run again and again."""
    subject = Subject(recipe_of(size, batch, kind))
    return {"step": subject.step().run, **subject.parts(), "joint": subject.joint().run}
