"""Cells from training to record: what is kept, what goes on, what a failure stops."""

import dataclasses
import hashlib
import json
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from morph_vla import process
from morph_vla.errors import MorphVlaError
from morph_vla.evidence import again, same
from morph_vla.evidence import grid as grids
from morph_vla.evidence import run as runs
from morph_vla.evidence.grid import Cell
from morph_vla.evidence.status import read_all, status
from morph_vla.files.writing import taken, write_text
from morph_vla.results import cells
from morph_vla.results.record import PolicyCard, Record, SuiteFacts, TaskFacts
from morph_vla.results.trial import Trial
from morph_vla.training import loop

pytestmark = pytest.mark.slow

CELL = Cell(0, "few", "mix")


@pytest.fixture
def one(run, study, tmp_path, monkeypatch):
    """Run one cell of the grid, in the folder `out`: (status, lines)."""
    monkeypatch.chdir(tmp_path)

    def call(cell: Cell = CELL, more: str = ""):
        words = f"evidence run {study}/grid.yaml --folder {study} -o out --only {cell.name} {more}"
        return run(words)

    return call


def test_a_cell_is_trained_judged_and_kept_in_a_few_kilobytes(one, run, study, tmp_path):
    code, out, _ = one()
    assert code == 0, out
    assert out.startswith("1/1  few/mix/0: so101 ")
    path = tmp_path / "out" / "records" / f"{CELL.name}.json"
    assert path.stat().st_size < 8000
    assert not (tmp_path / "out" / "work" / CELL.name).exists()
    record = cells.read(path)
    assert (record.split, record.condition, record.seed) == ("few", "mix", 0)
    (body,) = record.judged
    assert (body.body, body.seen, len(body.rows)) == ("so101", True, 2)
    assert set(body.events) >= {"touched", "grasped", "lifted"}
    assert all(metres is not None and 0 < metres < 1 for metres in body.least["approach"])
    assert body.states_sha256
    files = ("meta/info.json", "recording.json", "URDF", "side file")
    assert [*record.datasets] == [f"{name}/{file}" for name in ("panda", "so101") for file in files]
    info = (study / "so101" / "meta" / "info.json").read_bytes()
    assert record.datasets["so101/meta/info.json"] == hashlib.sha256(info).hexdigest()
    assert record.seconds.keys() == {"train", "evaluate"}
    assert record.versions["source"] == process.source()
    assert record.command.startswith("morph-vla evidence run ")
    assert record.loss is not None
    # The same cell once more gives the same rows and parameters.
    code, out, _ = run(f"evidence again {study}/grid.yaml --folder {study} -o out --only few/mix/0")
    same = "few/mix/0: the same counts on 1 body, row by row; the same parameters"
    assert (code, out.strip()) == (0, same)
    # And what is read back is not said to be measured.
    _, out, _ = run(f"evidence again {study}/grid.yaml --folder {study} -o out --only few/mix/0")
    assert out.startswith(f"{same}; not measured now, but read from out/again (of 20")
    # A second run has nothing to do, and the status says so.
    assert one()[1] == "0 cells measured, 1 already there\n"
    _, out, _ = run(f"evidence status {study}/grid.yaml -o {tmp_path}/out")
    assert " ".join(out.splitlines()[3].split()).startswith("few mix 1 0 1 ")
    assert out.splitlines()[-1].startswith("1 cell done in 0.0 h, 7 missing, about ")


def test_an_unfinished_cell_goes_on_from_its_checkpoint(one, tmp_path, monkeypatch):
    train, begun = loop.train, []

    def stopped(recipe, folder, **more):
        begun.append(loop.checkpoint.steps(folder / "checkpoints"))
        made = train(recipe, folder, **more)
        return made if len(begun) > 1 else loop.dataclasses.replace(made, stopped=True)

    body = cells.Judged("so101", "small_so101", True, "10")
    monkeypatch.setattr(runs, "_judge", lambda *_: [body])
    monkeypatch.setattr(loop, "train", stopped)
    assert one()[0] == 143  # as SIGTERM ends it
    assert not (tmp_path / "out" / "records").exists()
    assert one()[0] == 0
    assert begun[0] == []
    assert begun[1][-1] == 4
    spent = json.loads((tmp_path / "out" / "records" / f"{CELL.name}.json").read_text())["seconds"]
    assert spent["train"] > 0


