"""`morph-vla bench`: starting the command, a small model's gradient, sampling."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax

from benchmarks.harness import Work, measure
from morph_vla.cli.render import print_json
from morph_vla.morphology.config import MorphologyConfig
from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig, init_params, loss, sample_actions
from morph_vla.pi05.model import Pi05, example
from morph_vla.wording import table

Pair = tuple[str, Work, str, Work]  # a name, ours, the reference's name, the reference
HOST = Pi05Config(
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


def run(repeats: int, as_json: bool) -> None:
    """Print one row per comparison."""
    ratios = [measure(*pair, repeats=repeats) for pair in pairs()]
    if as_json:
        print_json(ratios)
        return
    rows = [(r.name, 1e3 * r.ours_s, r.reference, 1e3 * r.reference_s, r.ratio) for r in ratios]
    print(*table(("what", "ms", "against", "ms", "ratio"), rows), sep="\n")


def pairs() -> Iterator[Pair]:
    """Every comparison."""
    start = (lambda: _process("-m", "morph_vla.cli", "--help")), "start Python", (lambda: _process("-c", ""))
    yield "start `morph-vla --help`", *start
    plugin = replace(HOST, morphology=MorphologyConfig(max_joints=8))
    yield "gradient, with a body", _gradient(plugin), "without", _gradient(HOST)
    yield "sampling, prefix once", *_sampling(plugin)


def _process(*words: str) -> None:
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)


def _gradient(config: Pi05Config) -> Work:
    """A gradient of all parameters on this machine's default device."""
    params = init_params(config, jax.random.key(0))
    observation, actions, _ = example(config, batch=8)
    noise, times = jax.random.normal(jax.random.key(1), (1, *actions.shape)), 0.5 * jax.numpy.ones((1, 8))
    step = jax.jit(jax.grad(lambda p: loss(config, p, observation, actions, noise, times).mean()))
    return lambda: jax.block_until_ready(step(params))


def _sampling(config: Pi05Config) -> tuple[Work, str, Work]:
    """Ten steps of the sampler: with the prefix computed once, and with it in every step."""
    params = init_params(config, jax.random.key(0))
    observation, noise, _ = example(config, batch=1)

    def joint(params: Any) -> Any:
        def step(x: Any, t: Any) -> tuple[Any, None]:
            v: Any = Pi05(config).apply(
                {"params": params}, observation, x, t[None], method=Pi05.velocity_joint
            )
            return x - 0.1 * v, None

        return jax.lax.scan(step, noise, jax.numpy.linspace(1.0, 0.1, 10))[0]

    once, always = jax.jit(lambda p: sample_actions(config, p, observation, noise)), jax.jit(joint)
    ready = jax.block_until_ready
    return (lambda: ready(once(params))), "prefix every step", (lambda: ready(always(params)))
