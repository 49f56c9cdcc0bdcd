"""Which tokens matter: attention as a ranking, in time and memory linear in the number of tokens.

Choromanski et al., "Unlocking Pixels for Reinforcement Learning via Implicit Attention" (2021), Section 3.
Attention between L tokens is A(i, j) = K(q_i, k_j) for a kernel K(q, k) = E[phi(q)^T phi(k)]. A token's score
is the mean of its column, what all tokens together see in it:

    r = (1/L) 1 A  ~  (1/L) (1 Q') K'^T         rows of Q' and K': phi(q_i) and phi(k_i), f values each

In this order nothing of size L x L is ever made. Kernels and their features:

    relu            K = ReLU(q)^T ReLU(k)                       exact, f = d
    positive        K = exp(x^T y), equation 4                  f = m
    trigonometric   K = exp(x^T y), equation 5                  f = 2 m
    hybrid          K = exp(x^T y), both mixed by the angle     f = 3 m (n + 1)

with x = q / d^(1/4), or d^(1/4) q / |q| where queries and keys are normalised, y likewise.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla.pi05.config import Features

Side = Literal["query", "key"]
TINY = 1e-12  # below which a query has no direction


class Gaussians(NamedTuple):
    """Random directions of the softmax kernel's features."""

    kernel: Float[np.ndarray, "m d"]
    angle: Float[np.ndarray, "n d"]
    """whose signs tell the angle between a query and a key: of the hybrid alone"""


