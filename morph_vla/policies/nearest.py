"""Nearest neighbours: the demonstrations themselves answer, and nothing is learnt.

    observation  ->  the k recorded rows that are nearest to it
                 ->  the mean of the chunks that followed them, weighted by exp(-distance)

The baselines of Shafiullah, Cui, Altanzaya and Pinto, "Behavior Transformers: Cloning k modes with one stone"
(NeurIPS 2022), Appendix B.1: the nearest neighbour (`neighbours: 1`) and locally weighted regression over
five. What they reach is what a task asks of memory alone. Rows are compared by joint values, poses and text
as the other families read them, normalised and each counting the same, among robots with as many joints.

The rows are leaves that `fit` finds before the first step and no step changes. There are always
`config.memory` of them, so that shapes follow from the recipe; those beyond the data are nobody's.
"""

import logging

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from morph_vla.pi05.observation import Observation
from morph_vla.policies.config import NearestConfig
from morph_vla.policies.family import Asked, Drawn, Params, Recorded, as_trained
from morph_vla.policies.text import TEXT
from morph_vla.robots import Robot

LOG = logging.getLogger(__name__)

ready = as_trained


def init(config: NearestConfig, key: Array) -> Params:
    """A memory of nobody's rows; the same whatever the key."""
    config.check()
    rows, joints = config.memory, config.action_dim
    return {
        "memory": {
            "seen": jnp.zeros((rows, joints + config.environment + TEXT)),
            "chunks": jnp.zeros((rows, config.horizon, joints)),
            "joints": jnp.zeros((rows, joints)),
        }
    }


def fit(config: NearestConfig, params: Params, recorded: Recorded, seed: int) -> Params:
    """The rows that are remembered: all that are trained on, or `config.memory` of them, evenly chosen."""
    del seed
    pairs = recorded.pairs(config.memory)
    count = len(pairs.actions)
    if count < pairs.of:
        LOG.info("model.memory: %s rows of %s are remembered", f"{count:,}", f"{pairs.of:,}")
    rows = {
        "seen": np.concatenate([pairs.state, pairs.environment], axis=1),
        "chunks": pairs.actions,
        "joints": pairs.mask.astype(np.float32),
    }
    return {
        "memory": {
            name: jnp.asarray(leaf).at[:count].set(rows[name]) for name, leaf in params["memory"].items()
        }
    }


def answer(
    config: NearestConfig, params: Params, observation: Observation, mask: Bool[Array | np.ndarray, "b a"]
) -> Float[Array, "b h a"]:
    """The chunks; `mask` says which action values each row's robot has.

    A robot with as many joints as none that is remembered is answered from all rows.
    """
    memory, own = params["memory"], jnp.asarray(mask).astype(jnp.float32)
    asked = jnp.concatenate([jnp.asarray(observation.state), jnp.asarray(observation.environment)], axis=1)
    away = distances(asked, memory["seen"])
    real = memory["joints"].sum(axis=1) > 0
    real = real | ~real.any()  # of an empty memory zeros, before `fit`
    alike = real & (jnp.abs(own[:, None] - memory["joints"]).sum(axis=2) == 0)
    taken = jnp.where(alike.any(axis=1, keepdims=True), alike, real)
    near, rows = jax.lax.top_k(-jnp.where(taken, away, jnp.inf), config.neighbours)
    return jnp.einsum("bk,bkha->bha", jax.nn.softmax(near), memory["chunks"][rows])


def distances(asked: Float[Array, "b s"], seen: Float[Array, "n s"]) -> Float[Array, "b n"]:
    """Euclidean; differences are squared one by one: near rows would drown in products of their lengths."""
    return jax.lax.map(lambda row: jnp.sqrt(jnp.square(seen - row).sum(axis=1)), asked)


def loss(
    config: NearestConfig, params: Params, drawn: Drawn, frozen_prefix: bool = False
) -> Float[Array, "b a"]:
    """Squared error of the chunk, averaged over the horizon; 0 of a remembered row and one neighbour."""
    del frozen_prefix
    chunk = answer(config, params, drawn.observation, drawn.mask)
    return jnp.mean(jnp.square(chunk - drawn.actions), axis=1)


def ahead(config: NearestConfig, params: Params, steps: int) -> None:
    """Nothing."""


def act(
    config: NearestConfig, params: Params, ahead: None, asked: Asked, steps: int
) -> Float[Array, "b h a"]:
    """The chunk; the same whatever the noise."""
    return answer(config, params, asked.observation, asked.real)


def body(config: NearestConfig, robot: Robot) -> None:
    """The model knows nothing of the robot but its joint values."""


def real_time(config: NearestConfig) -> bool:
    """Chunks do not go on from each other."""
    return False


def served_type(config: NearestConfig, leaf: str) -> None:
    """Every leaf as it is."""
