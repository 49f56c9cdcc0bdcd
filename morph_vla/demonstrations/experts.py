"""Scripted experts: they know where things are, and show a policy how the task is done.

`pick_and_place`: over the object, down, close, up, over the target, open, away; `push` has its own file. The
path of the tool is a list of straight segments walked at constant speed; differential inverse kinematics
(`mink`) turns each pose into joint targets. Only the limb that carries the tool moves; the rest of the robot
stays where it begins. Labels are the clean plan; what is executed while moving freely carries a smooth
disturbance, so that the demonstrations show how to come back to the path (Laskey et al. 2017, DART).
"""

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.engines import hands
from morph_vla.engines.engine import Sight, Worlds
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.engines.mujoco.scene import TOOL_SITE
from morph_vla.errors import MorphVlaError, require
from morph_vla.suites.suite import ExpertSpec

# mink's rotations and poses: the library is imported when it is first used.
SO3 = Any
SE3 = Any
KERNEL = 9  # control steps over which a disturbance is smoothed, at 15 Hz
ALIGNED = 0.09  # a tool no further to the side than this is above the object, in shares of `hover`
LEAST_HEIGHT = 0.4  # the height over the object at which the tool may move to the side, likewise
PATIENCE = 20  # episodes: a way that takes longer is planned no further


@dataclasses.dataclass(frozen=True)
class Waypoint:
    """Where the tool goes next, in the base frame [m], at which yaw, with which gripper."""

    position: Float[np.ndarray, "3"]
    yaw_rad: float
    gripper: float  # 0 open .. 1 closed
    hold: int = 0  # control steps to stay there
    free: bool = False  # moving freely: a disturbance does no harm here
    speed: float = 1.0  # share of the expert's speed
    seconds: float = 0.0  # the least it takes to get there


@dataclasses.dataclass(frozen=True)
class Plan:
    """A demonstration as planned, one row per control step."""

    actions: Float[np.ndarray, "t j"]  # targets, dataset units
    free: Float[np.ndarray, "t"]  # 1 where a disturbance is allowed, 0 elsewhere


def waypoints(
    object_position: Float[np.ndarray, "3"],
    object_yaw_rad: float,
    target_position: Float[np.ndarray, "3"],
    spec: ExpertSpec,
    control_rate: float,
) -> list[Waypoint]:
    """The tool's way through pick-and-place [m, rad].

    The gripper turns with the object by an eighth of a turn at most: a box looks the same every quarter.
    """
    yaw_rad = (object_yaw_rad + math.pi / 4) % (math.pi / 2) - math.pi / 4
    hold, up = round(spec.grasp_seconds * control_rate), np.array([0.0, 0.0, 1.0])
    grasp = object_position + spec.clearance * up
    over = object_position + spec.hover * up
    above = np.array([*target_position[:2], target_position[2] + spec.release_height])
    return [
        Waypoint(over, yaw_rad, 0.0, free=True, seconds=spec.turn_seconds),
        Waypoint(grasp + 0.02 * up, yaw_rad, 0.0, speed=0.8),
        Waypoint(grasp, yaw_rad, 0.0, hold=1, speed=0.4),
        Waypoint(grasp, yaw_rad, 1.0, hold=hold),
        Waypoint(over + 0.02 * up, yaw_rad, 1.0),
        Waypoint(above + spec.carry * up, 0.0, 1.0, free=True),
        Waypoint(above, 0.0, 1.0, hold=2, speed=0.7),
        Waypoint(above, 0.0, 0.0, hold=hold),
        Waypoint(above + spec.retreat * up, 0.0, 0.0, hold=2),
    ]


