"""What is filled in of a robot: its gripper, shapes, masses and meshes."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_limb import sliding, urdf

from morph_vla.errors import ConfigError
from morph_vla.robots import bodies, build, load, meshes
from morph_vla.robots.grasp import grasp
from morph_vla.robots.inertia import carried
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.parallel_jaw import FINGER, OTHER, PALM, TCP, TCP_AHEAD, facing
from morph_vla.robots.records import Geometry, Inertial, Pose, Shape
from morph_vla.robots.side import Attached, ContactDefaults, Follower, Gripper, Side, ToolFrame

PATH = Path("r.urdf")


def armed(opening: float = 0.06, **more):
    side = Side(gripper=Attached("parallel_jaw", "l5", opening=opening, **more))
    return build(urdf(), side, PATH)


def test_an_attached_gripper_is_the_last_joint_and_closes_symmetrically():
    robot = armed()
    assert robot.names == ("j0", "j1", "j2", "j3", "j4", FINGER)
    assert robot.joints[-1].is_gripper
    assert robot.rest[-1] == 0.0
    values = np.zeros(6)
    for travel, apart in ((0.0, 0.06), (0.03, 0.0), (0.01, 0.04)):
        values[-1] = travel
        poses = robot.forward_kinematics(values)
        way = poses[f"{PALM}_finger1"][:3, 3] - poses[f"{PALM}_finger2"][:3, 3]
        # Inner faces are half the opening from a finger's frame, which stands in the middle.
        assert way[1] + 0.06 == pytest.approx(apart)
    assert poses[TCP][:3, 3] == pytest.approx([0, 0, 1.0 + TCP_AHEAD * 0.06])
    assert robot.drives()[-1][0] == OTHER


def test_an_attached_gripper_is_listed_where_the_side_file_lists_joints():
    side = Side(joints=("j4", "j0"), rest=(-0.1, 0.02), gripper=Attached("parallel_jaw", "l5"))
    robot = build(urdf(), side, PATH)
    assert robot.names == ("j4", "j0", FINGER)
    assert robot.rest.tolist() == [-0.1, 0.02, 0.0]


def test_what_moved_below_the_link_is_gone():
    hand = sliding("a", "left", "0 1 0") + sliding("b", "right", "0 -1 0")
    robot = build(urdf(more=hand), Side(gripper=Attached("parallel_jaw", "l5")), PATH)
    assert "a" not in robot.urdf.by_name
    assert "left" not in {link.name for link in robot.urdf.links}


def test_an_attached_gripper_needs_its_link():
    with pytest.raises(ConfigError, match=r"^gripper\.link: no link 'hand' in r.urdf"):
        build(urdf(), Side(gripper=Attached("parallel_jaw", "hand")), PATH)
    with pytest.raises(ConfigError, match="approach is 0 0 0; expected a direction"):
        Attached("parallel_jaw", "l5", approach=(0.0, 0.0, 0.0))
    with pytest.raises(ConfigError, match="opening is -1; expected more than 0 m"):
        Attached("parallel_jaw", "l5", opening=-1.0)
    with pytest.raises(ConfigError, match="opening is 1e\\+300; expected more than 0 m, at most 10"):
        Attached("parallel_jaw", "l5", opening=1e300)
    for direction in ((1e-200, 0.0, 0.0), (float("nan"), 0.0, 1.0)):
        with pytest.raises(ConfigError, match=r"approach is .*; expected a direction"):
            Attached("parallel_jaw", "l5", approach=direction)
    with pytest.raises(ConfigError, match="dataset_open and dataset_closed are equal; expected two differ"):
        Attached("parallel_jaw", "l5", dataset_open=1.0)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("zeros", {"j0": math.nan}, r"^zeros\.j0: nan; expected a finite number$"),
        ("tools", {"j4": ToolFrame("l5", (0.0, math.inf, 0.0))}, r"^tools\.j4\.xyz: inf; expected a finite"),
        ("drives", {"j0": (Follower("j1", math.nan),)}, r"^drives\.j0\.multiplier: nan; expected a finite"),
        ("gripper", Gripper("j4", 0.0, 1.0, math.inf), r"^gripper\.dataset_open: inf; expected a finite"),
        ("gripper", (Gripper("j4", 0.0, 1.0),) * 2, r"^gripper: a joint is there twice"),
    ],
)
def test_a_side_files_numbers_are_finite(key, value, words):
    with pytest.raises(ConfigError, match=words):
        Side(**{key: value})


@pytest.mark.parametrize(
    ("key", "value"), [("stiffness", 0.0), ("damping", -1.0), ("stiffness", math.nan), ("damping", math.inf)]
)
def test_contact_values_of_which_a_logarithm_is_taken_are_above_0(key, value):
    with pytest.raises(ConfigError, match=rf"^{key} is .*; expected more than 0$"):
        ContactDefaults(**{key: value})
    with pytest.raises(ConfigError, match=r"^lateral_friction is inf; expected at least 0$"):
        ContactDefaults(lateral_friction=math.inf)


def test_a_joint_that_follows_another_by_the_side_file_is_no_action_joint():
    robot = build(urdf(), Side(drives={"j0": (Follower("j2", -1.0, 0.1),)}), PATH)
    assert robot.names == ("j0", "j1", "j3", "j4")
    values = np.array([0.3, 0.0, 0.0, 0.0])
    assert robot.positions(values)["j2"] == pytest.approx(-0.2)
    with pytest.raises(ConfigError, match="joint 'j2' is driven twice"):
        build(urdf(), Side(joints=("j0", "j2"), drives={"j0": (Follower("j2"),)}), PATH)


@pytest.mark.parametrize("direction", [(0, 0, 1), (0, 0, -2), (1, 0, 0), (0.3, -0.5, 0.2)])
def test_facing_is_a_rotation_whose_z_is_the_direction(direction):
    x, y, z = (float(value) for value in direction)
    matrix = facing((x, y, z))
    assert matrix @ matrix.T == pytest.approx(np.eye(3))
    assert np.linalg.det(matrix) == pytest.approx(1)
    assert matrix[:, 2] == pytest.approx(np.array(direction) / np.linalg.norm(direction))


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1", "aloha", "inspire_hand"])
def test_a_shipped_robot_is_built_from_its_own_text(name):
    robot = load(name)
    assert bodies.scene_text(robot) == robot.urdf_path.read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('mass value="', 'mass value="0.5" more="'),  # nothing: it is built from its own text
        ('damping="', 'damping="0.3 Nms" less="'),
        ('<origin xyz="', '<origin xyz="0 0 0 0" less="'),
        ('encoding="utf-8"', 'encoding="utf-16"'),
        ('upper="', 'upper="1e30" less="'),  # not the limit in use
        ("</robot>", '<mujoco><option gravity="0 0 0"/></mujoco></robot>'),
    ],
)
def test_what_mujoco_would_refuse_is_written_anew(folder: Path, old: str, new: str):
    mujoco = pytest.importorskip("mujoco", reason="needs the extra 'sim'")
    robot = load("panda")
    text = '<?xml version="1.0" encoding="utf-8"?>' + robot.urdf_path.read_text().partition("?>")[2]
    path = folder / "panda.urdf"
    changed = text.replace(old, new, 1)
    path.write_bytes(changed.encode("utf-16" if "utf-16" in new else "utf-8"))
    path.with_suffix(".yaml").write_text(robot.urdf_path.with_suffix(".yaml").read_text())
    robot = load(path)
    assert bodies.lacks_something(robot) == ("more" not in new)
    model = mujoco.MjSpec.from_string(bodies.scene_text(robot)).compile()
    assert model.nbody > 8
    assert model.opt.gravity[2] == -9.81  # of all that is in the scene
    limited = model.jnt_limited.astype(bool)
    assert all(limited == (np.abs(np.diff(model.jnt_range, axis=1)[:, 0]) > 0))


def test_capsules_join_a_link_to_the_joints_it_carries():
    robot = armed()
    made = bodies.capsules(robot.urdf, link_poses(robot.urdf, {}))
    (shape,) = made["l1"]
    assert shape.geometry.kind == "capsule"
    assert shape.origin.xyz == pytest.approx((0, 0, 0.1))  # halfway to the next joint
    radius, straight = shape.geometry.size
    assert straight + 2 * radius == pytest.approx(0.2, abs=radius + 1e-9)
    assert "l5" not in made  # the gripper's frame is at its origin


def test_what_is_filled_in_has_a_mass_wherever_something_moves():
    full = bodies.filled(armed())
    moving = {joint.child for joint in full.joints if joint.type != "fixed"}
    masses = {link.name: link.inertial.mass for link in full.links if link.inertial}
    assert all((masses[name] or 0) > 0 for name in moving)
    impossible = Inertial(1.0, Pose(), (1.0, 2.0, 0.0, 1.0, 0.0, 1.0), 0)  # a moment below 0
    links = tuple(replace(link, inertial=impossible) if link.name == "l3" else link for link in urdf().links)
    robot = build(replace(urdf(), links=links), Side(), PATH)
    (repaired,) = (link for link in bodies.filled(robot).links if link.name == "l3")
    assert repaired.inertial != impossible


def test_a_joint_that_follows_none_that_is_driven_stands_at_its_offset_for_a_simulator_too():
    joint = (
        '<link name="flap"/><joint name="f" type="revolute"><parent link="l2"/><child link="flap"/>'
        '<origin xyz="0 0.1 0" rpy="0.3 0 0"/><axis xyz="0 1 0"/><mimic joint="nobody" offset="0.7"/>'
        '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
    )
    robot = build(urdf(more=joint), Side(), PATH)
    assert bodies.lacks_something(robot)
    full = bodies.filled(robot)
    assert full.by_name["f"].type == "fixed"
    values = dict.fromkeys(robot.names, 0.2)
    np.testing.assert_allclose(link_poses(full, values)["flap"], link_poses(robot.urdf, values)["flap"])
    angle = np.arccos(link_poses(full, {})["flap"][2, 2] / np.cos(0.3))
    assert angle == pytest.approx(0.7, abs=1e-6)


def test_pads_of_sliding_fingers_meet_where_they_are_closed():
    hand = sliding("a", "left", "0 1 0") + sliding("b", "right", "0 -1 0")
    side = Side(
        drives={}, gripper=Gripper("a", open=0.05, closed=0.0), joints=("j0", "j1", "j2", "j3", "j4", "a")
    )
    alone = build(urdf(more=hand), side, PATH)
    hold = grasp(alone, "a")
    assert hold is not None
    assert hold.opening == pytest.approx(0.05)
    assert hold.pose[:3, 2] == pytest.approx([0, 0, 1])  # away from the arm
    made = bodies.pads(alone)
    (pad,) = made["left"]
    # A finger that moves alone meets the hand: its inner face is in the middle of the closed gripper.
    assert pad.origin.xyz[1] - pad.geometry.size[1] / 2 == pytest.approx(0.0, abs=1e-9)


def test_meshes_at_hand_are_used_and_others_left_out(folder: Path):
    (folder / "arm_description" / "meshes").mkdir(parents=True)
    mesh = folder / "arm_description" / "meshes" / "a.obj"
    mesh.write_text("v 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\nv 0 0 0\nf 1 2 3\nf 1 4 2\nf 2 4 3\nf 3 4 1\n")
    urdf_file = folder / "arm_description" / "urdf" / "arm.urdf"
    for name in ("package://arm_description/meshes/a.obj", "meshes/a.obj"):
        assert meshes.file_of(name, (1.0, 1.0, 1.0), urdf_file) == mesh.resolve()
    assert meshes.file_of("meshes/b.obj", (1.0, 1.0, 1.0), urdf_file) is None
    assert meshes.file_of(f"{'b' * 300}.stl", (1.0, 1.0, 1.0), urdf_file) is None, "longer than a name can be"
    shape = Shape(Geometry("mesh", (1.0, 1.0, 1.0), "meshes/a.obj"), Pose(), None, 0)
    links = tuple(replace(link, visuals=(shape,)) if link.name == "l2" else link for link in urdf().links)
    robot = build(replace(urdf(), links=links), Side(), folder / "arm_description" / "r.urdf")
    (link,) = (link for link in bodies.filled(robot).links if link.name == "l2")
    assert [shape.geometry.mesh for shape in link.visuals] == [str(mesh.resolve())]
    assert [shape.geometry.kind for shape in link.collisions] == ["capsule"]  # no mesh to touch


def test_inertia_of_what_a_joint_carries():
    heavy = Inertial(2.0, Pose((0.3, 0.0, 0.0)), (0.0, 0.0, 0.0, 0.0, 0.0, 0.1), 0)
    links = tuple(replace(link, inertial=heavy) if link.name == "l5" else link for link in urdf().links)
    about = carried(replace(urdf(), links=links), {})
    assert about["j4"] == pytest.approx(0.1 + 2 * 0.3**2)  # about z
    assert about["j3"] == pytest.approx(2 * (0.3**2 + 0.2**2))  # about y, 0.2 m below
    assert about["j0"] == pytest.approx(about["j4"])
