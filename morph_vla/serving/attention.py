"""Who attends to whom: mean attention weights between the joints of a policy's kinematic tokens."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import Worlds
from morph_vla.engines.episode import play
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.rollout import open_loop_at
from morph_vla.files.writing import write_text
from morph_vla.morphology import bias
from morph_vla.pi05 import Pi05, Pi05Config, sample_actions
from morph_vla.pi05.model import interpolate
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites.suite import InitialState, Suite, initial_state


def episode_attention(
    policy: CheckpointPolicy, worlds: Worlds, state: InitialState, open_loop: int | None = None
) -> dict[str, Any]:
    """Per layer, the mean weight [j j] of joint i (row) attending to joint j, halfway through denoising.

    At each time the policy is asked in one episode under `steps`; their mean under `layers`. Averaged over
    heads and a joint's tokens, summed over those it sees; rows do not add to one, because joints attend to
    images, prompt and actions too. The episode begins in `state`, in world 0; `open_loop` actions of each
    answer are executed (as many as an evaluation executes if not given); `episode` says which it was and how
    it ended. Raises MorphVlaError for a policy without kinematic tokens, and where the physics diverges.
    """
    config, morphology = policy.config, policy.config.morphology
    if morphology is None or morphology.control == "tokens":
        raise MorphVlaError(f"{policy.folder}: this policy has no kinematic tokens, so joints do not attend")
    suite, observations = worlds.suite, []
    executed = open_loop or open_loop_at(suite.control_rate)

    def answer(observation: dict[str, Any]) -> Float[np.ndarray, "h j"]:
        observations.append(observation)
        return policy.infer(observation)["actions"][:executed]

    status = play(worlds, state, answer)
    if status.error is not None:
        raise MorphVlaError(status.error)
    maps = _maps(policy, observations)
    steps = [
        {
            "step": observation["step"],
            "time_s": round(observation["step"] / suite.control_rate, 3),
            "layers": [_matrix(policy, matrix) for matrix in layers],
        }
        for observation, layers in zip(observations, maps, strict=True)
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
        "episode": {
            "suite": suite.label, "task": suite.task, "episode": state.episode, "ended": status.ended
        },
    }  # fmt: skip


def write(path: Path, policy: CheckpointPolicy, suite: Suite, episode: int) -> bool:
    """Write `episode_attention` of one row of a suite's table as JSON; whether it was there already.

    What is there answers the same question where policy, suite, episode and noise are the same.
    """
    noise = policy.sampler["noise"]
    asked = {"policy": policy.digest(), "suite": suite.label, "episode": episode, "noise": noise}
    if path.exists() and json.loads(path.read_text()).get("asked") == asked:
        return True
    worlds = engines.worlds(suite, 1)
    attention = episode_attention(policy, worlds, initial_state(suite, episode, len(policy.robot.joints)))
    worlds.close()
    attention["episode"]["task_key"] = suite.task_key
    write_text(path, json.dumps({**attention, "asked": asked}))
    return False


def _maps(policy: CheckpointPolicy, observations: Sequence[dict[str, Any]]) -> Float[np.ndarray, "n l j j"]:
    """Joint to joint, an observation and a layer each; the policy's batch is filled up by repeating rows."""
    morphology, weights, maps = policy.config.morphology, _weights_of(policy), []
    assert morphology is not None
    for start in range(0, len(observations), policy.batch):
        part = observations[start : start + policy.batch]
        rows = [part[i % len(part)] for i in range(policy.batch)]
        seen = np.asarray(weights(policy.params, policy.prepare(rows)), np.float64)
        maps += [
            between_joints(seen[:, i : i + 1], morphology.max_joints, morphology.copies)
            for i in range(len(part))
        ]
    return np.stack(maps)


def _weights_of(policy: CheckpointPolicy) -> Callable[[Any, Any], Any]:
    """(parameters, observation batch) -> attention weights [l b k g t s], halfway through denoising."""
    config = policy.config
    assert isinstance(config, Pi05Config)  # it has kinematic tokens
    noise = jax.random.normal(jax.random.key(0), (policy.batch, config.horizon, config.action_dim))

    @jax.jit
    def weights(params: dict[str, Any], ready: Any) -> Any:
        actions = sample_actions(config, params, ready, noise)
        time = jnp.full(policy.batch, 0.5)
        x_t, _ = interpolate(actions, noise, time)
        model, variables = Pi05(config), {"params": params}
        cache, mask = model.apply(variables, ready, method=Pi05.prefix)
        _, seen = model.apply(
            variables, cache, mask, x_t, time, ready.body, method=Pi05.velocity, mutable=["intermediates"]
        )
        return seen["intermediates"]["PaliGemma"]["llm"]["layers"]["attn"]["weights"][0]

    return weights


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
