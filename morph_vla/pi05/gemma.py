"""The two-expert transformer: a language model and an action expert that share attention.

Parameters are named as openpi's (`models/gemma.py`): the action expert's carry the suffix `_1`, layers are
stacked along axis 0, unless they are ready to serve (`serving`). Either expert may be absent from a call: the
prefix alone fills the cache, the suffix alone reads it; both are the joint pass that the cached one equals.

A call has two streams of tokens, prefix and suffix, or three: with `start: exact` the action expert's
kinematic tokens come apart from its action tokens. All that the host computes then has the host's own shapes,
so that it has the host's own bits, and a gate that starts at zero adds what actions read from joints.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from morph_vla.morphology.bias import token_bias
from morph_vla.pi05.attention import attention_weights, mix
from morph_vla.pi05.config import LowRank, Pi05Config
from morph_vla.pi05.float8 import Rounded
from morph_vla.pi05.fused import attend, pays
from morph_vla.pi05.lora import Pair, joined, pair_of, project, project_heads
from morph_vla.pi05.norm import RMSNorm

Cache = tuple[Float[Array, "l b _s _k _h"], Float[Array, "l b _s _k _h"]]  # keys and values of every layer
Into = tuple[Float[Array, "_d _f"] | Rounded, Pair | None]  # a matrix and the low-rank pair beside it
Streams = list[Float[Array, "b _t _d"] | None]  # prefix, suffix; or prefix, actions, kinematic tokens
GivenMasks = list[Bool[Array, "b _t"] | None]
"""Of each stream, which tokens are of actions that are known already (`realtime`), at time 0"""


class Modulations(NamedTuple):
    """What adaRMS makes of the time, for every layer: scale, shift and gate side by side."""

    attention: Float[Array, "*n l f"]
    """f = 3 d, before attention"""
    feed_forward: Float[Array, "*n l f"]
    """before the feed-forward"""
    final: Float[Array, "*n f"]
    """of the last norm, whose gate nothing uses"""


class PerLayer(NamedTuple):
    """What differs from layer to layer beside the host's parameters; axis 0 is the layer, until the scan."""

    bias: Float[Array, "*l b j j"] | None = None
    """added among kinematic tokens"""
    gate: Float[Array, "*l n"] | None = None
    """per head: how much of the kinematic tokens action tokens read, where the two come apart"""
    attention: Float[Array, "*l f"] | None = None
    """modulations computed before, as in Modulations"""
    feed_forward: Float[Array, "*l f"] | None = None
    """likewise"""


