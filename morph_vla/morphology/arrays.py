"""A robot as padded arrays: a pytree that travels with the observation.

Because graph, descriptors and joint mask are arrays, one compiled step serves every robot, and a new robot
recompiles nothing.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla.errors import MorphVlaError
from morph_vla.robots import UNREACHABLE, Robot

DESCRIPTORS = 12

__all__ = ["DESCRIPTORS", "UNREACHABLE", "Body", "body_of", "stack"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Body:
    """Joint graph and descriptors of one robot per row, padded to J joints.

    Padded joints have no neighbours but themselves, `joint_mask` False, and lie UNREACHABLE from all others:
    the robots' own word for joints that nothing connects, larger than any path and so than any D_max.
    """

    adjacency: Bool[Array | np.ndarray, "*b j j"]
    distances: Int[Array | np.ndarray, "*b j j"]
    descriptors: Float[Array | np.ndarray, "*b j 12"]
    joint_mask: Bool[Array | np.ndarray, "*b j"]


def body_of(robot: Robot, max_joints: int) -> Body:
    """The arrays of one robot, without a batch axis, padded to `max_joints`.

    Raises MorphVlaError when the robot has more joints than the model has places for.
    """
    count = len(robot.joints)
    if count > max_joints:
        raise MorphVlaError(
            f"robot '{robot.name}' has {count} joints but the model has places for {max_joints}; "
            "choose fewer joints in the robot's side file or raise morphology.max_joints"
        )
    padding = max_joints - count
    adjacency = np.eye(max_joints, dtype=bool)
    adjacency[:count, :count] = robot.adjacency
    distances = np.full((max_joints, max_joints), UNREACHABLE, np.int32)
    distances[:count, :count] = robot.distances
    np.fill_diagonal(distances, 0)
    descriptors = np.pad(np.asarray(robot.descriptors, np.float32), ((0, padding), (0, 0)))
    return Body(adjacency, distances, descriptors, np.arange(max_joints) < count)


def stack(bodies: Sequence[Body]) -> Body:
    """Bodies without a batch axis become one with it, in order."""
    return jax.tree.map(lambda *rows: jnp.stack([jnp.asarray(row) for row in rows]), *bodies)