def walk(
    start: Float[np.ndarray, "3"],
    start_yaw_rad: float,
    way: Sequence[Waypoint],
    speed: float,
    rate: float,
    most: int = 1_000_000,
) -> list[tuple[Float[np.ndarray, "3"], float, float, bool]]:
    """Tool poses (position [m], yaw [rad], gripper, free) per control step along straight segments.

    Each segment is walked with a half-cosine in time (no jumps in velocity), its length set by `speed`
    [m/s] and, for turns, 1.5 rad/s. Of a way that takes longer than `most` control steps it is the beginning.
    """
    poses, here, yaw_rad = [], start, start_yaw_rad
    for waypoint in way:
        shift, turn = waypoint.position - here, waypoint.yaw_rad - yaw_rad
        moving = float(np.linalg.norm(shift)) / (speed * waypoint.speed)
        steps = max(math.ceil(min(max(moving, abs(turn) / 1.5, waypoint.seconds) * rate, 1e9)), 0)
        for i in range(1, steps + 1):
            if len(poses) >= most:
                return poses
            share = 0.5 - 0.5 * math.cos(math.pi * i / steps)
            poses.append((here + share * shift, yaw_rad + share * turn, waypoint.gripper, waypoint.free))
        here, yaw_rad = waypoint.position, waypoint.yaw_rad
        poses.extend([(here, yaw_rad, waypoint.gripper, False)] * waypoint.hold)
    return poses


