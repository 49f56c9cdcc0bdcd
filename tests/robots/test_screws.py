"""The geometry features: the same in any frames, mirrored with the robot, and those of a Panda by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import tree, trees

from morph_vla import robots
from morph_vla.robots import Robot, Side, Urdf
from morph_vla.robots.geometry import rotation, transform
from morph_vla.robots.records import Inertial, Link, Pose
from morph_vla.robots.screws import GEOMETRY, features, listed, screws

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared"
AXIAL = np.array([-1.0, 1.0, -1.0])
POLAR = np.array([1.0, -1.0, 1.0])
seeds = st.integers(0, 10**6)
few = settings(max_examples=40, deadline=None)


def column(rows: np.ndarray, name: str) -> np.ndarray:
    """A feature, or a vector of three by its name without _x."""
    if name in GEOMETRY:
        return rows[:, GEOMETRY.index(name)]
    first = GEOMETRY.index(f"{name}_x")
    return rows[:, first : first + 3]


def weighed(urdf: Urdf, random: np.random.Generator) -> Urdf:
    """With masses of which some are not stated."""
    links = tuple(
        replace(link, inertial=Inertial(float(mass), Pose(), (None,) * 6, 1) if mass > 0.3 else None)
        for link, mass in zip(urdf.links, random.uniform(0, 1, len(urdf.links)), strict=True)
    )
    return replace(urdf, links=links)


def robot_of(spec: list[dict], seed: int) -> Robot:
    """A random tree as a robot with masses, at a random rest pose."""
    random = np.random.default_rng(seed)
    plain = robots.build(weighed(tree(spec), random), Side(), Path("tree.urdf"))
    rest = random.uniform(plain.lower, plain.upper)
    return robots.build(plain.urdf, Side(joints=plain.names, rest=tuple(rest.tolist())), Path("tree.urdf"))


def pose_of(matrix: np.ndarray) -> Pose:
    """A transform as an origin: the inverse of `geometry.transform`."""
    r = matrix[:3, :3]
    pitch = math.atan2(-r[2, 0], math.hypot(r[0, 0], r[1, 0]))
    if math.hypot(r[0, 0], r[1, 0]) > 1e-9:
        rpy = math.atan2(r[2, 1], r[2, 2]), pitch, math.atan2(r[1, 0], r[0, 0])
    else:
        rpy = math.atan2(-r[1, 2], r[1, 1]), pitch, 0.0
    return Pose(tuple(matrix[:3, 3].tolist()), rpy)


def turn(random: np.random.Generator) -> np.ndarray:
    axis = random.normal(size=3)
    return rotation(tuple((axis / np.linalg.norm(axis)).tolist()), random.uniform(-3, 3))


def reframed(robot: Robot, random: np.random.Generator) -> Robot:
    """The same robot with other link frames, another base and other names.

    A frame turns as it likes and moves along its joint's axis; of a sliding or fixed joint, anywhere. That of
    a last joint and of what follows it keeps its place, which says where the tool is.
    """
    urdf, known = robot.urdf, screws(robot)
    last = set(range(len(robot.names))) - set(known.parents.tolist())
    tips = {name for name, index, *_ in robot.drives() if index in last}
    new_from_old = {}
    for link in urdf.links:
        joint, moved = urdf.above.get(link.name), np.eye(4)
        moved[:3, :3] = turn(random)
        if joint is None:
            moved[:3, :3] = rotation((0.0, 0.0, 1.0), random.uniform(-3, 3))
        if joint is None or (joint.type in ("fixed", "prismatic") and joint.name not in tips):
            moved[:3, 3] = random.uniform(-2, 2, 3)
        elif joint.name not in tips:
            moved[:3, 3] = random.uniform(-2, 2) * np.array(joint.unit_axis)
        new_from_old[link.name] = moved
    changed = []
    for joint in urdf.joints:
        before, after = new_from_old[joint.parent], new_from_old[joint.child]
        origin = np.linalg.inv(before) @ transform(joint.origin) @ after
        axis = tuple((after[:3, :3].T @ joint.unit_axis).tolist())
        changed.append(replace(joint, origin=pose_of(origin), axis=axis))
    return rebuilt(robot, replace(urdf, joints=tuple(changed)), named=lambda name: f"x_{name}")


def rebuilt(robot: Robot, urdf: Urdf, named: Callable[[str], str] = str) -> Robot:
    """A robot of a changed URDF with the same action joints and rest, under new names."""
    joints = tuple(
        replace(
            joint, name=named(joint.name), parent=named(joint.parent), child=named(joint.child),
            mimic=joint.mimic and replace(joint.mimic, joint=named(joint.mimic.joint)),
        )
        for joint in urdf.joints
    )  # fmt: skip
    links = tuple(replace(link, name=named(link.name)) for link in urdf.links)
    side = Side(joints=tuple(map(named, robot.names)), rest=tuple(robot.rest.tolist()))
    return robots.build(replace(urdf, joints=joints, links=links), side, Path("twin.urdf"))


def mirrored(robot: Robot) -> Robot:
    """Reflected in the plane y = 0; the same values are the mirrored motion."""
    mirror = np.diag([1.0, -1.0, 1.0, 1.0])
    joints = []
    for joint in robot.urdf.joints:
        axis = np.array(joint.unit_axis) * (POLAR if joint.type == "prismatic" else AXIAL)
        origin = pose_of(mirror @ transform(joint.origin) @ mirror)
        joints.append(replace(joint, origin=origin, axis=tuple(axis.tolist())))
    return rebuilt(robot, replace(robot.urdf, joints=tuple(joints)))


@few
@given(trees(), seeds)
def test_frames_names_and_the_base_change_nothing(spec, seed):
    robot = robot_of(spec, seed)
    twin = reframed(robot, np.random.default_rng(seed))
    np.testing.assert_allclose(features(twin), features(robot), atol=2e-5)


@few
@given(trees(), seeds)
def test_a_mirrored_robot_has_mirrored_features(spec, seed):
    robot = robot_of(spec, seed)
    rows, mirror = features(robot), features(mirrored(robot))
    signs = np.ones_like(rows)
    turning = column(rows, "type_rev")[:, None] > 0
    for name in ("axis", "place", "move", "to_tool", "from_parent", "to_child"):
        column(signs, name)[:] = np.where(turning, AXIAL, POLAR) if name == "axis" else POLAR
    np.testing.assert_allclose(mirror, signs * rows, atol=2e-5)


@few
@given(trees(), seeds, st.floats(0.1, 10))
def test_only_the_reach_says_how_large_a_robot_is(spec, seed, size):
    """Of turning joints: all lengths times a number."""
    robot = robot_of([dict(joint, type="revolute", mimic=()) for joint in spec], seed)
    grown = tuple(
        replace(joint, origin=Pose(tuple(size * x for x in joint.origin.xyz), joint.origin.rpy))
        for joint in robot.urdf.joints
    )
    larger, rows = features(rebuilt(robot, replace(robot.urdf, joints=grown))), features(robot)
    np.testing.assert_allclose(larger[:, :-1], rows[:, :-1], atol=2e-5)
    growth = 0 if screws(robot).reach == 1 else math.log(size)  # 1 stands for a single joint, without length
    np.testing.assert_allclose(column(larger - rows, "reach_log"), growth, atol=2e-5)


@few
@given(trees(), seeds, st.randoms(use_true_random=False))
def test_relabelling_joints_permutes_the_features(spec, seed, random):
    robot = robot_of(spec, seed)
    order = list(range(len(robot.names)))
    random.shuffle(order)
    side = Side(joints=tuple(robot.names[i] for i in order), rest=tuple(float(robot.rest[i]) for i in order))
    shuffled = features(robots.build(robot.urdf, side, Path("tree.urdf")))
    np.testing.assert_allclose(shuffled, features(robot)[order], atol=2e-6)


@few
@given(trees(), seeds)
def test_moves_are_the_tools_jacobian(spec, seed):
    """Against differences of forward kinematics, where a joint carries one tool and nothing follows it."""
    robot = robot_of(spec, seed)
    known, rows = screws(robot), features(robot)
    children = known.parents.tolist()
    if len(known.names) > len(robot.names) or len(robot.drives()) > len(robot.names):
        return
    for index in range(len(robot.names)):
        tip = index
        while children.count(tip) == 1:
            tip = children.index(tip)
        joint = robot.urdf.by_name[robot.names[tip]]
        if children.count(tip) or index == tip:
            continue
        step = np.where(np.arange(len(robot.names)) == index, 1e-6, 0.0)
        tools = []
        for sign in (1, -1):
            poses = robot.forward_kinematics(robot.rest + sign * step)
            frame = known.base_from_root @ poses[joint.parent] @ transform(joint.origin)
            tools.append(frame[:3, 3] / known.reach)
        slope = (tools[0] - tools[1]) / 2e-6
        slope = slope if known.turning[index] else slope * known.reach
        np.testing.assert_allclose(column(rows, "move")[index], slope, atol=1e-5)


@few
@given(trees(), seeds)
def test_links_keep_their_lengths_in_any_pose(spec, seed):
    """Of a chain of turning joints: a joint's place is a point of both of its links."""
    chain = [dict(j, type="revolute", mimic=(), parent=f"l{int(j['child'][1:]) - 1}") for j in spec]
    robot = robot_of(chain, seed)
    random = np.random.default_rng(seed + 1)
    rest = tuple(random.uniform(robot.lower, robot.upper).tolist())
    other = robots.build(robot.urdf, Side(joints=robot.names, rest=rest), Path("tree.urdf"))
    for name in ("link_length", "reach_log", "mass", "mass_known"):
        np.testing.assert_allclose(
            column(features(other), name), column(features(robot), name), atol=2e-5, err_msg=name
        )


