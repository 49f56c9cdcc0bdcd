"""What two devices are held against each other by depends on all that they compute."""

import dataclasses

import jax
import numpy as np
import pytest

from benchmarks import parity, subject

pytestmark = pytest.mark.slow


@pytest.fixture
def here():
    with jax.numpy_dtype_promotion("standard"):
        yield jax.devices()[0]


@pytest.mark.long
def test_every_number_depends_on_pictures_and_none_is_zero(here, monkeypatch):
    wanted = parity.numbers("small", "float32", here)
    assert all(np.abs(values).max() > 0 for values in wanted.values())
    rows = parity.compared(wanted, parity.numbers("small", "float32", here), 2e-4)
    assert {row["apart"] for row in rows} == {0.0}

    def darker(config, rows):
        observation, *others = subject.batch_of(config, rows)
        images = {name: image // 2 for name, image in observation.images.items()}
        return dataclasses.replace(observation, images=images), *others

    monkeypatch.setattr(parity, "batch_of", darker)
    others = parity.compared(wanted, parity.numbers("small", "float32", here), 2e-4)
    assert not [row["what"] for row in others if row["what"] != "the encoder of joints" and row["within"]]


def test_zeros_on_both_sides_say_nothing():
    (row,) = parity.compared({"gradient": np.zeros(3)}, {"gradient": np.zeros(3)}, 2e-4)
    assert not row["within"]
