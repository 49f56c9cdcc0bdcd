"""Who attends to whom: mean attention weights between the joints of a policy's kinematic tokens."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError
from morph_vla.morphology import bias
from morph_vla.pi05 import Pi05, sample_actions
from morph_vla.pi05.model import interpolate
from morph_vla.serving.policy import CheckpointPolicy


def joint_attention(policy: CheckpointPolicy, observations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Per layer, the mean weight [j j] of joint i (row) attending to joint j, halfway through denoising.

    Averaged over observations, heads and a joint's tokens, summed over those it sees; rows do not add to one,
    because joints attend to images, prompt and actions too. Raises MorphVlaError for a policy without
    kinematic tokens.
    """
    config = policy.config
    if config.morphology is None or config.morphology.control == "tokens":
        raise MorphVlaError(f"{policy.folder}: this policy has no kinematic tokens, so joints do not attend")
    rows = [observations[i % len(observations)] for i in range(policy.batch)]
    ready = policy.prepare(rows)
    noise = jax.random.normal(jax.random.key(0), (policy.batch, config.horizon, config.action_dim))

    @jax.jit
    def weights(params: dict[str, Any]) -> Any:
        actions = sample_actions(config, params, ready, noise)
        time = jnp.full(policy.batch, 0.5)
        x_t, _ = interpolate(actions, noise, time)
        model, variables = Pi05(config), {"params": params}
        cache, mask = model.apply(variables, ready, method=Pi05.prefix)
        _, seen = model.apply(
            variables, cache, mask, x_t, time, ready.body, method=Pi05.velocity, mutable=["intermediates"]
        )
        return seen["intermediates"]["PaliGemma"]["llm"]["layers"]["attn"]["weights"][0]

    found = np.asarray(weights(policy.params), np.float64)
    joints = [joint.name for joint in policy.robot.joints]
    maps = between_joints(found, config.morphology.max_joints, config.morphology.copies)
    masked = bias.masked(config.morphology.bias, config.depth).tolist()
    return {
        "joints": joints,
        "layers": [
            {
                "layer": layer,
                "masked": masked[layer],
                "matrix": matrix[: len(joints), : len(joints)].round(5).tolist(),
            }
            for layer, matrix in enumerate(maps)
        ],
    }


def between_joints(
    weights: Float[np.ndarray, "l b k g t s"], joints: int, copies: int
) -> Float[np.ndarray, "l j j"]:
    """The joint-to-joint share of attention weights, whose last joints * copies tokens are kinematic."""
    count = joints * copies
    block = weights[..., -count:, -count:].mean(axis=(1, 2, 3))
    block = block.reshape(len(block), copies, joints, copies, joints)
    return block.mean(axis=1).sum(axis=2)