def test_a_cell_begun_before_the_grid_was_edited_begins_anew(study, tmp_path, monkeypatch, caplog):
    train, seen = loop.train, []

    def stopped(recipe, folder, **more):
        seen.append([path.name for path in sorted(folder.parent.iterdir())])
        made = train(recipe, folder, **more)
        return made if len(seen) > 2 else loop.dataclasses.replace(made, stopped=True)

    monkeypatch.setattr(runs, "_judge", lambda *_: [cells.Judged("so101", "small_so101", True, "10")])
    monkeypatch.setattr(loop, "train", stopped)
    grid, settings = (
        grids.load(study / "grid.yaml"),
        runs.Settings(tmp_path, only=[CELL.name], folders=[study]),
    )
    work = tmp_path / "work" / CELL.name
    with pytest.raises(KeyboardInterrupt):
        runs.run(grid, settings, quiet)
    write_text(work / "eval" / "so101" / "record.json", "{}")
    # As it was: it goes on from there, and nothing is said.
    with pytest.raises(KeyboardInterrupt):
        runs.run(grid, settings, quiet)
    assert (work / "eval").exists()
    assert caplog.messages == []
    edited = dataclasses.replace(
        grid, overrides=tuple(c.replace("training.steps=4", "training.steps=2") for c in grid.overrides)
    )
    assert runs.run(edited, settings, quiet) == runs.Ran(1, 0, 0)
    assert [name in seen[1] for name in ("train", "eval", "seconds.json")] == [True] * 3
    assert [name in seen[2] for name in ("train", "eval", "seconds.json")] == [False] * 3
    assert "few/mix/0 was begun under other settings than this grid's: it begins anew" in caplog.messages
    kept = json.loads((tmp_path / "records" / f"{CELL.name}.json").read_text())
    assert kept["settings"]["recipe"]["training"]["steps"] == 2


def test_a_part_and_cells_by_name_are_not_given_together(study, tmp_path):
    grid = grids.load(study / "grid.yaml")
    settings = runs.Settings(tmp_path, part=(1, 2), only=[CELL.name], folders=[study])
    with pytest.raises(
        MorphVlaError, match=r"^a part \(--shard\) and cells by name \(--only\) both choose the"
    ):
        runs.run(grid, settings, quiet)


def test_a_cell_that_fails_is_noted_and_the_others_go_on(study, tmp_path, monkeypatch):
    grid, lines = grids.load(study / "grid.yaml"), []

    def fails(*_, **__):
        raise MorphVlaError("the loss is nan")

    monkeypatch.setattr(loop, "train", fails)
    settings = runs.Settings(tmp_path, "grid.yaml", (1, 4), folders=[study])
    names = [cell.name for cell in grids.cells(grid, (1, 4))]
    assert names == ["both/mix/0", "both/random/0"]
    assert runs.run(grid, settings, quiet, lines.append) == runs.Ran(0, 2, 0)
    assert lines == [f"{name} failed: the loss is nan" for name in names]
    stands = status(grid, tmp_path)
    assert stands.failures == dict.fromkeys(names, "the loss is nan")
    assert [(row.done, row.failed, row.missing) for row in stands.rows][1] == (0, 1, 2)
    assert "failed: both/random/0: the loss is nan" in str(stands)
    assert stands.hours_left == pytest.approx(8 * 3 / 60)  # the grid's own guess, before any was timed


