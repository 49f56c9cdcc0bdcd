"""What is measured: the trainer's own step and a policy's own call, on random weights of a chosen size.

There is one step, that of `training/step.py` as the recipe `pi05_droid` has it: what is frozen in the model's
type, a body, augmentation, clip, AdamW, average. Whoever times a step times this one, so that no two
benchmarks mean another.
"""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Work
from morph_vla.morphology import MorphologyConfig
from morph_vla.pi05 import (
    GemmaConfig,
    Pi05,
    Pi05Config,
    VitConfig,
    init_params,
    modulations,
    sample_actions,
    serving,
)
from morph_vla.pi05 import model as pi05
from morph_vla.pi05.config import ImageTokens
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.recipes import recipe as recipes
from morph_vla.recipes.keys import Recipe
from morph_vla.training import parameters
from morph_vla.training import step as steps
from morph_vla.training.kinds import merge, partition, reached

RECIPE = "pi05_droid"
# batch of a training step by size
SIZES = {"small": 2, "mid": 1, "full": 32}
PLUGIN = MorphologyConfig(max_joints=8, bias="mix")
PARTS = ("data", "images", "prefix", "suffix", "optimizer", "average")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A program, to be run again and again."""

    run: Work
    program: Any

    @property
    def temporary_mb(self) -> float | None:
        """Memory that it needs beside its inputs and outputs [MB], where the backend says."""
        analysis = self.program.memory_analysis()
        return None if analysis is None else analysis.temp_size_in_bytes / 1e6


def config_of(size: str) -> Pi05Config:
    """The host without a body.

    `mid` is near the full model in what decides the plugin's share: the expert's part of a layer's
    parameters, and suffix tokens with a body (24) to prefix tokens (496; full 968).
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
        max_tokens=40 if small else 64,
        dtype="float32",
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """`--size` and `--batch`, of which 0 is what SIZES has."""
    about = "of the model (default mid: 57 million parameters)"
    parser.add_argument("--size", choices=tuple(SIZES), default="mid", help=about)
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="observations of a training step")


def recipe_of(
    size: str,
    batch: int,
    kind: Any = "expert",
    plugin: MorphologyConfig | None = PLUGIN,
    dtype: Any = "",
    changes: Sequence[str] = (),
) -> Recipe:
    """`pi05_droid` at a size, from random weights; `dtype` where it is not the size's own."""
    recipe, model = recipes.load(RECIPE, changes), config_of(size)
    return dataclasses.replace(
        recipe,
        model=dataclasses.replace(model, morphology=plugin, dtype=dtype or model.dtype),
        training=dataclasses.replace(recipe.training, batch=batch, kind=kind),
        weights="",
    )


