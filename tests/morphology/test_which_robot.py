"""`descriptors: robot`, the control that knows which robot it drives, and nothing of what that robot is."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.morphology import KinematicTokens, MorphologyConfig, body_of, stack
from morph_vla.morphology.arrays import features_of, which
from morph_vla.morphology.film import Film
from morph_vla.pi05.counts import plugin_shapes
from morph_vla.recipes import recipe as recipes

KNOWN = ("so101", "panda", "g1_dex1")
PLACES = 17


def test_a_known_robot_is_its_own_place_and_another_one_the_mean():
    np.testing.assert_array_equal(which("panda", KNOWN), [0, 1, 0])
    np.testing.assert_allclose(
        which("sawyer", KNOWN), np.mean([which(name, KNOWN) for name in KNOWN], axis=0)
    )


def test_every_joint_says_the_same_and_padding_nothing():
    body = body_of(robots.load("panda"), PLACES, "robot", known=KNOWN)
    joints = int(np.asarray(body.joint_mask).sum())
    np.testing.assert_array_equal(body.descriptors[:joints], np.tile(which("panda", KNOWN), (joints, 1)))
    assert not np.asarray(body.descriptors)[joints:].any()


def test_it_knows_which_and_not_what():
    panda = robots.load("panda")
    joints = tuple(dataclasses.replace(joint, lower=joint.lower / 2) for joint in panda.joints)
    other_limits = dataclasses.replace(panda, joints=joints)
    other_name = dataclasses.replace(panda, name="so101")
    one, same, other = (
        np.asarray(body_of(robot, PLACES, "robot", known=KNOWN).descriptors)
        for robot in (panda, other_limits, other_name)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_an_unseen_robot_gets_the_mean_of_the_learnt_scales_and_shifts():
    film, (tokens, width) = Film(7), (5, 7)
    z = jax.random.normal(jax.random.key(0), (1, tokens, width))
    rows = {name: jnp.tile(which(name, KNOWN), (1, tokens, 1)) for name in (*KNOWN, "sawyer")}
    params = film.init(jax.random.key(1), z, rows["panda"])
    learnt = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(2), leaf.shape), params)
    seen = {name: np.asarray(film.apply(learnt, z, row)) for name, row in rows.items()}
    np.testing.assert_allclose(seen["sawyer"], np.mean([seen[name] for name in KNOWN], axis=0), atol=1e-5)
    assert not np.allclose(seen["panda"], seen["so101"], atol=0.1)


def test_the_plugin_runs_and_starts_as_tokens_do():
    config = MorphologyConfig(max_joints=PLACES, bias="none", descriptors="robot", robots=KNOWN)
    config.check(6, PLACES)
    module: Any = KinematicTokens(config, width=8, layers=2, heads=1)
    body = stack([body_of(robots.load(name), PLACES, "robot", known=KNOWN) for name in ("panda", "so101")])
    actions = jax.random.normal(jax.random.key(0), (2, 6, PLACES))
    params = module.init(jax.random.key(1), actions, body)
    assert not np.asarray(module.apply(params, actions, body).tokens).any()
    assert params["params"]["film"]["generator"]["kernel"].shape == (len(KNOWN), 2 * 8)


def recipe_of(names: tuple[str, ...], *changes: str) -> recipes.Recipe:
    entries = ", ".join(f"{{dataset: runs/{name}, robot: {name}}}" for name in names)
    data = f"data={{datasets: [{entries}]}}"
    return recipes.load(
        "panda_demo", [data, "model.action_dim=16", "model.morphology.max_joints=16", *changes]
    )


def test_a_recipe_names_the_robots_of_its_data_and_counts_a_scale_and_a_shift_of_each():
    recipe = recipe_of(("panda", "so101"), "model.morphology.descriptors=robot")
    assert recipe.model.morphology is not None
    assert recipe.model.morphology.robots == ("panda", "so101")
    assert features_of(recipe.model.morphology) == ("panda", "so101")
    shapes = plugin_shapes(recipe.model)
    assert shapes["film"]["generator"]["kernel"].shape == (2, 2 * recipe.model.expert.width)
    # Another split of the same condition has other robots.
    alone = dataclasses.replace(recipe, data=recipe_of(("so101",)).data)
    assert alone.model.morphology is not None
    assert alone.model.morphology.robots == ("so101",)
    without = recipe_of(("panda", "so101")).model.morphology
    assert without is not None
    assert without.robots == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"descriptors": "robot"},
            r"^morphology.robots: \[\] does not fit: descriptors: robot needs the names",
        ),
        (
            {"robots": ("panda",)},
            r"^morphology.robots: \['panda'\] does not fit: descriptors: paper reads no ",
        ),
        (
            {"descriptors": "robot", "robots": ("panda",), "film": False},
            r"descriptors: 'robot' has no effect",
        ),
    ],
)
def test_what_makes_no_sense(changes, words):
    with pytest.raises(ConfigError, match=words):
        MorphologyConfig(max_joints=4, **changes).check(4, 8)


def test_no_robot_to_tell_apart():
    with pytest.raises(
        MorphVlaError, match=r"^descriptors: robot needs the names of the robots that it tells"
    ):
        body_of(robots.load("panda"), PLACES, "robot")
