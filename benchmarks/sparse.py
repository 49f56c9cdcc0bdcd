"""`morph-vla bench sparse`: masked attention that skips masked pairs, against attention that does not.

Section 5.4 of "Body Transformer" (Figures 6 and 13): NumPy, one head, one sample, random masks with ones on
the diagonal and 9.2% of the other pairs. The softmax is over the mask's pairs alone; weights times values
stays one dense product, as in the paper. Products of queries and keys are of the pairs alone ("gathered", as
in the paper) or all of them, which a fast BLAS has done before NumPy has gathered a tenth. The paper does not
say how wide a head is: 64 as in its imitation models (320 / 5), 32 as in the others (64 / 2).

The JAX form is for a batch of heads on one mask, in float32, and skips masked pairs in both products. It is
for bodies: `tree` is a random one, each parent at most three nodes back, so that a node has few neighbours.
Masks as random as the paper's have rows too long for it. `policies.body` stays dense: its robots have fewer
than the 64 nodes from which this is quicker.
"""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from benchmarks.harness import Ratio, add_common, load, measure, show_ratios
from morph_vla.errors import ConfigError

EXAMPLES = """
  morph-vla bench sparse
  morph-vla bench sparse --nodes 128 --masks 1000
  morph-vla bench sparse --density 0.4 --nodes 16 32 64     # Figure 13
"""
DENSITY = 0.092  # of MoCapAct's graph: 1 - 0.908
WIDTHS, HEADS, BATCH = (32, 64), 4, 32


class Pairs(NamedTuple):
    """The pairs of a mask, row by row; computed once."""

    rows: Int[np.ndarray, "p"]
    columns: Int[np.ndarray, "p"]
    places: Int[np.ndarray, "p"]
    """In the mask, read row by row"""
    starts: Int[np.ndarray, "n"]
    """Of each row, among the pairs"""


class Neighbours(NamedTuple):
    """The columns of every row of a mask, padded to the longest row."""

    columns: Int[np.ndarray, "n w"]
    real: Bool[np.ndarray, "n w"]


def pairs_of(mask: Bool[np.ndarray, "n n"]) -> Pairs:
    """Raises ConfigError for a row that sees nothing, which has no softmax."""
    if (empty := ~mask.any(axis=1)).any():
        raise ConfigError(f"mask: row {empty.argmax()} sees nothing; put ones on the diagonal")
    rows, columns = np.nonzero(mask)
    starts = np.searchsorted(rows, np.arange(len(mask)))
    return Pairs(rows, columns, rows * len(mask) + columns, starts)


def neighbours_of(mask: Bool[np.ndarray, "n n"]) -> Neighbours:
    """Raises ConfigError as `pairs_of`."""
    pairs_of(mask)
    columns = np.argsort(~mask, axis=1, kind="stable")[:, : mask.sum(axis=1).max()]
    return Neighbours(columns, np.take_along_axis(mask, columns, axis=1))


