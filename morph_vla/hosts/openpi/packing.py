"""A robot's arrays inside openpi's observation.

openpi's `Observation` has fixed fields, drops what it does not know, and is rebuilt by preprocessing. pi0.5
reads its state from the prompt alone, so the field `state` is free in the model, and its width is not fixed.
The robot travels there, behind the state:

    state [a]  |  adjacency [j * j]  distances [j * j]  descriptors [j * f]  joint mask [j]

One float32 vector per row, so openpi's loader, sharding, preprocessing and server pass it on as they are,
rows of one batch may be different robots, and a new robot compiles nothing.
"""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from morph_vla.errors import MorphVlaError
from morph_vla.morphology.arrays import Body

TYPES = {"adjacency": bool, "distances": np.int32, "descriptors": np.float32, "joint_mask": bool}


def shapes(joints: int, features: int) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a robot padded to `joints`, in the order they are packed."""
    square = (joints, joints)
    return {
        "adjacency": square,
        "distances": square,
        "descriptors": (joints, features),
        "joint_mask": (joints,),
    }


def width(joints: int, features: int = 12) -> int:
    """How many numbers a robot takes: 2 j^2 + (f + 1) j."""
    return sum(math.prod(shape) for shape in shapes(joints, features).values())


def pack(body: Body) -> Float[np.ndarray, "n"]:
    """One robot, without a batch axis, as float32 numbers; each of its arrays is exact in them."""
    names = shapes(*body.descriptors.shape)
    return np.concatenate([np.asarray(getattr(body, name)).ravel().astype(np.float32) for name in names])


def unpack(state: Float[Array, "b s"], action_dim: int, joints: int, features: int = 12) -> Body:
    """The robots of a batch of states that carry one behind their first `action_dim` values.

    Raises MorphVlaError for a state that carries none.
    """
    numbers = width(joints, features)
    if state.shape[1] != action_dim + numbers:
        raise MorphVlaError(
            f"an observation's state has {state.shape[1]} values where {action_dim} of the state and "
            f"{numbers} of a robot with places for {joints} joints are needed; the transforms of the "
            "configuration must end with morph_vla.hosts.openpi.pipeline.AddRobot, of the same max_joints "
            "and descriptors"
        )
    parts, start = {}, action_dim
    for name, shape in shapes(joints, features).items():
        stop = start + math.prod(shape)
        part = state[:, start:stop].reshape(-1, *shape)
        parts[name] = part > 0.5 if TYPES[name] is bool else jnp.round(part) if name == "distances" else part
        parts[name] = parts[name].astype(TYPES[name])
        start = stop
    return Body(**parts)
