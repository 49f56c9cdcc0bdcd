"""Our model inside openpi: names, loss and actions, robots, its start, the weight loader."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from live_openpi_sizes import BATCH, ODD, pure

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.morphology import MorphologyConfig, body_of
from morph_vla.pi05 import Observation, loss, sample_actions

PLACES = 7
ROBOTS = ("so101", "so101")


@pytest.fixture(scope="module")
def hosted(openpi, theirs):
    """`hosted(**keys)`: our configuration in openpi, at the sizes of `theirs`, with these plugin keys."""
    from morph_vla.hosts.openpi.model import MorphPi0Config

    def make(**keys):
        return MorphPi0Config(
            dtype="float32",
            action_dim=ODD.action_dim,
            action_horizon=ODD.horizon,
            max_token_len=ODD.max_tokens,
            vit=ODD.vit,
            morphology=MorphologyConfig(**{"max_joints": PLACES, "chunks": 1, **keys}),
        )

    return make


@pytest.fixture(scope="module")
def seen(openpi, batch):
    """openpi's observation as its loader makes it of what our transform made: a robot per row."""
    from morph_vla.hosts.openpi.pipeline import AddRobot

    add = AddRobot(ROBOTS[0], PLACES, ODD.action_dim)
    rows = [
        add({"state": row, "robot": name})["state"] for row, name in zip(batch.state, ROBOTS, strict=True)
    ]
    return openpi.model.Observation.from_dict(
        {
            "image": jax.tree.map(jnp.asarray, batch.images),
            "image_mask": jax.tree.map(jnp.asarray, batch.masks),
            "state": jnp.asarray(np.stack(rows)),
            "tokenized_prompt": jnp.asarray(batch.tokens),
            "tokenized_prompt_mask": jnp.asarray(batch.token_mask),
        }
    )


def moved(params, seed=1):
    """The same tree with new values, so that the plugin is not at its start."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: np.asarray(0.25 * rng.normal(size=x.shape), np.float32), params)


def names(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(str(key.key) for key in path): leaf.shape for path, leaf in leaves}


def test_openpis_names_and_the_plugins(hosted, params):
    result = names(hosted().create(jax.random.key(0)).params())
    new = {name for name in result if name.startswith("morphology/")}
    assert {name: shape for name, shape in result.items() if name not in new} == names(params)
    assert new


@pytest.mark.parametrize("keys", [{}, {"start": "exact", "bias": "adj-soft-v1.0", "auxiliary": 2}])
def test_loss_and_actions_are_those_of_the_model_alone(hosted, seen, batch, keys):
    config = hosted(**keys)
    model = config.create(jax.random.key(0))
    params = moved(model.params())
    model = config.load(params)
    bodies = [body_of(robots.load(name), PLACES) for name in ROBOTS]
    body = jax.tree.map(lambda *rows: np.stack(rows), *bodies)
    ours = Observation(batch.images, batch.masks, batch.tokens, batch.token_mask, body)
    for one, other in zip(jax.tree.leaves(model.observe(seen)), jax.tree.leaves(ours), strict=True):
        np.testing.assert_array_equal(one, other)

    key = jax.random.key(3)
    _, noise_key, time_key = jax.random.split(key, 3)
    noise = jax.random.normal(noise_key, batch.actions.shape)
    time = jax.random.beta(time_key, 1.5, 1, (BATCH,)) * 0.999 + 0.001
    wanted = loss(config.host(), params, ours, batch.actions, noise[None], time[None])[0].mean(-1)
    actions = jnp.asarray(batch.actions)
    np.testing.assert_allclose(model.compute_loss(key, seen, actions), wanted, atol=1e-6)
    forward = dataclasses.replace(config, frozen_prefix=True).load(params)
    np.testing.assert_allclose(forward.compute_loss(key, seen, actions), wanted, atol=1e-6)

    every = np.ones((BATCH, config.host().action_dim), bool)  # openpi holds no padded value
    wanted = sample_actions(config.host(), params, ours, batch.noise, real=every)
    given = {"noise": jnp.asarray(batch.noise)}
    np.testing.assert_allclose(model.sample_actions(key, seen, **given), wanted, atol=1e-5)
    traced = jax.jit(lambda steps: model.sample_actions(key, seen, num_steps=steps, **given))
    np.testing.assert_allclose(traced(10), wanted, atol=1e-5)


def test_adarms_is_computed_of_all_times_at_once(hosted, seen, batch, monkeypatch):
    """Once a call, and not in every step: its weights are a quarter of what a step reads."""
    from morph_vla.pi05 import Pi05

    model, condition, sizes = hosted().create(jax.random.key(0)), Pi05.condition, []

    def counted(self, time):
        sizes.append(time.shape)
        return condition(self, time)

    monkeypatch.setattr(Pi05, "condition", counted)
    noise = jnp.asarray(batch.noise)
    jax.eval_shape(lambda: model.sample_actions(jax.random.key(0), seen, num_steps=7, noise=noise))
    assert sizes == [(7,)]
    sizes.clear()  # a number that only the running program knows: in every step, for every row
    jax.eval_shape(lambda n: model.sample_actions(jax.random.key(0), seen, num_steps=n, noise=noise), 7)
    assert set(sizes) == {(BATCH,)}


def test_the_plugins_gradient_reaches_every_new_leaf(hosted, seen, batch):
    from flax import nnx

    config = hosted()
    model = config.load(moved(config.create(jax.random.key(0)).params()))
    key, actions = jax.random.key(4), jnp.asarray(batch.actions)
    grads = pure(nnx.grad(lambda m: m.compute_loss(key, seen, actions, train=True).mean())(model))
    for path, leaf in jax.tree_util.tree_leaves_with_path(grads["morphology"]):
        assert float(jnp.abs(leaf).max()) > 0, path


def start(hosted, params, **keys):
    """A model whose host has openpi's weights and whose plugin is fresh."""
    from morph_vla.hosts.openpi.configs import MorphWeightLoader

    config = hosted(**keys)
    return config.load(MorphWeightLoader("here").merge(params, config.create(jax.random.key(0)).params()))


