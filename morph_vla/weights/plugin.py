"""What a checkpoint's plugin was trained to read of a joint, which shapes alone do not always say."""

import dataclasses
from collections.abc import Mapping

from morph_vla.errors import MorphVlaError
from morph_vla.morphology import MorphologyConfig
from morph_vla.morphology.arrays import FEATURES
from morph_vla.morphology.config import History
from morph_vla.weights.checkpoint import Checkpoint, recipe_model
from morph_vla.weights.names import PLUGIN

FILM, POSE = f"{PLUGIN}/film/generator/kernel", f"{PLUGIN}/pose/kernel"
HISTORY = f"{PLUGIN}/history/out/kernel"


def check_reads(opened: Checkpoint, plugin: MorphologyConfig | None) -> None:
    """Raise MorphVlaError, naming both, where a model's plugin reads other values than the checkpoint's did.

    By the recipe beside it; without one by how many descriptors there are.
    """
    if plugin is None:
        return
    if plugin.film and FILM in opened.entries:
        stored = _descriptors(opened, plugin)
        if stored != plugin.descriptors:
            raise MorphVlaError(_sentence(opened, "descriptors", stored, plugin.descriptors))
        names = (recipe_model(opened).get("morphology") or {}).get("robots")
        if plugin.descriptors == "robot" and names not in (None, list(plugin.robots)):
            raise MorphVlaError(
                f"{opened.path} ({opened.format}): its plugin knows {', '.join(names)}, the model "
                f"{', '.join(plugin.robots)}; what was learnt for one robot means nothing for another"
            )
    if POSE in opened.entries and plugin.poses == "none":
        raise MorphVlaError(_sentence(opened, "poses", "present", "none"))
    if HISTORY in opened.entries:
        _check_history(opened, plugin.history)


def _check_history(opened: Checkpoint, own: History | None) -> None:
    """By the recipe beside it; without one any history may be the checkpoint's."""
    named = (recipe_model(opened).get("morphology") or {}).get("history")
    wanted = None if own is None else dataclasses.asdict(own)
    if own is None or (named is not None and named != wanted):
        stored = _flow(named) if named else "{steps: ?, modes: ?}"
        raise MorphVlaError(_sentence(opened, "history", stored, _flow(wanted)))


def _flow(keys: Mapping[str, int] | None) -> str:
    """As a recipe has it."""
    return f"{{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}" if keys else "null"


def _descriptors(opened: Checkpoint, plugin: MorphologyConfig) -> str:
    named = (recipe_model(opened).get("morphology") or {}).get("descriptors")
    if named is not None:
        return MorphologyConfig(descriptors=named).descriptors  # as it is called now
    count = opened.entries[FILM].shape[0]
    fits = [name for name, features in FEATURES.items() if len(features) == count]
    # Of as many, or of a number that there is not, whose shape is refused.
    return plugin.descriptors if plugin.descriptors in fits or not fits else fits[0]


def _sentence(opened: Checkpoint, key: str, stored: str, wanted: str) -> str:
    return (
        f"{opened.path} ({opened.format}): its plugin was trained with {key}: {stored}, the model has "
        f"{key}: {wanted}; set model.morphology.{key}: {stored}"
    )
