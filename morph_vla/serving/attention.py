"""Who attends to whom: mean attention weights between the joints of a policy's kinematic tokens."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from morph_vla.errors import MorphVlaError
from morph_vla.morphology import bias
from morph_vla.pi05 import Observation, Pi05, Pi05Config, sample_actions
from morph_vla.pi05.model import interpolate
from morph_vla.policies.config import ModelConfig
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.watched import Watched, batches


def has_joints(config: ModelConfig) -> bool:
    """Whether a policy has tokens of joints, which attend to each other."""
    return config.morphology is not None and config.morphology.control != "tokens"


def of_episode(policy: CheckpointPolicy, watched: Watched) -> dict[str, Any]:
    """Per layer, the mean weight [j j] of joint i (row) attending to joint j, halfway through denoising.

    At each time the policy was asked under `steps`; their mean under `layers`. Averaged over heads and a
    joint's tokens, summed over those it sees; rows do not add to one, because joints attend to images, prompt
    and actions too. Raises MorphVlaError for a policy without kinematic tokens.
    """
    config, morphology = policy.config, policy.config.morphology
    if not isinstance(config, Pi05Config) or not has_joints(config) or morphology is None:
        raise MorphVlaError(f"{policy.folder}: this policy has no kinematic tokens, so joints do not attend")
    maps = _maps(policy, watched.observations)
    steps = [
        {**moment, "layers": [_matrix(policy, matrix) for matrix in layers]}
        for moment, layers in zip(watched.moments, maps, strict=True)
    ]
    masked = bias.masked(morphology.bias, config.depth).tolist()
    return {
        "joints": [joint.name for joint in policy.robot.joints],
        "adjacency": policy.robot.adjacency.astype(int).tolist(),
        "layers": [
            {"layer": layer, "masked": masked[layer], "matrix": _matrix(policy, matrix)}
            for layer, matrix in enumerate(maps.mean(axis=0))
        ],
        "steps": steps,
        "episode": watched.facts,
    }


def _maps(policy: CheckpointPolicy, observations: Sequence[dict[str, Any]]) -> Float[np.ndarray, "n l j j"]:
    """Joint to joint, an observation and a layer each."""
    morphology, weights, maps = policy.config.morphology, _weights_of(policy), []
    assert morphology is not None
    for count, ready in batches(policy, observations):
        seen = np.asarray(weights(policy.params, ready), np.float64)
        maps += [
            between_joints(seen[:, i : i + 1], morphology.max_joints, morphology.copies) for i in range(count)
        ]
    return np.stack(maps)


def _weights_of(policy: CheckpointPolicy) -> Callable[[Any, Any], Any]:
    """(parameters, observation batch) -> attention weights [l b k g t s], halfway through denoising.

    With `model.head` those of its one pass.
    """
    config = policy.config
    assert isinstance(config, Pi05Config)  # it has kinematic tokens
    noise = jax.random.normal(jax.random.key(0), (policy.batch, config.horizon, config.action_dim))

    @jax.jit
    def weights(params: dict[str, Any], ready: Any) -> Any:
        method, inputs = halfway(config, params, ready, noise)
        variables = {"params": params}
        _, seen = Pi05(config).apply(variables, *inputs, method=method, mutable=["intermediates"])
        layers: Any = seen["intermediates"]["PaliGemma"]["llm"]
        return jnp.stack([layers[f"layers_{i}"]["attn"]["weights"][0] for i in range(config.depth)])

    return weights


def halfway(
    config: Pi05Config, params: dict[str, Any], ready: Observation, noise: Float[Array, "b h a"]
) -> tuple[Any, tuple[Any, ...]]:
    """A method of `Pi05` and its inputs: the suffix halfway from `noise` to what the policy answers.

    With `model.head` its one pass.
    """
    cache, mask = Pi05(config).apply({"params": params}, ready, method=Pi05.prefix)
    if config.head is not None:
        return Pi05.kinds, (cache, mask, ready.body)
    actions = sample_actions(config, params, ready, noise)
    time = jnp.full(len(noise), 0.5)
    x_t, _ = interpolate(actions, noise, time)
    return Pi05.velocity, (cache, mask, x_t, time, ready.body)


def _matrix(policy: CheckpointPolicy, matrix: Float[np.ndarray, "j j"]) -> list[list[float]]:
    """The rows and columns of the robot's joints, without padding."""
    joints = len(policy.robot.joints)
    return matrix[:joints, :joints].round(5).tolist()


def between_joints(
    weights: Float[np.ndarray, "l b k g t s"], joints: int, copies: int
) -> Float[np.ndarray, "l j j"]:
    """The joint-to-joint share of attention weights, whose last joints * copies tokens are kinematic."""
    count = joints * copies
    block = weights[..., -count:, -count:].mean(axis=(1, 2, 3))
    block = block.reshape(len(block), copies, joints, copies, joints)
    return block.mean(axis=1).sum(axis=2)
