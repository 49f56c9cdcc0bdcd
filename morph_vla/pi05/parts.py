"""The parts of the model, by one set of names: in tables, logs, recipes and checkpoints' reports.

part             recipe's sizes     parameters (openpi's names)
vision encoder   model.vit          PaliGemma/img/...: SigLIP and its head; image_tokens/...
language model   model.prefix       PaliGemma/llm/...: Gemma, what has no suffix _1
action expert    model.expert       PaliGemma/llm/...: what has the suffix _1
projections                         action_in_proj, action_out_proj, time_mlp_in, time_mlp_out
morphology       model.morphology   morphology/...: the plugin

Where nothing is denoised (model.head), two more:

head             model.head         head/...: queries, and what reads kinds of action chunk
bins             model.head.bins    bins/...: the kinds, found before the first step
"""

import re
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import jax

HeadPart = Literal["head", "bins"]
Part = Literal["vision encoder", "language model", "action expert", "projections", "morphology"] | HeadPart
OF_HEAD: tuple[HeadPart, ...] = get_args(HeadPart)
PARTS: tuple[Part, ...] = ("vision encoder", "language model", "action expert", "projections", "morphology")
ALL: tuple[Part, ...] = (*PARTS, *OF_HEAD)


def part_of(leaf: str) -> Part:
    """The part a parameter belongs to, by its name.

    >>> part_of("PaliGemma/llm/layers/mlp_1/linear")
    'action expert'
    """
    top, _, rest = leaf.partition("/")
    if top == "image_tokens":
        return "vision encoder"
    if top in ("morphology", *OF_HEAD):
        return cast(Part, top)
    if top != "PaliGemma":
        return "projections"
    if rest.startswith("img/"):  # where the suffix _1 only counts (`LayerNorm_1`)
        return "vision encoder"
    return "action expert" if re.search(r"_1(/|$)", rest) else "language model"


def by_name(tree: Any) -> dict[str, Any]:
    """The leaves of a tree of parameters by their names joined with "/", in the order of its leaves."""
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def map_named(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """A tree of the same form, every leaf replaced by `function` of its name and itself."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: function(_name(path), leaf), tree)


def _name(path: Any) -> str:
    return "/".join(str(key.key) for key in path)
