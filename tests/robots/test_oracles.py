"""Joint types, axes, limits and forward kinematics of public robots, held against three other programs.

pinocchio (`pin`), yourdfpy and MuJoCo read the same files, by path. What such a program refuses is listed
here with its reason; a refusal that is not listed fails, and so does a listed one that no longer happens.
"""

import importlib
import importlib.util
import io
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from morph_vla.robots.descriptors import limits
from morph_vla.robots.kinematics import follow, link_poses
from morph_vla.robots.records import Joint, Urdf
from morph_vla.robots.urdf import parse

CONFIGURATIONS = 3
DRIVEN = ("revolute", "continuous", "prismatic")
Poses = dict[str, np.ndarray]


@dataclass(frozen=True)
class Seen:
    """What another program made of a file."""

    joints: dict[str, tuple[str, np.ndarray, tuple[float, float] | None]]
    """name -> (type, unit axis, limits [rad] or [m]; None for none)"""
    poses: list[Poses]
    """Per configuration, the pose of every link it keeps in its root's frame."""


def bare(path: Path) -> str:
    """The file without what none of this is about: shapes (their meshes are not here), masses, a simulator's
    settings, and numbers that are unexpanded expressions."""
    root = ET.fromstring(path.read_bytes().lstrip())
    for link in root.iter("link"):
        for tag in ("visual", "collision", "inertial"):
            for node in link.findall(tag):
                link.remove(node)
    for node in root.findall("mujoco"):
        root.remove(node)
    for joint in root.findall("joint"):
        for origin in joint.findall("origin"):
            for key in [key for key, value in origin.attrib.items() if "$(" in value]:
                del origin.attrib[key]
    return ET.tostring(root, encoding="unicode")


# ------------------------------------------------------------------------------------------- other programs


def folded(text: str, values: dict[str, float]) -> dict[str, float]:
    """The values with those of mimicking joints, from the XML itself: for a program that does not follow."""
    rules = {
        joint.attrib["name"]: mimic
        for joint in ET.fromstring(text).findall("joint")
        if (mimic := joint.find("mimic")) is not None and joint.attrib["type"] != "fixed"
    }
    whole = dict(values)

    def value(name: str) -> float:
        if name not in whole and name in rules:
            rule = rules[name].attrib
            leader = value(rule["joint"])
            whole[name] = float(rule.get("multiplier", 1)) * leader + float(rule.get("offset", 0))
        return whole.get(name, 0.0)

    for name in rules:
        value(name)
    return whole


def pinocchio(text: str, configurations: list[dict[str, float]]) -> Seen:
    pin = importlib.import_module("pinocchio")
    free = pin.buildModelFromXML(text)  # mimicking joints are joints like others
    data = free.createData()
    pin.forwardKinematics(free, data, pin.neutral(free))
    joints = {}
    for index in range(1, free.njoints):
        model, name = free.joints[index], free.names[index].removeprefix("JointModel")
        kind = model.shortname().removeprefix("JointModel")
        if kind == "FreeFlyer":
            continue
        kind = (
            "prismatic" if kind[0] == "P" else "continuous" if "UB" in kind or "Unb" in kind else "revolute"
        )
        subspace = np.asarray(data.joints[index].S).reshape(6)
        bounds = free.lowerPositionLimit[model.idx_q], free.upperPositionLimit[model.idx_q]
        axis = subspace[:3] if kind == "prismatic" else subspace[3:]
        joints[name] = (kind, axis, None if kind == "continuous" else bounds)
    try:
        moving = pin.buildModelFromXML(text, mimic=True)
    except ValueError:  # a leader that stands on another branch or is none: it gets the values instead
        moving = free
    data, poses = moving.createData(), []
    for configuration in configurations:
        values = folded(text, configuration) if moving is free else configuration
        q = pin.neutral(moving)
        for index in range(1, moving.njoints):
            model, value = moving.joints[index], values.get(moving.names[index])
            if value is not None and model.shortname() != "JointModelMimic":
                q[model.idx_q : model.idx_q + model.nq] = (
                    value if model.nq == 1 else (np.cos(value), np.sin(value))
                )
        pin.framesForwardKinematics(moving, data, q)
        bodies = [(i, f) for i, f in enumerate(moving.frames) if f.type == pin.FrameType.BODY]
        poses.append({frame.name: data.oMf[index].homogeneous.copy() for index, frame in bodies})
    return Seen(joints, poses)


