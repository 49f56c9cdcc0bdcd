"""The joint graph: which chosen joints are neighbours, and how many steps lie between any two.

Joints that are not chosen (fixed, mimicking, or left out) are frozen and the links they connect merged into
one rigid body. Two chosen joints are neighbours when one such body carries both: consecutive joints of an
arm, and the two shoulders of a humanoid, which meet in the torso. Parts that nothing connects have the
distance UNREACHABLE.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.robots.records import Urdf

UNREACHABLE = 32767
"""The distance between joints that no path of bodies joins; larger than any path, and fits 16 bits."""


def bodies(urdf: Urdf, chosen: Sequence[str]) -> dict[str, int]:
    """The rigid body each link belongs to once every joint that is not chosen is frozen: link name -> number.

    Links that a joint names and the file does not declare belong to bodies as well.
    """
    names = [link.name for link in urdf.links]
    names += [name for joint in urdf.joints for name in (joint.parent, joint.child)]
    parent = {name: name for name in names}

    def top(name: str) -> str:
        """The link that stands for the body of this one so far."""
        while parent[name] != name:
            parent[name] = parent[parent[name]]  # halve the path: near-constant time, and no recursion
            name = parent[name]
        return name

    kept = set(chosen)
    for joint in urdf.joints:
        if joint.name not in kept:
            parent[top(joint.child)] = top(joint.parent)
    numbers: dict[str, int] = {}
    return {name: numbers.setdefault(top(name), len(numbers)) for name in parent}


def fixed_to(urdf: Urdf, link: str) -> list[str]:
    """The link, and those that fixed joints carry below it."""
    links, waiting = [], [link]
    while waiting:
        links.append(waiting.pop())
        waiting += [joint.child for joint in urdf.below.get(links[-1], ()) if joint.type == "fixed"]
    return links


def ends(urdf: Urdf, chosen: Sequence[str]) -> Int[np.ndarray, "j 2"]:
    """The bodies that each chosen joint connects: parent body, child body; rows in the order of `chosen`.

    Raises MorphVlaError for a joint that is not there, or chosen twice.
    """
    seen: set[str] = set()
    for name in chosen:
        if name not in urdf.by_name:
            raise MorphVlaError(f"{urdf.file}: no joint '{name}'{nearest(name, urdf.by_name)}")
        if name in seen:
            raise MorphVlaError(f"{urdf.file}: joint '{name}' is chosen twice")
        seen.add(name)
    body, joints = bodies(urdf, chosen), [urdf.by_name[name] for name in chosen]
    pairs = [(body[joint.parent], body[joint.child]) for joint in joints]
    return np.array(pairs, dtype=np.int64).reshape(len(chosen), 2)


def distances(urdf: Urdf, chosen: Sequence[str]) -> Int[np.ndarray, "j j"]:
    """Steps from joint to joint over shared bodies; UNREACHABLE between parts that nothing joins.

    A chain of five joints:

        0 1 2 3 4
        1 0 1 2 3
        2 1 0 1 2
        3 2 1 0 1
        4 3 2 1 0

    One more than the joints on the way between the nearest of their bodies; a breadth-first walk from every
    body, each touching a joint twice: quadratic in the number of joints.
    """
    pairs = ends(urdf, chosen)
    apart = _apart(pairs.tolist())
    parents, children = pairs.T
    nearest_ends = np.minimum(apart[parents], apart[children])  # from either body of a joint to every body
    steps = np.minimum(nearest_ends[:, parents], nearest_ends[:, children]) + 1
    np.fill_diagonal(steps, 0)
    return np.minimum(steps, UNREACHABLE).astype(np.int64)


def _apart(pairs: list[list[int]]) -> Int[np.ndarray, "b b"]:
    """The joints on the way from body to body, from UNREACHABLE up where there is no way."""
    beside: list[list[int]] = [[] for _ in range(1 + max((max(pair) for pair in pairs), default=0))]
    for parent, child in pairs:
        beside[parent].append(child)
        beside[child].append(parent)
    steps = np.empty((len(beside), len(beside)), dtype=np.int32)
    for start in range(len(beside)):
        row, order = [UNREACHABLE] * len(beside), [start]
        row[start] = 0
        for body in order:
            further = row[body] + 1
            for other in beside[body]:
                if row[other] == UNREACHABLE:
                    row[other] = further
                    order.append(other)
        steps[start] = row
    return steps


def adjacency(steps: Int[np.ndarray, "j j"]) -> Bool[np.ndarray, "j j"]:
    """Which joints are neighbours, each its own neighbour: where the distance is at most 1.

    A chain of five joints (1 is True):

        1 1 0 0 0
        1 1 1 0 0
        0 1 1 1 0
        0 0 1 1 1
        0 0 0 1 1
    """
    return steps <= 1
