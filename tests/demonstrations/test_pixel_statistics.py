"""Statistics of pixels, counted by level: those of lerobot, and everything else left to it."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if not all(importlib.util.find_spec(module) for module in ("lerobot", "av")):
    pytest.skip("needs the extra 'lerobot'", allow_module_level=True)

from morph_vla.demonstrations import lerobot_writer

# lerobot, torch and pyarrow warn of their own and each other's future; nothing here can be done about it.
pytestmark = pytest.mark.filterwarnings("ignore:::(lerobot|torch|torchcodec|torchvision|datasets)")


@settings(max_examples=15)
@given(
    frames=st.integers(1, 5),
    pixels=st.integers(2, 101),
    spread=st.integers(1, 256),
    seed=st.integers(0, 2**31),
)
def test_statistics_of_pixels_are_lerobots(frames, pixels, spread, seed):
    from lerobot.datasets.compute_stats import RunningQuantileStats

    rng = np.random.default_rng(seed)
    low = int(rng.integers(0, 257 - spread))
    batches = [rng.integers(low, low + spread, (pixels, 3)).astype(np.uint8) for _ in range(frames)]
    theirs, ours = RunningQuantileStats(), lerobot_writer.PixelStatistics(RunningQuantileStats())
    for batch in batches:
        theirs.update(batch)
        ours.update(batch)
    expected, found = theirs.get_statistics(), ours.get_statistics()
    assert set(found) == set(expected)
    for name in ("min", "max", "count"):
        assert np.array_equal(found[name], expected[name])
    assert found["mean"] == pytest.approx(expected["mean"], rel=1e-4, abs=1e-3)
    # Theirs is the root of a difference of float32 sums; where the spread is small, little of it is left.
    assert found["std"] == pytest.approx(expected["std"], rel=1e-2, abs=0.2)
    values = np.concatenate(batches)
    assert found["mean"] == pytest.approx(values.mean(axis=0))
    assert found["std"] == pytest.approx(values.astype(float).std(axis=0), abs=1e-6)
    for q in (1, 10, 50, 90, 99):
        exact = np.quantile(values, q / 100, axis=0, method="inverted_cdf")
        assert np.array_equal(found[f"q{q:02d}"], exact)


def test_quantiles_are_within_a_level_of_lerobots():
    """Where pixels are many, as in a recording: their bins are interpolated, ours are whole levels."""
    from lerobot.datasets.compute_stats import RunningQuantileStats

    rng = np.random.default_rng(7)
    theirs, ours = RunningQuantileStats(), lerobot_writer.PixelStatistics(RunningQuantileStats())
    for _ in range(11):
        batch = np.clip(rng.normal([60, 120, 200], [30, 50, 20], (4999, 3)), 0, 255).astype(np.uint8)
        theirs.update(batch)
        ours.update(batch)
    expected, found = theirs.get_statistics(), ours.get_statistics()
    for name in ("q01", "q10", "q50", "q90", "q99"):
        assert np.abs(found[name] - expected[name]).max() <= 1.0, name


def test_statistics_of_nothing_are_refused_as_lerobot_does():
    from lerobot.datasets.compute_stats import RunningQuantileStats

    with pytest.raises(ValueError, match="Cannot compute statistics for less than 2 vectors"):
        lerobot_writer.PixelStatistics(RunningQuantileStats()).get_statistics()


def test_lean_gives_back_what_it_replaced():
    from lerobot.datasets import compute_stats, dataset_writer

    before = compute_stats.RunningQuantileStats, dataset_writer.embed_images

    def inside() -> None:
        with lerobot_writer.lean():
            assert compute_stats.RunningQuantileStats is not before[0]
            assert dataset_writer.embed_images is not before[1]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inside()
    assert (compute_stats.RunningQuantileStats, dataset_writer.embed_images) == before


def test_lean_leaves_everything_but_pixels_to_lerobot():
    from lerobot.datasets import compute_stats

    values = np.random.default_rng(3).normal(size=(101, 7)).astype(np.float32)
    theirs = compute_stats.RunningQuantileStats()
    with lerobot_writer.lean():
        ours = compute_stats.RunningQuantileStats()
        ours.update(values)
    theirs.update(values)
    for name, expected in theirs.get_statistics().items():
        assert np.array_equal(ours.get_statistics()[name], expected)
