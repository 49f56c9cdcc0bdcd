"""Kinematic tokens: one per joint and time chunk, read from the noisy action chunk (paper, Section 2.1)."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from morph_vla.morphology import controls
from morph_vla.morphology.arrays import Body, history_of, poses_of
from morph_vla.morphology.bias import TopologyBias
from morph_vla.morphology.config import MorphologyConfig
from morph_vla.morphology.film import Film, standardised
from morph_vla.morphology.history import low_modes


def split_chunks(actions: Float[Array, "b h a"], joints: int, chunks: int) -> Float[Array, "b t g"]:
    """b_{j,T_k}: column j, rows k*g .. (k+1)*g - 1 of the chunk; token k * joints + j.

    `actions` has H rows and at least `joints` columns; g = H / chunks.
    """
    batch, horizon, _ = actions.shape
    parts = actions[:, :, :joints].reshape(batch, chunks, horizon // chunks, joints)
    return parts.swapaxes(2, 3).reshape(batch, chunks * joints, horizon // chunks)


def join_chunks(parts: Float[Array, "b t g"], joints: int) -> Float[Array, "b h j"]:
    """The inverse of `split_chunks`: token k * joints + j is column j, rows k*g .. (k+1)*g - 1."""
    batch, tokens, rows = parts.shape
    chunks = tokens // joints
    return parts.reshape(batch, chunks, joints, rows).swapaxes(2, 3).reshape(batch, chunks * rows, joints)


def known_tokens(rows: Bool[Array, "b h"], config: MorphologyConfig) -> Bool[Array, "b t"]:
    """Which kinematic tokens read nothing but known rows of the chunk: known ones are the first.

    A chunk that is known in part is on its way, and has the time of its other rows.
    """
    chunks = jnp.all(rows.reshape(len(rows), config.chunks, -1), axis=2)
    return jnp.tile(jnp.repeat(chunks, config.max_joints, axis=1), (1, 1 + config.auxiliary))


class Encoder(nn.Module):
    """Enc_0: `linear`, or linear-SwiGLU-linear; the last layer is zero-initialised."""

    kind: str
    hidden: int
    width: int

    @nn.compact
    def __call__(self, x: Float[Array, "b t g"]) -> Float[Array, "b t d"]:
        """Embed the chunks of actions."""
        zeros = nn.initializers.zeros
        if self.kind == "linear-swiglu-linear":
            gate, value = jnp.split(nn.Dense(2 * self.hidden, dtype=x.dtype, name="in")(x), 2, axis=-1)
            x = nn.silu(gate) * value
        return nn.Dense(self.width, kernel_init=zeros, bias_init=zeros, dtype=x.dtype, name="out")(x)


class Decoder(nn.Module):
    """From a joint's tokens to its velocity in each chunk; one zero-initialised layer for all joints."""

    @nn.compact
    def __call__(self, tokens: Float[Array, "b t d"], rows: int) -> Float[Array, "b t g"]:
        """`rows` values a token."""
        zeros = nn.initializers.zeros
        return nn.Dense(rows, kernel_init=zeros, bias_init=zeros, dtype=jnp.float32, name="out")(tokens)


class Tokens(NamedTuple):
    """What the plugin gives an expert."""

    tokens: Float[Array, "b t d"]
    """t = J * G * (1 + M): token (m * G + k) * J + j is joint j's in chunk k, from encoder m"""
    mask: Bool[Array, "b t"]
    """which of them are real joints'; the others are seen by none"""
    bias: Float[Array, "l b j j"]
    """the topology bias of every layer; all tokens of a joint share its row and column"""
    gate: Float[Array, "l n"] | None
    """`start: exact`: per layer and head, how much action tokens read from kinematic tokens"""


class KinematicTokens(nn.Module):
    """Tokens, their mask and their topology bias, for an expert of `width`, `layers` and `heads`.

    The M auxiliary tokens of a joint and chunk read the same input through encoders of their own (paper,
    Eq. 6), and are modulated by the same FiLM. With `poses: present` a linear map of the joint's pose now,
    zero-initialised as every last layer, is added to each of them before that; with `history` what one more
    encoder makes of the joint's past.
    """

    config: MorphologyConfig
    width: int
    layers: int
    heads: int

    def setup(self) -> None:
        config = self.config
        hidden = config.hidden or self.width
        self.encoder = Encoder(config.encoder, hidden, self.width)
        self.auxiliary = [Encoder(config.encoder, hidden, self.width) for _ in range(config.auxiliary)]
        self.bias = TopologyBias(config, self.layers)
        if config.poses == "present":
            zeros = nn.initializers.zeros
            self.pose = nn.Dense(self.width, kernel_init=zeros, bias_init=zeros)
        if config.history is not None:
            self.history = Encoder(config.encoder, hidden, self.width)
        if config.film:
            self.film = Film(self.width)
        if config.readout == "joints":
            self.decoder = Decoder()
        if config.start == "exact":
            self.gate = self.param("gate", nn.initializers.zeros, (self.layers, self.heads))

    def __call__(self, actions: Float[Array, "b h a"], body: Body) -> Tokens:
        """Kinematic tokens of the noisy `actions` of these robots."""
        config, joint_mask = self.config, jnp.asarray(body.joint_mask)
        chunks = split_chunks(self._values(actions, joint_mask), config.max_joints, config.chunks)
        tokens = jnp.concatenate([encode(chunks) for encode in (self.encoder, *self.auxiliary)], axis=1)
        if config.poses == "present":
            pose = self.pose(poses_of(body)).astype(tokens.dtype)
            tokens = tokens + jnp.tile(pose, (1, config.copies, 1))
        if config.history is not None:
            past = self.history(low_modes(config.history, history_of(body)).astype(tokens.dtype))
            tokens = tokens + jnp.tile(past, (1, config.copies, 1))
        if config.film:
            features = jnp.asarray(body.descriptors)
            if config.descriptors == "standardised":
                features = standardised(features, joint_mask)
            tokens = self.film(tokens, jnp.tile(features, (1, config.copies, 1)))
        mask = jnp.tile(joint_mask, (1, config.copies))
        gate = jnp.asarray(self.gate) if config.start == "exact" else None
        return Tokens(tokens, mask, self.bias(body), gate)

    def velocity(self, tokens: Float[Array, "b t d"], horizon: int) -> Float[Array, "b h j"]:
        """What `readout: joints` reads of kinematic tokens behind the last layer (no auxiliary ones)."""
        config = self.config
        own = tokens[:, : config.chunks * config.max_joints]
        parts = self.decoder(own.astype(jnp.float32), horizon // config.chunks)
        return join_chunks(parts, config.max_joints)

    def _values(self, actions: Float[Array, "b h a"], joint_mask: Bool[Array, "b j"]) -> Array:
        """The columns that tokens read: the joints' own, or random mixtures of them."""
        if self.config.control != "tokens":
            return actions
        weights = controls.mixture(joint_mask, self.config.control_seed).astype(actions.dtype)
        return jnp.einsum("bhj,bij->bhi", actions[:, :, : self.config.max_joints], weights)
