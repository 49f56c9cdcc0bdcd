"""A step or a call of pi0.5 compiled for a GPU that is not here: does it, what does it hold, which kernels?

    pip install 'jax[cuda13]'        # the plugin, 4 GB; no GPU and no driver
    python scripts/compiled_for.py step --batch 32
    python scripts/compiled_for.py call --batch 8 model.fused_attention=false --json

XLA compiles for a GPU that is described to it, here an H200. Nothing is tuned on it, so that it may take
another product's kernel than the GPU would; what it fuses, holds and refuses is the same. On an H200 the step
of 32 rows held 5.2 GB beside its state, where 4.4 were compiled here, and 3.9 of 3.1 with fused attention.
"""

import argparse
import dataclasses
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # there is no driver to ask
os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from benchmarks import programs
from benchmarks.subject import SIZES, Subject, recipe_of
from morph_vla.cli.render import print_json
from morph_vla.errors import MorphVlaError
from morph_vla.recipes import recipe as recipes
from morph_vla.wording import table

# Of NVIDIA's data sheet and CUDA's device properties.
H200 = """
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98
  device_memory_size: 150000000000
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 15 patch: 0 }
runtime_version { major: 13 minor: 0 patch: 0 }
device_description_str: "NVIDIA H200"
"""
NO_KERNEL = (
    "parameter",
    "get-tuple-element",
    "tuple",
    "constant",
    "bitcast",
    "while",
    "after-all",
    "conditional",
)


class Elsewhere(Subject):
    """A subject whose programs are for the GPU that is described, and cannot run here."""

    def _program(self, what: str, function: Any, *shapes: Any, **options: Any) -> Any:
        try:
            topology = topologies.get_topology_desc(
                platform="cuda", topology_name="described", topology="1x1x1", target_config=H200
            )
        except NotImplementedError as error:
            raise MorphVlaError(
                "JAX has no CUDA here: pip install 'jax[cuda13]' (a GPU is not needed)"
            ) from error
        there = SingleDeviceSharding(topology.devices[0])

        def placed(leaf: Any) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=there)

        lowered = (
            jax.jit(function, **options)
            .trace(*jax.tree.map(placed, shapes))
            .lower(lowering_platforms=("cuda",))
        )
        return lowered.compile()


def as_on_a_hopper() -> None:
    """What JAX and we ask a GPU before we choose a kernel, answered for one that is not here."""
    jax.default_backend = lambda: "gpu"
    asked: Any = cudnn
    asked.check_compute_capability = lambda _: True
    asked.is_cuda_compute_capability_equal = lambda _: False
    asked.check_cudnn_version = lambda: 91500


def kernels(program: programs.Program, computation: str = "") -> int:
    """How many a computation starts itself; its loops apart."""
    names = [operation.name for operation in program[computation]]
    return sum(name not in NO_KERNEL and not name.endswith("-done") for name in names)


def loops(program: programs.Program, computation: str = "", times: int = 1) -> list[tuple[str, int, int]]:
    """(computation, how often it runs, kernels of one run) of the program and of the loops in it."""
    rows = [(computation or "program", times, kernels(program, computation))]
    for operation in program[computation]:
        if operation.name == "while":
            (body,) = programs.BODY.findall(operation.rest)
            rows += loops(program, body, times * programs.trips(operation))
    return rows


def recipe(arguments: argparse.Namespace) -> Any:
    """`pi05_droid` at the size with the keys of the model that are given."""
    asked = recipe_of(arguments.size, arguments.batch, arguments.kind)
    for change in arguments.change:
        if not change.startswith("model."):
            raise MorphVlaError(f"'{change}': expected model.KEY=VALUE; size, batch and kind are options")
    changed = recipes.load("pi05_droid", arguments.change).model
    keys = {re.split("[.=]", change)[1] for change in arguments.change}
    changes = {key: getattr(changed, key) for key in keys}
    return dataclasses.replace(asked, model=dataclasses.replace(asked.model, **changes))


def main() -> None:
    """Compile, and say what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("step", "call"))
    parser.add_argument("change", nargs="*", metavar="model.KEY=VALUE")
    parser.add_argument("--size", choices=tuple(SIZES), default="full")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--kind", choices=("expert", "full", "lora"), default="expert")
    parser.add_argument("--text", type=Path, help="write the compiled program's text there")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_intermixed_args()
    subject, began = Elsewhere(recipe(arguments)), time.monotonic()
    as_on_a_hopper()
    compiled = subject.step() if arguments.what == "step" else subject.sampling(arguments.batch)
    text, seconds = compiled.program.as_text(), time.monotonic() - began
    if arguments.text:
        arguments.text.write_text(text)
    program = programs.read(text)
    rows = loops(program)
    what = f"{arguments.what}, {arguments.batch} rows, {arguments.size}"
    result = {
        "what": ", ".join([what, *arguments.change]),
        "seconds": seconds,
        "temporary_gb": (compiled.temporary_mb or float("nan")) / 1e3,
        "kernels": sum(times * count for _, times, count in rows),
        "loops": [dict(zip(("of", "times", "kernels"), row, strict=True)) for row in rows],
    }
    if arguments.json:
        print_json(result)
        return
    print(f"{result['what']}: compiled for an H200 in {seconds:.0f} s")
    print(f"{result['temporary_gb']:.4g} GB beside what goes in and comes out; {result['kernels']} kernels:")
    print("\n".join(table(["of", "times", "kernels"], [list(row) for row in rows])))


if __name__ == "__main__":
    try:
        main()
    except MorphVlaError as error:
        sys.exit(str(error))
