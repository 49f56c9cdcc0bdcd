"""The Isaac Lab scene of a suite: configurations of robot, servos, table, objects, cameras, lights, contacts.

One function per kind of thing; nothing is simulated here. Newton with MuJoCo-Warp gets the contact model, the
servos and the solver of `scene`; what PhysX has no word for (rolling friction) it ignores.
"""

import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from morph_vla.engines.isaaclab import assets, lights
from morph_vla.engines.isaaclab.options import Options
from morph_vla.engines.mujoco.scene import look_at
from morph_vla.errors import MorphVlaError, nearest, require
from morph_vla.robots import Robot
from morph_vla.suites.shapes import rolls
from morph_vla.suites.suite import Camera, Suite, Vector3

# Isaac Lab and torch, which describe neither, are imported when they are first used.
Config = Any
Tensor = Any
EXTRA = assets.EXTRA
ROBOT = "{ENV_REGEX_NS}/Robot"
# Of contacts: time constant [s] and damping ratio. With the stiffer ones of the MuJoCo engine 5 of 8 bananas
# kept moving in the bin.
SOLREF = (0.02, 1.0)
SOLVER_RATE = 240  # [Hz] at least; at 120 fingers lost a cube in 1 of 12 lifts
ROWS = 6  # of constraints that one contact has at most (condim 6)
# What a camera is asked for: of Newton what `lights` shades, of the others their pictures.
SEEN = {"newton": ("albedo", "normals"), "rtx": ("rgb",), "ovrtx": ("rgb",)}
SPACING = 5.0  # [m] between worlds that share one space
APERTURE = 20.955  # [mm] any will do: the field of view is what the focal length makes of it


def robot_cfg(robot: Robot, suite: Suite, options: Options) -> Config:
    """The robot: its converted URDF without self-collision, gravity taken off, a servo per driven joint."""
    sim, lab = require("isaaclab.sim", EXTRA), require("isaaclab.assets", EXTRA)
    actuators = require("isaaclab.actuators", EXTRA)
    servos: dict[str, Config] = {}
    rest = robot.positions(robot.rest)
    for name, action, _, _ in robot.drives():
        joint = robot.joints[action]
        servo = suite.actuators.of(joint.name, joint.is_gripper)
        servos[name] = actuators.ImplicitActuatorCfg(
            joint_names_expr=[name], stiffness=servo.stiffness, damping=servo.damping,
            armature=servo.armature, joint_effort_limit=joint.effort or 1e6,
        )  # fmt: skip
    return lab.ArticulationCfg(
        prim_path=ROBOT,
        spawn=sim.UsdFileCfg(usd_path=str(assets.robot_usd(robot)), **_robot_props(options)),
        init_state=lab.ArticulationCfg.InitialStateCfg(joint_pos=rest),
        actuators=servos,
    )


def _robot_props(options: Options) -> dict[str, object]:
    if options.physics == "newton":
        newton = require("isaaclab_newton.sim.schemas", EXTRA)
        body = newton.MujocoRigidBodyCfg(gravcomp=1.0)
        joints = newton.NewtonArticulationCfg(self_collision_enabled=False)
        contacts = {"collision_props": _contact_model(4)}
    else:
        physx, contacts = require("isaaclab_physx.sim.schemas", EXTRA), {}
        body = physx.PhysxRigidBodyCfg(disable_gravity=True)
        joints = physx.PhysxArticulationCfg(enabled_self_collisions=False)
    props = {"rigid_props": {"/.*": [body]}, "articulation_props": {"/.*": [joints]}}
    return {**props, **contacts, "physics_material": _friction()}


def _contact_model(dimensions: int) -> dict[str, list[Config]]:
    """MuJoCo's contact model for every collider of an asset; read by Newton's MuJoCo solver alone."""
    newton = require("isaaclab_newton.sim.schemas", EXTRA)
    return {"/.*": [newton.MujocoCollisionCfg(condim=dimensions, solref=SOLREF)]}


def _friction() -> list[Config]:
    """Of robot and table; an object's is in its file."""
    sim = require("isaaclab.sim.spawners.materials", EXTRA)
    newton = require("isaaclab_newton.sim.spawners.materials", EXTRA)
    return [
        sim.UsdPhysicsRigidBodyMaterialCfg(static_friction=1.0, dynamic_friction=1.0, restitution=0.0),
        newton.NewtonMaterialCfg(torsional_friction=assets.TORSIONAL, rolling_friction=assets.ROLLING),
    ]


