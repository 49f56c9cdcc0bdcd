"""Sampling: Euler steps from noise to a chunk of actions, over the cache of one pass of the prefix."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from morph_vla.morphology.arrays import Body
from morph_vla.pi05 import realtime
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.flow import schedule
from morph_vla.pi05.gemma import Modulations
from morph_vla.pi05.inputs import check_actions, wide
from morph_vla.pi05.model import Params, Pi05, apply
from morph_vla.pi05.observation import Observation
from morph_vla.pi05.realtime import Previous


def modulations(config: Pi05Config, params: Params, steps: int = 10) -> Modulations:
    """What adaRMS makes of the times of a schedule: all layers' scales, shifts and gates, [n l f] and [n f].

    The sampler's times never change, so one table serves every call with these parameters. Where rows may be
    given (`delay_max`), n is one more than `steps`: the last is of their time, 0.
    """
    times = np.append(schedule(steps), np.float32(0)) if config.delay_max else schedule(steps)
    condition = apply(config, params, Pi05.condition, jnp.asarray(times)).astype(config.dtype)
    language = params["PaliGemma"]["llm"]

    def made(norm: Params) -> Array:
        dense = {name: jnp.asarray(leaf, config.dtype) for name, leaf in norm["Dense_0"].items()}
        return condition @ dense["kernel"] + dense["bias"][..., None, :]

    def of_layers(norm: str) -> Array:
        if "layers" in language:
            return made(language["layers"][norm]).swapaxes(0, 1)
        return jnp.stack([made(language[f"layers_{i}"][norm]) for i in range(config.depth)], axis=1)

    before, after = of_layers("pre_attention_norm_1"), of_layers("pre_ffw_norm_1")
    return Modulations(before, after, made(language["final_norm_1"]))


def sample_actions(
    config: Pi05Config,
    params: Params,
    observation: Observation,
    noise: Float[Array, "b h a"],
    steps: int = 10,
    modulations: Modulations | None = None,
    real: Bool[Array | np.ndarray, "b a"] | None = None,
    previous: Previous | None = None,
) -> Float[Array, "b h a"]:
    """Integrate the velocity from noise at t = 1 to actions at t = 0 with `steps` Euler steps.

    `modulations` are `modulations(config, params, steps)`, where they were computed before: the same actions
    to rounding, without the adaRMS projections of every call.

    `real` says which action values a row's robot has; a model with kinematic tokens takes the body's joints
    where it is left out. The others are padding: 0 in training, so their x_t is t * noise there. They are
    held on that path, whatever the model says of them (`loss_over: real` never taught it), and end at 0.
    Without `real` and without a body all values are integrated, as openpi does.

    With `previous` the chunk goes on from the one that is being executed (`realtime`): led there, or, by a
    model that was trained to (`delay_max`), given its first actions. With either the first rows come back as
    they are, a gripper's apart. A row of which no actions are given is what it is without, bit for bit.
    Raises MorphVlaError for noise that is not a chunk for every row, and for an observation of another model.
    """
    check_actions(config, {"noise": noise}, len(observation.tokens))
    noise = wide(noise)
    if real is None and config.morphology is not None and observation.body is not None:
        real = joint_values(observation.body, config.action_dim)
    cache, mask = apply(config, params, Pi05.prefix, observation, True)
    dt, times = -1.0 / steps, schedule(steps)
    pull = weights = given = None
    previous = None if previous is None else realtime.held(previous)
    if previous is not None and config.delay_max:
        given = realtime.given(previous, config.delay_max)
    elif previous is not None:
        pull, weights = realtime.pull(previous, real), jnp.asarray(realtime.guidance_weights(times))
    if modulations is not None and config.delay_max:
        modulations = _paired(modulations, given is not None)

    def held(x: Array, time: Array | float) -> Array:
        x = x if real is None else jnp.where(jnp.asarray(real)[:, None], x, time * noise)
        return x if previous is None or given is None else realtime.kept(x, previous, given, real)

    def velocity(x: Array, time: Array, table: Modulations | None) -> Array:
        of_rows = (jnp.broadcast_to(time, x.shape[:1]), observation.body, table, given)
        return apply(config, params, Pi05.velocity, cache, mask, x, *of_rows)

    def step(x: Array, now: tuple[Array, Modulations | None, Array | None]) -> tuple[Array, None]:
        time, table, weight = now
        x, at = held(x, time), partial(velocity, time=time, table=table)
        v = at(x) if pull is None or weight is None else realtime.guided(at, x, time, weight, pull)
        return x + dt * v, None

    x, _ = jax.lax.scan(step, noise, (jnp.asarray(times), modulations, weights), length=steps)
    chunk = held(x, 0.0)
    return chunk if previous is None else realtime.faded(chunk, previous, real)


def _paired(table: Modulations, given: bool) -> Modulations:
    """Of a table whose last row is that of time 0: the others, and with `given` each beside the last."""
    times = jax.tree.map(lambda leaf: leaf[:-1], table)
    if not given:
        return times
    clean = jax.tree.map(lambda leaf, last: jnp.broadcast_to(last[-1:], leaf.shape), times, table)
    return jax.tree.map(lambda leaf, last: jnp.stack([leaf, last], axis=-2), times, clean)


def joint_values(body: Body, action_dim: int) -> Bool[Array, "b a"]:
    """Which of `action_dim` action values belong to a real joint: value j is joint j's."""
    mask = jnp.asarray(body.joint_mask)
    return jnp.pad(mask, ((0, 0), (0, action_dim - mask.shape[1])))
