"""A model with `delay_max` is given the first actions of its chunk, at a time of their own."""

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from morph_vla.errors import ConfigError
from morph_vla.morphology import MorphologyConfig
from morph_vla.morphology.tokens import known_tokens
from morph_vla.pi05 import loss, modulations, sample_actions
from morph_vla.pi05.model import Pi05
from morph_vla.pi05.realtime import Previous, given, rows_of

pytestmark = pytest.mark.slow
STEPS, MOST = 7, 4
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(
    scope="module",
    params=["body", *(pytest.param(name, marks=pytest.mark.slow) for name in ("exact", "host"))],
)
def model(request, plugin, host, params, seen):
    """(config, parameters, what is seen), trained to go on from up to four of six actions."""
    if request.param == "host":
        alone = {name: value for name, value in params.items() if name != "morphology"}
        return dataclasses.replace(host, delay_max=MOST), alone, dataclasses.replace(seen, body=None)
    if request.param == "exact":
        gate = np.full((plugin.depth, plugin.heads), 0.3, np.float32)
        params = {**params, "morphology": {**params["morphology"], "gate": gate}}
        plugin = dataclasses.replace(
            plugin, morphology=dataclasses.replace(plugin.morphology, start="exact", auxiliary=0)
        )
    return dataclasses.replace(plugin, delay_max=MOST), params, seen


@pytest.fixture(scope="module")
def sample(model):
    """The model's answer, traced once for each kind of arguments."""
    return quick(partial(sample_actions, model[0], steps=STEPS))


@pytest.fixture(scope="module")
def squares(model):
    """The model's loss, likewise."""
    return quick(partial(loss, model[0]))


def counts(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def test_tokens_are_known_where_all_their_rows_are():
    """Two chunks of three rows, three joints, one auxiliary token each: chunk 0's tokens, then chunk 1's."""
    config = MorphologyConfig(max_joints=3, chunks=2, auxiliary=1)
    known = np.asarray(known_tokens(rows_of(counts(0, 2, 3, 5, 6), 6), config))
    drawn = {0: "......", 2: "......", 3: "xxx...", 5: "xxx...", 6: "xxxxxx"}
    for row, letters in zip(known, drawn.values(), strict=True):
        np.testing.assert_array_equal(row, np.array(list(2 * letters)) == "x")


def test_what_is_given_is_executed_meanwhile_is_there_and_was_learnt():
    previous = Previous(np.zeros((4, 6, 1), np.float32), counts(0, 3, 5, 6), counts(6, 2, 6, 6))
    np.testing.assert_array_equal(given(previous, MOST), [0, 2, 4, 4])


def test_a_model_that_is_given_nothing_is_the_plain_one(model, sample, squares, chunk):
    """Its velocity, its loss, and its answer."""
    config, params, seen = model
    actions, noise, time = chunk
    zeros = np.zeros_like(time, np.int32)
    plain = dataclasses.replace(config, delay_max=0)
    wanted = quick(partial(loss, plain))(params, seen, actions, noise, time)
    result = squares(params, seen, actions, noise, time, given=zeros)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6)
    nothing = Previous(actions, counts(2, 0), counts(0, 0))
    plainly = quick(partial(sample_actions, plain, steps=STEPS))
    answers = [
        answer(params, seen, noise[0], previous=previous)
        for answer, previous in ((plainly, None), (sample, None), (sample, nothing))
    ]
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_allclose(answers[2], answers[0], rtol=2e-5, atol=2e-6)


