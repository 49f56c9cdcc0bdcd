"""The MuJoCo scene of a suite: a robot's URDF, table, objects, cameras, lights and servos.

Settings that decided whether grasps hold (measured for this project): arm armature 0.1, integrator
`implicitfast`, elliptic friction cone with impratio 10. Joints that no action drives stand still: they are
taken out of the model, as `Robot.forward_kinematics` has them at 0.
"""

import math
import os
from types import ModuleType
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError, nearest, require
from morph_vla.robots import Robot
from morph_vla.sim.suite import Camera, ExpertSpec, ObjectSpec, Suite, Table

TOOL_SITE, HIDDEN = "expert/tool", 5  # groups above 2 are not rendered
DISH_SIDES = 12
PLATE_LEAN = math.pi / 4  # [rad] of a plate's rim, outwards
EGL_REMEDY = (
    "MuJoCo could not open an off-screen renderer through EGL; install Mesa's EGL: "
    "apt-get install libegl1 libgl1-mesa-dri "
    "(and where mujoco was imported before morph_vla, set MUJOCO_GL=egl)"
)


def mujoco() -> ModuleType:
    """The `mujoco` module, set up for a machine without a screen."""
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
    mj = mujoco()
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
    _add_world(mj, spec, suite.table)
    for name, thing in suite.objects.items():
        _add_object(mj, spec, name, thing)
    for name, camera in suite.cameras.items():
        _add_camera(mj, spec, name, camera)
    _add_tool(spec, suite)
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
    for joint in list(spec.joints):
        drive = driven.get(joint.name)
        if drive is None:
            spec.delete(joint)
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


def _add_world(mj: ModuleType, spec: Any, table: Table) -> None:
    world = spec.worldbody
    world.add_geom(
        name="table", type=mj.mjtGeom.mjGEOM_BOX, size=[edge / 2 for edge in table.size],
        pos=[*table.center, table.height - table.size[2] / 2], rgba=[*table.color, 1],
        contype=2, conaffinity=3, friction=[1.0, 0.02, 0.001], condim=4,
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
    elif thing.shape == "sphere":
        # Rolling friction (condim 6), without which a ball that was let go of never comes to rest.
        common |= {"condim": 6, "friction": [thing.friction, 0.02, thing.rolling_friction]}
        size = [thing.size[0], 0, 0]
        body.add_geom(name=name, type=mj.mjtGeom.mjGEOM_SPHERE, size=size, mass=thing.mass, **common)
    elif thing.shape == "open_box":
        _add_open_box(mj, body, name, thing, common)
    else:
        lean = PLATE_LEAN if thing.shape == "plate" else 0.0
        _add_dish(mj, body, name, thing, common, lean)


def _add_dish(
    mj: ModuleType, body: Any, name: str, thing: ObjectSpec, common: dict[str, Any], lean: float
) -> None:
    """A round floor and a ring of boxes that lean outwards; the origin is the middle of its underside."""
    radius, height, wall = thing.size
    share = thing.mass / (DISH_SIDES + 2)
    body.add_geom(
        name=f"{name}/floor", type=mj.mjtGeom.mjGEOM_CYLINDER, size=[radius, wall / 2, 0],
        pos=[0, 0, wall / 2], mass=2 * share, **common,
    )  # fmt: skip
    slant = height / math.cos(lean)  # the rim's height is what the suite says, however it leans
    middle = radius + height / 2 * math.tan(lean)
    width = middle * math.tan(math.pi / DISH_SIDES) + wall / 2
    for side in range(DISH_SIDES):
        angle = 2 * math.pi * side / DISH_SIDES
        turn, tip = (math.cos(angle / 2), math.sin(angle / 2)), (math.cos(lean / 2), math.sin(lean / 2))
        body.add_geom(
            name=f"{name}/wall{side}", type=mj.mjtGeom.mjGEOM_BOX, size=[wall / 2, width, slant / 2],
            pos=[middle * math.cos(angle), middle * math.sin(angle), height / 2],
            quat=[turn[0] * tip[0], -turn[1] * tip[1], turn[0] * tip[1], turn[1] * tip[0]],
            mass=share, **common,
        )  # fmt: skip


def _add_open_box(mj: ModuleType, body: Any, name: str, thing: ObjectSpec, common: dict[str, Any]) -> None:
    """A floor and four walls, five plates; the body's origin is the middle of its underside."""
    (length, width, height), wall = thing.size, thing.wall
    plates = {  # name -> full size, middle
        "floor": ((length, width, wall), (0, 0, wall / 2)),
        "front": ((wall, width, height), ((length - wall) / 2, 0, height / 2)),
        "back": ((wall, width, height), (-(length - wall) / 2, 0, height / 2)),
        "left": ((length, wall, height), (0, (width - wall) / 2, height / 2)),
        "right": ((length, wall, height), (0, -(width - wall) / 2, height / 2)),
    }
    volume = sum(math.prod(size) for size, _ in plates.values())
    for plate, (size, middle) in plates.items():
        body.add_geom(
            name=f"{name}/{plate}", type=mj.mjtGeom.mjGEOM_BOX, size=[edge / 2 for edge in size],
            pos=list(middle), mass=thing.mass * math.prod(size) / volume, **common,
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
    mujoco().mju_mat2Quat(quaternion, matrix.flatten())
    return [float(v) for v in quaternion]


def _add_tool(spec: Any, suite: Suite) -> None:
    """The frame the expert drives, where it is not the link's own: z along the approach, y along the grip.

    Raises MorphVlaError when the approach and the fingers' way are no two directions at a right angle.
    """
    expert = suite.expert
    body = spec.body(expert.tool)
    if body is not None and not expert.drives_the_link:
        body.add_site(
            name=TOOL_SITE, group=HIDDEN, pos=list(expert.offset), quat=tool_axes(expert, str(suite.path))
        )


def tool_axes(expert: ExpertSpec, path: str) -> list[float]:
    """Quaternion (w, x, y, z) of the driven frame in the tool's link.

    Raises MorphVlaError, naming `path`, when `approach` and `grip` are not at a right angle.
    """
    approach, grip = (np.asarray(axis, float) for axis in (expert.approach, expert.grip))
    lengths = np.linalg.norm(approach) * np.linalg.norm(grip)
    if not lengths > 0 or abs(approach @ grip) > 1e-3 * lengths:
        raise MorphVlaError(
            f"{path}: expert: approach {expert.approach} and grip {expert.grip} must be two directions at a "
            "right angle"
        )
    z, y = approach / np.linalg.norm(approach), grip / np.linalg.norm(grip)
    matrix = np.stack([np.cross(y, z), y, z], axis=1)
    quaternion = np.zeros(4)
    mujoco().mju_mat2Quat(quaternion, matrix.flatten())
    return [float(v) for v in quaternion]


def resting_height(thing: ObjectSpec) -> float:
    """Height of an object's origin above what it stands on [m]; a hair more, so that nothing overlaps."""
    gap = 0.0005
    if thing.shape == "box":
        return thing.size[2] / 2 + gap
    if thing.shape == "cylinder":
        return thing.size[1] / 2 + gap
    return thing.size[0] + gap if thing.shape == "sphere" else gap
