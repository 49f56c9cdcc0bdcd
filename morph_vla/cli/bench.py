"""`morph-vla bench`: ratios of two ways to do the same thing, measured side by side in one run.

Absolute times of a CPU are not worth keeping; a ratio is, when both sides took turns on the same machine.
"""

import argparse
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from morph_vla.cli.common import add_json, print_json, print_table
from morph_vla.errors import require
from morph_vla.files.plain import to_plain

# name -> (what it measures, the module that does it); such a module imports what it measures when it runs
VERBS = {
    "robots": (
        "reading, judging, graph and descriptors in ms, up to 500 joints",
        "morph_vla.cli.bench_robots",
    ),
    "data": (
        "samples per second of our loader, of memory-mapped frames and of LeRobot's own DataLoader",
        "morph_vla.cli.bench_data",
    ),
    "sim": (
        "control steps per second against environments and workers, and where the time goes",
        "morph_vla.cli.bench_sim",
    ),
    "train": (
        "a training step's parts, against the joint pass, and openpi's own step",
        "morph_vla.cli.bench_train",
    ),
    "model": (
        "prefix once against the joint pass, sampling, and what each variant of the plugin costs",
        "morph_vla.cli.bench_model",
    ),
}
EXAMPLES = """
  morph-vla bench
  morph-vla bench robots
  morph-vla bench data
  morph-vla bench model
  morph-vla bench sim
  morph-vla bench --repeats 31 --json
"""

Work = Callable[[], Any]


@dataclass(frozen=True)
class Ratio:
    """Median seconds of ours and of the reference, and how many times the reference ours takes."""

    name: str
    ours_s: float
    reference: str
    reference_s: float
    ratio: float


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench`."""
    parser.add_argument(
        "--repeats", type=int, default=11, metavar="N", help="turns of each side (default 11)"
    )
    add_json(parser)
    parser.set_defaults(run=run)
    verbs = parser.add_subparsers(metavar="VERB", required=False)
    for name, (summary, module_name) in VERBS.items():
        module = importlib.import_module(module_name)
        described = f"{summary[0].upper()}{summary[1:]}."
        verb = verbs.add_parser(name, help=summary, description=described)
        verb.epilog = f"examples:\n{module.EXAMPLES.strip(chr(10))}"
        module.configure(verb)


def run(arguments: argparse.Namespace) -> None:
    """Print one row per comparison."""
    found = [measure(*pair, repeats=max(1, arguments.repeats)) for pair in pairs()]
    if arguments.json:
        print_json(to_plain(found))
        return
    rows = [(r.name, 1e3 * r.ours_s, r.reference, 1e3 * r.reference_s, r.ratio) for r in found]
    print_table(("what", "ms", "against", "ms", "ratio"), rows)


def measure(name: str, ours: Work, reference_name: str, reference: Work, *, repeats: int) -> Ratio:
    """The two sides in turn, so that what else the machine does falls on both; the first is not counted."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for side, work in zip(taken, (ours, reference), strict=True):
            begun = time.perf_counter()
            work()
            side.append(time.perf_counter() - begun)
    first, second = (statistics.median(side[1:]) for side in taken)
    return Ratio(name, first, reference_name, second, first / second)


def pairs() -> Iterator[tuple[str, Work, str, Work]]:
    """Every comparison: its name, ours, the reference's name, the reference."""
    yield (
        "start `morph-vla --help`",
        lambda: _process("-m", "morph_vla.cli", "--help"),
        "start Python",
        lambda: _process("-c", ""),
    )
    yield from _model_pairs()


def _process(*words: str) -> None:
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)


def _model_pairs() -> Iterator[tuple[str, Work, str, Work]]:
    """A small pi0.5 (same modules as the full one) on this machine's default device."""
    jax = require("jax", "model")
    from morph_vla.morphology.config import MorphologyConfig
    from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig, init_params, loss, sample_actions
    from morph_vla.pi05.model import Pi05, example

    host = Pi05Config(
        vocab=257,
        image_size=56,
        cameras=("base_0_rgb", "left_wrist_0_rgb"),
        vit=VitConfig(width=64, depth=4, mlp_dim=256, heads=4, patch=8),
        prefix=GemmaConfig(128, 512),
        expert=GemmaConfig(64, 256),
        depth=4,
        heads=4,
        head_dim=32,
        action_dim=8,
        max_tokens=16,
        dtype="float32",
        remat=False,
    )
    plugin = replace(host, morphology=MorphologyConfig(max_joints=8))

    def gradient(config: Pi05Config) -> Work:
        params = init_params(config, jax.random.key(0))
        observation, actions, _ = example(config, batch=8)
        noise, times = jax.random.normal(jax.random.key(1), (1, *actions.shape)), 0.5 * jax.numpy.ones((1, 8))
        step = jax.jit(jax.grad(lambda p: loss(config, p, observation, actions, noise, times).mean()))
        return lambda: jax.block_until_ready(step(params))

    yield "gradient, with a body", gradient(plugin), "without", gradient(host)

    params = init_params(plugin, jax.random.key(0))
    observation, noise, _ = example(plugin, batch=1)
    cached = jax.jit(lambda p: sample_actions(plugin, p, observation, noise))

    def joint(params: Any) -> Any:
        def step(x: Any, t: Any) -> tuple[Any, None]:
            v: Any = Pi05(plugin).apply(
                {"params": params}, observation, x, t[None], method=Pi05.velocity_joint
            )
            return x - 0.1 * v, None

        return jax.lax.scan(step, noise, jax.numpy.linspace(1.0, 0.1, 10))[0]

    whole = jax.jit(joint)
    yield (
        "sampling, prefix once",
        lambda: jax.block_until_ready(cached(params)),
        "prefix every step",
        lambda: jax.block_until_ready(whole(params)),
    )
