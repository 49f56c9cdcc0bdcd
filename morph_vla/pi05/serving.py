"""Parameters ready to serve: in the type that the model multiplies them in, and laid out as it reads them.

Trained parameters and their average are float32, and a bfloat16 model rounds most of them whenever it uses
them: 18 layers, ten times a call. Rounded once, as they are read, they take half the memory, and act the
same. Norms' scales, patches, positions, embeddings, projections and the plugin are used in the type that they
have, and stay.

A stack of layers is sliced anew in every step of the sampler, and what is multiplied side by side is put side
by side there. Ready to serve, each layer has leaves of its own:

    trained                                              ready, of layer i
    llm/layers/LEAF                  [l ...]             llm/layers_i/LEAF                [...]
    img/Transformer/encoderblock/... [l ...]             img/Transformer/encoderblock_i/...
    attn/q_einsum/w                  [l n d h]           attn/qkv                         [d (n+2k)h]
    attn/kv_einsum/w                 [l 2 k d h]
    attn/attn_vec_einsum/w           [l n h d]           attn/out                         [(nh) d]
    mlp/gating_einsum                [l 2 d f]           mlp/gate_up                      [d 2f]

With `prefix_float8` the language model's qkv, out, gate_up and linear are `float8.Rounded` here instead of in
every call: a byte a number, and the same products to the bit. The vision encoder's, an eighth as many, are
still rounded in the call.

The modules see by their leaves which form they were given. Products are of other shapes, so that numbers are
equal to rounding.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from jaxtyping import Array, Float

from morph_vla.pi05 import float8
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.float8 import Rounded
from morph_vla.pi05.memory import aligned_copy

ROUNDED = re.compile(
    r"PaliGemma/llm/layers/attn/(q|kv|attn_vec)_einsum(_1)?/w"
    r"|PaliGemma/llm/layers/mlp(_1)?/(gating_einsum|linear)"
    r"|PaliGemma/llm/.*norm_1/Dense_0/(kernel|bias)"  # adaRMS
    r"|PaliGemma/img/Transformer/.*/(kernel|bias)"
    r"|PaliGemma/img/head/(kernel|bias)"
)
NORM = re.compile(r"PaliGemma/img/.*norm|.*LayerNorm")
STACK = re.compile(r"(PaliGemma/(?:llm/layers|img/Transformer/encoderblock))/(.+)")
HEADS = re.compile(r"attn/(q|kv)_einsum(_1)?/w")
GATED = re.compile(r"(mlp(?:_1)?)/gating_einsum")
OUT = re.compile(r"attn/attn_vec_einsum(_1)?/w")
IN_8_BITS = re.compile(r"PaliGemma/llm/layers/(attn/(q|kv|attn_vec)_einsum/w|mlp/(gating_einsum|linear))")

Leaf = Array | np.ndarray | Iterator[np.ndarray]
"""A leaf as it is trained; a stack may come layer by layer, each in memory of its own that it gives away"""


def served_type(config: Pi05Config, leaf: str) -> str | None:
    """The type that a leaf of that name is served in; None leaves it as it is.

    >>> served_type(Pi05Config(), "PaliGemma/llm/layers/mlp_1/linear")
    'bfloat16'
    """
    rounded = ROUNDED.fullmatch(leaf) and not NORM.match(leaf)
    return config.dtype if rounded and config.dtype != "float32" else None


def is_stack(leaf: str) -> bool:
    """Whether a leaf is a stack of layers.

    >>> is_stack("PaliGemma/llm/layers/mlp_1/linear"), is_stack("PaliGemma/llm/final_norm/scale")
    (True, False)
    """
    return STACK.fullmatch(leaf) is not None


def layers(leaf: str, value: np.ndarray) -> np.ndarray | list[np.ndarray]:
    """A stack as a list of copies of its layers, so that each can be let go by itself; others as they are."""
    return [aligned_copy(layer) for layer in value] if is_stack(leaf) else value


def let_go(leaf: np.ndarray | list[np.ndarray]) -> Leaf:
    """What `layers` made as `ready` takes it: a list is emptied one by one."""
    return (leaf.pop(0) for _ in range(len(leaf))) if isinstance(leaf, list) else leaf


def ready(config: Pi05Config, leaves: Iterable[tuple[str, Leaf]]) -> dict[str, Any]:
    """The parameters as `sample_actions` takes them soonest, from those that were trained.

    `leaves` are names and arrays of all leaves but low-rank pairs, which are merged before. They are asked
    for one by one, and none is kept: where nobody else holds them, the most that is held is all parameters
    and one leaf, or twice a layer of a stack that comes layer by layer. On a CPU, arrays in their served type
    are taken over without a copy (`memory.aligned`): they are not to be changed afterwards.
    """
    served: dict[str, Array | Rounded] = {}
    for name, leaf in leaves:
        in_8_bits = config.prefix_float8 and IN_8_BITS.fullmatch(name) is not None
        _add(served, name, leaf, served_type(config, name), in_8_bits)
        del leaf  # before the next one is read
    return unflatten_dict(served, sep="/")


def _add(
    served: dict[str, Array | Rounded], name: str, leaf: Leaf, dtype: str | None, in_8_bits: bool
) -> None:
    """Take a leaf in; queries come together with keys and values when both are there."""
    stack = STACK.fullmatch(name)
    if stack is None:
        assert not isinstance(leaf, Iterator)
        served[name] = jnp.asarray(leaf, dtype or leaf.dtype)
        return
    for i, layer in enumerate(_each(leaf)):
        place = f"{stack[1]}_{i}"
        matrix = jnp.asarray(_laid_out(stack[2], layer), dtype or layer.dtype)
        del layer  # before the next one is read
        value = _in_8_bits(matrix) if in_8_bits else matrix
        if heads := HEADS.fullmatch(stack[2]):
            part, suffix = heads[1], heads[2] or ""
            other = served.pop(f"{place}/attn/{'kv' if part == 'q' else 'q'}{suffix}", None)
            if other is None:
                served[f"{place}/attn/{part}{suffix}"] = value
                continue
            sides = (value, other) if part == "q" else (other, value)
            served[f"{place}/attn/qkv{suffix}"] = jax.tree.map(_side_by_side, *sides)
        else:
            served[place + "/" + OUT.sub(r"attn/out\1", GATED.sub(r"\1/gate_up", stack[2]))] = value


def _side_by_side(left: Array, right: Array) -> Array:
    return jnp.concatenate([left, right], axis=1)


@jax.jit
def _in_8_bits(matrix: Float[Array, "d f"]) -> Rounded:
    """Each column by its own size; compiled, so that nothing of the matrix's size is made in float32."""
    return float8.rounded(matrix, axis=0)


def _each(leaf: Leaf) -> Iterator[Array | np.ndarray]:
    """The layers of a stack. JAX lets go of what it is given when it likes: no view of the stack."""
    if isinstance(leaf, Iterator):
        yield from leaf
        return
    for i in range(len(leaf)):
        layer = leaf[i]
        yield aligned_copy(layer) if isinstance(layer, np.ndarray) else layer


def _laid_out(leaf: str, layer: Array | np.ndarray) -> Array | np.ndarray:
    """A layer's weight as one matrix, where that is another one."""
    if OUT.fullmatch(leaf):  # [n h d]
        return layer.reshape(-1, layer.shape[-1])
    if HEADS.fullmatch(leaf):  # [n d h] or [2 k d h]
        sides = layer.reshape(-1, *layer.shape[-2:]).swapaxes(0, 1)
    elif GATED.fullmatch(leaf):
        sides = layer.swapaxes(0, 1)
    else:
        return layer
    own = aligned_copy(sides) if isinstance(sides, np.ndarray) else sides
    return own.reshape(len(own), -1)
