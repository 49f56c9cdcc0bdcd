"""`model.image_tokens` from a recipe to a served policy, and where it does not go."""

import dataclasses
import json

import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.pi05 import Pi05Config
from morph_vla.pi05.config import ImageTokens
from morph_vla.recipes import recipe as recipes
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.training import counted, loop, parameters
from morph_vla.weights.checkpoint import flat
from morph_vla.weights.convert import convert

pytestmark = pytest.mark.slow

RANKING = ImageTokens(keep=2, features="relu", width=5, projections=32)


def with_tokens(recipe, fewer, **training):
    model = dataclasses.replace(recipe.model, image_tokens=fewer)
    return dataclasses.replace(recipe, model=model, training=dataclasses.replace(recipe.training, **training))


@pytest.fixture(scope="module")
def run(tiny_recipe, tmp_path_factory):
    """Four tokens an image become two; three steps."""
    recipe = with_tokens(tiny_recipe, RANKING, steps=3)
    return loop.train(recipe, tmp_path_factory.mktemp("fewer"))


@pytest.mark.long
def test_a_checkpoint_remembers_and_a_policy_acts(run):
    policy = CheckpointPolicy(run.checkpoint)
    assert isinstance(policy.config, Pi05Config)
    assert policy.config.image_tokens == RANKING
    rng = np.random.default_rng(0)
    images = {
        f"images/{name}": rng.integers(0, 256, (24, 24, 3), dtype=np.uint8) for name in ("exterior", "wrist")
    }
    asked = {
        **images,
        "state": np.zeros(8, np.float32),
        "prompt": "put",
        "robot": "panda",
        "episode": 0,
        "step": 0,
    }
    actions = policy.infer(asked)["actions"]
    assert np.isfinite(actions).all()
    np.testing.assert_array_equal(CheckpointPolicy(run.checkpoint).infer(asked)["actions"], actions)


def test_queries_and_keys_are_trained(run):
    recipe = recipes.of_run(run.folder)
    assert isinstance(recipe.model, Pi05Config)
    first = flat(parameters.fresh_params(recipe))
    last = flat(weights.load(run.checkpoint, recipe.model)[0])
    for name in ("image_tokens/query", "image_tokens/key"):
        assert np.abs(np.asarray(first[name]) - last[name]).max() > 0


def test_a_checkpoint_from_before_gives_all_but_queries_and_keys(tiny_recipe, tiny_run):
    recipe = dataclasses.replace(with_tokens(tiny_recipe, RANKING), weights=str(tiny_run.checkpoint))
    params = flat(parameters.first_params(recipe))
    before = flat(weights.load(tiny_run.checkpoint, tiny_recipe.model)[0])
    assert params.keys() - before.keys() == {"image_tokens/query", "image_tokens/key"}
    for name, leaf in before.items():
        np.testing.assert_array_equal(params[name], leaf)
    np.testing.assert_array_equal(params["image_tokens/query"], -np.asarray(params["image_tokens/key"]))


def test_what_would_never_be_learnt_is_refused(tiny_recipe):
    learnt = ImageTokens(keep=2, how="learnt", width=5)
    words = (
        r"^model.image_tokens.how: 'learnt' begins as averages, and training.kind 'expert' leaves it there; "
        r"choose how: average, or a kind in which the vision encoder learns$"
    )
    with pytest.raises(ConfigError, match=words):
        parameters.first_params(with_tokens(tiny_recipe, learnt, kind="expert"))
    parameters.first_params(with_tokens(tiny_recipe, learnt, kind="full"))


def test_other_programs_models_read_all_tokens(run, tmp_path):
    words = r"trained with model.image_tokens, and openpi's pi0.5 reads all tokens of an image$"
    with pytest.raises(MorphVlaError, match=words):
        convert(run.checkpoint, tmp_path / "openpi", "openpi")
    recipe = recipes.of_run(run.folder)
    assert isinstance(recipe.model, Pi05Config)
    bare = dataclasses.replace(recipe.model, morphology=None)
    params = {"PaliGemma": weights.load(run.checkpoint, recipe.model)[0]["PaliGemma"]}
    with pytest.raises(MorphVlaError, match=r"^LeRobot's pi0.5 has no model.image_tokens: it reads all"):
        weights.save_lerobot(tmp_path / "lerobot", params, bare)


def test_recipes_show_counts_the_tokens_that_are_left(tiny_recipe):
    counts = counted.count(with_tokens(tiny_recipe, RANKING))
    assert counts.tokens["image"] == 4
    assert "tokens: 4 image" in str(counts)
    before = counted.count(tiny_recipe)
    width = tiny_recipe.model.prefix.width
    (vision,) = (row["parameters"] for row in counts.parts if row["part"] == "vision encoder")
    (old,) = (row["parameters"] for row in before.parts if row["part"] == "vision encoder")
    assert vision - old == 2 * 5 * width
    host = {row.variant: row for row in counts.variants}["host alone"]
    assert (
        host.training_step_flop
        < {row.variant: row for row in before.variants}["host alone"].training_step_flop
    )


def test_a_recipe_names_it(tiny_recipe, tmp_path):
    path = tmp_path / "fewer.yaml"
    path.write_text(
        json.dumps({"data": {"dataset": "runs/x", "robot": "panda"}, "model": {}, "training": {"steps": 1}})
    )
    changed = recipes.load(path, ["model.image_tokens={keep: 64, how: average}"])
    assert changed.model == Pi05Config(image_tokens=ImageTokens(64, "average"))
    with pytest.raises(
        ConfigError, match=r"model.image_tokens.keep: 257 is not between 1 and an image's 256"
    ):
        recipes.load(path, ["model.image_tokens={keep: 257}"])
    with pytest.raises(ConfigError, match=r"how: expected .*, got \"avrage\"; did you mean 'average'\?$"):
        recipes.load(path, ["model.image_tokens={keep: 64, how: avrage}"])
