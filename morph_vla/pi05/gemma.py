"""The two-expert transformer: a language model and an action expert that share attention.

Parameters are named as openpi's (`models/gemma.py`): the action expert's carry the suffix `_1`, layers are
stacked along axis 0. Either expert may be absent from a call: the prefix alone fills the cache, the suffix
alone reads it; both together are the joint pass that the cached one must equal.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from morph_vla.pi05.config import Pi05Config

MASKED = -2.3819763e38  # the value Gemma puts where nothing may be seen

Cache = tuple[Float[Array, "l b _s _k _h"], Float[Array, "l b _s _k _h"]]  # keys and values of every layer


def rotate(x: Float[Array, "b t n h"], positions: Int[Array, "b t"]) -> Float[Array, "b t n h"]:
    """Rotary position embedding, computed in float32 and returned in x's type (wavelengths up to 10,000)."""
    exponents = (2.0 / x.shape[-1]) * jnp.arange(x.shape[-1] // 2, dtype=jnp.float32)
    angles = positions[..., None, None].astype(jnp.float32) / (10_000**exponents)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    one, two = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1).astype(x.dtype)


def attention_weights(
    q: Float[Array, "b t n h"],
    k: Float[Array, "b s k h"],
    mask: Bool[Array, "b t s"],
    bias: Float[Array, "b u u"] | None,
) -> Float[Array, "b k g t s"]:
    """softmax(q k^T + bias) where `mask` allows, in float32; n = k * g query heads.

    `bias` is added among the last u queries and keys (the kinematic tokens), drawn for u = 2, t = 3, s = 5:

        0 0 0 0 0
        0 0 0 b b
        0 0 0 b b
    """
    batch, queries, heads, head_dim = q.shape
    groups = q.reshape(batch, queries, k.shape[2], heads // k.shape[2], head_dim)
    logits = jnp.einsum("btkgh,bskh->bkgts", groups, k, preferred_element_type=jnp.float32)
    if bias is not None:
        before = ((0, 0), (queries - bias.shape[1], 0), (k.shape[1] - bias.shape[2], 0))
        logits = logits + jnp.pad(bias, before)[:, None, None]
    return jax.nn.softmax(jnp.where(mask[:, None, None], logits, MASKED), axis=-1)


class RMSNorm(nn.Module):
    """RMS norm; with a condition, adaptive: scale, shift and residual gate come from it (adaRMS).

    openpi starts all three at zero, so that a fresh expert is the identity. `open_gate` starts the gate at
    one: a model trained from scratch then learns from its prefix at once.
    """

    open_gate: bool = False

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], condition: Float[Array, "b d"] | None
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b 1 d"] | None]:
        """The normed tokens and, when conditioned, the gate of the residual that follows."""
        width = x.shape[-1]
        exact = x.astype(jnp.float32)
        normed = exact * jax.lax.rsqrt(jnp.mean(jnp.square(exact), axis=-1, keepdims=True) + 1e-6)
        if condition is None:
            scale = self.param("scale", nn.initializers.zeros, (width,))
            return (normed * (1 + scale)).astype(x.dtype), None
        zeros = nn.initializers.zeros
        modulation = nn.Dense(
            3 * width, kernel_init=zeros, bias_init=_gate_bias if self.open_gate else zeros, dtype=x.dtype
        )(condition)
        scale, shift, gate = jnp.split(modulation[:, None, :], 3, axis=-1)
        # 1 + scale in the model's type, as openpi has it.
        scaled = normed * (1 + scale).astype(jnp.float32) + shift.astype(jnp.float32)
        return scaled.astype(x.dtype), gate


