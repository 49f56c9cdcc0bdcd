"""Rows with a history turned about the vertical, and whose poses of objects statistics are of."""

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from morph_vla.data import lerobot
from morph_vla.policies.config import BetConfig, BodyConfig
from morph_vla.recipes.keys import Training
from morph_vla.recipes.recipe import Recipe
from morph_vla.training import datasets
from morph_vla.training.part import Part
from morph_vla.training.source import Source


def part(robot: str = "panda", first_pose: float = 0.0, rows: int = 11) -> Any:
    """One episode of a robot, whose object moves by 1 a row."""
    shown: Any = Part.__new__(Part)
    nothing, poses = np.zeros((rows, 1), np.float32), first_pose + np.arange(rows, dtype=np.float32)
    recordings = lerobot.Recordings(
        Path(), "v3.0", 5.0, "", nothing, nothing, np.array([0]), np.array([rows]),
        np.zeros(rows, int), ("x",), (), environment=poses[:, None], environment_names=("cup x",),
    )  # fmt: skip
    vars(shown).update(recordings=recordings, asked=types.SimpleNamespace(robot=robot))
    return shown


def test_every_row_of_a_window_is_turned_by_its_own_angle(monkeypatch):
    """Two rows of one batch turn differently; the rows before each turn with it, as one scene does."""
    source: Any = Source.__new__(Source)
    monkeypatch.setattr(
        source, "_values", lambda model, part, rows, turns: (turns[:, None], rows[:, None]), raising=False
    )
    model = BetConfig(window=3, stride=2)
    assert model.lags == (4, 2, 0)
    state, rows, mask = source._numbers(model, part(), np.array([7, 2]), np.array([0.1, -0.2]))
    assert state[..., 0].tolist() == [[0.1] * 3, [-0.2] * 3]
    assert rows[..., 0].tolist() == [[3, 5, 7], [0, 0, 2]]
    assert mask.tolist() == [[True, True, True], [False, True, True]]


@pytest.mark.parametrize("together", [True, False])
def test_poses_told_in_a_common_frame_have_the_statistics_of_all_robots(together: bool, monkeypatch):
    """One place has one value then; a model of one body's own numbers knows that robot's alone."""
    parts = [part("panda"), part("so101", first_pose=100.0)]
    recipe: Any = Recipe.__new__(Recipe)
    vars(recipe).update(model=object() if together else BodyConfig(), training=Training(steps=1))
    monkeypatch.setattr(datasets, "environment_of", lambda part, rows, _: part.recordings.environment[rows])
    measured = datasets.pose_stats(recipe, "panda", parts)
    assert measured is not None
    mean = np.mean(np.r_[np.arange(11.0), 100 + np.arange(11.0)]) if together else 5.0
    assert measured.mean == pytest.approx([mean], rel=1e-5)


def test_where_no_robot_shows_poses_there_are_no_statistics_of_them():
    recipe: Any = Recipe.__new__(Recipe)
    vars(recipe).update(model=object(), training=Training(steps=1))
    assert datasets.pose_stats(recipe, "panda", []) is None