def yourdfpy(text: str, configurations: list[dict[str, float]]) -> Seen:
    module = importlib.import_module("yourdfpy")
    robot = module.URDF.load(
        io.BytesIO(text.encode()),
        load_meshes=False,
        load_collision_meshes=False,
        build_collision_scene_graph=False,
    )
    joints = {}
    for name, joint in robot.joint_map.items():
        if joint.type in DRIVEN:
            bounds = joint.limit and (joint.limit.lower or 0.0, joint.limit.upper or 0.0)
            axis = np.asarray(joint.axis, dtype=float)
            joints[name] = (joint.type, axis / np.linalg.norm(axis), bounds)
    poses = []
    for configuration in configurations:
        robot.update_cfg({name: configuration.get(name, 0.0) for name in robot.actuated_joint_names})
        poses.append({name: robot.get_transform(name) for name in robot.link_map})
    return Seen(joints, poses)


def mujoco(text: str, configurations: list[dict[str, float]]) -> Seen:
    mj = importlib.import_module("mujoco")
    spec = mj.MjSpec.from_string(text)
    spec.compiler.fusestatic = False
    spec.compiler.boundmass = spec.compiler.boundinertia = 1.0
    model = spec.compile()
    data, joints, poses = mj.MjData(model), {}, []
    slide, free = mj.mjtJoint.mjJNT_SLIDE, mj.mjtJoint.mjJNT_FREE
    for index in range(model.njnt):
        if model.jnt_type[index] != free:
            kind = "prismatic" if model.jnt_type[index] == slide else "revolute"
            bounds = tuple(map(float, model.jnt_range[index])) if model.jnt_limited[index] else None
            joints[model.joint(index).name] = (kind, model.jnt_axis[index].copy(), bounds)
    for configuration in configurations:
        data.qpos[:] = model.qpos0
        for name in configuration.keys() & joints.keys():
            data.qpos[model.joint(name).qposadr] = configuration[name]
        waiting = [index for index in range(model.neq) if model.eq_type[index] == mj.mjtEq.mjEQ_JOINT]
        for index in waiting * 2:  # twice: a chain of two in any order
            follower, leader = model.eq_obj1id[index], model.eq_obj2id[index]
            powers = data.qpos[model.jnt_qposadr[leader]] ** np.arange(5)
            data.qpos[model.jnt_qposadr[follower]] = model.eq_data[index][:5] @ powers
        mj.mj_kinematics(model, data)
        seen = {}
        for body in range(1, model.nbody):
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = data.xmat[body].reshape(3, 3), data.xpos[body]
            seen[model.body(body).name] = pose
        poses.append(seen)
    return Seen(joints, poses)


Oracle = Callable[[str, list[dict[str, float]]], Seen]
NO_LIMIT = "it wants a <limit> for every revolute joint"
REFUSED: dict[Oracle, dict[str, str]] = {
    pinocchio: {
        "arx5_aloha_agilex": "a parent link that is not declared",
        "cassie_v2_drake": NO_LIMIT,
        "kuka_iiwa_nolimits_drake": NO_LIMIT,
        "microtaur": "four numbers in an rpy",
        "robotiq_3f_tendons_drake": "a <limit> without effort",
    },
    yourdfpy: {},
    mujoco: {
        "arx5_aloha_agilex": "a parent link that is not declared",
        "microtaur": "four numbers in an rpy",
        "pioneer3dx_missing_axis": "an <axis> without xyz",
        "alex_psyonic": "a mimic of an undefined joint, which stands at 0 there and at its offset here",
    },
}
PACKAGE: dict[Oracle, str] = {pinocchio: "pinocchio", yourdfpy: "yourdfpy", mujoco: "mujoco"}


# ------------------------------------------------------------------------------------------------ comparison


