"""Fine-tuning through low-rank pairs: what learns, the run, its policy, and the run after it."""

import dataclasses

import jax
import numpy as np
import pytest

from morph_vla.errors import ConfigError
from morph_vla.pi05 import Pi05Config, init_params
from morph_vla.pi05.config import Lora, LowRank
from morph_vla.recipes import recipe as config
from morph_vla.training import checkpoint, loop, restoring
from morph_vla.training.kinds import learns, parts_of
from morph_vla.training.parameters import first_params
from morph_vla.weights.checkpoint import flat

PAIRS = Lora(LowRank(3, 3.0), LowRank(2, 5.0), whole=())


def paired(recipe, lora=PAIRS, **keys):
    training = dataclasses.replace(recipe.training, kind="lora", lora=lora, **keys)
    return dataclasses.replace(recipe, training=training)


@pytest.fixture(scope="module")
def recipe(tiny_recipe):
    model = dataclasses.replace(tiny_recipe.model, unroll=False)
    return dataclasses.replace(
        paired(tiny_recipe, flow_samples=1), model=dataclasses.replace(model, lora=PAIRS)
    )


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    return loop.train(recipe, tmp_path_factory.mktemp("lora") / "train")


def shapes_of(recipe):
    return jax.eval_shape(lambda: init_params(recipe.model, jax.random.key(0)))


def learnt(recipe):
    return {name for name in flat(shapes_of(recipe)) if learns(name, recipe.training)}


def test_what_learns_is_what_openpis_freeze_filter_leaves(tiny_recipe):
    """Its rule: where the language model has pairs its own weights freeze, and so do the expert's."""
    both = learnt(paired(tiny_recipe, Lora()))
    assert not {name for name in both if "/llm/" in name and "lora" not in name}
    assert {name for name in both if name.startswith("PaliGemma/img/")}  # the filter is about `llm` alone
    assert {name.split("/")[0] for name in both} > {"action_in_proj", "time_mlp_in", "morphology"}
    alone = learnt(paired(tiny_recipe, Lora(action_expert=None, whole=("vision encoder", "action expert"))))
    assert alone ^ both == {
        name for name in flat(shapes_of(tiny_recipe)) if "/llm/" in name and "_1" in name
    } | {name for name in both if "lora" in name and "_1" in name}
    frozen = learnt(paired(tiny_recipe, Lora(action_expert=None, whole=())))
    assert not {name for name in frozen if name.startswith("PaliGemma/") and "lora" not in name}


@pytest.mark.slow
def test_a_run_learns_its_pairs_and_leaves_the_weights(trained, recipe):
    first, last = (
        flat(restoring.load_params(trained.folder / "checkpoints" / step, shapes_of(recipe), "params"))
        for step in ("0", "6")
    )
    moved = {name for name in first if (np.asarray(first[name]) != np.asarray(last[name])).any()}
    assert moved <= learnt(recipe)
    assert {name for name in learnt(recipe) if name.endswith("lora_b")} - moved <= {
        # the prefix's last layer hands on keys and values alone, and a place for a joint may be empty
        name
        for name in learnt(recipe)
        if "morphology" in name
    }
    saved = (trained.folder / "checkpoints/6/about/leaves.json").read_text()
    assert "lora_a" in saved
    assert "gating_einsum']\"" not in saved


@pytest.mark.slow
def test_the_table_names_ranks_and_targets(trained, recipe):
    named = "language model: pairs of rank 3, alpha 3, beside attention and feed-forward"
    assert trained.parts[named]["frozen"] == 0 < trained.parts[named]["trainable"]
    assert "action expert: pairs of rank 2, alpha 5, beside attention and feed-forward" in trained.parts
    assert trained.parts["language model"]["trainable"] == trained.parts["vision encoder"]["trainable"] == 0
    assert parts_of(shapes_of(recipe), recipe.training) == trained.parts


@pytest.mark.slow
def test_its_policy_acts_and_its_weights_begin_another_run(trained, recipe, tiny_recipe, caplog):
    from morph_vla.serving.policy import CheckpointPolicy

    policy = CheckpointPolicy(trained.checkpoint, batch=1, steps=2)
    assert isinstance(policy.config, Pi05Config)
    assert policy.config.lora is None  # merged
    answer = policy.infer(
        {
            **{f"images/{name}": np.zeros((24, 24, 3), np.uint8) for name in ("exterior", "wrist")},
            "state": np.zeros(8, np.float32),
            "prompt": "go",
        }
    )
    assert np.isfinite(answer["actions"]).all()
    caplog.set_level("INFO", "morph_vla")
    after = first_params(dataclasses.replace(tiny_recipe, weights=str(trained.checkpoint)))
    assert flat(after).keys() == flat(shapes_of(tiny_recipe)).keys()
    assert "low-rank pairs merged into their weights" in caplog.text
    again = first_params(dataclasses.replace(recipe, weights=str(trained.checkpoint)))
    assert policy.digest() == checkpoint.digest(policy.about, jax.tree.leaves(again))


@pytest.mark.slow
@pytest.mark.parametrize("keep_lora", [False, True])
def test_converted_to_our_own_format_it_is_the_same_policy(trained, recipe, tmp_path, keep_lora):
    from morph_vla.serving.policy import CheckpointPolicy
    from morph_vla.weights.convert import convert

    before = CheckpointPolicy(trained.checkpoint, batch=1, steps=2)
    convert(trained.checkpoint, tmp_path / "ours", "morph_vla", keep_lora=keep_lora)
    after = CheckpointPolicy(tmp_path / "ours", batch=1, steps=2)
    assert after.about["robots"] == before.about["robots"]
    assert after.robot.files[0].is_relative_to(tmp_path)
    leaves = zip(jax.tree.leaves(after.params), jax.tree.leaves(before.params), strict=True)
    assert all(np.allclose(*pair, rtol=1e-5, atol=1e-6) for pair in leaves)
    again = first_params(dataclasses.replace(recipe, weights=str(tmp_path / "ours"), model=after.config))
    assert flat(again).keys() == flat(shapes_of(dataclasses.replace(recipe, model=after.config))).keys()


def test_recipes_say_it_once(write_recipe):
    result = write_recipe(
        "training.kind=lora", "training.lora={language_model: {rank: 4}, action_expert: null}"
    )
    assert result.model.lora == Lora(LowRank(4), None) == result.training.lora
    assert write_recipe("training.kind=lora").model.lora == Lora()
    for overrides, words in (
        (["training.lora={}"], r"training\.lora means nothing to training\.kind: full; choose kind: lora"),
        (["model.lora={}"], r"model\.lora follows from training\.kind and training\.lora; write it there"),
        (["training.kind=lora", "training.lora={language_modle: null}"], r"did you mean 'language_model'"),
        (
            ["training.kind=lora", "training.lora={language_model: {targets: [atention]}}"],
            r"mean 'attention'",
        ),
        (["training.kind=lora", "training.lora={whole: [vision encodr]}"], r"mean 'vision encoder'"),
        (["training.kind=lora", "training.lora={language_model: {rank: 0}}"], r"rank: must be at least 1"),
        (["training.kind=loar"], r"did you mean 'lora'"),
    ):
        with pytest.raises(ConfigError, match=words):
            write_recipe(*overrides)


@pytest.fixture
def write_recipe():
    return lambda *overrides: config.load("panda_demo", overrides)
