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
from morph_vla.morphology.config import Descriptors, MorphologyConfig, Poses
from morph_vla.morphology.poses import Tree, blank_tree, present, tree_of
from morph_vla.robots import NAMES, UNREACHABLE, Robot, screws

__all__ = [
    "FEATURES",
    "UNREACHABLE",
    "Body",
    "blank",
    "body_of",
    "history_of",
    "poses_of",
    "positions_of",
    "stack",
]

FEATURES: dict[Descriptors, tuple[str, ...]] = {
    "paper": NAMES,
    "standardised": NAMES,
    "geometry": screws.GEOMETRY,
}
"""The names of what FiLM reads of a joint, in order; those of `robot` are a model's own (`features_of`)."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Body:
    """Joint graph and descriptors of one robot per row, padded to J joints.

    Padded joints have no neighbours but themselves, `joint_mask` False, and lie UNREACHABLE from all others:
    the robots' own word for joints that nothing connects, larger than any path and so than any D_max.
    """

    adjacency: Bool[Array | np.ndarray, "*b j j"]
    distances: Int[Array | np.ndarray, "*b j j"]
    descriptors: Float[Array | np.ndarray, "*b j f"]
    """`features_of` the model's settings"""
    joint_mask: Bool[Array | np.ndarray, "*b j"]
    tree: Tree | None = None
    """For `poses: present`: how its joints lie at rest"""
    positions: Float[Array | np.ndarray, "*b j"] | None = None
    """For `poses: present`: where its joints stand now [rad] or [m]"""
    history: Float[Array | np.ndarray, "*b w j"] | None = None
    """For `history`: normalised states, the present one last; before an episode's start its first repeats"""


def features_of(config: MorphologyConfig) -> tuple[str, ...]:
    """The names of what FiLM reads of a joint in a model of these settings, in order."""
    return config.robots if config.descriptors == "robot" else FEATURES[config.descriptors]


def body_of(
    robot: Robot,
    max_joints: int,
    descriptors: Descriptors = "paper",
    poses: Poses = "none",
    known: Sequence[str] = (),
) -> Body:
    """The arrays of one robot, without a batch axis, padded to `max_joints`; `positions` are left out.

    `known` are the names of the robots that `descriptors: robot` tells apart. Raises MorphVlaError when the
    robot has more joints than the model has places for.
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
    features = np.pad(np.asarray(_features(robot, descriptors, known), np.float32), ((0, padding), (0, 0)))
    tree = tree_of(robot, max_joints) if poses == "present" else None
    return Body(adjacency, distances, features, np.arange(max_joints) < count, tree)


def _features(robot: Robot, descriptors: Descriptors, known: Sequence[str]) -> Float[np.ndarray, "j f"]:
    """What FiLM reads of each of a robot's joints."""
    if descriptors == "robot":
        return np.tile(which(robot.name, known), (len(robot.joints), 1))
    if descriptors == "geometry":
        return screws.features(robot)
    if FEATURES.get(descriptors, NAMES) is not NAMES:
        raise ValueError(f"nothing is read of a joint as '{descriptors}'; say in arrays._features what is")
    return robot.descriptors


def which(name: str, known: Sequence[str]) -> Float[np.ndarray, "r"]:
    """A robot among those that are known: 1 in its own place; of another one the mean of all.

    FiLM is linear in it, so that a robot which is none of them gets the mean of their scales and shifts.
    Raises MorphVlaError where none is known.
    """
    if not known:
        raise MorphVlaError("descriptors: robot needs the names of the robots that it tells apart")
    if name not in known:
        return np.full(len(known), 1 / len(known), np.float32)
    return (np.asarray(known) == name).astype(np.float32)


def positions_of(robot: Robot, states: Float[np.ndarray, "b n"], max_joints: int) -> Float[np.ndarray, "b j"]:
    """Where a robot's joints stand [rad] or [m] by states in its dataset's units, padded with 0."""
    native = robot.to_native(states).astype(np.float32)
    return np.pad(native, ((0, 0), (0, max_joints - native.shape[1])))


def poses_of(body: Body) -> Float[Array, "b j 9"]:
    """The pose of every joint now. Raises MorphVlaError for a body that does not say where they stand."""
    if body.tree is None or body.positions is None:
        raise MorphVlaError(
            "the model reads where each joint is (poses: present), but the observation's body carries no "
            "joint positions"
        )
    return present(body.tree, jnp.asarray(body.positions))


def history_of(body: Body) -> Float[Array, "b w j"]:
    """The windows. Raises MorphVlaError for a body that does not say where its joints were."""
    if body.history is None:
        raise MorphVlaError(
            "the model reads where each joint was (morphology.history), but the observation's body carries "
            "no past positions"
        )
    return jnp.asarray(body.history)


def blank(config: MorphologyConfig, batch: int) -> Body:
    """A batch of bodies as a model of these settings takes them: joints that nothing connects, all zero."""
    joints, features = config.max_joints, len(features_of(config))
    alone = np.eye(joints, dtype=bool)
    zeros = np.zeros((joints, features), np.float32)
    body = Body(alone, (~alone).astype(np.int32), zeros, np.ones(joints, bool))
    if config.poses == "present":
        body = dataclasses.replace(body, tree=blank_tree(joints), positions=np.zeros(joints, np.float32))
    if config.history is not None:
        body = dataclasses.replace(body, history=np.zeros((config.history.steps, joints), np.float32))
    return stack([body] * batch)


def stack(bodies: Sequence[Body]) -> Body:
    """Bodies without a batch axis become one with it, in order.

    Raises MorphVlaError for none, and for bodies that were not made for one model.
    """
    if not bodies:
        raise MorphVlaError("stack: there is no body")
    kinds = list(dict.fromkeys(map(_kind, bodies)))
    if len(kinds) > 1:
        raise MorphVlaError(
            f"stack: bodies of different models, {' and '.join(kinds)}; make each with "
            "`policies.of(model).body(model, robot)`"
        )
    return jax.tree.map(lambda *rows: jnp.stack([jnp.asarray(row) for row in rows]), *bodies)


def _kind(body: Body) -> str:
    """What bodies of one batch have in common."""
    joints, features = np.shape(body.descriptors)[-2:]
    fields = ("tree", "positions", "history")
    more = " and ".join(name for name in fields if getattr(body, name) is not None)
    return f"{joints} places of {features} numbers" + (f" with {more}" if more else "")
