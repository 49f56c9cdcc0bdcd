"""Counts: the paper's trainable and frozen parameters, and operations held against XLA's own count."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from morph_vla.morphology import MorphologyConfig
from morph_vla.morphology.config import History
from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig, counts, loss
from morph_vla.pi05 import model as pi05
from morph_vla.pi05.config import ImageTokens
from morph_vla.pi05.parts import PARTS, map_named, part_of

SMALL = Pi05Config(
    vocab=41,
    image_size=28,
    cameras=("base_0_rgb", "left_wrist_0_rgb"),
    vit=VitConfig(width=96, depth=3, mlp_dim=224, heads=3, patch=7),
    prefix=GemmaConfig(width=160, mlp_dim=416),
    expert=GemmaConfig(width=128, mlp_dim=352),
    depth=3,
    heads=4,
    kv_heads=2,
    head_dim=48,
    action_dim=11,
    horizon=12,
    max_tokens=29,
    dtype="float32",
    remat=False,
    unroll=True,  # XLA counts a loop's body once
)
BATCH, DRAWS = 2, 3
MORPHOLOGY = MorphologyConfig(max_joints=7, chunks=3, auxiliary=1)
MODELS = {
    "host": None,
    "tokens": dataclasses.replace(MORPHOLOGY, encoder="linear", film=False, bias="none", auxiliary=0),
    "auxiliary": MORPHOLOGY,
    "exact": dataclasses.replace(MORPHOLOGY, start="exact", bias="spd-soft"),
    "history": dataclasses.replace(MORPHOLOGY, history=History(steps=5, modes=3)),
    "control": dataclasses.replace(MORPHOLOGY, film=False, bias="none", control="tokens"),
}


@pytest.mark.usefixtures("standard_promotion")
def test_the_papers_trainable_and_frozen_parameters():
    result = counts.parameters(counts.shapes(Pi05Config()))
    assert list(result) == list(PARTS)
    assert result["action expert"] + result["projections"] == 430_098_464
    assert result["vision encoder"] + result["language model"] == 2_923_335_408
    assert result["morphology"] == 0


@pytest.mark.usefixtures("standard_promotion")
def test_what_the_plugin_adds_at_full_size():
    """By hand: D = 1024, L = 18, H = 16, J = 32, 12 features."""
    models, width, layers = counts.variants(Pi05Config()), 1024, 18
    linear = 16 * width + width
    encoder = 16 * 2 * width + 2 * width + width * width + width
    film = 12 * 2 * width + 2 * width
    wanted = {
        "host alone": 0,
        "tokens, linear encoder": linear,
        "tokens + Mix": encoder,
        "tokens + Mix + FiLM": encoder + film,
        "  M = 1": 2 * encoder + film,
        "  SPD-Soft": encoder + film + layers * 9,
        "  Adj-Soft v1.0": encoder + film + layers * 32 * 32,
        "  Adj-Soft v2.0": encoder + film + layers,
        "  start: exact": encoder + film + layers * 8,
        "control: tokens": encoder,
    }
    for name, count in wanted.items():
        assert counts.parameters({"morphology": counts.plugin_shapes(models[name])})["morphology"] == count, (
            name
        )


def test_every_variant_makes_sense():
    for action_dim in (7, 32):
        for config in counts.variants(dataclasses.replace(Pi05Config(), action_dim=action_dim)).values():
            config.check()
    assert "  G = 16" in counts.variants(Pi05Config())
    assert "  G = 16" not in counts.variants(dataclasses.replace(Pi05Config(), horizon=12))


@pytest.mark.parametrize("name", MODELS)
def test_the_plugins_shapes_are_the_models(name):
    config = dataclasses.replace(SMALL, morphology=MODELS[name])
    whole = counts.shapes(config)
    assert counts.plugin_shapes(config) == whole.get("morphology", {})
    assert sum(counts.parameters(whole).values()) == pi05.count(whole)


def products(jaxpr: Any) -> int:
    """Operations of all matrix products in a jaxpr, 2 m n k each, loops as often as they run."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * math.prod(left[axis] for axis in contracted)
        times = equation.params.get("length", 1)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += times * products(inner)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_forward_pass_is_counted_to_the_last_product(name):
    config = dataclasses.replace(SMALL, morphology=MODELS[name])
    seen, actions, time = pi05.example(config)

    def part(method: Any, *inputs: Any) -> int:
        def call(params: Any) -> Any:
            return pi05.Pi05(config).apply({"params": params}, *inputs, method=method)

        return products(jax.make_jaxpr(call)(counts.shapes(config)).jaxpr)

    Pi05 = pi05.Pi05
    assert part(Pi05.embed_prefix, seen) == counts.vision(config)
    assert part(Pi05.prefix, seen) == counts.vision(config) + counts.prefix(config)
    assert part(Pi05.prefix, seen, True) == counts.vision(config) + counts.prefix(config, forward_only=True)
    sines = products(jax.make_jaxpr(lambda t: pi05.time_embedding(t, config.expert.width))(time).jaxpr)
    width = config.expert.width
    adaptive = (2 * config.depth + 1) * 6 * width**2  # the norms' own projections of the condition
    assert part(Pi05.condition, time) + adaptive == counts.conditioning(config) + sines
    cache, mask = jax.eval_shape(
        lambda params: Pi05(config).apply({"params": params}, seen, method=Pi05.prefix), counts.shapes(config)
    )
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (cache, mask))
    result = part(Pi05.velocity, *empty, actions, time, seen.body)
    again = adaptive if name == "exact" else 0  # written down once per stream
    assert result == counts.suffix(config) + counts.conditioning(config) + sines + again
    more = counts.sampling_call(config, steps=3) - counts.sampling_call(config, steps=2)
    assert more == counts.suffix(config)