def object_cfg(suite: Suite, name: str, options: Options) -> Config:
    """A movable object, from the file that `assets` writes."""
    sim, lab = require("isaaclab.sim", EXTRA), require("isaaclab.assets", EXTRA)
    thing = suite.objects[name]
    more = {}
    if options.physics == "newton":
        more["collision_props"] = _contact_model(6 if rolls(thing) else 4)
    return lab.RigidObjectCfg(
        prim_path="{ENV_REGEX_NS}/" + prim_name(name),
        spawn=sim.UsdFileCfg(
            usd_path=str(assets.object_usd(thing)),
            activate_contact_sensors=name == suite.success.object,
            **more,
        ),
    )


def prim_name(name: str) -> str:
    """A name of the suite's as a USD prim's: letters, digits and underscores."""
    return "object_" + "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in name)


def _check_prim_names(where: str, names: Iterable[str]) -> None:
    """Raise MorphVlaError for two names that USD writes alike: one thing would stand for both."""
    written: dict[str, str] = {}
    for name in names:
        if (other := written.setdefault(prim_name(name), name)) != name:
            raise MorphVlaError(
                f"{where}: engine isaaclab cannot tell '{other}' from '{name}': USD's names have letters, "
                "digits and underscores"
            )


def table_cfg(suite: Suite, options: Options) -> Config:
    """The table, a box that does not move; one per world."""
    sim, lab = require("isaaclab.sim", EXTRA), require("isaaclab.assets", EXTRA)
    table = suite.table
    more = {"collision_props": {"": [sim.UsdPhysicsCollisionCfg()]}}
    if options.physics == "newton":
        more["collision_props"][""] += _contact_model(4)["/.*"]
    return lab.AssetBaseCfg(
        prim_path="{ENV_REGEX_NS}/Table",
        init_state=lab.AssetBaseCfg.InitialStateCfg(pos=(*table.center, table.height - table.size[2] / 2)),
        spawn=sim.CuboidCfg(
            size=table.size, physics_material=_friction(),
            visual_material=sim.PreviewSurfaceCfg(diffuse_color=assets.linear(table.color)), **more,
        ),
    )  # fmt: skip


def camera_cfg(camera: Camera, links: dict[str, str], name: str, options: Options) -> Config:
    """A camera in the base frame or on a link, looking along -z with y up, as MuJoCo's does."""
    sim, sensors = require("isaaclab.sim", EXTRA), require("isaaclab.sensors", EXTRA)
    if camera.link is not None and camera.link not in links:
        near = nearest(camera.link, links)
        raise MorphVlaError(f"camera '{name}': the robot has no link '{camera.link}'{near}")
    parent = f"{ROBOT}/{links[camera.link]}" if camera.link is not None else "{ENV_REGEX_NS}"
    w, x, y, z = look_at(camera.position, camera.look_at)
    across = APERTURE * camera.height / camera.width  # pixels are square
    return sensors.CameraCfg(
        prim_path=f"{parent}/camera_{prim_name(name)}", width=camera.width, height=camera.height,
        data_types=list(SEEN[options.renderer]), renderer_cfg=renderer_cfg(options),
        # Without it a camera on a link silently stays where it began.
        update_latest_camera_pose=True,
        spawn=sim.PinholeCameraCfg(
            focal_length=across / 2 / math.tan(math.radians(camera.fovy) / 2), horizontal_aperture=APERTURE,
            vertical_aperture=across, clipping_range=(0.005, 100.0),
        ),
        offset=sensors.CameraCfg.OffsetCfg(pos=camera.position, rot=(x, y, z, w), convention="opengl"),
    )  # fmt: skip


def renderer_cfg(options: Options) -> Config:
    """Who renders."""
    if options.renderer == "newton":
        return require("isaaclab_newton.renderers", EXTRA).NewtonWarpRendererCfg()
    if options.renderer == "rtx":
        return require("isaaclab_physx.renderers", EXTRA).IsaacRtxRendererCfg()
    return require("isaaclab_ov.renderers", EXTRA).OVRTXRendererCfg()


def runtime_cfg(options: Options) -> Config:
    """What Isaac Lab's launcher looks at to know which program to start: who simulates, and who renders."""
    camera = require("isaaclab.sensors", EXTRA).CameraCfg(renderer_cfg=renderer_cfg(options))
    return SimpleNamespace(physics=physics_cfg(options), camera=camera)


def simulation_cfg(suite: Suite, options: Options) -> Config:
    """Time step and solver: `scene`'s for Newton, the installation's defaults for PhysX."""
    sim = require("isaaclab.sim", EXTRA)
    dt, physics = 1.0 / suite.physics_rate, physics_cfg(options)
    if options.physics == "newton":
        physics.num_substeps = math.ceil(SOLVER_RATE / suite.physics_rate)
    return sim.SimulationCfg(dt=dt, device=options.device, save_logs_to_file=False, physics=physics)


