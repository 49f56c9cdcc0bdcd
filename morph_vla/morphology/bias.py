"""Topology biases: what is added to the joint-to-joint attention logits (paper, Section 2.2; B.1; G).

Pure functions from the joint graph to a bias per layer and pair of joints [l b j j]; from joints to tokens,
where all tokens of a joint share its row and column [.. t t]; and the module that owns what a soft bias
learns. Drawings are of a five-joint arm.
"""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla.morphology import controls
from morph_vla.morphology.arrays import Body
from morph_vla.morphology.config import SCALE, BiasInit, MorphologyConfig

UNMASKED = ("none", "spd-soft", "adj-soft-v1.0", "adj-soft-v1.1", "adj-soft-v2.0")
WEAK = -3.0  # theta where exp(theta) starts weak: a bias of -0.05


def full_mask(adjacency: Bool[Array, "*b j j"]) -> Float[Array, "*b j j"]:
    """0 for a joint and its neighbours, -inf elsewhere (paper, Eq. 3).

    A five-joint arm (., allowed; x, -inf):

        . . x x x
        . . . x x
        x . . . x
        x x . . .
        x x x . .
    """
    return jnp.where(adjacency, 0.0, -jnp.inf)


def hard_bias(kind: str, adjacency: Bool[Array, "b j j"], layers: int) -> Float[Array, "l b j j"]:
    """The mask in the layers that `masked` names, 0 in the others."""
    mask = full_mask(adjacency)
    return jnp.where(jnp.asarray(masked(kind, layers))[:, None, None, None], mask[None], 0.0)


def masked(kind: str, layers: int) -> Bool[np.ndarray, "l"]:
    """Which layers are masked: `full` all, `mix` layers 0, 2, 4, ..., `none` and every soft bias none.

    Seven layers (x, masked):

        full  x x x x x x x
        mix   x . x . x . x
        none  . . . . . . .
    """
    if kind == "mix":
        return np.arange(layers) % 2 == 0
    if kind != "full" and kind not in UNMASKED:
        raise ValueError(f"no layers are named for the bias '{kind}'; say in bias.masked which it masks")
    return np.full(layers, kind == "full")


def spd_bias(theta: Float[Array, "l d"], distances: Int[Array, "b j j"]) -> Float[Array, "l b j j"]:
    """SPD-Soft, v3.0: theta[layer, min(distance, D_max)], d = D_max + 1 entries (paper, Eq. 12).

    Which entry of theta, for D_max = 3:

        0 1 2 3 3
        1 0 1 2 3
        2 1 0 1 2
        3 2 1 0 1
        3 3 2 1 0

    Joints that nothing connects have a distance above any D_max (`arrays.UNREACHABLE`), and its last entry.
    """
    return theta[:, jnp.minimum(distances, theta.shape[1] - 1)]


def spd_init(init: BiasInit, layers: int, max_distance: int) -> Float[np.ndarray, "l d"]:
    """Where theta of SPD-Soft starts (paper, Appendix F).

    Four layers, D_max = 4:

        zero          hard          mix            linear
        0 0 0 0 0     0 0 -3 -3 -3  0 0 -3 -3 -3   0 -0.75 -1.5 -2.25 -3
        0 0 0 0 0     0 0 -3 -3 -3  0 0  0  0  0   0 -0.75 -1.5 -2.25 -3
        0 0 0 0 0     0 0 -3 -3 -3  0 0 -3 -3 -3   0 -0.75 -1.5 -2.25 -3
        0 0 0 0 0     0 0 -3 -3 -3  0 0  0  0  0   0 -0.75 -1.5 -2.25 -3
    """
    distance = np.arange(max_distance + 1)
    if init == "linear":
        row = -SCALE * distance / max_distance
    else:
        row = np.where(distance > 1, -SCALE, 0.0)
    which = masked({"hard": "full", "linear": "full", "zero": "none"}.get(init, init), layers)
    return np.where(which[:, None], row, 0.0).astype(np.float32)


def adj_bias(strength: Float[Array, "l _i _k"], adjacency: Bool[Array, "b j j"]) -> Float[Array, "l b j j"]:
    """Adj-Soft: (M - 1) * s, with M = 1 for a joint and its neighbours (paper, Eq. 8).

    With one strength s per layer (v1.1, v2.0; in v1.0 every pair of places has its own):

         0  0 -s -s -s
         0  0  0 -s -s
        -s  0  0  0 -s
        -s -s  0  0  0
        -s -s -s  0  0
    """
    return (adjacency.astype(strength.dtype) - 1.0)[None] * strength[:, None]


def adj_init(kind: str, init: BiasInit) -> float:
    """Where theta of Adj-Soft starts: `zero` close to no mask, `hard` at a bias of -3 (paper, Appendix G.1).

    The paper gives no numbers for v1; a strength exp(theta) of 0 has no theta, so `zero` starts at exp(-3).
    """
    if kind == "adj-soft-v2.0":
        return SCALE if init == "hard" else 0.0
    return math.log(SCALE) if init == "hard" else WEAK


def token_bias(bias: Float[Array, "*n j j"], copies: int) -> Float[Array, "*n t t"]:
    """From joints to kinematic tokens: token c * J + j carries joint j, in every chunk and every encoder.

    Two tokens per joint (G = 2 and M = 0, or G = 1 and M = 1) of a three-joint arm:

        . . x . . x
        . . . . . .
        x . . x . .
        . . x . . x
        . . . . . .
        x . . x . .
    """
    return jnp.tile(bias, (*(1 for _ in bias.shape[:-2]), copies, copies))


class TopologyBias(nn.Module):
    """The bias of every layer between every two joints; owns `theta` where there is something to learn."""

    config: MorphologyConfig
    layers: int

    @nn.compact
    def __call__(self, body: Body) -> Float[Array, "l b j j"]:
        """The recipe's bias for these robots, float32."""
        config, layers = self.config, self.layers
        graph = jnp.asarray(body.adjacency)
        if config.control == "random":
            graph = controls.random_graph(graph, jnp.asarray(body.joint_mask), config.control_seed)
        if config.bias == "spd-soft":
            start = spd_init(config.bias_init, layers, config.max_distance)
            theta = jnp.asarray(self.param("theta", lambda _: jnp.asarray(start)))
            return spd_bias(theta, jnp.asarray(body.distances))
        if not config.bias.startswith("adj-soft"):
            return hard_bias(config.bias, graph, layers)
        pairs = config.max_joints if config.bias == "adj-soft-v1.0" else 1
        begin = nn.initializers.constant(adj_init(config.bias, config.bias_init))
        theta = self.param("theta", begin, (layers, pairs, pairs) if pairs > 1 else (layers,))
        theta = jnp.asarray(theta).reshape(layers, pairs, pairs)
        return adj_bias(jnp.exp(jnp.minimum(theta, config.theta_max)) if config.exponential else theta, graph)
