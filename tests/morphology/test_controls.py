"""The controls: as dense, as many, the same for ever, and blind to padding."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.morphology import body_of, controls, stack
from morph_vla.morphology.tokens import split_chunks

graph: Any = jax.jit(controls.random_graph, static_argnums=2)
PLACES = 17

# Of an arm of five joints, seed 0; of three joints, seed 0, row 0.
RECORDED_PAIRS = [(0, 1), (0, 2), (2, 3), (3, 4)]
RECORDED_ROW = [0.88352, 0.184035, -0.430724]


def draw(adjacency: np.ndarray, mask: np.ndarray, seed: int) -> np.ndarray:
    return np.asarray(graph(jnp.asarray(adjacency)[None], jnp.asarray(mask)[None], seed)[0])


def some_graph(joints: int, density: float, seed: int, places: int = PLACES) -> tuple[np.ndarray, np.ndarray]:
    near = np.random.default_rng(seed).random((joints, joints)) < density
    adjacency = np.eye(places, dtype=bool)
    adjacency[:joints, :joints] |= near | near.T
    return adjacency, np.arange(places) < joints


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(1, PLACES), st.floats(0, 1), st.integers(0, 99), st.sampled_from([0, 3, 7]))
def test_a_random_graph_is_symmetric_as_dense_and_blind_to_padding(joints, density, graph_seed, seed):
    adjacency, mask = some_graph(joints, density, graph_seed)
    result = draw(adjacency, mask, seed)
    np.testing.assert_array_equal(result, result.T)
    assert result.diagonal().all()
    assert result.sum() == adjacency.sum()
    np.testing.assert_array_equal(result[joints:], np.eye(PLACES, dtype=bool)[joints:])
    # In a model with exactly as many places, the same graph.
    np.testing.assert_array_equal(
        draw(adjacency[:joints, :joints], mask[:joints], seed), result[:joints, :joints]
    )


def test_padding_between_joints_does_not_count_either():
    adjacency, mask = some_graph(5, 0.5, 1, places=7)
    mask = mask[[0, 1, 5, 2, 3, 6, 4]]
    order = [0, 1, 5, 2, 3, 6, 4]
    result = draw(adjacency[np.ix_(order, order)], mask, 0)
    assert result.sum() == adjacency.sum()
    np.testing.assert_array_equal(result[~mask], np.eye(7, dtype=bool)[~mask])


def test_robots_in_one_batch_have_the_graphs_they_have_alone():
    bodies = [body_of(robots.load(name), PLACES) for name in ("panda", "so101", "g1_dex1")]
    batch = stack(bodies)
    result = np.asarray(graph(batch.adjacency, batch.joint_mask, 5))
    for body, one in zip(bodies, result, strict=True):
        np.testing.assert_array_equal(one, draw(np.asarray(body.adjacency), np.asarray(body.joint_mask), 5))
        assert one.sum() == body.adjacency.sum()
        assert (one != body.adjacency).any()


@pytest.mark.slow
def test_seeds_differ_and_every_pair_has_its_turn():
    adjacency, mask = some_graph(7, 0.3, 4, places=7)
    result = np.array([draw(adjacency, mask, seed) for seed in range(40)])
    share = result.mean(axis=0)[~np.eye(7, dtype=bool)]
    assert share.min() > 0
    assert share.max() < 1


def test_a_seed_means_the_same_for_ever():
    """Recorded once: a control's checkpoint must find its graph again under other libraries."""
    adjacency = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) < 2
    result = draw(adjacency, np.ones(5, bool), 0)
    assert [tuple(pair) for pair in np.argwhere(np.triu(result, 1)).tolist()] == RECORDED_PAIRS
    np.testing.assert_allclose(controls.mixture(jnp.ones((1, 3), bool), 0)[0, 0], RECORDED_ROW, atol=1e-5)


def test_mixtures_are_unit_rows_over_real_joints():
    mask = jnp.asarray(np.arange(7) < np.array([[5], [7]]))
    result = np.asarray(controls.mixture(mask, 3))
    np.testing.assert_allclose(np.square(result).sum(-1), 1, atol=1e-5)
    assert (result[0, :, 5:] == 0).all()
    assert (result[1] != 0).all()
    wide = np.asarray(controls.mixture(jnp.asarray(np.arange(13) < np.array([[5], [7]])), 3))
    np.testing.assert_allclose(wide[0, :5, :5], result[0, :5, :5], atol=1e-6)
    # No information is lost: the rows of real joints are independent.
    assert np.linalg.matrix_rank(result[0, :5, :5]) == 5
    assert np.abs(np.asarray(controls.mixture(mask, 4)) - result).max() > 0.1


def test_a_token_without_a_joint_reads_every_joint():
    """Where a kinematic token reads one column, its counterpart reads all real ones and no other."""
    weights = controls.mixture(jnp.asarray(np.arange(7) < 5)[None], 3)

    def read(actions):
        return split_chunks(jnp.einsum("bhj,bij->bhi", actions, weights), 7, 2)[0, 0].sum()

    gradient: Any = jax.grad(read)(jnp.ones((1, 6, 7)))
    assert (gradient[0, :3, :5] != 0).all()
    assert (gradient[0, :, 5:] == 0).all()
    assert (gradient[0, 3:] == 0).all()


@pytest.mark.parametrize("places", [1, 2, 13])
def test_random_bits_do_not_depend_on_the_number_of_places(places):
    np.testing.assert_array_equal(controls._bits(9, 31)[:places, :places], controls._bits(9, places))
