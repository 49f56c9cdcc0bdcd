"""Parameters ready to serve act as those that were trained, in a program that has less to do."""

import dataclasses
import weakref
from collections import Counter
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import draw_params

from benchmarks import programs
from morph_vla import weights
from morph_vla.pi05 import Pi05Config, Previous, modulations, sample_actions
from morph_vla.pi05.config import ImageTokens, Lora, LowRank
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.pi05.serving import layers, let_go, ready, served_type

pytestmark = pytest.mark.slow
STEPS = 5


def call(config: Pi05Config, seen: Any, **options: Any) -> Any:
    """(parameters, modulations) -> actions: what a policy compiles."""
    noise = jax.random.normal(jax.random.key(5), (2, config.horizon, config.action_dim))

    def sample(params: Any, table: Any) -> Any:
        return sample_actions(config, params, seen, noise, STEPS, table, **options)

    return jax.jit(sample)


def acted(config: Pi05Config, params: Any, seen: Any, **options: Any) -> np.ndarray:
    """What it answers."""
    table = jax.jit(partial(modulations, config, steps=STEPS))(params)
    return np.asarray(call(config, seen, **options)(params, table))


def served(config: Pi05Config, params: Any) -> Any:
    """The same parameters ready to serve."""
    return ready(config, by_name(params).items())


def close(ours: np.ndarray, theirs: np.ndarray, most: float = 1e-6) -> None:
    """Apart by `most` of the largest value."""
    assert np.abs(theirs).max() > 0.1
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=most * np.abs(theirs).max())


WAYS: dict[str, dict[str, Any]] = {
    "body": {},
    "no body": {"morphology": None},
    "fewer image tokens": {"image_tokens": ImageTokens(keep=4, features="positive", width=3)},
    "written out": {"unroll": True},
    "given actions": {"delay_max": 2},
}


@pytest.mark.parametrize("way", WAYS)
def test_they_act_as_the_trained_ones(plugin, seen, way):
    config = dataclasses.replace(plugin, **WAYS[way])
    params = draw_params(config)
    options = {}
    if config.delay_max:
        actions = np.random.default_rng(3).normal(size=(2, config.horizon, config.action_dim))
        options["previous"] = Previous(actions.astype(np.float32), np.array([1, 2]), np.array([4, 5]))
    close(acted(config, served(config, params), seen, **options), acted(config, params, seen, **options))


def test_a_prompt_cut_to_a_bucket_is_theirs_too(plugin, params, seen):
    cut = dataclasses.replace(seen, tokens=seen.tokens[:, :7], token_mask=seen.token_mask[:, :7])
    close(acted(plugin, served(plugin, params), cut), acted(plugin, params, cut))


def test_low_rank_pairs_are_merged_before(plugin, seen):
    paired = dataclasses.replace(plugin, lora=Lora(LowRank(3, 5.0), LowRank(2, 1.0)))
    params = draw_params(paired)
    assert paired.lora is not None
    made = ready(plugin, weights.merging(by_name(params).items(), paired.lora, by_name(params).__getitem__))
    assert not [name for name in by_name(made) if "lora" in name]
    close(acted(plugin, made, seen), acted(paired, params, seen), 1e-5)  # W + A B is another sum


@pytest.mark.usefixtures("standard_promotion")
def test_bfloat16_is_rounded_once(plugin, params, seen):
    """Rounding what is multiplied changes no bit; other products' sums, rounded to 8 bits, do."""
    config = dataclasses.replace(plugin, dtype="bfloat16")
    made = served(config, params)
    rounded = map_named(lambda name, x: jnp.asarray(x, served_type(config, name) or x.dtype), params)
    trained = acted(config, params, seen)
    np.testing.assert_array_equal(acted(config, rounded, seen), trained)
    close(acted(config, made, seen), trained, 0.02)
    types = {name: leaf.dtype.name for name, leaf in by_name(made).items()}
    assert types["PaliGemma/llm/layers_2/attn/qkv_1"] == types["PaliGemma/img/head/bias"] == "bfloat16"
    kept = [name for name, dtype in types.items() if dtype == "float32"]
    assert all("norm" in name.lower() for name in kept if name.startswith("PaliGemma/img/Transformer"))
    assert {"action_out_proj/kernel", "PaliGemma/llm/embedder/input_embedding"} <= {*kept}


def moved(config: Pi05Config, params: Any, seen: Any, lowered: bool = False) -> list[Counter[str]]:
    """What the only loop, over Euler steps, does to whole weights: of trained parameters, of ready ones."""
    shapes = programs.weight_axes({name: leaf.shape for name, leaf in by_name(params).items()})
    counts = []
    for given in (params, served(config, params)):
        table = jax.eval_shape(partial(modulations, config, steps=STEPS), given)
        program = call(config, seen).lower(given, table)
        text = program.compiler_ir("hlo").as_hlo_text() if lowered else program.compile().as_text()
        read = programs.read(text)
        (loop,) = programs.loops(read)
        assert programs.trips(loop) in (STEPS, 1)  # not every XLA says
        counts.append(programs.moving(read, loop, shapes))
    return counts


def test_a_step_moves_no_weight(plugin, params, seen):
    """Compiled, nothing of a weight's shape is sliced, copied, turned or joined in an Euler step."""
    trained, made = moved(dataclasses.replace(plugin, unroll=True), params, seen)  # one loop: of the steps
    assert trained["slice"] >= 3 * plugin.depth
    assert not made


@pytest.mark.usefixtures("standard_promotion")
def test_a_step_rounds_no_weight(plugin, params, seen):
    """As it is lowered, whatever the device; a CPU may compile bfloat16 as float32."""
    config = dataclasses.replace(plugin, dtype="bfloat16", unroll=True)
    trained, made = moved(config, params, seen, lowered=True)
    assert trained["convert"] >= 3 * plugin.depth
    assert not made["convert"]


def test_leaves_are_let_go_one_by_one(plugin, params):
    alive: list[Any] = []

    def read() -> Any:
        for name, leaf in by_name(params).items():
            assert all(reference() is None for reference in alive), name
            value = layers(name, leaf.copy()) if "gating" in name else leaf.copy()
            if "/layers/" in name:  # another may stay where it is
                alive.extend(map(weakref.ref, value if isinstance(value, list) else [value]))
            yield name, let_go(value)
            del value

    made = ready(plugin, read())
    assert len(alive) > 2 * plugin.depth
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert sum(leaf.size for leaf in jax.tree.leaves(made)) == count


def test_a_float32_model_serves_what_it_trained():
    for leaf in ("PaliGemma/llm/layers/mlp_1/linear", "PaliGemma/img/head/kernel"):
        assert served_type(Pi05Config(dtype="float32"), leaf) is None
        assert served_type(Pi05Config(), leaf) == "bfloat16"