def test_given_actions_come_back_as_they_are_and_decide_the_others(model, sample, chunk):
    _, params, seen = model
    actions, noise, _ = chunk
    real = np.arange(7) < counts(5, 5)[:, None]

    def answered(rows: Any) -> np.ndarray:
        previous = Previous(rows, counts(3, 2), counts(3, 2))
        return np.asarray(sample(params, seen, noise[0], real=real, previous=previous))

    answer = answered(actions)
    np.testing.assert_array_equal(answer[0, :3, :5], actions[0, :3, :5])
    np.testing.assert_array_equal(answer[1, :2, :5], actions[1, :2, :5])
    np.testing.assert_array_equal(answer[..., 5:], 0)
    # Later ones are not given: they change nothing. Those that are given do.
    later, sooner = actions.copy(), actions.copy()
    later[0, 3:] += 1
    later[1, 2:] += 1
    later[..., 5:] += 11
    sooner[:, 0] += 1
    same, other = answered(later), answered(sooner)
    np.testing.assert_array_equal(same[0], answer[0])
    np.testing.assert_array_equal(same[1], answer[1])
    assert (np.abs(other - answer)[:, 3:, :5].max(axis=(1, 2)) > 1e-3).all()


def test_rows_of_a_batch_are_given_each_its_own_and_nothing_compiles_anew(model, sample, chunk):
    _, params, seen = model
    actions, noise, _ = chunk

    def answered(*delays: int) -> np.ndarray:
        previous = Previous(actions, counts(*delays), counts(6, 6))
        return np.asarray(sample(params, seen, noise[0], previous=previous))

    first, programs = answered(1, 1), sample._cache_size()
    second, mixed = answered(3, 3), answered(1, 3)
    np.testing.assert_array_equal(mixed, np.stack([first[0], second[1]]))
    assert sample._cache_size() == programs


def test_the_modulations_computed_before_are_those_of_both_times(model, sample, chunk):
    config, params, seen = model
    actions, noise, _ = chunk
    table = modulations(config, params, STEPS)
    assert len(table.final) == STEPS + 1
    for previous in (None, Previous(actions, counts(2, 4), counts(6, 6))):
        wanted = sample(params, seen, noise[0], previous=previous)
        result = sample(params, seen, noise[0], previous=previous, modulations=table)
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_given_rows_have_a_time_of_their_own_in_the_joint_pass_too(model, chunk):
    """The pass through the cache equals the joint one; and the time of a row that is given is 0."""
    config, params, seen = model
    actions, _, time = chunk
    known = counts(2, 4)
    apply: Any = quick(Pi05(config).apply, static_argnames="method")
    cache, mask = apply({"params": params}, seen, method=Pi05.prefix)
    cached = apply(
        {"params": params}, cache, mask, actions, time[0], seen.body, given=known, method=Pi05.velocity
    )
    joint = apply({"params": params}, seen, actions, time[0], given=known, method=Pi05.velocity_joint)
    np.testing.assert_allclose(cached, joint, rtol=1e-4, atol=1e-5)
    everything = counts(config.horizon, config.horizon)
    clean = [
        apply({"params": params}, seen, actions, t, given=everything, method=Pi05.velocity_joint)
        for t in (time[0], time[1])
    ]
    np.testing.assert_array_equal(*clean)
    at_zero = apply({"params": params}, seen, actions, 0 * time[0], method=Pi05.velocity_joint)
    np.testing.assert_allclose(clean[0], at_zero, rtol=1e-4, atol=1e-5)


def test_the_loss_is_that_of_the_rows_that_are_not_given(model, squares, chunk):
    """It has no part in the noise, the target or the slope of those that are."""
    config, params, seen = model
    actions, noise, time = chunk
    known = np.stack([counts(2, 4), counts(0, 1), counts(3, 3)])
    rows = np.asarray(rows_of(known, config.horizon))
    errors = np.asarray(squares(params, seen, actions, noise, time, given=known))
    np.testing.assert_array_equal(errors[rows], 0)
    assert (errors[~rows] > 0).all()
    other = np.where(rows[..., None], noise + 3, noise)
    np.testing.assert_array_equal(squares(params, seen, actions, other, time, given=known), errors)


@pytest.mark.parametrize("most", [-1, 6])
def test_a_chunk_is_never_given_whole(host, most):
    sentence = f"model.delay_max: {most} actions are given of a chunk of 6 .model.horizon.; expected 0 to 5"
    with pytest.raises(ConfigError, match=sentence):
        dataclasses.replace(host, delay_max=most).check()
