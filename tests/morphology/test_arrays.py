"""A robot as padded arrays."""

import dataclasses

import jax
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.morphology import Body, MorphologyConfig, arrays, body_of, stack


@pytest.fixture(scope="module")
def panda():
    return robots.load("panda")


def test_the_arrays_of_a_robot(panda):
    body = body_of(panda, 8)
    np.testing.assert_array_equal(body.adjacency, panda.adjacency)
    np.testing.assert_array_equal(body.distances, panda.distances)
    np.testing.assert_array_equal(body.descriptors, panda.descriptors)
    assert body.joint_mask.all()
    assert body.distances.dtype == np.int32
    assert body.descriptors.dtype == np.float32


def test_padded_joints_are_alone_and_unreachable(panda):
    body, real = body_of(panda, 13), np.arange(13) < 8
    np.testing.assert_array_equal(body.joint_mask, real)
    np.testing.assert_array_equal(body.adjacency[:8, :8], panda.adjacency)
    np.testing.assert_array_equal(body.adjacency[8:], np.eye(13, dtype=bool)[8:])
    np.testing.assert_array_equal(body.adjacency, body.adjacency.T)
    assert (body.distances[8:, :8] == arrays.UNREACHABLE).all()
    assert (np.diag(body.distances) == 0).all()
    assert (body.descriptors[8:] == 0).all()


def test_unreachable_has_one_meaning():
    assert arrays.UNREACHABLE == robots.UNREACHABLE


def test_parts_that_nothing_joins_are_as_far_as_padding(panda):
    steps = panda.distances.copy()
    steps[0, 1:] = steps[1:, 0] = robots.UNREACHABLE
    body = body_of(dataclasses.replace(panda, distances=steps), 11)
    assert (body.distances[0, 1:] == arrays.UNREACHABLE).all()
    np.testing.assert_array_equal(body.distances[1:8, 1:8], panda.distances[1:, 1:])


def test_every_feature_has_a_name():
    panda = robots.load("panda")
    for descriptors, names in arrays.FEATURES.items():
        assert body_of(panda, 11, descriptors).descriptors.shape == (11, len(names))
        assert len(set(names)) == len(names)


def test_a_robot_with_too_many_joints(panda):
    with pytest.raises(
        MorphVlaError,
        match=r"^robot 'panda' has 8 joints but the model has places for 7; choose fewer joints in the "
        r"robot's side file or raise morphology\.max_joints$",
    ):
        body_of(panda, 7)


def test_stack_gives_bodies_a_batch_axis(panda):
    bodies = [body_of(robot, 17) for robot in (panda, robots.load("so101"), panda)]
    batch = stack(bodies)
    assert batch.adjacency.shape == (3, 17, 17)
    for row, body in enumerate(bodies):
        for result, wanted in zip(jax.tree.leaves(batch), jax.tree.leaves(body), strict=True):
            np.testing.assert_array_equal(result[row], wanted)


def test_a_body_is_a_pytree_of_four_leaves(panda):
    body = body_of(panda, 11)
    leaves, form = jax.tree.flatten(body)
    assert [leaf.shape for leaf in leaves] == [(11, 11), (11, 11), (11, 12), (11,)]
    assert isinstance(jax.tree.unflatten(form, leaves), Body)


def test_a_body_whose_arrays_disagree_is_refused():
    with pytest.raises(TypeError):
        Body(
            np.eye(5, dtype=bool), np.zeros((5, 5), np.int32), np.zeros((7, 12), np.float32), np.ones(5, bool)
        )


@pytest.mark.parametrize(("chunks", "choices"), [(0, "1, 2, 3, 6"), (4, "1, 2, 3, 6"), (7, "1, 2, 3, 6")])
def test_chunks_divide_the_horizon(chunks, choices):
    with pytest.raises(
        ConfigError,
        match=rf"^morphology\.chunks: {chunks} does not divide the horizon 6; choose one of {choices}$",
    ):
        MorphologyConfig(max_joints=5, chunks=chunks).check(horizon=6, action_dim=7)


@pytest.mark.parametrize("joints", [0, 8])
def test_a_token_reads_an_action_value(joints):
    with pytest.raises(
        ConfigError,
        match=rf"^morphology\.max_joints: {joints} must lie between 1 and the model's 7 action values: "
        r"a kinematic token reads one of them$",
    ):
        MorphologyConfig(max_joints=joints).check(horizon=5, action_dim=7)


def test_the_number_of_tokens():
    config = MorphologyConfig(max_joints=7, chunks=3)
    config.check(horizon=6, action_dim=7)
    assert config.tokens == 21
    assert dataclasses.replace(config, auxiliary=4).tokens == 105


def test_bodies_of_one_batch_were_made_for_one_model():
    panda = robots.load("panda")
    words = (
        r"^stack: bodies of different models, 9 places of 12 numbers and 11 places of 12 numbers; make each"
    )
    with pytest.raises(MorphVlaError, match=words):
        stack([body_of(panda, 9), body_of(panda, 11)])
    with pytest.raises(MorphVlaError, match=r"^stack: .* 9 places of 12 numbers with tree; make each with "):
        stack([body_of(panda, 9), body_of(panda, 9, poses="present")])
    with pytest.raises(MorphVlaError, match=r"^stack: there is no body$"):
        stack([])
