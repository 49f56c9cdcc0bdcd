"""Attention in one kernel: the same as written out, and one sentence where a GPU has none."""

import dataclasses
import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.pi05 import fused, gemma
from morph_vla.pi05.gemma import PerLayer, attention_weights

pytestmark = pytest.mark.slow


@settings(max_examples=25)
@given(
    queries=st.integers(1, 7),
    keys=st.integers(1, 11),
    groups=st.sampled_from([(1, 3), (2, 1), (3, 2)]),
    seed=st.integers(0, 2**31),
)
def test_it_is_attention_written_out(queries, keys, groups, seed):
    rng, (kv_heads, each) = np.random.default_rng(seed), groups

    def drawn(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    q, k, v = drawn(2, queries, kv_heads * each, 5), *(drawn(2, keys, kv_heads, 5) for _ in range(2))
    mask = rng.random((2, queries, keys)) < 0.6
    mask[0, 0] = False  # a padded token sees nothing
    weights = attention_weights(q, k, jnp.asarray(mask), None)
    wanted = jnp.einsum("bkgts,bskh->btkgh", weights, v).reshape(q.shape)
    found = np.asarray(fused.attend(q, k, v, jnp.asarray(mask)))
    assert np.isfinite(found).all()
    seeing = mask.any(axis=-1)
    np.testing.assert_allclose(found[seeing], np.asarray(wanted)[seeing], atol=2e-6)


def test_who_looks_inside_gets_weights_all_the_same(plugin, monkeypatch):
    config, asked = dataclasses.replace(plugin, fused_attention=True), []
    attend = fused.attend
    monkeypatch.setattr(gemma, "attend", lambda *inputs: asked.append(1) or attend(*inputs))
    tokens = jax.random.normal(jax.random.key(1), (1, 3, config.prefix.width))
    mask = jnp.tril(jnp.ones((1, 3, 3), bool))
    arguments = [tokens, None], None, PerLayer(), jnp.arange(3)[None], mask
    attention = gemma.Attention(config)
    variables = {"params": attention.init(jax.random.key(0), *arguments)["params"]}
    (shown, _), seen = attention.apply(variables, *arguments, mutable=["intermediates"])
    assert jax.tree.leaves(seen)[0].shape[-2:] == (3, 3)
    asked.clear()
    hidden, _ = attention.apply(variables, *arguments)
    assert asked == [1]
    np.testing.assert_allclose(hidden[0], shown[0], atol=1e-5)


def test_a_gpu_without_a_kernel_takes_xlas_and_says_so_once(monkeypatch, caplog):
    q = jnp.ones((1, 3, 2, 8), jnp.bfloat16)
    wanted = fused.attend(q, q, q)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(fused, "_say", functools.cache(fused._say.__wrapped__))
    for _ in range(2):
        np.testing.assert_array_equal(fused.attend(q, q, q), wanted)
    (said,) = caplog.messages
    assert re.fullmatch(
        r"model\.fused_attention: cuDNN has no kernel for these sizes here \(.+\); XLA's form is taken", said
    )
    wide = q.astype(jnp.float32)  # of which cuDNN has none: XLA's
    assert fused.attend(wide, wide, wide).shape == q.shape
    assert (
        fused.attend(q, q, q, jnp.ones((1, 3, 3), bool)).shape == q.shape
    )  # odd: of which it has no gradient


def test_a_gpu_has_it_where_weights_are_large_and_a_cpu_where_it_is_asked_for(monkeypatch):
    step, call = jnp.zeros((32, 968, 8, 256)), jnp.zeros((1, 968, 8, 256))
    assert fused.pays(call, call[:, :, :1])
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert fused.pays(step, step[:, :, :1])
    assert not fused.pays(call, call[:, :, :1])
    q, k, v = (jax.random.normal(jax.random.key(i), (1, 3, 2, 5)) for i in range(3))
    monkeypatch.setattr(fused, "attend", None)
    np.testing.assert_array_equal(fused.of_flax(q, k, v), nn.dot_product_attention(q, k, v))
