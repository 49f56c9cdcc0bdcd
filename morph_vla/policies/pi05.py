"""pi0.5 as a policy family: images and text in, flow matching over action chunks."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.morphology import body_of
from morph_vla.morphology.arrays import Body
from morph_vla.pi05 import model, serving
from morph_vla.pi05.config import Pi05Config
from morph_vla.policies.family import Asked, Chunks, Drawn, Params
from morph_vla.robots import Robot

REAL_TIME = True
init = model.init_params
ahead = model.modulations
served_type = serving.served_type
ready = serving.ready


def fit(config: Pi05Config, params: Params, chunks: Chunks, seed: int) -> Params:
    """Nothing is learnt before the first step."""
    return params


def loss(
    config: Pi05Config, params: dict[str, Any], drawn: Drawn, frozen_prefix: bool = False
) -> Float[Array, "b a"]:
    """Squared error of the velocity, averaged over draws and horizon; of a draw, over what is not given."""
    noise, time = drawn.noise.swapaxes(0, 1), drawn.time.T
    given = None if drawn.given is None else drawn.given.T
    squares = model.loss(config, params, drawn.observation, drawn.actions, noise, time, frozen_prefix, given)
    if given is None:
        return jnp.mean(squares, axis=(0, 2))
    free = (config.horizon - given).astype(squares.dtype)
    return jnp.mean(jnp.sum(squares, axis=2) / free[..., None], axis=0)


def act(
    config: Pi05Config, params: dict[str, Any], ahead: Any, asked: Asked, steps: int
) -> Float[Array, "b h a"]:
    """Euler steps from the noise to actions; `ahead` are the modulations of their times."""
    observation, noise, real, previous = asked
    return model.sample_actions(config, params, observation, noise, steps, ahead, real, previous)


def body(config: Pi05Config, robot: Robot) -> Body | None:
    """Joint graph and descriptors, for a model with kinematic tokens."""
    plugin = config.morphology
    if plugin is None:
        return None
    return body_of(robot, plugin.max_joints, plugin.descriptors, plugin.poses, plugin.robots)
