"""One training step, as pure functions: which parameters learn, the loss, the update, the moving average."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from morph_vla import policies
from morph_vla.pi05 import Observation
from morph_vla.pi05 import model as pi05
from morph_vla.pi05.augmentation import augment as openpi_augment
from morph_vla.pi05.observation import random_shift, to_unit
from morph_vla.policies import Drawn
from morph_vla.policies.config import ModelConfig
from morph_vla.recipes.keys import Training
from morph_vla.training.kinds import Params, merge, norms, partition, reached
from morph_vla.training.optimizers import make_optimizer as make_optimizer


class State(NamedTuple):
    """Everything that changes while training. `ema` and `optimizer` cover the trainable leaves only."""

    params: Params
    ema: Params
    optimizer: Any
    step: Array


def start(params: Params, optimizer: optax.GradientTransformation, training: Training) -> State:
    """The state before the first step."""
    trainable, _ = partition(params, training)
    # A copy: donated buffers must not be shared.
    return State(
        params, jax.tree.map(jnp.copy, trainable), optimizer.init(trainable), jnp.zeros((), jnp.int32)
    )


def draw(
    config: ModelConfig,
    training: Training,
    observation: Observation,
    actions: Float[Array, "b h a"],
    mask: Bool[Array, "b a"],
    key: Array,
    augment: bool,
) -> Drawn:
    """Augmented images, noise and times of a whole batch, whatever microbatches it is computed in.

    `noise_share` of a row's draws are at t = 1: x_t is noise, so that the best velocity is noise minus the
    mean action given the observation. Elsewhere x_t tells where the chunk goes, and a model that cannot see
    yet learns to read it there; these draws are where the eyes learn (docs/method.md).

    Of a draw before t = 1 the first 0 to `delay_max` actions are given, each number as often. At t = 1 none
    are: who is told where the chunk begins need not look.
    """
    shift_key, noise_key, time_key = jax.random.split(key, 3)
    rows, draws = actions.shape[0], training.flow_samples
    images = {name: to_unit(jnp.asarray(image)) for name, image in observation.images.items()}
    if augment and training.augmentation == "openpi":
        images = {name: openpi_augment(shift_key, image, name) for name, image in images.items()}
    elif augment and (training.shift_pixels or training.brightness):
        keys = jax.random.split(shift_key, len(images))
        images = {
            name: random_shift(k, image, training.shift_pixels, training.brightness)
            for k, (name, image) in zip(keys, images.items(), strict=True)
        }
    noise = jax.random.normal(noise_key, (draws, *actions.shape))
    time, given = pi05.sample_time(time_key, (draws, rows)), None
    if augment:  # not of held-out rows, whose loss stays what it is in any recipe
        # The whole part of draws * share is at t = 1 in every row, the rest by chance.
        whole, rest = divmod(draws * training.noise_share, 1)
        more = jax.random.bernoulli(jax.random.fold_in(time_key, 1), rest, (rows,))
        count = int(whole) + more.astype(jnp.int32)
        time = jnp.where(jnp.arange(draws)[:, None] < count[None, :], 1.0, time)
        if config.delay_max:
            delay_key = jax.random.fold_in(time_key, 2)
            given = jax.random.randint(delay_key, (rows, draws), 0, config.delay_max + 1)
            given = jnp.where(time.T == 1, 0, given)
    observation = dataclasses.replace(observation, images=images)
    known = jnp.asarray(actions), jnp.asarray(mask)
    return Drawn(observation, *known, noise.swapaxes(0, 1), time.T, given)


def errors_of(config: ModelConfig, training: Training, params: Params, drawn: Drawn) -> Float[Array, "b a"]:
    """The loss of every row and action value, by the model's family."""
    frozen = not reached(training, config.environment)["language model"]
    return policies.of(config).loss(config, params, drawn, frozen)


def draw_errors(
    config: ModelConfig,
    training: Training,
    params: Params,
    observation: Observation,
    actions: Float[Array, "b h a"],
    key: Array,
    augment: bool,
) -> Float[Array, "b a"]:
    """`errors_of` the batch as `draw` draws it."""
    every = jnp.ones((actions.shape[0], actions.shape[2]), bool)
    drawn = draw(config, training, observation, actions, every, key, augment)
    return errors_of(config, training, params, drawn)


