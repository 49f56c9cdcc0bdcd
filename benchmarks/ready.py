"""`morph-vla bench ready`: what parameters that are ready to serve save, in a step and in memory.

The program of `sample_actions` is compiled from the parameters as they are trained and as a policy holds
them, and its text is read: instructions of one Euler step, and those whose result has a weight's shape and
that only move or round it. Then a checkpoint of random values, as orbax writes it, is loaded in a process of
its own in both ways; the peak is what that process held at most, beyond what it held before. Counts depend on
XLA and the device, not on how busy it is.
"""

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import programs
from benchmarks.harness import add_common, show
from benchmarks.subject import SIZES, Subject, config_of, recipe_of
from morph_vla import policies
from morph_vla.errors import require
from morph_vla.pi05 import GemmaConfig, Pi05Config
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.pi05.serving import ready, served_type
from morph_vla.training import restoring
from morph_vla.training.saving import stored_by_layers
from morph_vla.weights.load import returned_at_once

EXAMPLES = """
  morph-vla bench ready
  morph-vla bench ready --size small --json
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """A number of both forms."""

    name: str
    trained: float
    ready: float


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench ready`."""
    parser.add_argument("--size", choices=tuple(SIZES), default="mid", help="of the model (default mid)")
    parser.add_argument("--load", nargs=3, metavar=("FOLDER", "SIZE", "FORM"), help=argparse.SUPPRESS)
    add_common(parser, run)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per number."""
    with jax.numpy_dtype_promotion("standard"):
        if arguments.load:
            folder, size, form = arguments.load
            print(json.dumps(loaded(Path(folder), large(size), form)))
            return
        rows = [*steps(arguments.size), *memory(arguments.size)]
    found = {"device": jax.devices()[0].device_kind, "size": arguments.size, "rows": rows}
    show(found, ("what", "as trained", "ready"), dataclasses.astuple, as_json=arguments.json)


def steps(size: str) -> list[Row]:
    """The instructions of one Euler step, fused ones too, by what they do."""
    subject = Subject(recipe_of(size, 1))
    shapes = {name: leaf.shape for name, leaf in by_name(subject.state.params).items()}
    weights, counts = programs.weight_axes(shapes), []
    for form in (False, True):
        program = programs.read(subject.sampling(ready=form).program.as_text())
        (loop,) = [each for each in programs.loops(program) if programs.trips(each) == 10]
        every = [operation.name for operation, n in programs.within(program, loop) for _ in range(n)]
        moved = programs.moving(program, loop, weights)
        of_weights = {f"{name} of a weight": moved[name] for name in programs.MOVES}
        counts.append({"instructions": len(every), "products": every.count("dot"), **of_weights})
    return [Row(f"a step's {name}", counts[0][name], counts[1][name]) for name in counts[0]]


def large(size: str) -> Pi05Config:
    """A model of which parameters are more than what a process holds anyway."""
    config = config_of(size)
    if size == "mid":
        config = dataclasses.replace(config, prefix=GemmaConfig(1024, 8192), depth=12)
    return dataclasses.replace(config, dtype="bfloat16")


def memory(size: str) -> list[Row]:
    """The most that loading holds, over the bytes of the parameters."""
    config, random = large(size), np.random.default_rng(0)

    def drawn(name: str, leaf: Any) -> Any:
        dtype = served_type(config, name) or "float32"
        return random.standard_normal(leaf.shape, np.float32).astype(jax.numpy.dtype(dtype))

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        writer = require("orbax.checkpoint", "model").PyTreeCheckpointer()
        tree = {"params": map_named(drawn, policies.shapes(config))}
        writer.save(folder / "averaged", tree, save_args=stored_by_layers(tree))
        shutil.copytree(folder / "averaged", folder / "params")
        command = [sys.executable, "-m", "morph_vla.cli", "bench", "ready", "--load", place, size]
        numbers = [
            json.loads(subprocess.run([*command, form], check=True, stdout=subprocess.PIPE, text=True).stdout)
            for form in ("trained", "ready")
        ]
    rows = {"peak over parameters": "ratio", "seconds to load": "seconds", "parameters [MB]": "mb"}
    return [Row(f"loading: {name}", *(each[key] for each in numbers)) for name, key in rows.items()]


def loaded(folder: Path, config: Pi05Config, form: str) -> dict[str, float]:
    """Load in this process, in one form; what it held at most beyond what it holds now."""
    shapes, types = policies.shapes(config), partial(served_type, config)
    require("orbax.checkpoint", "model")
    jax.block_until_ready(jax.numpy.zeros(3) + 1)
    before, began = _held("VmRSS"), time.perf_counter()
    if form == "trained":
        params = restoring.load_params(folder, shapes, types=types)
    else:
        with returned_at_once():
            params = ready(config, restoring.Averaged(folder, shapes, types).leaves())
    jax.block_until_ready(params)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    taken = time.perf_counter() - began
    return {"ratio": (_held("VmHWM") - before) / size, "seconds": taken, "mb": size / 1e6}


def _held(key: str) -> int:
    """This process's memory in bytes: now (VmRSS), or the most so far (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
