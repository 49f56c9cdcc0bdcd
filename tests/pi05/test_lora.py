"""Low-rank pairs: names and shapes, the host at the start, and the merged weights that act the same."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import ConfigError
from morph_vla.morphology import MorphologyConfig
from morph_vla.pi05 import GemmaConfig, Pi05, Pi05Config, VitConfig, loss
from morph_vla.pi05.config import Lora, LowRank
from morph_vla.pi05.model import example
from morph_vla.weights import leaf_shapes
from morph_vla.weights.checkpoint import flat, nested
from morph_vla.weights.load import initial
from morph_vla.weights.names import is_lora

HOST = Pi05Config(
    vocab=37,
    image_size=14,
    cameras=("base_0_rgb",),
    vit=VitConfig(width=12, depth=1, mlp_dim=13, heads=3, patch=7),
    prefix=GemmaConfig(width=14, mlp_dim=17),
    expert=GemmaConfig(width=26, mlp_dim=29),
    depth=2,
    heads=6,
    kv_heads=2,
    head_dim=10,
    action_dim=7,
    horizon=4,
    max_tokens=5,
    dtype="float32",
    remat=False,
    morphology=MorphologyConfig(max_joints=5, start="exact"),  # three streams: the longest way through
)
LORA = Lora(LowRank(3, 5.0), LowRank(2, 1.0))
PAIRED = dataclasses.replace(HOST, lora=LORA)


def drawn(config, seed=0):
    rng = np.random.default_rng(seed)
    return nested(
        {name: 0.2 * rng.normal(size=s).astype(np.float32) for name, s in leaf_shapes(config).items()}
    )


def velocity(config, params):
    observation, actions, time = example(config, 2)
    model = Pi05(config)
    result = jax.jit(
        lambda p: model.apply({"params": p}, observation, actions, time, method=Pi05.velocity_joint)
    )
    return result(params)


def test_pairs_have_openpis_names_and_shapes():
    host = leaf_shapes(HOST)
    new = {name: s for name, s in leaf_shapes(PAIRED).items() if name not in host}
    layers = "PaliGemma/llm/layers"
    assert new == {
        f"{layers}/{module}{end}": shape
        for (module, suffix, rank, width, mlp) in [("", "", 3, 14, 17), ("", "_1", 2, 26, 29)]
        for module, end, shape in [
            (f"attn/q_einsum{suffix}", "/lora_a", (2, 6, width, rank)),
            (f"attn/q_einsum{suffix}", "/lora_b", (2, 6, rank, 10)),
            (f"attn/kv_einsum{suffix}", "/lora_a", (2, 2, 2, width, rank)),
            (f"attn/kv_einsum{suffix}", "/lora_b", (2, 2, 2, rank, 10)),
            (f"attn/attn_vec_einsum{suffix}", "/lora_a", (2, 6, 10, rank)),
            (f"attn/attn_vec_einsum{suffix}", "/lora_b", (2, 6, rank, width)),
            (f"mlp{suffix}/gating_einsum", "_lora_a", (2, 2, width, rank)),
            (f"mlp{suffix}/gating_einsum", "_lora_b", (2, 2, rank, mlp)),
            (f"mlp{suffix}/linear", "_lora_a", (2, mlp, rank)),
            (f"mlp{suffix}/linear", "_lora_b", (2, rank, width)),
        ]
    }
    only = dataclasses.replace(HOST, lora=Lora(None, LowRank(2, 1.0, ("feed-forward",))))
    kept = {name for name in leaf_shapes(only) if is_lora(name)}
    assert kept == {name for name in new if "/mlp_1/" in name}


@pytest.fixture(scope="module")
def paired():
    return drawn(PAIRED)


@pytest.fixture(scope="module")
def acted(paired):
    return velocity(PAIRED, paired)


@pytest.mark.slow
def test_merged_weights_act_as_the_pairs_do(paired, acted):
    merged = weights.merge_lora(paired, LORA)
    assert flat(merged).keys() == leaf_shapes(HOST).keys()
    np.testing.assert_allclose(velocity(HOST, merged), acted, atol=3e-5)
    host = nested({name: leaf for name, leaf in flat(paired).items() if not is_lora(name)})
    assert float(jnp.abs(velocity(HOST, host) - acted).max()) > 1e-2


@pytest.mark.slow
def test_a_factor_can_go_into_the_pairs(paired, acted):
    unit = dataclasses.replace(HOST, lora=Lora(LowRank(3, 3.0), LowRank(2, 2.0)))
    np.testing.assert_allclose(velocity(unit, weights.with_unit_scale(paired, LORA)), acted, atol=1e-5)


@pytest.mark.slow
def test_at_the_start_the_model_is_the_host_and_only_b_has_a_gradient(paired):
    paired = nested({n: leaf for n, leaf in flat(paired).items() if not n.startswith("morphology")})
    host, own = (dataclasses.replace(config, morphology=None) for config in (HOST, PAIRED))
    fresh = initial(own, [n for n in leaf_shapes(own) if is_lora(n)], 0)
    assert all((value == 0).all() == name.endswith("b") for name, value in fresh.items())
    leaves = {name: leaf for name, leaf in flat(paired).items() if not is_lora(name)}
    start = nested(leaves | fresh)
    np.testing.assert_array_equal(velocity(own, start), velocity(host, nested(leaves)))
    observation, actions, time = example(own, 2)
    noise = jax.random.normal(jax.random.key(1), (1, *actions.shape))
    gradient = jax.jit(jax.grad(lambda p: loss(own, p, observation, actions, noise, time[None]).mean()))
    for name, leaf in flat(gradient(start)).items():
        if is_lora(name):  # layer 0: the prefix's last one hands on keys and values alone
            assert (float(jnp.abs(leaf[0]).max()) > 0) == name.endswith("b"), name


@pytest.mark.parametrize(
    ("lora", "words"),
    [
        (Lora(LowRank(0)), r"training\.lora\.language_model\.rank: must be at least 1, not 0"),
        (Lora(None, LowRank(2, -1.0)), r"training\.lora\.action_expert\.alpha: must be more than 0, not -1"),
        (Lora(LowRank(targets=())), r"targets: name attention, feed-forward or both, each once"),
        (Lora(None, None), r"neither language_model nor action_expert has low-rank pairs; give one a rank"),
        (
            Lora(whole=("action expert",)),
            r"whole: the action expert has low-rank pairs and its own weights are",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(lora, words):
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(HOST, lora=lora).check()
