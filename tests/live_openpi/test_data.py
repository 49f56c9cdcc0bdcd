"""The configurations' data in openpi's own transforms: a sample to the model, its actions back."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.hosts.openpi import packing, recipes
from morph_vla.morphology import body_of

LENGTH = 23


class Words:
    """In the place of openpi's tokenizer, which downloads a file."""

    def __init__(self, length):
        self.length = length

    def tokenize(self, prompt, state):
        assert prompt == "lift it"
        return np.full(self.length, len(state)), np.ones(self.length, bool)


@pytest.fixture(scope="module")
def made(openpi, tmp_path_factory):
    """`made(name)`: the TrainConfig and its data's configuration, statistics taken from nowhere."""
    from morph_vla.hosts.openpi import configs

    configs.register()
    patch = pytest.MonkeyPatch()
    patch.setattr(openpi.tokenizer, "PaligemmaTokenizer", Words)
    empty = tmp_path_factory.mktemp("assets")

    def make(name):
        train = configs._config.get_config(name)
        assets = dataclasses.replace(train.data.assets, assets_dir=str(empty))
        factory = dataclasses.replace(train.data, assets=assets, repo_id="me/mine")
        return train, factory.create(empty, train.model)

    yield make
    patch.undo()


def sample(recipe, rng):
    """A row of the dataset, as LeRobot gives it."""
    joints = len(robots.load(recipe.robot).joints)
    frame = rng.uniform(0, 1, (3, 31, 43)).astype(np.float32)
    actions = rng.normal(size=(recipe.horizon, joints)).astype(np.float32)
    state = rng.normal(size=joints).astype(np.float32)
    if recipe.data == "droid":
        views = ("exterior_image_1_left", "exterior_image_2_left", "wrist_image_left")
        return {
            **dict.fromkeys(views, frame), "joint_position": state[:7], "gripper_position": state[7:],
            "actions": actions, "prompt": "lift it",
        }, state, actions  # fmt: skip
    views = dict.fromkeys(filter(None, recipe.cameras), frame)
    return {**views, recipe.state: state, recipe.actions: actions.copy(), "prompt": "lift it"}, state, actions


@pytest.mark.parametrize("name", ["pi05_morph_droid", "pi05_morph_g1", "pi05_morph_so101"])
def test_a_sample_becomes_an_observation_and_its_actions_come_back(openpi, made, name):
    recipe = recipes.load(name)
    train, data = made(name)
    row, state, actions = sample(recipe, np.random.default_rng(3))
    groups = (data.repack_transforms, data.data_transforms, data.model_transforms)
    result = openpi.transforms.compose([step for group in groups for step in group.inputs])(row)

    places, width = train.model.morphology.max_joints, train.model.action_dim
    assert result["state"].shape == (width + packing.width(places),)
    np.testing.assert_allclose(result["state"][: len(state)], state, atol=1e-6)
    body = packing.unpack(jnp.asarray(result["state"])[None], width, places)
    np.testing.assert_array_equal(body.distances[0], body_of(robots.load(recipe.robot), places).distances)
    assert {name: bool(mask) for name, mask in result["image_mask"].items()} == {
        key: (recipe.data == "droid" and key != "right_wrist_0_rgb") or bool(camera)
        for key, camera in zip(openpi.model.IMAGE_KEYS, recipe.cameras, strict=True)
    }
    assert {image.shape for image in result["image"].values()} == {(224, 224, 3)}
    assert result["actions"].shape == (recipe.horizon, width)
    assert (result["actions"][:, len(state) :] == 0).all()

    out = openpi.transforms.compose([*data.model_transforms.outputs, *data.data_transforms.outputs])(
        {"state": result["state"], "actions": result["actions"].copy()}
    )
    np.testing.assert_allclose(out["actions"], actions, atol=1e-6)
    if recipe.data == "lerobot":  # joints as differences from the state, grippers as they are
        arm = len(state) - recipe.grippers
        np.testing.assert_allclose(result["actions"][:, :arm], actions[:, :arm] - state[:arm], atol=1e-6)
        np.testing.assert_allclose(result["actions"][:, arm : len(state)], actions[:, arm:], atol=1e-6)


def test_a_request_may_name_its_robot(openpi, made):
    train, data = made("pi05_morph_droid")
    request = {
        "observation/exterior_image_1_left": np.zeros((9, 9, 3), np.uint8),
        "observation/wrist_image_left": np.zeros((9, 9, 3), np.uint8),
        "observation/joint_position": np.zeros(7), "observation/gripper_position": np.zeros(1),
        "prompt": "lift it", "robot": "so101",
    }  # fmt: skip
    groups = (data.data_transforms, data.model_transforms)
    result = openpi.transforms.compose([step for group in groups for step in group.inputs])(request)
    model = train.model
    body = packing.unpack(jnp.asarray(result["state"])[None], model.action_dim, model.morphology.max_joints)
    assert int(body.joint_mask.sum()) == len(robots.load("so101").joints)
    assert "robot" not in result


def test_unknown_names_name_the_nearest(made):
    from morph_vla.hosts.openpi import configs

    train, _ = made("pi05_morph_so101")
    with pytest.raises(MorphVlaError, match=r"so100.*did you mean 'so101'\?"):
        dataclasses.replace(train.data, robot="so100").create(train.assets_dirs, train.model)
    known = configs.register()
    assert {"pi05_droid", "pi05_morph_droid"} <= set(known)
    with pytest.raises(MorphVlaError, match=r"no configuration 'pi05_libera'; did you mean 'pi05_libero'\?"):
        recipes.check_name("pi05_libera", known)


def test_a_robot_that_droid_has_no_values_for_is_refused(made):
    from morph_vla.hosts.openpi import configs

    train, _ = made("pi05_morph_droid")
    assert train.policy_metadata == {"robot": "panda", "action_space": "joint_velocity"}
    factory = configs.DroidDataConfig(robot="so101", base_config=train.data.base_config)
    words = (
        r"^data: droid has 8 values, and robot 'so101' has 6 joints; name another robot, or data: lerobot$"
    )
    with pytest.raises(MorphVlaError, match=words):
        factory.create(train.assets_dirs, train.model)
