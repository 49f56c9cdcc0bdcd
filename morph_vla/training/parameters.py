"""The parameters before the first step: from a checkpoint or at random, and which of them learn."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, init_params, tokenizer
from morph_vla.training import checkpoint
from morph_vla.training import step as steps
from morph_vla.training.config import Recipe


def first_params(recipe: Recipe, say: Callable[[str], None]) -> dict[str, Any]:
    """The parameters before the first step: those of `weights`, with the plugin's leaves new, or random ones.

    `say` is given the report of what was loaded, new and converted. What stays frozen is held in the model's
    type, as openpi holds it. Raises MorphVlaError when a leaf does not fit, or the tokenizer.
    """
    if not recipe.weights:
        return fresh_params(recipe)
    opened = weights.open_checkpoint(recipe.weights)
    if opened.format == "morph_vla":
        trained = checkpoint.about(opened.path).get("tokenizer")
        tokenizer.check_same(trained, tokenizer.load(recipe.tokenizer), recipe.weights)
    elif recipe.tokenizer == "bytes" and recipe.model.vocab == Pi05Config().vocab:
        raise MorphVlaError(
            f"{recipe.weights} was trained with PaliGemma's tokenizer, the recipe has tokenizer: bytes; "
            "its numbers would mean other words. Set tokenizer: paligemma"
        )
    frozen = recipe.model.dtype if recipe.training.kind == "expert" else "float32"
    params, report = weights.load(
        recipe.weights,
        recipe.model,
        dtype={"images": frozen, "vlm": frozen},
        seed=recipe.training.seed,
        place=lambda _, leaf: jnp.asarray(leaf),
    )
    say(report.table())
    return params


def fresh_params(recipe: Recipe) -> dict[str, Any]:
    """Random parameters for a recipe, numbers of the state given neighbouring embeddings where it helps."""
    params = init_params(recipe.model, jax.random.key(recipe.training.seed))
    if recipe.model.init == "scratch":
        table = params["PaliGemma"]["llm"]["embedder"]
        smooth = tokenizer.smooth_numbers(
            np.asarray(table["input_embedding"]), tokenizer.load(recipe.tokenizer)
        )
        table["input_embedding"] = jnp.asarray(smooth, jnp.float32)
    return params


def parts_of(params: dict[str, Any], kind: str) -> dict[str, dict[str, int]]:
    """Trainable and frozen parameters by part: vision encoder, language model, action expert, morphology."""
    trainable, _ = steps.partition(params, kind)
    learnt = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(trainable)}
    parts: dict[str, dict[str, int]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        keys = tuple(str(key.key) for key in path)
        if keys[0] == "morphology":
            part = "morphology"
        elif not steps.is_vlm(keys):
            part = "action expert"
        else:
            part = "vision encoder" if keys[1] == "img" else "language model"
        row = parts.setdefault(part, {"trainable": 0, "frozen": 0})
        row["trainable" if jax.tree_util.keystr(path) in learnt else "frozen"] += int(leaf.size)
    return parts
