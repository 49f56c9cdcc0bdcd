"""What is seen inside a policy is what it computed: weights, tokens that give its answer, FiLM."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05
from morph_vla.serving import activations, attention
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.watched import Watched

pytestmark = pytest.mark.slow

COUNT = 5


@pytest.fixture(scope="module")
def policy(tiny_run) -> CheckpointPolicy:
    """The trained policy, with random weights where training begins at zero."""
    policy = CheckpointPolicy(tiny_run.checkpoint, batch=3)
    rng = np.random.default_rng(5)
    policy.params["morphology"] = jax.tree.map(
        lambda leaf: rng.normal(0, 0.3, np.shape(leaf)).astype(np.float32), policy.params["morphology"]
    )
    return policy


@pytest.fixture(scope="module")
def observations(tiny_suite) -> list[dict]:
    rng = np.random.default_rng(2)
    return [
        {
            "images/exterior": rng.integers(0, 256, (24, 24, 3), np.uint8),
            "images/wrist": rng.integers(0, 256, (24, 24, 3), np.uint8),
            "state": rng.normal(size=8).astype(np.float32),
            "prompt": tiny_suite.task, "episode": 3, "step": 8 * i,
        }
        for i in range(COUNT)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def seen(policy, observations) -> activations.Activations:
    return activations.of(policy, observations)


def test_the_attention_between_joints_is_that_of_the_reports_maps(policy, observations, seen, tiny_suite):
    told = attention.of_episode(policy, Watched(tiny_suite, 3, observations, "time"))
    maps = [list(step["layers"]) for step in told["steps"]]
    np.testing.assert_allclose(seen.between[:, :, :8, :8], maps, atol=1e-5)


def test_what_actions_read_of_joints_is_a_share_of_all_they_read(policy, seen):
    assert seen.read is not None
    assert seen.read.shape == (COUNT, 2)
    assert (seen.read > 0).all()
    assert (seen.read < 1).all()
    # 8 joints among 2 x 4 image tokens, the prompt's, 16 actions and themselves.
    prompt = seen.even and 8 / seen.even - 8 - 8 - 16
    assert prompt == pytest.approx(int(prompt + 0.5))
    assert 0 < prompt <= policy.config.max_tokens


def test_the_last_action_tokens_give_the_velocity(policy, observations, seen):
    """Their mean through the last norm is not the norm's mean, so they are asked one by one."""
    ready = policy.prepare(observations[:3])
    noise = jax.random.normal(jax.random.key(0), (3, policy.config.horizon, policy.config.action_dim))
    method, inputs = attention.halfway(policy.config, policy.params, ready, noise)
    assert method is Pi05.velocity
    look = activations._looker(policy.config, 3)(policy.params, ready)
    behind = look["behind"][:, -1]
    np.testing.assert_allclose(np.asarray(behind)[:, :16].mean(axis=1), seen.actions[:3, -1], rtol=1e-5)
    model, variables = Pi05(policy.config), {"params": policy.params}

    def last(module: Pi05) -> jax.Array:
        norm = module.PaliGemma.llm.final_norm_1
        return module.action_out_proj(norm(behind[:, :16], module.conditions(inputs[3], None), None, None)[0])

    velocity: Any = model.apply(variables, *inputs, method=method)
    of_tokens: Any = model.apply(variables, method=last)
    np.testing.assert_allclose(of_tokens, velocity, rtol=1e-4, atol=1e-5)


def test_film_is_the_generators_output_and_enters_the_tokens(policy, seen):
    generator = policy.params["morphology"]["film"]["generator"]
    expected = policy.robot.descriptors @ generator["kernel"] + generator["bias"]
    np.testing.assert_allclose(seen.film[:8], expected, rtol=1e-4, atol=1e-4)
    assert seen.real.tolist() == [True] * 8


def test_told_of_another_body_the_same_observations_have_another_film(policy, observations, seen, tiny_run):
    other = dataclasses.replace(robots.load("panda"), name="other")
    descriptors = np.array(other.descriptors)
    descriptors[:, 3] += 1
    object.__setattr__(other, "descriptors", descriptors)
    misled = CheckpointPolicy(tiny_run.checkpoint, batch=3, told=other)
    misled.params["morphology"] = policy.params["morphology"]
    told = activations.of(misled, observations)
    assert np.abs(told.film - seen.film).max() > 0.1
    assert np.abs(told.joints[:, 0] - seen.joints[:, 0]).max() > 0.1


def test_answers_are_counted_from_where_the_joints_stand(policy, observations, seen):
    chunk = policy.infer(observations[3])["actions"]
    np.testing.assert_allclose(seen.answers[3], chunk - observations[3]["state"], rtol=1e-5)


def test_a_policy_without_kinematic_tokens_is_refused(policy, observations, tiny_run):
    bare = CheckpointPolicy(tiny_run.checkpoint, batch=3)
    bare.config = dataclasses.replace(bare.config, morphology=None)
    with pytest.raises(MorphVlaError, match="this policy has no kinematic tokens to look at"):
        activations.of(bare, observations)
