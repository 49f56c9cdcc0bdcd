"""The embedded engine: MuJoCo worlds built from a robot's URDF and a suite.

Settings that decided whether grasps hold (measured for this project): arm armature 0.1, integrator
`implicitfast`, elliptic friction cone with impratio 10. Frames come through EGL without shadows.
One `MjModel` and one renderer serve all worlds of an engine; each world has its own `MjData`.
"""

import atexit
import math
import os
import weakref
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8

from morph_vla.errors import MorphVlaError, nearest, require
from morph_vla.robots import Robot
from morph_vla.sim.success import Reading
from morph_vla.sim.suite import Camera, InitialState, ObjectSpec, Suite

TABLE = (0.9, 1.2, 0.05)  # [m] half sizes; its top is z = 0
BOWL_SIDES = 12
EGL_REMEDY = (
    "MuJoCo could not open an off-screen renderer through EGL; install Mesa's EGL: "
    "apt-get install libegl1 libgl1-mesa-dri "
    "(and where mujoco was imported before morph_vla, set MUJOCO_GL=egl)"
)


def _mujoco() -> ModuleType:
    # Read by mujoco when it is first imported; headless machines have no other renderer.
    os.environ.setdefault("MUJOCO_GL", "egl")
    # Mesa's software rasteriser starts a thread per core and process; worlds already fill the cores.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    try:
        return require("mujoco", "sim")
    except (AttributeError, OSError) as error:  # without libEGL the import itself fails
        raise MorphVlaError(f"{EGL_REMEDY} ({error})") from error


def build_spec(robot: Robot, suite: Suite) -> Any:
    """The `mujoco.MjSpec` of a suite: robot, table, objects, cameras, lights, servos."""
    mj = _mujoco()
    spec = mj.MjSpec.from_string(robot.urdf_path.read_text())
    spec.modelname = f"{suite.name}"
    spec.compiler.degree = False
    spec.compiler.fusestatic = False  # frames such as the tool stay bodies one can ask for
    spec.option.timestep = 1.0 / suite.physics_rate
    spec.option.integrator = mj.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mj.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0
    spec.stat.extent = 1.5  # a large ground would push the near plane through the wrist camera
    spec.stat.center = [0.4, 0.0, 0.2]
    spec.visual.map.znear = 0.005
    spec.visual.quality.shadowsize = 0
    # Round shapes with few facets: vertices, not pixels, are what software rendering of small frames costs
    # (3.5 ms a 96 x 96 frame with the default 28 x 16, 1 ms with 12 x 6).
    spec.visual.quality.numslices, spec.visual.quality.numstacks = 12, 6
    spec.visual.quality.offsamples = 0
    for camera in suite.cameras.values():  # MuJoCo's off-screen buffer is 640 x 480 where nothing is said
        spec.visual.global_.offwidth = max(spec.visual.global_.offwidth, camera.width)
        spec.visual.global_.offheight = max(spec.visual.global_.offheight, camera.height)
    _prepare_robot(mj, spec, robot, suite)
    _add_world(mj, spec)
    for name, thing in suite.objects.items():
        _add_object(mj, spec, name, thing)
    for name, camera in suite.cameras.items():
        _add_camera(mj, spec, name, camera)
    return spec


def _prepare_robot(mj: ModuleType, spec: Any, robot: Robot, suite: Suite) -> None:
    """Servos on every driven joint, gravity compensation, no self-collision."""
    driven = {drive[0]: drive for drive in robot.drives()}
    for body in spec.bodies:
        if body.name != "world":
            body.gravcomp = 1.0
    for geom in spec.geoms:
        geom.group = 0
        # Robot geoms (bit 1) meet the world (bit 2), never each other.
        geom.contype, geom.conaffinity = 1, 2
        geom.friction = [1.0, 0.02, 0.001]
        geom.condim = 4
    for joint in spec.joints:
        drive = driven.get(joint.name)
        if drive is None:
            continue
        action = robot.joints[drive[1]]
        servo = suite.actuators.gripper if action.is_gripper else suite.actuators.arm
        joint.armature = servo.armature
        # 300 N m on the arm would be no Panda: the URDF's effort limits hold.
        limit = float(action.effort) if action.effort else 0.0
        actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mj.mjtTrn.mjTRN_JOINT)
        actuator.set_to_position(kp=servo.stiffness, kv=servo.damping)
        if limit > 0:
            actuator.forcerange = [-limit, limit]
            actuator.forcelimited = 1


