"""`morph-vla bench model`: what the prefix computed once, the modulations computed once and the plugin cost.

All in one run, on random weights, the two sides of a comparison in turn. A training step is the trainer's
(`subject`), of the action expert; a sampling call is ten Euler steps for one observation. Absolute times of a
CPU are not worth keeping; `--size full` is pi0.5 itself.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from benchmarks.harness import add_common, check_names, load, measure, show
from benchmarks.subject import PLUGIN, SIZES, Compiled, Subject, add_sizes, recipe_of
from morph_vla.pi05 import model as pi05

EXAMPLES = """
  morph-vla bench model
  morph-vla bench model --only mix --repeats 9
  morph-vla bench model --size full --json        # on a GPU: 3.4 billion parameters, bfloat16, batch 32
"""
# What a variant adds to the host; `mix` is the combination with the paper's best average.
VARIANTS: dict[str, dict[str, Any]] = {
    "tokens alone": {"bias": "none", "film": False},
    "tokens and FiLM": {"bias": "none"},
    "full": {"bias": "full"},
    "mix": {"bias": "mix"},
    "spd-soft": {"bias": "spd-soft"},
    "adj-soft-v1.0": {"bias": "adj-soft-v1.0"},
    "adj-soft-v1.1": {"bias": "adj-soft-v1.1"},
    "adj-soft-v2.0": {"bias": "adj-soft-v2.0"},
    "mix, 4 chunks": {"bias": "mix", "chunks": 4},
    "mix, 1 auxiliary": {"bias": "mix", "auxiliary": 1},
    "mix, exact start": {"bias": "mix", "start": "exact"},
    "mix, linear encoder": {"bias": "mix", "encoder": "linear"},
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: median milliseconds of both sides, and temporary memory where it was asked for."""

    name: str
    ms: float
    reference: str
    reference_ms: float
    ratio: float
    temporary_mb: float | None = None
    reference_temporary_mb: float | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench model`."""
    add_sizes(parser)
    parser.add_argument(
        "--only", action="append", default=[], metavar="VARIANT", help=f"of {', '.join(VARIANTS)}; may repeat"
    )
    add_common(parser, run, repeats=5)


def run(arguments: argparse.Namespace) -> None:
    """Print one row per comparison. Raises ConfigError for a variant that there is none of."""
    check_names("variant", arguments.only, VARIANTS)
    before, batch = load(), arguments.batch or SIZES[arguments.size]
    chosen = {name: VARIANTS[name] for name in arguments.only or VARIANTS}
    rows = []
    with jax.numpy_dtype_promotion("standard"):
        host = Subject(recipe_of(arguments.size, batch, plugin=None))
        for row in comparisons(host, chosen, arguments.repeats):
            rows.append(row)
            if not arguments.json:
                print(f"{row.name}: {row.ratio:.3f} of {row.reference}", flush=True)
    found = {
        "device": jax.devices()[0].device_kind,
        "parameters": pi05.count(host.state.params),
        "dtype": host.recipe.model.dtype,
        "batch": batch,
        "repeats": arguments.repeats,
        "load_before": before,
        "load_after": load(),
        "rows": rows,
    }
    header = ("what", "ms", "temporary MB", "against", "ms", "temporary MB", "ratio")
    show(found, header, _cells, as_json=arguments.json)


def _cells(row: Row) -> tuple[object, ...]:
    ours, theirs = ("" if mb is None else mb for mb in (row.temporary_mb, row.reference_temporary_mb))
    return row.name, row.ms, ours, row.reference, row.reference_ms, theirs, f"{row.ratio:.3f}"


def comparisons(host: Subject, variants: dict[str, dict[str, Any]], repeats: int) -> Iterator[Row]:
    """Prefix once against the joint pass, modulations once against each time, each variant against none."""
    once = host.step()
    yield compare("training step, prefix once", once, "joint pass", host.joint(), repeats)
    sampling = host.sampling()
    yield compare("sampling, modulations once", sampling, "in each call", host.sampling(table=False), repeats)
    yield compare("sampling, ready to serve", sampling, "as trained", host.sampling(ready=False), repeats)
    for name, change in variants.items():
        side = host.with_plugin(dataclasses.replace(PLUGIN, **change))
        yield compare(f"training step, {name}", side.step(), "bare host", once, repeats)
        yield compare(f"sampling, {name}", side.sampling(), "bare host", sampling, repeats)


def compare(name: str, ours: Compiled, reference_name: str, reference: Compiled, repeats: int) -> Row:
    """Both in turn."""
    ratio = measure(name, ours.run, reference_name, reference.run, repeats=repeats)
    return Row(
        name,
        1e3 * ratio.ours_s,
        reference_name,
        1e3 * ratio.reference_s,
        ratio.ratio,
        ours.temporary_mb,
        reference.temporary_mb,
    )
