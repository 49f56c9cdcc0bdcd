"""A checkpoint remembers what its plugin reads of a joint."""

import dataclasses
import json
import re

import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config

# Flax 0.10 under JAX 0.5, openpi's pins.
pytestmark = [
    pytest.mark.filterwarnings("ignore:linear_util.wrap_init:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:shape requires ndarray:DeprecationWarning"),
]


def reading(config: Pi05Config, **keys: str) -> Pi05Config:
    assert config.morphology is not None
    return dataclasses.replace(config, morphology=dataclasses.replace(config.morphology, **keys))


def refused(folder, config: Pi05Config, key: str, stored: str, wanted: str) -> None:
    sentence = (
        f"{folder} (openpi): its plugin was trained with {key}: {stored}, the model has {key}: {wanted}; "
        f"set model.morphology.{key}: {stored}"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        weights.load(folder, config)


def test_other_descriptors_are_refused_by_their_number(tmp_path, plugin, drawn, equal):
    geometry = reading(plugin, descriptors="geometry")
    paper, other = drawn(plugin), drawn(geometry)
    paper_folder = weights.save_openpi(tmp_path / "paper", paper)
    geometry_folder = weights.save_openpi(tmp_path / "geometry", other)
    equal(weights.load(paper_folder, plugin)[0], paper)
    equal(weights.load(geometry_folder, geometry)[0], other)
    refused(paper_folder, geometry, "descriptors", "paper", "geometry")
    refused(geometry_folder, plugin, "descriptors", "geometry", "paper")
    refused(
        geometry_folder,
        reading(plugin, descriptors="standardised"),
        "descriptors",
        "geometry",
        "standardised",
    )


def test_descriptors_of_the_same_number_by_the_recipe(tmp_path, plugin, drawn):
    folder = weights.save_openpi(tmp_path / "trained", drawn(plugin))
    standardised = reading(plugin, descriptors="standardised")
    weights.load(folder, standardised)  # nothing says what it was trained with
    (folder / "about").mkdir()
    for written in ("raw", "paper"):
        recipe = {"model": {"morphology": {"descriptors": written}}}
        (folder / "about" / "recipe.json").write_text(json.dumps(recipe))
        weights.load(folder, plugin)
        refused(folder, standardised, "descriptors", "paper", "standardised")


def test_a_plugin_that_reads_poses_says_so(tmp_path, plugin, drawn, equal):
    present = reading(plugin, poses="present")
    params = drawn(present)
    folder = weights.save_openpi(tmp_path / "present", params)
    equal(weights.load(folder, present)[0], params)
    refused(folder, plugin, "poses", "present", "none")
    # One that does not read them can learn to: the map begins at zero.
    before = weights.save_openpi(tmp_path / "none", drawn(plugin))
    _, report = weights.load(before, present, new=["morphology/pose"])
    assert {row.leaf for row in report.new} == {"morphology/pose/kernel", "morphology/pose/bias"}
