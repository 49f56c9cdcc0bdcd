"""pi0.5 as a policy family: images and text in, and out of it flow matching over action chunks.

With `model.head` the action expert denoises nothing: it names a kind of chunk and an offset, as `bet` does.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.morphology import body_of
from morph_vla.morphology.arrays import Body
from morph_vla.pi05 import model, sampling, serving
from morph_vla.pi05.config import BinsHead, Pi05Config
from morph_vla.policies import bins
from morph_vla.policies.family import Asked, Drawn, Params, Recorded
from morph_vla.robots import Robot

init = model.init_params
served_type = serving.served_type
ready = serving.ready


def real_time(config: Pi05Config) -> bool:
    """A kind of chunk does not go on from another chunk; what is denoised does."""
    return config.head is None


def fit(config: Pi05Config, params: Params, recorded: Recorded, seed: int) -> Params:
    """With a head, its kinds of chunk; those that came with weights stay, for the head knows them.

    Raises MorphVlaError where the data has fewer different chunks than kinds.
    """
    head = config.head
    if head is None or bool(jnp.any(params["bins"]["centres"] != 0)):
        return params
    actions, mask = recorded.chunks(bins.SAMPLE)
    found = bins.fitted(actions, mask, head.bins, head.gamma, seed, "model.head")
    return {**params, "bins": found}


def loss(
    config: Pi05Config, params: dict[str, Any], drawn: Drawn, frozen_prefix: bool = False
) -> Float[Array, "b a"]:
    """Squared error of the velocity, averaged over draws and horizon; of a draw, over what is not given.

    With a head that of kinds and offsets (`bins.errors`); noise and times then mean nothing.
    """
    if config.head is not None:
        return _loss_of_kinds(config, config.head, params, drawn, frozen_prefix)
    noise, time = drawn.noise.swapaxes(0, 1), drawn.time.T
    given = None if drawn.given is None else drawn.given.T
    squares = model.loss(config, params, drawn.observation, drawn.actions, noise, time, frozen_prefix, given)
    if given is None:
        return jnp.mean(squares, axis=(0, 2))
    free = (config.horizon - given).astype(squares.dtype)
    return jnp.mean(jnp.sum(squares, axis=2) / free[..., None], axis=0)


def _loss_of_kinds(
    config: Pi05Config, head: BinsHead, params: Params, drawn: Drawn, frozen_prefix: bool
) -> Float[Array, "b a"]:
    logits, offsets = model.kinds(config, params, drawn.observation, frozen_prefix)
    return bins.errors(logits, offsets, drawn.actions, params["bins"], head.gamma)


def ahead(config: Pi05Config, params: Params, steps: int) -> model.Modulations:
    """What adaRMS makes of the sampler's times; with a head of its one time, 1, whatever `steps`."""
    return sampling.modulations(config, params, steps if config.head is None else 1)


def act(
    config: Pi05Config, params: dict[str, Any], ahead: Any, asked: Asked, steps: int
) -> Float[Array, "b h a"]:
    """Euler steps from the noise to actions; `ahead` are the modulations of their times.

    With a head one pass, and a kind that is drawn from the first number of the noise.
    """
    observation, noise, real, previous = asked
    if config.head is None:
        return sampling.sample_actions(config, params, observation, noise, steps, ahead, real, previous)
    once = None if ahead is None else jax.tree.map(lambda leaf: leaf[0], ahead)
    logits, offsets = model.kinds(config, params, observation, True, once)
    return bins.drawn(logits, offsets, noise[:, 0, 0], params["bins"])


def body(config: Pi05Config, robot: Robot) -> Body | None:
    """Joint graph and descriptors, for a model with kinematic tokens."""
    plugin = config.morphology
    if plugin is None:
        return None
    return body_of(robot, plugin.max_joints, plugin.descriptors, plugin.poses, plugin.robots)