def dense(
    queries: Float[np.ndarray, "n d"],
    keys: Float[np.ndarray, "n d"],
    values: Float[np.ndarray, "n d"],
    mask: Bool[np.ndarray, "n n"],
) -> Float[np.ndarray, "n d"]:
    """Masked attention as it is written."""
    logits = queries @ keys.T / queries.shape[1] ** 0.5
    logits = np.where(mask, logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ values


def sparse(
    queries: Float[np.ndarray, "n d"],
    keys: Float[np.ndarray, "n d"],
    values: Float[np.ndarray, "n d"],
    pairs: Pairs,
    gathered: bool,
) -> Float[np.ndarray, "n d"]:
    """The same with a softmax of the mask's pairs; `gathered`: products of queries and keys of them alone."""
    rows, columns, places, starts = pairs
    if gathered:
        weights = np.einsum("pd,pd->p", queries.take(rows, axis=0), keys.take(columns, axis=0))
    else:
        weights = (queries @ keys.T).take(places)
    weights *= queries.shape[1] ** -0.5
    weights -= np.maximum.reduceat(weights, starts).take(rows)
    np.exp(weights, out=weights)
    weights /= np.add.reduceat(weights, starts).take(rows)
    whole = np.zeros((len(queries), len(keys)), queries.dtype)
    whole.reshape(-1)[places] = weights
    return whole @ values


def dense_jax(
    queries: Float[Array, "b n d"],
    keys: Float[Array, "b n d"],
    values: Float[Array, "b n d"],
    mask: Bool[np.ndarray, "n n"],
) -> Float[Array, "b n d"]:
    """Masked attention as `policies.body` computes it."""
    logits = jnp.einsum("bid,bjd->bij", queries, keys) * queries.shape[-1] ** -0.5
    return jnp.einsum("bij,bjd->bid", jax.nn.softmax(jnp.where(mask, logits, -jnp.inf), axis=-1), values)


def sparse_jax(
    queries: Float[Array, "b n d"],
    keys: Float[Array, "b n d"],
    values: Float[Array, "b n d"],
    neighbours: Neighbours,
) -> Float[Array, "b n d"]:
    """The same of each node's neighbours alone, the first of every node, then the second, and so on."""
    columns, real = neighbours
    scaled, every = queries * queries.shape[-1] ** -0.5, range(columns.shape[1])
    logits = [jnp.where(real[:, i], (scaled * keys[:, columns[:, i]]).sum(axis=-1), -jnp.inf) for i in every]
    weights = jax.nn.softmax(jnp.stack(logits, axis=-1), axis=-1)
    return sum((weights[..., i, None] * values[:, columns[:, i]] for i in every), jnp.zeros_like(values))


def random_mask(rng: np.random.Generator, nodes: int, density: float) -> Bool[np.ndarray, "n n"]:
    """Ones on the diagonal, other pairs with a chance of `density`."""
    mask = rng.random((nodes, nodes)) < density
    np.fill_diagonal(mask, True)
    return mask


def tree_mask(rng: np.random.Generator, nodes: int) -> Bool[np.ndarray, "n n"]:
    """A random tree's edges, and ones on the diagonal."""
    mask = np.eye(nodes, dtype=bool)
    for node in range(1, nodes):
        parent = rng.integers(max(0, node - 3), node)
        mask[node, parent] = mask[parent, node] = True
    return mask


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench sparse`."""
    nodes = [16, 32, 64, 128]
    parser.add_argument("--nodes", type=int, nargs="+", default=nodes, metavar="N", help="of a mask")
    parser.add_argument("--masks", type=int, default=200, metavar="N", help="random ones (default 200)")
    about = f"of a mask (default {DENSITY})"
    parser.add_argument("--density", type=float, default=DENSITY, metavar="SHARE", help=about)
    add_common(parser, run, repeats=5)


def run(arguments: argparse.Namespace) -> None:
    """Print one row per comparison. Raises ConfigError for a density that is no share."""
    if not 0 <= arguments.density <= 1:
        raise ConfigError(f"--density: must lie in [0, 1], not {arguments.density:g}")
    before, rows = load(), []
    for nodes in arguments.nodes:
        rngs = map(np.random.default_rng, range(max(1, arguments.masks)))
        masks = [random_mask(rng, nodes, arguments.density) for rng in rngs]
        for width in WIDTHS:
            for gathered in (False, True):
                rows.append(in_numpy(masks, width, gathered, arguments.repeats))
        rows.append(in_jax(tree_mask(np.random.default_rng(0), nodes), arguments.repeats))
    found = {
        "device": jax.devices()[0].device_kind,
        "density": arguments.density,
        "masks": arguments.masks,
        "heads_in_JAX": HEADS * BATCH,
        "repeats": arguments.repeats,
        "load_before": before,
        "load_after": load(),
        "rows": rows,
    }
    show_ratios(found, as_json=arguments.json)


def in_numpy(masks: Sequence[Bool[np.ndarray, "n n"]], width: int, gathered: bool, repeats: int) -> Ratio:
    """One call for each mask, which was prepared before, in float64 as NumPy draws numbers."""
    queries, keys, values = np.random.default_rng(0).normal(size=(3, len(masks[0]), width))
    pairs = list(map(pairs_of, masks))

    def ours() -> None:
        for each in pairs:
            sparse(queries, keys, values, each, gathered)

    def reference() -> None:
        for mask in masks:
            dense(queries, keys, values, mask)

    name = f"NumPy, n = {len(masks[0])}, d = {width}{', gathered' if gathered else ''}"
    return measure(name, ours, "dense", reference, repeats=repeats)


def in_jax(mask: Bool[np.ndarray, "n n"], repeats: int) -> Ratio:
    """`HEADS` heads of `BATCH` samples on one mask."""
    size, rng = (BATCH * HEADS, len(mask), WIDTHS[0]), np.random.default_rng(0)
    inputs, neighbours = (
        [jnp.asarray(rng.normal(size=size), jnp.float32) for _ in range(3)],
        neighbours_of(mask),
    )
    ours = jax.jit(lambda q, k, v: sparse_jax(q, k, v, neighbours))
    reference = jax.jit(lambda q, k, v: dense_jax(q, k, v, mask))
    works = [lambda f=f: jax.block_until_ready(f(*inputs)) for f in (ours, reference)]
    name = f"JAX, n = {len(mask)}, d = {WIDTHS[0]}, tree"
    return measure(name, works[0], "dense", works[1], repeats=repeats)
