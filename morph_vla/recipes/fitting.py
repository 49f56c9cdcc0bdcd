"""Which recipes a checkpoint's sizes fit, and the model that it is asked to fit."""

from collections.abc import Sequence
from pathlib import Path

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files import dropin
from morph_vla.pi05 import Pi05Config
from morph_vla.recipes import recipe as recipes
from morph_vla.weights.load import differences


def fitting(stored: Pi05Config, folders: Sequence[str | Path] = ()) -> list[str]:
    """The full model, and the recipes, whose host has these sizes."""
    fits = [] if differences(stored, Pi05Config()) else ["pi0.5 at full size"]
    for name in dropin.available("recipes", folders):
        try:
            model = recipes.load(name, (), folders).model
        except MorphVlaError:
            continue  # `morph-vla recipes show` says what is wrong with it
        if isinstance(model, Pi05Config) and not differences(stored, model):
            fits.append(name)
    return fits


def host(name: str | None, folders: Sequence[str | Path] = ()) -> Pi05Config | None:
    """The model of a recipe of pi0.5, if one is named.

    Raises ConfigError for another family's, and as `recipe.load`.
    """
    if not name:
        return None
    model = recipes.load(name, (), folders).model
    if not isinstance(model, Pi05Config):
        raise ConfigError(
            f"--config {name}: its model.family is '{model.family}', and only pi0.5 has layouts that other "
            "programs read and write; name a recipe of pi0.5, or leave it out"
        )
    return model
