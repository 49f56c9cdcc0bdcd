"""The engine for scale: Isaac Lab, on Newton or with PhysX and RTX, all worlds side by side.

The worlds step together, and a camera renders all of them at once: what is asked of one world is read from
what was measured for all. Quaternions are (x, y, z, w) in Isaac Lab and (w, x, y, z) here. What the scene is
made of: `isaaclab.scene`. Which choices ever ran is in docs/isaaclab.md.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.engines import hands
from morph_vla.engines.engine import Frame, Sight, measured_state, observation
from morph_vla.engines.isaaclab import assets, launch, lights
from morph_vla.engines.isaaclab import scene as scenes
from morph_vla.engines.isaaclab.limits import Limits
from morph_vla.engines.isaaclab.options import Options
from morph_vla.engines.success import Reading
from morph_vla.errors import MorphVlaError, require
from morph_vla.robots import Robot
from morph_vla.robots.geometry import matrix_of
from morph_vla.suites.shapes import resting_height
from morph_vla.suites.suite import InitialState, Suite

DIVERGED = 1e3  # [m/s | rad/s] as in `mujoco`


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured of n worlds at once; positions in the robot's base frame."""

    joints: Float[np.ndarray, "n d"]
    """[rad | m], in Isaac Lab's order."""
    poses: dict[str, Float[np.ndarray, "n 7"]]
    """Of objects by name: position [m], quaternion (x, y, z, w)."""
    centre: Float[np.ndarray, "n 3"]
    """[m] of mass, of the suite's object."""
    speed: Float[np.ndarray, "n"]
    """[m/s] of the suite's object."""
    spin: Float[np.ndarray, "n"]
    """[rad/s] of the suite's object."""
    touched: Bool[np.ndarray, "n f"]
    """Which of the robot's links touch the suite's object."""
    rates: Float[np.ndarray, "n r"]
    """[m/s | rad/s] of every object and joint."""


