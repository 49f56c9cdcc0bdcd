"""Rows before a grasp or a release, from the gripper's commands."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.data import phases
from morph_vla.errors import ConfigError, MorphVlaError


def drawn_as(closed, last):
    ahead = phases.ahead(np.array(closed, float), np.array(last))
    return "".join(".gr"[kind] for kind in ahead.kind), ahead.steps.tolist()


def test_a_row_lies_before_the_next_change_of_the_gripper():
    closed = np.array([0.0, 0, 1, 1, 0, 0, 1, 1])[:, None]
    assert drawn_as(closed, [7] * 8) == ("ggrrgg..", [2, 1, 2, 1, 2, 1, 0, 0])


def test_a_change_between_episodes_does_not_count():
    closed = np.array([0.0, 1, 0, 0, 1, 1, 0])[:, None]
    assert drawn_as(closed, [3, 3, 3, 3, 6, 6, 6]) == ("gr..rr.", [1, 1, 0, 0, 2, 1, 0])


def test_the_nearest_change_of_two_grippers_counts():
    closed = np.array([[0.0, 1], [0, 0], [0, 0], [1, 0], [1, 1]])
    assert drawn_as(closed, [4] * 5) == ("rggg.", [1, 2, 1, 1, 0])


def test_commands_are_read_in_the_robots_units():
    panda = robots.load("panda")
    commands = np.zeros((3, 8), np.float32)
    commands[:, 7] = 0.0, 0.4, 1.0
    closed = phases.closing(panda, commands)
    np.testing.assert_allclose(closed[:, 0], [0.0, 0.4, 1.0], atol=1e-6)


KINDS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 7)), min_size=2, max_size=40)


@given(KINDS, st.floats(0.05, 0.45), st.floats(0.05, 0.45))
def test_phases_make_their_shares_by_their_steps_to_go_and_all_else_comes_once(found, grasp, release):
    kind = np.array([which for which, _ in found])
    steps = np.array([count if which else 0 for which, count in found])
    rows = np.arange(len(kind)) * 3 + 1
    every = phases.Ahead(np.zeros(rows[-1] + 1, int), np.zeros(rows[-1] + 1, int))
    every.kind[rows], every.steps[rows] = kind, steps
    shares = phases.Shares(grasp, release)
    lacks = [name for which, name in ((1, "a grasp"), (2, "a release")) if which not in kind]
    if lacks or 0 not in kind:
        with pytest.raises(MorphVlaError, match=f"no row lies before {lacks[0]}" if lacks else "outside the"):
            phases.drawn(rows, every, shares)
        return
    drawn = phases.drawn(rows, every, shares)
    counts = np.array([(drawn == row).sum() for row in rows])
    assert (counts[kind == 0] == 1).all()
    for which, share in ((1, grasp), (2, release)):
        own = kind == which
        wanted = (kind == 0).sum() * share / (1 - grasp - release)
        assert abs(counts[own].sum() - max(1, wanted)) <= 0.5 + 1e-9
        expected = counts[own].sum() * steps[own] / steps[own].sum()
        assert np.abs(counts[own] - expected).max() <= 1 + 1e-9


def test_a_phase_without_a_share_is_drawn_as_recorded():
    ahead = phases.Ahead(np.array([1, 1, 2, 2, 0]), np.array([2, 1, 2, 1, 0]))
    drawn = phases.drawn(np.arange(5), ahead, phases.Shares(grasp=0.5))
    assert sorted(drawn) == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("shares", [(0.5, 0.5), (-0.1, 0.2), (1.0, 0.0)])
def test_shares_that_cannot_be(shares):
    with pytest.raises(
        ConfigError, match=r"^here: grasp .* and release .* must be shares whose sum is below 1$"
    ):
        phases.Shares(*shares).check("here")
    phases.Shares(0.5, 0.4).check("here")
