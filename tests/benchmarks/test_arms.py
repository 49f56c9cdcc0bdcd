"""`python -m benchmarks.arms`: what was measured is kept, and the same command goes on."""

import json
from pathlib import Path

import pytest

from benchmarks import arms


@pytest.fixture
def files(folder: Path) -> list[Path]:
    """Files of arms, which nothing reads."""
    names = [folder / f"{name}.urdf" for name in ("a", "b", "c")]
    for index, file in enumerate(names):
        file.write_text(f"<robot {index}>")
    return names


def row_of(name: str, asked: arms.Asked, won: int = 2) -> arms.Row:
    tried = (arms.Tried("push", won, 3.1), arms.Tried("stack", 1, None))
    return arms.Row(name, asked, "", 7, "ours", 0.08, 2.34, tried)


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """The arms that are measured, in no time; the second one is interrupted, the first time."""
    names: list[str] = []

    def measure(source: Path, folder: Path, asked: arms.Asked) -> arms.Row:
        names.append(source.stem)
        if names == ["a", "b"]:
            raise KeyboardInterrupt
        row = row_of(source.stem, asked)
        arms.keep(row, folder)
        return row

    monkeypatch.setattr(arms, "measure", measure)
    monkeypatch.setattr(arms, "sheet", lambda pictures, path: None)
    monkeypatch.setenv("MORPH_VLA_PATH", "")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return names


def test_the_same_command_goes_on_where_it_was_interrupted(files, measured, capsys):
    command = [*map(str, files), "-o", "out", "--states", "3", "--task", "push,stack"]
    arms.main([*command, "--json"])
    out, err = capsys.readouterr()
    assert [row["name"] for row in json.loads(out)] == ["a"]
    assert err.splitlines()[-1] == "stopped after 1 of 3 files; the same command goes on"
    arms.main(command)
    out, err = capsys.readouterr()
    assert measured == ["a", "b", "b", "c"]
    assert err.startswith("1/3  a: push 2 of 3, stack 1 of 3  (kept)\n2/3  b: push 2 of 3, stack 1 of 3  (")
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines] == ["arm", "a", "stack", "b", "stack", "c", "stack"]
    assert lines[1] == ["a", "7", "ours", "80", "mm", "2.3", "push", "2", "of", "3", "3.1"]


def test_another_question_is_measured_anew(files, folder):
    asked = arms.Asked.of(files[0], ["push"], 3)
    row = row_of("a", asked)
    arms.keep(row, folder)
    path = folder / "rows" / "a.json"
    assert arms.kept(path, asked) == row
    files[0].write_text("<robot another>")
    for other in (("push", 4), ("stack", 3), ("push", 3)):
        assert arms.kept(path, arms.Asked.of(files[0], [other[0]], other[1])) is None


def test_a_file_that_is_no_arm_is_a_row_with_the_reason(files, folder):
    row = arms.measure(files[0], folder, arms.Asked.of(files[0], ["push"], 3))
    assert row.error
    assert arms.kept(folder / "rows" / "a.json", row.asked) == row
    assert list(row.cells()) == [("a", "", "", "", "", f"- {row.error}", "", "")]