class Subject:
    """A recipe's model with random weights, and the state of its training, which every step carries on."""

    def __init__(self, recipe: Recipe, params: Any = None):
        """Draw weights where none are given; those given are the state's from now on."""
        assert isinstance(recipe.model, Pi05Config)
        self.recipe, self.model = recipe, recipe.model
        self.optimizer, _ = steps.make_optimizer(recipe.optimizer, recipe.training.steps)
        params = parameters.fresh_params(recipe) if params is None else params
        self.state = steps.start(params, self.optimizer, recipe.training)
        self.batch = jax.device_put(batch_of(self.model, recipe.training.batch))

    def with_plugin(self, plugin: MorphologyConfig) -> "Subject":
        """The same weights, copied, with a new body beside them."""
        return self._with("morphology", plugin)

    def with_image_tokens(self, fewer: ImageTokens) -> "Subject":
        """The same weights, copied, with what makes fewer image tokens beside them."""
        return self._with("image_tokens", fewer)

    def _with(self, part: str, config: Any) -> "Subject":
        model = dataclasses.replace(self.model, **{part: config})
        model.check()
        new = jax.jit(lambda key: {top: x for top, x in init_params(model, key).items() if top == part})
        params = {**jax.tree.map(jnp.copy, self.state.params), **new(jax.random.key(0))}
        return Subject(dataclasses.replace(self.recipe, model=model), params)

    def step(self) -> Compiled:
        """The trainer's own step."""
        return self._carried(steps.make_step(self.model, self.recipe.training, self.optimizer))

    def joint(self) -> Compiled:
        """The same with prefix and suffix in one pass, through which every gradient goes."""
        training, optimizer = self.recipe.training, self.optimizer

        def step(state: Any, observation: Any, actions: Any, mask: Any, key: Any) -> Any:
            learnt, frozen = partition(state.params, training)
            drawn = steps.draw(self.model, training, observation, actions, mask, key, augment=True)

            def objective(learnt: Any) -> Any:
                params = merge(learnt, frozen)
                noise, time = drawn.noise.swapaxes(0, 1), drawn.time.T
                return joint_loss(self.model, params, drawn.observation, actions, noise, time).mean()

            value, gradient = jax.value_and_grad(objective)(learnt)
            return steps.updated(state, gradient, training, optimizer), value

        return self._carried(step)

    def _carried(self, step: Callable[..., Any]) -> Compiled:
        """A step of which the state goes on."""
        leaves, form = jax.tree.flatten((*self.batch, jax.random.key(1)))

        def on_leaves(state: Any, leaves: Any) -> Any:  # lowering may not rebuild an Observation
            return step(state, *jax.tree.unflatten(form, leaves))

        program = jax.jit(on_leaves, donate_argnums=0).lower(self.state, leaves).compile()

        def again() -> Any:
            self.state, metrics = program(self.state, leaves)
            return jax.block_until_ready((self.state, metrics))[1]

        return Compiled(again, program)

    def parts(self) -> dict[str, Work]:
        """Each of PARTS alone; `images` is a part of `prefix`, `average` of `optimizer`."""
        training, model = self.recipe.training, self.model
        inputs = (*self.batch, jax.random.key(1))
        draw = jax.jit(lambda *inputs: steps.draw(model, training, *inputs, augment=True))
        drawn = draw(*inputs)
        flows = reached(training)
        images = _pass(self.recipe, Pi05.embed_prefix, (), flows["vision encoder"])
        learns = flows["language model"]
        prefix, suffix = _pass(self.recipe, Pi05.prefix, (not learns,), learns), _suffix(self.recipe, learns)
        forward = jax.jit(lambda p, o: _apply(model, p, Pi05.prefix, o, True))
        cache, mask = forward(self.state.params, drawn.observation)
        tokens = jnp.zeros((len(mask), mask.shape[1], model.prefix.width), model.dtype)

        def learnt(state: steps.State) -> Any:  # as large as a gradient
            return partition(state.params, training)[0]

        update = jax.jit(lambda s: steps.updated(s, learnt(s), training, self.optimizer))
        average = jax.jit(lambda s: steps.followed(s.ema, learnt(s), s.step, training.ema))
        works: dict[str, Work] = {
            "data": lambda: draw(*inputs),
            "images": lambda: images(self.state.params, drawn.observation, tokens),
            "prefix": lambda: prefix(self.state.params, drawn.observation, cache),
            "suffix": lambda: suffix(self.state.params, cache, mask, drawn),
            "optimizer": lambda: update(self.state),
            "average": lambda: average(self.state),
        }
        return {name: _ready(works[name]) for name in PARTS}

    def sampling(self, rows: int = 1, table: bool = True, ready: bool = True) -> Compiled:
        """A policy's call: ten Euler steps for `rows` observations.

        `table`: modulations computed before; `ready`: parameters as a policy holds them, not as trained.
        """
        params = (served if ready else rounded)(self.model, self.state.params)
        modulate = jax.jit(modulations, static_argnums=(0, 2))
        made = modulate(self.model, params, 10) if table else None
        noise = jnp.zeros((rows, self.model.horizon, self.model.action_dim))

        def sample(params: Any, observation: Any, noise: Any, made: Any) -> Any:
            return sample_actions(self.model, params, observation, noise, 10, made)

        return compiled(sample, params, batch_of(self.model, rows)[0], noise, made)

    def sampling_parts(self, rows: int) -> dict[str, Compiled]:
        """The passes over images, and over images and prompt, that a call begins with."""
        model, params = self.model, served(self.model, self.state.params)
        observation = batch_of(model, rows)[0]
        return {
            "images": compiled(lambda p, o: _apply(model, p, Pi05.embed_prefix, o), params, observation),
            "prefix": compiled(lambda p, o: _apply(model, p, Pi05.prefix, o, True), params, observation),
        }


