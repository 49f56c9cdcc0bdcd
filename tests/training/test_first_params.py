"""Where a run's parameters come from."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from morph_vla import weights
from morph_vla.checks import recipe_model
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import counts
from morph_vla.training import checkpoint, loop, parameters, restoring, sharding
from morph_vla.training import step as steps

pytestmark = pytest.mark.slow


def shapes_of(recipe):
    return counts.shapes(dataclasses.replace(recipe.model, dtype="float32"))


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
        restoring.load_params(tiny_run.checkpoint, parameters.fresh_params(recipe))
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


@pytest.fixture(scope="module")
def expert_run(tiny_recipe, openpi, tmp_path_factory):
    """The action expert alone, in the mixture of types of a real run: what is frozen is bfloat16."""
    recipe = dataclasses.replace(
        tiny_recipe,
        weights=str(openpi),
        model=dataclasses.replace(tiny_recipe.model, dtype="bfloat16"),
        training=dataclasses.replace(tiny_recipe.training, kind="expert", steps=4, checkpoint_every=2),
    )
    with jax.numpy_dtype_promotion("standard"):  # as users have it: Flax's norms promote by themselves
        return recipe, loop.train(recipe, tmp_path_factory.mktemp("expert"))


def test_what_is_frozen_is_written_once_and_a_checkpoint_stands_alone(expert_run, tmp_path):
    recipe, run = expert_run
    checkpoints = run.folder / "checkpoints"
    assert checkpoint.steps(checkpoints) == [2, 4]  # the step before the first would be the weights again
    values = [*(checkpoints / "frozen").rglob("d/*")]
    assert values
    for path in values:  # in `frozen`, in 2 and in 4
        assert path.stat().st_nlink == 3
    alone = shutil.copytree(run.checkpoint, tmp_path / "alone")
    first, names = leaves(parameters.first_params(recipe)), {}
    for kind in ("params", "averaged"):
        params, report = weights.load(alone, recipe.model, dtype="stored", kind=kind)
        assert (report.format, report.unused) == ("morph_vla", ())
        like = shapes_of(recipe)
        names[kind] = leaves(params)
        for name, leaf in leaves(restoring.load_params(alone, like, kind)).items():
            np.testing.assert_array_equal(names[kind][name], leaf)
            assert leaf.dtype == first[name].dtype
    assert not (alone / "params" / "PaliGemma.img.head.kernel").exists()
    for name, leaf in first.items():
        frozen = leaf.dtype == "bfloat16"
        assert np.array_equal(names["params"][name], leaf) == frozen, name
        assert np.array_equal(names["params"][name], names["averaged"][name]) == frozen, name


def test_no_parameter_is_copied_before_the_first_step(expert_run):
    recipe, _ = expert_run
    params = parameters.first_params(recipe)
    optimizer, _ = steps.make_optimizer(recipe.optimizer, recipe.training.steps)
    shapes = loop._shapes(params, optimizer, recipe.training, sharding.make_mesh())
    state = loop._first_state(params, optimizer, recipe.training, shapes)
    for leaf, before in zip(jax.tree.leaves(state.params), jax.tree.leaves(params), strict=True):
        assert leaf.unsafe_buffer_pointer() == before.unsafe_buffer_pointer()
    for leaf, shape in zip(jax.tree.leaves(state), jax.tree.leaves(shapes), strict=True):
        assert (leaf.shape, leaf.dtype) == (shape.shape, shape.dtype)


def test_random_parameters_have_the_types_of_loaded_ones(expert_run):
    recipe, _ = expert_run
    loaded = leaves(parameters.first_params(recipe))
    drawn = leaves(parameters.fresh_params(recipe))
    assert {name: leaf.dtype for name, leaf in drawn.items()} == {
        name: leaf.dtype for name, leaf in loaded.items()
    }


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


def test_the_check_and_the_trainer_agree_on_what_weights_fit(tiny_recipe, tiny_run, tmp_path, monkeypatch):
    begun = dataclasses.replace(tiny_recipe, weights=str(tiny_run.checkpoint))
    plugin = tiny_recipe.model.morphology
    more = dataclasses.replace(plugin, auxiliary=1, bias="spd-soft")
    grown = dataclasses.replace(begun, model=dataclasses.replace(begun.model, morphology=more))
    assert parameters.first_params(grown)
    assert [finding for finding in recipe_model.weights(grown) if finding.severity == "error"] == []
    other = dataclasses.replace(begun, tokenizer="words")
    words = "was trained with tokenizer 'bytes'|trained with tokenizer 'bytes'"
    (finding,) = recipe_model.weights(other)
    assert "'bytes'" in finding.found
    assert "'words'" in finding.found
    monkeypatch.setattr(loop, "Source", lambda *_, **__: pytest.fail("frames were decoded"))
    with pytest.raises(MorphVlaError, match=words):
        loop.train(other, tmp_path / "run")
