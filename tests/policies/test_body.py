"""Body Transformer: what a node has seen after so many layers, and that the joints' order means nothing."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import dense, gelu, layer_norm, softmax

from morph_vla import policies, robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.morphology.arrays import UNREACHABLE, Body, stack
from morph_vla.pi05 import Observation
from morph_vla.policies import graph, state
from morph_vla.policies.body import Transformer
from morph_vla.policies.config import BodyConfig, MlpConfig
from morph_vla.policies.text import TEXT, global_values, text_features

JOINTS, WIDTH, HORIZON, POSES = 7, 12, 3, 5
CONFIG = BodyConfig(
    attention="hard", action_dim=JOINTS, horizon=HORIZON, environment=POSES, width=WIDTH, depth=2, heads=3,
    mlp_dim=13,
)  # fmt: skip
MLP = MlpConfig(action_dim=JOINTS, horizon=HORIZON, environment=POSES, width=WIDTH, depth=2, hidden=13)
# Root 0, a torso of two joints, an arm of three and one of two (node 6, 7 beside it).
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 6), (6, 7)]


def body_of(edges, nodes, real=None):
    adjacency = np.eye(nodes, dtype=bool)
    for a, b in edges:
        adjacency[a, b] = adjacency[b, a] = True
    mask = np.arange(nodes) < (real or nodes)
    return Body(adjacency, graph.distances(adjacency), np.zeros((nodes, 12), np.float32), mask)


TREE = body_of(EDGES, JOINTS + 1)


def observation(body=TREE, rows=2, joints=JOINTS):
    rng = np.random.default_rng(3)
    return Observation(
        {}, {}, np.zeros((rows, 0), np.int32), np.zeros((rows, 0), bool), stack([body] * rows),
        rng.normal(size=(rows, joints)).astype(np.float32),
        rng.normal(size=(rows, POSES + TEXT)).astype(np.float32),
    )  # fmt: skip


def filled(config, seed=0):
    """Parameters none of which is zero."""
    rng = np.random.default_rng(seed)
    shapes = policies.shapes(config)
    return jax.tree.map(lambda leaf: (0.3 * rng.normal(size=leaf.shape)).astype(np.float32), shapes)


def chunk(config, params, seen):
    asked = policies.Asked(seen, jnp.zeros((2, HORIZON, JOINTS)), np.ones((2, JOINTS), bool), None)
    return np.asarray(state.act(config, params, None, asked, 10))


def sees(config, body):
    """[n n]: whether node i's output depends on node j's input."""
    encoder, rows = Transformer(config), stack([body])
    x = jnp.asarray(
        np.random.default_rng(1).normal(size=(1, len(body.joint_mask), config.width)), jnp.float32
    )
    shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), x, rows))["params"]
    rng = np.random.default_rng(2)
    params = jax.tree.map(lambda leaf: (0.3 * rng.normal(size=leaf.shape)).astype(np.float32), shapes)
    slopes = jax.jacrev(lambda x: encoder.apply({"params": params}, x, rows))(x)
    return np.abs(np.asarray(slopes)[0, :, :, 0]).max(axis=(1, 3)) > 0


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_after_d_hard_layers_a_node_has_seen_those_within_distance_d(depth):
    seen = sees(dataclasses.replace(CONFIG, depth=depth), TREE)
    np.testing.assert_array_equal(seen, TREE.distances <= depth)
    assert not seen.all()


def test_mix_masks_the_first_layer_and_not_the_second():
    first = sees(dataclasses.replace(CONFIG, attention="mix", depth=1), TREE)
    np.testing.assert_array_equal(first, TREE.adjacency)
    assert sees(dataclasses.replace(CONFIG, attention="mix", depth=2), TREE).all()


@pytest.mark.parametrize("attention", ["none", "soft"])
def test_without_a_mask_every_node_sees_every_other(attention):
    assert sees(dataclasses.replace(CONFIG, attention=attention, depth=1), TREE).all()


def embeddings(nodes=JOINTS + 1):
    """Of the nodes of two rows."""
    return np.random.default_rng(1).normal(size=(2, nodes, WIDTH)).astype(np.float32)


def attended(leaves, x, bias, heads):
    """The attention of a layer, head by head."""
    query, key, value = (np.split(dense(leaves[name], x), heads, -1) for name in ("query", "key", "value"))
    size = x.shape[-1] // heads
    logits = (q @ k.swapaxes(-1, -2) / size**0.5 + bias for q, k in zip(query, key, strict=True))
    mixed = (softmax(each) @ v for each, v in zip(logits, value, strict=True))
    return dense(leaves["out"], np.concatenate(list(mixed), axis=-1))


def test_the_encoder_is_the_papers_equations():
    """Section 4 in NumPy: a masked layer and one without a mask, each normalised before its halves."""
    config = dataclasses.replace(CONFIG, attention="mix")
    params, given = filled(config)["encoder"], embeddings()
    x = given.astype(np.float64)
    for number, bias in enumerate((np.where(TREE.adjacency, 0.0, -np.inf), 0.0)):
        leaves = params[f"layer_{number}"]
        x = x + attended(leaves, layer_norm(leaves["attention_norm"], x), bias, config.heads)
        hidden = gelu(dense(leaves["mlp_in"], layer_norm(leaves["mlp_norm"], x)))
        x = x + dense(leaves["mlp_out"], hidden)
    found: Any = Transformer(config).apply({"params": params}, jnp.asarray(given), stack([TREE] * 2))
    np.testing.assert_allclose(found, layer_norm(params["norm"], x), atol=1e-5)


@pytest.mark.parametrize("weights", [JOINTS, 1])
def test_a_joint_has_its_own_weights_or_those_of_all(weights):
    rng = np.random.default_rng(6)
    kernel, bias = rng.normal(size=(weights, 2, WIDTH)), rng.normal(size=(weights, WIDTH))
    values = rng.normal(size=(3, JOINTS, 2)).astype(np.float32)
    params = {"kernel": kernel.astype(np.float32), "bias": bias.astype(np.float32)}
    found: Any = state.PerJoint(weights, WIDTH).apply({"params": params}, jnp.asarray(values))
    for joint, row in enumerate(np.arange(JOINTS) % weights):
        np.testing.assert_allclose(found[:, joint], values[:, joint] @ kernel[row] + bias[row], atol=1e-5)


def test_an_mlp_is_dense_layers_over_the_nodes_that_there_are():
    body, params, given = body_of(EDGES[:4], JOINTS + 1, 5), filled(MLP)["encoder"], embeddings()
    flat = np.pad(given[:, :5], ((0, 0), (0, JOINTS - 4), (0, 0))).reshape(2, -1).astype(np.float64)
    for number in range(MLP.depth):
        flat = gelu(dense(params[f"layer_{number}"], flat))
    found: Any = state.Mlp(MLP).apply({"params": params}, jnp.asarray(given), stack([body] * 2))
    np.testing.assert_allclose(found, dense(params["out"], flat).reshape(given.shape), atol=1e-5)


def test_a_random_graph_has_as_many_edges_and_others():
    config = dataclasses.replace(CONFIG, graph="random", graph_seed=5, depth=1)
    seen = sees(config, TREE)
    assert seen.sum() == TREE.adjacency.sum()
    assert (seen != TREE.adjacency).any()


@pytest.mark.parametrize("attention", ["none", "hard", "mix", "soft"])
@pytest.mark.parametrize("tokenizer", ["own", "shared"])
def test_permuting_joints_permutes_actions_where_tokenizers_are_shared(attention, tokenizer):
    config = dataclasses.replace(CONFIG, attention=attention, tokenizer=tokenizer, depth=3)
    params, seen, order = filled(config), observation(), np.array([4, 2, 6, 0, 5, 1, 3])
    nodes = np.append(0, 1 + order)
    assert seen.state is not None
    assert seen.body is not None
    shuffled = dataclasses.replace(
        seen,
        state=seen.state[:, order],
        body=dataclasses.replace(
            seen.body,
            adjacency=seen.body.adjacency[:, nodes][:, :, nodes],
            distances=seen.body.distances[:, nodes][:, :, nodes],
        ),
    )
    actions, permuted = chunk(config, params, seen)[..., order], chunk(config, params, shuffled)
    assert np.allclose(actions, permuted, atol=1e-5) == (tokenizer == "shared")


@pytest.mark.parametrize("attention", ["none", "hard", "mix", "soft", "mlp"])
def test_places_without_a_joint_change_nothing(attention):
    config = MLP if attention == "mlp" else dataclasses.replace(CONFIG, attention=attention)
    params, small = filled(config), body_of(EDGES[:4], JOINTS + 1, 5)
    seen = observation(small)
    other = np.array(seen.state)
    other[:, 4:] = 7.0
    changed = dataclasses.replace(seen, state=other)
    before, after = chunk(config, params, seen), chunk(config, params, changed)
    assert np.isfinite(before).all()
    np.testing.assert_array_equal(before[..., :4], after[..., :4])


def test_positions_tell_joints_apart():
    config = dataclasses.replace(CONFIG, tokenizer="shared", attention="none", positions=True)
    alike = dataclasses.replace(observation(), state=np.ones((2, JOINTS), np.float32))
    assert np.ptp(chunk(config, filled(config), alike), axis=-1).min() > 1e-3
    bare = dataclasses.replace(config, positions=False)
    assert np.ptp(chunk(bare, filled(bare), alike), axis=-1).max() < 1e-5


@pytest.mark.parametrize("config", [CONFIG, MLP], ids=["body", "mlp"])
def test_the_loss_is_the_mean_square_over_the_horizon(config):
    params, seen = filled(config), observation()
    actions = np.random.default_rng(4).normal(size=(2, HORIZON, JOINTS)).astype(np.float32)
    drawn = policies.Drawn(
        seen, jnp.asarray(actions), jnp.ones((2, JOINTS), bool),
        jnp.zeros((2, 1, HORIZON, JOINTS)), jnp.ones((2, 1)),
    )  # fmt: skip
    expected = ((chunk(config, params, seen) - actions) ** 2).mean(axis=1)
    np.testing.assert_allclose(state.loss(config, params, drawn), expected, rtol=1e-5)


def test_the_root_of_the_panda_is_beside_its_first_joint():
    body = graph.rooted(robots.load("panda"), 9)
    np.testing.assert_array_equal(np.flatnonzero(body.adjacency[0]), [0, 1])
    assert body.distances[0, :9].tolist() == list(range(9))
    assert body.distances[0, 9] == UNREACHABLE
    np.testing.assert_array_equal(body.joint_mask, [True] * 9 + [False])
    robot = robots.load("panda")
    np.testing.assert_array_equal(body.distances[1:9, 1:9], robot.distances)
    with pytest.raises(MorphVlaError, match="has 8 joints but the model has places for 7"):
        graph.rooted(robot, 7)


def test_texts_have_numbers_by_their_words():
    cube, can = text_features("put the cube in the bowl"), text_features("put the can in the mug")
    assert cube.shape == (TEXT,)
    np.testing.assert_array_equal(cube, text_features("Put  the bowl in the cube"))
    assert np.abs(cube - can).max() > 0.5
    np.testing.assert_array_equal(np.abs(text_features("cube")), 1)
    np.testing.assert_allclose(text_features("cube cube cube"), 3**0.5 * text_features("cube"), rtol=1e-6)
    rows = global_values(
        np.ones((2, POSES), np.float32), ["put the cube in the bowl", "put the can in the mug"]
    )
    np.testing.assert_array_equal(rows[1], np.append(np.ones(POSES), can).astype(np.float32))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": 5}, "model.width: 12 is not a multiple of model.heads 5"),
        ({"depth": 0}, "model.depth: must be at least 1, not 0"),
        ({"mlp_dim": 0}, "model.mlp_dim: must be at least 1, not 0"),
        (
            {"attention": "soft", "graph": "random"},
            "model.graph: 'random' makes no sense: attention 'soft' needs the body's distances",
        ),
        (
            {"attention": "none", "graph": "random"},
            "model.graph: 'random' makes no sense: attention 'none' uses no graph",
        ),
        ({"graph_seed": 3}, "model.graph_seed: 3 has no effect without graph: random"),
    ],
)
def test_sizes_that_make_no_model_are_said(changes, sentence):
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        dataclasses.replace(CONFIG, **changes).check()


def test_an_mlp_without_a_layer_width_is_said():
    with pytest.raises(ConfigError, match=r"^model.hidden: must be at least 1, not 0$"):
        MlpConfig(hidden=0).check()
