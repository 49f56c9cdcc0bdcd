"""What a policy with kinematic tokens computes on the way to an answer: tokens, attention, FiLM."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Bool, Float

from morph_vla.errors import MorphVlaError
from morph_vla.morphology.tokens import KinematicTokens
from morph_vla.pi05 import Pi05, Pi05Config
from morph_vla.pi05.gemma import Block
from morph_vla.serving.attention import between_joints, halfway
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.watched import batches

GENERATOR = "generator"  # FiLM's layer


class Activations(NamedTuple):
    """Of n observations of one robot, halfway through denoising (of a head: in its one pass)."""

    joints: Float[np.ndarray, "n e j d"]
    """Kinematic tokens, the mean of a joint's: as they enter, then behind each layer (e = layers + 1)"""
    actions: Float[np.ndarray, "n l d"]
    """Action tokens behind each layer, the mean over the chunk"""
    between: Float[np.ndarray, "n l j j"]
    """Joint i's (row) attention to joint j; 0 for padded joints"""
    read: Float[np.ndarray, "n l"] | None
    """How much of an action token's attention goes to kinematic tokens; None with `start: exact`"""
    even: float
    """That share if every token that is seen were attended alike"""
    film: Float[np.ndarray, "j f"] | None
    """FiLM's scale and shift of each joint, f = 2 d; None without FiLM"""
    real: Bool[np.ndarray, "j"]
    """Which are joints of the robot"""
    answers: Float[np.ndarray, "n h a"]
    """Targets of the chunk minus where the joints stand now, the dataset's units"""


def of(policy: CheckpointPolicy, observations: Sequence[dict[str, Any]]) -> Activations:
    """What is computed of these observations. Raises MorphVlaError for a policy without kinematic tokens."""
    config, plugin = policy.config, policy.config.morphology
    if plugin is None or not isinstance(config, Pi05Config):
        raise MorphVlaError(f"{policy.folder}: this policy has no kinematic tokens to look at")
    look, parts = _looker(config, policy.batch), []
    for count, ready in batches(policy, observations):
        seen = jax.tree.map(
            lambda leaf, n=count: np.asarray(leaf, np.float64)[:n], look(policy.params, ready)
        )
        parts.append((seen, np.asarray(ready.token_mask)[:count], jax.tree.map(np.asarray, ready.body)))
    real = parts[0][2].joint_mask[0]
    joint_count, copies = plugin.max_joints, plugin.copies
    mean = _concatenated([_means(seen, config.horizon, joint_count, copies) for seen, _, _ in parts])
    weights = np.concatenate([seen["weights"] for seen, _, _ in parts])
    between = np.stack([between_joints(row[:, None], joint_count, copies) for row in weights])
    exact = plugin.start == "exact"
    own = joint_count * copies
    read = None if exact else weights[..., : config.horizon, -own:].sum(axis=-1).mean(axis=(2, 3, 4))
    other = weights.shape[-1] - own - config.max_tokens
    tokens = float(np.concatenate([mask for _, mask, _ in parts]).sum(axis=1).mean()) + other
    film = parts[0][0].get("film")
    return Activations(
        joints=mean["joints"],
        actions=mean["actions"],
        between=between * real[:, None] * real,
        read=read,
        even=float(real.sum() * copies / (real.sum() * copies + tokens)),
        film=None if film is None else film[0, :joint_count],
        real=real,
        answers=answers(policy, observations),
    )


def answers(policy: CheckpointPolicy, observations: Sequence[dict[str, Any]]) -> Float[np.ndarray, "n h a"]:
    """Targets of the chunk minus where the joints stand now, the dataset's units."""
    chunks = np.stack([answer["actions"] for answer in policy.infer_batch(observations)])
    return chunks - np.stack([np.asarray(row["state"]) for row in observations])[:, None]


@cache
def _looker(config: Pi05Config, batch: int) -> Any:
    """(parameters, observation batch) -> what is seen inside, a leaf a kind, the batch first."""
    noise = jax.random.normal(jax.random.key(0), (batch, config.horizon, config.action_dim))

    def is_seen(module: nn.Module, method: str) -> bool:
        kinds = isinstance(module, Block | KinematicTokens) or module.name == GENERATOR
        return kinds and method == "__call__"

    @jax.jit
    def look(params: dict[str, Any], ready: Any) -> dict[str, Any]:
        method, inputs = halfway(config, params, ready, noise)
        _, state = Pi05(config).apply(
            {"params": params}, *inputs, method=method, capture_intermediates=is_seen,
            mutable=["intermediates"],
        )  # fmt: skip
        inside: Any = state["intermediates"]
        layers = [inside["PaliGemma"]["llm"][f"layers_{i}"] for i in range(config.depth)]
        plugin = inside["morphology"]
        behind = [jax.numpy.concatenate(layer["__call__"][0][0][1:], axis=1) for layer in layers]
        seen = {
            "enter": plugin["__call__"][0].tokens,
            "behind": jax.numpy.stack(behind, axis=1),
            "weights": jax.numpy.stack([layer["attn"]["weights"][0] for layer in layers], axis=1),
        }
        if "film" in plugin:
            seen["film"] = plugin["film"][GENERATOR]["__call__"][0]
        return seen

    return look


def _means(seen: dict[str, Any], horizon: int, joints: int, copies: int) -> dict[str, np.ndarray]:
    """A token a joint and one of the actions, of each layer."""
    enter, behind = seen["enter"], seen["behind"]
    every = np.concatenate([enter[:, None], behind[:, :, horizon:]], axis=1)
    apart = every.reshape(*every.shape[:2], copies, joints, every.shape[-1])
    return {"joints": apart.mean(axis=2), "actions": behind[:, :, :horizon].mean(axis=2)}


def _concatenated(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
