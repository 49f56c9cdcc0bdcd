"""The mutation list: each mistake that could be made in the host is made, and a recorded run must notice.

A mutation is one of three things: weights read another way (READS), an input ignored (SEES), or a function of
the model replaced (BREAKS). Each is compared with the recorded outputs that the unbroken model equals.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from recorded import (
    NAMES,
    ODD,
    Golden,
    off,
    quick,
    trained,
)

from morph_vla.pi05 import Pi05, gemma, norm, sample_actions, siglip
from morph_vla.pi05 import model as pi05

pytestmark = pytest.mark.slow

LAYERS = "PaliGemma/llm/layers/"
EMBEDDING = "PaliGemma/llm/embedder/input_embedding"


@pytest.fixture(scope="module", params=NAMES)
def golden(request):
    return Golden(request.param)


@pytest.fixture(scope="module")
def ordinary():
    return Golden("pi05_odd")


@pytest.fixture(scope="module")
def small():
    return Golden("pi05_odd_small")


def joint(params, seen, actions, noise, time):
    """The velocity in one pass."""
    x, _ = pi05.interpolate(actions, noise, time)
    return Pi05(ODD).apply({"params": params}, seen, x, time, method=Pi05.velocity_joint)


def sampled(params, seen, noise, steps):
    return sample_actions(ODD, params, seen, noise, steps)


# The unbroken model, compiled once.
intact, intact_joint, intact_sampled = quick(trained), quick(joint), quick(sampled, static_argnums=3)


def test_nothing_broken_is_green(golden):
    assert off(intact(golden.params, golden.seen, *golden.chunk), golden["out/loss"]) < 1
    assert off(intact_joint(golden.params, golden.seen, *golden.chunk), golden["out/v_t"]) < 1
    assert off(intact_sampled(golden.params, golden.seen, golden["in/noise"], 10), golden["out/actions"]) < 1


# ---------------------------------------- weights read another way


def changed(params: Any, name: str, change: Callable[[Any], Any]) -> Any:
    """`params` with one leaf changed."""

    def pick(path: Any, leaf: Any) -> Any:
        return change(leaf) if "/".join(key.key for key in path) == name else leaf

    return jax.tree_util.tree_map_with_path(pick, params)


def thirds(*order: int) -> Callable[[Any], Any]:
    """Another order of the three parts of the last axis."""

    def change(x: Any) -> Any:
        parts = jnp.split(x, 3, axis=-1)
        return jnp.concatenate([parts[i] for i in order], axis=-1)

    return change


READS = {
    "gate and up, VLM": (f"{LAYERS}mlp/gating_einsum", lambda x: x[:, ::-1]),
    "gate and up, expert": (f"{LAYERS}mlp_1/gating_einsum", lambda x: x[:, ::-1]),
    "keys and values, VLM": (f"{LAYERS}attn/kv_einsum/w", lambda x: x[:, ::-1]),
    "keys and values, expert": (f"{LAYERS}attn/kv_einsum_1/w", lambda x: x[:, ::-1]),
    "order of heads, VLM": (f"{LAYERS}attn/q_einsum/w", lambda x: jnp.roll(x, 1, axis=1)),
    "order of heads, expert": (f"{LAYERS}attn/attn_vec_einsum_1/w", lambda x: jnp.roll(x, 1, axis=1)),
    "heads and their width": (
        f"{LAYERS}attn/attn_vec_einsum_1/w",
        lambda x: x.swapaxes(1, 2).reshape(x.shape),
    ),
    "adaRMS: shift before scale": (f"{LAYERS}pre_ffw_norm_1/Dense_0/kernel", thirds(1, 0, 2)),
    "adaRMS: gate before shift": (f"{LAYERS}pre_ffw_norm_1/Dense_0/kernel", thirds(0, 2, 1)),
    "adaRMS: gate first": (f"{LAYERS}pre_attention_norm_1/Dense_0/bias", thirds(2, 0, 1)),
    "last adaRMS: shift before scale": ("PaliGemma/llm/final_norm_1/Dense_0/kernel", thirds(1, 0, 2)),
    "order of layers": (f"{LAYERS}mlp_1/linear", lambda x: x[::-1]),
    "norm: scale instead of 1 + scale": (f"{LAYERS}pre_ffw_norm/scale", lambda x: x - 1),
    "no sqrt(width) on the embedding": (EMBEDDING, lambda x: x * ODD.prefix.width**-0.5),
    "sqrt of the expert's width": (EMBEDDING, lambda x: x * (ODD.expert.width / ODD.prefix.width) ** 0.5),
    "height and width of a patch": ("PaliGemma/img/embedding/kernel", lambda x: x.swapaxes(0, 1)),
    "red and blue": ("PaliGemma/img/embedding/kernel", lambda x: x[:, :, ::-1]),
    "height and width of the positions": (
        "PaliGemma/img/pos_embedding",
        lambda x: x.reshape(1, 3, 3, -1).swapaxes(1, 2).reshape(x.shape),
    ),
    "order of the image encoder's heads": (
        "PaliGemma/img/Transformer/encoderblock/MultiHeadDotProductAttention_0/query/kernel",
        lambda x: jnp.roll(x, 1, axis=2),
    ),
    "no bias of the image head": ("PaliGemma/img/head/bias", jnp.zeros_like),
}


@pytest.mark.parametrize("name", READS)
def test_weights_read_another_way_are_noticed(ordinary, name):
    leaf, change = READS[name]
    wrong = changed(ordinary.params, leaf, change)
    different = [a is not b for a, b in zip(*map(jax.tree.leaves, (wrong, ordinary.params)), strict=True)]
    assert sum(different) == 1
    assert off(intact(wrong, ordinary.seen, *ordinary.chunk), ordinary["out/loss"]) > 10
    assert off(intact_joint(wrong, ordinary.seen, *ordinary.chunk), ordinary["out/v_t"]) > 10


# ---------------------------------------- an input ignored


def cameras(order: tuple[int, ...]) -> Callable[[Any], Any]:
    """Images and masks under other cameras' names."""
    names = dict(zip(ODD.cameras, (ODD.cameras[i] for i in order), strict=True))
    return lambda seen: dataclasses.replace(
        seen,
        images={name: seen.images[other] for name, other in names.items()},
        image_masks={name: seen.image_masks[other] for name, other in names.items()},
    )