def physics_cfg(options: Options) -> Config:
    """Who simulates. On a GPU bit-equal repetition is asked for, which costs time there."""
    if options.physics == "physx":
        return require("isaaclab_physx.physics", EXTRA).PhysxCfg(deterministic=options.deterministic)
    if options.physics == "ovphysx":
        return require("isaaclab_ov.physics", EXTRA).OvPhysxCfg(deterministic=options.deterministic)
    newton = require("isaaclab_newton.physics", EXTRA)
    return newton.NewtonCfg(
        deterministic_mode="run_to_run" if options.deterministic else "not_guaranteed",
        default_shape_cfg=newton.NewtonShapeCfg(gap=0.0),  # a contact is one that presses, as in MuJoCo
        solver_cfg=newton.MJWarpSolverCfg(
            integrator="implicitfast", cone="elliptic", impratio=10.0,
            nconmax=options.contacts, njmax=ROWS * options.contacts,
            disable_sensors=True,  # MuJoCo-Warp's own, which nobody reads and which are not deterministic
            # Contacts by Newton: MuJoCo-Warp 3.12's own, in float32, left 11 of 12 cubes turning in the bowl.
            use_mujoco_contacts=False,
        ),
    )  # fmt: skip


def scene_cfg(robot: Robot, suite: Suite, count: int, options: Options) -> Config:
    """Everything in the scene, in the order in which it is spawned: bodies before what stands on them."""
    looks = ("light", "camera_position", "camera_angle", "colors", "marks")
    varied = [key for key in looks if getattr(suite.variation, key)]
    if varied:
        raise MorphVlaError(
            f"{suite.path}: engine isaaclab does not vary variation.{' and variation.'.join(varied)}; "
            "set it to 0, or use engine mujoco"
        )
    if suite.success.also:
        raise MorphVlaError(
            f"{suite.path}: engine isaaclab reads one object; success.also needs engine mujoco"
        )
    for key, names in (("objects", suite.objects), ("cameras", suite.cameras)):
        _check_prim_names(f"{suite.path}: {key}", names)
    scene = require("isaaclab.scene", EXTRA)
    links = assets.link_paths(assets.robot_usd(robot))
    # Newton's worlds are separate: without spacing, state and pixels do not depend on how many there are.
    spacing = 0.0 if options.physics == "newton" else SPACING
    config = scene.InteractiveSceneCfg(num_envs=count, env_spacing=spacing)
    config.table = table_cfg(suite, options)
    config.robot = robot_cfg(robot, suite, options)
    for name in suite.objects:
        setattr(config, prim_name(name), object_cfg(suite, name, options))
    for name, light in lights_cfg(options).items():
        setattr(config, name, light)
    # What the object touches among the robot's links.
    config.touch = require("isaaclab.sensors", EXTRA).ContactSensorCfg(
        prim_path="{ENV_REGEX_NS}/" + prim_name(suite.success.object),
        filter_prim_paths_expr=[f"{ROBOT}/{links[name]}" for name in solid_links(robot)],
    )
    for name, camera in suite.cameras.items():
        setattr(config, f"camera_{prim_name(name)}", camera_cfg(camera, links, name, options))
    return config


def solid_links(robot: Robot) -> list[str]:
    """The robot's links that something can touch, in the order in which contacts are reported."""
    return sorted(link.name for link in robot.urdf.links if link.collisions)


def lights_cfg(options: Options) -> dict[str, Config]:
    """The scene's lights, for a renderer with its own way of them; none where `lights` shades the frames."""
    if options.renderer == "newton":
        return {}
    sim, lab = require("isaaclab.sim", EXTRA), require("isaaclab.assets", EXTRA)
    dome = sim.DomeLightCfg(intensity=1000.0 * (lights.AMBIENT + lights.HEAD))
    key = sim.DistantLightCfg(intensity=3000.0 * lights.KEY)
    along = lab.AssetBaseCfg.InitialStateCfg(rot=_turned(lights.DIRECTION))
    return {
        "dome": lab.AssetBaseCfg(prim_path="/World/Dome", spawn=dome),
        "key": lab.AssetBaseCfg(prim_path="/World/Key", spawn=key, init_state=along),
    }


def _turned(direction: Vector3) -> tuple[float, float, float, float]:
    """The turn (x, y, z, w) of a light that shines along its own -z, so that it shines in `direction`."""
    w, x, y, z = look_at((0.0, 0.0, 0.0), direction)
    return x, y, z, w
