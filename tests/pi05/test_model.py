"""Laws of the whole model: one prefix for many draws, padding, absent cameras, where the plugin starts."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.morphology import MorphologyConfig
from morph_vla.pi05 import Observation, Pi05, init_params, loss, sample_actions
from morph_vla.pi05 import model as pi05

# Compiling is most of these tests' time.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def in_one_pass(config, params, seen, x, time):
    """The velocity in one pass over prefix and suffix."""
    return Pi05(config).apply({"params": params}, seen, x, time, method=Pi05.velocity_joint)


joint = quick(in_one_pass, static_argnums=0)


def without_body(params):
    return {name: value for name, value in params.items() if name != "morphology"}


def with_images(seen: Observation, **changes) -> Observation:
    return dataclasses.replace(seen, **changes)


def joint_loss(config, params, seen, actions, noise, time, velocity: Callable = joint):
    """As `pi05.loss` for one draw, in one pass."""
    x, target = pi05.interpolate(actions, noise, time)
    return jnp.square(velocity(config, params, seen, x, time) - target)


@pytest.fixture(scope="module")
def cached(plugin, params, seen, chunk):
    """Loss and gradient with one noise draw, through the cache."""
    actions, noise, time = map(jnp.asarray, chunk)

    def mean(params):
        value = loss(plugin, params, seen, actions, noise[:1], time[:1])
        return value.mean(), value[0]

    (_, value), gradient = quick(jax.value_and_grad(mean, has_aux=True))(params)
    return value, gradient


def same(found, wanted, relative: float) -> None:
    """Leaf by leaf, relative to the leaf's largest value (or a hundredth of the largest of all)."""
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(wanted), strict=True):
        scale = max(float(np.abs(b).max()), 1e-2 * largest)
        assert float(np.abs(a - b).max()) <= relative * scale, jax.tree_util.keystr(path)


@pytest.mark.slow
def test_the_cached_loss_and_gradient_equal_the_joint_ones(plugin, params, seen, chunk, cached):
    actions, noise, time = map(jnp.asarray, chunk)

    def mean(params):
        value = joint_loss(plugin, params, seen, actions, noise[0], time[0], in_one_pass)
        return value.mean(), value

    (_, value), gradient = quick(jax.value_and_grad(mean, has_aux=True))(params)
    same(cached[0], value, 1e-6)
    same(cached[1], gradient, 5e-6)
    # Every parameter is used, those of the body too.
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient["morphology"]))


@pytest.mark.slow
def test_several_noise_draws_are_the_single_ones_side_by_side(plugin, params, seen, chunk):
    actions, noise, time = map(jnp.asarray, chunk)
    result = quick(partial(loss, plugin))(params, seen, actions, noise, time)
    assert result.shape == (3, 2, 6, 7)
    single = [joint_loss(plugin, params, seen, actions, noise[n], time[n]) for n in range(3)]
    np.testing.assert_allclose(result, single, rtol=1e-5, atol=1e-5)
    # So a step over three draws is the mean of three steps.
    np.testing.assert_allclose(result.mean(), np.mean([part.mean() for part in single]), rtol=1e-6)


def test_padded_joints_change_no_action(plugin, params, seen, chunk, body):
    actions, noise, time = chunk
    wide = dataclasses.replace(plugin, morphology=dataclasses.replace(plugin.morphology, max_joints=7))
    x, _ = pi05.interpolate(jnp.asarray(actions), jnp.asarray(noise[0]), jnp.asarray(time[0]))
    plain = joint(plugin, params, seen, x, time[0])
    padded = joint(wide, params, with_images(seen, body=body(5, 7)), x, time[0])
    np.testing.assert_allclose(padded, plain, atol=1e-5)
    # ... while a real sixth and seventh joint do.
    more = joint(wide, params, with_images(seen, body=body(7)), x, time[0])
    assert np.abs(more - plain).max() > 1e-3


