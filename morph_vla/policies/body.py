"""Body Transformer: a transformer between nodes whose attention is masked by the robot's graph.

Sferrazza, Huang, Liu, Lee and Abbeel, "Body Transformer: Leveraging Robot Embodiment for Policy Learning"
(CoRL 2024), Section 4. Layers are as in "Attention is all you need", normalised before each half; the paper
says no more. With `hard`, after d layers a node has seen those within distance d of the graph, and no others.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.morphology.arrays import Body
from morph_vla.morphology.bias import TopologyBias
from morph_vla.policies.config import BetConfig, BodyConfig


class Layer(nn.Module):
    """Attention between nodes, then a feed-forward layer of each."""

    config: BodyConfig | BetConfig

    @nn.compact
    def __call__(self, x: Float[Array, "b n d"], bias: Float[Array, "b n n"]) -> Float[Array, "b n d"]:
        """`bias` is added to the logits of every head; -inf where a node (row) does not see another."""
        config, width = self.config, self.config.width
        normal = nn.LayerNorm(name="attention_norm")(x)
        heads = (config.heads, width // config.heads)
        query, key, value = (nn.DenseGeneral(heads, name=name)(normal) for name in ("query", "key", "value"))
        logits = jnp.einsum("bihk,bjhk->bhij", query, key) * heads[1] ** -0.5
        weights = jax.nn.softmax(logits + bias[:, None], axis=-1)
        mixed = jnp.einsum("bhij,bjhk->bihk", weights, value)
        x = x + nn.DenseGeneral(width, axis=(-2, -1), name="out")(mixed)
        hidden = nn.gelu(nn.Dense(config.mlp_dim, name="mlp_in")(nn.LayerNorm(name="mlp_norm")(x)))
        return x + nn.Dense(width, name="mlp_out")(hidden)


class Transformer(nn.Module):
    """The layers, each with its bias from the graph."""

    config: BodyConfig

    @nn.compact
    def __call__(self, x: Float[Array, "b n d"], body: Body) -> Float[Array, "b n d"]:
        """Embeddings of the nodes, of the same shape."""
        real = jnp.asarray(body.joint_mask)
        # Padding is seen by none but itself: a row without an entry would have no softmax.
        seen = real[:, None, :] | jnp.eye(real.shape[1], dtype=bool)
        biases = TopologyBias(self.config.bias, self.config.depth, name="bias")(body)
        for number in range(self.config.depth):
            bias = jnp.where(seen, biases[number], -jnp.inf)
            x = Layer(self.config, name=f"layer_{number}")(x, bias)
        return nn.LayerNorm(name="norm")(x)
