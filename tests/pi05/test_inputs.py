"""What does not fit the model is refused while a program is traced: nothing is broadcast or left out."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.morphology import MorphologyConfig
from morph_vla.morphology.arrays import blank
from morph_vla.pi05 import inputs, loss, sample_actions


@pytest.fixture(autouse=True)
def without_a_type_checker():
    """As the library runs outside of these tests, whose checks of annotations refuse much of this before."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def traced(plugin, params, seen, chunk):
    """The loss's shape, of an observation and a chunk with changes."""
    actions, noise, time = chunk

    def shape(actions=actions, noise=noise, **changes):
        observation = dataclasses.replace(seen, **changes)
        return jax.eval_shape(partial(loss, plugin), params, observation, actions, noise, time).shape

    return shape


def test_what_fits_is_the_loss_of_every_value(traced, chunk):
    assert traced() == chunk[1].shape


def test_images_are_the_models(traced, seen):
    first, *others = seen.images
    image = np.asarray(seen.images[first])
    rows, size = image.shape[:2]
    misspelt = {f"{first}s": image, **{name: seen.images[name] for name in others}}
    with pytest.raises(MorphVlaError, match=rf"^images: '{first}s' is no camera .*; did you mean '{first}'"):
        traced(images=misspelt)
    with pytest.raises(
        MorphVlaError, match=rf"\['{first}'\]: has shape \({rows}, {size - 1}, .* expected \("
    ):
        traced(images={**seen.images, first: image[:, 1:]})
    with pytest.raises(MorphVlaError, match=r"^images of type int32; expected uint8, or floats in"):
        traced(images={name: np.ones(image.shape, np.int32) for name in seen.images})
    with pytest.raises(MorphVlaError, match=f"^image_masks: says nothing of '{first}', of which there are"):
        traced(image_masks={name: seen.image_masks[name] for name in others})
    with pytest.raises(
        MorphVlaError, match=rf"^image_masks\['{first}'\]: has shape \(1,\); expected \({rows},"
    ):
        traced(image_masks={**seen.image_masks, first: np.ones(1, bool)})


def test_the_prompt_is_a_row_of_tokens_for_each_and_its_mask(traced, seen):
    tokens = np.asarray(seen.tokens)
    with pytest.raises(MorphVlaError, match=rf"^tokens have shape \({tokens.shape[1]},\); expected \(rows, "):
        traced(tokens=tokens[0])
    with pytest.raises(MorphVlaError, match=r"^token_mask: has shape \(1, .*; expected \(2, "):
        traced(token_mask=np.asarray(seen.token_mask)[:1])


@pytest.mark.parametrize(
    "part",
    [
        lambda actions: actions[:1],
        lambda actions: actions[:, :1],
        lambda actions: actions[..., :1],
        lambda actions: actions[0],
        lambda actions: actions[None],
    ],
)
def test_a_part_of_the_actions_does_not_stand_for_all(part, traced, chunk):
    actions = part(np.asarray(chunk[0]))
    noise = np.asarray(chunk[1])
    if actions.ndim == 4:
        assert traced(actions=actions) == noise.shape  # the same actions for every draw: nothing is lost
        return
    with pytest.raises(
        MorphVlaError, match=r"^actions: has shape .*; expected \(2, 6, 7\) \(rows, horizon, v"
    ):
        traced(actions=actions)


def test_noise_has_the_models_sizes(traced, plugin, params, seen, chunk):
    noise = np.asarray(chunk[1])
    with pytest.raises(MorphVlaError, match=r"^noise: has shape .*; expected \(2, 6, 7\)"):
        traced(noise=noise[:, :, :5])
    with pytest.raises(MorphVlaError, match=r"^noise: has shape \(1, 6, 7\); expected \(2, 6, 7\)"):
        sample_actions(plugin, params, seen, jnp.asarray(noise[0, :1]))


def test_noise_of_half_the_width_is_integrated_in_float32(plugin, params, seen, chunk):
    noise = jnp.asarray(chunk[1][0])
    sampled = jax.eval_shape(partial(sample_actions, plugin), params, seen, noise.astype(jnp.bfloat16))
    assert sampled.dtype == jnp.float32


def test_a_body_has_the_models_places_and_stands_in_every_row(traced, seen):
    body = seen.body
    remedy = r"; make each with `policies\.of\(model\)\.body\(model, robot\)`, and `stack` one for every row"
    one_more = jax.tree.map(np.asarray, blank(MorphologyConfig(max_joints=6), 2))
    with pytest.raises(MorphVlaError, match=rf"^body\.adjacency: has shape \(2, 6, 6\); .*5\){remedy}"):
        traced(body=one_more)
    with pytest.raises(MorphVlaError, match=r"^body\.adjacency: has shape \(1, 5, 5\)"):
        traced(body=jax.tree.map(lambda leaf: leaf[:1], body))
    wider = dataclasses.replace(body, descriptors=np.zeros((2, 5, 30), np.float32))
    with pytest.raises(
        MorphVlaError, match=r"^body\.descriptors: has shape \(2, 5, 30\); expected \(2, 5, 12\)"
    ):
        traced(body=wider)


def test_positions_and_history_are_those_of_every_joint():
    config = MorphologyConfig(max_joints=5, poses="present")
    body = blank(config, 3)
    inputs.check_body(config, body, 3)
    with pytest.raises(MorphVlaError, match=r"^body\.positions: has shape \(3, 1\); expected \(3, 5\)"):
        inputs.check_body(config, dataclasses.replace(body, positions=np.zeros((3, 1), np.float32)), 3)


def test_numbers_are_as_wide_as_the_model_reads_them(host, seen):
    config = dataclasses.replace(host, environment=14)
    rows = len(seen.tokens)
    right = dataclasses.replace(
        seen, environment=np.zeros((rows, 14), np.float32), state=np.zeros((rows, 7), np.float32)
    )
    inputs.check_observation(config, right)
    narrow = dataclasses.replace(right, environment=np.zeros((rows, 7), np.float32))
    with pytest.raises(MorphVlaError, match=r"^environment: has shape \(2, 7\); expected \(2, 14\)$"):
        inputs.check_observation(config, narrow)
