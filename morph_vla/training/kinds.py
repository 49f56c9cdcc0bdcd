"""What learns: the parts of a model, by kind of fine-tuning, and the tree taken apart accordingly."""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.pi05 import counts
from morph_vla.pi05.config import Lora
from morph_vla.recipes.recipe import Training

Params = dict[str, Any]
Part = Literal["vision encoder", "language model", "action expert", "projections", "morphology"]
PARTS: tuple[Part, ...] = ("vision encoder", "language model", "action expert", "projections", "morphology")


_NAMES: dict[str, Part] = dict(zip(counts.PARTS, PARTS, strict=True))


def part_of(path: tuple[str, ...]) -> Part:
    """The part a leaf belongs to, by its openpi name; `projections` are those of actions and time."""
    return _NAMES[counts.part_of(path)]


def is_vlm(path: tuple[str, ...]) -> bool:
    """Whether a leaf is the vision-language model's, frozen in action-expert fine-tuning (paper, Table 8)."""
    return part_of(path) in ("vision encoder", "language model")


def learns(path: tuple[str, ...], training: Training) -> bool:
    """Whether a leaf is trained.

    `full`: all. `expert`: all but the vision-language model. `lora`: the low-rank pairs, the parts named
    whole, projections and morphology (openpi's freeze filter, `Pi0Config.get_freeze_filter`, freezes the same
    leaves for the same choice).
    """
    if training.kind == "full":
        return True
    if training.kind == "expert":
        return not is_vlm(path)
    whole = (training.lora or Lora()).whole
    part = part_of(path)
    return part in ("projections", "morphology") or part in whole or path[-1].endswith(("lora_a", "lora_b"))


def reached(training: Training) -> dict[Part, bool]:
    """Through which parts gradients flow: those that learn, and those after one that learns."""
    if training.kind == "full":
        everything: dict[Part, bool] = dict.fromkeys(PARTS, True)
        return everything
    lora = training.lora or Lora()
    vision = training.kind == "lora" and "vision encoder" in lora.whole
    language = training.kind == "lora" and ("language model" in lora.whole or lora.language_model is not None)
    return {
        "vision encoder": vision,
        "language model": vision or language,
        "action expert": True,
        "projections": True,
        "morphology": True,
    }


def partition(params: Params, training: Training) -> tuple[Params, Params]:
    """(trainable, frozen): two trees of the same form, None where the other one has the leaf."""

    def is_learnt(path: Any) -> bool:
        return learns(tuple(str(key.key) for key in path), training)

    trainable = jax.tree_util.tree_map_with_path(lambda path, x: x if is_learnt(path) else None, params)
    frozen = jax.tree_util.tree_map_with_path(lambda path, x: None if is_learnt(path) else x, params)
    return trainable, frozen


def merge(one: Params, other: Params) -> Params:
    """The tree whose leaves `partition` took apart."""
    return jax.tree.map(lambda a, b: b if a is None else a, one, other, is_leaf=lambda x: x is None)


def norms(gradient: Params) -> dict[Part, Float[Array, ""]]:
    """The norm of each part's gradient, in the order of PARTS; parts that learn nothing are left out."""
    squares: dict[Part, list[Array]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        part = part_of(tuple(str(key.key) for key in path))
        squares.setdefault(part, []).append(jnp.sum(jnp.square(leaf.astype(jnp.float32))))
    return {part: jnp.sqrt(jnp.sum(jnp.stack(squares[part]))) for part in PARTS if part in squares}


def parts_of(params: Mapping[str, Any], training: Training) -> dict[str, dict[str, int]]:
    """Trainable and frozen parameters by part, for arrays or their shapes.

    Low-rank pairs are a row of their own, named with rank, alpha and targets.
    """
    parts: dict[str, dict[str, int]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        keys = tuple(str(key.key) for key in path)
        part: str = part_of(keys)
        if part == "projections":
            part = "action expert"
        if keys[-1].endswith(("lora_a", "lora_b")):
            part = f"{part}: {pairs_of(part, training)}"
        row = parts.setdefault(part, {"trainable": 0, "frozen": 0})
        row["trainable" if learns(keys, training) else "frozen"] += int(leaf.size)
    return parts


def pairs_of(part: str, training: Training) -> str:
    """Rank, factor and targets of a part's low-rank pairs, in words."""
    lora = training.lora or Lora()
    low = lora.action_expert if part == "action expert" else lora.language_model
    if low is None:
        return "no low-rank pairs"
    return f"pairs of rank {low.rank}, alpha {low.alpha:g}, beside {' and '.join(low.targets)}"
