"""The parameters before the first step: from a checkpoint or at random."""

import dataclasses
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from morph_vla import policies, weights
from morph_vla.errors import ConfigError
from morph_vla.pi05 import Pi05Config, tokenizer
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.policies.parts import FITTED, part_of
from morph_vla.recipes.keys import Recipe
from morph_vla.training.begin_with import new_leaves
from morph_vla.training.kinds import learns
from morph_vla.training.source import Source

LOG = logging.getLogger(__name__)


def begun(recipe: Recipe, source: Source) -> dict[str, Any]:
    """`first_params`, with what the model's family learns before the first step: alike in every process."""
    params, model = first_params(recipe), recipe.model
    return policies.of(model).fit(model, params, source, recipe.training.seed)


def first_params(recipe: Recipe) -> dict[str, Any]:
    """The parameters before the first step: those of `weights`, with the plugin's leaves new, or random ones.

    What was loaded, new and converted is logged. What stays frozen is held in the model's type, as openpi
    holds it. Raises MorphVlaError when a leaf does not fit, or the tokenizer.
    """
    if not recipe.weights:
        params = fresh_params(recipe)
        _check_learnt(recipe, by_name(params))
        return params
    assert isinstance(recipe.model, Pi05Config)  # the recipe's check
    opened = weights.open_checkpoint(recipe.weights)
    new = new_leaves(recipe, opened)
    params, report = weights.load(
        recipe.weights,
        recipe.model,
        dtype=partial(held, recipe),
        new=new,
        seed=recipe.training.seed,
        place=lambda _, leaf: jnp.asarray(leaf),
    )
    _check_learnt(recipe, [row.leaf for row in report.new])
    LOG.info("%s", report)
    return params


def _check_learnt(recipe: Recipe, new: Iterable[str]) -> None:
    """Raise ConfigError where image tokens are to be `learnt`, and what is new of that stays as it begins."""
    fewer = recipe.model.image_tokens if isinstance(recipe.model, Pi05Config) else None
    if fewer is None or fewer.how != "learnt":
        return
    if any(leaf.startswith("image_tokens/") and not learns(leaf, recipe.training) for leaf in new):
        raise ConfigError(
            "model.image_tokens.how: 'learnt' begins as averages, and training.kind "
            f"'{recipe.training.kind}' leaves it there; choose how: average, or a kind in which the vision "
            "encoder learns"
        )


def held(recipe: Recipe, leaf: str) -> str:
    """The type of a leaf while `recipe` trains: float32 if it learns or was fitted, else the model's."""
    exact = learns(leaf, recipe.training) or part_of(leaf) in FITTED
    return "float32" if exact else recipe.model.dtype


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
