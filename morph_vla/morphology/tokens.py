"""Kinematic tokens: one per joint and time chunk, read from the noisy action chunk (paper, Section 2.1)."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from morph_vla.morphology import bias
from morph_vla.morphology.arrays import Body
from morph_vla.morphology.config import MorphologyConfig
from morph_vla.morphology.film import Film


def split_chunks(actions: Float[Array, "b h a"], joints: int, chunks: int) -> Float[Array, "b t g"]:
    """b_{j,T_k}: column j, rows k*g .. (k+1)*g - 1 of the chunk; token k * joints + j.

    `actions` has H rows and at least `joints` columns; g = H / chunks.
    """
    batch, horizon, _ = actions.shape
    parts = actions[:, :, :joints].reshape(batch, chunks, horizon // chunks, joints)
    return parts.swapaxes(2, 3).reshape(batch, chunks * joints, horizon // chunks)


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


class KinematicTokens(nn.Module):
    """Tokens, their mask and their topology bias, for an expert of `width` and `layers`."""

    config: MorphologyConfig
    width: int
    layers: int

    def setup(self) -> None:
        hidden = self.config.hidden or self.width
        self.encoder = Encoder(self.config.encoder, hidden, self.width)
        if self.config.film:
            self.film = Film(self.width)

    def __call__(
        self, actions: Float[Array, "b h a"], body: Body
    ) -> tuple[Float[Array, "b t d"], Bool[Array, "b t"], Float[Array, "l b t t"]]:
        """Kinematic tokens (t = G * J), which of them are real joints, and the bias among them."""
        joints, chunks = self.config.max_joints, self.config.chunks
        tokens = self.encoder(split_chunks(actions, joints, chunks))
        if self.config.film:
            tokens = self.film(tokens, jnp.tile(jnp.asarray(body.descriptors), (1, chunks, 1)))
        mask = jnp.tile(jnp.asarray(body.joint_mask), (1, chunks))
        per_joint = bias.joint_bias(self.config.bias, jnp.asarray(body.adjacency), self.layers)
        return tokens, mask, bias.token_bias(per_joint, chunks)
