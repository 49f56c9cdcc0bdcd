"""`morph-vla bench sparse`: what skips masked pairs equals what does not."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import sparse as bench_sparse
from morph_vla.errors import ConfigError

MASKS = st.tuples(st.integers(1, 13), st.floats(0, 1), st.integers(0, 2**31))


def drawn(nodes, density, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    mask = bench_sparse.random_mask(rng, nodes, density)
    return scale * rng.normal(size=(3, nodes, 7)), mask


@given(MASKS, st.sampled_from([1.0, 30.0]), st.booleans())
def test_numpys_form_equals_dense_masked_attention(mask, scale, gathered):
    """With logits in the thousands as well."""
    nodes, density, seed = mask
    (q, k, v), mask = drawn(nodes, density, seed, scale)
    result = bench_sparse.sparse(q, k, v, bench_sparse.pairs_of(mask), gathered)
    np.testing.assert_allclose(result, bench_sparse.dense(q, k, v, mask), atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_jaxs_form_equals_dense_masked_attention(seed):
    (q, k, v), mask = drawn(11, seed / 5, seed)
    if seed == 3:
        mask = bench_sparse.tree_mask(np.random.default_rng(seed), 11)
    queries, keys, values = (jnp.asarray(np.stack([x, -x]), jnp.float32) for x in (q, k, v))
    result = bench_sparse.sparse_jax(queries, keys, values, bench_sparse.neighbours_of(mask))
    np.testing.assert_allclose(result, bench_sparse.dense_jax(queries, keys, values, mask), atol=1e-6)
    np.testing.assert_allclose(result[0], bench_sparse.dense(q, k, v, mask), atol=1e-5)


@given(MASKS)
def test_a_node_sees_its_mask_and_nothing_else(mask):
    """Other values change nothing."""
    (queries, keys, values), mask = drawn(*mask)
    pairs, node = bench_sparse.pairs_of(mask), 0
    other = np.where(mask[node][:, None], values, 1e3)
    before = bench_sparse.sparse(queries, keys, values, pairs, gathered=True)[node]
    after = bench_sparse.sparse(queries, keys, other, pairs, gathered=True)[node]
    np.testing.assert_array_equal(after, before)


def test_a_row_without_a_pair_is_refused():
    for prepare in (bench_sparse.pairs_of, bench_sparse.neighbours_of):
        with pytest.raises(ConfigError, match=r"^mask: row 1 sees nothing; put ones on the diagonal$"):
            prepare(np.array([[True, False], [False, False]]))


def test_trees_are_symmetric_and_have_n_minus_1_edges():
    mask = bench_sparse.tree_mask(np.random.default_rng(0), 17)
    np.testing.assert_array_equal(mask, mask.T)
    assert mask.sum() == 17 + 2 * 16


def test_every_comparison_is_measured(run):
    answer = json.loads(run("bench sparse --nodes 5 --masks 2 --repeats 1 --json")[1])
    names = [f"NumPy, n = 5, d = {d}{how}" for d in (32, 64) for how in ("", ", gathered")]
    names.append("JAX, n = 5, d = 32, tree")
    assert [row["name"] for row in answer["rows"]] == names
    assert all(row["ratio"] == row["ours_s"] / row["reference_s"] for row in answer["rows"])
    assert run("bench sparse --density 2")[::2] == (2, "error: --density: must lie in [0, 1], not 2\n")
