"""The parameters before the first step: from a checkpoint or at random."""

import dataclasses
import logging
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from morph_vla import policies, weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, tokenizer
from morph_vla.pi05.parts import map_named
from morph_vla.recipes.recipe import Recipe
from morph_vla.training import checkpoint
from morph_vla.training.kinds import learns

LOG = logging.getLogger(__name__)


def first_params(recipe: Recipe) -> dict[str, Any]:
    """The parameters before the first step: those of `weights`, with the plugin's leaves new, or random ones.

    What was loaded, new and converted is logged. What stays frozen is held in the model's type, as openpi
    holds it. Raises MorphVlaError when a leaf does not fit, or the tokenizer.
    """
    if not recipe.weights:
        return fresh_params(recipe)
    assert isinstance(recipe.model, Pi05Config)  # the recipe's check
    opened, new = weights.open_checkpoint(recipe.weights), None
    if opened.format == "morph_vla":
        about = checkpoint.about(opened.path)
        family, trained = about.get("family", "pi05"), about.get("tokenizer")
        if family != "pi05":
            ours = "the recipe has 'pi05'"
            raise MorphVlaError(f"{recipe.weights}: trained as model.family '{family}', {ours}")
        tokenizer.check_same(trained, tokenizer.load(recipe.tokenizer), recipe.weights)
        # A bias switched on, or auxiliary tokens, are new beside the plugin that a run of ours had.
        shapes = weights.leaf_shapes(recipe.model)
        new = [leaf for leaf in shapes if leaf.startswith("morphology/") and leaf not in opened.entries]
    elif recipe.tokenizer in tokenizer.OFFLINE and recipe.model.vocab == Pi05Config().vocab:
        raise MorphVlaError(
            f"{recipe.weights} was trained with PaliGemma's tokenizer, the recipe has tokenizer: "
            f"{recipe.tokenizer}; its numbers would mean other words. Set tokenizer: paligemma"
        )

    params, report = weights.load(
        recipe.weights,
        recipe.model,
        dtype=partial(held, recipe),
        new=new,
        seed=recipe.training.seed,
        place=lambda _, leaf: jnp.asarray(leaf),
    )
    LOG.info("%s", report)
    return params


def held(recipe: Recipe, leaf: str) -> str:
    """The type of a leaf while `recipe` trains: what learns is float32, what is frozen the model's."""
    return "float32" if learns(leaf, recipe.training) else recipe.model.dtype


def fresh_params(recipe: Recipe) -> dict[str, Any]:
    """Random parameters for a recipe, numbers of the state given neighbouring embeddings where it helps.

    What is frozen is rounded to the model's type as it is drawn: it is never held in float32.
    """
    key = jax.random.key(recipe.training.seed)
    exact = recipe.model.dtype == "float32"
    params = policies.of(recipe.model).init(recipe.model, key) if exact else _rounded(recipe, key)
    if isinstance(recipe.model, Pi05Config) and recipe.model.init == "scratch":
        table = params["PaliGemma"]["llm"]["embedder"]
        smooth = tokenizer.smooth_numbers(
            np.asarray(table["input_embedding"], np.float32), tokenizer.load(recipe.tokenizer)
        )
        table["input_embedding"] = jnp.asarray(smooth, table["input_embedding"].dtype)
    return params


def _rounded(recipe: Recipe, key: Array) -> dict[str, Any]:
    """The parameters as one program that gives every leaf in the type that it is held in."""
    model = dataclasses.replace(recipe.model, dtype="float32", remat=False)  # no leaf depends on them

    def rounded(key: Array) -> dict[str, Any]:
        return map_named(
            lambda name, leaf: leaf.astype(held(recipe, name)), policies.of(model).init(model, key)
        )

    return jax.jit(rounded)(key)
