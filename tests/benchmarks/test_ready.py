"""What ready parameters save is counted, not timed."""

import json

import jax
import pytest

from benchmarks import ready


@pytest.mark.slow
def test_a_step_of_ready_parameters_moves_no_weight_and_they_are_as_large(run):
    status, out, err = run("bench ready --size small --json")
    assert status == 0, err
    rows = {row["name"]: row for row in json.loads(out)["rows"]}
    moved = {name: row for name, row in rows.items() if name.endswith("of a weight")}
    assert sum(row["trained"] for row in moved.values()) > 0
    assert not any(row["ready"] for row in moved.values())
    assert rows["a step's instructions"]["ready"] < rows["a step's instructions"]["trained"]
    sizes = rows["loading: parameters [MB]"]
    assert sizes["ready"] == sizes["trained"]


@pytest.mark.long
@pytest.mark.slow
def test_loading_a_policy_holds_little_more_than_its_parameters():
    """A checkpoint of ours, whose largest leaf is 0.59 of the whole."""
    with jax.numpy_dtype_promotion("standard"):
        rows = {row.name: row for row in ready.memory("mid")}
    assert rows["loading: peak over parameters"].ready <= 1.1
