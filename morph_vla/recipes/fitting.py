"""Which recipes a checkpoint's sizes fit."""

from collections.abc import Sequence
from pathlib import Path

from morph_vla.errors import MorphVlaError
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
