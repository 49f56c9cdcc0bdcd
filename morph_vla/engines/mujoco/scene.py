"""The MuJoCo scene of a suite: a robot's URDF, table, objects, cameras, lights and servos.

Settings that decided whether grasps hold (measured for this project): arm armature 0.1, integrator
`implicitfast`, elliptic friction cone with impratio 10. Joints that no action drives stand still: they are
taken out of the model, as `Robot.forward_kinematics` has them at 0.
"""

import logging
import os
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from morph_vla.engines import hands
from morph_vla.errors import MorphVlaError, nearest, require
from morph_vla.robots import Robot, bodies
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.shapes import Part, parts, rolls, touches
from morph_vla.suites.suite import Camera, ExpertSpec, Suite, Table

LOG = logging.getLogger(__name__)
# MuJoCo ships no types, and is imported when it is first used.
MjData = Any
MjModel = Any
MjSpec = Any
Renderer = Any
TABLE, FLOOR, MARK = "table", "floor", "mark/"  # names of geoms
UNDER, THIN = 0.9, 5e-4  # [m] how deep under the table's top the floor is, and how high a mark
TOOL_SITE, HIDDEN = "expert/tool", 5  # groups above 2 are not rendered
EGL_REMEDY = (
    "MuJoCo could not open an off-screen renderer through EGL; install Mesa's EGL: "
    "apt-get install libegl1 libgl1-mesa-dri "
    "(and where mujoco was imported before morph_vla, set MUJOCO_GL=egl)"
)


def mujoco() -> ModuleType:
    """The `mujoco` module, set up for a machine without a screen."""
    # Read by mujoco when it is first imported; headless machines have no other renderer.
    os.environ.setdefault("MUJOCO_GL", "egl")
    # Mesa's software rasteriser starts a thread per core and process; worlds fill the cores already.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    try:
        module = require("mujoco", "sim")
    except (AttributeError, OSError, RuntimeError) as error:  # without libEGL the import itself fails
        raise MorphVlaError(f"{no_renderer()} ({error})") from error
    if hasattr(module, "set_mju_user_warning") and module.get_mju_user_warning() is None:
        # Its own way is MUJOCO_LOG.TXT in the current folder, which may be anybody's.
        module.set_mju_user_warning(partial(LOG.warning, "MuJoCo: %s"))
    return module


def no_renderer() -> str:
    """What to do where MuJoCo opens no renderer: install EGL's libraries, or ask for no other one."""
    chosen = os.environ.get("MUJOCO_GL", "egl")
    if chosen.lower() == "egl":
        return EGL_REMEDY
    return f"MuJoCo could not open an off-screen renderer with MUJOCO_GL={chosen}; unset it, and EGL is used"