def orthogonal_gaussians(
    rng: np.random.Generator, count: int, width: int
) -> Float[np.ndarray, "{count} {width}"]:
    """Rows each of N(0, I), those within a block of `width` at right angles to each other."""
    blocks = []
    for _ in range(-(-count // width)):
        basis, upper = np.linalg.qr(rng.standard_normal((width, width)))
        blocks.append((basis * np.sign(np.diag(upper))).T)  # the signs make the basis uniform
    lengths = np.linalg.norm(rng.standard_normal((count, width)), axis=1, keepdims=True)
    return (lengths * np.concatenate(blocks)[:count]).astype(np.float32)


def draw(seed: int, width: int, projections: int, signs: int = 0) -> Gaussians:
    """The same directions for the same seed."""
    rng = np.random.default_rng(seed)
    kernel = orthogonal_gaussians(rng, projections, width)
    return Gaussians(kernel, orthogonal_gaussians(rng, signs, width) if signs else kernel[:0])


def features(
    kind: Features,
    rows: Float[Array, "*b t d"],
    side: Side,
    gaussians: Gaussians,
    normalized: bool = True,
    less: Float[Array, "*b 1 1"] | float = 0.0,
) -> Float[Array, "*b t f"]:
    """Phi of queries or keys. Only the hybrid's differ by side, in the sign of one share.

    `less` is taken from the exponents of those of the softmax kernel: all are exp(-less) times as large.
    """
    if kind == "relu":
        return jax.nn.relu(rows)
    x = _scaled(rows, normalized)
    if kind == "positive":
        return _positive(x, gaussians, less)
    if kind == "trigonometric":
        return _trigonometric(x, gaussians, less)
    # The angle over pi weighs the positive estimate, exact at half a turn, and its rest the trigonometric
    # one, exact at none: (1 - s) / 2 and (1 + s) / 2, with s the mean product of n signs.
    signs = jnp.sign(x @ gaussians.angle.T) * len(gaussians.angle) ** -0.5
    positive, waves = _positive(x, gaussians, less), _trigonometric(x, gaussians, less)
    turned = -positive if side == "key" else positive
    shares = (positive, waves, _outer(signs, turned), _outer(signs, waves))
    return jnp.concatenate(shares, axis=-1) * 0.5**0.5


def _scaled(rows: Float[Array, "*b t d"], normalized: bool) -> Float[Array, "*b t d"]:
    """Rows x whose kernel is exp(x^T y)."""
    root = rows.shape[-1] ** 0.25
    if not normalized:
        return rows / root
    return rows * root * jax.lax.rsqrt(jnp.sum(jnp.square(rows), axis=-1, keepdims=True) + TINY)


def _positive(
    x: Float[Array, "*b t d"], gaussians: Gaussians, less: Float[Array, "*b 1 1"] | float = 0.0
) -> Float[Array, "*b t m"]:
    """exp(w^T x - |x|^2 / 2) / sqrt(m); `less` is taken from every exponent."""
    half = jnp.sum(jnp.square(x), axis=-1, keepdims=True) / 2
    return jnp.exp(x @ gaussians.kernel.T - half - less) * len(gaussians.kernel) ** -0.5


def _trigonometric(
    x: Float[Array, "*b t d"], gaussians: Gaussians, less: Float[Array, "*b 1 1"] | float = 0.0
) -> Float[Array, "*b t f"]:
    """exp(|x|^2 / 2) (sin w^T x, cos w^T x) / sqrt(m); `less` is taken from every exponent."""
    angles = x @ gaussians.kernel.T
    length = jnp.exp(jnp.sum(jnp.square(x), axis=-1, keepdims=True) / 2 - less)
    waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return waves * length * len(gaussians.kernel) ** -0.5


def _largest(kind: Features, x: Float[Array, "*b t d"], gaussians: Gaussians) -> Float[Array, "*b 1 1"]:
    """The largest exponent of the features of rows x; no gradient goes through it."""
    half = jnp.sum(jnp.square(x), axis=-1, keepdims=True) / 2
    exponents = {"positive": x @ gaussians.kernel.T - half, "trigonometric": half}
    of_kind = exponents.values() if kind == "hybrid" else [exponents[kind]]
    largest = [each.max(axis=(-2, -1), keepdims=True) for each in of_kind]
    return jax.lax.stop_gradient(largest[0] if len(largest) == 1 else jnp.maximum(*largest))


def _outer(left: Float[Array, "*b t n"], right: Float[Array, "*b t f"]) -> Float[Array, "*b t n*f"]:
    product = left[..., :, None] * right[..., None, :]
    return product.reshape(*left.shape[:-1], -1)


def scores(
    queries: Float[Array, "*b t f"], keys: Float[Array, "*b s f"], votes: Float[Array, "t"] | None = None
) -> Float[Array, "*b s"]:
    """Equation 2: the mean attention that each key's token gets, given the features of both.

    `votes` weigh the queries' tokens, which count alike where they are left out.
    """
    summed = queries.sum(axis=-2) if votes is None else jnp.einsum("t,...tf->...f", votes, queries)
    return jnp.einsum("...f,...sf->...s", summed, keys) / queries.shape[-2]


def scores_of(
    kind: Features,
    queries: Float[Array, "*b t d"],
    keys: Float[Array, "*b s d"],
    gaussians: Gaussians,
    normalized: bool = True,
    relative: bool = False,
) -> Float[Array, "*b s"]:
    """`scores` of the features of these rows.

    The hybrid's features hold every sign times every other feature. Its scores need them only summed over the
    queries, which is a product of two matrices, so that no row ever has so many. `relative`: all scores of an
    image may be as many times larger or smaller, so that no exponential of long rows overflows. Their order
    is the same but for scores too small beside the largest to be told from zero.
    """
    less: list[Float[Array, "*b 1 1"] | float] = [0.0, 0.0]
    if relative and kind != "relu":
        less = [_largest(kind, _scaled(rows, normalized), gaussians) for rows in (queries, keys)]
    if kind != "hybrid":
        asked = features(kind, queries, "query", gaussians, normalized, less[0])
        return scores(asked, features(kind, keys, "key", gaussians, normalized, less[1]))
    x, y = _scaled(queries, normalized), _scaled(keys, normalized)
    share = len(gaussians.angle) ** -0.5
    signs, turned = (jnp.sign(rows @ gaussians.angle.T) * share for rows in (x, y))
    total = jnp.zeros(y.shape[:-1], y.dtype)
    for made, sign in ((_positive, -1), (_trigonometric, 1)):
        left, right = made(x, gaussians, less[0]), made(y, gaussians, less[1])
        summed = left.sum(axis=-2)[..., None, :]
        mixed = turned @ (signs.swapaxes(-1, -2) @ left)
        total += jnp.sum((summed + sign * mixed) * right, axis=-1)
    return total / (2 * x.shape[-2])


def top(scores: Float[Array, "*b t"], count: int) -> Int[Array, "*b {count}"]:
    """The tokens with the `count` largest scores, in reading order."""
    return jnp.sort(jax.lax.top_k(scores, count)[1], axis=-1)


def sampled(scores: Float[Array, "*b t"], count: int, key: Array) -> Int[Array, "*b {count}"]:
    """`count` different tokens drawn one after the other with chances as exp(score), in reading order."""
    return top(scores + jax.random.gumbel(key, scores.shape), count)


def submatrix(tokens: Float[Array, "*b t d"], chosen: Int[Array, "*b k"]) -> Float[Array, "*b k d"]:
    """The chosen tokens alone."""
    return jnp.take_along_axis(tokens, chosen[..., None], axis=-2)


def masked(tokens: Float[Array, "*b t d"], chosen: Int[Array, "*b k"]) -> Float[Array, "*b t d"]:
    """All tokens, zero where they were not chosen."""
    return jnp.where(is_chosen(chosen, tokens.shape[-2])[..., None], tokens, 0)


def is_chosen(chosen: Int[Array, "*b k"], count: int) -> Bool[Array, "*b {count}"]:
    """Which of `count` tokens were chosen."""
    return jnp.any(chosen[..., None] == jnp.arange(count), axis=-2)


def transformed(
    projection: Float[Array | np.ndarray, "k t"],
    queries: Float[Array, "*b t f"],
    keys: Float[Array, "*b t f"],
    values: Float[Array, "*b t d"],
) -> Float[Array, "*b k d"]:
    """Equation 3, the transforming form over L: (1/L) P A V from t tokens to k, bracketed the cheaper way."""
    (k, t), matrix = projection.shape, jnp.asarray(projection)
    if k < values.shape[-1]:
        rows = (matrix @ queries) @ keys.swapaxes(-1, -2)
        return rows @ values / t
    return matrix @ (queries @ (keys.swapaxes(-1, -2) @ values)) / t


def hashed(rows: Float[Array, "*b f"], gaussians: Float[Array | np.ndarray, "h f"]) -> Float[Array, "*b h"]:
    """Theorem 4.3: signs of random projections over sqrt(h). Two hashes' product is 1 - 2 angle / pi."""
    return jnp.sign(rows @ gaussians.T) * len(gaussians) ** -0.5


def scores_of_hashes(
    queries: Float[Array, "*b t f"], keys: Float[Array, "*b s f"], gaussians: Float[Array | np.ndarray, "h f"]
) -> Float[Array, "*b s"]:
    """`scores` from the angle between hashes, for keys' features of one length (Lemma 4.2).

    Those are trigonometric ones of normalised keys. Keys that change seldom are hashed once.
    """
    summed = queries.sum(axis=-2)
    cosine = jnp.einsum("...h,...sh->...s", hashed(summed, gaussians), hashed(keys, gaussians))
    lengths = jnp.linalg.norm(summed, axis=-1, keepdims=True) * jnp.linalg.norm(keys, axis=-1)
    return lengths * jnp.cos(jnp.pi / 2 * (1 - cosine)) / queries.shape[-2]
