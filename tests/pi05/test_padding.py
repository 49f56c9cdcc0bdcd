"""Action values that a robot lacks: in sampling they walk where training had them, whatever is predicted.

Training pads actions with 0, so x_t of a padded value is t * noise. What the model says of it has no loss
(`loss_over: real`), and must not come back as its input.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.pi05 import Pi05, flow, sample_actions, sampling

# Compiling is most of these tests' time.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

STEPS, REAL = 3, 5  # of seven action values; the plugin's robots have five joints


@pytest.fixture(scope="module", params=["body", "host"])
def padded(request, plugin, host, params, seen):
    """(config, parameters, observation, what says which values are real) with and without a body."""
    if request.param == "body":
        return plugin, params, seen, None
    alone = {name: value for name, value in params.items() if name != "morphology"}
    real = np.broadcast_to(np.arange(7) < REAL, (2, 7))
    return host, alone, dataclasses.replace(seen, body=None), real


def sampled(padded: Any, noise: Any, **changes: Any) -> np.ndarray:
    config, params, seen, real = padded
    call = quick(partial(sample_actions, config, steps=STEPS))
    return np.asarray(call({**params, **changes}, seen, noise, real=real))


def other_velocities(params: Any) -> dict[str, Any]:
    """An output that says something else of the values that are padding."""
    projection = jax.tree.map(np.copy, params["action_out_proj"])
    projection["kernel"][:, REAL:] += 3.0
    projection["bias"][REAL:] -= 7.0
    return {"action_out_proj": projection}


@pytest.mark.slow
def test_what_is_predicted_of_padding_changes_nothing(padded, chunk):
    noise = chunk[1][0]
    result = sampled(padded, noise)
    np.testing.assert_array_equal(sampled(padded, noise, **other_velocities(padded[1])), result)
    np.testing.assert_array_equal(result[:, :, REAL:], 0)
    assert np.abs(result[:, :, :REAL]).min() > 0


@pytest.mark.slow
def test_every_step_is_fed_what_training_fed(padded, chunk, monkeypatch):
    """x_t of padded values is what `interpolate` makes of actions that are 0 there."""
    noise, fed = chunk[1][0], []
    apply = sampling.apply

    def noted(config: Any, params: Any, method: Any, *inputs: Any) -> Any:
        if method is Pi05.velocity:
            jax.debug.callback(lambda *values: fed.append(values), inputs[2], inputs[3], ordered=True)
        return apply(config, params, method, *inputs)

    monkeypatch.setattr(sampling, "apply", noted)
    sampled(padded, noise)
    jax.effects_barrier()
    assert [float(time[0]) for _, time in fed] == pytest.approx([1, 2 / 3, 1 / 3])
    for x_t, time in fed:
        trained, _ = flow.interpolate(jnp.zeros_like(noise), jnp.asarray(noise), time)
        np.testing.assert_array_equal(x_t[:, :, REAL:], trained[:, :, REAL:])


@pytest.mark.slow
def test_padding_without_noise_is_a_model_without_padding(padded, chunk):
    config, params, seen, real = padded
    noise = chunk[1][0].copy()
    noise[:, :, REAL:] = 0
    narrow = {
        **params,
        "action_in_proj": {**params["action_in_proj"], "kernel": params["action_in_proj"]["kernel"][:REAL]},
        "action_out_proj": jax.tree.map(lambda leaf: leaf[..., :REAL], params["action_out_proj"]),
    }
    small = dataclasses.replace(config, action_dim=REAL)
    bare = None if real is None else real[:, :REAL]
    wanted = sampled((small, narrow, seen, bare), noise[:, :, :REAL])
    np.testing.assert_allclose(sampled(padded, noise)[:, :, :REAL], wanted, atol=1e-5)


def test_without_a_mask_the_host_integrates_all_values(host, params, seen, chunk):
    """openpi's sampler: what is predicted of every value comes back."""
    alone = {name: value for name, value in params.items() if name != "morphology"}
    bare = (host, alone, dataclasses.replace(seen, body=None), None)
    noise = chunk[1][0]
    result = sampled(bare, noise)
    assert np.abs(result[:, :, REAL:]).min() > 0
    assert np.abs(sampled(bare, noise, **other_velocities(alone)) - result).max() > 1e-2


def test_rows_have_their_own_padding(plugin, params, seen, body, chunk):
    """Two robots in one batch: of the second, joints three and four are padding too."""
    five, three = body(REAL), body(3, REAL)
    mixed = jax.tree.map(lambda one, other: np.stack([one[0], other[1]]), five, three)
    values = np.asarray(sampling.joint_values(mixed, 7))
    np.testing.assert_array_equal(values, np.arange(7) < np.array([[5], [3]]))
    result = sampled((plugin, params, dataclasses.replace(seen, body=mixed), None), chunk[1][0])
    np.testing.assert_array_equal(np.abs(result).min(axis=1) > 0, values)
    np.testing.assert_array_equal(np.abs(result).max(axis=1) > 0, values)
