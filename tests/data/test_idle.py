"""Rows in which nothing moves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.data import idle

PANDA = robots.load("panda")


def kept(targets, starts, least):
    """As the docstring draws it: targets of one joint, in steps of 2 mrad."""
    commands = np.zeros((len(targets), 8))
    commands[:, 3] = 0.002 * np.array(targets)
    return "".join(np.where(idle.moving(PANDA, commands, np.array(starts), least), "x", "."))


def test_runs_in_which_nothing_moves_are_left_out():
    assert kept([0, 1, 1, 1, 2, 2, 2, 2, 2, 3], [0], 3) == "xxxxx....x"
    assert kept([0, 1, 1, 1, 2, 2, 2, 2, 2, 3], [0], 2) == "xx..x....x"
    assert kept([0, 1, 1, 1, 2, 2, 2, 2, 2, 3], [0], 5) == "x" * 10


def test_an_episode_begins_with_a_row_that_is_kept():
    assert kept([1, 1, 1, 1, 1, 1], [0, 3], 2) == "x..x.."


def test_a_gripper_that_closes_moves():
    commands = np.zeros((4, 8))
    commands[:, 7] = np.linspace(0, 1, 4)
    assert idle.moving(PANDA, commands, np.array([0]), 1).all()


@given(st.lists(st.integers(0, 1), min_size=2, max_size=40), st.integers(1, 6))
def test_what_is_left_out_comes_in_runs_of_at_least_so_many(targets, least):
    lengths = [len(run) for run in kept(targets, [0], least).split("x") if run]
    assert all(length >= least for length in lengths)
    more = kept(targets, [0], least + 1)
    assert all(a == "x" for a, b in zip(more, kept(targets, [0], least), strict=True) if b == "x")


@pytest.mark.parametrize("size", [0.0009, 0.0011])
def test_a_milliradian_is_the_limit(size):
    commands = np.zeros((3, 8))
    commands[:, 0] = size * np.arange(3)
    assert idle.moving(PANDA, commands, np.array([0]), 1).tolist() == [True, size > 1e-3, size > 1e-3]


def test_what_stands_still_is_told_in_radians_whatever_the_unit():
    arm = robots.load("so101")  # in degrees
    commands = np.zeros((3, 6))
    commands[:, 0] = 0.02 * np.arange(3)  # 0.35 mrad a row
    assert idle.moving(arm, commands, np.array([0]), 1).tolist() == [True, False, False]
