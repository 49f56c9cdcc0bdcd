"""Joint poses inside the model: those of `robots.kinematics`, one program for every robot, with gradients."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import tree, trees

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.morphology import KinematicTokens, MorphologyConfig, body_of, stack
from morph_vla.morphology.arrays import Body, poses_of, positions_of
from morph_vla.morphology.film import Film
from morph_vla.morphology.poses import POSE, present, tree_of
from morph_vla.robots import Robot, Side
from morph_vla.robots.screws import screws

PLACES = 17
compiled: Any = jax.jit(present)


def by_kinematics(robot: Robot, native: np.ndarray) -> np.ndarray:
    """Place, axis and direction across of every joint from the poses of its links, in float64.

    What a joint moves is its child link, which had another pose at rest.
    """
    known, rows = screws(robot), []
    scale = np.diag([1 / known.reach] * 3 + [1.0])
    before, now = (robot.forward_kinematics(values) for values in (robot.rest, native))
    for index, name in enumerate(robot.names):
        link = robot.urdf.by_name[name].child
        at_rest, moved = (scale @ known.base_from_root @ poses[link] for poses in (before, now))
        since_rest = moved @ np.linalg.inv(at_rest)
        axis = moved[:3, :3] * known.reach @ robot.urdf.by_name[name].unit_axis
        turned = since_rest[:3, :3] @ tree_of(robot, PLACES).across[index]
        rows.append(np.concatenate([(since_rest @ [*known.places[index], 1])[:3], axis, turned]))
    return np.array(rows)


def poses(robot: Robot, native: np.ndarray) -> np.ndarray:
    """The model's, for one row."""
    body = body_of(robot, PLACES, poses="present")
    positions = np.pad(native.astype(np.float32), (0, PLACES - len(native)))
    return np.asarray(compiled(stack([body]).tree, jnp.asarray(positions)[None]))[0]


def assert_equal_poses(robot: Robot, native: np.ndarray) -> None:
    wanted, count = by_kinematics(robot, native), len(robot.names)
    result = poses(robot, native)
    # Of the reach; of a slide of many reaches, of its way.
    np.testing.assert_allclose(result[:count], wanted, atol=1e-5 * max(1.0, np.abs(wanted).max()))
    np.testing.assert_array_equal(result[count:], 0)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(trees(), st.integers(0, 10**6))
def test_poses_are_those_of_the_kinematics(spec, seed):
    random = np.random.default_rng(seed)
    plain = robots.build(tree(spec), Side(), Path("tree.urdf"))
    rest = tuple(random.uniform(plain.lower, plain.upper).tolist())
    robot = robots.build(plain.urdf, Side(joints=plain.names, rest=rest), Path("tree.urdf"))
    assert_equal_poses(robot, random.uniform(robot.lower, robot.upper))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["panda", "so101", "g1_dex1", "aloha", "inspire_hand"])
def test_poses_of_shipped_robots(name):
    robot, random = robots.load(name), np.random.default_rng(3)
    for _ in range(5):
        assert_equal_poses(robot, random.uniform(robot.lower, robot.upper))


def test_at_rest_a_pose_is_the_screw():
    """And its two directions are at right angles, of length one."""
    robot = robots.load("panda")
    known, result = screws(robot), poses(robot, robot.rest)[:8]
    np.testing.assert_allclose(result[:, :3], known.places, atol=1e-6)
    np.testing.assert_allclose(result[:, 3:6], known.axes, atol=1e-6)
    frames = result[:, 3:].reshape(8, 2, 3)
    np.testing.assert_allclose(frames @ frames.swapaxes(1, 2), [np.eye(2)] * 8, atol=1e-6)


def test_every_robot_is_served_by_one_program():
    traced = []

    def noted(body: Body) -> Any:
        traced.append(1)
        return poses_of(body)

    program: Any = jax.jit(noted)
    for name in ("panda", "so101", "g1_dex1", "aloha"):
        robot = robots.load(name)
        body = body_of(robot, PLACES, poses="present")
        positions = positions_of(robot, robot.to_dataset(robot.rest[None]), PLACES)[0]
        result = program(stack([dataclasses.replace(body, positions=positions)]))
        assert result.shape == (1, PLACES, POSE)
    assert len(traced) == 1


def test_gradients_are_those_of_differences():
    """Of a robot with a gripper, away from rest and at it."""
    robot = robots.load("so101")
    arm: Any = stack([body_of(robot, 7, poses="present")]).tree
    weights = np.random.default_rng(0).normal(size=(7, POSE)).astype(np.float32)

    def summed(native: Any) -> Any:
        return jnp.sum(present(arm, native) * weights)

    total, slope_of = jax.jit(summed), jax.jit(jax.grad(summed))
    for native in (robot.rest, robot.rest + 0.3):
        row = jnp.asarray(np.pad(native.astype(np.float32), (0, 1)))[None]
        slope = np.asarray(slope_of(row))[0]
        for joint in range(6):
            step = np.zeros((1, 7), np.float32)
            step[0, joint] = 1e-2
            difference = (total(row + step) - total(row - step)) / 2e-2
            assert slope[joint] == pytest.approx(float(difference), abs=2e-3)
        assert slope[6] == 0


