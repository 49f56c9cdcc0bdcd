"""Where a run's parameters come from."""

import dataclasses

import jax
import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.training import checkpoint, parameters


def leaves(tree):
    return {
        jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }


@pytest.fixture(scope="module")
def openpi(tiny_recipe, tmp_path_factory):
    """A host without a plugin, as openpi saves it."""
    folder = tmp_path_factory.mktemp("openpi") / "base"
    bare = dataclasses.replace(tiny_recipe.model, morphology=None)
    weights.save_openpi(folder, parameters.fresh_params(dataclasses.replace(tiny_recipe, model=bare)))
    return folder


def test_openpis_parameters_are_loaded_and_the_plugins_are_new(tiny_recipe, openpi, caplog):
    caplog.set_level("INFO", "morph_vla")
    recipe = dataclasses.replace(tiny_recipe, weights=str(openpi))
    params = leaves(parameters.first_params(recipe))
    host, _ = weights.load(openpi, dataclasses.replace(recipe.model, morphology=None))
    for name, leaf in leaves(host).items():
        np.testing.assert_array_equal(params.pop(name), leaf)
    assert params
    assert all(name.startswith("['morphology']") for name in params)
    assert "new     morphology/" in caplog.messages[0]


def test_a_checkpoint_of_ours_is_gone_on_from_by_its_average(tiny_recipe, tiny_run):
    recipe = dataclasses.replace(tiny_recipe, weights=str(tiny_run.checkpoint))
    params = leaves(parameters.first_params(recipe))
    for name, leaf in leaves(
        checkpoint.load_params(tiny_run.checkpoint, parameters.fresh_params(recipe))
    ).items():
        np.testing.assert_array_equal(params[name], leaf)


def test_frozen_parts_take_the_models_type(tiny_recipe, openpi):
    recipe = dataclasses.replace(
        tiny_recipe,
        weights=str(openpi),
        model=dataclasses.replace(tiny_recipe.model, dtype="bfloat16"),
        training=dataclasses.replace(tiny_recipe.training, kind="expert"),
    )
    params = leaves(parameters.first_params(recipe))
    assert params["['PaliGemma']['llm']['embedder']['input_embedding']"].dtype == "bfloat16"
    assert params["['PaliGemma']['img']['head']['kernel']"].dtype == "bfloat16"
    assert params["['PaliGemma']['llm']['layers']['attn']['q_einsum_1']['w']"].dtype == "float32"


def test_another_tokenizer_and_another_size_are_refused(tiny_recipe, openpi):
    full = dataclasses.replace(tiny_recipe.model, vocab=257_152)
    with pytest.raises(
        MorphVlaError, match=r"was trained with PaliGemma's tokenizer.*Set tokenizer: paligemma"
    ):
        parameters.first_params(dataclasses.replace(tiny_recipe, model=full, weights=str(openpi)))
    wider = dataclasses.replace(
        tiny_recipe.model, expert=dataclasses.replace(tiny_recipe.model.expert, mlp_dim=30)
    )
    with pytest.raises(MorphVlaError, match=r"expert.mlp_dim is 28 in the checkpoint, 30 in the model"):
        parameters.first_params(dataclasses.replace(tiny_recipe, model=wider, weights=str(openpi)))