def _gate_bias(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Zero scale and shift, gate one."""
    del key
    return jnp.repeat(jnp.asarray([0, 0, 1], dtype), shape[-1] // 3)


class Weight(nn.Module):
    """One parameter `w`, in a scope of its own as in openpi's einsum modules."""

    shape: tuple[int, ...]
    init: Any

    @nn.compact
    def __call__(self) -> Array:
        """The parameter."""
        return self.param("w", self.init, self.shape)


def project(x: Float[Array, "b t d"], matrix: Float[Array, "d f"]) -> Float[Array, "b t f"]:
    """The product x @ matrix over all tokens as one matrix product.

    The same numbers as a product with batch axes; on a CPU the gradient of the feed-forward alone took
    2.3 ms instead of 9.5.
    """
    return (x.reshape(-1, x.shape[-1]) @ matrix.astype(x.dtype)).reshape(*x.shape[:-1], matrix.shape[-1])


class Attention(nn.Module):
    """Attention over the tokens of both experts, each with projections of its own."""

    config: Pi05Config

    @nn.compact
    def __call__(
        self,
        experts: list[Float[Array, "b _t _d"] | None],
        cache: tuple[Array, Array] | None,
        positions: Int[Array, "b t"],
        mask: Bool[Array, "b t s"],
        bias: Float[Array, "b u u"] | None,
    ) -> tuple[list[Float[Array, "b _t _d"] | None], tuple[Array, Array]]:
        """Attended tokens per expert, and the keys and values of all of them (cached ones first)."""
        config = self.config
        projected = [self._project(i, x) for i, x in enumerate(experts) if x is not None]
        q, k, v = (jnp.concatenate(parts, axis=1) for parts in zip(*projected, strict=True))
        q = rotate(q, positions) * config.head_dim**-0.5
        k = rotate(k, positions)
        if cache is not None:
            k, v = (jnp.concatenate([old, new], axis=1) for old, new in zip(cache, (k, v), strict=True))
        weights = attention_weights(q, k, mask, bias)
        self.sow("intermediates", "weights", weights)
        mixed = jnp.einsum("bkgts,bskh->btkgh", weights.astype(v.dtype), v)
        mixed = mixed.reshape(*mixed.shape[:2], config.heads * config.head_dim)
        out, start = [], 0
        for i, x in enumerate(experts):
            if x is None:
                out.append(None)
                continue
            width, stop = x.shape[-1], start + x.shape[1]
            init = nn.initializers.lecun_normal(in_axis=(-3, -2), out_axis=-1)
            weight = Weight((config.heads, config.head_dim, width), init, name=_name("attn_vec_einsum", i))()
            out.append(project(mixed[:, start:stop], weight.reshape(-1, width)))
            start = stop
        return out, (k, v)

    def _project(self, i: int, x: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values of one expert's tokens."""
        config, width = self.config, x.shape[-1]
        one = nn.initializers.lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(0,))
        two = nn.initializers.lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(0, 1))
        q = Weight((config.heads, width, config.head_dim), one, name=_name("q_einsum", i))()
        kv = Weight((2, config.kv_heads, width, config.head_dim), two, name=_name("kv_einsum", i))()
        # Queries, keys and values side by side: one product instead of three.
        heads = jnp.concatenate([q, *kv]).swapaxes(0, 1).reshape(width, -1)
        parts = project(x, heads).reshape(*x.shape[:2], -1, config.head_dim)
        queries, keys, values = jnp.split(parts, [config.heads, config.heads + config.kv_heads], axis=2)
        return queries, keys, values


class FeedForward(nn.Module):
    """Gated GELU."""

    mlp_dim: int

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        """gelu(x gate) * (x up), then down."""
        width = x.shape[-1]
        gated = nn.initializers.lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(0,))
        gate_up = self.param("gating_einsum", gated, (2, width, self.mlp_dim))
        down = self.param("linear", nn.initializers.lecun_normal(), (self.mlp_dim, width))
        return project(nn.gelu(project(x, gate_up[0])) * project(x, gate_up[1]), down)