def rotate(x: Float[Array, "b t n h"], positions: Int[Array, "b t"]) -> Float[Array, "b t n h"]:
    """Rotary position embedding, computed in float32 and returned in x's type (wavelengths up to 10,000)."""
    exponents = (2.0 / x.shape[-1]) * jnp.arange(x.shape[-1] // 2, dtype=jnp.float32)
    angles = positions[..., None, None].astype(jnp.float32) / (10_000**exponents)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


class Weight(nn.Module):
    """One parameter `w`, in a scope of its own as in openpi's einsum modules."""

    shape: tuple[int, ...]
    init: Any
    low: LowRank | None = None

    @nn.compact
    def __call__(self) -> tuple[Array, Pair | None]:
        """The parameter, and the low-rank pair beside it."""
        return self.param("w", self.init, self.shape), pair_of(self, "", self.shape, self.low)


class Attention(nn.Module):
    """Attention over the tokens of both experts, each with projections of its own."""

    config: Pi05Config
    keys_only: bool = False  # nothing attends: keys and values alone are read

    @nn.compact
    def __call__(
        self,
        streams: Streams,
        cache: tuple[Array, Array] | None,
        layer: PerLayer,
        positions: Int[Array, "b t"],
        mask: Bool[Array, "b t s"],
    ) -> tuple[Streams, tuple[Array, Array]]:
        """Attended tokens per stream, and the keys and values of all of them (cached ones first)."""
        into = {i: self._heads(i, x.shape[-1]) for i, x in _present(streams[:2])}
        kinematic = streams[2:]
        joints = sum(x.shape[1] for x in kinematic if x is not None)
        host_tokens = positions.shape[1] - joints
        bias = layer.bias
        if bias is not None and self.config.morphology is not None:
            bias = token_bias(bias, self.config.morphology.copies)
        q, k, v = self._project(streams[:2], into, positions[:, :host_tokens])
        if self.keys_only:
            return streams, (k, v)
        if cache is not None:
            k, v = (jnp.concatenate([old, new], axis=1) for old, new in zip(cache, (k, v), strict=True))
        keys = k.shape[1]
        # The fused kernel takes no bias, which the prefix has none of, and never forms what is sown below.
        is_prefix = streams[1] is None and cache is None
        is_looked_into = self.is_mutable_collection("intermediates")
        if self.config.fused_attention and is_prefix and not is_looked_into and pays(q, k):
            mixed = attend(q, k, v, mask)
            return self._out(streams, mixed.reshape(*mixed.shape[:2], -1)), (k, v)
        weights = attention_weights(q, k, mask[:, :host_tokens, :keys], None if joints else bias)
        mixed = mix(weights, v)
        if joints:
            assert layer.gate is not None
            q2, k2, v2 = self._project([None, *kinematic], into, positions[:, host_tokens:])
            actions = streams[1]
            assert actions is not None
            before = host_tokens - actions.shape[1]
            read = self._read(q[:, -actions.shape[1] :], k2, v2, mask[:, before:host_tokens, keys:])
            read = read * jnp.repeat(layer.gate, self.config.head_dim).astype(read.dtype)
            k, v = jnp.concatenate([k, k2], axis=1), jnp.concatenate([v, v2], axis=1)
            weights = attention_weights(q2, k, mask[:, host_tokens:], bias)
            parts = [mixed[:, :before], mixed[:, before:] + read, mix(weights, v)]
            mixed = jnp.concatenate(parts, axis=1)
        self.sow("intermediates", "weights", weights)
        return self._out(streams, mixed), (k, v)

    def _read(self, q: Array, k: Array, v: Array, mask: Bool[Array, "b t s"]) -> Float[Array, "b t f"]:
        """What action tokens read from kinematic tokens alone: a softmax of their own, 0 without a joint."""
        weights = attention_weights(q, k, mask, None)
        return mix(jnp.where(mask[:, None, None], weights, 0.0), v)

    def _out(self, streams: Streams, mixed: Float[Array, "b t f"]) -> Streams:
        """The attended heads of every stream, back at its width."""
        config, start = self.config, 0
        matrices: dict[int, Into] = {}
        out: Streams = [None] * len(streams)
        for i, x in _present(streams):
            width, stop = x.shape[-1], start + x.shape[1]
            if self.has_variable("params", _name("out", i)):  # `serving`
                matrices[_expert(i)] = self.get_variable("params", _name("out", i)), None
            elif _expert(i) not in matrices:
                init = nn.initializers.lecun_normal(in_axis=(-3, -2), out_axis=-1)
                shape, name = (config.heads, config.head_dim, width), _name("attn_vec_einsum", i)
                w, pair = Weight(shape, init, self._low(i), name=name)()
                matrices[_expert(i)] = w.reshape(-1, width), joined(pair)
            out[i] = project(mixed[:, start:stop], *matrices[_expert(i)], rounded=_rounded(config, i))
            start = stop
        return out

    def _low(self, i: int) -> LowRank | None:
        return None if self.config.lora is None else self.config.lora.of(_expert(i), "attention")

    def _heads(self, i: int, width: int) -> Into:
        """Into queries, keys and values side by side: one product instead of three."""
        config, ready = self.config, _name("qkv", i)
        if self.has_variable("params", ready):  # `serving`
            return self.get_variable("params", ready), None
        of_q = nn.initializers.lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(0,))
        of_kv = nn.initializers.lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(0, 1))
        shape, low = (config.heads, width, config.head_dim), self._low(i)
        q, pair = Weight(shape, of_q, low, name=_name("q_einsum", i))()
        shape = (2, config.kv_heads, width, config.head_dim)
        kv, pairs = Weight(shape, of_kv, low, name=_name("kv_einsum", i))()
        if pair is not None and pairs is not None:
            pair = Pair(*(jnp.concatenate([a, *both]) for a, both in zip(pair, pairs, strict=True)))
        return jnp.concatenate([q, *kv]).swapaxes(0, 1).reshape(width, -1), pair

    def _project(
        self, streams: Streams, into: dict[int, Into], positions: Int[Array, "b t"]
    ) -> tuple[Array, Array, Array]:
        """Queries (scaled) and keys at their positions, and values, of all tokens of these streams."""
        config, parts = self.config, []
        for i, x in _present(streams):
            matrix, pair = into[_expert(i)]
            both = project(x, matrix, rounded=_rounded(config, i))
            both = both.reshape(*x.shape[:2], -1, config.head_dim)
            both = both if pair is None else both + project_heads(x, pair)
            parts.append(jnp.split(both, [config.heads, config.heads + config.kv_heads], axis=2))
        q, k, v = (jnp.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return rotate(q, positions) * config.head_dim**-0.5, rotate(k, positions), v


class FeedForward(nn.Module):
    """Gated GELU."""

    mlp_dim: int
    low: LowRank | None = None
    rounded: bool = False  # products of 8 bits

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        """gelu(x gate) * (x up), then down."""
        width, product = x.shape[-1], partial(project, rounded=self.rounded)
        if self.has_variable("params", "gate_up"):  # `serving`: one product instead of two
            first, second = jnp.split(product(x, self.get_variable("params", "gate_up")), 2, axis=-1)
            return product(nn.gelu(first) * second, self.get_variable("params", "linear"))
        gated = nn.initializers.lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(0,))
        gate_up = self.param("gating_einsum", gated, (2, width, self.mlp_dim))
        down = self.param("linear", nn.initializers.lecun_normal(), (self.mlp_dim, width))
        pairs = pair_of(self, "gating_einsum_", gate_up.shape, self.low)
        gate, up = (None if pairs is None else Pair(pairs.a[i], pairs.b[i]) for i in range(2))
        gated = nn.gelu(product(x, gate_up[0], gate)) * product(x, gate_up[1], up)
        return product(gated, down, pair_of(self, "linear_", down.shape, self.low))