SEES = {
    "padding of the prompt": lambda seen: dataclasses.replace(
        seen, token_mask=jnp.ones_like(seen.token_mask)
    ),
    "masks of the cameras": lambda seen: dataclasses.replace(
        seen, image_masks={name: jnp.ones_like(mask) for name, mask in seen.image_masks.items()}
    ),
    "order of the cameras": cameras((1, 0, 2)),
    "order of all cameras": cameras((2, 0, 1)),
    "height and width of the images": lambda seen: dataclasses.replace(
        seen, images={name: image.swapaxes(1, 2) for name, image in seen.images.items()}
    ),
    "images in [0, 1]": lambda seen: dataclasses.replace(
        seen, images={name: image / 2 + 0.5 for name, image in seen.images.items()}
    ),
    "one token further": lambda seen: dataclasses.replace(seen, tokens=jnp.roll(seen.tokens, 1, axis=1)),
}


@pytest.mark.parametrize("name", SEES)
def test_an_input_ignored_is_noticed(ordinary, name):
    wrong = SEES[name](ordinary.seen)
    assert off(intact(ordinary.params, wrong, *ordinary.chunk), ordinary["out/loss"]) > 10
    assert off(intact_joint(ordinary.params, wrong, *ordinary.chunk), ordinary["out/v_t"]) > 10


# ---------------------------------------- a function replaced