class Expert:
    """Plans demonstrations from what is seen of a world; `engine`'s model gives it the robot's kinematics.

    A kind of expert says where the tool goes (`waypoints`), and this how the joints take it there. Raises
    MorphVlaError when the suite's tool frame does not exist.
    """

    def __init__(self, engine: MujocoEngine):
        self.engine, self.suite, self.robot = engine, engine.suite, engine.robot
        self._mink: ModuleType = require("mink", "sim")
        mink, model = self._mink, engine.model
        self._configuration = mink.Configuration(model)
        spec, names = self.suite.expert, {model.body(i).name for i in range(model.nbody)}
        if spec.tool not in names:
            raise MorphVlaError(
                f"{self.suite.path}: expert.tool: the robot has no link '{spec.tool}' in simulation"
            )
        self._frame = (spec.tool, "body") if spec.drives_the_link else (TOOL_SITE, "site")
        self._task = mink.FrameTask(
            *self._frame, position_cost=1.0, orientation_cost=_costs(spec), lm_damping=1e-4
        )
        self._posture = mink.PostureTask(model, cost=1e-2 if spec.free_spin else 1e-3)
        self._limits = [mink.ConfigurationLimit(model)]
        closing = hands.grippers(self.robot)
        self._start = hands.start(self.robot, self.suite)
        self._arm, self._gripper = (
            np.flatnonzero(engine.limb & which).tolist() for which in (~closing, closing)
        )

    def plan(self, index: int) -> Plan:
        """The whole demonstration for world `index` of its engine, at rest."""
        seen = self.engine.sight(index)
        return self.follow(seen, self.waypoints(seen))

    def _base_from_tool(self) -> SE3:
        return self._configuration.get_transform_frame_to_world(*self._frame)

    def aimed(self, seen: Sight, number: int) -> Sight:
        """What is seen in attempt `number`, its object and its target those that are dealt with next."""
        return seen

    def tool(self, seen: Sight) -> Float[np.ndarray, "3"]:
        """Where the tool stands [m]."""
        self._configuration.update(self.engine.posture(seen.native))
        return np.asarray(self._base_from_tool().translation())

    def waypoints(self, seen: Sight) -> list[Waypoint]:
        """The whole task, from rest: first high over where the tool goes down, then two waypoints down."""
        raise NotImplementedError

    def again(self, seen: Sight) -> list[Waypoint]:
        """What to do after the last waypoint, where the task is not done: nothing."""
        return []

    def waypoints_from_here(self, seen: Sight) -> list[Waypoint]:
        """The task from wherever the tool stands, so that what is done depends on what is seen alone.

        A policy sees no past: where one demonstration rises and another one descends through the same place,
        it learns to do neither. So a tool above the place goes down, one that is off to the side moves over
        it at the height it has, and only one that is too low for that rises first.
        """
        hover = self.suite.expert.hover
        over, *rest = self.waypoints(seen)
        tool = self.tool(seen)
        apart = np.hypot(*(tool - over.position)[:2])
        height = tool[2] - seen.object_position[2]
        if height >= hover:
            return [over, *rest]
        if apart < ALIGNED * hover:
            return rest[1:] if height < rest[0].position[2] - seen.object_position[2] else rest
        least = LEAST_HEIGHT * hover
        beside = dataclasses.replace(over, position=over.position + [0, 0, max(height, least) - hover])
        if height >= least:
            return [beside, *rest]
        up = np.array([*tool[:2], beside.position[2]])
        return [dataclasses.replace(beside, position=up), beside, *rest]

    def follow(self, seen: Sight, way: Sequence[Waypoint]) -> Plan:
        """Joint targets that take the tool along `way` from where it stands."""
        spec, rate = self.suite.expert, self.suite.control_rate
        self._configuration.update(self.engine.posture(seen.native))
        self._posture.set_target_from_configuration(self._configuration)
        base_from_tool = self._base_from_tool()
        first, yaw_rad = base_from_tool.rotation(), 0.0
        if not (spec.free_spin or spec.turn_seconds):  # the arm chooses its turn, or eases into it
            yaw_rad = _tool_yaw(first.wxyz, spec.heading)
        most = PATIENCE * self.suite.max_steps
        poses = walk(base_from_tool.translation(), yaw_rad, way, spec.speed, rate, most)
        turning = round(spec.turn_seconds * rate)
        grip = [gripper for _, _, gripper, _ in poses]
        if spec.grip_seconds:
            # Where the gripper stands now, 0 let go .. 1 holding; it may lie outside.
            now = (1.0 - seen.opening - spec.opened) / (spec.closed - spec.opened)
            grip = slewed(now, grip, 1 / (spec.grip_seconds * rate))
        rows = [
            self._joints(position, self._towards(first, self._rotation(yaw), step + 1, turning), grip[step])
            for step, (position, yaw, _, _) in enumerate(poses)
        ]
        return Plan(np.asarray(rows, dtype=np.float64), np.asarray([float(free) for *_, free in poses]))

    def _rotation(self, yaw_rad: float) -> SO3:
        """The tool's orientation: it points down (half a turn about x), leans, turns about the vertical."""
        turn, tilt, heading = self._mink.SO3, self.suite.expert.tilt, self.suite.expert.heading
        lean = turn.from_y_radians(-tilt) if tilt else turn.identity()
        return turn.from_z_radians(heading + yaw_rad) @ lean @ turn.from_x_radians(math.pi)

    def _towards(self, first: SO3, target: SO3, step: int, steps: int) -> SO3:
        """The orientation at control step `step` on the way from the first one; `target` once it is over."""
        if self.suite.expert.free_spin:  # the smallest turn that brings the approach to where it should be
            first = self._base_from_tool().rotation()
            turn = _smallest_turn(first.as_matrix()[:, 2], target.as_matrix()[:, 2])
            target = self._mink.SO3.exp(turn) @ first
        if step >= steps:
            return target
        return first.interpolate(target, 0.5 - 0.5 * math.cos(math.pi * step / steps))

    def _joints(
        self, position: Float[np.ndarray, "3"], rotation: SO3, gripper: float
    ) -> Float[np.ndarray, "j"]:
        """Joint targets (dataset units) that bring the tool to a pose, from the last one."""
        mink = self._mink
        self._task.set_target(mink.SE3.from_rotation_and_translation(rotation, np.asarray(position)))
        for _ in range(4):
            velocity = mink.solve_ik(
                self._configuration, [self._task, self._posture], 0.5, solver="daqp", limits=self._limits
            )
            self._configuration.integrate_inplace(velocity, 0.5)
            error = self._task.compute_error(self._configuration)
            if np.abs(error[:3]).max() < 1e-3 and np.abs(error[3:]).max() < 1e-2:
                break
        native = self._start.copy()
        for action in self._arm:
            native[action] = self._configuration.q[self.engine.state_addresses[action]]
        row = np.asarray(self.robot.to_dataset(native), dtype=np.float64)
        for action in self._gripper:
            row[action] = self._command(action, gripper)
        return row

    def _command(self, action: int, gripper: float) -> float:
        """The gripper's value (dataset units) that lets go (0) or holds (1)."""
        spec, ends = self.suite.expert, self.robot.side.grippers[self.robot.joints[action].name]
        share = spec.opened + gripper * (spec.closed - spec.opened)
        return ends.dataset_open + share * (ends.dataset_closed - ends.dataset_open)


