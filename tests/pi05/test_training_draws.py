"""What openpi draws from a training step's key, and its loss: ours are equal, a mistake is noticed."""

import dataclasses

import jax
import numpy as np
import pytest
from recorded import (
    FOLDER,
    Golden,
    off,
    quick,
    trained,
)

from morph_vla.pi05 import model as pi05
from morph_vla.pi05.augmentation import augment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ordinary():
    return Golden("pi05_odd")


def draws(alpha: float = 1.5, beta: float = 1.0, scale: float = 0.999, shift: float = 0.001, part: int = 2):
    """The times of a loss from its key, or of a mistake in them."""
    key = jax.random.split(jax.random.key(5), 3)[part]
    return jax.random.beta(key, alpha, beta, (2,)) * scale + shift


@pytest.fixture(scope="module")
def training():
    """What openpi's `compute_loss(key(5), ..., train=True)` drew and found, on the ordinary file's inputs."""
    with np.load(FOLDER / "preprocessing.npz") as data:
        return {name: data[f"train/{name}"] for name in ("time", "x_t", "loss")}


def test_the_times_are_openpis_and_a_mistake_in_them_is_noticed(training):
    key = jax.random.split(jax.random.key(5), 3)
    assert off(pi05.sample_time(key[2], (2,)), training["time"]) < 1
    assert off(draws(), training["time"]) < 1
    for mistake in (draws(alpha=1.0), draws(1.0, 1.5), draws(scale=1.0, shift=0.0), draws(part=1)):
        assert off(mistake, training["time"]) > 10
    assert off(1 - draws(), training["time"]) > 10


def whole_loss(params, seen, actions, key, train=True):
    """A training loss as openpi computes it from one key: augmentation, noise, times."""
    image_key, noise_key, time_key = jax.random.split(key, 3)
    if train:
        images = {name: augment(image_key, image, name) for name, image in seen.images.items()}
        seen = dataclasses.replace(seen, images=images)
    noise = jax.random.normal(noise_key, actions.shape)
    return trained(params, seen, actions, noise, pi05.sample_time(time_key, actions.shape[:1]))


def test_a_whole_training_loss_is_openpis(ordinary, training):
    actions, _, _ = ordinary.chunk
    key = jax.random.split(jax.random.key(5), 3)
    x_t, _ = pi05.interpolate(
        actions, jax.random.normal(key[1], actions.shape), pi05.sample_time(key[2], (2,))
    )
    assert off(x_t, training["x_t"]) < 1
    whole = quick(whole_loss, static_argnames="train")
    assert off(whole(ordinary.params, ordinary.seen, actions, jax.random.key(5)), training["loss"]) < 5
    # ... and not without its augmentation.
    plain = whole(ordinary.params, ordinary.seen, actions, jax.random.key(5), train=False)
    assert off(plain, training["loss"]) > 10