class Instead(ModuleType):
    """A module as one file sees it, with some of its names replaced."""

    def __init__(self, module: Any, **names: Any):
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def attention(change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """`attention_weights` of changed arguments."""
    real: Any = gemma.attention_weights

    def apply(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(gemma, "attention_weights", lambda q, k, mask, bias: real(*change(q, k, mask), bias))

    return apply


def rotation(change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """`rotate` of changed arguments."""
    real: Any = gemma.rotate
    return lambda patch: patch.setattr(gemma, "rotate", lambda x, positions: real(*change(x, positions)))


def causal(q: Any, k: Any, mask: Any) -> Any:
    """No token sees a later one."""
    t, s = mask.shape[1:]
    return q, k, mask & jnp.tril(jnp.ones((t, s), bool), s - t)


def all_see_all(q: Any, k: Any, mask: Any) -> Any:
    """The prefix sees the suffix as well."""
    return q, k, jnp.broadcast_to(mask.any(axis=1, keepdims=True), mask.shape)


def counted(x: Any, positions: Any) -> Any:
    """Positions count padding too."""
    start = positions.shape[1] == ODD.horizon  # the suffix, after the cached prefix
    places = jnp.arange(positions.shape[1]) + start * (3 * ODD.patches + ODD.max_tokens)
    return x, jnp.broadcast_to(places, positions.shape)


def restarted(x: Any, positions: Any) -> Any:
    """The suffix starts again at position 0."""
    first = positions.max(axis=1, keepdims=True) + 1 - ODD.horizon
    return x, jnp.where(positions >= first, positions - first, positions)


def base(value: float) -> Callable[[pytest.MonkeyPatch], None]:
    """Rotary positions with another base."""

    def rotate(x: Any, positions: Any) -> Any:
        half = x.shape[-1] // 2
        angles = positions[..., None, None].astype(jnp.float32) / value ** (
            jnp.arange(half, dtype=jnp.float32) / half
        )
        one, two = jnp.split(x, 2, axis=-1)
        sin, cos = jnp.sin(angles), jnp.cos(angles)
        return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)

    return lambda patch: patch.setattr(gemma, "rotate", rotate)


def interleaved(x: Any, positions: Any) -> Any:
    """Pairs of neighbours are rotated instead of halves."""
    return x.reshape(*x.shape[:-1], -1, 2).swapaxes(-1, -2).reshape(x.shape), positions


def gelu(module: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """The exact GELU instead of its tanh approximation."""
    return lambda patch: patch.setattr(module, "nn", Instead(nn, gelu=partial(nn.gelu, approximate=False)))


def rms_epsilon(value: float) -> Callable[[pytest.MonkeyPatch], None]:
    """Another epsilon in RMSNorm."""
    lax = Instead(jax.lax, rsqrt=lambda x: jax.lax.rsqrt(x - 1e-6 + value))
    return lambda patch: patch.setattr(norm, "jax", Instead(jax, lax=lax))


def layer_epsilon(value: float) -> Callable[[pytest.MonkeyPatch], None]:
    """Another epsilon in LayerNorm."""
    other = partial(nn.LayerNorm, epsilon=value)
    return lambda patch: patch.setattr(siglip, "nn", Instead(nn, LayerNorm=other))


def time_embedding(change: Callable[[Any, Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """The time embedding of another time, or its parts in another order."""
    real = pi05.time_embedding
    return lambda patch: patch.setattr(
        pi05, "time_embedding", lambda time, width: change(real, time)(time, width)
    )


def periods(time: Any, width: int) -> Any:
    """Sines and cosines of t itself, without 2 pi."""
    angles = time[:, None] / (4e-3 * 1000 ** jnp.linspace(0.0, 1.0, width // 2))
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def swapped_patches(images: Any, patch: int) -> Any:
    """Patches column by column."""
    batch, height, width, _ = images.shape
    grid = images.reshape(batch, height // patch, patch, width // patch, patch, 3)
    return grid.transpose(0, 3, 1, 2, 4, 5).reshape(batch, -1, patch * patch * 3)


def swish(patch: pytest.MonkeyPatch) -> None:
    """The time's last activation is left out, here both are: gelu instead of swish."""
    patch.setattr(pi05, "nn", Instead(nn, swish=nn.gelu))


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "causal instead of block mask": attention(causal),
    "suffix tokens see only themselves": attention(
        lambda q, k, mask: (
            q,
            k,
            mask & ((jnp.arange(mask.shape[2]) < 47) | jnp.eye(mask.shape[1], mask.shape[2], 47, dtype=bool)),
        )
    ),
    "nothing masked": attention(lambda q, k, mask: (q, k, jnp.ones_like(mask))),
    "no scale of the queries": attention(lambda q, k, mask: (q * ODD.head_dim**0.5, k, mask)),
    "queries scaled by the width per head": attention(
        lambda q, k, mask: (q * (ODD.head_dim * ODD.heads / ODD.prefix.width) ** 0.5, k, mask)
    ),
    "positions count padding": rotation(counted),
    "positions of the suffix restart": rotation(restarted),
    "no positions": rotation(lambda x, positions: (x, 0 * positions)),
    "rotary base 20,000": base(20_000.0),
    "rotation of neighbours": rotation(interleaved),
    "erf GELU in the transformer": gelu(gemma),
    "erf GELU in the image encoder": gelu(siglip),
    "patches column by column": lambda patch: patch.setattr(siglip, "patchify", swapped_patches),
    "cosine before sine of the time": time_embedding(
        lambda real, _: lambda time, width: jnp.roll(real(time, width), width // 2, axis=-1)
    ),
    "time from 1 to 0": time_embedding(lambda real, _: lambda time, width: real(1 - time, width)),
    "time without 2 pi": lambda patch: patch.setattr(pi05, "time_embedding", periods),
    "another activation of the time": swish,
    "noise at t = 0": lambda patch: patch.setattr(
        pi05,
        "interpolate",
        lambda actions, noise, time: (
            time[..., None, None] * actions + (1 - time[..., None, None]) * noise,
            noise - actions,
        ),
    ),
}


def broken(golden: Golden, function: Callable[..., Any], *inputs: Any) -> Any:
    """The function compiled anew: JAX must not answer with what it compiled before."""
    return quick(lambda *inputs: function(*inputs))(golden.params, golden.seen, *inputs)


@pytest.mark.parametrize("name", BREAKS)
def test_a_function_replaced_is_noticed_in_the_velocity(ordinary, monkeypatch, name):
    BREAKS[name](monkeypatch)
    assert off(broken(ordinary, joint, *ordinary.chunk), ordinary["out/v_t"]) > 2


# Of the functions that prefix and suffix go through on their own, in another shape than in the joint pass.
CACHED = (
    "causal instead of block mask",
    "nothing masked",
    "positions count padding",
    "positions of the suffix restart",
    "rotary base 20,000",
    "noise at t = 0",
)


@pytest.mark.parametrize("name", CACHED)
def test_a_function_replaced_is_noticed_in_the_loss(ordinary, monkeypatch, name):
    BREAKS[name](monkeypatch)
    assert off(broken(ordinary, trained, *ordinary.chunk), ordinary["out/loss"]) > 10


@pytest.mark.parametrize(
    ("change", "of"),
    [
        (rms_epsilon(1e-5), "RMSNorm"),
        (rms_epsilon(0.0), "RMSNorm"),
        (layer_epsilon(1e-5), "LayerNorm"),
    ],
)
def test_an_epsilon_is_noticed_where_the_residual_stream_is_small(ordinary, small, monkeypatch, change, of):
    del of
    change(monkeypatch)
    result = quick(lambda *inputs: joint(*inputs))
    assert off(result(small.params, small.seen, *small.chunk), small["out/v_t"]) > 1
    # ... and only there: this is what the second file is for.
    assert off(result(ordinary.params, ordinary.seen, *ordinary.chunk), ordinary["out/v_t"]) < 10


def test_a_target_of_the_other_sign_is_noticed(ordinary, monkeypatch):
    real = pi05.interpolate

    def turned(actions: Any, noise: Any, time: Any) -> Any:
        x, target = real(actions, noise, time)
        return x, -target

    monkeypatch.setattr(pi05, "interpolate", turned)
    assert off(broken(ordinary, trained, *ordinary.chunk), ordinary["out/loss"]) > 10


def euler(start: float, sign: float) -> Callable[..., Any]:
    """Ten steps whose first time is `start`, each along `sign` times the velocity."""

    def sample(params: Any, seen: Any, noise: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            x, time = carry
            v: Any = Pi05(ODD).apply({"params": params}, seen, x, time, method=Pi05.velocity_joint)
            # The time is accumulated in float32: recomputed, it is off by 3e-5 in the actions. A loop,
            # because an older XLA folds ten written-out subtractions into one.
            return x + sign * v / 10, time - 0.1

        return jax.lax.fori_loop(0, 10, step, (noise, jnp.full(2, start, jnp.float32)))[0]

    return sample


def test_the_schedule_of_the_sampler_is_noticed(ordinary):
    noise, wanted = ordinary["in/noise"], ordinary["out/actions"]
    unrolled = quick(lambda start, sign, *inputs: euler(start, sign)(*inputs))
    assert off(unrolled(1.0, -1.0, ordinary.params, ordinary.seen, noise), wanted) < 1
    for start, sign in ((0.9, -1.0), (0.95, -1.0), (1.0, 1.0)):
        assert off(unrolled(start, sign, ordinary.params, ordinary.seen, noise), wanted) > 10
    for steps in (9, 11):
        result = intact_sampled(ordinary.params, ordinary.seen, noise, steps)
        assert off(result, wanted) > 10