def test_the_graph_and_the_descriptors_reach_the_actions(plugin, params, seen, chunk):
    _, noise, time = chunk
    plain = joint(plugin, params, seen, noise[0], time[0])
    joined = dataclasses.replace(seen.body, adjacency=np.ones((2, 5, 5), bool))
    assert (
        np.abs(joint(plugin, params, with_images(seen, body=joined), noise[0], time[0]) - plain).max() > 1e-4
    )
    blind = dataclasses.replace(seen.body, descriptors=np.zeros((2, 5, 12), np.float32))
    assert (
        np.abs(joint(plugin, params, with_images(seen, body=blind), noise[0], time[0]) - plain).max() > 1e-4
    )


def test_an_absent_camera_equals_a_masked_one(plugin, params, seen, chunk):
    _, noise, time = chunk
    last = plugin.cameras[2]
    masked = with_images(seen, image_masks={**seen.image_masks, last: np.zeros(2, bool)})
    absent = with_images(
        seen,
        images={name: image for name, image in seen.images.items() if name != last},
        image_masks={name: mask for name, mask in seen.image_masks.items() if name != last},
    )
    one = joint(plugin, params, masked, noise[0], time[0])
    np.testing.assert_allclose(joint(plugin, params, absent, noise[0], time[0]), one, atol=1e-5)
    assert np.abs(joint(plugin, params, seen, noise[0], time[0]) - one)[0].max() > 1e-3


def test_padded_prompt_tokens_are_not_seen(plugin, params, seen, chunk):
    _, noise, time = chunk
    other = np.where(seen.token_mask, seen.tokens, 1).astype(np.int32)
    assert (other != seen.tokens).any()
    one = joint(plugin, params, seen, noise[0], time[0])
    np.testing.assert_allclose(
        joint(plugin, params, with_images(seen, tokens=other), noise[0], time[0]), one, atol=1e-6
    )


@pytest.mark.slow
def test_sampling_is_eulers_rule_and_more_steps_come_nearer(plugin, params, seen, chunk):
    _, noise, _ = chunk

    def euler(steps):
        x = jnp.asarray(noise[0])
        for n in range(steps):
            time = jnp.full(2, 1.0 - n / steps, jnp.float32)
            # Values beyond the body's five joints are padding, whose velocity is the noise's own.
            v = joint(plugin, params, seen, x, time).at[:, :, 5:].set(noise[0][:, :, 5:])
            x = x - v / steps
        return x

    result = quick(partial(sample_actions, plugin, steps=5))(params, seen, noise[0])
    np.testing.assert_allclose(result, euler(5), atol=2e-5)
    near, finest = euler(13), euler(53)
    assert np.abs(near - finest).max() < np.abs(result - finest).max()


def test_the_plugin_starts_near_the_host(host, plugin, params, seen, chunk, record_property):
    """Zero tokens still take attention's mass: `paper` starts near the host, not at it."""
    _, noise, time = chunk
    shapes = jax.eval_shape(lambda: init_params(plugin, jax.random.key(0)))["morphology"]
    # Last layers at zero, the rest of the plugin as drawn.
    started = {**params, "morphology": jax.tree.map(np.copy, params["morphology"])}
    assert jax.tree.structure(started["morphology"]) == jax.tree.structure(shapes)
    for module in (started["morphology"]["encoder"]["out"], started["morphology"]["film"]["generator"]):
        module["kernel"], module["bias"] = np.zeros_like(module["kernel"]), np.zeros_like(module["bias"])
    alone = joint(host, without_body(params), with_images(seen, body=None), noise[0], time[0])
    near = joint(plugin, started, seen, noise[0], time[0])
    far = joint(plugin, params, seen, noise[0], time[0])
    distance = float(np.abs(near - alone).max() / np.abs(alone).max())
    record_property("paper_start_relative_distance", distance)
    print(f"paper start: velocity within {distance:.3f} of the host's largest")
    assert 0 < distance < 0.25
    assert distance < float(np.abs(far - alone).max() / np.abs(alone).max())


