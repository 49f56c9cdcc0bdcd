"""Forward kinematics: equal to the public files of the same robots and to MuJoCo's, at random values."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.robots.kinematics import follow, link_poses
from morph_vla.robots.records import Urdf
from morph_vla.robots.urdf import parse, read

CONFIGURATIONS = 17


def random_values(robot: robots.Robot, seed: int = 20261) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.uniform(robot.lower, robot.upper, size=(CONFIGURATIONS, len(robot.joints)))


@pytest.mark.parametrize(
    ("file", "rename"),
    [
        ("panda_pybullet.urdf", str),
        ("panda_official_or_equivalent.urdf", lambda name: name.replace("panda_", "fer_")),
    ],
)
def test_our_panda_moves_as_the_public_ones(shared: Path, file: str, rename: Callable[[str], str]):
    panda, public = robots.load("panda"), read(shared / "robots" / file)
    names = {link.name for link in public.links}
    common = [link.name for link in panda.urdf.links if rename(link.name) in names]
    assert len(common) >= 12
    for values in random_values(panda):
        ours = panda.forward_kinematics(values)
        theirs = link_poses(public, {rename(k): v for k, v in panda.positions(values).items()})
        for name in common:
            there = theirs[rename(name)]
            np.testing.assert_allclose(ours[name][:3, 3], there[:3, 3], atol=1e-6, err_msg=name)
            if "rightfinger" not in name:  # the official file turns this frame by pi and its axis with it
                np.testing.assert_allclose(ours[name], there, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["so101", "g1_dex1"])
def test_our_other_robots_move_as_the_public_ones(shared: Path, name: str):
    ours, public = robots.load(name), read(shared / "robots" / f"{name}.urdf")
    assert {link.name for link in ours.urdf.links} <= {link.name for link in public.links}
    assert len(public.links) - len(ours.urdf.links) <= 1
    movable = {joint.name: joint for joint in public.actuated}
    assert movable.keys() == {joint.name for joint in ours.urdf.actuated}
    for joint in ours.urdf.actuated:
        there = movable[joint.name]
        assert (
            joint.type,
            joint.axis,
            joint.limit and joint.limit.lower,
            joint.limit and joint.limit.upper,
        ) == ((there.type, there.axis, there.limit and there.limit.lower, there.limit and there.limit.upper))
    generator = np.random.default_rng(7)
    for _ in range(CONFIGURATIONS):
        values = {joint: float(generator.uniform(-1, 1)) for joint in movable}
        theirs = link_poses(public, values)
        for link, pose in link_poses(ours.urdf, values).items():
            np.testing.assert_allclose(pose, theirs[link], atol=1e-6, err_msg=link)


def mujoco_poses(urdf: Urdf, path: Path, values: dict[str, float]) -> dict[str, np.ndarray]:
    mujoco = pytest.importorskip("mujoco")
    spec = mujoco.MjSpec.from_file(str(path))
    spec.compiler.fusestatic = False
    model = spec.compile()
    data = mujoco.MjData(model)
    for name, value in values.items():
        data.qpos[model.joint(name).qposadr] = value
    mujoco.mj_kinematics(model, data)
    poses = {}
    for link in urdf.links:
        body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, link.name)
        if body > 0:  # the root is welded into the world
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = data.xmat[body].reshape(3, 3), data.xpos[body]
            poses[link.name] = pose
    return poses


@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1", "aloha", "inspire_hand"])
def test_our_robots_move_in_mujoco_as_here(name: str):
    robot = robots.load(name)
    for values in random_values(robot)[:5]:
        theirs = mujoco_poses(robot.urdf, robot.urdf_path, robot.positions(values))
        ours = robot.forward_kinematics(values)
        assert len(theirs) == len(robot.urdf.links)
        for name, pose in theirs.items():
            np.testing.assert_allclose(ours[name], pose, atol=1e-6, err_msg=name)


def test_our_panda_is_a_body_that_mujoco_accepts_as_it_stands(root: Path):
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string((root / "urdf_descriptors" / "panda.urdf").read_text())
    assert model.nq == 9
    assert model.neq == 1, "the second finger's mimic is kept"
    np.testing.assert_allclose(model.body_mass.sum(), 16.8951 - 2.3966, atol=1e-3)  # the base is the world


def test_mimic_chains_are_folded_and_orphans_frozen_at_their_offset():
    def joint(name: str, parent: str, mimic: str = "", kind: str = "prismatic") -> str:
        return (
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="l{name}"/>'
            f'<axis xyz="1 0 0"/><limit lower="0" upper="1"/>{mimic}</joint>'
        )

    text = (
        joint("a", "base")
        + joint("b", "base", '<mimic joint="a" multiplier="2" offset="1"/>')
        + joint("c", "base", '<mimic joint="b" multiplier="-3" offset="5"/>')
        + joint("d", "base", '<mimic joint="gone" offset="0.5"/>')
        + joint("e", "base", '<mimic joint="a"/>', "fixed")
    )
    urdf = parse(f'<robot name="r">{text}</robot>'.encode())
    assert follow(urdf) == {"b": ("a", 2.0, 1.0), "c": ("a", -6.0, 2.0), "d": (None, 1.0, 0.5)}
    poses = link_poses(urdf, {"a": 0.25})
    assert [poses[f"l{name}"][0, 3] for name in "abcde"] == pytest.approx([0.25, 1.5, 0.5, 0.5, 0.0])