class PickAndPlace(Expert):
    """Takes the object between the fingers and lets it go over the target."""

    def waypoints(self, seen: Sight, beside: tuple[float, float] = (0.0, 0.0)) -> list[Waypoint]:
        """Pick-and-place from rest, the grasp `beside` the object by so much [m]."""
        spec = self.suite.expert
        position = seen.object_position + np.array([*beside, 0.0])
        yaw_rad = 0.0 if spec.free_spin else _yaw(seen.object_quaternion) - spec.heading
        return waypoints(position, yaw_rad, seen.target_position, spec, self.suite.control_rate)

    def waypoints_holding(self, seen: Sight) -> list[Waypoint]:
        """The rest of pick-and-place for a tool that holds the object, lifted."""
        way = self.waypoints(seen)
        last = max(i for i, waypoint in enumerate(way) if waypoint.gripper == 1.0)
        return way[last - 1 :]  # over the target, down, open, away


def slewed(start: float, targets: Sequence[float], step: float) -> list[float]:
    """Values that follow `targets` from `start`, at most `step` further each time."""
    commands, now = [], start
    for value in targets:
        now += min(max(value - now, -step), step)
        commands.append(now)
    return commands


def _costs(spec: ExpertSpec) -> float | list[float]:
    """Of an error in orientation about the tool's x, y and z axis; z is the approach."""
    return [spec.orientation_cost, spec.orientation_cost, 0.0] if spec.free_spin else spec.orientation_cost


def _smallest_turn(start: Float[np.ndarray, "3"], end: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """The rotation vector [rad] that takes one direction to another; zero between opposite ones."""
    axis = np.cross(start, end)
    sine = float(np.linalg.norm(axis))
    return axis / sine * math.atan2(sine, float(start @ end)) if sine > 1e-9 else np.zeros(3)


def disturb(
    plan: Plan, rng: np.random.Generator, scale: float, arm: Float[np.ndarray, "j"], length: int = KERNEL
) -> Float[np.ndarray, "t j"]:
    """What is executed: the plan plus a smooth disturbance where the tool moves freely.

    The disturbance is white noise smoothed over `length` control steps (an odd number), `scale` [rad] strong,
    faded in and out with the free stretches so that grasps and releases are clean. `arm` is what a radian is
    in the plan's units for joints that are disturbed (1 for radians), 0 for the others and for grippers.
    """
    steps, joints = plan.actions.shape
    kernel = np.hanning(length)
    kernel = kernel / np.linalg.norm(kernel)
    white = rng.normal(0.0, 1.0, (steps + kernel.size - 1, joints))
    smooth = np.stack([np.convolve(white[:, j], kernel, mode="valid") for j in range(joints)], axis=1)
    fade_steps = length // 2 + 1
    fade = np.convolve(plan.free, np.ones(fade_steps) / fade_steps, mode="same") * plan.free
    return plan.actions + scale * smooth * fade[:, None] * arm


def disturbed(plan: Plan, worlds: Worlds, number: int, retry: int = 0) -> Float[np.ndarray, "t j"]:
    """What is executed of demonstration `number`: disturbed as the suite says, in its limb alone.

    Every `retry` draws a disturbance of its own.
    """
    suite = worlds.suite
    radian = np.asarray([0.0 if joint.is_gripper else abs(joint.scale) for joint in worlds.robot.joints])
    length = 2 * round((KERNEL - 1) / 2 * suite.control_rate / 15) + 1
    rng = np.random.default_rng([suite.seed, number, *([retry] if retry else [])])
    return disturb(plan, rng, suite.expert.noise, radian * worlds.limb, length)


def _tool_yaw(quaternion: Float[np.ndarray, "4"], heading: float) -> float:
    """Turn about z [rad] from `heading` of a tool that points down: `_rotation` undone, to a half turn."""
    _, x, y, _ = (float(v) for v in quaternion)
    # q = q_z(yaw) * q_x(pi) = (0, cos(yaw/2), sin(yaw/2), 0) where the tool points straight down.
    yaw_rad = 2 * math.atan2(y, x) - heading
    return (yaw_rad + math.pi / 2) % math.pi - math.pi / 2


def _yaw(quaternion: Float[np.ndarray, "4"]) -> float:
    """Turn about z [rad] of a quaternion (w, x, y, z)."""
    w, x, y, z = (float(v) for v in quaternion)
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
