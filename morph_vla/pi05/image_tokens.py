"""Fewer image tokens for the language model: implicit attention between SigLIP and the prefix.

Each camera's image is treated alike and alone; a camera that is absent stays masked, with fewer tokens. What
is kept stands in reading order, and its positions are those of a prefix that never had more.

    ranking   the `keep` tokens with the highest scores of `pi05.ranking`, unchanged. Choosing has no gradient
              (the paper trains by evolution strategies): a kept token is multiplied by 1 + (s - s), s its
              score over the mean score and the second one held fixed. That changes no number, and the loss's
              gradient reaches queries and keys through the tokens that were kept.
    learnt    P X + gate * (1/L) P A X, the transforming form with the tokens themselves as values
    average   squares of neighbouring tokens
    random    tokens of places drawn once, the same in every image

Where the paper says nothing: queries begin as the negative of keys, so that tokens unlike the others rank
first; P begins as the mean of runs of L / keep tokens, and the gate at zero. A token that sampling would
choose needs random numbers that a policy does not have: the largest scores are kept.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from morph_vla.pi05 import ranking
from morph_vla.pi05.config import ImageTokens

SIDES: tuple[ranking.Side, ranking.Side] = ("query", "key")


class FewerTokens(nn.Module):
    """[b t d] to [b keep d]; `average` and `random` have no parameters."""

    config: ImageTokens
    count: int

    @nn.compact
    def __call__(self, tokens: Float[Array, "b t d"]) -> Float[Array, "b k d"]:
        """One image a row. How much of each token is in what is left (`kept`) is sown as `weights`."""
        config = self.config
        if config.how == "average":
            self._sow(jnp.full(tokens.shape[:2], config.keep / self.count))
            return averaged(tokens, config.keep)
        if config.how == "random":
            rng = np.random.default_rng(config.seed)
            places = np.sort(rng.choice(self.count, config.keep, replace=False))
            is_kept = ranking.is_chosen(jnp.asarray(places), self.count)
            self._sow(jnp.broadcast_to(is_kept, tokens.shape[:2]))
            return tokens[:, places]
        exact = tokens.astype(jnp.float32)
        signs = (config.projections + 1) // 2 if config.features == "hybrid" else 0
        gaussians = ranking.draw(config.seed, config.width, config.projections, signs)
        rows = self._rows(exact)
        if config.how == "ranking":
            # Long rows would overflow; only the order counts, and the scores over their mean.
            is_long = not config.normalized
            scores = ranking.scores_of(config.features, *rows, gaussians, config.normalized, is_long)
            chosen = ranking.top(scores, config.keep)
            self._sow(ranking.is_chosen(chosen, self.count))
            mean = jnp.mean(jnp.abs(scores), axis=-1, keepdims=True)
            # With `relu` no query may see any key: then no token is better than another.
            weights = scores / jnp.where(mean > 0, mean, 1.0)
            gate = 1 + (weights - jax.lax.stop_gradient(weights))
            kept = jnp.take_along_axis(gate, chosen, axis=-1)[..., None]
            return ranking.submatrix(tokens, chosen) * kept.astype(tokens.dtype)
        queries, keys = (
            ranking.features(config.features, row, side, gaussians, config.normalized)
            for row, side in zip(rows, SIDES, strict=True)
        )
        projection = self.param("projection", runs, (config.keep, self.count))
        gate = self.param("gate", nn.initializers.zeros, tokens.shape[-1:])
        mixed = ranking.transformed(projection, queries, keys, exact)
        if self.is_mutable_collection("intermediates"):
            every = jnp.broadcast_to(jnp.eye(self.count), (len(exact), self.count, self.count))
            self._sow(lengths(projection, ranking.transformed(projection, queries, keys, every), gate))
        return (projection @ exact + gate * mixed).astype(tokens.dtype)

    def _sow(self, weights: Float[Array, "b t"] | Bool[Array, "b t"]) -> None:
        self.sow("intermediates", "weights", weights.astype(jnp.float32))

    def _rows(self, exact: Float[Array, "b t d"]) -> tuple[Float[Array, "b t w"], Float[Array, "b t w"]]:
        """Queries and keys."""
        shape = exact.shape[-1], self.config.width
        query = self.param("query", partial(_start, self.config.seed, -1.0), shape)
        key = self.param("key", partial(_start, self.config.seed, 1.0), shape)
        return exact @ query, exact @ key


def _start(seed: int, sign: float, key: Array, shape: tuple[int, int]) -> Float[Array, "d w"]:
    """The same for queries and keys but for its sign."""
    del key
    return sign * nn.initializers.lecun_normal()(jax.random.key(seed), shape)


def runs(key: Array, shape: tuple[int, int]) -> Float[Array, "k t"]:
    """The projection that averages runs of neighbouring tokens, as equal in length as they can be."""
    del key
    keep, count = shape
    member = jnp.arange(count) * keep // count == jnp.arange(keep)[:, None]
    share = member.astype(jnp.float32)
    return share / share.sum(axis=1, keepdims=True)


def lengths(
    projection: Float[Array | np.ndarray, "k t"],
    mixing: Float[Array, "b k t"],
    gate: Float[Array | np.ndarray, "d"],
) -> Float[Array, "b t"]:
    """The length of each token's column in the matrix P + gate * mixing, root mean square over channels."""
    mean, square = jnp.mean(jnp.asarray(gate)), jnp.mean(jnp.square(gate))
    squares = projection**2 + 2 * projection * mixing * mean + mixing**2 * square
    return jnp.sqrt(jnp.maximum(jnp.sum(squares, axis=1), 0))


def averaged(tokens: Float[Array, "b t d"], keep: int) -> Float[Array, "b k d"]:
    """Means of equal squares of a square grid of tokens, in reading order."""
    batch, count, width = tokens.shape
    side, rows = round(count**0.5), round(keep**0.5)
    squares = tokens.reshape(batch, rows, side // rows, rows, side // rows, width)
    return squares.mean(axis=(2, 4)).reshape(batch, keep, width)