@pytest.fixture(scope="module")
def plain(theirs, seen, batch):
    """The loss and the actions of openpi's own model on the same batch, without a robot."""
    bare = dataclasses.replace(seen, state=jnp.asarray(batch.state))
    return (
        theirs.compute_loss(jax.random.key(3), bare, jnp.asarray(batch.actions), train=False),
        theirs.sample_actions(jax.random.key(0), bare, noise=jnp.asarray(batch.noise)),
    )


@pytest.mark.parametrize("bias", ["full", "spd-soft"])
def test_with_start_exact_it_is_openpis_model(hosted, params, plain, seen, batch, bias):
    model = start(hosted, params, start="exact", bias=bias, auxiliary=1)
    result = model.compute_loss(jax.random.key(3), seen, jnp.asarray(batch.actions))
    np.testing.assert_allclose(result, plain[0], atol=2e-5)
    result = model.sample_actions(jax.random.key(0), seen, noise=jnp.asarray(batch.noise))
    np.testing.assert_allclose(result, plain[1], atol=2e-5)


def test_with_start_paper_it_is_near(hosted, params, plain, seen, batch, capsys):
    model = start(hosted, params)
    result = model.sample_actions(jax.random.key(0), seen, noise=jnp.asarray(batch.noise))
    difference = float(jnp.abs(result - plain[1]).max())
    with capsys.disabled():
        print(f"\nstart paper: actions differ from openpi's by up to {difference:.2e}")
    assert 0 < difference < 3


def test_an_observation_without_a_robot_is_refused(hosted, seen, batch):
    model = hosted().create(jax.random.key(0))
    bare = dataclasses.replace(seen, state=jnp.asarray(batch.state))
    with pytest.raises(MorphVlaError, match=r"must end with morph_vla.hosts.openpi.pipeline.AddRobot"):
        model.sample_actions(jax.random.key(0), bare)


def test_what_does_not_go_together_is_refused(openpi):
    from morph_vla.hosts.openpi.model import MorphPi0Config

    with pytest.raises(MorphVlaError, match=r"^model.pi05: kinematic tokens are made for pi0.5"):
        MorphPi0Config(pi05=False)
    with pytest.raises(MorphVlaError, match=r"'gemma_2b_lora' has adapters.*choose 'gemma_2b' and freeze"):
        MorphPi0Config(paligemma_variant="gemma_2b_lora")
    with pytest.raises(MorphVlaError, match=r"^morphology.chunks: 3 does not divide the horizon 16"):
        MorphPi0Config(morphology=MorphologyConfig(chunks=3))
    with pytest.raises(MorphVlaError, match=r"^x.safetensors is for openpi's PyTorch model"):
        MorphPi0Config().load_pytorch(None, "x.safetensors")


def test_the_loader_lets_only_the_plugin_start_fresh(hosted, params):
    from morph_vla.hosts.openpi.configs import MorphWeightLoader

    loader = MorphWeightLoader("here")
    fresh = hosted().create(jax.random.key(0)).params()
    merged = loader.merge(params, fresh)
    assert names(merged) == names(fresh)
    np.testing.assert_array_equal(merged["action_in_proj"]["kernel"], params["action_in_proj"]["kernel"])
    assert merged["morphology"] is not fresh["morphology"]
    without = {name: branch for name, branch in params.items() if name != "time_mlp_in"}
    with pytest.raises(
        MorphVlaError, match=r"^here does not fit the model: no time_mlp_in/bias; no time_mlp_in"
    ):
        loader.merge(without, fresh)
    with pytest.raises(MorphVlaError, match=r"state_proj/kernel is nothing of the model's"):
        loader.merge({**params, "state_proj": {"kernel": np.zeros((2, 3))}}, fresh)
    wrong = {**params, "action_in_proj": {"kernel": np.zeros((3, 2)), "bias": np.zeros(18)}}
    with pytest.raises(
        MorphVlaError, match=r"action_in_proj/kernel is \(3, 2\) where the model has \(7, 18\)"
    ):
        loader.merge(wrong, fresh)
