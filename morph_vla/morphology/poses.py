"""Where each joint is now: forward kinematics inside the model, from arrays, as input of kinematic tokens.

With the joints as screws in the base frame at rest (`robots.screws`), the pose of what joint i moves is a
product over the joints from the base to i (Brockett's product of exponentials),

    W_i = A_1 ... A_i        A_k = [R, p - R p], R = exp(d [axis]x)   a joint turned by d [rad] from its rest
                             A_k = [I, d axis]                        or slid by d [m / reach]

taken for all joints at once: in log2(K) rounds each product takes in that of the joint before it, and both
point twice as far towards the base. A robot is arrays of one size, so that one program serves all of them.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla.errors import MorphVlaError
from morph_vla.robots import Robot
from morph_vla.robots.screws import screws
from morph_vla.wording import count as count_of

POSE = 9
"""A joint's place, its axis, and a direction of its link across the axis, all in the base frame, now"""
STEEP = 0.9  # an axis with more of the vertical has its direction across forward, others up


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tree:
    """The moving joints of one robot per row at rest, padded to K = 2 J: J action joints, J that carry some.

    Lengths are shares of the reach. Padded joints have no axis, move nothing and hang on the base.
    """

    parents: Int[Array | np.ndarray, "*b k"]
    """The next one towards the base; K for the base"""
    turning: Bool[Array | np.ndarray, "*b k"]
    axes: Float[Array | np.ndarray, "*b k 3"]
    places: Float[Array | np.ndarray, "*b k 3"]
    across: Float[Array | np.ndarray, "*b k 3"]
    """Of length one, at right angles to the axis"""
    leaders: Int[Array | np.ndarray, "*b k"]
    """The joint position that drives it: d = slopes * (positions[leaders] - rests)"""
    slopes: Float[Array | np.ndarray, "*b k"]
    rests: Float[Array | np.ndarray, "*b k"]


def tree_of(robot: Robot, max_joints: int) -> Tree:
    """The arrays of one robot, without a batch axis.

    Raises MorphVlaError when more joints carry action joints than there are places for.
    """
    known, count = screws(robot), len(robot.names)
    others = len(known.names) - count
    if others > max_joints:
        follow = "that follows another carries" if others == 1 else "that follow others carry"
        raise MorphVlaError(
            f"robot '{robot.name}': {count_of(others, 'joint')} {follow} an action joint, but the model has "
            f"places for {max_joints}; raise morphology.max_joints"
        )
    nodes = 2 * max_joints
    rows = np.concatenate([np.arange(count), max_joints + np.arange(others)])
    unit = np.where(known.turning, 1.0, known.reach)

    def padded(values: np.ndarray, fill: int = 0) -> np.ndarray:
        result = np.full((nodes, *values.shape[1:]), fill, values.dtype)
        result[rows] = values
        return result.astype({"f": np.float32, "i": np.int32, "b": np.bool_}[values.dtype.kind])

    return Tree(
        parents=padded(np.append(rows, nodes)[known.parents], fill=nodes),
        turning=padded(known.turning),
        axes=padded(known.axes),
        places=padded(known.places),
        across=padded(_across(known.axes)),
        leaders=padded(known.leaders),
        slopes=padded(known.slopes / unit),
        rests=padded(robot.rest[known.leaders]),
    )


def blank_tree(max_joints: int) -> Tree:
    """A robot without joints, without a batch axis."""
    nodes = 2 * max_joints
    index, number, vector = (
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.float32),
        np.zeros((nodes, 3), np.float32),
    )
    return Tree(index, index > 0, vector, vector, vector, index, number, number)


def _across(axes: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Up, or forward for a steep axis, as far as it is at right angles to the axis."""
    way = np.where(np.abs(axes[:, 2:]) > STEEP, [1.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    across = way - axes * (axes * way).sum(axis=1, keepdims=True)
    return across / np.linalg.norm(across, axis=1, keepdims=True)


def present(tree: Tree, positions: Float[Array, "b j"]) -> Float[Array, "b j 9"]:
    """The pose of every action joint for joint positions [rad] or [m]; zeros for padded joints."""
    joints = positions.shape[1]
    turn, shift = _displacements(tree, positions)
    turn, shift = turn[:, :joints], shift[:, :joints]
    place, axis, across = (jnp.asarray(x)[:, :joints] for x in (tree.places, tree.axes, tree.across))
    place = _turned(turn, place) + shift
    return jnp.concatenate([place, _turned(turn, axis), _turned(turn, across)], axis=-1)


def _displacements(
    tree: Tree, positions: Float[Array, "b j"]
) -> tuple[Float[Array, "b k 3 3"], Float[Array, "b k 3"]]:
    """W of every joint: how what it moves has turned and shifted since rest."""
    travel = jnp.take_along_axis(positions, jnp.asarray(tree.leaders), axis=1) - jnp.asarray(tree.rests)
    travel = jnp.asarray(tree.slopes) * travel
    axes, places, turning = jnp.asarray(tree.axes), jnp.asarray(tree.places), jnp.asarray(tree.turning)
    angle = jnp.where(turning, travel, 0.0)
    turn = _rotations(axes, angle)
    slid = axes * travel[:, :, None]
    shift = jnp.where(turning[:, :, None], places - _turned(turn, places), slid)
    # The base, behind all others: nothing moves it, and it carries itself.
    batch, nodes = travel.shape
    turn = jnp.concatenate([turn, jnp.broadcast_to(jnp.eye(3), (batch, 1, 3, 3))], axis=1)
    shift = jnp.concatenate([shift, jnp.zeros((batch, 1, 3))], axis=1)
    parents = jnp.pad(jnp.asarray(tree.parents), ((0, 0), (0, 1)), constant_values=nodes)
    for _ in range(math.ceil(math.log2(nodes))):
        before = jnp.take_along_axis(turn, parents[:, :, None, None], axis=1)
        shift = _turned(before, shift) + jnp.take_along_axis(shift, parents[:, :, None], axis=1)
        turn = jnp.einsum("bkim,bkmn->bkin", before, turn, precision=jax.lax.Precision.HIGHEST)
        parents = jnp.take_along_axis(parents, parents, axis=1)
    return turn[:, :-1], shift[:, :-1]


def _rotations(axes: Float[Array, "b k 3"], angle: Float[Array, "b k"]) -> Float[Array, "b k 3 3"]:
    """Rodrigues' R = I + sin(d) K + 2 sin(d / 2)^2 K K; the identity where the angle is 0."""
    x, y, z = jnp.moveaxis(axes, -1, 0)
    zero = jnp.zeros_like(x)
    across = jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(*angle.shape, 3, 3)
    twice = jnp.einsum("bkim,bkmn->bkin", across, across, precision=jax.lax.Precision.HIGHEST)
    sine, versine = jnp.sin(angle), 2 * jnp.square(jnp.sin(angle / 2))
    return jnp.eye(3) + sine[:, :, None, None] * across + versine[:, :, None, None] * twice


def _turned(turn: Float[Array, "b k 3 3"], vectors: Float[Array, "b k 3"]) -> Float[Array, "b k 3"]:
    return jnp.einsum("bkim,bkm->bki", turn, vectors, precision=jax.lax.Precision.HIGHEST)
