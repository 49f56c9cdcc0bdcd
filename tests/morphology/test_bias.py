"""The drawings of the topology bias are what the functions return."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.morphology import bias


def drawing(function) -> np.ndarray:
    """The matrix in a docstring: `.` is 0, `x` is -inf."""
    lines = [
        line.split()
        for line in (inspect.getdoc(function) or "").splitlines()
        if set(line) <= set(" .x") and line
    ]
    return np.array([[-np.inf if mark == "x" else 0.0 for mark in line] for line in lines], np.float32)


def chain(joints: int) -> np.ndarray:
    """Adjacency of an arm whose joints follow one another."""
    return np.abs(np.subtract.outer(np.arange(joints), np.arange(joints))) < 2


def test_the_mask_of_a_five_joint_arm_is_the_one_drawn():
    drawn = drawing(bias.full_mask)
    assert drawn.shape == (5, 5)
    np.testing.assert_array_equal(bias.full_mask(jnp.asarray(chain(5))), drawn)


@pytest.mark.parametrize(("kind", "masked"), [("none", []), ("full", [0, 1, 2, 3, 4]), ("mix", [0, 2, 4])])
def test_which_layers_are_masked(kind, masked):
    one = drawing(bias.full_mask)
    other = bias.full_mask(jnp.eye(5, dtype=bool))
    adjacency = jnp.stack([jnp.asarray(chain(5)), jnp.eye(5, dtype=bool)])
    found = np.asarray(bias.hard_bias(kind, adjacency, layers=5))
    assert found.shape == (5, 2, 5, 5)
    for layer in range(5):
        here = layer in masked
        np.testing.assert_array_equal(found[layer, 0], one if here else np.zeros((5, 5)))
        np.testing.assert_array_equal(found[layer, 1], other if here else np.zeros((5, 5)))


def test_the_bias_of_two_chunks_is_the_one_drawn():
    drawn = drawing(bias.token_bias)
    assert drawn.shape == (6, 6)
    per_joint = bias.hard_bias("full", jnp.asarray(chain(3))[None], layers=2)
    found = bias.token_bias(per_joint, copies=2)
    assert found.shape == (2, 1, 6, 6)
    np.testing.assert_array_equal(found[1, 0], drawn)


def test_every_chunk_of_a_joint_shares_its_row_and_column():
    values = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    found = np.asarray(bias.token_bias(jnp.asarray(values), copies=7))
    for k in range(7):
        for m in range(7):
            np.testing.assert_array_equal(found[:, :, 5 * k : 5 * k + 5, 5 * m : 5 * m + 5], values)
