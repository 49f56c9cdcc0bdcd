"""The drawings of the topology bias are what the functions return; where a soft bias starts."""

import inspect
import math
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.morphology import Body, MorphologyConfig, arrays, bias, config

LAYERS = 5


def drawing(function: Any, marks: str) -> list[list[str]]:
    """The lines of a docstring that hold `marks` alone, word by word."""
    lines = (inspect.getdoc(function) or "").splitlines()
    return [line.split() for line in lines if line.strip() and set(line) <= set(marks + " ")]


def masks(function: Any) -> np.ndarray:
    """The matrix in a docstring: `.` is 0, `x` is -inf."""
    words = drawing(function, ".x")
    return np.array([[-np.inf if mark == "x" else 0.0 for mark in line] for line in words], np.float32)


def steps(joints: int) -> np.ndarray:
    """Distances in an arm whose joints follow one another."""
    return np.abs(np.subtract.outer(np.arange(joints), np.arange(joints))).astype(np.int32)


def arm(joints: int) -> Body:
    """One arm, in a batch of one."""
    far = steps(joints)[None]
    return Body(far < 2, far, np.zeros((1, joints, 12), np.float32), np.ones((1, joints), bool))


def of(joints: int = 5, **keys: Any) -> tuple[Any, np.ndarray]:
    """What `TopologyBias` learns at the start, and its bias for an arm [l j j]."""
    config = MorphologyConfig(**{"max_joints": joints, **keys})
    config.check(horizon=16, action_dim=joints)
    module = bias.TopologyBias(config, LAYERS)
    params: Any = module.init(jax.random.key(0), arm(joints))
    result: Any = module.apply(params, arm(joints))
    return params.get("params", {}).get("theta"), np.asarray(result[:, 0])


def test_the_mask_of_a_five_joint_arm_is_the_one_drawn():
    drawn = masks(bias.full_mask)
    assert drawn.shape == (5, 5)
    np.testing.assert_array_equal(bias.full_mask(jnp.asarray(steps(5) < 2)), drawn)


def test_the_layers_that_are_masked_are_those_drawn():
    drawn = {line[0]: [mark == "x" for mark in line[1:]] for line in drawing(bias.masked, ".xfulmixnoe")}
    assert set(drawn) == {"full", "mix", "none"}
    for kind, layers in drawn.items():
        np.testing.assert_array_equal(bias.masked(kind, 7), layers)
        np.testing.assert_array_equal(bias.masked(kind, 1), layers[:1])
    assert not bias.masked("spd-soft", 3).any()


@pytest.mark.parametrize("kind", get_args(config.BiasKind))
def test_of_every_bias_it_is_said_which_layers_it_masks(kind):
    assert bias.masked(kind, 7).any() == (kind in ("full", "mix"))


def test_a_bias_of_which_it_is_not_said_trains_nothing():
    with pytest.raises(
        ValueError, match=r"^no layers are named for the bias 'odd'; say in bias\.masked which"
    ):
        bias.masked("odd", 7)


@pytest.mark.parametrize(("kind", "masked"), [("none", []), ("full", [0, 1, 2, 3, 4]), ("mix", [0, 2, 4])])
def test_which_layers_are_masked(kind, masked):
    one = masks(bias.full_mask)
    other = bias.full_mask(jnp.eye(5, dtype=bool))
    adjacency = jnp.stack([jnp.asarray(steps(5) < 2), jnp.eye(5, dtype=bool)])
    result = np.asarray(bias.hard_bias(kind, adjacency, layers=5))
    assert result.shape == (5, 2, 5, 5)
    for layer in range(5):
        here = layer in masked
        np.testing.assert_array_equal(result[layer, 0], one if here else np.zeros((5, 5)))
        np.testing.assert_array_equal(result[layer, 1], other if here else np.zeros((5, 5)))


def test_the_bias_of_two_tokens_per_joint_is_the_one_drawn():
    drawn = masks(bias.token_bias)
    assert drawn.shape == (6, 6)
    per_joint = bias.hard_bias("full", jnp.asarray(steps(3) < 2)[None], layers=2)
    result = bias.token_bias(per_joint, copies=2)
    assert result.shape == (2, 1, 6, 6)
    np.testing.assert_array_equal(result[1, 0], drawn)


def test_all_tokens_of_a_joint_share_its_row_and_column():
    values = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    result = np.asarray(bias.token_bias(jnp.asarray(values), copies=7))
    for k in range(7):
        for m in range(7):
            np.testing.assert_array_equal(result[:, :, 5 * k : 5 * k + 5, 5 * m : 5 * m + 5], values)


# ---------------------------------------- SPD-Soft


def test_the_entry_for_each_distance_is_the_one_drawn():
    drawn = np.array(drawing(bias.spd_bias, "0123"), int)
    assert drawn.shape == (5, 5)
    theta = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    result = bias.spd_bias(jnp.asarray(theta), jnp.asarray(steps(5))[None])
    np.testing.assert_array_equal(result[:, 0], theta[:, drawn])


