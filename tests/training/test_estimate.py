"""The paper estimate: its limits, and the one step that was measured."""

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, counts
from morph_vla.recipes.keys import Training
from morph_vla.training import estimate

MODEL = Pi05Config(horizon=16)
EXPERT = Training(steps=1, batch=32, kind="expert")
LEARNT, ALL = 430_098_464, 3_353_433_872


def of(devices, fsdp=1, training=EXPERT):
    return estimate.step_time(MODEL, training, LEARNT, ALL, devices, fsdp)


def test_one_device_takes_the_measured_rate_and_sends_nothing():
    work = counts.training_step(MODEL, 32, 1, "expert")
    assert of(1).most == pytest.approx(work / 143.3e12 * 0.2857)
    assert of(1).sending == 0


def test_computing_falls_with_the_devices_and_sending_does_not():
    result = [of(devices) for devices in (1, 2, 4, 8, 16, 32)]
    assert [one.computing * one.devices for one in result] == pytest.approx([result[0].computing] * 6)
    sent = [one.sending for one in result]
    assert sent == sorted(sent)
    assert all(max(one.computing, one.sending) == one.least <= one.most for one in result)


def test_an_all_reduce_by_hand():
    # 2 (d - 1) / d of 4 bytes a gradient at 450 GB/s within a host
    assert of(8).sending == pytest.approx(2 * 7 / 8 * 4 * LEARNT / 450e9)
    # groups of 8 on two hosts: gathered in bfloat16 twice, scattered, then an eighth across hosts
    both = 7 / 8 * (2 * 2 * ALL + 4 * LEARNT) / 450e9 + 2 * 1 / 2 * 4 * LEARNT / 8 / 50e9
    assert of(16, 8).sending == pytest.approx(both)


def test_what_cannot_be_is_said():
    with pytest.raises(MorphVlaError, match="6 devices cannot be grouped by fsdp 4"):
        of(6, 4)
    with pytest.raises(MorphVlaError, match="32 rows cannot be split over 64 devices evenly; 64 can"):
        of(64)
