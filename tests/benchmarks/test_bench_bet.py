"""`morph-vla bench bet`: the two sets of paths as the paper has them, and that a path is counted as one."""

import json

import numpy as np
import pytest

from benchmarks import bet as bench_bet
from benchmarks import point_mass
from benchmarks.point_mass import SETS
from morph_vla.cli import main

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SETS)
def test_every_demonstration_follows_a_path_and_every_path_is_shown(name):
    paths = SETS[name]
    shown = point_mass.demonstrations(paths, 40, seed=0)
    ends = []
    for each in shown:
        last = point_mass.moved(each.points[-1:], each.actions[-1:])
        ends.append(point_mass.path_of(np.concatenate([each.points, last]), paths))
    assert set(ends) == set(range(len(paths.paths)))
    again = point_mass.demonstrations(paths, 40, seed=0)
    assert all(np.array_equal(one.points, other.points) for one, other in zip(shown, again, strict=True))


def test_the_sets_are_the_papers():
    fork, crossing = SETS["fork"], SETS["crossing"]
    assert [path[3] for path in fork.paths] == [(2, 4), (2, 0)]
    assert [len(path) - 1 for path in crossing.paths] == [8, 16, 16]
    for paths in SETS.values():
        assert len({path[0] for path in paths.paths}) == len({path[-1] for path in paths.paths}) == 1
    passed = [set(path) for path in crossing.paths]
    assert set.intersection(*passed) == {(0, 0), (4, 4), (8, 8)}


def test_a_point_rests_close_to_whole_coordinates():
    points = point_mass.moved(np.array([[1.0, 2.0]]), np.array([[0.8, -0.3]]))
    np.testing.assert_allclose(points, [[1.98, 1.97]])


def test_a_window_repeats_the_first_point_before_the_start():
    points = np.arange(3.0)[:, None, None] * np.ones((3, 1, 2))
    windows = point_mass.windows(points, 2)
    assert windows[:, 0, :, 0].tolist() == [[0, 0], [0, 1], [1, 2]]


def test_a_path_that_is_left_is_none_and_a_rest_is_allowed():
    paths = SETS["fork"]
    up = np.array(paths.paths[0], float)
    assert point_mass.path_of(up, paths) == 0
    assert point_mass.path_of(np.repeat(up, 2, axis=0), paths) == 0
    assert point_mass.path_of(up[:-1], paths) is None
    assert point_mass.path_of(np.delete(up, 3, axis=0), paths) is None


def test_neighbours_weigh_by_distance():
    windows, actions = np.array([[[0.0, 0.0]], [[1.0, 0.0]], [[50.0, 0.0]]]), np.array([[1.0], [3.0], [9.0]])
    query = np.array([[[0.25, 0.0]]])
    one, two = (bench_bet.nearest(n, windows, actions, SETS["fork"], 0)(query, 0).item() for n in (1, 2))
    near, far = np.exp(-0.25), np.exp(-0.75)
    assert one == 1.0
    assert two == pytest.approx((near + 3 * far) / (near + far))


@pytest.mark.long
def test_ways_are_kept_where_they_are_drawn_and_lost_in_their_mean(capsys):
    assert main(["bench", "bet", "--repeats", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    kept = {(row["set"], row["learner"]): row["kept"] for row in answer["rows"]}
    assert kept.keys() == {(name, learner) for name in SETS for learner in bench_bet.LEARNERS}
    assert kept["fork", "Behavior Transformer"] == 2
    assert kept["crossing", "Behavior Transformer"] == 3
    assert kept["fork", "MLP, squared error"] < 2
    assert kept["crossing", "MLP, squared error"] < 3
    for row in answer["rows"]:
        assert sum(row["followed"]) + row["lost"] == 300
    assert min(answer["bet_ms"], answer["blocks_ms"]) > 0
    assert (answer["paper_bet_ms"], answer["paper_mlp_ms"]) == (2.8, 0.5)