def test_joints_that_nothing_connects_have_the_last_entry():
    theta = jnp.arange(9.0)[None]
    far = jnp.array([[[0, arrays.UNREACHABLE], [arrays.UNREACHABLE, 0]]], jnp.int32)
    np.testing.assert_array_equal(bias.spd_bias(theta, far)[0, 0], [[0, 8], [8, 0]])


def test_where_spd_soft_starts_is_as_drawn():
    names: list[Any] = ["zero", "hard", "mix", "linear"]
    rows = [
        np.array([float(word) for word in line]).reshape(4, 5) for line in drawing(bias.spd_init, "0123457.-")
    ]
    assert len(rows) == 4
    for i, name in enumerate(names):
        result = bias.spd_init(name, layers=4, max_distance=4)
        np.testing.assert_array_equal(result, [row[i] for row in rows])
        theta, start = of(bias="spd-soft", bias_init=name, max_distance=4)
        np.testing.assert_array_equal(theta[:4], result)
        np.testing.assert_array_equal(start, np.asarray(theta)[:, steps(5)])


def test_every_entry_in_reach_has_a_gradient_and_no_other():
    theta = jnp.zeros((2, 7))
    sums: Any = jax.grad(lambda t: bias.spd_bias(t, jnp.asarray(steps(5))[None]).sum())(theta)
    np.testing.assert_array_equal(sums, [[5, 8, 6, 4, 2, 0, 0]] * 2)


# ---------------------------------------- Adj-Soft


def drawn_strength(strength: float) -> np.ndarray:
    """The drawing of `adj_bias` for one strength."""
    words = drawing(bias.adj_bias, "0-s")
    assert len(words) == 5
    return np.array([[-strength if word == "-s" else 0.0 for word in line] for line in words], np.float32)


def test_adj_soft_is_as_drawn():
    for strength in (0.7, 0.0, -1.5):
        result = bias.adj_bias(jnp.full((3, 1, 1), strength), jnp.asarray(steps(5) < 2)[None])
        assert result.shape == (3, 1, 5, 5)
        np.testing.assert_allclose(result[2, 0], drawn_strength(strength))


@pytest.mark.parametrize(
    ("kind", "init", "strength", "shape"),
    [
        ("adj-soft-v1.0", "zero", math.exp(-3), (5, 5, 5)),
        ("adj-soft-v1.0", "hard", 3.0, (5, 5, 5)),
        ("adj-soft-v1.1", "zero", math.exp(-3), (5,)),
        ("adj-soft-v1.1", "hard", 3.0, (5,)),
        ("adj-soft-v2.0", "zero", 0.0, (5,)),
        ("adj-soft-v2.0", "hard", 3.0, (5,)),
    ],
)
def test_where_adj_soft_starts(kind, init, strength, shape):
    theta, result = of(bias=kind, bias_init=init)
    assert theta.shape == shape
    for layer in result:
        np.testing.assert_allclose(layer, drawn_strength(strength), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("adj-soft-v1.0", lambda t: np.exp(np.minimum(t, 2.0))),
        ("adj-soft-v1.1", lambda t: np.exp(np.minimum(t, 2.0))),
        ("adj-soft-v2.0", lambda t: t),
    ],
)
def test_the_strength_is_the_papers(kind, wanted):
    config = MorphologyConfig(max_joints=5, bias=kind, theta_max=2.0)
    shape = (LAYERS, 5, 5) if kind == "adj-soft-v1.0" else (LAYERS,)
    theta = np.random.default_rng(2).normal(scale=3, size=shape).astype(np.float32)
    assert theta.max() > 2.0
    result: Any = bias.TopologyBias(config, LAYERS).apply({"params": {"theta": theta}}, arm(5))
    each = np.broadcast_to(wanted(theta).reshape(LAYERS, *(shape[1:] or (1, 1))), (LAYERS, 5, 5))
    np.testing.assert_allclose(result[:, 0], np.where(steps(5) < 2, 0, -each), rtol=1e-6)


def test_masks_learn_nothing():
    for kind in ("none", "full", "mix"):
        theta, _ = of(bias=kind)
        assert theta is None


# ---------------------------------------- the random graph in the joint graph's place


@pytest.mark.parametrize("kind", ["full", "mix", "adj-soft-v2.0"])
def test_a_random_graph_stands_where_the_joints_stood(kind):
    _, joints = of(7, bias=kind, bias_init="hard" if "soft" in kind else "zero")
    _, random = of(
        7, bias=kind, bias_init="hard" if "soft" in kind else "zero", control="random", control_seed=1
    )
    for own, other in zip(joints, random, strict=True):
        assert (own != 0).sum() == (other != 0).sum()  # as dense
        assert (np.diag(other) == 0).all()
        np.testing.assert_array_equal(other, other.T)
    assert (joints != random).any()
    np.testing.assert_array_equal((joints != 0).any(axis=(1, 2)), (random != 0).any(axis=(1, 2)))
