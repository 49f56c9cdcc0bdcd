"""There is one training step to measure, the trainer's."""

import jax
import numpy as np
import pytest

from benchmarks import model, train
from benchmarks.subject import PARTS, RECIPE, Subject, recipe_of, served
from morph_vla.pi05 import Pi05Config
from morph_vla.pi05.parts import by_name
from morph_vla.recipes import recipe as recipes
from morph_vla.training import step as steps

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*donated buffers were not usable")]


@pytest.fixture
def promoting():
    """Types mix as they do for users."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_its_recipe_is_the_shipped_one():
    shipped, ours = recipes.load(RECIPE), recipe_of("full", 32)
    assert (ours.model, ours.training, ours.optimizer) == (shipped.model, shipped.training, shipped.optimizer)
    paired = recipe_of("small", 3, "lora", dtype="bfloat16").model
    assert isinstance(paired, Pi05Config)
    assert paired.lora is not None


@pytest.mark.long
def test_the_step_is_the_trainers_and_carries_its_state_on(promoting):
    recipe = recipe_of("small", 2, dtype="bfloat16")
    wanted, timed = Subject(recipe), Subject(recipe)
    types = {name: str(leaf.dtype) for name, leaf in by_name(timed.state.params).items()}
    assert types["PaliGemma/img/head/kernel"] == "bfloat16"
    assert types["PaliGemma/llm/layers/mlp_1/linear"] == types["morphology/encoder/out/kernel"] == "float32"
    step = steps.make_step(recipe.model, recipe.training, wanted.optimizer)
    work = timed.step()
    for _ in range(2):
        wanted.state, _ = step(wanted.state, *wanted.batch, jax.random.key(1))
        work.run()
    assert timed.state.step == 2
    for leaf, other in zip(jax.tree.leaves(wanted.state), jax.tree.leaves(timed.state), strict=True):
        np.testing.assert_array_equal(leaf, other)
    assert work.temporary_mb is not None
    assert work.temporary_mb > 0


def test_both_benchmarks_time_it(promoting, monkeypatch):
    made = []
    monkeypatch.setattr(Subject, "step", lambda subject: made.append(subject) or _Nothing)
    for name in ("joint", "sampling", "with_plugin"):
        monkeypatch.setattr(Subject, name, lambda subject, *_, **__: subject if _ else _Nothing)
    monkeypatch.setattr(Subject, "parts", lambda _: dict.fromkeys(PARTS, int))
    monkeypatch.setattr(model, "compare", lambda *_: None)
    train.works("small", 2, "expert")
    assert len(list(model.comparisons(Subject(recipe_of("small", 2, plugin=None)), {"mix": {}}, 1))) == 5
    assert len(made) == 3  # bench train's; bench model's host and its variant


class _Nothing:
    run = int


def test_a_policy_holds_its_parameters_rounded(promoting):
    subject = Subject(recipe_of("small", 2, dtype="bfloat16"))
    types = {str(leaf.dtype) for leaf in jax.tree.leaves(served(subject.model, subject.state.params))}
    assert types == {"bfloat16", "float32"}
    held = served(subject.model, subject.state.params)["PaliGemma"]["llm"]["layers_1"]["mlp_1"]
    assert held["gate_up"].dtype == held["linear"].dtype == "bfloat16"
