"""A robot's joint graph with a root node, which is given all that is no joint's (Body Transformer, D).

Node 0 is the root, node 1 + j is joint j. The root's neighbours are the joints on the robot's base. An arm of
three joints (1 is True):

        r 1 2 3
    r   1 1 0 0
    1   1 1 1 0
    2   0 1 1 1
    3   0 0 1 1
"""

import numpy as np
from jaxtyping import Bool, Int

from morph_vla.morphology import body_of
from morph_vla.morphology.arrays import UNREACHABLE, Body
from morph_vla.robots import Robot, graph


def rooted(robot: Robot, max_joints: int) -> Body:
    """The arrays of one robot, without a batch axis: the root, then its joints, padded to `max_joints`.

    Raises MorphVlaError when the robot has more joints than that.
    """
    body = body_of(robot, max_joints)
    parents, children = graph.ends(robot.urdf, robot.names).T
    neighbours = np.zeros(max_joints, bool)
    neighbours[: len(parents)] = ~np.isin(parents, children)
    adjacency = np.pad(np.asarray(body.adjacency), ((1, 0), (1, 0)))
    adjacency[0, 0] = True
    adjacency[0, 1:] = adjacency[1:, 0] = neighbours
    return Body(
        adjacency,
        distances(adjacency),
        np.pad(np.asarray(body.descriptors), ((1, 0), (0, 0))),
        np.append(True, body.joint_mask),
    )


def distances(adjacency: Bool[np.ndarray, "n n"]) -> Int[np.ndarray, "n n"]:
    """Steps from node to node, UNREACHABLE where there is no way."""
    steps = np.full(adjacency.shape, UNREACHABLE, np.int32)
    reached = np.eye(len(adjacency), dtype=bool)
    for step in range(len(adjacency)):
        steps[reached & (steps == UNREACHABLE)] = step
        reached = (reached.astype(np.int32) @ adjacency.astype(np.int32)) > 0
    return steps
