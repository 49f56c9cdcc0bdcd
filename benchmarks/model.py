"""`morph-vla bench model`: what the prefix computed once, the modulations computed once and the plugin cost.

All in one run, on random weights, the two sides of a comparison in turn. A training step is the loss, its
gradient for the action expert (the vision-language model frozen) and AdamW; a sampling call is ten Euler
steps for one observation. Absolute times of a CPU are not worth keeping; `--size full` is pi0.5 itself.
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.harness import add_common, check_names, load, measure, show
from morph_vla.morphology import MorphologyConfig
from morph_vla.pi05 import GemmaConfig, Pi05, Pi05Config, VitConfig, init_params, loss
from morph_vla.pi05 import model as pi05
from morph_vla.recipes.recipe import Optimizer, Training
from morph_vla.training.step import make_optimizer, merge, partition

EXAMPLES = """
  morph-vla bench model
  morph-vla bench model --only mix --repeats 9
  morph-vla bench model --size full --json        # on a GPU: 3.4 billion parameters, bfloat16, batch 32
"""
# batch of a training step by size; a sampling call has one observation
SIZES = {"small": 2, "mid": 1, "full": 32}
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


@dataclasses.dataclass(frozen=True)
class Work:
    """Something compiled, to be run again and again."""

    run: Callable[[], Any]
    temporary_mb: float | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench model`."""
    parser.add_argument(
        "--size",
        choices=tuple(SIZES),
        default="mid",
        help="of the model (default mid: 57 million parameters)",
    )
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="observations of a training step")
    parser.add_argument(
        "--only", action="append", default=[], metavar="VARIANT", help=f"of {', '.join(VARIANTS)}; may repeat"
    )
    add_common(parser, run, repeats=5)


def run(arguments: argparse.Namespace) -> None:
    """Print one row per comparison. Raises ConfigError for a variant that there is none of."""
    check_names("variant", arguments.only, VARIANTS)
    before = load()
    host = Side(config_of(arguments.size), arguments.batch or SIZES[arguments.size])
    chosen = {name: VARIANTS[name] for name in arguments.only or VARIANTS}
    rows = []
    for row in comparisons(host, chosen, arguments.repeats):
        rows.append(row)
        if not arguments.json:
            print(f"{row.name}: {row.ratio:.3f} of {row.reference}", flush=True)
    found = {
        "device": jax.devices()[0].device_kind,
        "parameters": host.parameters,
        "dtype": host.config.dtype,
        "batch": host.batch,
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


def config_of(size: str) -> Any:
    """The host without a body.

    `mid` is near the full model in what decides the plugin's share: the expert's part of a layer's
    parameters, and suffix tokens with a body (32, of up to 16 joints; full 48, of 32) to prefix tokens (496;
    full 968).
    """
    if size == "full":
        return Pi05Config()
    small = size == "small"
    return Pi05Config(
        vocab=2048,
        image_size=28 if small else 168,
        vit=VitConfig(24, 1, 48, 2, 14) if small else VitConfig(256, 6, 1024, 4, 14),
        prefix=GemmaConfig(32, 48) if small else GemmaConfig(512, 4096),
        expert=GemmaConfig(16, 32) if small else GemmaConfig(256, 1024),
        depth=2 if small else 6,
        heads=2 if small else 8,
        head_dim=16 if small else 64,
        max_tokens=8 if small else 64,
        dtype="float32",
    )


class Side:
    """A model with random weights: its training step and its sampling call, compiled."""

    def __init__(self, config: Any, batch: int, host: "Side | None" = None):
        """Draw weights; those of `host` are shared, and only the body's are new."""
        self.config, self.batch = config, batch
        key = jax.random.key(0)
        if host is None:
            params = jax.jit(init_params, static_argnums=0)(config, key)
            self.learnt, frozen = partition(params, Training(steps=1, kind="expert"))
            self.frozen = jax.tree.map(lambda x: x.astype(config.dtype), frozen)
        else:
            body = jax.jit(lambda key: init_params(config, key)["morphology"])(key)
            self.learnt = {**host.learnt, "morphology": body}
            self.frozen = {**host.frozen, "morphology": jax.tree.map(lambda _: None, body)}
        self.parameters = pi05.count(self.learnt) + pi05.count(self.frozen)

    def params(self) -> dict[str, Any]:
        """The whole tree."""
        return merge(self.learnt, self.frozen)

    def training(self, loss: Callable[..., Any]) -> Work:
        """One step of action-expert fine-tuning: loss, gradient, AdamW; the state is carried on."""
        optimizer, _ = make_optimizer(Optimizer(), 1000)
        observation, actions, _ = pi05.example(self.config, self.batch)
        seen, tree = jax.tree.flatten(observation)  # as leaves: lowering may not rebuild an Observation
        draws = jax.random.split(jax.random.key(1), 2)
        noise = jax.random.normal(draws[0], (1, *actions.shape))
        times = jax.random.uniform(draws[1], (1, self.batch))

        def step(learnt: Any, moments: Any, frozen: Any, seen: Any, actions: Any) -> Any:
            observation = jax.tree.unflatten(tree, seen)

            def objective(learnt: Any) -> Any:
                params = merge(learnt, frozen)
                return loss(self.config, params, observation, actions, noise, times).mean()

            value, gradient = jax.value_and_grad(objective)(learnt)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes integer counts with floats
                updates, moments = optimizer.update(gradient, moments, learnt)
            return optax.apply_updates(learnt, updates), moments, value

        state = [jax.tree.map(lambda x: x.copy(), self.learnt), optimizer.init(self.learnt)]
        inputs = (self.frozen, seen, actions)
        compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*state, *inputs).compile()

        def again() -> None:
            *state[:], value = compiled(*state, *inputs)
            jax.block_until_ready(value)

        return Work(again, _temporary(compiled))

    def sampling(self, table: bool = True) -> Work:
        """Ten Euler steps for one observation; `table`: the modulations were computed before."""
        observation, noise, _ = pi05.example(self.config, 1)
        seen, tree = jax.tree.flatten(observation)
        params = self.params()
        made = jax.jit(pi05.modulations, static_argnums=(0, 2))(self.config, params, 10) if table else None

        def sample(params: Any, seen: Any, noise: Any, made: Any) -> Any:
            observation = jax.tree.unflatten(tree, seen)
            return pi05.sample_actions(self.config, params, observation, noise, 10, made)

        inputs = (params, seen, noise, made)
        compiled = jax.jit(sample).lower(*inputs).compile()
        return Work(lambda: jax.block_until_ready(compiled(*inputs)), _temporary(compiled))


