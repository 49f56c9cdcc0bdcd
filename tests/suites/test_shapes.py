"""Shapes: what an object is made of, whatever engine builds it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.shapes import BANANA_PIECES, DISH_SIDES, Part, parts, resting_height

THINGS = {
    "box": ObjectSpec("box", (0.03, 0.05, 0.07), 0.11),
    "open_box": ObjectSpec("open_box", (0.17, 0.13, 0.05), 0.53, wall=0.007),
    "bowl": ObjectSpec("bowl", (0.07, 0.053, 0.005), 0.31),
    "plate": ObjectSpec("plate", (0.07, 0.013, 0.005), 0.29),
    "mug": ObjectSpec("mug", (0.043, 0.071, 0.005), 0.37),
    "cylinder": ObjectSpec("cylinder", (0.023, 0.11, 0.0), 0.13),
    "sphere": ObjectSpec("sphere", (0.023, 0.0, 0.0), 0.07),
    "banana": ObjectSpec("banana", (0.17, 0.031, 0.023), 0.19),
}


def matrix(part: Part) -> np.ndarray:
    w, x, y, z = part.quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def ends(part: Part) -> np.ndarray:
    """The centres of a capsule's round ends, [2, 3]."""
    along = matrix(part)[:, 2] * part.size[1] / 2
    return np.array([np.array(part.position) - along, np.array(part.position) + along])


def lowest(part: Part) -> float:
    """The lowest point of a primitive."""
    turned, (a, b, c) = np.abs(matrix(part)[2]), part.size
    reach = {
        "box": turned @ np.array([a, b, c]) / 2,
        "cylinder": turned[2] * b / 2 + a * math.sqrt(max(0.0, 1 - turned[2] ** 2)),
        "sphere": a,
        "capsule": turned[2] * b / 2 + a,
    }
    return part.position[2] - float(reach[part.kind])


@pytest.mark.parametrize("shape", THINGS)
def test_every_shape_weighs_what_it_should_and_stands_on_the_table(shape):
    thing = THINGS[shape]
    found = parts(thing)
    assert sum(part.mass for part in found) == pytest.approx(thing.mass)
    assert len({part.name for part in found}) == len(found)
    assert all(np.linalg.norm(part.quaternion) == pytest.approx(1.0) for part in found)
    above = resting_height(thing) + min(lowest(part) for part in found)
    sunk = 0.005 if shape == "plate" else 0.0  # the feet of a leaning rim reach below its floor
    assert -sunk < above < 0.001


@given(length=st.floats(0.1, 0.3), thickness=st.floats(0.01, 0.05), rise=st.floats(0.0, 0.04))
def test_a_bananas_pieces_join_and_have_its_length_and_rise(length, thickness, rise):
    pieces = parts(ObjectSpec("banana", (length, thickness, rise), 0.1))
    assert len(pieces) == BANANA_PIECES
    joints = [ends(piece) for piece in pieces]
    middle = joints[1]
    assert middle[:, 1:] == pytest.approx(np.zeros((2, 2)), abs=1e-12)  # along x, through the origin
    for side, place in ((0, np.argmin(middle[:, 0])), (2, np.argmax(middle[:, 0]))):
        gaps = np.linalg.norm(joints[side] - middle[place], axis=1)
        assert min(gaps) == pytest.approx(0.0, abs=1e-9)
    every = np.concatenate(joints)
    assert np.ptp(every[:, 0]) + thickness == pytest.approx(length)
    # The rise is the arc's; its middle chord lies at 8/9 of it where the arc is flat, below elsewhere.
    half = 2 * math.atan2(rise, (length - thickness) / 2)
    share = (math.cos(half / 3) - math.cos(half)) / (1 - math.cos(half)) if half > 1e-3 else 8 / 9
    assert np.ptp(every[:, 1]) == pytest.approx(share * rise, abs=1e-6)


def test_a_mug_is_round_inside_with_a_handle_outside():
    radius, height, wall = THINGS["mug"].size
    found = {part.name: part for part in parts(THINGS["mug"])}
    assert len(found) == 1 + DISH_SIDES + 3
    for name, part in found.items():
        if name.startswith("handle"):
            low, high = (np.array(part.position) + sign * np.array(part.size) / 2 for sign in (-1, 1))
            assert low[0] >= radius + wall / 2 - wall  # nothing reaches into the mug
            assert 0 < low[2] < high[2] < height
