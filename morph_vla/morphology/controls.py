"""The controls: what a gain must be compared with before it is the joint graph's (Body Transformer, 2024).

Everything random comes from the recipe's seed and the number of a place, through a hash that no library
version changes, and never from how many places there are: padding changes nothing. Robots stay arrays, so one
compiled step serves all of them.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt64


def random_graph(
    adjacency: Bool[Array, "b j j"], joint_mask: Bool[Array, "b j"], seed: int
) -> Bool[Array, "b j j"]:
    """A random graph with as many edges as each robot's own; every joint its own neighbour, padding alone.

    Every pair of places has a random rank; a robot with e edges gets the e lowest-ranked pairs of its real
    joints. Two robots with as many joints and edges get the same graph.
    """
    places = adjacency.shape[-1]
    rows, columns = np.tril_indices(places, -1)
    order = np.argsort(np.argsort(_bits(seed, places)[rows, columns], kind="stable"))
    rank = np.full((places, places), len(order), np.int32)
    rank[rows, columns] = rank[columns, rows] = order
    itself = np.eye(places, dtype=bool)
    real = joint_mask[:, :, None] & joint_mask[:, None, :] & ~itself
    edges = jnp.sum(adjacency & real, axis=(1, 2)) // 2
    ranks = jnp.where(real, rank, len(order) + 1)
    lowest = jnp.sort(ranks[:, rows, columns], axis=-1)
    # The rank of the last pair taken; -1 in front, for a robot without edges.
    lowest = jnp.concatenate([jnp.full_like(ranks[:, :1, 0], -1), lowest], axis=-1)
    last = jnp.take_along_axis(lowest, edges[:, None], axis=-1)
    return (ranks <= last[:, :, None]) & real | itself


def mixture(joint_mask: Bool[Array, "b j"], seed: int) -> Float[Array, "b j j"]:
    """Unit rows of random weights over a robot's real joints: what a `tokens` token reads in a joint's place.

    A column of unit variance per joint stays one; padded joints have no weight.
    """
    weights = jnp.where(joint_mask[:, None, :], _normal(seed, joint_mask.shape[-1]), 0.0)
    return weights / jnp.sqrt(jnp.sum(jnp.square(weights), axis=-1, keepdims=True) + 1e-12)


def _normal(seed: int, places: int) -> Float[np.ndarray, "j j"]:
    """A standard normal number per ordered pair of places (Box and Muller's transform)."""
    one, two = (((_bits(seed, places, salt) >> np.uint64(11)) + 0.5) / 2.0**53 for salt in (1, 2))
    return (np.sqrt(-2 * np.log(one)) * np.cos(2 * np.pi * two)).astype(np.float32)


def _bits(seed: int, places: int, salt: int = 0) -> UInt64[np.ndarray, "j j"]:
    """64 random bits per ordered pair of places: SplitMix64's finaliser over seed, salt, row and column."""
    row, column = np.indices((places, places)).astype(np.uint64)
    begin = (seed * 4 + salt) * 0x9E3779B97F4A7C15 % 2**64
    return _finalise(_finalise(row + np.uint64(begin)) + column)


def _finalise(x: UInt64[np.ndarray, "j j"]) -> UInt64[np.ndarray, "j j"]:
    """SplitMix64's last three steps (Steele, Lea and Flood, 2014); arithmetic modulo 2^64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
