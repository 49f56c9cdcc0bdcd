"""The laws of the changes that make one body into another, for every kinematic tree."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import tree, trees

from morph_vla import robots
from morph_vla.relatives import edits, hand
from morph_vla.robots.descriptors import limits
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.records import Geometry, Inertial, Pose, Shape, Urdf
from morph_vla.robots.text import urdf_text
from morph_vla.robots.urdf import parse

MIRROR = np.diag([1.0, -1.0, 1.0, 1.0])
seeds = st.integers(0, 2**31)
FEW = settings(max_examples=30)


def values(urdf: Urdf, seed: int) -> dict[str, float]:
    drawn = np.random.default_rng(seed).normal(size=len(urdf.joints))
    return dict(zip((joint.name for joint in urdf.joints), map(float, drawn), strict=True))


def with_bodies(urdf: Urdf, seed: int) -> Urdf:
    """Every link with a box and an inertia, somewhere."""
    rng, links = np.random.default_rng(seed), []
    for link in urdf.links:
        numbers = [float(value) for value in rng.normal(size=18)]
        a, b, c, d, e, f = numbers[:6]
        origin = Pose((a, b, c), (d, e, f))
        shape = Shape(Geometry("mesh", tuple(numbers[6:9]), "a.stl"), origin, None, 0)
        inertial = Inertial(abs(numbers[9]), origin, tuple(numbers[10:16]), 0)
        links.append(replace(link, inertial=inertial, visuals=(shape,), collisions=(shape,)))
    return replace(urdf, links=tuple(links))


@FEW
@given(trees(), st.floats(0.1, 10), seeds)
def test_one_factor_for_all_scales_the_kinematics(spec, factor: float, seed: int):
    urdf = tree(spec)
    free = replace(urdf, joints=tuple(replace(joint, mimic=None) for joint in urdf.joints))
    larger = edits.scaled(free, {link.name: factor for link in free.links})
    at = values(free, seed)
    slid = {
        name: value * factor if free.by_name[name].type == "prismatic" else value
        for name, value in at.items()
    }
    there = link_poses(larger, slid)
    for name, pose in link_poses(free, at).items():
        np.testing.assert_allclose(there[name][:3, :3], pose[:3, :3], atol=1e-12)
        np.testing.assert_allclose(there[name][:3, 3], factor * pose[:3, 3], atol=1e-9)


@FEW
@given(trees(), seeds)
def test_a_factor_for_one_link_scales_the_places_of_what_it_carries_and_nothing_else(spec, seed: int):
    urdf = with_bodies(tree(spec), seed)
    name = urdf.joints[0].parent
    larger = edits.scaled(urdf, {name: 1.25})
    for old, new in zip(urdf.joints, larger.joints, strict=True):
        assert new == (old if old.parent != name else replace(old, origin=new.origin))
        factor = 1.25 if old.parent == name else 1.0
        assert new.origin.xyz == tuple(factor * value for value in old.origin.xyz)
        assert new.origin.rpy == old.origin.rpy


def test_masses_and_inertias_are_those_of_similar_bodies_of_one_density():
    panda = robots.load("panda").urdf
    larger = edits.scaled(panda, {link.name: 1.25 for link in panda.links})
    for old, new in zip(panda.links, larger.links, strict=True):
        if old.inertial is not None:
            assert new.inertial is not None
            assert old.inertial.mass is not None
            assert new.inertial.mass == pytest.approx(old.inertial.mass * 1.25**3)
            assert new.inertial.inertia == pytest.approx(
                [1.25**5 * value for value in old.inertial.inertia if value is not None]
            )
            assert new.inertial.origin.xyz == pytest.approx(
                [1.25 * value for value in old.inertial.origin.xyz]
            )
        for before, after in zip(old.visuals, new.visuals, strict=True):
            assert after.geometry.size == pytest.approx([1.25 * value for value in before.geometry.size])
    # The forearm's tube belongs to link 5, and lies along the length of link 4.
    longer = edits.scaled(panda, {"panda_link4": 1.25})
    (old, *_), (new, *_) = (
        next(link.visuals for link in urdf.links if link.name == "panda_link5") for urdf in (panda, longer)
    )
    assert new.origin.xyz[2] == pytest.approx(1.25 * old.origin.xyz[2])


@FEW
@given(trees(), seeds)
def test_a_mirrored_robot_moves_as_in_a_mirror_and_twice_it_is_itself(spec, seed: int):
    urdf = with_bodies(tree(spec), seed)
    other, at = edits.mirrored(urdf), values(urdf, seed)
    there = link_poses(other, at)
    for name, pose in link_poses(urdf, at).items():
        np.testing.assert_allclose(there[name], MIRROR @ pose @ MIRROR, atol=1e-9)
    assert edits.mirrored(other) == urdf


@pytest.mark.parametrize("kind", ["revolute", "prismatic"])
def test_a_joint_without_an_axis_is_mirrored_as_one_along_x(kind: str):
    joint = f'<joint name="j" type="{kind}"><parent link="a"/><child link="b"/></joint>'
    urdf = parse(f'<robot name="r"><link name="a"/><link name="b"/>{joint}</robot>'.encode(), "r.urdf")
    there = link_poses(edits.mirrored(urdf), {"j": 0.3})["b"]
    np.testing.assert_allclose(there, MIRROR @ link_poses(urdf, {"j": 0.3})["b"] @ MIRROR, atol=1e-12)


@pytest.mark.slow
@FEW
@given(seeds)
def test_a_mirrored_inertia_is_that_of_the_mirrored_body(seed: int):
    urdf = with_bodies(robots.load("so101").urdf, seed)
    for old, new in zip(urdf.links, edits.mirrored(urdf).links, strict=True):
        assert old.inertial is not None
        assert new.inertial is not None
        xx, xy, xz, yy, yz, zz = old.inertial.inertia
        tensor = MIRROR[:3, :3] @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ MIRROR[:3, :3]
        upper = tensor[np.triu_indices(3)]
        assert new.inertial.inertia == pytest.approx(upper.tolist())


@FEW
@given(trees(), st.floats(0.05, 1.0), st.floats(-4, 4))
def test_narrowed_limits_lie_in_the_old_ones_and_hold_the_rest_value(spec, share: float, rest: float):
    urdf = tree(spec)
    names = [joint.name for joint in urdf.joints if joint.type != "fixed"]
    narrow = edits.narrowed(urdf, dict.fromkeys(names, share), dict.fromkeys(names, rest))
    for name in names:
        (low, high), (lower, upper) = limits(urdf.by_name[name]), limits(narrow.by_name[name])
        if urdf.by_name[name].type == "continuous" and abs(rest) > np.pi:  # no limit is lost that there was
            low, high = rest - np.pi, rest + np.pi
        at = min(max(rest, low), high)
        assert low <= lower <= at <= upper <= high
        assert upper - lower == pytest.approx(share * (high - low))
        assert narrow.by_name[name].type != "continuous"


@FEW
@given(trees(least=2), st.data(), seeds)
def test_twisting_exchanges_two_directions_at_zero_and_twice_nothing(spec, data, seed: int):
    urdf = replace(tree(spec), joints=tuple(replace(joint, mimic=None) for joint in tree(spec).joints))
    names = sorted(urdf.by_name)
    first, second = data.draw(st.permutations(names))[:2]
    other, poses = edits.twisted(urdf, first, second), link_poses(urdf, {})

    def direction(urdf: Urdf, name: str) -> np.ndarray:
        return poses[urdf.by_name[name].child][:3, :3] @ np.array(urdf.by_name[name].unit_axis)

    assert direction(other, first) == pytest.approx(direction(urdf, second), abs=1e-9)
    assert direction(other, second) == pytest.approx(direction(urdf, first), abs=1e-9)
    for name, pose in link_poses(other, {}).items():
        np.testing.assert_array_equal(pose, poses[name])
    again, at = edits.twisted(other, first, second), values(urdf, seed)
    for name, pose in link_poses(again, at).items():
        np.testing.assert_allclose(pose, link_poses(urdf, at)[name], atol=1e-9)


@FEW
@given(trees(), seeds)
def test_a_removed_joint_is_one_that_is_held(spec, seed: int):
    urdf = tree(spec)
    at = values(urdf, seed)
    name = next(joint.name for joint in urdf.joints if joint.type != "fixed" and joint.mimic is None)
    held = edits.removed(urdf, name, at[name])
    assert held.by_name[name].type == "fixed"
    leads = any(joint.mimic is not None and joint.mimic.joint == name for joint in urdf.joints)
    if not leads:
        for link, pose in link_poses(held, at).items():
            np.testing.assert_allclose(pose, link_poses(urdf, at)[link], atol=1e-9)


@FEW
@given(trees(), seeds)
def test_an_added_joint_at_zero_moves_no_other_link(spec, seed: int):
    urdf = tree(spec)
    at, before = values(urdf, seed), urdf.joints[-1]
    other, name = edits.inserted(urdf, before.name, 0.05)
    added, poses = other.by_name[name], link_poses(other, {**at, name: 0.0})
    for link, pose in link_poses(urdf, at).items():
        np.testing.assert_allclose(poses[link], pose, atol=1e-9)
    base = link_poses(other, {})
    axes = [base[j.child][:3, :3] @ np.array(j.unit_axis) for j in (added, other.by_name[before.name])]
    assert axes[0] @ axes[1] == pytest.approx(0, abs=1e-9)
    assert (len(other.joints), len(other.links)) == (len(urdf.joints) + 1, len(urdf.links) + 1)
    again, second = edits.inserted(other, before.name, 0.05)
    assert second not in other.by_name
    assert not errors_of(again)


def errors_of(urdf: Urdf) -> list:
    return [f for f in robots.judge(parse(urdf_text(urdf).encode())) if f.severity == "error"]


def test_another_hand_takes_the_place_of_the_old_one():
    panda = robots.load("panda").urdf
    held_by = hand.fixed_on(panda, "panda_finger_joint1", ["panda_joint7"])
    assert held_by == "panda_hand_joint"
    other, finger = hand.rehanded(panda, held_by, "panda_link8", 0.08, 0.05, panda.links[-3].contact)
    assert not {"panda_hand", "panda_leftfinger", "panda_grasptarget"} & {link.name for link in other.links}
    assert not errors_of(other)
    at = {finger: 0.03}
    poses, before = link_poses(other, at), link_poses(panda, {})
    np.testing.assert_allclose(poses["jaw_palm"], before["panda_hand"])
    apart = poses["jaw_left"][:3, 3] - poses["jaw_right"][:3, 3]
    assert np.linalg.norm(apart) == pytest.approx(0.06), "each finger moves by the value"
    assert limits(other.by_name[finger]) == (0, 0.04)
    twice, second = hand.rehanded(other, None, "panda_link8", 0.08, 0.05, None)
    assert second not in other.by_name
    assert not errors_of(twice)


def test_a_hand_that_is_one_with_its_arm_cannot_be_taken_off():
    so101 = robots.load("so101")
    assert hand.fixed_on(so101.urdf, "gripper", ["wrist_roll"]) is None
