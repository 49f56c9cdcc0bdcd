"""Geometry descriptors and present poses through a run: what is trained, checkpointed, sampled and served."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.morphology import tokens
from morph_vla.morphology.arrays import FEATURES, poses_of
from morph_vla.robots.screws import features
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.training import loop, parameters
from morph_vla.training import step as steps
from morph_vla.training.source import Source

pytestmark = pytest.mark.slow  # three trainings and two policies are compiled


@pytest.fixture(scope="module")
def recipe(mixed_recipe):
    plugin = dataclasses.replace(mixed_recipe.model.morphology, descriptors="geometry", poses="present")
    return dataclasses.replace(mixed_recipe, model=dataclasses.replace(mixed_recipe.model, morphology=plugin))


@pytest.fixture(scope="module")
def source(recipe, tmp_path_factory):
    return Source(recipe, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    return loop.train(recipe, tmp_path_factory.mktemp("poses") / "train")


def observations(part, rows) -> list[dict]:
    """Recorded rows as a simulator or a client would give them."""
    return [
        {
            "state": part.recordings.state[row],
            "prompt": part.recordings.tasks[part.recordings.task_of[row]],
            **{f"images/{name}": np.zeros((24, 24, 3), np.uint8) for name in part.asked.cameras.values()},
        }
        for row in rows
    ]


@pytest.fixture
def read(monkeypatch):
    """The poses that kinematic tokens read from here on, call by call."""
    calls = []

    def noted(body):
        poses = poses_of(body)
        jax.debug.callback(lambda values: calls.append(np.asarray(values)), poses)
        return poses

    monkeypatch.setattr(tokens, "poses_of", noted)
    return calls


@pytest.mark.long
@pytest.mark.parametrize("index", [0, 1])
def test_the_training_step_and_the_sampler_read_the_same_values(recipe, source, run, read, index):
    part, rows = source.parts[index], np.array([2, 5, 7])
    batch = source.batch(np.full(3, index), rows)
    policy = CheckpointPolicy(run.checkpoint, robot=part.asked.robot, batch=3)
    settings, actions = recipe.training, jnp.asarray(batch.actions)
    loss = jax.jit(lambda params: steps.draw_errors(
        recipe.model, settings, params, batch.observation, actions, jax.random.key(0), False
    ))  # fmt: skip
    jax.block_until_ready(loss(policy.params))
    jax.effects_barrier()
    trained = [values[:3] for values in read]
    read.clear()
    policy.infer_batch(observations(part, rows))
    jax.effects_barrier()
    assert trained
    assert len(read) >= 1  # of each Euler step, or once for all
    for sampled in read:
        np.testing.assert_array_equal(sampled, trained[0])
    assert np.abs(trained[0][0] - trained[0][2]).max() > 1e-4  # the arm has moved in between


def test_a_served_body_is_the_trained_one(source, run):
    for index, part in enumerate(source.parts):
        rows = np.array([1, 4])
        trained = source.batch(np.full(2, index), rows).observation.body
        policy = CheckpointPolicy(run.checkpoint, robot=part.asked.robot, batch=2)
        served = policy.prepare(observations(part, rows)).body
        assert served is not None
        assert jax.tree.structure(served) == jax.tree.structure(trained)
        for one, other in zip(jax.tree.leaves(served), jax.tree.leaves(trained), strict=True):
            np.testing.assert_array_equal(one, other)
        count = len(part.robot.names)
        np.testing.assert_array_equal(np.asarray(served.descriptors)[0, :count], features(part.robot))
        native = part.robot.to_native(part.recordings.state[rows]).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(served.positions)[:, :count], native)


def test_a_checkpoint_remembers_what_its_plugin_reads(recipe, run):
    written = json.loads((run.checkpoint / "about" / "recipe.json").read_text())["model"]["morphology"]
    assert (written["descriptors"], written["poses"]) == ("geometry", "present")
    policy = CheckpointPolicy(run.checkpoint, robot="panda")
    kernel = policy.params["morphology"]["film"]["generator"]["kernel"]
    assert kernel.shape[0] == len(FEATURES["geometry"])
    for key, wanted, sentence in (
        ("descriptors", "paper", "trained with descriptors: geometry, the model has descriptors: paper; set"),
        ("poses", "none", "trained with poses: present, the model has poses: none; set"),
    ):
        plugin = dataclasses.replace(recipe.model.morphology, **{key: wanted})
        model = dataclasses.replace(recipe.model, morphology=plugin)
        other = dataclasses.replace(recipe, model=model, weights=str(run.checkpoint))
        with pytest.raises(MorphVlaError, match=f"its plugin was {sentence} model.morphology.{key}: "):
            parameters.first_params(other)