def _add_world(mj: ModuleType, spec: Any) -> None:
    world = spec.worldbody
    world.add_geom(
        name="table", type=mj.mjtGeom.mjGEOM_BOX, size=TABLE, pos=[0.4, 0, -TABLE[2]],
        rgba=[0.62, 0.55, 0.46, 1], contype=2, conaffinity=3, friction=[1.0, 0.02, 0.001], condim=4,
    )  # fmt: skip
    world.add_light(
        name="key", type=mj.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0.5, -1, 2], dir=[0.1, 0.5, -1],
        diffuse=[0.6, 0.6, 0.6], ambient=[0.35, 0.35, 0.35], castshadow=False,
    )  # fmt: skip


def _add_object(mj: ModuleType, spec: Any, name: str, thing: ObjectSpec) -> None:
    body = spec.worldbody.add_body(name=name)
    body.add_freejoint(name=f"{name}/free")
    common: dict[str, Any] = {
        "rgba": [*thing.color, 1.0],
        "contype": 2,
        "conaffinity": 3,
        "friction": [thing.friction, 0.02, 0.001],
        "condim": 4,
    }
    if thing.shape == "box":
        half = [edge / 2 for edge in thing.size]
        body.add_geom(name=name, type=mj.mjtGeom.mjGEOM_BOX, size=half, mass=thing.mass, **common)
    elif thing.shape == "cylinder":
        radius, height, _ = thing.size
        size = [radius, height / 2, 0]
        body.add_geom(name=name, type=mj.mjtGeom.mjGEOM_CYLINDER, size=size, mass=thing.mass, **common)
    else:
        _add_bowl(mj, body, name, thing, common)


def _add_bowl(mj: ModuleType, body: Any, name: str, thing: ObjectSpec, common: dict[str, Any]) -> None:
    """A round floor and a ring of upright boxes; the body's origin is the middle of its underside."""
    radius, height, wall = thing.size
    share = thing.mass / (BOWL_SIDES + 2)
    body.add_geom(
        name=f"{name}/floor", type=mj.mjtGeom.mjGEOM_CYLINDER, size=[radius, wall / 2, 0],
        pos=[0, 0, wall / 2], mass=2 * share, **common,
    )  # fmt: skip
    width = radius * math.tan(math.pi / BOWL_SIDES) + wall / 2
    for side in range(BOWL_SIDES):
        angle = 2 * math.pi * side / BOWL_SIDES
        body.add_geom(
            name=f"{name}/wall{side}", type=mj.mjtGeom.mjGEOM_BOX, size=[wall / 2, width, height / 2],
            pos=[radius * math.cos(angle), radius * math.sin(angle), height / 2],
            quat=[math.cos(angle / 2), 0, 0, math.sin(angle / 2)], mass=share, **common,
        )  # fmt: skip


def _add_camera(mj: ModuleType, spec: Any, name: str, camera: Camera) -> None:
    body = spec.worldbody if camera.link is None else spec.body(camera.link)
    if body is None:
        links = [one.name for one in spec.bodies if one.name != "world"]
        near = nearest(str(camera.link), links)
        raise MorphVlaError(f"camera '{name}': the robot has no link '{camera.link}'{near}")
    body.add_camera(
        name=name, pos=list(camera.position), quat=look_at(camera.position, camera.look_at), fovy=camera.fovy
    )