class IsaacLabEngine:
    """`count` worlds of one suite; see `engine.Worlds` for the contract. One at a time in a process."""

    lockstep = True
    state, observe = measured_state, observation

    def __init__(self, robot: Robot, suite: Suite, count: int, options: Options):
        options.check()
        self.robot, self.suite, self.count, self.options = robot, suite, count, options
        self.limb = hands.limb(robot, suite.expert.tool)
        self._hands = hands.jaws(robot)
        self._links = scenes.solid_links(robot)
        with assets.quiet():
            launch.start(options)
            self._build()
        self._targets = np.tile(self._joint_values(robot.rest), (count, 1))
        self._measured: Measured | None = None
        self._frames: dict[tuple[int, str], Frame] = {}
        with assets.quiet():  # kernels are compiled at first use
            self._advance(1)
            self._measure()

    def _build(self) -> None:
        """Simulation and scene; both have to be gone before there can be others in this process."""
        context = require("isaaclab.sim", assets.EXTRA).SimulationContext
        scene = require("isaaclab.scene", assets.EXTRA).InteractiveScene
        if context.instance() is not None:
            raise MorphVlaError("Isaac Lab holds one simulation per process: close the other engine first")
        # What refuses a suite comes first: a simulation that nobody holds could not be closed.
        physics = scenes.simulation_cfg(self.suite, self.options)
        things = scenes.scene_cfg(self.robot, self.suite, self.count, self.options)
        self._context = context
        self._sim = context(physics)
        try:
            self._fill(scene(things))
        except BaseException:
            context.clear_instance()
            raise

    def _fill(self, scene: Any) -> None:
        """Put the scene into the simulation, and keep what is asked of it."""
        self._scene = scene
        self._sim.reset()
        self._calls = self._fold()
        self._body = self._scene["robot"]
        self._things = {name: self._scene[scenes.prim_name(name)] for name in self.suite.objects}
        self._order = {name: i for i, name in enumerate(self._body.joint_names)}
        self._origins = _array(self._scene.env_origins)
        self._limits = None
        if self.options.physics == "newton":
            steps, contacts = self.suite.physics_steps, self.options.contacts
            self._limits = Limits(self._sim.physics_manager, self.count, steps, contacts)

    def _fold(self) -> int:
        """Calls per control step: one where the physics repeats its steps itself (on a GPU, in one graph)."""
        manager = self._sim.physics_manager
        if self.options.physics == "newton":
            # All servos are the solver's own: there is nothing to do between its steps.
            manager.activate_newton_actuator_path()
            manager.set_decimation(self.suite.physics_steps)
        return 1 if manager.handles_decimation() else self.suite.physics_steps

    def _joint_values(self, native: Float[np.ndarray, "j"]) -> Float[np.ndarray, "d"]:
        """Action joints [rad | m] as Isaac Lab's joints, within their limits."""
        limited = np.clip(native, *self.robot.stops)
        values = np.zeros(len(self._order))
        for name, action, multiplier, offset in self.robot.drives():
            values[self._order[name]] = multiplier * limited[action] + offset
        return values

    def _tensor(self, values: np.ndarray) -> scenes.Tensor:
        """An array on the simulation's device."""
        return self._scene.env_origins.new_tensor(np.asarray(values, dtype=np.float32))

    def place(self, states: Mapping[int, InitialState]) -> None:
        if not states:
            return
        ids = list(states)
        env_ids = self._scene.env_origins.new_tensor(ids).int()
        self._scene.reset(env_ids)
        for index, state in states.items():
            self._targets[index] = self._joint_values(hands.first_posture(self.robot, self.suite, state))
        joints = self._tensor(self._targets[ids])
        self._body.write_joint_position_to_sim_index(position=joints, env_ids=env_ids)
        self._body.write_joint_velocity_to_sim_index(velocity=joints * 0, env_ids=env_ids)
        self._command()
        for name, thing in self._things.items():
            poses = [self._pose(name, state) for state in states.values()]
            placed = np.asarray(poses) + np.pad(self._origins[ids], ((0, 0), (0, 4)))
            thing.write_root_pose_to_sim_index(root_pose=self._tensor(placed), env_ids=env_ids)
            nothing = self._tensor(np.zeros((len(ids), 6)))
            thing.write_root_velocity_to_sim_index(root_velocity=nothing, env_ids=env_ids)
        self._scene.write_data_to_sim()
        self._sim.forward()
        if self._limits:
            self._limits.forget(ids)
        self._forget()

    def _pose(self, name: str, state: InitialState) -> list[float]:
        x, y, yaw = state.poses[name]
        z = self.suite.table.height + resting_height(self.suite.objects[name])
        return [x, y, z, 0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2)]

    def _command(self) -> None:
        targets = self._body.actuators.target_command
        targets.set_position_index(value=self._tensor(self._targets))

    def _advance(self, steps: int) -> None:
        """All worlds by so many control steps."""
        dt = 1.0 / self.suite.physics_rate
        for _ in range(steps * self._calls):
            self._scene.write_data_to_sim()
            self._sim.step(render=False)
            self._scene.update(dt * self.suite.physics_steps / self._calls)
            if self._limits:
                self._limits.look()
        self._forget()

    def reset(self, states: Mapping[int, InitialState]) -> None:
        self.place(states)
        self._advance(round(self.suite.settle_seconds * self.suite.control_rate))

    def step(self, actions: Mapping[int, Float[np.ndarray, "j"]]) -> dict[int, Reading | MorphVlaError]:
        for index, action in actions.items():
            native = self.robot.to_native(np.asarray(action, dtype=np.float64))
            self._targets[index] = self._joint_values(native)
        self._command()
        self._advance(1)
        return {index: self._checked(index) for index in actions}

    def _checked(self, index: int) -> Reading | MorphVlaError:
        if self._limits and (left_out := self._limits.problem(index)):
            return MorphVlaError(left_out)
        rates = self._now().rates[index]
        if np.isfinite(rates).all() and np.abs(rates).max() <= DIVERGED:
            return self.reading(index)
        return MorphVlaError("the physics diverged: a joint or object moves faster than 1000 per second")

    def _forget(self) -> None:
        """What was measured and rendered is no longer true."""
        self._measured, self._frames = None, {}

    def _now(self) -> Measured:
        return self._measured or self._measure()

    def _measure(self) -> Measured:
        """Everything a reading needs, of all worlds at once."""
        held = self._things[self.suite.success.object].data
        forces = _array(self._scene["touch"].data.force_matrix_w).reshape(self.count, len(self._links), 3)
        poses = {name: _array(thing.data.root_link_pose_w) for name, thing in self._things.items()}
        for pose in poses.values():
            pose[:, :3] -= self._origins
        data, moving = self._body.data, [thing.data for thing in self._things.values()]
        speeds = [_array(thing.root_link_lin_vel_w) for thing in moving]
        spins = [_array(thing.root_link_ang_vel_w) for thing in moving]
        self._measured = Measured(
            joints=_array(data.joint_pos),
            poses=poses,
            centre=_array(held.root_com_pos_w) - self._origins,
            speed=np.linalg.norm(_array(held.root_link_lin_vel_w), axis=1),
            spin=np.linalg.norm(_array(held.root_link_ang_vel_w), axis=1),
            touched=np.abs(forces).max(axis=2) > 0.0,
            rates=np.concatenate([*speeds, *spins, _array(data.joint_vel)], axis=1),
        )
        return self._measured

    def native(self, index: int) -> Float[np.ndarray, "j"]:
        joints = self._now().joints[index]
        return np.asarray([joints[self._order[name]] for name in self.robot.names], dtype=np.float64)

    def reading(self, index: int) -> Reading:
        now = self._now()
        touched = {link for link, hit in zip(self._links, now.touched[index], strict=True) if hit}
        closing = self.limb & hands.grippers(self.robot)
        target, (w, x, y, z) = self.pose(index, self.suite.success.target)
        return Reading(
            object_position=now.centre[index].astype(np.float64),
            target_position=target,
            target_quaternion=(float(w), float(x), float(y), float(z)),
            speed=float(now.speed[index]),
            spin=float(now.spin[index]),
            opening=hands.opening(self.robot, self.native(index), closing),
            touching=bool(touched),
            grasping=any(hands.is_held(touched, jaws) for jaws in self._hands),
        )

    def sight(self, index: int) -> Sight:
        position, orientation = self.pose(index, self.suite.success.object)
        reading = self.reading(index)
        goes_to = reading.target_position, reading.target_quaternion
        return Sight(self.native(index), reading.opening, position, orientation, *goes_to)

    def pose(self, index: int, name: str) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "4"]]:
        pose = self._now().poses[name][index].astype(np.float64)
        return pose[:3], np.roll(pose[3:], 1)

    def camera_pose(self, index: int, name: str) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
        data = self._scene[f"camera_{scenes.prim_name(name)}"].data
        x, y, z, w = (float(v) for v in _array(data.quat_w_opengl)[index])
        return (_array(data.pos_w) - self._origins)[index].astype(np.float64), matrix_of((w, x, y, z))

    def scene_view(self, index: int) -> None:
        """None: films show the suite's cameras."""

    def render(self, index: int, camera: str) -> Frame:
        if (index, camera) not in self._frames:
            self._frames[index, camera] = self._frame(index, camera)
        return self._frames[index, camera].copy()

    def _frame(self, index: int, camera: str) -> Frame:
        """One world's: all were rendered, but only what is asked for is copied and shaded."""
        output = self._scene[f"camera_{scenes.prim_name(camera)}"].data.output
        seen = [_array(output[kind], index) for kind in scenes.SEEN[self.options.renderer]]
        if self.options.renderer != "newton":
            return seen[0][..., :3]
        colors, normals = seen
        axes = self.camera_pose(index, camera)[1]
        return lights.shaded(colors[..., :3], normals, axes, self.suite.cameras[camera].fovy)

    def close(self) -> None:
        # Another engine can be made after that.
        with assets.quiet():
            del self._scene, self._body, self._things
            self._context.clear_instance()


def _array(values: scenes.Tensor, index: int | None = None) -> np.ndarray:
    """A copy of Isaac Lab's live view of its state, or of one world's row of it."""
    tensor = getattr(values, "torch", values)
    return np.array((tensor if index is None else tensor[index]).detach().cpu().numpy())
