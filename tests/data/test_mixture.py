"""Which sample comes when."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.data.mixture import ahead, held_out, interleave, mix, row_counts, shared
from morph_vla.errors import MorphVlaError

ROWS = np.arange(100, 113)
OTHER = np.arange(0, 34, 2)


def drawn(mixture, steps, **process):
    """(dataset, row) of the first steps, one after another."""
    pairs = [mixture.at(step, **process) for step in range(steps)]
    return np.concatenate([np.stack(pair, axis=-1) for pair in pairs])


def test_a_step_is_a_pure_function_of_seed_and_number():
    one, again, other = (mix([ROWS, OTHER], [0.7, 0.3], 5, seed) for seed in (3, 3, 4))
    late_first = [np.stack(one.at(step)) for step in reversed(range(11))][::-1]
    for step in range(11):
        np.testing.assert_array_equal(late_first[step], np.stack(again.at(step)))
    assert (drawn(one, 11) != drawn(other, 11)).any()
    assert (np.stack(one.at(10)) != np.stack(one.at(9))).any()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["row", "batch"])
@pytest.mark.parametrize("batch", [1, 5, 13, 31])
def test_each_pass_visits_each_row_once(batch, by):
    steps = 13 * 3
    seen = drawn(mix([ROWS], [1.0], batch, 7, by), steps)
    assert (seen[:, 0] == 0).all()
    passes = seen[:, 1].reshape(-1, len(ROWS))
    for rows in passes:
        np.testing.assert_array_equal(np.sort(rows), ROWS)
    assert (passes[0] != passes[1]).any()


@pytest.mark.parametrize("by", ["row", "batch"])
def test_each_dataset_of_a_mixture_is_passed_over_whole(by):
    seen = drawn(mix([ROWS, OTHER], [8, 2], 5, 1, by), 60)
    for dataset, rows in enumerate((ROWS, OTHER)):
        own = seen[seen[:, 0] == dataset, 1]
        whole = own[: len(own) // len(rows) * len(rows)].reshape(-1, len(rows))
        for one in whole:
            np.testing.assert_array_equal(np.sort(one), np.sort(rows))


@pytest.mark.parametrize("weights", [(8, 2), (0.8, 0.2), (1, 3), (0.31, 0.69)])
def test_weights_are_met_all_along(weights):
    dataset, _ = interleave(np.arange(100_000), mix([ROWS, OTHER], weights, 5, 0).weights)
    share = weights[0] / sum(weights)
    for end in (1, 10, 1000, 100_000):
        assert abs((dataset[:end] == 0).sum() - share * end) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("by", ["row", "batch"])
@settings(max_examples=25)
@given(weights=st.lists(st.integers(1, 7), min_size=1, max_size=4), steps=st.integers(0, 23))
def test_what_a_run_draws_of_each_dataset_is_known_beforehand(by, weights, steps):
    mixture = mix([ROWS] * len(weights), weights, 5, 0, by)
    seen = [dataset for step in range(steps) for dataset in mixture.at(step)[0].tolist()]
    assert row_counts(mixture, steps) == [seen.count(dataset) for dataset in range(len(weights))]


def test_by_batch_every_batch_is_of_one_dataset():
    mixture = mix([ROWS, OTHER], [0.8, 0.2], 7, 0, "batch")
    kinds = [np.unique(mixture.at(step)[0]) for step in range(50)]
    assert all(len(kind) == 1 for kind in kinds)
    assert sum(int(kind[0]) for kind in kinds) == 10
    mixed = mix([ROWS, OTHER], [0.5, 0.5], 8, 0, "row")
    assert all((mixed.at(step)[0] == 0).sum() == 4 for step in range(50))


@pytest.mark.parametrize("by", ["row", "batch"])
@pytest.mark.parametrize("processes", [2, 3, 6])
def test_the_shares_of_several_processes_are_what_one_would_draw(by, processes):
    mixture = mix([ROWS, OTHER], [0.6, 0.4], 6, 5, by)
    for step in range(17):
        whole = np.stack(mixture.at(step))
        shares = [np.stack(mixture.at(step, process, processes)) for process in range(processes)]
        np.testing.assert_array_equal(np.concatenate(shares, axis=1), whole)


def test_what_cannot_be_mixed_is_said():
    with pytest.raises(MorphVlaError, match="a batch of 5 cannot be shared by 2 processes evenly"):
        mix([ROWS], [1.0], 5, 0).at(0, 1, 2)
    with pytest.raises(MorphVlaError, match="dataset 1 of the mixture has no rows to draw"):
        mix([ROWS, ROWS[:0]], [1, 1], 5, 0)
    with pytest.raises(MorphVlaError, match="dataset 1 of the mixture: weight must be more than 0, not 0"):
        mix([ROWS, ROWS], [1, 0.0], 5, 0)


@pytest.mark.parametrize(
    "weights",
    [
        (0.5773502691896258, 0.7071067811865476, 0.408248290463863),
        tuple(n**0.43 for n in (120_000, 35_000, 9_000)),
        (1000**0.43, 3000**0.43),
        (1e-7, 1.0),
        (0.3, 1e9),
    ],
)
def test_weights_with_many_digits_are_met_too(weights):
    """Their whole numbers are beyond 64 bits, of a place at the latest."""
    made = mix([ROWS] * len(weights), weights, 32, 0)
    for start in (0, 10**6, 10**12):
        dataset, before = interleave(np.arange(start, start + 4000), made.weights)
        for index, weight in enumerate(weights):
            share, own = weight / sum(weights), before[dataset == index]
            assert abs(len(own) - share * 4000) <= len(weights)
            np.testing.assert_array_equal(own, np.arange(len(own)) + (own[0] if len(own) else 0))
            if len(own):
                assert abs(own[0] - share * start) <= len(weights) + start / 1000


def test_a_large_step_of_a_mixture_of_roots_draws_every_row():
    mixture = mix([np.arange(500)] * 3, [n**0.5 for n in (2, 3, 5)], 32, 0)
    pairs = drawn(mixture, 120)
    for dataset in range(3):
        own = pairs[pairs[:, 0] == dataset, 1]
        assert len(np.unique(own)) == min(500, len(own))


def test_the_drawn_interleaving():
    drawing = (interleave.__doc__ or "").strip().splitlines()[-1].split()
    dataset, before = interleave(np.arange(8), (3, 1))
    assert [str(d) for d in dataset] == drawing
    assert before.tolist() == [0, 1, 2, 0, 3, 4, 5, 1]


@given(st.lists(st.integers(1, 13), min_size=1, max_size=5), st.integers(0, 10**6))
def test_every_place_belongs_to_one_dataset_in_its_turn(weights, start):
    places = np.arange(start, start + 3 * sum(weights))
    dataset, before = interleave(places, tuple(weights))
    for index, weight in enumerate(weights):
        own = before[dataset == index]
        assert len(own) == 3 * weight
        np.testing.assert_array_equal(own, np.arange(len(own)) + own[0])


@pytest.mark.parametrize(
    ("weights", "whole"),
    [([8, 2], (4, 1)), ([0.8, 0.2], (4, 1)), ([0.31, 0.69], (31, 69)), ([1, 1, 0.5], (2, 2, 1))],
)
def test_weights_become_the_smallest_whole_numbers(weights, whole):
    assert mix([ROWS] * len(weights), weights, 5, 0).weights == whole


def test_growing_a_dataset_moves_no_episode():
    few, many = held_out(101, 0.3), held_out(1009, 0.3)
    np.testing.assert_array_equal(many[:101], few)
    assert abs(many.mean() - 0.3) < 0.05


def test_a_larger_share_holds_the_smaller_one():
    assert (held_out(503, 0.5) >= held_out(503, 0.1)).all()
    assert not held_out(503, 0.0).any()
    assert (held_out(503, 0.3, "a") != held_out(503, 0.3, "b")).any()


def test_a_share_of_episodes_is_stable_and_held_by_a_larger_one():
    numbers = tuple(range(3, 2003))
    eighth, half = shared(numbers, 0.125), shared(numbers, 0.5)
    assert set(eighth) < set(half) < set(numbers)
    assert abs(len(eighth) / len(numbers) - 0.125) < 0.02
    assert shared(numbers[:500], 0.125) == tuple(index for index in eighth if index < 503)
    assert shared(numbers, 1) == shared(numbers, 1.0) == numbers
    assert shared((), 0.125) == ()
    # It is not the held-out ones that are kept.
    held = np.flatnonzero(held_out(2003, 0.125))
    assert len(set(eighth) & set(held.tolist())) < 0.3 * len(eighth)


def test_an_error_comes_out_of_the_threads_in_its_own_words_and_in_its_place():
    def at(step):
        if step == 5:
            raise MorphVlaError("no such step")
        return step

    result = ahead(at, 2, 9, 3)
    assert [next(result) for _ in range(3)] == [2, 3, 4]
    with pytest.raises(MorphVlaError, match=r"^no such step$"):
        next(result)
    assert list(ahead(at, 9, 9, 3)) == []
