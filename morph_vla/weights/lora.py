"""Low-rank pairs in a checkpoint: which leaves they are, whose, and what the weights are with them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import Lora, LowRank
from morph_vla.weights.checkpoint import Checkpoint, flat, nested, recipe_model
from morph_vla.weights.names import is_lora

TARGETS = {"attention": "attn/", "feed-forward": "mlp"}  # what a target's leaves begin with, in a layer
EXPERTS = ("language_model", "action_expert")
PAIRED = ("w", "a", "b")  # what makes a merged weight


def weight_of(leaf: str) -> str:
    """The weight that a half stands beside.

    >>> weight_of("PaliGemma/llm/layers/attn/q_einsum/lora_b")
    'PaliGemma/llm/layers/attn/q_einsum/w'
    >>> weight_of("PaliGemma/llm/layers/mlp/gating_einsum_lora_a")
    'PaliGemma/llm/layers/mlp/gating_einsum'
    """
    owner, _, half = leaf.rpartition("/")
    return f"{owner}/w" if half in ("lora_a", "lora_b") else leaf[: -len("_lora_a")]


def lora_of(opened: Checkpoint) -> Lora | None:
    """The pairs that a checkpoint holds: ranks and targets from its shapes, alpha from its recipe.

    One that comes without a recipe has alpha = rank, as openpi's variants have. Which parts learn whole no
    checkpoint needs to say. Raises MorphVlaError for pairs of several ranks in one expert.
    """
    halves = [name for name in opened.entries if is_lora(name)]
    if not halves:
        return None
    settings = recipe_model(opened).get("lora") or {}
    model, expert = (_low_rank(opened, halves, which, settings.get(EXPERTS[which])) for which in (0, 1))
    return Lora(model, expert)


def _low_rank(opened: Checkpoint, halves: Sequence[str], expert: int, setting: Any) -> LowRank | None:
    """The pairs of one expert; `setting` is what the recipe has for it."""
    first = [name for name in halves if _expert(name) == expert and name.endswith("lora_a")]
    ranks = {opened.entries[name].shape[-1] for name in first}
    if len(ranks) > 1:
        raise MorphVlaError(
            f"{opened.path}: the {EXPERTS[expert].replace('_', ' ')} has low-rank pairs of several ranks "
            f"({', '.join(map(str, sorted(ranks)))}); our models have one rank per expert"
        )
    if not ranks:
        return None
    (rank,) = ranks
    targets: Any = tuple(t for t, start in TARGETS.items() if any(f"layers/{start}" in n for n in first))
    return LowRank(rank, float(setting["alpha"] if isinstance(setting, dict) else rank), targets)


def _expert(leaf: str) -> int:
    return int(any(part.endswith("_1") for part in leaf.split("/")))


def same_pairs(one: Lora | None, other: Lora | None) -> bool:
    """Whether the two have the same leaves under the same factors (order of targets aside)."""
    left, right = (
        [(low.rank, low.alpha, {*low.targets}) if low else None for low in _low_ranks(lora)]
        for lora in (one, other)
    )
    return left == right


def _low_ranks(lora: Lora | None) -> tuple[LowRank | None, LowRank | None]:
    return (lora.language_model, lora.action_expert) if lora else (None, None)


def merge_lora(params: Mapping[str, Any], lora: Lora) -> dict[str, Any]:
    """The parameters without pairs, whose weights are W + (alpha / rank) A B: the same model to rounding.

    Added up in float32 and rounded to the weight's own type.
    """
    return nested(dict(merging(flat(params).items(), lora)))


def merging(leaves: Iterable[tuple[str, Any]], lora: Lora) -> Iterator[tuple[str, Any]]:
    """The same of names and leaves that come one by one; a weight is held until its pair is there."""
    held: dict[str, dict[str, Any]] = {}
    for name, leaf in leaves:
        target = next((t for t, start in TARGETS.items() if f"layers/{start}" in name), "")
        low = lora.of(_expert(name), target)
        if low is None and is_lora(name):
            raise _unknown(name)
        if low is None:
            yield name, leaf
        else:
            weight = weight_of(name) if is_lora(name) else name
            group = held.setdefault(weight, {})
            group["w" if weight == name else name[-1]] = np.asarray(leaf)
            if len(group) == len(PAIRED):
                del held[weight]
                yield weight, _merged(weight, group.pop("w"), group.pop("a"), group.pop("b"), low)
        del leaf  # before the next one is read


def _merged(leaf: str, weight: Any, a: Any, b: Any, low: LowRank) -> np.ndarray:
    """A layer at a time: in float32 a stack of the full model takes gigabytes."""
    merged = np.empty_like(weight)
    for i, old in enumerate(weight):
        one, two = a[i].astype(np.float32), b[i].astype(np.float32)
        if leaf.split("/")[-2].startswith("attn_vec_einsum"):
            two = np.sum(two, axis=-3, keepdims=True)  # openpi sums over heads in A and in B
        merged[i] = (old.astype(np.float32) + np.float32(low.scale) * (one @ two)).astype(old.dtype)
    return merged


def with_unit_scale(params: Mapping[str, Any], lora: Lora) -> dict[str, Any]:
    """The same pairs at alpha = rank, the factor in B: as openpi's variants read them."""
    leaves = flat(params)
    for name, value in leaves.items():
        if name.endswith("lora_b"):
            old = np.asarray(value)
            leaves[name] = (old.astype(np.float32) * _setting(name, lora).scale).astype(old.dtype)
    return nested(leaves)


def _setting(leaf: str, lora: Lora) -> LowRank:
    low = _low_ranks(lora)[_expert(leaf)]
    if low is None:
        raise _unknown(leaf)
    return low


def _unknown(leaf: str) -> MorphVlaError:
    return MorphVlaError(f"{leaf}: a low-rank pair that the settings do not have")
