"""A study decodes its pictures once for all cells, and removes them after the last."""

from pathlib import Path
from typing import Any

import pytest

from morph_vla.demo.job import Quiet
from morph_vla.evidence import grid as grids
from morph_vla.evidence import run as runs
from morph_vla.files.writing import taken, write_text
from morph_vla.results import cells
from morph_vla.training import loop


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Cells that are trained in no time: where each looked for its pictures."""
    seen: list[Path] = []

    def train(recipe: object, folder: Path, *, on_report: object, frames: Path) -> loop.Run:
        """Note the folder, and leave a picture there."""
        seen.append(frames)
        write_text(frames / "picture", "")
        return loop.Run(folder, folder, 7, {}, [], 1.0, stopped=False)

    monkeypatch.setattr(loop, "train", train)
    monkeypatch.setattr(runs, "_judge", lambda *_: [cells.Judged("so101", "small_so101", True, "10")])
    return seen


def settings(study: Path, folder: Path, **more: Any) -> runs.Settings:
    return runs.Settings(folder, folders=[study], **more)


def test_all_cells_read_one_folder_which_goes_with_the_last(study, tmp_path, trained):
    grid = grids.load(study / "grid.yaml")
    names = [cell.name for cell in grids.cells(grid)]
    runs.run(grid, settings(study, tmp_path, only=names[1:]), lambda *_: Quiet("", ""))
    assert (tmp_path / "frames" / "picture").exists()  # for the one that is missing
    runs.run(grid, settings(study, tmp_path), lambda *_: Quiet("", ""))
    assert trained == [tmp_path / "frames"] * len(names)
    assert not (tmp_path / "frames").exists()


def test_a_part_is_done_when_its_own_cells_are(study, tmp_path, trained):
    """The others are another machine's."""
    grid = grids.load(study / "grid.yaml")
    runs.run(grid, settings(study, tmp_path, part=(2, 3)), lambda *_: Quiet("", ""))
    assert 0 < len(trained) < len(grids.cells(grid))
    assert not (tmp_path / "frames").exists()


def test_what_another_process_reads_stays(study, tmp_path, trained):
    """One that is at a cell of another grid in the same folder."""
    grid = grids.load(study / "grid.yaml")
    with taken(tmp_path / "locks" / "relatives" / "bare" / "0") as free:
        assert free
        runs.run(grid, settings(study, tmp_path), lambda *_: Quiet("", ""))
        assert (tmp_path / "frames" / "picture").exists()
    runs.run(grid, settings(study, tmp_path), lambda *_: Quiet("", ""))
    assert not (tmp_path / "frames").exists()
