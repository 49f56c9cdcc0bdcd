"""Whether a recipe can begin with the checkpoint that its `weights` names; no value is read."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, tokenizer
from morph_vla.recipes.keys import Recipe
from morph_vla.training import checkpoint, meaning
from morph_vla.weights.checkpoint import Checkpoint, recipe_space

LOG = logging.getLogger(__name__)


def new_leaves(recipe: Recipe, opened: Checkpoint) -> list[str] | None:
    """The model's leaves that may begin anew beside a checkpoint; None: those that `weights.load` says.

    Raises MorphVlaError for a checkpoint of another family, and for one whose tokens mean other words.
    """
    assert isinstance(recipe.model, Pi05Config)  # the recipe's check
    if opened.format == "morph_vla" and (opened.path / "about" / "policy.json").is_file():
        about = checkpoint.about(opened.path)
        family, trained = about.get("family", "pi05"), about.get("tokenizer")
        if family != "pi05":
            ours = "the recipe has 'pi05'"
            raise MorphVlaError(f"{recipe.weights}: trained as model.family '{family}', {ours}")
        if (space := recipe_space(opened)) != recipe.data.space:
            LOG.warning(
                "%s: trained with data.space: %s, the recipe has %s: what it knows of states and actions "
                "means something else here", recipe.weights, space, recipe.data.space,
            )  # fmt: skip
        for sentence in _other_meaning(recipe, about["robots"]):
            LOG.warning("%s: %s", recipe.weights, sentence)
        tokenizer.check_same(trained, tokenizer.load(recipe.tokenizer), recipe.weights)
        # A bias switched on, or auxiliary tokens, are new beside the plugin that a run of ours had.
        shapes = weights.leaf_shapes(recipe.model)
        return [leaf for leaf in shapes if _is_ours(leaf) and leaf not in opened.entries]
    if recipe.tokenizer in tokenizer.OFFLINE and recipe.model.vocab == Pi05Config().vocab:
        raise MorphVlaError(
            f"{recipe.weights} was trained with PaliGemma's tokenizer, the recipe has tokenizer: "
            f"{recipe.tokenizer}; its numbers would mean other words. Set tokenizer: paligemma"
        )
    return None


def _other_meaning(recipe: Recipe, known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What actions of a robot meant to the checkpoint, where the recipe's mean something else."""
    for robot, actions in dict.fromkeys((source.robot, source.actions) for source in recipe.data.sources):
        name = meaning.called(known, robot)
        trained = "" if name is None else known[name].get("actions", actions)
        if trained and trained != actions:
            yield (
                f"robot '{robot}' was trained on {trained} actions, the recipe learns {actions} ones: "
                "what it knows of them means something else here"
            )


def _is_ours(leaf: str) -> bool:
    """Whether a leaf is of the plugin or a head, or makes fewer image tokens: new to one from before."""
    return leaf.startswith(("morphology/", "image_tokens/", "head/", "bins/"))