def _temporary(compiled: Any) -> float | None:
    """Memory that the program needs beside its inputs and outputs [MB], where the backend says."""
    analysis = compiled.memory_analysis()
    return None if analysis is None else analysis.temp_size_in_bytes / 1e6


def joint_loss(config: Any, params: Any, observation: Any, actions: Any, noise: Any, time: Any) -> Any:
    """The loss of one noise draw in one pass over prefix and suffix, as openpi computes it."""
    x, target = pi05.interpolate(actions, noise[0], time[0])
    found: Any = Pi05(config).apply({"params": params}, observation, x, time[0], method=Pi05.velocity_joint)
    return jnp.square(found - target)[None]


def comparisons(host: Side, variants: dict[str, dict[str, Any]], repeats: int) -> Iterator[Row]:
    """Prefix once against the joint pass, modulations once against each time, each variant against none."""
    frozen = functools.partial(loss, frozen_prefix=True)
    once = host.training(frozen)
    yield compare("training step, prefix once", once, "joint pass", host.training(joint_loss), repeats)
    sampling = host.sampling()
    yield compare("sampling, modulations once", sampling, "in each call", host.sampling(table=False), repeats)
    for name, change in variants.items():
        places = 32 if host.config.depth > 6 else 16  # as many tokens more, in proportion
        morphology = MorphologyConfig(max_joints=places, **change)
        config = dataclasses.replace(host.config, morphology=morphology)
        config.check()
        side = Side(config, host.batch, host)
        yield compare(f"training step, {name}", side.training(frozen), "bare host", once, repeats)
        yield compare(f"sampling, {name}", side.sampling(), "bare host", sampling, repeats)


def compare(name: str, ours: Work, reference_name: str, reference: Work, repeats: int) -> Row:
    """Both in turn."""
    found = measure(name, ours.run, reference_name, reference.run, repeats=repeats)
    return Row(
        name,
        1e3 * found.ours_s,
        reference_name,
        1e3 * found.reference_s,
        found.ratio,
        ours.temporary_mb,
        reference.temporary_mb,
    )