FEWER = [
    ImageTokens(keep=5, features="relu", width=7),
    ImageTokens(keep=5, features="hybrid", width=7, projections=9),
    ImageTokens(keep=5, how="learnt", features="trigonometric", width=7, projections=9),
]


@pytest.mark.parametrize("fewer", FEWER)
def test_fewer_image_tokens_are_counted_to_the_last_product(fewer):
    config = dataclasses.replace(SMALL, image_tokens=fewer)
    seen, _, _ = pi05.example(config)

    def images(params: Any) -> Any:
        return pi05.Pi05(config).apply({"params": params}, seen, method=pi05.Pi05.embed_prefix)

    assert products(jax.make_jaxpr(images)(counts.shapes(config)).jaxpr) == counts.vision(config)
    assert counts.tokens(config)["image"] == 2 * fewer.keep


# XLA counts what is done element by element as well, and a joint pass's last layer, of which only keys and
# values are read, in part.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "close"), [("full", 0.025), ("expert", 0.09)])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_counted_as_xla_does(name, kind, close):
    config = dataclasses.replace(SMALL, morphology=MODELS[name])
    seen, actions, time = pi05.example(config, BATCH)
    noise, times = jnp.zeros((DRAWS, *actions.shape)), jnp.broadcast_to(time, (DRAWS, BATCH))
    tree = counts.shapes(config)

    def learns(name: str) -> bool:
        return kind == "full" or part_of(name) not in ("vision encoder", "language model")

    learnt = map_named(lambda name, x: x if learns(name) else None, tree)
    frozen = map_named(lambda name, x: None if learns(name) else x, tree)

    def gradient(learnt: Any, frozen: Any) -> Any:
        def mean(learnt: Any) -> Any:
            params = jax.tree.map(
                lambda a, b: b if a is None else a, learnt, frozen, is_leaf=lambda x: x is None
            )
            return loss(config, params, seen, actions, noise, times, kind == "expert").mean()

        return jax.grad(mean)(learnt)

    analysis: Any = jax.jit(gradient).lower(learnt, frozen).cost_analysis()
    wanted = counts.training_step(config, BATCH, DRAWS, kind)
    print(f"{name}, {kind}: XLA counts {analysis['flops'] / wanted:.3f} of the formula")
    assert analysis["flops"] == pytest.approx(wanted, rel=close)