def test_a_cell_of_which_rows_broke_has_failed_and_the_next_run_plays_them_again(
    study, tmp_path, monkeypatch
):
    trials = (
        Trial(task="t", episode=0, success=True),
        Trial(task="t", episode=1, success=False, ended="error", error="the physics diverged"),
    )
    suite = SuiteFacts(name="small_so101", tasks={"t": TaskFacts()})
    whole, played = Record(suite=suite, policy=PolicyCard(), trials=trials[:1]), []

    def evaluate(*_, folder, **__):
        played.append(folder.exists())
        write_text(folder / "record.json", "{}")
        return whole if len(played) > 1 else dataclasses.replace(whole, trials=trials)

    trained = loop.Run(tmp_path, tmp_path, 7, {}, [], 1.0, stopped=False)
    monkeypatch.setattr(loop, "train", lambda *_, **__: trained)
    monkeypatch.setattr(runs.policies, "load", lambda *_, **__: SimpleNamespace(loaded=None, infer=dict))
    monkeypatch.setattr(runs, "evaluate", evaluate)
    grid, settings = (
        grids.load(study / "grid.yaml"),
        runs.Settings(tmp_path, only=[CELL.name], folders=[study]),
    )
    assert runs.run(grid, settings, quiet) == runs.Ran(0, 1, 0)
    assert status(grid, tmp_path).failures == {CELL.name: "so101: 1 of 2 rows broke: the physics diverged"}
    assert runs.run(grid, settings, quiet) == runs.Ran(1, 0, 0)
    assert played == [False, False]
    assert status(grid, tmp_path).failures == {}


def quiet(*_):
    from morph_vla.demo.job import Quiet

    return Quiet("", "")


def test_records_of_other_settings_are_not_mixed_in(study, tmp_path):
    grid = grids.load(study / "grid.yaml")
    sha = grids.digest(grids.plan(grid, [study]).settings(CELL))
    body = cells.Judged("so101", "small_so101", False, "10")
    for settings_sha256, fits in ((sha, True), ("other", False)):
        record = cells.CellRecord(
            split=CELL.split,
            condition=CELL.condition,
            seed=0,
            settings_sha256=settings_sha256,
            judged=(body,),
        )
        cells.write(record, tmp_path / "records" / f"{CELL.name}.json")
        assert read_all(tmp_path) == {CELL.name: record}
        settings = runs.Settings(tmp_path, only=[CELL.name], folders=[study])
        if fits:
            assert runs.run(grid, settings, quiet) == runs.Ran(0, 0, 1)
            continue
        words = r"records: 1 cell measured under other settings than this grid's, first few/mix/0; give"
        with pytest.raises(MorphVlaError, match=words):
            runs.run(grid, settings, quiet)


def test_a_record_from_before_a_key_was_known_is_of_its_grid(study, tmp_path):
    grid = grids.load(study / "grid.yaml")
    settings = json.loads(json.dumps(grids.plan(grid, [study]).settings(CELL)))
    sha = grids.digest(settings)
    assert grids.digest(grids.as_read_now(settings)) == sha
    body = cells.Judged("so101", "small_so101", False, "10")
    unknown = settings["recipe"]["optimizer"].pop("clip_parts")
    assert unknown == "together"
    for given, fits in ((settings, True), ({**settings, "episodes": 3}, False), ({"recipe": 3}, False)):
        record = cells.CellRecord(
            split=CELL.split, condition=CELL.condition, seed=0, settings_sha256=grids.digest(given),
            settings=given, judged=(body,),
        )  # fmt: skip
        cells.write(record, tmp_path / "records" / f"{CELL.name}.json")
        asked = runs.Settings(tmp_path, only=[CELL.name], folders=[study])
        if fits:
            assert runs.run(grid, asked, quiet) == runs.Ran(0, 0, 1)
            continue
        with pytest.raises(MorphVlaError, match="1 cell measured under other settings than this grid's"):
            runs.run(grid, asked, quiet)


