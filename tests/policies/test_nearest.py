"""Nearest neighbours: what is remembered, what answers, and a run in which nothing learns."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import KDTree

from morph_vla import policies
from morph_vla.errors import ConfigError
from morph_vla.pi05 import Observation
from morph_vla.pi05.parts import by_name
from morph_vla.policies import nearest
from morph_vla.policies.config import NearestConfig
from morph_vla.policies.text import TEXT
from morph_vla.recipes import recipe as recipes
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.training import counted, loop
from morph_vla.training.source import Source

ROWS, MEMORY, JOINTS, POSES, HORIZON = 61, 67, 5, 3, 2
CONFIG = NearestConfig(action_dim=JOINTS, environment=POSES, horizon=HORIZON, memory=MEMORY)
FIVE = dataclasses.replace(CONFIG, neighbours=5)
act, loss = jax.jit(nearest.act, static_argnums=(0, 4)), jax.jit(nearest.loss, static_argnums=0)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Recorded:
    """Random rows: the first 40 of a robot of three joints, the others of one of five."""

    def __init__(self, rows=ROWS):
        mask = np.arange(JOINTS) < np.where(np.arange(rows) < 40, 3, 5)[:, None]
        state, actions = normal(rows, JOINTS, seed=1), normal(rows, HORIZON, JOINTS, seed=2)
        environment = normal(rows, POSES + TEXT, seed=3)
        self.all = policies.Pairs(state * mask, environment, actions * mask[:, None], mask, rows)

    def chunks(self, most):
        return self.all.actions[:most], self.all.mask[:most]

    def pairs(self, most):
        return self.all._replace(**{key: getattr(self.all, key)[:most] for key in self.all._fields[:4]})

    def keys(self, rows):
        return np.concatenate([self.all.state, self.all.environment], axis=1)[rows]


def fitted(config, recorded):
    return nearest.fit(config, nearest.init(config, jax.random.key(0)), recorded, seed=1)


def asked(count, joints, seed=7):
    mask = np.broadcast_to(np.arange(JOINTS) < joints, (count, JOINTS))
    observation = Observation(
        {}, {}, np.zeros((count, 0), np.int32), np.zeros((count, 0), bool), None,
        normal(count, JOINTS, seed=seed) * mask, normal(count, POSES + TEXT, seed=seed + 1),
    )  # fmt: skip
    return policies.Asked(observation, jnp.zeros((count, HORIZON, JOINTS)), mask, None)


def seen(request):
    return np.concatenate(
        [np.asarray(request.observation.state), np.asarray(request.observation.environment)], 1
    )


@pytest.mark.parametrize(("joints", "rows"), [(3, slice(0, 40)), (5, slice(40, ROWS))])
def test_the_nearest_rows_of_a_robot_with_as_many_joints_answer(joints, rows):
    """Held against SciPy's tree."""
    recorded, request = Recorded(), asked(11, joints)
    query = seen(request)
    away, chosen = KDTree(recorded.keys(rows)).query(query, k=5)
    chunks = recorded.all.actions[rows][chosen]
    one = act(CONFIG, fitted(CONFIG, recorded), None, request, 10)
    np.testing.assert_array_equal(one, chunks[:, 0])
    weights = np.exp(-away) / np.exp(-away).sum(axis=1, keepdims=True)
    five = act(FIVE, fitted(FIVE, recorded), None, request, 10)
    np.testing.assert_allclose(five, np.einsum("bk,bkha->bha", weights, chunks), rtol=1e-4, atol=1e-6)


def test_a_robot_with_other_joints_than_any_that_is_remembered_is_answered_from_all():
    recorded, request = Recorded(), asked(11, 2)
    query = seen(request)
    chosen = KDTree(recorded.keys(slice(None))).query(query)[1]
    answers = act(CONFIG, fitted(CONFIG, recorded), None, request, 10)
    np.testing.assert_array_equal(answers, recorded.all.actions[chosen])


def test_nobodys_rows_never_answer():
    """Fewer rows than neighbours: the mean of those there are, and no zeros of an empty memory."""
    recorded = Recorded(rows=2)
    answers = act(FIVE, fitted(FIVE, recorded), None, asked(3, 3), 10)
    low, high = recorded.all.actions.min(axis=0), recorded.all.actions.max(axis=0)
    assert (answers >= low - 1e-6).all()
    assert (answers <= high + 1e-6).all()
    np.testing.assert_array_equal(recorded.all.mask.sum(axis=1), 3)


