"""Scripted experts: they know where things are, and show a policy how the task is done.

`pick_and_place`: over the object, down, close, up, over the target, open, away. The path of the tool is a
list of straight segments walked at constant speed; differential inverse kinematics (`mink`) turns each pose
into joint targets. Labels are the clean plan; what is executed while moving freely carries a smooth
disturbance, so that the demonstrations show how to come back to the path (Laskey et al. 2017, DART).
"""

import dataclasses
import math
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError, require
from morph_vla.sim.mujoco import MujocoEngine

GRASP_STEPS = 6  # control steps for the fingers to close on the object, and to let go of it
SETTLE = 0.006  # [m] the tool grasps this much above the object's centre, clear of the table


@dataclasses.dataclass(frozen=True)
class Waypoint:
    """Where the tool goes next [m], about which yaw [rad], with which gripper (0 open .. 1 closed)."""

    position: Float[np.ndarray, "3"]
    yaw: float
    gripper: float
    hold: int = 0  # control steps to stay there
    free: bool = False  # moving freely: a disturbance does no harm here
    speed: float = 1.0  # share of the expert's speed


@dataclasses.dataclass(frozen=True)
class Plan:
    """A demonstration as planned, one row per control step."""

    actions: Float[np.ndarray, "t j"]  # targets, dataset units
    free: Float[np.ndarray, "t"]  # 1 where a disturbance is allowed, 0 elsewhere


def waypoints(
    object_position: Float[np.ndarray, "3"],
    object_yaw: float,
    target_position: Float[np.ndarray, "3"],
    *,
    hover: float,
    release_height: float,
) -> list[Waypoint]:
    """The tool's stations of pick-and-place, in order [m, rad].

    The gripper turns with the object by an eighth of a turn at most: a box looks the same every quarter.
    """
    yaw = (object_yaw + math.pi / 4) % (math.pi / 2) - math.pi / 4
    up = np.array([0.0, 0.0, 1.0])
    grasp = object_position + SETTLE * up
    over = object_position + hover * up
    above = np.array([*target_position[:2], target_position[2] + release_height])
    return [
        Waypoint(over, yaw, 0.0, free=True),
        Waypoint(grasp + 0.02 * up, yaw, 0.0, speed=0.8),
        Waypoint(grasp, yaw, 0.0, hold=1, speed=0.4),
        Waypoint(grasp, yaw, 1.0, hold=GRASP_STEPS),
        Waypoint(over + 0.02 * up, yaw, 1.0),
        Waypoint(above + 0.04 * up, 0.0, 1.0, free=True),
        Waypoint(above, 0.0, 1.0, hold=2, speed=0.7),
        Waypoint(above, 0.0, 0.0, hold=GRASP_STEPS),
        Waypoint(above + 0.08 * up, 0.0, 0.0, hold=2),
    ]


def walk(
    start: Float[np.ndarray, "3"], start_yaw: float, stations: list[Waypoint], speed: float, rate: float
) -> list[tuple[Float[np.ndarray, "3"], float, float, bool]]:
    """Tool poses (position [m], yaw [rad], gripper, free) per control step along straight segments.

    Each segment is walked with a half-cosine in time (no jumps in velocity), its length set by `speed`
    [m/s] and, for turns, 1.5 rad/s.
    """
    poses = []
    here, yaw = start, start_yaw
    for station in stations:
        distance = float(np.linalg.norm(station.position - here))
        seconds = max(distance / (speed * station.speed), abs(station.yaw - yaw) / 1.5)
        steps = max(math.ceil(seconds * rate), 0)
        for i in range(1, steps + 1):
            share = 0.5 - 0.5 * math.cos(math.pi * i / steps)
            position = here + share * (station.position - here)
            poses.append((position, yaw + share * (station.yaw - yaw), station.gripper, station.free))
        here, yaw = station.position, station.yaw
        poses.extend([(here, yaw, station.gripper, False)] * station.hold)
    return poses


