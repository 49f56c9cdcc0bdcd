"""A joint's past as low Fourier modes: what they are, what tokens make of them, and what makes no sense."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.morphology import Body, KinematicTokens, MorphologyConfig
from morph_vla.morphology.arrays import blank
from morph_vla.morphology.config import History
from morph_vla.morphology.history import low_modes, waves

WIDTH, JOINTS = 13, 5
PAST = History(steps=7, modes=3)
CONFIG = MorphologyConfig(max_joints=JOINTS, bias="full", auxiliary=1, history=PAST)


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def body(config: MorphologyConfig = CONFIG, seed: int = 1) -> Body:
    """A chain in both rows, with a past."""
    given, near = blank(config, 2), np.abs(np.subtract.outer(np.arange(JOINTS), np.arange(JOINTS))) < 2
    history = None if config.history is None else normal(2, config.history.steps, JOINTS, seed=seed)
    adjacency, descriptors = jnp.asarray(np.stack([near] * 2)), normal(*given.descriptors.shape, seed=3)
    return dataclasses.replace(given, adjacency=adjacency, descriptors=descriptors, history=history)


def made(config: MorphologyConfig = CONFIG) -> tuple[KinematicTokens, Any, Any]:
    """The module and its first parameters, and others none of which is zero."""
    module = KinematicTokens(config, WIDTH, 2, 3)
    params: Any = jax.jit(module.init)(jax.random.key(0), normal(2, 6, JOINTS), body(config))["params"]
    rng = np.random.default_rng(4)
    return module, params, jax.tree.map(lambda x: (0.3 * rng.normal(size=x.shape)).astype(np.float32), params)


def tokens(module: KinematicTokens, params: Any, seen: Body, actions: Any = None) -> np.ndarray:
    actions = normal(2, 6, JOINTS) if actions is None else actions
    given: Any = jax.jit(module.apply)({"params": params}, actions, seen)
    return np.asarray(given.tokens)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 13), st.integers(1, 7), st.integers(0, 99))
def test_they_are_the_modes_of_the_window(steps, modes, seed):
    """Equation 8 as it is written: the sum over s steps back, turned by s + 1."""
    modes = min(modes, 1 + steps // 2)
    window = np.random.default_rng(seed).normal(size=steps)
    spectrum = [
        sum(window[-1 - s] * np.exp(2j * np.pi * k * (s + 1) / steps) for s in range(steps)) / steps
        for k in range(modes)
    ]
    config = History(steps=steps, modes=modes)
    values = window @ waves(config)
    assert values.shape == (config.values,)
    np.testing.assert_allclose(values[:modes], np.real(spectrum), atol=1e-6)
    np.testing.assert_allclose(values[modes:], np.imag(spectrum)[1:][: config.values - modes], atol=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
def test_all_modes_of_a_window_are_the_window(steps):
    every = History(steps=steps, modes=1 + steps // 2)
    assert every.values == np.linalg.matrix_rank(waves(every)) == steps


def test_one_position_is_the_present_and_a_joint_at_rest_has_its_place_alone():
    present = normal(2, 1, JOINTS)
    np.testing.assert_array_equal(
        low_modes(History(steps=1, modes=1), present)[..., 0], np.asarray(present)[:, 0]
    )
    resting = jnp.broadcast_to(present, (2, PAST.steps, JOINTS))
    values = np.asarray(low_modes(PAST, resting))
    np.testing.assert_allclose(values[..., 0], np.asarray(present)[:, 0], rtol=1e-6)
    np.testing.assert_allclose(values[..., 1:], 0, atol=1e-6)


def test_it_is_off_by_default_and_begins_as_without_it_bit_for_bit():
    module, params, _ = made()
    plain = dataclasses.replace(CONFIG, history=None)
    assert MorphologyConfig().history is None
    without, rest, _ = made(plain)
    assert params.keys() - rest.keys() == {"history"}
    same = jax.tree.map(np.array_equal, {name: params[name] for name in rest}, rest)
    assert jax.tree.all(same)
    drawn = made(plain)[2]
    fresh = {**drawn, "history": params["history"]}
    np.testing.assert_array_equal(tokens(module, fresh, body()), tokens(without, drawn, body(plain)))


def test_permuting_joints_permutes_tokens():
    module, _, params = made()
    order, seen, actions = np.array([3, 0, 4, 1, 2]), body(), normal(2, 6, JOINTS)
    there: Any = seen
    moved = dataclasses.replace(
        seen,
        adjacency=there.adjacency[:, order][:, :, order],
        distances=there.distances[:, order][:, :, order],
        descriptors=there.descriptors[:, order],
        history=there.history[:, :, order],
    )
    before = tokens(module, params, seen, actions).reshape(2, -1, JOINTS, WIDTH)
    after = tokens(module, params, moved, actions[:, :, order]).reshape(2, -1, JOINTS, WIDTH)
    np.testing.assert_allclose(after, before[:, :, order], atol=1e-6)


def test_a_token_reads_its_own_joints_past_alone():
    module, _, params = made()
    seen, there = body(), np.asarray(body().history).copy()
    there[:, 2, 3] += 1
    changed = tokens(module, params, dataclasses.replace(seen, history=there)) - tokens(module, params, seen)
    moved = np.abs(changed).max(axis=(0, 2)).reshape(-1, JOINTS) > 1e-4
    assert moved.tolist() == [[False, False, False, True, False]] * CONFIG.copies


def test_a_body_without_a_past_is_refused():
    module, _, params = made()
    words = r"reads where each joint was \(morphology\.history\), but the observation's body carries no past"
    with pytest.raises(MorphVlaError, match=words):
        tokens(module, params, dataclasses.replace(body(), history=None))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"history": History(steps=0)}, "history.steps: must be at least 1, not 0"),
        ({"history": History(stride=0)}, "history.stride: must be at least 1, not 0"),
        ({"history": History(steps=7, modes=5)}, "history.modes: 7 positions have 1 to 4 modes, not 5"),
        ({"history": History(modes=0)}, "history.modes: 8 positions have 1 to 5 modes, not 0"),
        (
            {"history": History(), "control": "tokens", "bias": "none", "film": False},
            "history: makes no sense with control: tokens, whose tokens belong to no joint; leave it out",
        ),
    ],
)
def test_choices_that_make_no_sense(changes, words):
    with pytest.raises(ConfigError, match=f"^morphology.{words}$"):
        MorphologyConfig(max_joints=5, **changes).check(6, 5)
