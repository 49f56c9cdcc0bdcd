"""Products in 8 bits: the rounding of ml_dtypes, row by row; in the prefix alone; gradients of the exact."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.pi05 import float8, sample_actions
from morph_vla.pi05.model import Pi05
from morph_vla.pi05.parts import by_name
from morph_vla.pi05.serving import ready

# JAX 0.5 rounds twice, to 16 bits first: of 200,000 numbers 791 go to the other neighbour.
VIA = np.float16 if jax.__version__.startswith("0.5.") else np.float32


def in_8_bits(x: np.ndarray, axis: int) -> np.ndarray:
    """What the numbers of `x` are after rounding, by ml_dtypes alone."""
    most = np.abs(x).max(axis=axis, keepdims=True)
    scale = np.where(most < 1e-30, np.float32(1), most / np.float32(448))
    return (x / scale).astype(VIA).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale


@pytest.mark.slow
@settings(max_examples=25)
@given(
    rows=st.sampled_from([1, 7]),  # a compilation each
    inner=st.sampled_from([1, 13]),
    columns=st.sampled_from([1, 11]),
    spread=st.sampled_from([0.0, 1.0, 9.0]),
    seed=st.integers(0, 2**31),
)
def test_both_sides_are_rounded_and_each_row_by_its_own_size(rows, inner, columns, spread, seed):
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-spread, spread, (rows, 1))
    x, matrix = rng.normal(size=(rows, inner)) * sizes, rng.normal(size=(inner, columns))
    x[0] = 0.0  # an absent camera's row is no NaN
    x, matrix = x.astype(np.float32), matrix.astype(np.float32)
    got = np.asarray(float8.product(jnp.asarray(x), jnp.asarray(matrix)))
    wanted = in_8_bits(x, 1) @ in_8_bits(matrix, 0)
    size = np.abs(in_8_bits(x, 1)) @ np.abs(in_8_bits(matrix, 0))
    assert (np.abs(got - wanted) <= 2e-6 * size).all()
    assert (got[0] == 0).all()
    # Of two rounded factors each is off by 1/16 at most, or half of the least step near zero (2^-10 / 448).
    least = 2.0**-10 / 448 * inner * np.abs(x).max(1, keepdims=True) * np.abs(matrix).max(0)
    exact = np.abs(x).astype(np.float64) @ np.abs(matrix)
    assert (np.abs(got - x.astype(np.float64) @ matrix) <= (2 / 16 + 1 / 256) * exact + 2.2 * least).all()


def test_the_drawing_of_the_docstring():
    x = jnp.asarray([[1.0, -2.0], [0.3, 0.1], [0.0, 0.0]])
    values, scale = float8.rounded(x, axis=1)
    np.testing.assert_array_equal(values.astype(jnp.float32), [[224, -448], [448, 144], [0, 0]])
    np.testing.assert_allclose(scale, [[2 / 448], [0.3 / 448], [1]], rtol=1e-6)


def test_its_gradient_is_that_of_the_exact_product():
    keys = jax.random.split(jax.random.key(0), 3)
    x, matrix, pull = (jax.random.normal(k, s) for k, s in zip(keys, [(5, 7), (7, 3), (5, 3)], strict=True))
    _, back = jax.vjp(float8.product, x, matrix)
    for got, wanted in zip(back(pull), (pull @ matrix.T, x.T @ pull), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def prefix(config, params, seen):
    return Pi05(config).apply({"params": params}, seen, True, method="prefix")


def products(function: Callable, params: Any) -> tuple[int, int]:
    """How many matrix products a program has of 8-bit numbers, and of others."""
    program = jax.jit(function).lower(params).as_text()
    lines = [line for line in program.splitlines() if "dot_general" in line]
    return sum("f8E4M3FN" in line for line in lines), sum("f8E4M3FN" not in line for line in lines)


@pytest.mark.slow
def test_every_product_with_a_weight_of_the_prefix_and_no_other(plugin, params, seen, chunk):
    """SigLIP: queries, keys, values, out, two dense layers; its head. Gemma: qkv, out, gate, up, down.

    Layers are scanned, so that each stands once; of the last one only its keys and values are computed.
    """
    config = dataclasses.replace(plugin, prefix_float8=True)
    eight, others = products(lambda params: prefix(config, params, seen), params)
    assert eight == 6 + 1 + 5 + 1
    assert others == 1 + 2 + 2  # patches; attention of images and of tokens
    assert products(lambda params: prefix(plugin, params, seen), params)[0] == 0
    noise = jnp.asarray(chunk[1][0])
    # The suffix has none: a call has those of its prefix.
    assert products(lambda params: sample_actions(config, params, seen, noise, 2), params)[0] == eight


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_keys_and_values_are_near_the_exact_ones_and_not_those(plugin, params, seen, dtype):
    config = dataclasses.replace(plugin, dtype=dtype)
    (exact, _), (near, _) = (
        jax.jit(partial(prefix, each, seen=seen))(params)
        for each in (config, dataclasses.replace(config, prefix_float8=True))
    )
    for one, other in zip(exact, near, strict=True):
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        assert 0.005 < np.linalg.norm(one - other) / np.linalg.norm(one) < 0.2


def served(config, params):
    return ready(config, ((name, np.asarray(leaf)) for name, leaf in by_name(params).items()))


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ready_to_serve_the_language_model_is_in_8_bits_and_its_products_the_same(
    plugin, params, seen, dtype
):
    """Rounded once and rounded in the call: equal to the bit. Nothing of the action expert is rounded."""
    config = dataclasses.replace(plugin, prefix_float8=True, dtype=dtype)
    in_the_call = served(dataclasses.replace(config, prefix_float8=False), params)
    once = served(config, params)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(once)}
    eight = {path: leaf.shape for path, leaf in leaves.items() if leaf.dtype == float8.TYPE}
    assert len(eight) == 4 * config.depth  # qkv, out, gate_up, linear
    assert not any("_1" in path.replace("layers_1", "") or "img" in path for path in eight)
    weights = by_name(params)["PaliGemma/llm/layers/attn/attn_vec_einsum/w"]
    out = once["PaliGemma"]["llm"]["layers_0"]["attn"]["out"]
    np.testing.assert_allclose(
        out.values.astype(jnp.float32) * out.scale,
        weights[0].reshape(-1, weights.shape[-1]),
        rtol=0.08,
        atol=1e-3,
    )
    (keys, _), (others, _) = (
        jax.jit(partial(prefix, config, seen=seen))(each) for each in (once, in_the_call)
    )
    for one, other in zip(keys, others, strict=True):
        np.testing.assert_array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32))


def test_no_weight_of_the_language_model_is_rounded_in_a_call_that_was_made_ready(plugin, params, seen):
    """What is rounded there: rows of tokens, and the vision encoder's weights."""
    config = dataclasses.replace(plugin, prefix_float8=True)

    def roundings(params) -> int:
        program = jax.jit(lambda params: prefix(config, params, seen)).lower(params).as_text()
        return sum("convert" in line and "f8E4M3FN>" in line.split("->")[-1] for line in program.splitlines())

    in_the_call = served(dataclasses.replace(config, prefix_float8=False), params)
    assert roundings(in_the_call) - roundings(served(config, params)) == 4 * (config.depth - 1) + 1


@pytest.mark.slow
def test_ready_to_serve_it_answers_alike(plugin, params, seen, chunk):
    """A column has its own scale, whichever columns stand beside it."""
    config, noise = dataclasses.replace(plugin, prefix_float8=True), jnp.asarray(chunk[1][0])
    one, other = (
        sample_actions(config, each, seen, noise, steps=2) for each in (params, served(config, params))
    )
    size = np.abs(np.asarray(one)).max()
    # An input that lies between two of the 8-bit numbers may go to either, by rounding.
    np.testing.assert_allclose(one, other, atol=0.02 * size)
