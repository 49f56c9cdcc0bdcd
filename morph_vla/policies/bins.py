"""Actions as one of k bins and an offset from its centre: what a Behavior Transformer learns and draws.

    bin(a) = argmin_i |a - A_i|        offset(a) = a - A_bin(a)        a = A_bin + offset

Shafiullah, Cui, Altanzaya and Pinto, "Behavior Transformers: Cloning k modes with one stone" (NeurIPS 2022),
Appendix B.2 and Algorithm 1.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla.errors import MorphVlaError

SAMPLE = 32_768  # chunks that the centres are found from: all rows of a few hundred episodes
ROUNDS = 100  # of Lloyd's algorithm at most


def fitted(
    actions: Float[np.ndarray, "n h a"],
    mask: Bool[np.ndarray, "n a"],
    count: int,
    gamma: float | int,
    seed: int,
    where: str = "model",
) -> dict[str, Array]:
    """The centres [k h a] of chunks by k-means, and the weight of the offsets' loss (`balance`).

    `mask`: which values each row's robot has. Raises MorphVlaError as `kmeans`.
    """
    points = actions.reshape(len(actions), -1)
    centres = kmeans(points, count, seed, where)
    squares = np.square(points - centres[nearest_bin(points, centres)]).sum(axis=1)
    spread = float((squares / (actions.shape[1] * mask.sum(axis=1))).mean())
    weight = np.float32(balance(spread, count, gamma))
    return {"centres": jnp.asarray(centres.reshape(-1, *actions.shape[1:])), "weight": jnp.asarray(weight)}


def errors(
    logits: Float[Array, "n k"],
    offsets: Float[Array, "n k h a"],
    actions: Float[Array, "n h a"],
    known: Mapping[str, Array],
    gamma: float | int,
) -> Float[Array, "n a"]:
    """The focal loss of each row, the same for all its values, plus each value's offset error.

    `known` is what `fitted` gave.
    """
    centres = known["centres"].reshape(logits.shape[1], -1)
    chosen, offset = encode(actions.reshape(len(actions), -1), centres)
    squares = offset_squares(offsets.reshape(*logits.shape, -1), chosen, offset).reshape(actions.shape)
    return focal(logits, chosen, gamma)[:, None] + known["weight"] * squares.mean(axis=1)


def drawn(
    logits: Float[Array, "n k"],
    offsets: Float[Array, "n k h a"],
    noise: Float[Array, "n"],
    known: Mapping[str, Array],
) -> Float[Array, "n h a"]:
    """A chunk of a kind that `draw` takes by the noise; `known` is what `fitted` gave."""
    chosen = draw(logits, noise)
    offset = of_bin(offsets.reshape(*logits.shape, -1), chosen)
    return known["centres"][chosen] + offset.reshape(len(chosen), *offsets.shape[2:])


def kmeans(
    points: Float[np.ndarray, "n d"], count: int, seed: int, where: str = "model"
) -> Float[np.ndarray, "k d"]:
    """`count` centres of the points, by Lloyd's algorithm from a start of k-means++; a function of the seed.

    A centre without points goes to the point that is furthest from its own. Raises MorphVlaError where there
    are fewer different points than centres, naming the key `bins` of `where`.
    """
    points = points.astype(np.float64)
    centres = _spread(points, count, np.random.default_rng(seed), where)
    for _ in range(ROUNDS):
        moved = _means(points, centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres.astype(np.float32)


def _spread(points: np.ndarray, count: int, rng: np.random.Generator, where: str) -> np.ndarray:
    """Points to begin from: each is drawn by its squared distance from the nearest one before it."""
    chosen = [int(rng.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    for number in range(1, count):
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1))
        if not nearest.any():
            raise MorphVlaError(
                f"{where}.bins: {count} bins were asked for, but the data has only {number} different action "
                f"chunks; set {where}.bins to {number} at most"
            )
        chosen.append(int(rng.choice(len(points), p=nearest / nearest.sum())))
    return points[chosen]


def _means(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """One round: the mean of the points of each centre."""
    bins = nearest_bin(points, centres)
    counts = np.bincount(bins, minlength=len(centres))
    sums = np.zeros_like(centres)
    np.add.at(sums, bins, points)
    means = sums / np.maximum(counts, 1)[:, None]
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        away = np.square(points - centres[bins]).sum(axis=1)
        means[empty] = points[np.argsort(-away, kind="stable")[: len(empty)]]
    return means


def nearest_bin(points: Any, centres: Any) -> Any:
    """The bin [n] of every point [n d], for arrays of NumPy or of JAX; the first of two as near."""
    across = points @ centres.T
    return ((centres**2).sum(axis=1) - 2 * across).argmin(axis=1)


def encode(
    actions: Float[Array, "n d"], centres: Float[Array, "k d"]
) -> tuple[Int[Array, "n"], Float[Array, "n d"]]:
    """The bin of every action, and its offset from that bin's centre."""
    bins = nearest_bin(actions, centres)
    return bins, actions - centres[bins]


def focal(logits: Float[Array, "n k"], bins: Int[Array, "n"], gamma: float | int) -> Float[Array, "n"]:
    """-(1 - p)^gamma log p of the true bin's probability p: what is known already counts less."""
    log_p = jnp.take_along_axis(jax.nn.log_softmax(logits), bins[:, None], axis=1)[:, 0]
    if gamma == 0:  # 0 ** 0 has no slope where p is 1
        return -log_p
    return -((-jnp.expm1(log_p)) ** gamma) * log_p


def offset_squares(
    predicted: Float[Array, "n k d"], bins: Int[Array, "n"], offset: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """Squared errors of the true bin's offset; those predicted for other bins are not asked (multi-task)."""
    return jnp.square(of_bin(predicted, bins) - offset)


def of_bin(values: Float[Array, "n k d"], bins: Int[Array, "n"]) -> Float[Array, "n d"]:
    """The values of one bin in each row."""
    return jnp.take_along_axis(values, bins[:, None, None], axis=1)[:, 0]


def draw(logits: Float[Array, "n k"], noise: Float[Array, "n"]) -> Int[Array, "n"]:
    """A bin of each row by its probability, from one standard normal number.

    Bins lie on [0, 1) side by side, the likeliest first; the one at P(|Z| < |noise|) is taken. So noise times
    less than 1 draws likely bins more often, and noise 0 takes the likeliest.
    """
    order = jnp.argsort(-logits, axis=1)
    ends = jnp.cumsum(jnp.take_along_axis(jax.nn.softmax(logits), order, axis=1), axis=1)
    share = jax.scipy.special.erf(jnp.abs(noise) / np.float32(2**0.5))
    # Rounding may leave the last end below 1.
    place = jnp.minimum(jnp.sum(ends <= share[:, None], axis=1), logits.shape[1] - 1)
    return jnp.take_along_axis(order, place[:, None], axis=1)[:, 0]


def balance(spread: float, count: int, gamma: float | int) -> float:
    """The weight of the offsets' mean square that makes both losses equal before the first step.

    Then each of `count` bins is as likely and every offset is predicted as zero, with a mean square of
    `spread`. 1 where one of the losses is zero.
    """
    even = (1 - 1 / count) ** gamma * math.log(count)
    return even / spread if even > 0 and spread > 0 else 1.0