def test_a_cell_of_another_recording_is_not_taken_for_this_one(study, tmp_path):
    grid = grids.load(study / "grid.yaml")
    planned = grids.plan(grid, [study])
    sha, datasets = grids.digest(planned.settings(CELL)), same.described(planned, CELL.split)
    record = cells.CellRecord(
        split=CELL.split, condition=CELL.condition, seed=0, settings_sha256=sha, datasets=datasets,
        judged=(cells.Judged("so101", "small_so101", False, "10"),),
    )  # fmt: skip
    settings = runs.Settings(tmp_path, only=[CELL.name], folders=[study])
    cells.write(record, tmp_path / "records" / f"{CELL.name}.json")
    assert runs.run(grid, settings, quiet) == runs.Ran(0, 0, 1)
    others = {**datasets, "so101/recording.json": "another", "elsewhere/recording.json": "unknown here"}
    cells.write(dataclasses.replace(record, datasets=others), tmp_path / "records" / f"{CELL.name}.json")
    words = r"^few/mix/0 was trained on another recording of 'so101' than the one that is here \(recording.js"
    with pytest.raises(MorphVlaError, match=words):
        runs.run(grid, settings, quiet)


def test_so_many_cells_are_measured_whatever_another_process_is_at(study, tmp_path, monkeypatch):
    grid, lines = grids.load(study / "grid.yaml"), []
    first, second, third, *_ = grids.cells(grid)
    monkeypatch.setattr(runs, "_measure", lambda planned, cell, *_: cell.name)
    with taken(tmp_path / "locks" / first.name):
        settings = runs.Settings(tmp_path, most=2, folders=[study])
        assert runs.run(grid, settings, quiet, lines.append) == runs.Ran(2, 0, 0)
    assert [line.split()[1] for line in lines] == [second.name, third.name]
    assert "; 1 left, about" in lines[0]
    assert "left" not in lines[1]


def test_a_cell_that_another_process_is_at_is_left_to_it(study, tmp_path):
    grid = grids.load(study / "grid.yaml")
    settings = runs.Settings(tmp_path, only=[CELL.name], folders=[study])
    with taken(tmp_path / "locks" / CELL.name) as free:
        assert free
        assert runs.run(grid, settings, quiet) == runs.Ran(0, 0, 0)
    assert not (tmp_path / "work").exists()


def test_a_lock_lies_where_nothing_is_removed_and_is_held_until_the_work_is(study, tmp_path, monkeypatch):
    grid, lock = grids.load(study / "grid.yaml"), tmp_path / "locks" / CELL.name
    settings, removed = runs.Settings(tmp_path, only=[CELL.name], folders=[study]), []
    remove = shutil.rmtree

    def rmtree(folder, **more):
        with taken(lock) as free:
            removed.append((folder, free))
        remove(folder, **more)

    monkeypatch.setattr(runs, "_measure", lambda *_: write_text(tmp_path / "work" / CELL.name / "x", ""))
    monkeypatch.setattr(runs.shutil, "rmtree", rmtree)
    assert runs.run(grid, settings, quiet) == runs.Ran(1, 0, 0)
    assert removed == [(tmp_path / "work" / CELL.name, False)]
    assert lock.is_file()


def test_a_cell_that_another_process_finished_meanwhile_is_not_measured_again(study, tmp_path, monkeypatch):
    grid = grids.load(study / "grid.yaml")
    body = cells.Judged("so101", "small_so101", False, "10")
    record = cells.CellRecord(split="few", condition="mix", seed=0, settings_sha256="x", judged=(body,))

    @contextmanager
    def late(path):
        cells.write(record, tmp_path / "records" / f"{CELL.name}.json")  # as the other one lets go of it
        with taken(path) as free:
            yield free

    monkeypatch.setattr(runs, "taken", late)
    monkeypatch.setattr(runs, "_measure", lambda *_: pytest.fail("it was measured again"))
    settings = runs.Settings(tmp_path, only=[CELL.name], folders=[study])
    assert runs.run(grid, settings, quiet) == runs.Ran(0, 0, 0)


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "a/b"])
def test_a_part_that_is_none(run, text):
    words = f"--shard expects K/N with K from 1 to N, for example 2/8, not '{text}'"
    assert run(f"evidence status g.yaml -o out --shard {text}")[2] == f"error: {words}\n"


