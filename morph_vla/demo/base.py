"""A base that the demo fine-tunes: whether it fits is known before anything is recorded."""

import dataclasses
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.files import remote, typed_yaml
from morph_vla.pi05 import tokenizer
from morph_vla.policies.config import ModelConfig
from morph_vla.recipes.keys import Recipe
from morph_vla.serving import policy as policies
from morph_vla.training import checkpoint
from morph_vla.weights.checkpoint import flat

# keys of a model that change no leaf
NO_MATTER = {"dtype", "remat", "unroll", "fused_attention", "init", "delay_max"}
SHOWN = 4  # keys that differ


def load(recipe: Recipe, robot: str, **options: Any) -> policies.CheckpointPolicy:
    """The policy of `recipe.weights` on a robot that it has perhaps never seen; `options` as `policies.load`.

    Raises MorphVlaError, one sentence, where it is not there, is of another family, size or tokenizer than
    the recipe, and where it cannot drive the robot.
    """
    folder, source = remote.resolve(recipe.weights), recipe.weights
    known, family = checkpoint.about(folder), recipe.model.family
    if (trained := known.get("family", "pi05")) != family:
        raise MorphVlaError(
            f"base {source}: a policy of model.family '{trained}'; the demo fine-tunes one of '{family}'"
        )
    tokenizer.check_same(known.get("tokenizer"), tokenizer.load(recipe.tokenizer), f"base {source}")
    theirs = typed_yaml.read(folder / "about" / "recipe.json", Recipe).model
    if differences := _differences(theirs, recipe.model):
        more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise MorphVlaError(f"base {source} is another model: {'; '.join(differences[:SHOWN])}{more}")
    return policies.load(folder, robot=robot, **options)


def variant(source: str) -> str:
    """`@ours.hand` where a base was trained in that space: what its fine-tuning adds to a recipe's name.

    Nothing for a base that is nowhere, which `load` refuses.
    """
    try:
        path = remote.resolve(source) / "about" / "recipe.json"
    except MorphVlaError:
        return ""
    return of_space(typed_yaml.read(path, Recipe).data.space if path.is_file() else "joints")


def of_space(space: str) -> str:
    """The same of a space."""
    return "" if space == "joints" else f"@ours.{space}"


def _differences(base: ModelConfig, recipe: ModelConfig) -> list[str]:
    """`model.depth is 2 in the base, 4 in the recipe`, and so on, of all that makes a model."""
    theirs, ours = (flat(dataclasses.asdict(config)) for config in (base, recipe))
    keys = [key for key in {**ours, **theirs} if key not in NO_MATTER]
    return [
        f"model.{key.replace('/', '.')} is {theirs.get(key)} in the base, {ours.get(key)} in the recipe"
        for key in keys
        if theirs.get(key) != ours.get(key)
    ]