def build_spec(robot: Robot, suite: Suite) -> MjSpec:
    """The model of a suite, not yet compiled: robot, table, objects, cameras, lights, servos."""
    mj = mujoco()
    try:
        spec = mj.MjSpec.from_string(bodies.scene_text(robot))
    except ValueError as error:
        raise MorphVlaError(f"{robot.urdf_path}: MuJoCo cannot read it: {error}") from error
    # A root link called `world` becomes MuJoCo's own, whose mass belongs nowhere: with its centre beside the
    # origin the tree that finds contacts lies beside the table, and bowls fall through.
    world = spec.worldbody
    world.mass, world.ipos, world.iquat, world.inertia = 0.0, [0, 0, 0], [1, 0, 0, 0], [0, 0, 0]
    spec.modelname = f"{suite.name}"
    spec.compiler.degree = False
    spec.compiler.fusestatic = False  # frames such as the tool stay bodies one can ask for
    spec.option.timestep = 1.0 / suite.physics_rate
    spec.option.integrator = mj.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mj.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0
    # By itself MuJoCo puts all back where it began when numbers diverge, and the episode would go on.
    spec.option.disableflags |= int(mj.mjtDisableBit.mjDSBL_AUTORESET)
    spec.stat.extent = 1.5  # a large ground would push the near plane through the wrist camera
    spec.stat.center = [0.4, 0.0, 0.2]
    spec.visual.map.znear = 0.005
    spec.visual.quality.shadowsize = 0
    # Round shapes with few facets: vertices, not pixels, are what software rendering of small frames costs
    # (3.5 ms a 96 x 96 frame with the default 28 x 16, 1 ms with 12 x 6).
    spec.visual.quality.numslices, spec.visual.quality.numstacks = 12, 6
    spec.visual.quality.offsamples = 0
    for camera in suite.cameras.values():  # MuJoCo's off-screen buffer is 640 x 480 by default
        spec.visual.global_.offwidth = max(spec.visual.global_.offwidth, camera.width)
        spec.visual.global_.offheight = max(spec.visual.global_.offheight, camera.height)
    _prepare_robot(mj, spec, robot, suite)
    _add_world(mj, spec, suite.table)
    _add_looks(mj, spec, suite)
    for name, thing in suite.objects.items():
        _add_object(mj, spec, name, thing)
    for name, camera in suite.cameras.items():
        _add_camera(mj, spec, name, camera)
    _add_tool(spec, suite)
    for geom in spec.geoms:
        geom.solref = [suite.contact_seconds, 1.0]
    return spec


def compiled(spec: MjSpec, robot: Robot) -> MjModel:
    """The model of a scene. Raises MorphVlaError, with MuJoCo's words, where it cannot build it."""
    try:
        return spec.compile()
    except ValueError as error:
        raise MorphVlaError(
            f"{spec.modelname} with {robot.urdf_path}: MuJoCo cannot build it: {error}"
        ) from error


def _prepare_robot(mj: ModuleType, spec: MjSpec, robot: Robot, suite: Suite) -> None:
    """Servos on every driven joint, gravity compensation, no self-collision."""
    driven = {drive[0]: drive for drive in robot.drives()}
    for body in spec.bodies:
        if body.name != "world":
            body.gravcomp = 1.0
    filled = bodies.lacks_something(robot)
    if filled:
        _keep_off_the_table(spec, robot)
    # Where collision shapes were filled in, the file's visual geoms are rendered and the made-up ones hidden.
    looks = [filled and not (geom.contype or geom.conaffinity) for geom in spec.geoms]
    covered = {geom.parent.name for geom, look in zip(spec.geoms, looks, strict=True) if look}
    for geom, look in zip(spec.geoms, looks, strict=True):
        if look:
            continue
        geom.group = HIDDEN if geom.parent.name in covered else 0
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
        servo = suite.actuators.of(action.name, action.is_gripper)
        joint.armature = servo.armature
        # 300 N m on the arm would be no Panda: the URDF's effort limits hold.
        limit = float(action.effort) if action.effort else 0.0
        actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mj.mjtTrn.mjTRN_JOINT)
        actuator.set_to_position(kp=servo.stiffness, kv=servo.damping)
        if limit > 0:
            actuator.forcerange = [-limit, limit]
            actuator.forcelimited = 1
    # A URDF's <mimic> is an equality of two joints; where one of them moves no more there is nothing to hold.
    for equality in list(spec.equalities):
        if not {equality.name1, equality.name2} <= driven.keys():
            spec.delete(equality)


def _keep_off_the_table(spec: MjSpec, robot: Robot) -> None:
    """Shapes that were guessed touch objects alone, but for those of the fingers."""
    fingers = {link for links in hands.fingers(robot) for link in links}
    for body in spec.bodies:
        if body.name != "world" and body.name not in fingers:
            spec.add_exclude(bodyname1="world", bodyname2=body.name)


