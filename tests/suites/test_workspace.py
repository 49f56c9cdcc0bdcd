"""Where an arm works: every check of a pose, and every height of a field, each where all others hold."""

from collections import Counter

import numpy as np
import pytest

from morph_vla.robots.reach import Chain
from morph_vla.suites import workspace

GOOD = ((0.0, 0.0, 0.1), (0.0, 0.0, 0.3), (0.2, 0.0, 0.3), (0.3, 0.0, 0.2))
LOW = (*GOOD[:2], (0.2, 0.0, 0.014), GOOD[3])
NEAR = (*GOOD[:3], (0.05, 0.05, 0.2))
HEIGHTS = (0.1, 0.3)


class Posed(Chain):
    """A chain of four joints whose poses are given, and which misses the heights of `missed` [m]."""

    poses: tuple[tuple[tuple[float, float, float], ...], ...]
    missed: tuple[float, ...]
    least: float

    def __init__(self, *poses: tuple, missed: tuple[float, ...] = (), margin: float = 0.3):
        for key, value in {"poses": poses, "missed": missed, "least": margin}.items():
            object.__setattr__(self, key, value)

    def solve(self, targets, start, spin, weight=0.0, iterations=0):
        placed = ~np.isin(np.round(targets[:, 2, 3], 6), self.missed)
        return start, placed, np.ones(len(targets), bool)

    def margin(self, values):
        return np.full(len(values), self.least)

    def forward(self, values):
        poses = self.poses if len(self.poses) == len(values) else self.poses * len(values)
        return np.tile(np.eye(4), (len(values), 1, 1)), np.array(poses), np.zeros((len(values), 4, 3))


def tried(chain: Chain, count: int) -> tuple[list[bool], Counter[str]]:
    reasons: Counter[str] = Counter()
    start = np.zeros((count, 4))
    _, good, _ = workspace._tried(chain, np.tile(np.eye(4), (count, 1, 1)), start, 1.0, True, reasons)
    return good.tolist(), reasons


def test_links_stay_above_the_table_and_off_the_base():
    good, reasons = tried(Posed(GOOD, LOW, NEAR), 3)
    assert good == [True, False, False]
    assert reasons["clear"] == 2


def test_joints_stay_off_their_limits():
    good, reasons = tried(Posed(GOOD, margin=workspace.MARGIN), 3)
    assert good == [False] * 3
    assert reasons["limits"] == 3


@pytest.mark.parametrize(("missed", "fields"), [((), True), ((0.1,), False), ((0.3,), False)])
def test_every_place_of_a_field_is_reached_at_both_heights(missed, fields):
    chain = Posed(GOOD, missed=missed)
    found = list(workspace._fields(chain, 1.0, True, HEIGHTS, 0.0, np.zeros(4), False, Counter()))
    assert bool(found) == fields


def test_a_table_is_counted_from_the_root_or_from_an_arm_beside_it():
    def chain(x: float) -> Chain:
        fixed = np.eye(4)
        fixed[:2, 3] = x, 0.0
        return Chain(("a",), (fixed, np.eye(4)), np.eye(3)[2:], np.array([-1.0]), np.array([1.0]))

    assert workspace.below(chain(0.13), 1.0, 0.7).tolist() == [0.0, 0.0, 0.7]
    assert workspace.below(chain(0.17), 1.0, 0.7).tolist() == [0.17, 0.0, 0.7]


def test_an_arm_is_seen_from_where_its_table_is_counted():
    fixed = np.eye(4)
    fixed[:3, 3] = 0.2, 0.3, 1.1
    chain = Chain(("a",), (fixed, np.eye(4)), np.eye(3)[2:], np.array([-1.0]), np.array([1.0]))
    seen = workspace._seen_from(np.array([0.2, 0.0, 0.7]), chain)
    _, origins, _ = seen.forward(np.zeros((1, 1)))
    assert origins[0, 0] == pytest.approx([0.0, 0.3, 0.4])
    assert chain.fixed[0][2, 3] == 1.1


def test_ranges_of_a_field_lie_about_its_origin():
    origin = np.array([0.1, 0.2, 0.7])
    field = workspace.Field(origin, np.pi / 2, 0.5, 0.1, 0.2, np.zeros(4), False, 0.3)
    x, y = field.ranges((-1.0, 1.0), (-1.0, 1.0))
    assert x == pytest.approx((-0.1, 0.3))
    assert y == pytest.approx((0.6, 0.8))
