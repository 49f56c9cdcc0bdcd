"""A checkpoint remembers what its plugin reads of a joint."""

import dataclasses
import json
import re

import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.morphology.config import History
from morph_vla.pi05 import Pi05Config


def reading(config: Pi05Config, **keys: str | tuple[str, ...] | History | None) -> Pi05Config:
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_vector_that_was_learnt_for_one_robot_is_not_given_to_another(tmp_path, plugin, drawn):
    pair = reading(plugin, descriptors="robot", robots=("panda", "so101"))
    folder = weights.save_openpi(tmp_path / "trained", drawn(pair))
    (folder / "about").mkdir()
    recipe = {"model": {"morphology": {"descriptors": "robot", "robots": ["panda", "so101"]}}}
    (folder / "about" / "recipe.json").write_text(json.dumps(recipe))
    weights.load(folder, pair)
    words = r"its plugin knows panda, so101, the model so101, panda; what was learnt for one robot means "
    with pytest.raises(MorphVlaError, match=words):
        weights.load(folder, reading(plugin, descriptors="robot", robots=("so101", "panda")))


@pytest.mark.slow
def test_a_plugin_that_looks_back_says_how_far(tmp_path, plugin, drawn, equal):
    past = reading(plugin, history=History(steps=5, modes=2))
    params = drawn(past)
    folder = weights.save_openpi(tmp_path / "past", params)
    equal(weights.load(folder, past)[0], params)
    refused(folder, plugin, "history", "{steps: ?, modes: ?}", "null")
    (folder / "about").mkdir()
    keys = {"steps": 5, "modes": 2, "stride": 8}
    (folder / "about" / "recipe.json").write_text(json.dumps({"model": {"morphology": {"history": keys}}}))
    weights.load(folder, past)
    stored = "{steps: 5, modes: 2, stride: 8}"
    refused(folder, plugin, "history", stored, "null")
    # Of another window of as many modes, which shapes do not tell.
    longer = reading(plugin, history=History(steps=7, modes=2))
    refused(folder, longer, "history", stored, "{steps: 7, modes: 2, stride: 8}")
    # One that did not look back can learn to: the last layer begins at zero.
    before = weights.save_openpi(tmp_path / "none", drawn(plugin))
    _, report = weights.load(before, past, new=["morphology/history"])
    assert {row.leaf.rpartition("/")[0] for row in report.new} == {
        "morphology/history/in",
        "morphology/history/out",
    }
