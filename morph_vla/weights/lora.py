"""Low-rank pairs in a checkpoint: which leaves they are, whose, and what the weights are with them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import Lora, LowRank
from morph_vla.pi05.memory import aligned_copy
from morph_vla.weights.checkpoint import Checkpoint, flat, nested, recipe_model
from morph_vla.weights.names import is_lora

TARGETS = {"attention": "attn/", "feed-forward": "mlp"}  # what a target's leaves begin with, in a layer
EXPERTS = ("language_model", "action_expert")


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
    checkpoint needs to say. Raises MorphVlaError for half a pair, and for pairs of several ranks in one
    expert.
    """
    halves = [name for name in opened.entries if is_lora(name)]
    if not halves:
        return None
    for name in halves:
        other = name[:-1] + ("b" if name.endswith("a") else "a")
        if other not in opened.entries:
            raise MorphVlaError(f"{opened.path}: '{name}' is there without '{other}', half a low-rank pair")
    settings = recipe_model(opened).get("lora") or {}
    model, expert = (_low_rank(opened, halves, which, settings.get(EXPERTS[which])) for which in (0, 1))
    return Lora(model, expert)


def _low_rank(opened: Checkpoint, halves: Sequence[str], expert: int, setting: Any) -> LowRank | None:
    """The pairs of one expert; `setting` is what the recipe has for it."""
    first = [name for name in halves if _expert(name) == expert and name.endswith("lora_a")]
    ranks = {(opened.entries[name].shape or (0,))[-1] for name in first}
    if len(ranks) > 1:
        raise MorphVlaError(
            f"{opened.path}: the {EXPERTS[expert].replace('_', ' ')} has low-rank pairs of several ranks "
            f"({', '.join(map(str, sorted(ranks)))}); our models have one rank per expert"
        )
    if not ranks:
        return None
    (rank,) = ranks
    targets: Any = tuple(t for t, start in TARGETS.items() if any(f"layers/{start}" in n for n in first))
    alpha: Any = setting.get("alpha") if isinstance(setting, dict) else rank
    is_number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    if not is_number or not 0 < alpha < float("inf") or rank < 1:
        name = f"{EXPERTS[expert]}: rank {rank} and alpha {alpha!r}"
        raise MorphVlaError(f"{opened.path}: low-rank pairs of the {name} are none; alpha is its recipe's")
    return LowRank(rank, float(alpha), targets)


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
    leaves = flat(params)
    merged: dict[str, Any] = {}
    for name, leaf in merging(leaves.items(), lora, leaves.__getitem__):
        if isinstance(leaf, Iterator):
            old = np.asarray(leaves[name])
            merged[name] = np.empty_like(old)
            for i, layer in enumerate(leaf):
                merged[name][i] = layer
        else:
            merged[name] = leaf
    return nested(merged)


def merging(
    leaves: Iterable[tuple[str, Any]], lora: Lora, half: Callable[[str], Any]
) -> Iterator[tuple[str, Any]]:
    """The same of names and leaves that come one by one: the weights layer by layer, without the pairs.

    `half` is asked for the halves of a pair by name, when their weight comes.
    """
    for name, leaf in leaves:
        target = next((t for t, start in TARGETS.items() if f"layers/{start}" in name), "")
        low = lora.of(_expert(name), target)
        if low is None and is_lora(name):
            raise _unknown(name)
        if low is None:
            yield name, leaf
        elif is_lora(name):
            for _ in leaf if isinstance(leaf, Iterator) else ():  # read again with its weight
                pass
        else:
            a, b = half(f"{_stem(name)}lora_a"), half(f"{_stem(name)}lora_b")
            yield name, _merged(name, leaf, a, b, low)
        del leaf  # before the next one is read


def _stem(weight: str) -> str:
    """What the names of a weight's halves begin with: the inverse of `weight_of`."""
    return weight[:-1] if weight.endswith("/w") else f"{weight}_"


def _merged(leaf: str, weight: Iterable[Any], a: Any, b: Any, low: LowRank) -> Iterator[np.ndarray]:
    """A layer at a time: in float32 a stack of the full model takes gigabytes."""
    layers = weight if isinstance(weight, Iterator) else np.asarray(weight)
    for old, one, two in zip(layers, np.asarray(a), np.asarray(b), strict=True):
        one, two = one.astype(np.float32), two.astype(np.float32)
        if leaf.split("/")[-2].startswith("attn_vec_einsum"):
            two = np.sum(two, axis=-3, keepdims=True)  # openpi sums over heads in A and in B
        yield aligned_copy((old.astype(np.float32) + np.float32(low.scale) * (one @ two)).astype(old.dtype))


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
