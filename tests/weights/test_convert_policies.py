"""Trained checkpoints of ours in other formats: what their recipe says goes along, or is refused."""

import dataclasses
import json
import re
import shutil

import jax
import numpy as np
import pytest

pytest.importorskip("lerobot", reason="trains on a recording; needs the extras 'model' and 'lerobot'")

from morph_vla.errors import MorphVlaError
from morph_vla.training import checkpoint, parameters
from morph_vla.weights import convert as module
from morph_vla.weights.convert import convert


def config_json(folder) -> dict:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.slow
def test_lerobots_config_says_what_the_recipe_does(tiny_run, tiny_recipe, tmp_path):
    model = tiny_recipe.model
    assert model.horizon != module.HORIZON
    convert(tiny_run.checkpoint, tmp_path / "theirs", "lerobot", keep_plugin=True)
    written = config_json(tmp_path / "theirs")
    assert written["chunk_size"] == written["n_action_steps"] == model.horizon
    assert (written["tokenizer_max_length"], written["dtype"]) == (model.max_tokens, model.dtype)
    cameras = {name for name in written["input_features"] if "images" in name}
    assert cameras == {f"observation.images.{name}" for name in model.cameras}
    convert(tiny_run.checkpoint, tmp_path / "asked", "lerobot", keep_plugin=True, horizon=7)
    assert config_json(tmp_path / "asked") == {**written, "chunk_size": 7, "n_action_steps": 7}


@pytest.mark.parametrize(
    ("to", "options", "words"),
    [
        ("openpi", {"keep_lora": True}, r"^--keep-lora: .* has no low-rank pairs$"),
        (
            "morph_vla",
            {"keep_plugin": True},
            r"^--keep-plugin: is for LeRobot; in the format morph_vla the pl",
        ),
        (
            "openpi",
            {"horizon": 7},
            r"^--horizon: is written .*config\.json alone, and the format openpi does not",
        ),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(tiny_run, tmp_path, to, options, words):
    with pytest.raises(MorphVlaError, match=words):
        convert(tiny_run.checkpoint, tmp_path / "theirs", to, **options)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize(
    ("to", "exists", "words"),
    [
        ("lerobot", True, "there exists: nothing is overwritten; remove it or choose another name"),
        ("lerobot", False, r"LeRobot's pi0.5 has no place for the plugin's \d+ leaves and would act without"),
        ("openpi", True, "there exists: nothing is overwritten"),
    ],
)
def test_what_cannot_be_written_is_said_before_parameters_are_read(
    tiny_run, tmp_path, monkeypatch, to, exists, words
):
    monkeypatch.setattr(module, "load", lambda *_, **__: pytest.fail("the parameters were read"))
    if exists:
        (tmp_path / "there").mkdir()
    with pytest.raises(MorphVlaError, match=words):
        convert(tiny_run.checkpoint, tmp_path / "there", to)


@pytest.mark.slow
def test_ours_stays_a_policy_and_without_its_facts_is_weights_to_begin_from(tiny_run, tiny_recipe, tmp_path):
    digest, _ = convert(tiny_run.checkpoint, tmp_path / "whole", "morph_vla")
    assert re.fullmatch("[0-9a-f]{64}", digest)
    about = tmp_path / "whole" / "about"
    assert checkpoint.about(tmp_path / "whole") == checkpoint.about(tiny_run.checkpoint)
    assert (about / "robots" / "panda.urdf").is_file()
    recipe = dataclasses.replace(tiny_recipe, weights=str(tmp_path / "whole"))
    first = parameters.first_params(recipe)
    shutil.rmtree(about)
    again = parameters.first_params(recipe)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