def test_fresh_parameters_of_every_last_layer_are_zero(plugin):
    def named(key):
        """The leaves looked at: to draw all of them costs half a minute of compilation."""
        fresh = init_params(plugin, key)
        layers = fresh["PaliGemma"]["llm"]["layers"]
        zeros = [fresh["morphology"]["encoder"]["out"], fresh["morphology"]["film"]["generator"]]
        zeros += [layers[f"{norm}_1"]["Dense_0"] for norm in ("pre_attention_norm", "pre_ffw_norm")]
        zeros += [fresh["PaliGemma"]["img"]["head"]]  # openpi starts the image head and adaRMS at zero
        return zeros, fresh["morphology"]["encoder"]["in"]["kernel"]

    zeros, kernel = jax.jit(named)(jax.random.key(0))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(zeros))
    assert np.asarray(kernel).all()
    fresh = jax.eval_shape(lambda: init_params(plugin, jax.random.key(0)))
    assert {leaf.dtype for leaf in jax.tree.leaves(fresh)} == {np.dtype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
def test_how_it_is_computed_changes_nothing(plugin, params, seen, chunk, cached, fused):
    actions, noise, time = map(jnp.asarray, chunk)
    config = dataclasses.replace(plugin, remat=True, unroll=True, fused_attention=fused)

    def mean(params):
        value = loss(config, params, seen, actions, noise[:1], time[:1])
        return value.mean(), value[0]

    (_, value), gradient = quick(jax.value_and_grad(mean, has_aux=True))(params)
    same(value, cached[0], 1e-6)
    same(gradient, cached[1], 5e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
def test_bfloat16_is_near_float32(plugin, params, seen, chunk):
    _, noise, time = chunk
    half = dataclasses.replace(plugin, dtype="bfloat16")
    exact = joint(plugin, params, seen, noise[0], time[0])
    result = joint(half, params, seen, noise[0], time[0])
    assert result.dtype == jnp.float32
    assert 0 < np.abs(result - exact).max() < 0.1 * np.abs(exact).max()


def test_a_model_with_kinematic_tokens_needs_a_body(plugin, params, seen, chunk):
    _, noise, time = chunk
    with pytest.raises(
        MorphVlaError, match=r"^the model has kinematic tokens, but the observation carries no body(?=\n|$)"
    ):
        joint(plugin, params, with_images(seen, body=None), noise[0], time[0])


def test_the_time_embedding_is_openpis():
    time, width = np.array([0.0, 0.25, 1.0], np.float32), 14
    periods = np.geomspace(4e-3, 4.0, 7)
    angles = 2 * np.pi * time[:, None].astype(np.float64) / periods
    wanted = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    result = pi05.time_embedding(jnp.asarray(time), width)
    np.testing.assert_allclose(result, wanted, atol=3e-4)  # float32 angles of up to 1571 rad
    np.testing.assert_array_equal(result[0], [0.0] * 7 + [1.0] * 7)


@pytest.mark.slow
def test_times_are_drawn_from_beta_and_noise_is_at_one():
    times = np.asarray(pi05.sample_time(jax.random.key(0), (997, 5)))
    assert times.min() >= 0.001
    assert times.max() <= 1.0
    assert abs(times.mean() - (0.6 * 0.999 + 0.001)) < 0.01  # Beta(1.5, 1) has mean 0.6
    actions, noise = jnp.ones((2, 3, 5)), jnp.zeros((2, 3, 5))
    x, velocity = pi05.interpolate(actions, noise, jnp.array([0.0, 1.0]))
    np.testing.assert_array_equal(x[0], actions[0])
    np.testing.assert_array_equal(x[1], noise[1])
    np.testing.assert_array_equal(velocity, noise - actions)


def test_parameters_do_not_know_how_many_joints_there_are(plugin):
    def count(joints):
        morphology = MorphologyConfig(max_joints=joints, chunks=2)
        config = dataclasses.replace(plugin, morphology=morphology)
        return pi05.count(jax.eval_shape(lambda: init_params(config, jax.random.key(0))))

    assert count(2) == count(7)
