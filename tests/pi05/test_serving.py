"""Parameters ready to serve act as those that were trained, bit for bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.pi05 import Pi05Config, sample_actions
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.pi05.serving import served_type

# Of flax at openpi's pins.
pytestmark = [
    pytest.mark.filterwarnings("ignore:linear_util.wrap_init:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:shape requires ndarray:DeprecationWarning"),
]


@pytest.mark.usefixtures("standard_promotion")
def test_rounded_once_they_act_the_same(plugin, params, seen):
    config = dataclasses.replace(plugin, dtype="bfloat16")
    noise = jax.random.normal(jax.random.key(5), (2, config.horizon, config.action_dim))

    def served(name, leaf):
        return jnp.asarray(leaf, served_type(config, name) or leaf.dtype)

    ready = map_named(served, params)
    sample = jax.jit(lambda params: sample_actions(config, params, seen, noise, 2))
    np.testing.assert_array_equal(sample(params), sample(ready))
    types = {name: leaf.dtype.name for name, leaf in by_name(ready).items()}
    kept = [name for name, dtype in types.items() if dtype == "float32"]
    assert types["PaliGemma/llm/layers/attn/q_einsum_1/w"] == types["PaliGemma/img/head/bias"] == "bfloat16"
    assert all("norm" in name.lower() for name in kept if name.startswith("PaliGemma/img/Transformer"))
    assert {"action_out_proj/kernel", "PaliGemma/llm/embedder/input_embedding"} <= {*kept}


def test_a_float32_model_serves_what_it_trained():
    for leaf in ("PaliGemma/llm/layers/mlp_1/linear", "PaliGemma/img/head/kernel"):
        assert served_type(Pi05Config(dtype="float32"), leaf) is None
        assert served_type(Pi05Config(), leaf) == "bfloat16"
