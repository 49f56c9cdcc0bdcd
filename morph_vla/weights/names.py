"""Names and shapes: openpi's leaves, LeRobot's entries, and how one is the other.

openpi stacks the layers of a stack into one leaf and keeps heads as axes of their own; LeRobot has an entry
per layer and matrices of PyTorch's order (output, input). So one leaf is made of several *pieces*: a slice of
the leaf, a permutation of its axes, and the grouping of the permuted axes into those of the entry.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from morph_vla.pi05.config import GemmaConfig, Pi05Config, VitConfig
from morph_vla.pi05.parts import ALL as ALL
from morph_vla.pi05.parts import OF_HEAD
from morph_vla.pi05.parts import part_of as part_of

Shape = tuple[int, ...]

PLUGIN = "morphology"  # the plugin's leaves are those under it
IMAGE_TOKENS = "image_tokens"  # those of `pi05.image_tokens` are under it
HEAD_LEAF = "head/queries"  # which a model that does not denoise has
ENVIRONMENT = "environment_in_proj"  # of poses in place of images
OURS = (PLUGIN, IMAGE_TOKENS, *OF_HEAD)  # what no other program's pi0.5 has


def left_out(config: Pi05Config | None) -> tuple[str, ...]:
    """Entries of another pi0.5 that a model has no use for: with `model.head`, what reads the velocity."""
    if config is None or config.head is None:
        return ()
    return ("action_out_proj", "action_out_proj.weight", "action_out_proj.bias")


_TOWER = "paligemma_with_expert.paligemma.model.vision_tower.vision_model"
_PROJECTOR = "paligemma_with_expert.paligemma.model.multi_modal_projector.linear"
_VLM = "paligemma_with_expert.paligemma.model.language_model"
_EXPERT = "paligemma_with_expert.gemma_expert.model"
EMBEDDING = f"{_VLM}.embed_tokens.weight"
# The embedding once more; the Hub's file has only this.
HEAD = "paligemma_with_expert.paligemma.lm_head.weight"
EXPERT_HEAD = "paligemma_with_expert.gemma_expert.lm_head.weight"  # never used; a strict load wants it
PREFIX = "model."  # of every name in PI05Policy, of none in the Hub's file


def is_lora(leaf: str) -> bool:
    """Whether a leaf is half of a low-rank pair.

    >>> is_lora("PaliGemma/llm/layers/mlp_1/linear_lora_a"), is_lora("PaliGemma/llm/layers/mlp_1/linear")
    (True, False)
    """
    return leaf.endswith(("lora_a", "lora_b"))


@dataclasses.dataclass(frozen=True)
class Piece:
    """One entry of a file and the slice of the leaf that it is."""

    entry: str
    index: tuple[int, ...]  # which slice of the leaf
    shape: Shape  # of the slice
    axes: tuple[int, ...]  # permutation of the slice's axes
    groups: tuple[int, ...]  # how many of the permuted axes each axis of the entry joins
    alias: str = ""  # another name under which the same values may stand

    @property
    def entry_shape(self) -> Shape:
        """The shape under which the file holds it: axes permuted, and joined in groups."""
        permuted = iter(self.shape[axis] for axis in self.axes)
        return tuple(math.prod(itertools.islice(permuted, group)) for group in self.groups)

    @property
    def is_plain(self) -> bool:
        """Whether slice and entry have the same axes in the same order."""
        return self.axes == tuple(range(len(self.shape))) and set(self.groups) <= {1}

    def to_entry(self, slice_: np.ndarray) -> np.ndarray:
        """The entry of a slice; a view where it can be one."""
        return slice_.transpose(self.axes).reshape(self.entry_shape)

    def to_slice(self, entry: np.ndarray) -> np.ndarray:
        """The slice of an entry: the inverse of `to_entry`."""
        permuted = entry.reshape(tuple(self.shape[axis] for axis in self.axes))
        return permuted.transpose(np.argsort(self.axes))


def own_piece(leaf: str, shape: Shape) -> Piece:
    """The piece of a leaf that is stored under its own name."""
    return Piece(leaf, (), shape, tuple(range(len(shape))), (1,) * len(shape))


# openpi <-> LeRobot: leaf, entries, axes, groups. {i} in an entry's name: the leaf's first axis is layers.
# Two entries are the two slices of the axis that follows.

_SAME, _LINEAR = ((0,), (1,)), ((1, 0), (1, 1))
_Rule = tuple[str, tuple[str, ...], tuple[int, ...], tuple[int, ...]]


def _dense(leaf: str, entry: str) -> list[_Rule]:
    return [(f"{leaf}/kernel", (f"{entry}.weight",), *_LINEAR), (f"{leaf}/bias", (f"{entry}.bias",), *_SAME)]


def _norm(leaf: str, entry: str) -> list[_Rule]:
    return [(f"{leaf}/scale", (f"{entry}.weight",), *_SAME), (f"{leaf}/bias", (f"{entry}.bias",), *_SAME)]


def _image_rules() -> Iterator[_Rule]:
    image, block = "PaliGemma/img", "PaliGemma/img/Transformer/encoderblock"
    layer = f"{_TOWER}.encoder.layers.{{i}}"
    embeddings = f"{_TOWER}.embeddings"
    yield f"{image}/embedding/kernel", (f"{embeddings}.patch_embedding.weight",), (3, 2, 0, 1), (1,) * 4
    yield f"{image}/embedding/bias", (f"{embeddings}.patch_embedding.bias",), *_SAME
    # (1, patches, width) in openpi: the first axis joins that of the patches.
    yield f"{image}/pos_embedding", (f"{embeddings}.position_embedding.weight",), (0, 1, 2), (2, 1)
    yield from _norm(f"{block}/LayerNorm_0", f"{layer}.layer_norm1")
    yield from _norm(f"{block}/LayerNorm_1", f"{layer}.layer_norm2")
    attention = f"{block}/MultiHeadDotProductAttention_0"
    for long, short in (("query", "q"), ("key", "k"), ("value", "v")):
        entry = f"{layer}.self_attn.{short}_proj"
        yield f"{attention}/{long}/kernel", (f"{entry}.weight",), (1, 2, 0), (2, 1)
        yield f"{attention}/{long}/bias", (f"{entry}.bias",), (0, 1), (2,)
    yield f"{attention}/out/kernel", (f"{layer}.self_attn.out_proj.weight",), (2, 0, 1), (1, 2)
    yield f"{attention}/out/bias", (f"{layer}.self_attn.out_proj.bias",), *_SAME
    yield from _dense(f"{block}/MlpBlock_0/Dense_0", f"{layer}.mlp.fc1")
    yield from _dense(f"{block}/MlpBlock_0/Dense_1", f"{layer}.mlp.fc2")
    yield from _norm(f"{image}/Transformer/encoder_norm", f"{_TOWER}.post_layernorm")
    yield from _dense(f"{image}/head", _PROJECTOR)


def _expert_rules(suffix: str, model: str) -> Iterator[_Rule]:
    """`suffix` is "" for the VLM's transformer, "_1" for the action expert's."""
    layers, layer = "PaliGemma/llm/layers", f"{model}.layers.{{i}}"
    attention = f"{layer}.self_attn"
    yield f"{layers}/attn/q_einsum{suffix}/w", (f"{attention}.q_proj.weight",), (0, 2, 1), (2, 1)
    pair = (f"{attention}.k_proj.weight", f"{attention}.v_proj.weight")
    yield f"{layers}/attn/kv_einsum{suffix}/w", pair, (0, 2, 1), (2, 1)
    yield f"{layers}/attn/attn_vec_einsum{suffix}/w", (f"{attention}.o_proj.weight",), (2, 0, 1), (1, 2)
    pair = (f"{layer}.mlp.gate_proj.weight", f"{layer}.mlp.up_proj.weight")
    yield f"{layers}/mlp{suffix}/gating_einsum", pair, *_LINEAR
    yield f"{layers}/mlp{suffix}/linear", (f"{layer}.mlp.down_proj.weight",), *_LINEAR
    norms = (
        (f"{layers}/pre_attention_norm", f"{layer}.input_layernorm"),
        (f"{layers}/pre_ffw_norm", f"{layer}.post_attention_layernorm"),
        ("PaliGemma/llm/final_norm", f"{model}.norm"),
    )
    for leaf, entry in norms:
        if suffix:  # adaRMS: a Dense that makes scale, shift and gate
            yield from _dense(f"{leaf}{suffix}/Dense_0", f"{entry}.dense")
        else:
            yield f"{leaf}/scale", (f"{entry}.weight",), *_SAME


def _rules() -> Iterator[_Rule]:
    yield from _image_rules()
    yield "PaliGemma/llm/embedder/input_embedding", (EMBEDDING,), (0, 1), (1, 1)
    yield from _expert_rules("", _VLM)
    yield from _expert_rules("_1", _EXPERT)
    for name in ("action_in_proj", "time_mlp_in", "time_mlp_out", "action_out_proj"):
        yield from _dense(name, name)


_BY_LEAF = {rule[0]: rule for rule in _rules()}


def is_lerobots(leaf: str) -> bool:
    """Whether LeRobot's pi0.5 has a leaf of openpi's."""
    return leaf in _BY_LEAF


def lerobot_pieces(leaf: str, shape: Shape) -> list[Piece]:
    """LeRobot's entries of openpi's leaf `leaf` with `shape`, without the prefix `model.`.

    Raises KeyError for a leaf that LeRobot does not have (the plugin's).
    """
    _, entries, axes, groups = _BY_LEAF[leaf]
    layers = [(i,) for i in range(shape[0])] if "{i}" in entries[0] else [()]
    pairs = [()] if len(entries) == 1 else [(0,), (1,)]
    rest, alias = shape[len(shape) - len(axes) :], HEAD if entries == (EMBEDDING,) else ""
    return [
        Piece(entry.format(i=layer[0] if layer else None), (*layer, *pair), rest, axes, groups, alias)
        for layer in layers
        for entry, pair in zip(entries, pairs, strict=True)
    ]


LEROBOT_HEADS, LEROBOT_VIT_HEADS = 8, 16  # fixed in LeRobot's class: its files do not say


def config_of(shapes: Mapping[str, Shape]) -> Pi05Config:
    """The host's sizes, from the shapes of openpi's leaves; what no shape tells keeps its default.

    One that reads poses of objects may have no camera. Raises KeyError when a leaf that is needed is missing,
    ValueError or IndexError when one has too few axes.
    """
    layers, image = "PaliGemma/llm/layers", "PaliGemma/img"
    vocab, width = shapes["PaliGemma/llm/embedder/input_embedding"]
    depth, heads, _, head_dim = shapes[f"{layers}/attn/q_einsum/w"]
    _, _, kv_heads, _, _ = shapes[f"{layers}/attn/kv_einsum/w"]
    action_dim, expert_width = shapes["action_in_proj/kernel"]
    environment, _ = shapes.get(f"{ENVIRONMENT}/kernel", (0, 0))
    is_blind = environment > 0 and not any(name.startswith(f"{image}/") for name in shapes)
    return Pi05Config(
        vocab=vocab,
        **_vision(shapes, image, is_blind),
        environment=environment,
        prefix=GemmaConfig(width=width, mlp_dim=shapes[f"{layers}/mlp/linear"][1]),
        expert=GemmaConfig(width=expert_width, mlp_dim=shapes[f"{layers}/mlp_1/linear"][1]),
        depth=depth,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        action_dim=action_dim,
    )


def _vision(shapes: Mapping[str, Shape], image: str, is_blind: bool) -> dict[str, Any]:
    """`image_size` and `vit` of `Pi05Config`, from the vision encoder's leaves, or that there are none."""
    if is_blind:
        return {"cameras": ()}
    patch, _, _, width = shapes[f"{image}/embedding/kernel"]
    block = f"{image}/Transformer/encoderblock"
    depth, _, heads, _ = shapes[f"{block}/MultiHeadDotProductAttention_0/query/kernel"]
    _, _, mlp_dim = shapes[f"{block}/MlpBlock_0/Dense_0/kernel"]
    patches = shapes[f"{image}/pos_embedding"][1]
    vit = VitConfig(width=width, depth=depth, mlp_dim=mlp_dim, heads=heads, patch=patch)
    return {"image_size": math.isqrt(patches) * patch, "vit": vit}


def lerobot_config_of(
    shapes: Mapping[str, Shape], heads: int = LEROBOT_HEADS, vit_heads: int = LEROBOT_VIT_HEADS
) -> Pi05Config:
    """The same from LeRobot's entries (without prefix), whose shapes do not tell the numbers of heads.

    Raises KeyError when an entry that is needed is missing, ValueError when one has too few axes.
    """
    patches, _ = shapes[f"{_TOWER}.embeddings.position_embedding.weight"]
    vit_width, _, patch, _ = shapes[f"{_TOWER}.embeddings.patch_embedding.weight"]
    vit_depth = _layers(shapes, f"{_TOWER}.encoder.layers.")
    (vit_mlp_dim,) = shapes[f"{_TOWER}.encoder.layers.0.mlp.fc1.bias"]
    queries, width = shapes[f"{_VLM}.layers.0.self_attn.q_proj.weight"]
    keys, _ = shapes[f"{_VLM}.layers.0.self_attn.k_proj.weight"]
    expert_width, action_dim = shapes["action_in_proj.weight"]
    vocab, _ = shapes[HEAD if HEAD in shapes else EMBEDDING]
    if queries % heads:
        raise ValueError(f"{heads} heads do not divide queries of {queries} values")
    head_dim = queries // heads
    return Pi05Config(
        vocab=vocab,
        image_size=math.isqrt(patches) * patch,
        vit=VitConfig(width=vit_width, depth=vit_depth, mlp_dim=vit_mlp_dim, heads=vit_heads, patch=patch),
        prefix=GemmaConfig(width=width, mlp_dim=shapes[f"{_VLM}.layers.0.mlp.up_proj.weight"][0]),
        expert=GemmaConfig(width=expert_width, mlp_dim=shapes[f"{_EXPERT}.layers.0.mlp.up_proj.weight"][0]),
        depth=_layers(shapes, f"{_VLM}.layers."),
        heads=heads,
        kv_heads=max(1, keys // head_dim),
        head_dim=head_dim,
        action_dim=action_dim,
    )


def _layers(shapes: Mapping[str, Shape], prefix: str) -> int:
    return len({name[len(prefix) :].split(".")[0] for name in shapes if name.startswith(prefix)})