class Block(nn.Module):
    """One layer of both experts."""

    config: Pi05Config

    @nn.compact
    def __call__(
        self,
        experts: list[Array | None],
        cache: tuple[Array, Array] | None,
        bias: Array | None,
        positions: Int[Array, "b t"],
        mask: Bool[Array, "b t s"],
        conditions: list[Array | None],
    ) -> tuple[list[Array | None], tuple[Array, Array]]:
        """Attention, then feed-forward, each behind a norm and, for the action expert, a gated residual."""
        normed, gates = self._norm("pre_attention_norm", experts, conditions)
        attended, seen = Attention(self.config, name="attn")(normed, cache, positions, mask, bias)
        experts = _residual(experts, attended, gates)
        normed, gates = self._norm("pre_ffw_norm", experts, conditions)
        widths = (self.config.prefix.mlp_dim, self.config.expert.mlp_dim)
        forwarded = [
            None if x is None else FeedForward(widths[i], name=_name("mlp", i))(x)
            for i, x in enumerate(normed)
        ]
        return _residual(experts, forwarded, gates), seen

    def _norm(
        self, name: str, experts: list[Array | None], conditions: list[Array | None]
    ) -> tuple[list[Array | None], list[Array | None]]:
        normed: list[Array | None] = []
        gates: list[Array | None] = []
        for i, x in enumerate(experts):
            norm = RMSNorm(self.config.init == "scratch", name=_name(name, i))
            y, gate = (None, None) if x is None else norm(x, conditions[i])
            normed.append(y)
            gates.append(gate)
        return normed, gates


class Gemma(nn.Module):
    """The stacked layers, the token embedding and the last norms."""

    config: Pi05Config

    def setup(self) -> None:
        config = self.config
        block = nn.remat(Block, prevent_cse=False) if config.remat else Block
        axes: Any = (0, 0, nn.broadcast, nn.broadcast, nn.broadcast)
        self.layers = nn.scan(
            block,
            variable_axes={"params": 0, "intermediates": 0},
            split_rngs={"params": True},
            in_axes=axes,
            length=config.depth,
            unroll=config.depth if config.unroll else 1,
        )(config)
        self.embedder = Embedder(config.vocab, config.prefix.width, config.init == "scratch")
        self.final_norm = RMSNorm()
        self.final_norm_1 = RMSNorm()

    def embed(self, tokens: Int[Array, "b t"]) -> Float[Array, "b t d"]:
        """Token embeddings, scaled by sqrt(width), in the model's type."""
        return self.embedder(tokens).astype(self.config.dtype)

    def __call__(
        self,
        experts: list[Float[Array, "b _t _d"] | None],
        positions: Int[Array, "b t"],
        mask: Bool[Array, "b t s"],
        *,
        condition: Float[Array, "b d"] | None = None,
        cache: Cache | None = None,
        bias: Float[Array, "l b u u"] | None = None,
    ) -> tuple[list[Float[Array, "b _t _d"] | None], Cache]:
        """Run [prefix, suffix] (either may be None) through all layers.

        `mask[b, t, s]`: token t may see key s, cached keys first. Returns the normed tokens and the cache.
        """
        experts = [None if x is None else x.astype(self.config.dtype) for x in experts]
        conditions = [None, condition]
        experts, seen = self.layers(experts, cache, bias, positions, mask, conditions)
        norms = (self.final_norm, self.final_norm_1)
        normed = [None if x is None else norms[i](x, conditions[i])[0] for i, x in enumerate(experts)]
        return normed, seen


class Embedder(nn.Module):
    """The token table."""

    vocab: int
    width: int
    unit: bool  # from scratch: rows such that scaled embeddings have unit size

    @nn.compact
    def __call__(self, tokens: Int[Array, "b t"]) -> Float[Array, "b t d"]:
        """Rows of the table times sqrt(width)."""
        init = nn.initializers.normal(self.width**-0.5 if self.unit else 0.01)
        table = self.param("input_embedding", init, (self.vocab, self.width))
        return table[tokens] * jnp.sqrt(self.width).astype(table.dtype)


def _residual(
    old: list[Array | None], new: list[Array | None], gates: list[Array | None]
) -> list[Array | None]:
    out: list[Array | None] = []
    for x, y, gate in zip(old, new, gates, strict=True):
        out.append(None if x is None or y is None else x + (y if gate is None else y * gate))
    return out


def _name(name: str, i: int) -> str:
    """Names as openpi has them: the first expert's carry no suffix, so that PaliGemma's load as they are."""
    return name if i == 0 else f"{name}_{i}"
