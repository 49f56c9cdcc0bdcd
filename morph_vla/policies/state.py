"""Policy families that act on numbers: nodes in, an encoder between them, a chunk of actions out.

    root      poses of objects, the task's text   -> embedding               (no action)
    joint j   its value                           -> embedding  -> encoder -> its next H targets

The encoder is what differs (Body Transformer, Section 5): masked attention (`body`), or dense layers over the
embeddings of all nodes (`mlp`). Learnt is the mean of the recorded actions, by their squared error, as in the
paper's behaviour cloning.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from morph_vla.morphology import MorphologyConfig
from morph_vla.morphology.arrays import Body, blank
from morph_vla.pi05.observation import Observation
from morph_vla.policies.body import Transformer
from morph_vla.policies.config import BodyConfig, MlpConfig, NodeConfig
from morph_vla.policies.family import Asked, Drawn, Params, Recorded, as_trained
from morph_vla.policies.graph import rooted
from morph_vla.policies.text import TEXT
from morph_vla.robots import Robot

ready = as_trained


class PerJoint(nn.Module):
    """A linear layer whose weights are each joint's own, or shared by all."""

    joints: int
    """Sets of weights: as many as there are joints, or 1"""
    width: int

    @nn.compact
    def __call__(self, x: Float[Array, "b j f"]) -> Float[Array, "b j d"]:
        """Project the values of each joint."""
        begin = nn.initializers.lecun_normal(in_axis=1, out_axis=2, batch_axis=0)
        kernel = jnp.asarray(self.param("kernel", begin, (self.joints, x.shape[-1], self.width)))
        bias = jnp.asarray(self.param("bias", nn.initializers.zeros, (self.joints, self.width)))
        # One set of weights is broadcast over the joints.
        return jnp.einsum("bjf,jfd->bjd", x, jnp.broadcast_to(kernel, (x.shape[1], *kernel.shape[1:]))) + bias


class Tokenizer(nn.Module):
    """From the values of each node to its embedding."""

    config: NodeConfig

    @nn.compact
    def __call__(self, observation: Observation) -> Float[Array, "b n d"]:
        """The root's embedding, then the joints'."""
        config = self.config
        root = nn.Dense(config.width, name="root")(jnp.asarray(observation.environment))
        weights = config.action_dim if config.tokenizer == "own" else 1
        joints = PerJoint(weights, config.width, name="joints")(jnp.asarray(observation.state)[:, :, None])
        nodes = jnp.concatenate([root[:, None], joints], axis=1)
        if config.positions:
            table = self.param("positions", nn.initializers.normal(0.02), (config.nodes, config.width))
            nodes = nodes + jnp.asarray(table)
        return nodes


class Mlp(nn.Module):
    """Dense layers over the embeddings of all nodes, one after another."""

    config: MlpConfig

    @nn.compact
    def __call__(self, x: Float[Array, "b n d"], body: Body) -> Float[Array, "b n d"]:
        """Embeddings of the nodes, of the same shape; those of padding are left out."""
        flat = jnp.where(jnp.asarray(body.joint_mask)[:, :, None], x, 0.0).reshape(len(x), -1)
        for number in range(self.config.depth):
            flat = nn.gelu(nn.Dense(self.config.hidden, name=f"layer_{number}")(flat))
        return nn.Dense(x.shape[1] * x.shape[2], name="out")(flat).reshape(x.shape)


class StatePolicy(nn.Module):
    """Tokenizer, encoder, detokenizer."""

    config: BodyConfig | MlpConfig

    def setup(self) -> None:
        config = self.config
        self.tokenizer = Tokenizer(config)
        self.encoder = Transformer(config) if isinstance(config, BodyConfig) else Mlp(config)
        weights = config.action_dim if config.tokenizer == "own" else 1
        self.detokenizer = PerJoint(weights, config.horizon)

    def __call__(self, observation: Observation) -> Float[Array, "b h a"]:
        """The chunk of normalised actions."""
        assert observation.body is not None
        nodes = self.encoder(self.tokenizer(observation), observation.body)
        return self.detokenizer(nodes[:, 1:]).swapaxes(1, 2)


def example(config: NodeConfig, batch: int = 1) -> Observation:
    """Zeros of the right shapes."""
    return Observation(
        {}, {}, np.zeros((batch, 0), np.int32), np.zeros((batch, 0), bool),
        blank(MorphologyConfig(max_joints=config.nodes), batch),
        np.zeros((batch, config.action_dim), np.float32),
        np.zeros((batch, config.environment + TEXT), np.float32),
    )  # fmt: skip


def init(config: BodyConfig | MlpConfig, key: Array) -> dict[str, Any]:
    """Fresh parameters, float32."""
    config.check()
    return dict(StatePolicy(config).init(key, example(config))["params"])


def loss(
    config: BodyConfig | MlpConfig, params: dict[str, Any], drawn: Drawn, frozen_prefix: bool = False
) -> Float[Array, "b a"]:
    """Squared error of the chunk, averaged over the horizon; noise and times mean nothing here."""
    del frozen_prefix
    chunk = StatePolicy(config).apply({"params": params}, drawn.observation)
    return jnp.mean(jnp.square(jnp.asarray(chunk) - drawn.actions), axis=1)


def fit(config: NodeConfig, params: Params, recorded: Recorded, seed: int) -> Params:
    """Nothing is learnt before the first step."""
    return params


def ahead(config: NodeConfig, params: dict[str, Any], steps: int) -> None:
    """Nothing."""


def act(
    config: BodyConfig | MlpConfig, params: dict[str, Any], ahead: None, asked: Asked, steps: int
) -> Float[Array, "b h a"]:
    """The chunk; the same whatever the noise."""
    return jnp.asarray(StatePolicy(config).apply({"params": params}, asked.observation))


def body(config: NodeConfig, robot: Robot) -> Body:
    """The joint graph with its root."""
    return rooted(robot, config.action_dim)


def real_time(config: NodeConfig) -> bool:
    """Chunks do not go on from each other."""
    return False


def served_type(config: NodeConfig, leaf: str) -> None:
    """Every leaf as it is."""
