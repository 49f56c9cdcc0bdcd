"""A head of kinds of action chunk on the action expert, in the place of flow matching.

    queries [h a] at t = 1  ->  the expert, over the prefix's cache  ->  a logit of each of k kinds of chunk,
                                                                         and an offset [h a] for each

After Shafiullah, Cui, Altanzaya and Pinto, "Behavior Transformers: Cloning k modes with one stone" (NeurIPS
2022); `policies.bins` has what is learnt of it and how a kind is drawn.

Nothing is denoised. What the suffix is asked with is learnt: one chunk, for every observation, that stands
where the noise stands and is drawn as the noise is, so that a model that was trained to denoise begins with
what it knows at t = 1, and the joints' tokens read their columns of it. Row i of all offsets is read from the
action token i; the logits are the mean of what the tokens say.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.pi05.config import BinsHead


class Kinds(NamedTuple):
    """What the head says of k kinds of chunk."""

    logits: Float[Array, "b k"]
    offsets: Float[Array, "b k h a"]
    """From the centre of each kind"""


class Head(nn.Module):
    """Learnt queries, and one linear layer, zero at the start, from an action token to logits and offsets."""

    config: BinsHead
    horizon: int
    action_dim: int

    def setup(self) -> None:
        shape = (self.horizon, self.action_dim)
        self.queries: Any = self.param("queries", nn.initializers.normal(1.0), shape)
        each = self.config.bins * (1 + self.action_dim)
        self.out = nn.Dense(each, kernel_init=nn.initializers.zeros)

    def asked(self, rows: int) -> tuple[Float[Array, "b h a"], Float[Array, "b"]]:
        """The queries and their time, for every row of a batch."""
        queries = jnp.asarray(self.queries)
        return jnp.broadcast_to(queries, (rows, *queries.shape)), jnp.ones(rows)

    def __call__(self, tokens: Float[Array, "b h d"]) -> Kinds:
        """Logits and offsets from the action tokens."""
        out = self.out(tokens)
        out = out.reshape(*out.shape[:2], self.config.bins, 1 + self.action_dim)
        return Kinds(jnp.mean(out[..., 0], axis=1), out[..., 1:].swapaxes(1, 2))


def unfitted(bins: int, horizon: int, action_dim: int) -> dict[str, Array]:
    """The kinds before they are found in the data: centres at zero, and the weight of the offsets' loss."""
    return {"centres": jnp.zeros((bins, horizon, action_dim)), "weight": jnp.ones(())}
