"""Sizes that do not fit together are refused, by the key a recipe would change."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest

from morph_vla.errors import ConfigError
from morph_vla.morphology import MorphologyConfig
from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig, attention


def test_the_defaults_are_the_full_model():
    config = Pi05Config()
    config.check()
    assert config.patches == 256
    assert dataclasses.replace(config, image_size=42).patches == 9


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"image_size": 225}, r"model\.image_size: 225 is not a multiple of model\.vit\.patch 14"),
        (
            {"vit": VitConfig(width=17, heads=3)},
            r"model\.vit\.width: 17 is not a multiple of model\.vit\.heads 3",
        ),
        ({"vit": VitConfig(patch=0)}, r"model\.vit\.patch: must be at least 1, not 0"),
        ({"kv_heads": 0}, r"model\.kv_heads: must be at least 1, not 0"),
        ({"depth": -1}, r"model\.depth: must be at least 1, not -1"),
        ({"prefix": GemmaConfig(mlp_dim=-1)}, r"model\.prefix\.mlp_dim: must be at least 1, not -1"),
        ({"environment": -1}, r"model\.environment: must be at least 0, not -1"),
        ({"environment": 10**23}, rf"model\.environment: must be below 2\*\*31, not {10**23}"),
        ({"horizon": 2**31}, rf"model\.horizon: must be below 2\*\*31, not {2**31}"),
        ({"cameras": ("a", "b", "a")}, r"model\.cameras: 'a', 'b', 'a'; expected names, each once"),
        ({"cameras": ("a", "")}, r"model\.cameras: 'a', ''; expected names, each once"),
        ({"horizon": 0}, r"model\.horizon: must be at least 1, not 0"),
        ({"heads": 7, "kv_heads": 2}, r"model\.heads: 7 is not a multiple of model\.kv_heads 2"),
        ({"head_dim": 13}, r"model\.head_dim: 13 must be even, for rotary positions"),
        ({"expert": GemmaConfig(width=19)}, r"model\.expert\.width: 19 must be even, for the time embedding"),
        (
            {"horizon": 6, "morphology": MorphologyConfig(chunks=5)},
            r"morphology\.chunks: 5 does not divide the horizon 6; choose one of 1, 2, 3, 6",
        ),
        (
            {"action_dim": 7, "morphology": MorphologyConfig(max_joints=11)},
            r"morphology\.max_joints: 11 must lie between 1 and the model's 7 action values: "
            r"a kinematic token reads one of them",
        ),
    ],
)
def test_what_does_not_fit(change, sentence):
    with pytest.raises(ConfigError, match=rf"^{sentence}$"):
        dataclasses.replace(Pi05Config(), **change).check()


def test_on_a_gpu_queries_are_the_rows_of_every_product_of_attention(monkeypatch):
    """The other way round, a GPU transposed all weights: 16 ms of an H200's step of 286."""
    q, k = jnp.zeros((2, 11, 3, 5)), jnp.zeros((2, 13, 1, 5))

    def mixed(q, k, mask):
        return attention.mix(attention.attention_weights(q, k, mask, None), k)

    def products():
        text = jax.jit(lambda *given: mixed(*given)).lower(q, k, mask).as_text()
        return re.findall(r"stablehlo\.dot_general.*-> tensor<([\dx]+)xf32>", text)

    mask = jnp.ones((2, 11, 13), bool).at[1, :, 7:].set(False)
    q, k = (jax.random.normal(jax.random.key(x.size), x.shape) for x in (q, k))
    on_a_cpu = products(), mixed(q, k, mask)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert products() == ["2x1x11x3x13", "2x1x11x3x5"] != on_a_cpu[0]
    assert jnp.allclose(mixed(q, k, mask), on_a_cpu[1], atol=1e-6)