def test_a_cell_of_no_grid(one):
    _, _, err = one(Cell(7, "both", "mix"))
    assert err.endswith("error: no cell 'both/mix/7'; expected SPLIT/CONDITION/SEED of this grid\n")


def test_several_cells_may_be_named(study, tmp_path):
    grid, other = grids.load(study / "grid.yaml"), Cell(1, "both", "random")
    named = runs.Settings(tmp_path, only=[other.name, CELL.name, other.name])
    assert runs._chosen(grid, named) == (other, CELL)


def test_a_repeated_cell_says_what_came_out_otherwise():
    def record(*rows: str, chip: str = "a", sha256: str = "p") -> cells.CellRecord:
        judged = tuple(
            cells.Judged(n, n, False, r, policy_sha256=sha256) for n, r in zip("xy", rows, strict=True)
        )
        machine = {"processor": chip}
        return cells.CellRecord(
            split="s", condition="c", seed=3, settings_sha256="", judged=judged, machine=machine
        )

    moved = again.compared(record("110", "000"), record("011", "000", sha256="q"))
    assert moved.is_same
    assert str(moved) == "s/c/3: the same counts on 2 bodies, other rows on x; other parameters"
    turned = record("110", "010")
    turned = dataclasses.replace(turned, judged=turned.judged[::-1])
    assert again.compared(record("110", "010"), turned).is_same
    turned = record("110", "000")
    suites = (
        dataclasses.replace(
            turned, judged=tuple(dataclasses.replace(body, resolved_sha256=sha) for body in turned.judged)
        )
        for sha in "pq"
    )
    assert str(again.compared(*suites)).endswith("parameters (the suite of x; the suite of y)")
    other = again.compared(record("110", "000"), record("110", "001", chip="b"))
    assert not other.is_same
    assert str(other) == "s/c/3: other counts: y 1, was 0; the same parameters (processor b, was a)"


@pytest.mark.parametrize(("most", "names"), [(1, "a"), (2, "ag"), (3, "adg"), (7, "abcdefg"), (9, "abcdefg")])
def test_repeated_cells_are_spread_over_all(most, names):
    assert again.spread("abcdefg", most) == [*names]


def test_a_cell_that_is_not_finished_cannot_be_repeated(study, tmp_path):
    grid, settings = grids.load(study / "grid.yaml"), runs.Settings(tmp_path, folders=[study])

    def refused(names: list[str], words: str) -> None:
        with pytest.raises(MorphVlaError, match=words):
            again.again(grid, settings, names, 3, quiet, print)

    refused([], rf"^{tmp_path} holds no cells of a study: it has no 'records'$")
    body = cells.Judged("so101", "small_so101", False, "10")
    for split, words in (
        ("other", rf"^{tmp_path}: no cell of this grid is finished; there is nothing to repeat$"),
        ("both", r"cell 'few/mix/0' is not finished; `morph-vla evidence status`"),
    ):
        record = cells.CellRecord(split=split, condition="mix", seed=0, settings_sha256="", judged=(body,))
        cells.write(record, tmp_path / "records" / f"{record.name}.json")
        refused([CELL.name], words)


def test_the_time_of_a_stage_is_noted_on_the_way_for_the_case_of_a_kill(tmp_path, monkeypatch):
    clock = iter([100.0, 102.0, 107.0, 109.0, 200.0, 211.0])
    monkeypatch.setattr(runs.time, "monotonic", lambda: next(clock))
    with runs._timed(tmp_path, "train") as note:
        note()
        assert runs._spent(tmp_path) == {}
        note()
        assert runs._spent(tmp_path) == {"train": 7.0}
    assert runs._spent(tmp_path) == {"train": 9.0}
    with runs._timed(tmp_path, "train"):
        pass
    assert runs._spent(tmp_path) == {"train": 20.0}
