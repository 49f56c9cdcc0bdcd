"""Where an arm can put its tool: inverse kinematics of many poses at once.

Damped least squares: dq = J^T (J J^T + damping^2 I)^-1 e, with e the error of the tool's position [m] and,
weighted by the arm's size, that of its direction [rad].
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.robots.geometry import Transform, transform
from morph_vla.robots.kinematics import follow, motion
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.robot import Robot

DAMPING, ITERATIONS = 0.02, 120
LONGEST_STEP = 0.25  # [rad] of a joint in an iteration
WEIGHT = 0.3  # of a radian, in reaches


@dataclass(frozen=True, eq=False)
class Chain:
    """The joints from a robot's root to a frame, those that move by their order in `names`."""

    names: tuple[str, ...]
    fixed: tuple[Float[np.ndarray, "4 4"], ...]
    """What stands before each moving joint, and at the end what stands before the frame"""
    axes: Float[np.ndarray, "j 3"]
    lower: Float[np.ndarray, "j"]
    """[rad]"""
    upper: Float[np.ndarray, "j"]
    """[rad]"""

    @cached_property
    def reach(self) -> float:
        """How far the frame can be from the second joint [m], were there no limits."""
        return float(sum(np.linalg.norm(pose[:3, 3]) for pose in self.fixed[2:]))

    @cached_property
    def _skews(self) -> tuple[Float[np.ndarray, "j 3 3"], Float[np.ndarray, "j 3 3"]]:
        """Every axis as the matrix of its cross product, and that matrix squared."""
        matrices = [np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) for x, y, z in self.axes]
        return np.array(matrices), np.array([matrix @ matrix for matrix in matrices])

    def forward(
        self, values: Float[np.ndarray, "n j"]
    ) -> tuple[Float[np.ndarray, "n 4 4"], Float[np.ndarray, "n j 3"], Float[np.ndarray, "n j 3"]]:
        """The frame's pose, and every joint's origin [m] and axis, in the root's frame."""
        count = len(values)
        pose = np.tile(np.eye(4), (count, 1, 1))
        origins, axes = np.empty((count, len(self.names), 3)), np.empty((count, len(self.names), 3))
        turns = _turns(*self._skews, values)
        for index, axis in enumerate(self.axes):
            pose = pose @ self.fixed[index]
            origins[:, index], axes[:, index] = pose[:, :3, 3], pose[:, :3, :3] @ axis
            pose = pose @ turns[index]
        return pose @ self.fixed[-1], origins, axes

    def margin(self, values: Float[np.ndarray, "n j"]) -> Float[np.ndarray, "n"]:
        """How far the joint nearest to a limit is from it, as a share of half its range, at most a turn."""
        half = np.clip((self.upper - self.lower) / 2, 1e-9, np.pi)
        return np.min(np.minimum(values - self.lower, self.upper - values) / half, axis=1)

    def solve(
        self,
        targets: Float[np.ndarray, "n 4 4"],
        start: Float[np.ndarray, "n j"],
        spin: bool,
        weight: float = WEIGHT,
        iterations: int = ITERATIONS,
    ) -> tuple[Float[np.ndarray, "n j"], Bool[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        """Joint values that bring the frame to each target, whether its place was met, and its direction.

        Without `spin` the turn about the frame's z axis is free; `weight` is that of a radian, in reaches.
        """
        values, weight = np.clip(start, self.lower, self.upper), weight * self.reach
        for iteration in range(iterations + 1):
            pose, origins, axes = self.forward(values)
            shift = targets[:, :3, 3] - pose[:, :3, 3]
            turn = _turn(pose[:, :3, :3], targets[:, :3, :3], spin)
            if iteration == iterations:
                break
            arms = np.cross(axes, pose[:, None, :3, 3] - origins)
            z = pose[:, None, :3, 2]
            turning = axes if spin else axes - np.sum(axes * z, axis=2, keepdims=True) * z
            jacobian = np.concatenate([arms, weight * turning], axis=2)  # n j 6
            error = np.concatenate([shift, weight * turn], axis=1)
            square = np.einsum("nja,njb->nab", jacobian, jacobian) + (DAMPING * self.reach) ** 2 * np.eye(6)
            step = np.einsum("nja,na->nj", jacobian, np.linalg.solve(square, error[..., None])[..., 0])
            largest = np.abs(step).max(axis=1, keepdims=True)
            step *= np.minimum(1.0, LONGEST_STEP / np.maximum(largest, 1e-12))
            values = np.clip(values + step, self.lower, self.upper)
        placed = np.linalg.norm(shift, axis=1) < 0.004 * self.reach
        return values, placed, np.linalg.norm(turn, axis=1) < 0.035


def chain(robot: Robot, names: tuple[str, ...], link: str, link_from_frame: Transform) -> Chain:
    """From the robot's root to a frame in `link`; joints that are not among `names` stand at rest."""
    urdf, at_rest = robot.urdf, robot.positions(robot.rest)
    offsets = {name: offset for name, (_, _, offset) in follow(urdf).items()}  # of leaders that stand at 0
    fixed, axes, pending = [], [], np.eye(4)
    order = []
    for joint in way(urdf, link):
        pending = pending @ transform(joint.origin)
        if joint.name in names:
            fixed.append(pending)
            axes.append(joint.unit_axis)
            order.append(joint.name)
            pending = np.eye(4)
        else:
            pending = pending @ motion(joint, at_rest.get(joint.name, offsets.get(joint.name, 0.0)))
    limits: Mapping[str, tuple[float, float]] = {
        joint.name: (joint.lower, joint.upper) for joint in robot.joints
    }
    lower, upper = np.array([limits[name] for name in order]).T
    return Chain(tuple(order), (*fixed, pending @ link_from_frame), np.array(axes), lower, upper)


def way(urdf: Urdf, link: str) -> list[Joint]:
    """The joints from the root to a link."""
    joints = []
    while link in urdf.above:
        joints.append(urdf.above[link])
        link = joints[-1].parent
    return joints[::-1]


def _turns(
    skews: Float[np.ndarray, "j 3 3"],
    squares: Float[np.ndarray, "j 3 3"],
    angles_rad: Float[np.ndarray, "n j"],
) -> Float[np.ndarray, "j n 4 4"]:
    """Rotations about every axis by many angles: I + sin(angle) K + (1 - cos(angle)) K^2 (Rodrigues).

    K is the matrix of the axis' cross product. All joints at once: this is most of what planning costs.
    """
    sine, cosine = (turn(angles_rad).T[:, :, None, None] for turn in (np.sin, np.cos))
    poses = np.zeros((*angles_rad.T.shape, 4, 4))
    poses[:, :, :3, :3] = np.eye(3) + (sine * skews[:, None] + (1 - cosine) * squares[:, None])
    poses[:, :, 3, 3] = 1.0
    return poses


def _turn(
    now: Float[np.ndarray, "n 3 3"], wanted: Float[np.ndarray, "n 3 3"], spin: bool
) -> Float[np.ndarray, "n 3"]:
    """A rotation vector towards the wanted axes, as long as the angle is small; without `spin` of z alone."""
    if not spin:
        turn = np.cross(now[:, :, 2], wanted[:, :, 2])
        opposite = np.sum(now[:, :, 2] * wanted[:, :, 2], axis=1) < 0
    else:
        turn = 0.5 * np.cross(now, wanted, axis=1).sum(axis=2)
        opposite = np.einsum("nab,nab->n", now, wanted) < 0
    # Beyond a quarter turn the sine falls again: as far as a step may go, whichever way that is.
    length = np.maximum(np.linalg.norm(turn, axis=1, keepdims=True), 1e-9)
    return np.where(opposite[:, None], turn / length, turn)
