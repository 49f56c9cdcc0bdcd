"""`morph-vla bench fourier`: the two sides compute what they say, and the table."""

import json
import os

import jax
import numpy as np
import pytest

from benchmarks import fourier as bench
from morph_vla import policies

pytestmark = pytest.mark.slow

SMALL = bench.Sizes(context=5, layers=2, width=12)


def test_the_paper_modes_are_those_of_its_formula():
    assert [bench.Sizes(context=n).config.modes for n in (1, 4, 16, 64, 1024)] == [1, 3, 6, 10, 17]


def test_the_transformer_sees_the_rows_in_its_cache_and_no_others():
    params = policies.of(SMALL.config).init(SMALL.config, jax.random.key(0))
    params = bench.transformer_params(SMALL, params, jax.random.key(1))
    step = jax.jit(bench.transformer_step(SMALL))
    rows = jax.random.normal(jax.random.key(2), (10, bench.INPUTS))

    def last_action(rows):
        cache, action = bench.transformer_cache(SMALL), None
        for row in rows:
            cache, action = step(params, cache, row)
        return np.asarray(action)

    # The second layer sees five rows of the first one, which saw five each: the last nine rows in all.
    wanted = last_action(rows)
    np.testing.assert_array_equal(last_action(rows.at[0].add(1.0)), wanted)
    for back in range(1, 10):
        assert np.abs(last_action(rows.at[-back].add(1.0)) - wanted).max() > 1e-6


def test_the_usual_transformer_has_a_gpts_layers():
    """Twelve squares of the width a layer: four in attention, eight in the feed-forward layer; and biases."""
    width, norms, biases = SMALL.width, 4 * SMALL.width, 5 * SMALL.width
    params = policies.of(SMALL.config).init(SMALL.config, jax.random.key(0))
    usual = bench.transformer_params(SMALL, params, jax.random.key(1), bench.TRANSFORMERS["usual"])
    for layer in usual["encoder"].values():
        assert sum(leaf.size for leaf in jax.tree.leaves(layer)) == 12 * width**2 + norms + biases


@pytest.mark.long
def test_it_prints_a_row_for_each_size_and_leaves_the_cores_as_they_were(run, monkeypatch):
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(bench, "CALLS", 2)
    line = "bench fourier --contexts 5 7 --layers 4 --widths 256 --repeats 1"
    answer = json.loads(run(f"{line} --json")[1])
    assert [(row["context"], row["layers"], row["width"]) for row in answer["rows"]] == [
        (5, 4, 256),
        (7, 4, 256),
        (64, 4, 256),
    ]
    for name in bench.TRANSFORMERS:
        assert all(row[f"times_{name}"] == row[f"{name}_ms"] / row["fourier_ms"] for row in answer["rows"])
    assert answer["rows"][2]["fourier_parameters"] == 787_852
    assert os.sched_getaffinity(0) == cores
