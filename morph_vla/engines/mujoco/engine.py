"""The embedded engine: MuJoCo worlds of a suite's scene.

Frames come through EGL without shadows. One `MjModel` and one renderer serve all worlds of an engine; each
world has its own `MjData`. How a scene is built: `scene`.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from morph_vla.engines import hands
from morph_vla.engines.engine import Frame, Sight, measured_state, observation
from morph_vla.engines.mujoco.rendering import Looks, SceneView, open_renderer
from morph_vla.engines.mujoco.scene import TOOL_SITE, MjData, Renderer, build_spec, compiled, mujoco
from morph_vla.engines.success import Reading
from morph_vla.errors import MorphVlaError
from morph_vla.robots import Robot
from morph_vla.suites.shapes import resting_height
from morph_vla.suites.suite import InitialState, Suite


class MujocoEngine:
    """`count` MuJoCo worlds of one suite; see `engine.Worlds` for the contract."""

    lockstep = False
    state, observe = measured_state, observation

    def __init__(self, robot: Robot, suite: Suite, count: int = 1):
        mj = mujoco()
        self.robot, self.suite, self.count, self._mj = robot, suite, count, mj
        self.model = compiled(build_spec(robot, suite), robot)
        self._data = [mj.MjData(self.model) for _ in range(count)]
        self._drives = [
            (self.model.actuator(name).id, self.model.joint(name).qposadr[0], action, multiplier, offset)
            for name, action, multiplier, offset in robot.drives()
        ]
        self.state_addresses = [self.model.joint(name).qposadr[0] for name in robot.names]
        self._pairs = [[self.model.body(name).id for name in pair] for pair in suite.success.pairs]
        self.limb = hands.limb(robot, suite.expert.tool)
        bodies = {self.model.body(number).name: number for number in range(self.model.nbody)}
        self._tool = suite.expert.tool if suite.expert.tool in bodies else None
        others = {"world", *suite.objects}
        self._links = {i for i in range(self.model.nbody) if self.model.body(i).name not in others}
        self._hands = [
            [{bodies[link] for link in jaw if link in bodies} for jaw in jaws] for jaws in hands.jaws(robot)
        ]
        self._renderers: dict[tuple[int, int], Renderer] = {}
        self._looks = Looks(mj, self.model, suite.objects)
        self._scene_view: SceneView | None = None
        self._states: list[InitialState | None] = [None] * count

    def place(self, states: Mapping[int, InitialState]) -> None:
        for index, state in states.items():
            data, self._states[index] = self._data[index], state
            self._mj.mj_resetData(self.model, data)
            self._drive(data, hands.first_posture(self.robot, self.suite, state), jump=True)
            for name, (x, y, yaw) in state.poses.items():
                address = self.model.joint(f"{name}/free").qposadr[0]
                z = self.suite.table.height + resting_height(self.suite.objects[name])
                data.qpos[address : address + 7] = [x, y, z, math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)]
            self._mj.mj_forward(self.model, data)

    def reset(self, states: Mapping[int, InitialState]) -> None:
        self.place(states)
        for index in states:
            for _ in range(round(self.suite.settle_seconds * self.suite.physics_rate)):
                self._mj.mj_step(self.model, self._data[index])

    def step(self, actions: Mapping[int, Float[np.ndarray, "j"]]) -> dict[int, Reading | MorphVlaError]:
        return {index: self._step(index, action) for index, action in actions.items()}

    def _step(self, index: int, action: Float[np.ndarray, "j"]) -> Reading | MorphVlaError:
        data = self._data[index]
        self._drive(data, self.robot.to_native(np.asarray(action, dtype=np.float64)))
        for _ in range(self.suite.physics_steps):
            self._mj.mj_step(self.model, data)
        if not np.isfinite(data.qpos).all() or np.abs(data.qvel).max() > 1e3:
            return MorphVlaError("the physics diverged: a joint or object moves faster than 1000 per second")
        return self.reading(index)

    def _drive(self, data: MjData, native: Float[np.ndarray, "j"], jump: bool = False) -> None:
        limited = np.clip(native, *self.robot.stops)
        for actuator, address, action, multiplier, offset in self._drives:
            value = multiplier * limited[action] + offset
            data.ctrl[actuator] = value
            if jump:
                data.qpos[address] = value

    def native(self, index: int) -> Float[np.ndarray, "j"]:
        return self._data[index].qpos[self.state_addresses].copy()

    def posture(self, native: Float[np.ndarray, "j"]) -> Float[np.ndarray, "q"]:
        """The model's coordinates with the robot's joints at `native` [rad | m], all else where it began."""
        coordinates = self.model.qpos0.copy()
        for _, address, action, multiplier, offset in self._drives:
            coordinates[address] = multiplier * native[action] + offset
        return coordinates

    def data(self, index: int) -> MjData:
        """The `mujoco.MjData` of world `index`, for experts and tests."""
        return self._data[index]

    def reading(self, index: int) -> Reading:
        first, *others = (self._reading(index, *pair) for pair in self._pairs)
        return dataclasses.replace(first, also=tuple(others))

    def _reading(self, index: int, thing: int, target: int) -> Reading:
        """Of one object and one target, by the numbers of their bodies."""
        data = self._data[index]
        touched = self._touching(data, thing)
        twist = data.cvel[thing]  # rotational part first; linear part about the subtree's centre
        w, x, y, z = (float(value) for value in data.xquat[target])
        address = self.model.body_dofadr[thing]  # of its free joint: the position comes first
        return Reading(
            object_position=data.xipos[thing].copy(),
            target_position=data.xpos[target].copy(),
            target_quaternion=(w, x, y, z),
            speed=float(np.linalg.norm(data.qvel[address : address + 3])),
            spin=float(np.linalg.norm(twist[:3])),
            opening=self._opening(index),
            touching=bool(touched & self._links),
            grasping=any(hands.is_held(touched, jaws) for jaws in self._hands),
            approach=self._approach(data, thing),
        )

    def _opening(self, index: int) -> float:
        return hands.opening(self.robot, self.native(index), self.limb & hands.grippers(self.robot))

    def _approach(self, data: MjData, thing: int) -> float | None:
        """How far the tool is from the object [m]; None for a suite whose tool is no link."""
        if self._tool is None:
            return None
        frame = data.body(self._tool) if self.suite.expert.drives_the_link else data.site(TOOL_SITE)
        return float(np.linalg.norm(frame.xpos - data.xipos[thing]))

    def sight(self, index: int) -> Sight:
        first, *others = (self._sight(index, *pair) for pair in self._pairs)
        return dataclasses.replace(first, also=tuple(others))

    def _sight(self, index: int, thing: int, goal: int) -> Sight:
        held, target = (self._data[index].body(i) for i in (thing, goal))
        place, turn = held.xpos.copy(), held.xquat.copy()
        w, x, y, z = map(float, target.xquat)
        goes_to = target.xpos.copy(), (w, x, y, z)
        return Sight(self.native(index), self._opening(index), place, turn, *goes_to)

    def _touching(self, data: MjData, thing: int) -> set[int]:
        """The bodies that touch an object."""
        bodies = self.model.geom_bodyid[data.contact.geom[: data.ncon]]
        return {int(v) for v in bodies[(bodies == thing).any(axis=1)].flatten()} - {thing}

    def pose(self, index: int, name: str) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "4"]]:
        body = self._data[index].body(name)
        return body.xpos.copy(), body.xquat.copy()

    def camera_pose(self, index: int, name: str) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
        camera = self._data[index].camera(name)
        return camera.xpos.copy(), camera.xmat.reshape(3, 3).copy()

    def render(self, index: int, camera: str) -> Frame:
        spec = self.suite.cameras[camera]
        size = (spec.height, spec.width)
        if size not in self._renderers:
            self._renderers[size] = open_renderer(self.model, *size)
        renderer = self._renderers[size]
        self._looks.put_on(self._data[index], self._states[index])
        renderer.update_scene(self._data[index], camera)
        return renderer.render().copy()

    def scene_view(self, index: int) -> Frame:
        if self._scene_view is None:
            self._scene_view = SceneView(self.robot, self.suite)
        return self._scene_view.of(self._data[index].qpos, self._states[index])

    def close(self) -> None:
        for view in filter(None, (*self._renderers.values(), self._scene_view)):
            view.close()
        self._renderers, self._scene_view = {}, None