@pytest.fixture
def crank() -> Robot:
    """An arm whose second action joint hangs on a link that a mimicking joint carries."""
    joints = "".join(
        f'<joint name="{name}" type="revolute"><parent link="{i}"/><child link="{i + 1}"/>'
        f'<origin xyz="0 0 1"/><axis xyz="0 1 0"/><limit lower="-1" upper="1"/>{mimic}</joint>'
        for i, (name, mimic) in enumerate(
            {"a": "", "b": '<mimic joint="a" multiplier="-2"/>', "c": ""}.items()
        )
    )
    links = "".join(f'<link name="{i}"/>' for i in range(4))
    text = f'<robot name="x">{links}{joints}</robot>'
    return robots.build(robots.parse(text.encode()), Side(), Path("crank.urdf"))


def test_a_joint_that_follows_and_carries_counts(crank):
    assert crank.names == ("a", "c")
    assert screws(crank).names == ("a", "c", "b")
    native = np.array([0.3, -0.4])
    assert_equal_poses(crank, native)
    place = poses(crank, native)[1, :3] * screws(crank).reach
    np.testing.assert_allclose(place, [0, 0, 2 * np.cos(0.3)], atol=1e-6)


def test_more_of_them_than_places_are_refused(crank):
    assert tree_of(crank, 2).parents.shape == (4,)
    with pytest.raises(
        MorphVlaError,
        match=r"^robot 'crank': 1 joint that follows another carries an action joint, but the model has "
        r"places for 0; raise morphology\.max_joints$",
    ):
        tree_of(crank, 0)


def seen(names: tuple[str, ...], shift: float = 0.0) -> Body:
    rows = []
    for name in names:
        robot = robots.load(name)
        positions = positions_of(robot, robot.to_dataset(robot.rest[None] + shift), PLACES)[0]
        rows.append(dataclasses.replace(body_of(robot, PLACES, poses="present"), positions=positions))
    return stack(rows)


@pytest.mark.slow
def test_tokens_read_the_pose_and_start_without_it():
    """A linear map of it in every copy of a token, before FiLM."""
    config = MorphologyConfig(max_joints=PLACES, poses="present", auxiliary=1, film=False)
    module, body = KinematicTokens(config, 13, 2, 3), seen(("panda", "so101"))
    actions = jnp.asarray(np.random.default_rng(1).normal(size=(2, 6, 19)), jnp.float32)
    params: Any = jax.jit(module.init)(jax.random.key(0), actions, body)["params"]
    assert jax.tree.map(np.shape, params["pose"]) == {"kernel": (POSE, 13), "bias": (13,)}
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(params["pose"]))
    without = KinematicTokens(dataclasses.replace(config, poses="none"), 13, 2, 3)
    rest = {name: leaf for name, leaf in params.items() if name != "pose"}
    plain: Any = jax.jit(without.init)(jax.random.key(0), actions, body)["params"]
    # The other parameters begin as they do without it.
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), rest, plain))

    kernel = np.random.default_rng(2).normal(size=(POSE, 13)).astype(np.float32)
    changed = {**params, "pose": {"kernel": kernel, "bias": np.zeros(13, np.float32)}}
    before: Any = jax.jit(without.apply)({"params": rest}, actions, body)
    after: Any = jax.jit(module.apply)({"params": changed}, actions, body)
    added = np.asarray(after.tokens - before.tokens).reshape(2, 2, PLACES, 13)
    wanted = np.asarray(poses_of(body)) @ kernel
    np.testing.assert_allclose(added, np.stack([wanted, wanted], axis=1), atol=1e-4)
    moved: Any = jax.jit(module.apply)({"params": changed}, actions, seen(("panda", "so101"), 0.1))
    assert np.abs(np.asarray(moved.tokens - after.tokens)).max() > 0.1


def test_film_modulates_the_pose_too():
    bare = MorphologyConfig(max_joints=PLACES, poses="present", chunks=2, film=False)
    body, width = seen(("panda", "so101")), 13
    actions = jnp.asarray(np.random.default_rng(1).normal(size=(2, 6, 19)), jnp.float32)
    module = KinematicTokens(dataclasses.replace(bare, film=True), width, 2, 3)
    source = np.random.default_rng(2)
    shapes: Any = jax.eval_shape(module.init, jax.random.key(0), actions, body)["params"]
    params = jax.tree.map(lambda x: source.normal(size=x.shape).astype(np.float32), shapes)
    rest = {name: leaf for name, leaf in params.items() if name != "film"}
    z: Any = jax.jit(KinematicTokens(bare, width, 2, 3).apply)({"params": rest}, actions, body)
    wanted = jax.jit(Film(width).apply)(
        {"params": params["film"]}, z.tokens, jnp.tile(body.descriptors, (1, 2, 1))
    )
    result: Any = jax.jit(module.apply)({"params": params}, actions, body)
    np.testing.assert_allclose(result.tokens, wanted, atol=1e-4, rtol=1e-5)


def test_a_body_that_stands_nowhere_is_refused():
    with pytest.raises(
        MorphVlaError,
        match=r"^the model reads where each joint is \(poses: present\), but the observation's body carries "
        r"no joint positions$",
    ):
        poses_of(stack([body_of(robots.load("panda"), 8, poses="present")]))