def _add_world(mj: ModuleType, spec: MjSpec, table: Table) -> None:
    world = spec.worldbody
    world.add_geom(
        name=TABLE, type=mj.mjtGeom.mjGEOM_BOX, size=[edge / 2 for edge in table.size],
        pos=[*table.center, table.height - table.size[2] / 2], rgba=[*table.color, 1],
        contype=2, conaffinity=3, friction=[1.0, 0.02, 0.001], condim=4,
    )  # fmt: skip
    world.add_light(
        name="key", type=mj.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0.5, -1, 2], dir=[0.1, 0.5, -1],
        diffuse=[0.6, 0.6, 0.6], ambient=[0.35, 0.35, 0.35], castshadow=False,
    )  # fmt: skip


def _add_looks(mj: ModuleType, spec: MjSpec, suite: Suite) -> None:
    """Geoms that only episodes of other colours show (`painting`): a floor where the background is black
    otherwise, and marks that lie nowhere yet. Nothing touches them; a suite that varies in neither has none.
    """
    table, varied = suite.table, suite.variation
    seen = {"type": mj.mjtGeom.mjGEOM_BOX, "contype": 4, "conaffinity": 0}
    if varied.colors:
        spec.worldbody.add_geom(
            name=FLOOR, size=[30.0, 30.0, 0.01], pos=[*table.center, table.height - UNDER],
            rgba=[0.0, 0.0, 0.0, 1.0], **seen,
        )  # fmt: skip
    for number in range(varied.marks):
        above = number / varied.marks * THIN  # no two at one height: which covers which would flicker
        spec.worldbody.add_geom(
            name=f"{MARK}{number}", size=[THIN] * 3, pos=[*table.center, table.height + above],
            rgba=[0.0, 0.0, 0.0, 0.0], **seen,
        )  # fmt: skip


def _add_object(mj: ModuleType, spec: MjSpec, name: str, thing: ObjectSpec) -> None:
    body = spec.worldbody.add_body(name=name)
    body.add_freejoint(name=f"{name}/free")
    contype, conaffinity = 2, 3
    if not touches(thing):
        body.gravcomp = 1.0  # it would fall through the table
        contype, conaffinity = 4, 0  # a bit that nothing meets: without any, MuJoCo leaves a geom out
    kinds = {
        "box": mj.mjtGeom.mjGEOM_BOX,
        "cylinder": mj.mjtGeom.mjGEOM_CYLINDER,
        "sphere": mj.mjtGeom.mjGEOM_SPHERE,
        "capsule": mj.mjtGeom.mjGEOM_CAPSULE,
    }
    turning = {"condim": 4, "friction": [thing.friction, 0.02, 0.001]}
    if rolls(thing):
        turning = {"condim": 6, "friction": [thing.friction, 0.02, thing.rolling_friction]}
    for part in parts(thing):
        body.add_geom(
            name=f"{name}/{part.name}" if part.name else name,
            type=kinds[part.kind], size=_half(part), pos=list(part.position), quat=list(part.quaternion),
            mass=part.mass, rgba=[*thing.color, 1.0], contype=contype, conaffinity=conaffinity, **turning,
        )  # fmt: skip


def _half(part: Part) -> list[float]:
    """A part's size as MuJoCo has it: half of every length but radii."""
    a, b, c = part.size
    return [a / 2, b / 2, c / 2] if part.kind == "box" else [a, b / 2, 0.0]


def _add_camera(mj: ModuleType, spec: MjSpec, name: str, camera: Camera) -> None:
    body = spec.worldbody if camera.link is None else spec.body(camera.link)
    if body is None:
        links = [body.name for body in spec.bodies if body.name != "world"]
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
    return _quaternion(right, np.cross(back, right), back)


def _quaternion(*columns: np.ndarray) -> list[float]:
    """The rotation (w, x, y, z) whose matrix has these columns, as MuJoCo computes it."""
    quaternion = np.zeros(4)
    mujoco().mju_mat2Quat(quaternion, np.stack(columns, axis=1).flatten())
    return [float(v) for v in quaternion]


def _add_tool(spec: MjSpec, suite: Suite) -> None:
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
    return _quaternion(np.cross(y, z), y, z)
