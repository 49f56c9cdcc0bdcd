"""Descriptors as FiLM reads them: the paper's raw values, or the same counted from fixed centres."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.morphology import KinematicTokens, MorphologyConfig, body_of, stack
from morph_vla.morphology.film import CENTRE, SCALE, standardised
from morph_vla.robots.descriptors import NAMES, ContactDefaults

BODY = stack([body_of(robots.load(name), 17) for name in ("panda", "so101", "g1_dex1")])


def test_what_a_file_does_not_state_is_zero():
    stated = ContactDefaults()
    defaults = {
        "damping_log": np.log(stated.damping),
        "friction_anchor": float(stated.friction_anchor),
        "lateral_friction": stated.lateral_friction,
        "spinning_friction": stated.spinning_friction,
        "stiffness_log": np.log(stated.stiffness),
    }
    row = np.array([[[defaults.get(name, 0.0) for name in NAMES]]], np.float32)
    np.testing.assert_allclose(standardised(jnp.asarray(row), jnp.ones((1, 1), bool)), 0, atol=1e-6)
    assert (SCALE > 0).all()
    np.testing.assert_array_equal(CENTRE[:7], 0)


def test_the_papers_example_row_is_seven_times_smaller():
    row = np.array([0, 1, 0, 0, 1, -2.9671, 2.9671, 6.90776, 1, 1, 0.1, 10.30895], np.float32)
    result = standardised(jnp.asarray(row[None, None]), jnp.ones((1, 1), bool))
    assert np.abs(row).sum() == pytest.approx(27.25, abs=0.01)
    assert float(jnp.abs(result).sum()) == pytest.approx(3.889, abs=1e-3)


def test_padding_stays_zero_and_nothing_is_lost():
    features, mask = jnp.asarray(BODY.descriptors), jnp.asarray(BODY.joint_mask)
    result = np.asarray(standardised(features, mask))
    assert not np.asarray(mask).all()
    np.testing.assert_array_equal(result[~np.asarray(mask)], 0)
    back = result * SCALE + CENTRE
    np.testing.assert_allclose(back[np.asarray(mask)], np.asarray(features)[np.asarray(mask)], atol=1e-5)


def test_the_model_reads_them_so():
    """As raw ones of a body whose descriptors were standardised before; the parameters are the same."""
    raw = MorphologyConfig(max_joints=17, chunks=2, auxiliary=1)
    changed = dataclasses.replace(raw, descriptors="standardised")
    actions = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6, 19)), jnp.float32)
    shapes = jax.eval_shape(KinematicTokens(raw, 13, 2, 3).init, jax.random.key(0), actions, BODY)
    source = np.random.default_rng(1)
    params: Any = jax.tree.map(lambda x: source.normal(size=x.shape).astype(np.float32), shapes)

    def tokens(config: MorphologyConfig, body: Any) -> Any:
        made: Any = KinematicTokens(config, 13, 2, 3).apply(params, actions, body)
        return made.tokens

    before = dataclasses.replace(
        BODY, descriptors=standardised(jnp.asarray(BODY.descriptors), jnp.asarray(BODY.joint_mask))
    )
    np.testing.assert_array_equal(tokens(changed, BODY), tokens(raw, before))
    assert np.abs(tokens(changed, BODY) - tokens(raw, BODY)).max() > 1