def random_values(urdf: Urdf, seed: int) -> list[dict[str, float]]:
    generator = np.random.default_rng(seed)
    moving = [joint.name for joint in urdf.actuated if joint.type in DRIVEN]
    return [{name: float(generator.uniform(-2, 2)) for name in moving} for _ in range(CONFIGURATIONS)]


def check_joints(urdf: Urdf, seen: Seen, oracle: Oracle) -> None:
    ours = {joint.name: joint for joint in urdf.joints if joint.type in DRIVEN}
    assert seen.joints.keys() == ours.keys()
    for name, (kind, axis, bounds) in seen.joints.items():
        joint = ours[name]
        if oracle is mujoco:
            assert kind == joint.type.replace("continuous", "revolute"), name
        else:
            assert kind == joint.type, name
        np.testing.assert_allclose(joint.unit_axis, axis, atol=1e-6, err_msg=name)
        check_limits(joint, bounds)


def check_limits(joint: Joint, bounds: tuple[float, float] | None) -> None:
    if bounds is None or joint.type == "continuous":
        written = joint.limit and (joint.limit.lower or 0.0, joint.limit.upper or 0.0)
        free = joint.type == "continuous" or written is None or written[0] >= written[1]
        assert free, f"{joint.name}: {written} here, none there"
    else:
        assert joint.limit is not None
        written = (joint.limit.lower or 0.0, joint.limit.upper or 0.0)
        np.testing.assert_allclose(written, bounds, atol=1e-6, err_msg=joint.name)
        if bounds[0] <= bounds[1]:
            np.testing.assert_allclose(limits(joint), bounds, atol=1e-6, err_msg=joint.name)


def check_poses(urdf: Urdf, values: list[dict[str, float]], theirs: list[Poses], root_kept: bool) -> None:
    for configuration, seen in zip(values, theirs, strict=True):
        ours = link_poses(urdf, configuration)
        missing = {link.name for link in urdf.links} - seen.keys()
        roots = {link.name for link in urdf.links} - {joint.child for joint in urdf.joints}
        assert missing <= (set() if root_kept else roots)
        for name in seen.keys() & ours.keys():
            np.testing.assert_allclose(ours[name], seen[name], atol=1e-6, err_msg=name)


def compare(oracle: Oracle, files: Iterable[Path]) -> tuple[set[str], set[str], set[str]]:
    """The files compared, those with joints that follow another among them, and those refused."""
    compared, followed, refused = set(), set(), set()
    for path in files:
        text = bare(path)
        urdf = parse(text.encode(), path.name)
        values = random_values(urdf, seed=len(compared))
        if path.stem in REFUSED[oracle]:
            try:
                seen = oracle(text, values)
                check_poses(urdf, values, seen.poses, root_kept=oracle is not mujoco)
            except (ValueError, AssertionError):
                refused.add(path.stem)
            continue
        seen = oracle(text, values)
        check_joints(urdf, seen, oracle)
        check_poses(urdf, values, seen.poses, root_kept=oracle is not mujoco)  # it welds some to the world
        compared.add(path.stem)
        if follow(urdf):
            followed.add(path.stem)
    return compared, followed, refused


@pytest.mark.parametrize(
    ("oracle", "least", "least_following"),
    [(pinocchio, 57, 12), (yourdfpy, 62, 13), (mujoco, 58, 11)],
    ids=["pinocchio", "yourdfpy", "mujoco"],
)
def test_the_zoo_is_read_and_moves_as_in_another_program(
    shared: Path, oracle: Oracle, least: int, least_following: int
):
    if importlib.util.find_spec(PACKAGE[oracle]) is None:
        pytest.skip(f"{PACKAGE[oracle]} is not installed (it comes with the extra 'dev' or 'sim')")
    files = sorted((shared / "urdf_zoo").glob("*.urdf"))
    if not files:
        pytest.skip("shared/urdf_zoo is not beside this checkout")
    compared, followed, refused = compare(oracle, files)
    assert refused == REFUSED[oracle].keys(), "listed as refused, but read: take it off the list"
    assert len(compared) >= least
    assert len(followed) >= least_following