def compiled(function: Callable[..., Any], *inputs: Any) -> Compiled:
    """A function of these inputs as a program; they lie on the device."""
    leaves, form = jax.tree.flatten(jax.device_put(inputs))
    program = jax.jit(lambda leaves: function(*jax.tree.unflatten(form, leaves))).lower(leaves).compile()
    return Compiled(_ready(lambda: program(leaves)), program)


def served(config: Pi05Config, params: Any) -> Any:
    """The parameters as a policy holds them, copied: a step gives its own away."""
    return serving.ready(config, ((name, jnp.array(leaf)) for name, leaf in by_name(params).items()))


def rounded(config: Pi05Config, params: Any) -> Any:
    """The same as they are trained, in the types they are served in."""
    types = partial(serving.served_type, config)
    return map_named(lambda name, leaf: jnp.array(leaf, types(name) or leaf.dtype), params)


def joint_loss(config: Any, params: Any, observation: Any, actions: Any, noise: Any, time: Any) -> Any:
    """The loss of one noise draw in one pass over prefix and suffix, as openpi computes it."""
    x, target = pi05.interpolate(actions, noise[0], time[0])
    velocity = _apply(config, params, Pi05.velocity_joint, observation, x, time[0])
    return jnp.square(velocity - target)[None]


def batch_of(config: Pi05Config, rows: int) -> tuple[Any, Any, Any]:
    """Observations, actions and mask as the loader hands them on: bytes of images, tokens, a body."""
    rng = np.random.default_rng(0)
    observation, actions, _ = pi05.example(config, rows)
    size = (rows, config.image_size, config.image_size, 3)
    seen = dataclasses.replace(
        observation,
        images={name: rng.integers(0, 256, size).astype(np.uint8) for name in config.cameras},
        tokens=rng.integers(2, config.vocab, (rows, config.max_tokens)).astype(np.int32),
    )
    moves = rng.normal(size=actions.shape).astype(np.float32)
    return seen, moves, np.ones((rows, config.action_dim), bool)


def _ready(work: Work) -> Work:
    return lambda: jax.block_until_ready(work())


def _apply(config: Any, params: Any, method: Any, *inputs: Any) -> Any:
    return Pi05(config).apply({"params": params}, *inputs, method=method)


def _pass(recipe: Recipe, method: Any, options: tuple[Any, ...], learns: bool) -> Callable[..., Any]:
    """What is before the suffix: forward, and backward where something there learns."""
    model = recipe.model
    assert isinstance(model, Pi05Config)

    def run(params: Any, observation: Any, cotangent: Any) -> Any:
        learnt, frozen = partition(params, recipe.training)

        def forward(learnt: Any) -> Any:
            return _apply(model, merge(learnt, frozen), method, observation, *options)[0]

        if not learns:
            return forward(learnt)
        out, backward = jax.vjp(forward, learnt)
        return out, backward(cotangent)

    return jax.jit(run)


def _suffix(recipe: Recipe, learns: bool) -> Callable[..., Any]:
    """The loss given the prefix's cache, and its gradient, also of the cache where that is needed."""
    model = recipe.model
    assert isinstance(model, Pi05Config)

    def run(params: Any, cache: Any, mask: Any, drawn: Any) -> Any:
        learnt, frozen = partition(params, recipe.training)

        def mean(learnt: Any, cache: Any) -> Any:
            noise, time, body = drawn.noise.swapaxes(0, 1), drawn.time.T, drawn.observation.body
            whole = merge(learnt, frozen)
            return pi05.suffix_loss(model, whole, cache, mask, body, drawn.actions, noise, time).mean()

        return jax.value_and_grad(mean, argnums=(0, 1) if learns else 0)(learnt, cache)

    return jax.jit(run)