def look_at(eye: tuple[float, ...], target: tuple[float, ...]) -> list[float]:
    """Quaternion (w, x, y, z) of a camera at `eye` whose -z axis points at `target`, x axis level [m].

    "Level" means perpendicular to z of the frame the camera stands in, or to its x axis where the view
    runs along z itself.
    """
    back = np.asarray(eye, float) - np.asarray(target, float)
    if not back.any():
        raise MorphVlaError(f"a camera at {tuple(eye)} cannot look at its own position")
    back = back / np.linalg.norm(back)
    up = np.array([0.0, 0.0, 1.0]) if abs(back[2]) < 0.999 else np.array([1.0, 0.0, 0.0])
    right = np.cross(up, back)
    right = right / np.linalg.norm(right)
    matrix = np.stack([right, np.cross(back, right), back], axis=1)
    quaternion = np.zeros(4)
    _mujoco().mju_mat2Quat(quaternion, matrix.flatten())
    return [float(v) for v in quaternion]


class MujocoEngine:
    """`count` independent MuJoCo worlds of one suite; see `engine.Engine` for the contract."""

    name = "mujoco"

    def __init__(self, robot: Robot, suite: Suite, count: int = 1):
        mj = _mujoco()
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
        self._fingers = self._finger_bodies()
        self._renderers: dict[tuple[int, int], Any] = {}

    def _finger_bodies(self) -> list[int]:
        grippers = {i for i, joint in enumerate(self.robot.joints) if joint.is_gripper}
        return [
            int(self.model.joint(name).bodyid[0])
            for name, action, _, _ in self.robot.drives()
            if action in grippers
        ]

    def reset(self, index: int, state: InitialState) -> None:
        """Put world `index` into an initial state and let it settle."""
        data = self._data[index]
        self._mj.mj_resetData(self.model, data)
        arm = np.asarray(self.robot.rest, dtype=np.float64).copy()
        arm += np.where(self._is_gripper(), 0.0, np.asarray(state.arm))
        self._drive(data, arm, jump=True)
        for name, (x, y, yaw) in state.poses.items():
            address = self.model.joint(f"{name}/free").qposadr[0]
            data.qpos[address : address + 7] = [
                x, y, resting_height(self.suite.objects[name]), math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)
            ]  # fmt: skip
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
        touched = self._touched(data)
        twist = data.cvel[self._object]  # rotational part first; linear part about the subtree's centre
        native = self.native(index)
        opening = 1.0
        for j, joint in enumerate(self.robot.joints):
            if joint.is_gripper:
                opening = float(np.clip(self._opening(native, j), 0.0, 1.0))
        address = self.model.joint(f"{self.suite.success.object}/free").dofadr[0]
        return Reading(
            object_position=data.xipos[self._object].copy(),
            target_position=data.xpos[self._target].copy(),
            speed=float(np.linalg.norm(data.qvel[address : address + 3])),
            spin=float(np.linalg.norm(twist[:3])),
            opening=opening,
            touching=bool(touched),
            grasping=len(touched) >= min(2, len(self._fingers)),
        )

    def _opening(self, native: Float[np.ndarray, "j"], j: int) -> float:
        """Share of the gripper's range that is open, from the robot's own convention."""
        joint = self.robot.joints[j]
        if joint.opened is None or joint.closed is None or joint.opened == joint.closed:
            return 1.0
        return float((native[j] - joint.closed) / (joint.opened - joint.closed))

    def _touched(self, data: Any) -> set[int]:
        """Which fingers touch the object."""
        found = set()
        bodies = self.model.geom_bodyid
        for pair in data.contact.geom[: data.ncon]:
            one, two = int(bodies[pair[0]]), int(bodies[pair[1]])
            if one == self._object and two in self._fingers:
                found.add(two)
            elif two == self._object and one in self._fingers:
                found.add(one)
        return found

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


def resting_height(thing: ObjectSpec) -> float:
    """Height of an object's origin when it stands on the table [m]; a hair above, so nothing overlaps."""
    gap = 0.0005
    if thing.shape == "box":
        return thing.size[2] / 2 + gap
    if thing.shape == "cylinder":
        return thing.size[1] / 2 + gap
    return gap
