"""The embedded engine: MuJoCo worlds of a suite's scene.

Frames come through EGL without shadows. One `MjModel` and one renderer serve all worlds of an engine; each
world has its own `MjData`. How a scene is built: `scene`.
"""

import atexit
import math
import weakref
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8

from morph_vla.errors import MorphVlaError
from morph_vla.robots import Robot
from morph_vla.sim.looks import Looks
from morph_vla.sim.scene import EGL_REMEDY, build_spec, look_at, mujoco
from morph_vla.sim.shapes import resting_height
from morph_vla.sim.success import Reading
from morph_vla.sim.suite import InitialState, Suite

__all__ = ["EGL_REMEDY", "MujocoEngine", "build_spec", "look_at"]


class MujocoEngine:
    """`count` independent MuJoCo worlds of one suite; see `engine.Engine` for the contract."""

    name = "mujoco"

    def __init__(self, robot: Robot, suite: Suite, count: int = 1):
        mj = mujoco()
        self.robot, self.suite, self.count, self._mj = robot, suite, count, mj
        self.model = build_spec(robot, suite).compile()
        self._data = [mj.MjData(self.model) for _ in range(count)]
        self._drives = [
            (self.model.actuator(name).id, self.model.joint(name).qposadr[0], action, multiplier, offset)
            for name, action, multiplier, offset in robot.drives()
        ]
        leaders: dict[int, int] = {}
        for _, address, action, multiplier, offset in self._drives:
            if multiplier == 1.0 and offset == 0.0:
                leaders.setdefault(action, address)
        self.state_addresses = [leaders[j] for j in range(len(robot.joints))]
        self._object, self._target = (
            self.model.body(name).id for name in (suite.success.object, suite.success.target)
        )
        self.limb = self._limb()
        self._fingers = self._finger_bodies()
        self._renderers: dict[tuple[int, int], Any] = {}
        self._looks = Looks(mj, self.model)
        self._states: list[InitialState | None] = [None] * count

    def _ancestors(self, body: int) -> list[int]:
        """A body and what it hangs on, tip first; the world is left out."""
        chain = []
        while body:
            chain.append(body)
            body = int(self.model.body_parentid[body])
        return chain

    def _limb(self) -> Bool[np.ndarray, "j"]:
        """The action joints that do the task: those that carry the expert's tool, and their grippers.

        All of them where the robot has no such link: `experts` says so.
        """
        names = [self.model.body(i).name for i in range(self.model.nbody)]
        if self.suite.expert.tool not in names:
            return np.ones(len(self.robot.joints), dtype=bool)
        carried = set(self._ancestors(names.index(self.suite.expert.tool)))
        bodies = [int(self.model.joint(joint.name).bodyid[0]) for joint in self.robot.joints]
        arm = np.array([body in carried for body in bodies]) & ~self._is_gripper()
        holders = {body for body, of_arm in zip(bodies, arm, strict=True) if of_arm}
        hands = [holders <= set(self._ancestors(body)) for body in bodies]
        return arm | (np.array(hands) & self._is_gripper())

    def _finger_bodies(self) -> list[set[int]]:
        """The bodies that close on an object, per gripper; where one jaw moves, its link is the other jaw."""
        hands: dict[int, set[int]] = {}
        for name, action, _, _ in self.robot.drives():
            if self.robot.joints[action].is_gripper:
                hands.setdefault(action, set()).add(int(self.model.joint(name).bodyid[0]))
        for fingers in hands.values():
            if len(fingers) == 1:
                fingers.add(int(self.model.body_parentid[next(iter(fingers))]))
        return list(hands.values())

    def reset(self, index: int, state: InitialState) -> None:
        """Put world `index` into an initial state and let it settle."""
        data, self._states[index] = self._data[index], state
        self._mj.mj_resetData(self.model, data)
        arm = np.asarray(self.robot.rest, dtype=np.float64).copy()
        arm += np.where(self.limb & ~self._is_gripper(), np.asarray(state.arm), 0.0)
        self._drive(data, arm, jump=True)
        for name, (x, y, yaw) in state.poses.items():
            address = self.model.joint(f"{name}/free").qposadr[0]
            z = self.suite.table.height + resting_height(self.suite.objects[name])
            data.qpos[address : address + 7] = [x, y, z, math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)]
        self._mj.mj_forward(self.model, data)
        for _ in range(round(self.suite.settle_seconds * self.suite.physics_rate)):
            self._mj.mj_step(self.model, data)

    def step(self, index: int, action: Float[np.ndarray, "j"]) -> Reading:
        """One control step towards `action` (dataset units), which is held meanwhile.

        Raises MorphVlaError when the physics diverged.
        """
        data = self._data[index]
        self._drive(data, self.robot.to_native(np.asarray(action, dtype=np.float64)))
        for _ in range(self.suite.physics_steps):
            self._mj.mj_step(self.model, data)
        if not np.isfinite(data.qpos).all() or np.abs(data.qvel).max() > 1e3:
            raise MorphVlaError("the physics diverged: a joint or object moves faster than 1000 per second")
        return self.reading(index)

    def _is_gripper(self) -> Bool[np.ndarray, "j"]:
        return np.asarray([joint.is_gripper for joint in self.robot.joints])

    def _drive(self, data: Any, native: Float[np.ndarray, "j"], jump: bool = False) -> None:
        limited = np.clip(
            native, [joint.lower for joint in self.robot.joints], [joint.upper for joint in self.robot.joints]
        )
        for actuator, address, action, multiplier, offset in self._drives:
            value = multiplier * limited[action] + offset
            data.ctrl[actuator] = value
            if jump:
                data.qpos[address] = value

    def native(self, index: int) -> Float[np.ndarray, "j"]:
        """Measured joint values of world `index` [rad | m]."""
        return self._data[index].qpos[self.state_addresses].copy()

    def state(self, index: int) -> Float[np.ndarray, "j"]:
        """Measured joint values, action order, dataset units."""
        return np.asarray(self.robot.to_dataset(self.native(index)), dtype=np.float32)

    def data(self, index: int) -> Any:
        """The `mujoco.MjData` of world `index`, for experts and tests."""
        return self._data[index]

    def reading(self, index: int) -> Reading:
        """What the success criterion needs, now."""
        data = self._data[index]
        touched = self._touching(data)
        twist = data.cvel[self._object]  # rotational part first; linear part about the subtree's centre
        native = self.native(index)
        grippers = [self._opening(native, int(j)) for j in np.flatnonzero(self.limb & self._is_gripper())]
        address = self.model.joint(f"{self.suite.success.object}/free").dofadr[0]
        return Reading(
            object_position=data.xipos[self._object].copy(),
            target_position=data.xpos[self._target].copy(),
            speed=float(np.linalg.norm(data.qvel[address : address + 3])),
            spin=float(np.linalg.norm(twist[:3])),
            opening=float(np.clip(min(grippers, default=1.0), 0.0, 1.0)),
            touching=any(touched & fingers for fingers in self._fingers),
            grasping=any(len(touched & fingers) >= min(2, len(fingers)) for fingers in self._fingers),
        )

    def _opening(self, native: Float[np.ndarray, "j"], j: int) -> float:
        """Share of the gripper's range that is open, from the robot's own convention."""
        joint = self.robot.joints[j]
        if joint.opened is None or joint.closed is None or joint.opened == joint.closed:
            return 1.0
        return float((native[j] - joint.closed) / (joint.opened - joint.closed))

    def _touching(self, data: Any) -> set[int]:
        """The bodies that touch the object."""
        bodies = self.model.geom_bodyid[data.contact.geom[: data.ncon]]
        return {int(v) for v in bodies[(bodies == self._object).any(axis=1)].flatten()} - {self._object}

    def render(self, index: int, camera: str) -> UInt8[np.ndarray, "h w 3"]:
        """The frame of one camera, RGB."""
        spec = self.suite.cameras[camera]
        size = (spec.height, spec.width)
        if size not in self._renderers:
            try:
                self._renderers[size] = self._mj.Renderer(self.model, *size)
            except (self._mj.FatalError, RuntimeError, AttributeError, ImportError, OSError) as error:
                raise MorphVlaError(f"{EGL_REMEDY} ({error})") from error
            self._renderers[size].scene.flags[self._mj.mjtRndFlag.mjRND_SHADOW] = 0
            # Registered after EGL's own, so it runs before it: a renderer outliving EGL prints a traceback.
            atexit.register(_close, weakref.ref(self._renderers[size]))
        renderer = self._renderers[size]
        self._looks.put_on(self._data[index], self._states[index])
        renderer.update_scene(self._data[index], camera)
        return renderer.render().copy()

    def observe(self, index: int) -> dict[str, Any]:
        """The observation of world `index`; see `engine`."""
        frames = {f"images/{name}": self.render(index, name) for name in self.suite.cameras}
        return {
            **frames,
            "state": self.state(index),
            "prompt": self.suite.task,
            "robot": self.robot.name,
        }

    def close(self) -> None:
        """Give the renderers back."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()


def _close(renderer: weakref.ref) -> None:
    """Close a renderer that is still there when the interpreter ends."""
    alive = renderer()
    if alive is not None:
        alive.close()