def test_a_row_that_is_remembered_is_answered_by_its_own_chunk():
    recorded = Recorded()
    kept = recorded.all
    observation = Observation(
        {}, {}, np.zeros((ROWS, 0), np.int32), np.zeros((ROWS, 0), bool), None, kept.state, kept.environment
    )  # fmt: skip
    batch = policies.Drawn(
        observation, jnp.asarray(kept.actions), jnp.asarray(kept.mask),
        jnp.zeros((ROWS, 1, HORIZON, JOINTS)), jnp.ones((ROWS, 1)),
    )  # fmt: skip
    np.testing.assert_array_equal(loss(CONFIG, fitted(CONFIG, recorded), batch), 0)
    assert np.all(loss(FIVE, fitted(FIVE, recorded), batch).max(axis=1) > 0)


def test_more_rows_than_the_memory_holds_are_said(caplog):
    caplog.set_level("INFO")
    small = dataclasses.replace(CONFIG, memory=7)
    params = fitted(small, Recorded())
    assert caplog.messages == ["model.memory: 7 rows of 61 are remembered"]
    np.testing.assert_array_equal(params["memory"]["chunks"], Recorded().all.actions[:7])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model.neighbours=0"], "model.neighbours: must be at least 1, not 0"),
        (["model.memory=4"], "model.neighbours: 5 are more than the 4 rows of model.memory"),
        (
            ["model.width=64"],
            "model.width: no such key (the keys here are action_dim, horizon, environment, family, ",
        ),
        (
            ["training.steps=5"],
            "training.steps: in 5 steps model.family 'nearest' learns no more than in one; set it to 1",
        ),
        (
            ["optimizer.peak_lr=0.001"],
            "optimizer.peak_lr: 0.001 has no effect with model.family 'nearest', which remembers, and learns "
            "nothing in a step; set it to 2.5e-05, or leave it out",
        ),
    ],
)
def test_what_makes_no_sense_of_neighbours_is_refused(changes, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        recipes.load("nearest_state", changes)


def test_it_is_counted_as_frozen():
    counts = counted.count(recipes.load("nearest_state"))
    assert counts.kinds["full"] == {"trainable": 0, "frozen": 32768 * (8 + 14 + TEXT + 16 * 8 + 8)}
    assert counts.parts[0]["part"] == "memory"


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    changes = ["model.neighbours=1", "model.memory=499", "training.batch=7", f"data.dataset={dataset}"]
    recipe = recipes.load("nearest_state", [*changes, "data.held_out=0.4"])
    return loop.train(recipe, tmp_path_factory.mktemp("nearest"))


@pytest.mark.slow
def test_a_run_remembers_and_its_policy_answers_with_what_followed(run, tmp_path):
    """Every fifth row of what was trained on is shown as a robot would show it."""
    policy = CheckpointPolicy(run.checkpoint, batch=3)
    source = Source(recipes.of_run(run.folder), tmp_path)
    part = source.parts[0]
    recordings, rows = part.recordings, part.train_rows[::5][:21]
    assert recordings.environment is not None
    for row in rows:
        observation = {
            "state": recordings.state[row],
            "environment_state": recordings.environment[row],
            "prompt": recordings.tasks[recordings.task_of[row]],
            "episode": 3,
            "step": 0,
        }
        answer = policy.infer(observation)["actions"]
        learnt, _ = source.learnt(np.zeros(1, int), np.array([row]))
        expected = source.stats["panda"].action.restore(learnt[0])
        np.testing.assert_allclose(answer, expected, atol=1e-5)


@pytest.mark.slow
def test_the_same_command_again_reads_what_was_remembered(run):
    again = loop.train(recipes.of_run(run.folder), run.folder)
    assert again.checkpoint == run.checkpoint
    assert (run.checkpoint / "frozen").is_dir()
    assert set(by_name(policies.shapes(recipes.of_run(run.folder).model))) == {
        "memory/seen", "memory/chunks", "memory/joints",
    }  # fmt: skip