def row_losses(
    errors: Float[Array, "b a"], mask: Bool[Array, "b a"], training: Training
) -> Float[Array, "b"]:
    """The mean error of each row over its robot's own action values, or over all (`loss_over`).

    Every row counts the same, however many joints its robot has; one that has no real value is 0.
    """
    if training.loss_over == "all":
        return jnp.mean(errors, axis=1)
    count = jnp.maximum(jnp.sum(mask.astype(errors.dtype), axis=1), 1)
    return jnp.sum(jnp.where(mask, errors, 0.0), axis=1) / count


def make_step(
    config: ModelConfig,
    training: Training,
    optimizer: optax.GradientTransformation,
    shardings: Any = None,
) -> Callable[..., tuple[State, dict[str, Any]]]:
    """The compiled step: (state, observation, actions, mask of real values, seed key) -> (state, metrics).

    `shardings` says how state and metrics lie over several devices; None leaves it to the compiler.

    Metrics are `loss`, `rows` (the loss of each row), `gradient_norm` and `gradient_norms` (of each part),
    both before the clip. Random numbers come from the seed key and the state's step, so that a resumed run
    repeats them.
    """

    def step(
        state: State,
        observation: Observation,
        actions: Float[Array, "b h a"],
        mask: Bool[Array, "b a"],
        key: Array,
    ) -> tuple[State, dict[str, Any]]:
        trainable, frozen = partition(state.params, training)
        its_key = jax.random.fold_in(key, state.step)
        drawn = draw(config, training, observation, actions, mask, its_key, augment=True)

        def objective(learnt: Params, part: Drawn) -> tuple[Float[Array, ""], Float[Array, "b"]]:
            rows = row_losses(errors_of(config, training, merge(learnt, frozen), part), part.mask, training)
            return jnp.mean(rows), rows

        rows, gradient = accumulated(objective, trainable, drawn, training.accumulate)
        metrics = {
            "loss": jnp.mean(rows),
            "rows": rows,
            "gradient_norm": global_norm(gradient),
            "gradient_norms": norms(gradient),
        }
        return updated(state, gradient, training, optimizer), metrics

    placed = {} if shardings is None else {"out_shardings": shardings}
    return jax.jit(step, donate_argnums=0, **placed)


def updated(
    state: State, gradient: Params, training: Training, optimizer: optax.GradientTransformation
) -> State:
    """The state after one step of the optimizer, and the average that follows it."""
    trainable, frozen = partition(state.params, training)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes integer counts with floats
        updates, moments = optimizer.update(gradient, state.optimizer, trainable)
    learnt: Any = optax.apply_updates(trainable, updates)
    ema = followed(state.ema, learnt, state.step, training.ema)
    return State(merge(learnt, frozen), ema, moments, state.step + 1)


def followed(average: Params, learnt: Params, step: Array, most: float) -> Params:
    """The moving average after a step.

    Early steps would drown it in the random start: the decay grows to its value `most`.
    """
    taken = step.astype(jnp.float32)
    decay = jnp.minimum(most, (1.0 + taken) / (10.0 + taken))
    return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, average, learnt)


def accumulated(
    objective: Callable[[Params, Drawn], tuple[Array, Array]], learnt: Params, drawn: Drawn, parts: int
) -> tuple[Float[Array, "b"], Params]:
    """Each row's loss and the gradient of their mean, computed in `parts` microbatches one after the other.

    Every `parts`-th row goes into a microbatch, so that rows that lie on several devices stay there.
    """
    slope = jax.grad(objective, has_aux=True)
    if parts == 1:
        gradient, rows = slope(learnt, drawn)
        return rows, gradient
    # As leaves, for the annotated shapes of `Drawn` and `Observation` have no axis of microbatches.
    leaves, form = jax.tree.flatten(drawn)
    split = [leaf.reshape(-1, parts, *leaf.shape[1:]).swapaxes(0, 1) for leaf in map(jnp.asarray, leaves)]

    def add(total: Params, part: list[Array]) -> tuple[Params, Float[Array, "b"]]:
        gradient, rows = slope(learnt, jax.tree.unflatten(form, part))
        return jax.tree.map(lambda old, new: old + new / parts, total, gradient), rows

    gradient, rows = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, learnt), split)
    return rows.T.reshape(-1), gradient


def global_norm(tree: Params) -> Float[Array, ""]:
    """Square root of the sum of all squares (in optax its name depends on the version)."""
    return jnp.sqrt(sum((jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)), start=jnp.float32(0)))


def averaged(state: State) -> Params:
    """The parameters to act with: the moving average where there is one."""
    return merge(state.ema, state.params)
