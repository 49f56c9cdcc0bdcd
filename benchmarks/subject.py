"""What is measured: the trainer's own step and a policy's own call, on random weights of a chosen size.

There is one step, that of `training/step.py` as the recipe `pi05_droid` has it: what is frozen in the model's
type, a body, augmentation, clip, AdamW, average. Whoever times a step times this one, so that no two
benchmarks mean another.
"""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import ahead
from benchmarks.harness import Work
from morph_vla import policies
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
        return Pi05Config(fused_attention=True)
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

    def __init__(self, recipe: Recipe, params: Any = None, options: Mapping[str, Any] | None = None):
        """Draw weights where none are given; those given are the state's from now on. `options` are XLA's."""
        assert isinstance(recipe.model, Pi05Config)
        self.recipe, self.model = recipe, recipe.model
        self.optimizer, _ = steps.make_optimizer(recipe.optimizer, recipe.training.steps)
        self._params, self._options = params, dict(options or {})
        self._served: dict[bool, Any] = {}

    @cached_property
    def state(self) -> steps.State:
        """Made when it is first asked for: to compile, its shapes are enough."""
        params, self._params = self._params, None
        if params is None:  # a step gives its own away: kept for others, they are copied
            params = jax.tree.map(jnp.copy, self._drawn()) if ahead.keeping() else self._drawn()
        return steps.start(params, self.optimizer, self.recipe.training)

    @cached_property
    def batch(self) -> tuple[Any, Any, Any]:
        """Observations, actions and mask, on the device."""
        return jax.device_put(batch_of(self.model, self.recipe.training.batch))

    def _drawn(self) -> Any:
        """Random weights, those of others that have the same leaves where programs are kept."""
        leaves = {name: (leaf.shape, str(leaf.dtype)) for name, leaf in by_name(self._shapes()).items()}
        make = partial(parameters.fresh_params, self.recipe)
        return ahead.kept(f"{self.recipe.training.seed} {leaves}", make)

    def _shapes(self) -> Any:
        """Shapes and types of the parameters."""
        if "state" in vars(self):
            return jax.eval_shape(lambda: self.state.params)
        if self._params is not None:
            return jax.eval_shape(lambda: self._params)

        def held(name: str, leaf: Any) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, parameters.held(self.recipe, name))

        return map_named(held, policies.shapes(self.model))

    def _program(self, what: str, function: Callable[..., Any], *shapes: Any, **options: Any) -> Any:
        """The compiled function of inputs with these shapes, kept under the recipe and `what` it is."""
        if ahead.collecting() and self._params is None:
            jax.block_until_ready(self._drawn())  # what draws them is a program too
        lower = jax.jit(function, **options).lower

        def make() -> Any:
            return lower(*shapes).compile(compiler_options=self._options or None)

        return ahead.kept(f"{self.recipe} {self._options} {what}", make)

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
        return self._carried("step", steps.make_step(self.model, self.recipe.training, self.optimizer))

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

        return self._carried("joint", step)

    def _carried(self, what: str, step: Callable[..., Any]) -> Compiled:
        """A step of which the state goes on."""
        key = jax.random.key(1)
        inputs = (*batch_of(self.model, self.recipe.training.batch), key)
        on_leaves, leaves = _of_leaves(lambda state, inputs: step(state, *inputs), inputs)
        begin = partial(steps.start, optimizer=self.optimizer, training=self.recipe.training)
        shapes = jax.eval_shape(begin, self._shapes())
        program = self._program(what, on_leaves, shapes, leaves, donate_argnums=0)

        def again() -> Any:
            self.state, metrics = program(self.state, jax.tree.leaves((*self.batch, key)))
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
        noise = np.zeros((rows, self.model.horizon, self.model.action_dim), np.float32)
        others = batch_of(self.model, rows)[0], noise
        modulate = partial(modulations, self.model, steps=10)

        def sample(params: Any, made: Any, observation: Any, noise: Any) -> Any:
            return sample_actions(self.model, params, observation, noise, 10, made)

        def inputs() -> Any:
            params = self._held(ready)
            return params, jax.jit(modulate)(params) if table else None, *others

        shapes = self._held_shapes(ready)
        made = jax.eval_shape(modulate, shapes) if table else None
        what = f"sampling {rows} {table} {ready}"
        return self._call(what, sample, (shapes, made, *others), inputs)

    def sampling_parts(self, rows: int) -> dict[str, Compiled]:
        """The passes over images, and over images and prompt, that a call begins with."""
        model, observation = self.model, batch_of(self.model, rows)[0]
        methods: dict[str, tuple[Any, ...]] = {"images": (Pi05.embed_prefix,), "prefix": (Pi05.prefix, True)}

        def part(method: Any, *options: Any) -> Callable[..., Any]:
            return lambda params, observation: _apply(model, params, method, observation, *options)

        def inputs() -> Any:
            return self._held(True), observation

        shapes = self._held_shapes(True), observation
        return {
            name: self._call(f"{name} {rows}", part(*each), shapes, inputs) for name, each in methods.items()
        }

    def _held(self, ready: bool) -> Any:
        """The parameters as a policy holds them, or rounded as they are trained; made once."""
        if ready not in self._served:
            self._served[ready] = (served if ready else rounded)(self.model, self.state.params)
        return self._served[ready]

    def _held_shapes(self, ready: bool) -> Any:
        return jax.eval_shape(partial(served if ready else rounded, self.model), self._shapes())

    def _call(
        self, what: str, function: Callable[..., Any], shapes: Any, inputs: Callable[[], Any]
    ) -> Compiled:
        """A program of inputs that are made, and put on the device, when it first runs."""
        program = self._program(what, *_of_leaves(function, shapes))
        on_device: list[Any] = []

        def again() -> Any:
            if not on_device:
                on_device.append(jax.tree.leaves(jax.device_put(inputs())))
            return program(on_device[0])

        return Compiled(_ready(again), program)


def compiled(function: Callable[..., Any], *inputs: Any) -> Compiled:
    """A function of these inputs as a program; they lie on the device."""
    on_leaves, leaves = _of_leaves(function, jax.device_put(inputs))
    program = jax.jit(on_leaves).lower(leaves).compile()
    return Compiled(_ready(lambda: program(leaves)), program)


def _of_leaves(function: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A function that takes its last arguments, `inputs`, as leaves, as lowering needs them: and these."""
    leaves, form = jax.tree.flatten(inputs)

    def on_leaves(*given: Any) -> Any:
        *before, last = given
        rebuilt = jax.tree.unflatten(form, last)
        return function(*before, rebuilt) if before else function(*rebuilt)

    return on_leaves, leaves


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
