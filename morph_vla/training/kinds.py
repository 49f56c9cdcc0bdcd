"""What learns: the parts of a model, by kind of fine-tuning, and the tree taken apart accordingly."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.pi05.config import Lora
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.policies.parts import FITTED, PARTS, Part, part_of
from morph_vla.recipes.keys import Training

Params = dict[str, Any]


def is_vlm(leaf: str) -> bool:
    """Whether a leaf is the vision-language model's, frozen in action-expert fine-tuning (paper, Table 8)."""
    return part_of(leaf) in ("vision encoder", "language model")


def learns(leaf: str, training: Training) -> bool:
    """Whether a leaf is trained.

    What was found before training (`parts.FITTED`) never is. `full`: all else. `expert`: all but the
    vision-language model. `lora`: the low-rank pairs, the parts named whole, projections, head, morphology
    (openpi's freeze filter, `Pi0Config.get_freeze_filter`, freezes the same leaves for the same choice).
    """
    if part_of(leaf) in FITTED:
        return False
    if training.kind == "full":
        return True
    if training.kind == "expert":
        return not is_vlm(leaf)
    learnt = ("projections", "head", "morphology", *(training.lora or Lora()).whole)
    return part_of(leaf) in learnt or leaf.endswith(("lora_a", "lora_b"))


def reached(training: Training, environment: int = 0) -> dict[Part, bool]:
    """Through which parts gradients flow: those that learn, and those after one that learns.

    A model of so many values of `environment` has projections before its language model, which learn.
    """
    flows: dict[Part, bool] = dict.fromkeys(PARTS, True)
    if training.kind != "full":
        lora = training.lora or Lora()
        vision = training.kind == "lora" and "vision encoder" in lora.whole
        paired = "language model" in lora.whole or lora.language_model is not None
        flows["vision encoder"] = vision
        flows["language model"] = vision or (training.kind == "lora" and paired) or environment > 0
    return flows


def partition(params: Params, training: Training) -> tuple[Params, Params]:
    """(trainable, frozen): two trees of the same form, None where the other one has the leaf."""
    trainable = map_named(lambda name, x: x if learns(name, training) else None, params)
    return trainable, map_named(lambda name, x: None if learns(name, training) else x, params)


def merge(one: Params, other: Params) -> Params:
    """The tree whose leaves `partition` took apart."""
    return jax.tree.map(lambda a, b: b if a is None else a, one, other, is_leaf=lambda x: x is None)


def norms(gradient: Params) -> dict[Part, Float[Array, ""]]:
    """The norm of each part's gradient, in the order of PARTS; parts that learn nothing are left out."""
    squares: dict[Part, list[Array]] = {}
    for name, leaf in by_name(gradient).items():
        squares.setdefault(part_of(name), []).append(jnp.sum(jnp.square(leaf.astype(jnp.float32))))
    return {part: jnp.sqrt(jnp.sum(jnp.stack(squares[part]))) for part in PARTS if part in squares}


def parts_of(params: Mapping[str, Any], training: Training) -> dict[str, dict[str, int]]:
    """Trainable and frozen parameters by part, for arrays or their shapes.

    Low-rank pairs are a row of their own, named with rank, alpha and targets.
    """
    parts: dict[str, dict[str, int]] = {}
    for name, leaf in by_name(params).items():
        part: str = part_of(name)
        if name.endswith(("lora_a", "lora_b")):
            part = f"{part}: {pairs_of(part, training)}"
        row = parts.setdefault(part, {"trainable": 0, "frozen": 0})
        row["trainable" if learns(name, training) else "frozen"] += int(leaf.size)
    return parts


def pairs_of(part: str, training: Training) -> str:
    """Rank, factor and targets of a part's low-rank pairs, in words."""
    lora = training.lora or Lora()
    low = lora.action_expert if part == "action expert" else lora.language_model
    if low is None:
        return "no low-rank pairs"
    return f"pairs of rank {low.rank}, alpha {low.alpha:g}, beside {' and '.join(low.targets)}"
