"""What a joint has to turn: the inertia about its axis of everything that it carries."""

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import transform
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.records import Inertial, Urdf


def carried(urdf: Urdf, values: dict[str, float]) -> dict[str, float]:
    """Joint -> inertia about its axis [kg m^2], or the mass [kg] that a sliding one moves.

    I = sum over the links it carries of a . I_c a + m |a x r|^2, with a the axis, I_c a link's inertia about
    its centre of mass, and r from the joint to there.
    """
    poses = link_poses(urdf, values)
    bodies = {link.name: link.inertial for link in urdf.links if link.inertial is not None}
    result = {}
    for joint in urdf.joints:
        pose = poses[joint.child]
        axis, origin = pose[:3, :3] @ np.array(joint.unit_axis), pose[:3, 3]
        links = _below(urdf, joint.child)
        masses = [(bodies[link], poses[link]) for link in links if link in bodies]
        if joint.type == "prismatic":
            result[joint.name] = sum(inertial.mass or 0.0 for inertial, _ in masses)
        else:
            result[joint.name] = sum(_about(axis, origin, inertial, pose) for inertial, pose in masses)
    return result


def _about(
    axis: Float[np.ndarray, "3"],
    origin: Float[np.ndarray, "3"],
    inertial: Inertial,
    root_from_link: Float[np.ndarray, "4 4"],
) -> float:
    frame = root_from_link @ transform(inertial.origin)
    ixx, ixy, ixz, iyy, iyz, izz = (value or 0.0 for value in inertial.inertia)
    local = frame[:3, :3].T @ axis
    own = local @ np.array([[ixx, ixy, ixz], [ixy, iyy, iyz], [ixz, iyz, izz]]) @ local
    away = np.cross(axis, frame[:3, 3] - origin)
    return float(own + (inertial.mass or 0.0) * away @ away)


def _below(urdf: Urdf, link: str) -> list[str]:
    links = [link]
    for name in links:
        links += [joint.child for joint in urdf.below.get(name, ())]
    return links