def test_a_tilted_base_is_another_robot():
    """Gravity does not turn with it."""
    panda = robots.load("panda")
    mount = replace(
        panda.urdf.joints[0], name="mount", type="fixed", parent="world", child="panda_link0", mimic=None,
        origin=Pose(rpy=(0.5, 0.0, 0.0)),
    )  # fmt: skip
    links = (Link("world", None, (), (), None, 1), *panda.urdf.links)
    urdf = replace(panda.urdf, joints=(mount, *panda.urdf.joints), links=links)
    tilted = features(robots.build(urdf, panda.side, panda.urdf_path))
    assert np.abs(column(tilted, "axis") - column(features(panda), "axis")).max() > 0.1
    np.testing.assert_allclose(
        column(tilted, "link_length"), column(features(panda), "link_length"), atol=1e-6
    )


def test_a_panda_has_a_shoulder_an_elbow_and_a_wrist():
    rows = features(robots.load("panda"))
    upper_arm, elbow, forearm = 0.316, 0.0825, math.hypot(0.0825, 0.384)
    hand = math.hypot(0.088, 0.107 + 0.0584)
    reach = upper_arm + elbow + forearm + hand
    lengths = np.array([0, upper_arm, elbow, forearm, 0, hand, 0, 0]) / reach
    np.testing.assert_allclose(column(rows, "link_length"), lengths, atol=1e-6)
    np.testing.assert_allclose(column(rows, "reach_log"), math.log(reach), atol=1e-6)
    np.testing.assert_allclose(column(rows, "axis")[:2], [[0, 0, 1], [0, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(column(rows, "place")[:2], 0, atol=1e-6)
    np.testing.assert_array_equal(column(rows, "gripper"), [0] * 7 + [1])
    np.testing.assert_allclose(column(rows, "mass").sum(), 1, atol=1e-6)
    assert column(rows, "mass_known").all()


PANDAS = {  # file -> how it names the arm's joints
    "robots/panda_official_or_equivalent.urdf": "fer_",
    "robots/panda_pybullet.urdf": "panda_",
    "urdf_zoo/panda_pybullet.urdf": "panda_",
}
STATED = ("lower", "upper", "mass", "mass_known")  # by the files, and not alike


@pytest.mark.parametrize("file", PANDAS)
def test_the_public_files_of_one_robot_give_the_same_features(file):
    path, panda = SHARED / file, robots.load("panda")
    if not path.is_file():
        pytest.skip(f"{file} is not at hand")
    names = tuple(name.replace("panda_", PANDAS[file]) for name in panda.names)
    gripper = replace(panda.side.gripper, joint=names[-1])  # pyright: ignore[reportArgumentType]
    side = replace(panda.side, joints=names, gripper=gripper)
    rows, wanted = features(robots.build(robots.read(path), side, path)), features(panda)
    for index, name in enumerate(GEOMETRY):
        if name not in STATED:
            np.testing.assert_allclose(rows[:, index], wanted[:, index], atol=2e-6, err_msg=name)


def test_a_lone_gripper_and_a_straight_arm_have_features():
    """No length at all; no way forward but that of the second joint."""
    panda = robots.load("panda", joints=("panda_finger_joint1",))
    rows = features(panda)
    assert np.isfinite(rows).all()
    assert column(rows, "reach_log") == 0
    zeros = tuple([0.0] * 3 + [-0.0] + [0.0] * 4)
    straight = robots.build(panda.urdf, replace(robots.load("panda").side, rest=zeros), panda.urdf_path)
    np.testing.assert_allclose(np.abs(column(features(straight), "axis")[1]), [0, 1, 0], atol=1e-6)


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1", "aloha", "inspire_hand"])
def test_every_shipped_robot_has_finite_features_of_size_one(name):
    rows = features(robots.load(name))
    assert rows.shape == (len(robots.load(name).names), len(GEOMETRY))
    assert rows.dtype == np.float32
    assert np.abs(rows[:, :-1]).max() < 3
    np.testing.assert_allclose(np.linalg.norm(column(rows, "axis"), axis=1), 1, atol=1e-6)


def test_what_no_file_states_is_zero_and_said_so():
    panda = robots.load("panda")
    links = tuple(replace(link, inertial=None) for link in panda.urdf.links)
    rows = features(robots.build(replace(panda.urdf, links=links), panda.side, panda.urdf_path))
    assert not column(rows, "mass").any()
    assert not column(rows, "mass_known").any()


def test_the_table_names_every_feature():
    lines = listed(robots.load("so101")).splitlines()
    assert lines[0] == "geometry at rest, in the base frame, lengths over the reach (docs/method.md)"
    assert lines[1].split() == ["feature", *map(str, range(6))]
    assert [line.split()[0] for line in lines[2:]] == list(GEOMETRY)
