"""A history of each joint through a run: what is trained, checkpointed and served is one window."""

import dataclasses
import json
from functools import partial

import jax
import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.morphology.config import History
from morph_vla.serving import card
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.training import loop, parameters
from morph_vla.training.datasets import read_parts
from morph_vla.training.source import Source

PAST = History(steps=3, modes=2, stride=4)


def looking_back(recipe, history):
    plugin = dataclasses.replace(recipe.model.morphology, history=history)
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, morphology=plugin))


@pytest.fixture(scope="module")
def recipe(mixed_recipe):
    return looking_back(mixed_recipe, PAST)


@pytest.fixture(scope="module")
def source(recipe, tmp_path_factory):
    return Source(recipe, tmp_path_factory.mktemp("cache"))


def shown(part, step: int) -> dict:
    """The row of the dataset's second episode, as a simulator or a client would show it."""
    row = part.recordings.starts[1] + step
    return {
        "state": part.recordings.state[row],
        "prompt": part.recordings.tasks[part.recordings.task_of[row]],
        **{f"images/{name}": np.zeros((24, 24, 3), np.uint8) for name in part.asked.cameras.values()},
        "episode": 7,
        "step": step,
    }


def test_a_batch_has_the_windows_of_its_episode_and_repeats_its_first_row_before_the_start(source):
    for index, part in enumerate(source.parts):
        first = part.recordings.starts[1]
        rows, wanted = first + np.array([0, 5, 9]), [[0, 0, 0], [0, 1, 5], [1, 5, 9]]
        body = source.batch(np.full(3, index), rows).observation.body
        count = len(part.robot.names)
        states = source.stats[part.asked.robot].state.normalise(
            part.recordings.state[first + np.array(wanted)]
        )
        np.testing.assert_array_equal(body.history[:, :, :count], states)
        np.testing.assert_array_equal(body.history[:, :, count:], 0)


def test_a_window_of_one_is_the_present(mixed_recipe, tmp_path):
    source = Source(looking_back(mixed_recipe, History(steps=1, modes=1)), tmp_path)
    part, rows = source.parts[0], np.array([2, 5, 7])
    body = source.batch(np.zeros(3, int), rows).observation.body
    assert body is not None
    present = source.stats["panda"].state.normalise(part.recordings.state[rows])
    np.testing.assert_array_equal(np.asarray(body.history)[:, 0, :8], present)


def test_without_a_history_batches_are_as_they_were(mixed_recipe, source, tmp_path):
    plain, dataset, rows = Source(mixed_recipe, tmp_path), np.array([0, 1, 0]), np.array([2, 5, 7])
    before, after = (one.batch(dataset, rows).observation for one in (plain, source))
    assert before.body is not None
    assert before.body.history is None
    assert after.body is not None
    body = dataclasses.replace(after.body, history=None)
    same = dataclasses.replace(after, body=body)
    assert jax.tree.structure(before) == jax.tree.structure(same)
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_window_longer_than_every_episode_is_refused(mixed_recipe):
    long = looking_back(mixed_recipe, History(steps=12, modes=2, stride=2))  # 22 steps back; SO101's have 22
    with pytest.raises(
        MorphVlaError,
        match=r": the model looks back 22 control steps \(model\.morphology\.history: \(steps - 1\) \* "
        r"stride\), and the longest episode has 22; choose fewer steps or a smaller stride$",
    ):
        read_parts(long)


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    return loop.train(recipe, tmp_path_factory.mktemp("history") / "train")


@pytest.mark.long
@pytest.mark.slow
def test_what_is_served_is_the_trained_window_and_a_step_that_was_not_asked_is_said(source, run):
    index, part = 0, source.parts[0]
    policy = CheckpointPolicy(run.checkpoint, robot=part.asked.robot, batch=2)
    assert card.of(policy)[0].looks_back  # so that a server asks its clients for the control step
    for step in (0, 4, 8, 12):
        served = policy.prepare([shown(part, step)] * 2).body
        rows = np.full(2, part.recordings.starts[1] + step)
        trained = source.batch(np.full(2, index), rows).observation.body
        assert served is not None
        assert jax.tree.structure(served) == jax.tree.structure(trained)
        for one, other in zip(jax.tree.leaves(served), jax.tree.leaves(trained), strict=True):
            np.testing.assert_array_equal(one, other)
    answers = [policy.infer(shown(part, step))["actions"] for step in (0, 4)]
    assert all(np.isfinite(actions).all() for actions in answers)
    with pytest.raises(
        MorphVlaError, match=r"looks back at step 6, at which it was not asked; ask it every 4 "
    ):
        policy.infer(shown(part, 10))


@pytest.mark.slow
def test_a_checkpoint_remembers_how_far_its_joints_look_back(recipe, run):
    written = json.loads((run.checkpoint / "about" / "recipe.json").read_text())["model"]["morphology"]
    assert written["history"] == {"steps": 3, "modes": 2, "stride": 4}
    policy = CheckpointPolicy(run.checkpoint, robot="panda")
    kernel = policy.params["morphology"]["history"]["in"]["kernel"]
    assert kernel.shape[0] == PAST.values == 3
    first = partial(dataclasses.replace, recipe, weights=str(run.checkpoint))
    for other, words in ((None, "null"), (History(5, 2, 4), r"\{steps: 5, modes: 2, stride: 4\}")):
        sentence = r"its plugin was trained with history: \{steps: 3, modes: 2, stride: 4\}, the model has "
        with pytest.raises(
            MorphVlaError, match=f"{sentence}history: {words}; set model.morphology.history: "
        ):
            parameters.first_params(first(model=looking_back(recipe, other).model))