class PickAndPlace:
    """Plans demonstrations for worlds of one engine.

    Raises MorphVlaError when the suite's tool frame does not exist.
    """

    def __init__(self, engine: MujocoEngine):
        self.engine, self.suite, self.robot = engine, engine.suite, engine.robot
        self._mink: ModuleType = require("mink", "sim")
        mink, model = self._mink, engine.model
        self._configuration = mink.Configuration(model)
        names = {model.body(i).name for i in range(model.nbody)}
        tool = self.suite.expert.tool
        if tool not in names:
            raise MorphVlaError(
                f"{self.suite.path}: expert.tool: the robot has no link '{tool}' in simulation"
            )
        self._task = mink.FrameTask(tool, "body", position_cost=1.0, orientation_cost=0.3, lm_damping=1e-4)
        self._posture = mink.PostureTask(model, cost=1e-3)
        self._limits = [mink.ConfigurationLimit(model)]
        self._arm = [
            (address, action)
            for action, address in enumerate(engine.state_addresses)
            if not self.robot.joints[action].is_gripper
        ]
        self._gripper = [i for i, joint in enumerate(self.robot.joints) if joint.is_gripper]

    def plan(self, index: int) -> Plan:
        """The whole demonstration for world `index` as it stands now."""
        data, spec = self.engine.data(index), self.suite.expert
        success = self.suite.success
        thing, target = data.body(success.object), data.body(success.target)
        self._configuration.update(data.qpos.copy())
        self._posture.set_target_from_configuration(self._configuration)
        tool = data.body(spec.tool)
        stations = waypoints(
            thing.xpos.copy(),
            _yaw(thing.xquat),
            target.xpos.copy(),
            hover=spec.hover,
            release_height=spec.release_height,
        )
        poses = walk(tool.xpos.copy(), _tool_yaw(tool.xquat), stations, spec.speed, self.suite.control_rate)
        rows = [self._joints(position, yaw, gripper) for position, yaw, gripper, _ in poses]
        return Plan(np.asarray(rows, dtype=np.float64), np.asarray([float(free) for *_, free in poses]))

    def _joints(self, position: Float[np.ndarray, "3"], yaw: float, gripper: float) -> Float[np.ndarray, "j"]:
        """Joint targets (dataset units) that bring the tool to a pose, from the last one."""
        mink = self._mink
        # The tool points down (half a turn about x), then turns about the vertical.
        rotation = mink.SO3.from_z_radians(yaw) @ mink.SO3.from_x_radians(math.pi)
        self._task.set_target(mink.SE3.from_rotation_and_translation(rotation, np.asarray(position)))
        for _ in range(4):
            velocity = mink.solve_ik(
                self._configuration, [self._task, self._posture], 0.5, solver="daqp", limits=self._limits
            )
            self._configuration.integrate_inplace(velocity, 0.5)
            error = self._task.compute_error(self._configuration)
            if np.abs(error[:3]).max() < 1e-3 and np.abs(error[3:]).max() < 1e-2:
                break
        native = np.asarray(self.robot.rest, dtype=np.float64).copy()
        for address, action in self._arm:
            native[action] = self._configuration.q[address]
        row = np.asarray(self.robot.to_dataset(native), dtype=np.float64)
        for j in self._gripper:
            row[j] = gripper
        return row


def disturb(
    plan: Plan, rng: np.random.Generator, scale: float, arm: Float[np.ndarray, "j"]
) -> Float[np.ndarray, "t j"]:
    """What is executed: the plan plus a smooth disturbance where the tool moves freely.

    The disturbance is white noise smoothed over about a third of a second at 15 Hz, `scale` [rad] strong,
    faded in and out with the free stretches so that grasps and releases are clean. `arm` is 1 for joints
    that are disturbed, 0 for grippers.
    """
    steps, joints = plan.actions.shape
    kernel = np.hanning(9)
    kernel = kernel / np.linalg.norm(kernel)
    white = rng.normal(0.0, 1.0, (steps + kernel.size - 1, joints))
    smooth = np.stack([np.convolve(white[:, j], kernel, mode="valid") for j in range(joints)], axis=1)
    fade = np.convolve(plan.free, np.ones(5) / 5, mode="same") * plan.free
    return plan.actions + scale * smooth * fade[:, None] * arm


def _tool_yaw(quaternion: Any) -> float:
    """Turn about z [rad] of a tool that points down: `rotation` in `_joints` undone, to a half turn."""
    w, x, y, z = (float(v) for v in quaternion)
    # q = q_z(yaw) * q_x(pi) = (0, cos(yaw/2), sin(yaw/2), 0) where the tool points straight down.
    del w, z
    yaw = 2 * math.atan2(y, x)
    return (yaw + math.pi / 2) % math.pi - math.pi / 2


def _yaw(quaternion: Any) -> float:
    """Turn about z [rad] of a quaternion (w, x, y, z)."""
    w, x, y, z = (float(v) for v in quaternion)
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
