"""Statistics that were measured before are those of the same values, and of no others."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from morph_vla.data import lerobot
from morph_vla.data.stats import Stats
from morph_vla.training import statistics

FRAMES = 101


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch) -> lerobot.Recordings:
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path))
    state, action = np.random.default_rng(0).normal(size=(2, FRAMES, 3)).astype(np.float32)
    return lerobot.Recordings(
        Path("no"), "v3.0", 15.0, "arm", state, action, np.array([0]), np.array([FRAMES]),
        np.zeros(FRAMES, int), ("go",), (),
    )  # fmt: skip


def measured(recordings: lerobot.Recordings, relative: list[bool], fps: float = 15.0) -> Stats:
    part = statistics.Recorded("s", dataclasses.replace(recordings, fps=fps), "velocity", np.array(relative))
    return statistics.of_robot("arm", ("a", "b", "c"), [part], 7).action


def test_which_values_are_told_as_differences_is_part_of_what_was_measured(recordings):
    whole = measured(recordings, [True, True, True])
    assert measured(recordings, [True, True, False]) != whole
    assert measured(recordings, [True, True, True]) == whole


def test_so_is_how_often_they_were_recorded(recordings):
    assert measured(recordings, [True] * 3) != measured(recordings, [True] * 3, fps=30.0)
