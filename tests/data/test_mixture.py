"""Which sample comes when."""

import numpy as np
import pytest

from morph_vla.data.mixture import batch_rows, held_out

ROWS = np.arange(100, 113)


def test_a_step_is_a_pure_function_of_seed_and_number():
    np.testing.assert_array_equal(batch_rows(ROWS, 5, 3, 11), batch_rows(ROWS, 5, 3, 11))
    assert (batch_rows(ROWS, 5, 3, 11) != batch_rows(ROWS, 5, 4, 11)).any()
    assert (batch_rows(ROWS, 5, 3, 11) != batch_rows(ROWS, 5, 3, 12)).any()


@pytest.mark.parametrize("batch", [1, 5, 13, 31])
def test_each_pass_visits_each_row_once(batch):
    steps = 13 * 3
    seen = np.concatenate([batch_rows(ROWS, batch, 7, step) for step in range(steps)])
    assert len(seen) == steps * batch
    passes = seen.reshape(-1, len(ROWS))
    for rows in passes:
        np.testing.assert_array_equal(np.sort(rows), ROWS)
    assert (passes[0] != passes[1]).any()


def test_growing_a_dataset_moves_no_episode():
    few, many = held_out(101, 0.3), held_out(1009, 0.3)
    np.testing.assert_array_equal(many[:101], few)
    assert abs(many.mean() - 0.3) < 0.05


def test_a_larger_share_holds_the_smaller_one():
    assert (held_out(503, 0.5) >= held_out(503, 0.1)).all()
    assert not held_out(503, 0.0).any()
    assert (held_out(503, 0.3, "a") != held_out(503, 0.3, "b")).any()