class Block(nn.Module):
    """One layer of both experts; with `keys_only`, as far as its keys and values."""

    config: Pi05Config
    keys_only: bool = False

    @nn.compact
    def __call__(
        self,
        streams: Streams,
        cache: tuple[Array, Array] | None,
        layer: PerLayer,
        positions: Int[Array, "b t"],
        mask: Bool[Array, "b t s"],
        condition: Float[Array, "b *k d"] | None,
        given: GivenMasks | None,
    ) -> tuple[Streams, tuple[Array, Array]]:
        """Attention, then feed-forward, each behind a norm and, for the action expert, a gated residual."""
        normed, gates = self._norm("pre_attention_norm", streams, condition, layer.attention, given)
        attention = Attention(self.config, self.keys_only, name="attn")
        attended, seen = attention(normed, cache, layer, positions, mask)
        if self.keys_only:
            return streams, seen
        streams = _residual(streams, attended, gates)
        normed, gates = self._norm("pre_ffw_norm", streams, condition, layer.feed_forward, given)
        widths = (self.config.prefix.mlp_dim, self.config.expert.mlp_dim)
        low = [self.config.lora and self.config.lora.of(i, "feed-forward") for i in range(2)]
        forward = [
            FeedForward(width, low[i], _rounded(self.config, i), name=_name("mlp", i))
            for i, width in enumerate(widths)
        ]
        forwarded = [None if x is None else forward[_expert(i)](x) for i, x in enumerate(normed)]
        return _residual(streams, forwarded, gates), seen

    def _norm(
        self,
        name: str,
        streams: Streams,
        condition: Array | None,
        modulation: Array | None,
        given: GivenMasks | None,
    ) -> tuple[Streams, list[Array | None]]:
        normed: list[Array | None] = [None] * len(streams)
        gates: list[Array | None] = [None] * len(streams)
        norms = [RMSNorm(self.config.init == "scratch", name=_name(name, i)) for i in range(2)]
        for i, x in _present(streams):
            known = given[i] if given else None
            normed[i], gates[i] = norms[1](x, condition, modulation, known) if i else norms[0](x, None)
        return normed, gates


