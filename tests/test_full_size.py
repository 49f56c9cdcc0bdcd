"""The parts of the full-size run that need no simulator, at a small size."""

import json

import pytest

SCRIPT = "full_size"


@pytest.fixture
def made(script, tmp_path):
    """The folder with checkpoints of both layouts."""
    for part in ("write_openpi", "write_lerobot"):
        script.run_part(tmp_path, "small", part)
    return tmp_path


@pytest.mark.slow
def test_checkpoints_of_both_layouts_hold_the_same_and_come_back(script, made):
    for part in ("to_lerobot", "to_openpi", "back"):
        script.run_part(made, "small", part)
    results = json.loads((made / "results.json").read_text())
    assert results["back"]["equal"]
    assert results["write_openpi"]["format"] == "openpi"
    assert results["write_openpi"]["parameters"] <= results["write_lerobot"]["parameters"]  # an unused head
    assert all(row["peak"] > 0 and row["seconds"] >= 0 for row in results.values())
    assert sorted(path.name for path in made.iterdir()) == ["openpi", "results.json"]


def test_parts_that_are_done_are_not_done_again(script, tmp_path):
    assert list(script.remaining(tmp_path)) == list(script.PARTS)
    (tmp_path / "results.json").write_text(json.dumps({part: {} for part in list(script.PARTS)[:3]}))
    assert list(script.remaining(tmp_path)) == list(script.PARTS)[3:]


def test_a_slice_is_that_of_the_leaf_whoever_asks(script):
    leaf, shape = "PaliGemma/llm/layers/mlp/gating_einsum", (3, 2, 5, 7)
    layer = script.drawn(leaf, (1,), shape[1:])
    assert (script.slice_of(leaf, shape, (1, 0)) == layer[0]).all()
    assert (script.slice_of(leaf, shape, (2, 0)) != layer[0]).any()
