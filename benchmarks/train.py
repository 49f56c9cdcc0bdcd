"""`morph-vla bench train`: where a step's time goes, and its ratio to the joint pass and to openpi's step.

One process, one run, random weights. Every part is compiled by itself and takes its turn with the whole, so
that what else the machine does falls on all of them; medians. `data` is what happens to a batch after it was
read: to the device, augmentation, noise (reading it is `morph-vla bench data`). `prefix` is the pass over
images and prompt, with its backward pass where something before the action expert learns; `suffix` the loss
and its backward pass; `optimizer` AdamW, clip and average. What the parts add up to differs from the whole by
what a compiler shares between them. The small model mostly shows what it costs to start anything at all.
"""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.harness import add_common, check_names, load, show, take_turns
from benchmarks.model import SIZES, config_of, joint_loss
from benchmarks.openpi_step import openpi_step
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Observation, Pi05, init_params
from morph_vla.pi05.model import suffix_loss
from morph_vla.recipes.recipe import Data, Recipe, Training
from morph_vla.training import step as steps
from morph_vla.training.kinds import reached

EXAMPLES = """
  morph-vla bench train
  morph-vla bench train --kind expert --repeats 9 --json
  morph-vla bench train --openpi path/of/openpi      # in the environment of make test-openpi
"""
KINDS = ("expert", "full", "lora")
PARTS = ("data", "prefix", "suffix", "optimizer")


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
            rows.append(measured(kind, works(config, arguments.batch, kind), theirs, arguments.repeats))
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


def measured(
    kind: str, parts: dict[str, Callable[[], Any]], theirs: Callable[[], Any] | None, repeats: int
) -> Row:
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


def works(config: Any, batch: int, kind: str) -> dict[str, Callable[[], Any]]:
    """The whole step, its parts and the joint pass, each to be run again and again."""
    training = Training(steps=1000, batch=batch, kind=kind, augmentation="openpi")  # pyright: ignore[reportArgumentType]
    recipe = Recipe(Data(dataset="none", robot="none"), config, training)
    optimizer, _ = steps.make_optimizer(recipe.optimizer, training.steps)
    params = jax.jit(init_params, static_argnums=0)(recipe.model, jax.random.key(0))
    side = Side(recipe, optimizer, params)
    return {"step": side.step(), **side.parts(), "joint": side.joint()}


class Side:
    """One kind of fine-tuning of one model."""

    def __init__(self, recipe: Any, optimizer: Any, params: Any):
        """`params` are copied where a step gives its buffers away."""
        self.recipe, self.optimizer, self.params = recipe, optimizer, params
        self.observation, self.actions, self.mask = _batch(recipe.model, recipe.training.batch)

    def _carried(self, step: Callable[..., Any]) -> Callable[[], Any]:
        """A step of which the state goes on."""
        state = [steps.start(jax.tree.map(jax.numpy.copy, self.params), self.optimizer, self.recipe.training)]

        def again() -> None:
            state[0], metrics = step(state[0], self.observation, self.actions, self.mask, jax.random.key(1))
            jax.block_until_ready((state[0], metrics))

        return again

    def step(self) -> Callable[[], Any]:
        """The trainer's own step."""
        return self._carried(steps.make_step(self.recipe.model, self.recipe.training, self.optimizer))

    def joint(self) -> Callable[[], Any]:
        """The same with prefix and suffix in one pass, through which every gradient goes."""
        training, optimizer = self.recipe.training, self.optimizer

        def step(state: Any, observation: Any, actions: Any, mask: Any, key: Any) -> Any:
            learnt, frozen = steps.partition(state.params, training)
            drawn = steps.draw(training, observation, actions, mask, key, augment=True)

            def objective(learnt: Any) -> Any:
                params = steps.merge(learnt, frozen)
                noise, time = drawn.noise.swapaxes(0, 1), drawn.time.T
                return joint_loss(self.recipe.model, params, drawn.observation, actions, noise, time).mean()

            value, gradient = jax.value_and_grad(objective)(learnt)
            return steps.updated(state, gradient, training, optimizer), value

        return self._carried(jax.jit(step, donate_argnums=0))

    def parts(self) -> dict[str, Callable[[], Any]]:
        """Data, prefix, suffix, optimizer, each alone."""
        training, params = self.recipe.training, self.params
        ready, learns = jax.block_until_ready, reached(training)["language model"]
        draw = jax.jit(lambda o, a, m, key: steps.draw(training, o, a, m, key, augment=True))
        inputs = (self.observation, self.actions, self.mask, jax.random.key(1))
        drawn = draw(*inputs)
        learnt, frozen = steps.partition(params, training)
        prefix, suffix = _passes(self.recipe.model, learns)
        cache, mask = jax.jit(lambda p, o: _prefix(self.recipe.model, p, o, True))(params, drawn.observation)
        state = steps.start(params, self.optimizer, training)
        update = jax.jit(lambda s, g: steps.updated(s, g, training, self.optimizer))
        return {
            "data": lambda: ready(draw(*inputs)),
            "prefix": lambda: ready(prefix(learnt, frozen, drawn.observation, cache)),
            "suffix": lambda: ready(suffix(learnt, frozen, cache, mask, drawn)),
            "optimizer": lambda: ready(update(state, learnt)),
        }


def _prefix(config: Any, params: Any, observation: Any, forward_only: bool) -> Any:
    return Pi05(config).apply({"params": params}, observation, forward_only, method=Pi05.prefix)


def _passes(config: Any, learns: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Prefix and suffix, forward, and backward as far as something learns."""

    def prefix(learnt: Any, frozen: Any, observation: Any, cotangent: Any) -> Any:
        def forward(learnt: Any) -> Any:
            return _prefix(config, steps.merge(learnt, frozen), observation, not learns)[0]

        if not learns:
            return forward(learnt)
        cache, backward = jax.vjp(forward, learnt)
        return cache, backward(cotangent)

    def suffix(learnt: Any, frozen: Any, cache: Any, mask: Any, drawn: Any) -> Any:
        def mean(learnt: Any, cache: Any) -> Any:
            noise, time, body = drawn.noise.swapaxes(0, 1), drawn.time.T, drawn.observation.body
            params = steps.merge(learnt, frozen)
            return suffix_loss(config, params, cache, mask, body, drawn.actions, noise, time).mean()

        return jax.value_and_grad(mean, argnums=(0, 1) if learns else 0)(learnt, cache)

    return jax.jit(prefix), jax.jit(suffix)


def _batch(config: Any, rows: int) -> Any:
    """A batch as the loader hands it on: bytes of images, tokens, actions, in the host's memory."""
    rng = np.random.default_rng(0)
    size = (rows, config.image_size, config.image_size, 3)
    seen = Observation(
        {name: rng.integers(0, 256, size).astype(np.uint8) for name in config.cameras},
        {name: np.ones(rows, bool) for name in config.cameras},
        rng.integers(2, config.vocab, (rows, config.max_tokens)).astype(np.int32),
        np.ones((rows, config.max_tokens), bool),
    )
    actions = rng.normal(size=(rows, config.horizon, config.action_dim)).astype(np.float32)
    return seen, actions, np.ones((rows, config.action_dim), bool)