class Gemma(nn.Module):
    """The stacked layers, the token embedding and the last norms."""

    config: Pi05Config

    def setup(self) -> None:
        config = self.config
        block = nn.remat(Block, prevent_cse=False) if config.remat else Block
        axes: Any = (0, 0, *[nn.broadcast] * 4)  # cache, layer; positions, mask, condition, given
        self.unstacked = self.has_variable("params", "layers_0")  # `serving`: no stack to slice out of
        if self.unstacked:
            self.layers = [Block(config) for _ in range(config.depth)]
        else:
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
        streams: Streams,
        positions: Int[Array, "b t"],
        mask: Bool[Array, "b t s"],
        *,
        condition: Float[Array, "b *k d"] | None = None,
        cache: Cache | None = None,
        bias: Float[Array, "l b j j"] | None = None,
        gate: Float[Array, "l n"] | None = None,
        modulations: Modulations | None = None,
        given: GivenMasks | None = None,
    ) -> tuple[Streams, Cache]:
        """Run [prefix, suffix] or [prefix, actions, kinematic tokens] through all layers; any may be None.

        `mask[b, t, s]`: token t may see key s, cached keys first. `bias` is added among the last tokens, the
        kinematic ones. `given` tokens have the second of two conditions, or modulations. Returns the normed
        tokens and the cache.
        """
        streams = [None if x is None else x.astype(self.config.dtype) for x in streams]
        before, after, last = (None, None, None) if modulations is None else modulations
        layers = PerLayer(bias, gate, before, after)
        run = self._in_turn if self.unstacked else cast("Block", self.layers)
        streams, seen = run(streams, cache, layers, positions, mask, condition, given)
        normed: Streams = [None] * len(streams)
        for i, x in _present(streams):
            known = given[i] if given else None
            normed[i], _ = self.final_norm_1(x, condition, last, known) if i else self.final_norm(x, None)
        return normed, seen

    def _in_turn(
        self, streams: Streams, cache: Cache | None, layers: PerLayer, *shared: Any
    ) -> tuple[Streams, Cache]:
        """The scan over layers written out, for layers that have leaves of their own."""
        seen = []
        for i, block in enumerate(cast("list[Block]", self.layers)):
            inputs = jax.tree.map(lambda leaf, i=i: leaf[i], (cache, layers))
            streams, new = block(streams, *inputs, *shared)
            seen.append(new)
        return streams, _stacked(seen)

    def keys_values(
        self, tokens: Float[Array, "b p d"], positions: Int[Array, "b p"], mask: Bool[Array, "b p p"]
    ) -> Cache:
        """The prefix's cache, for a forward pass: what its last layer makes and nobody reads is left out.

        Layers are picked out of their stack one by one, so that nothing of it is copied; a gradient for them
        would be gathered stack by stack, and is `__call__`'s to make.
        """
        config, stored = self.config, self.variables["params"]

        def run(i: Any, x: Array, keys_only: bool) -> tuple[Streams, tuple[Array, Array]]:
            if self.unstacked:
                params = stored[f"layers_{i}"]
            else:
                pick = partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False)
                params = jax.tree.map(pick, stored["layers"])
            block: Any = Block(config, keys_only, parent=None)  # no module of this one: given its leaves
            return block.apply({"params": params}, [x, None], None, PerLayer(), positions, mask, None, None)

        def step(x: Array, i: Any) -> tuple[Array, tuple[Array, Array]]:
            streams, seen = run(i, x, keys_only=False)
            assert streams[0] is not None
            return streams[0], seen

        x, before = tokens.astype(config.dtype), config.depth - 1
        if self.unstacked:
            each = []
            for i in range(before):
                x, new = step(x, i)
                each.append(new)
            return _stacked([*each, run(before, x, keys_only=True)[1]])
        unroll = max(1, before) if config.unroll else 1
        x, seen = jax.lax.scan(step, x, jnp.arange(before), unroll=unroll)
        _, last = run(before, x, keys_only=True)
        keys, values = (jnp.concatenate([old, new[None]]) for old, new in zip(seen, last, strict=True))
        return keys, values


def _stacked(seen: list[tuple[Array, Array]]) -> Cache:
    """Keys and values of every layer."""
    keys, values = map(jnp.stack, zip(*seen, strict=True))
    return keys, values


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
    return [
        None if x is None or y is None else x + (y if gate is None else y * gate)
        for x, y, gate in zip(old, new, gates, strict=True)
    ]


def _present(streams: Streams) -> list[tuple[int, Array]]:
    """The streams that are there, with their numbers."""
    return [(i, x) for i, x in enumerate(streams) if x is not None]


def _expert(i: int) -> int:
    """Whose parameters stream i has: 0 the language model's, 1 the action expert's."""
    return min(i, 1)


def _rounded(config: Pi05Config, i: int) -> bool:
    """Whether stream i is multiplied in 8 bits: the prefix, where the recipe says so."""
    return config.prefix_float8 and _expert(i) == 0


def _name(name: str, i: int) -> str:
    """Names as openpi has them: the first expert's carry no suffix, so that PaliGemma's load as they are."""
    return f"{name}_1" if _expert(i) else name
