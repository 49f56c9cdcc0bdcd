"""What is handed to the model fits it: names, shapes and types, which are known while a program is traced.

Without this a loop of one's own would learn from less than it was given, and not say so: what JAX can
broadcast it broadcasts (one action for all rows), and a camera that the model does not know nobody reads.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.morphology.arrays import Body, features_of
from morph_vla.morphology.config import MorphologyConfig
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.observation import Observation

Shape = tuple[int, ...]


def check_observation(config: Pi05Config, observation: Observation) -> None:
    """Raise MorphVlaError for images, masks, tokens or numbers that are not the model's."""
    tokens, cameras = np.shape(observation.tokens), tuple(config.cameras)
    if len(tokens) != 2:
        raise MorphVlaError(f"tokens have shape {tokens}; expected (rows, tokens)")
    rows = tokens[0]
    _check_shape("token_mask", observation.token_mask, tokens)
    for name, image in observation.images.items():
        if name not in cameras:
            raise MorphVlaError(
                f"images: '{name}' is no camera of the model{nearest(name, cameras)}; "
                f"it has {', '.join(cameras)}"
            )
        _check_shape(f"images['{name}']", image, (rows, config.image_size, config.image_size, 3))
        if name not in observation.image_masks:
            raise MorphVlaError(f"image_masks: says nothing of '{name}', of which there are images")
        _check_shape(f"image_masks['{name}']", observation.image_masks[name], (rows,))
    if config.environment and observation.environment is not None and observation.state is not None:
        _check_shape("environment", observation.environment, (rows, config.environment))
        _check_shape("state", observation.state, (rows, config.action_dim))


def check_body(config: MorphologyConfig, body: Body, rows: int) -> None:
    """Raise MorphVlaError for a body of other sizes than the model's, or without one for every row."""
    joints, features = config.max_joints, len(features_of(config))
    shapes: dict[str, Shape] = {
        "adjacency": (joints, joints),
        "distances": (joints, joints),
        "descriptors": (joints, features),
        "joint_mask": (joints,),
    }
    if config.poses == "present" and body.positions is not None:
        shapes["positions"] = (joints,)
    if config.history is not None and body.history is not None:
        shapes["history"] = (config.history.steps, joints)
    for name, shape in shapes.items():
        remedy = "make each with `policies.of(model).body(model, robot)`, and `stack` one for every row"
        _check_shape(f"body.{name}", getattr(body, name), (rows, *shape), remedy)


def check_actions(
    config: Pi05Config, arrays: Mapping[str, Float[Array | np.ndarray, "..."]], rows: int
) -> None:
    """Raise MorphVlaError for arrays [..., rows, horizon, values] that are not a chunk for every row."""
    for name, array in arrays.items():
        shape = np.shape(array)
        expected = (rows, config.horizon, config.action_dim)
        if shape[-3:] != expected or len(shape) > 4:
            raise MorphVlaError(f"{name}: has shape {shape}; expected {expected} (rows, horizon, values)")


def wide(noise: Float[Array, "b h a"]) -> Float[Array, "b h a"]:
    """At least float32, in which the sampler integrates."""
    return noise.astype(jnp.float32) if jnp.finfo(noise.dtype).bits < 32 else noise


def _check_shape(name: str, array: Any, expected: Shape, remedy: str = "") -> None:
    if np.shape(array) != expected:
        more = f"; {remedy}" if remedy else ""
        raise MorphVlaError(f"{name}: has shape {np.shape(array)}; expected {expected}{more}")
