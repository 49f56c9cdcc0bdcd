"""From records in folders to the answer of a grid; nothing is trained."""

import dataclasses
import json

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.evidence import answer as answers
from morph_vla.evidence import asked
from morph_vla.evidence.grid import Body, Cell, Grid, Hypothesis, Split, cells
from morph_vla.evidence.status import failure_of, read_all, record_of
from morph_vla.files.writing import write_text
from morph_vla.results import cells as results
from morph_vla.results.cells import CellRecord, Judged

GRID = Grid(
    title="t",
    question="q",
    recipe="body_state",
    conditions={"matched": (), "full": (), "bare": ()},
    bodies={name: Body(name, name) for name in "abc"},
    splits={
        "no-a": Split(("b", "c"), ("a", "b")),
        "no-b": Split(("a", "c"), ("b",)),
        "all": Split(("a", "b"), ("a", "b")),
    },
    seeds=(0, 1),
    hypotheses={"H1": Hypothesis("full", "matched")},
    primary=("no-a", "no-b"),
)


def measured(condition: str, seed: int) -> int:
    """Successes of 100."""
    first, step = {"matched": (20, 1), "full": (49, 3), "bare": (10, 1)}[condition]
    return first + step * seed


@pytest.fixture
def folders(tmp_path):
    """A study in two folders, as two machines ran it; one cell is missing, one failed."""
    for number, cell in enumerate(cells(GRID)):
        if cell.name in ("all/bare/1", "all/full/1"):
            continue
        count = measured(cell.condition, cell.seed)
        bodies = tuple(
            Judged(name, name, name in GRID.splits[cell.split].train, "1" * count + "0" * (100 - count))
            for name in GRID.splits[cell.split].judge
        )
        record = CellRecord(**cell._asdict(), settings_sha256="x", judged=bodies, seconds={"train": 90.0})
        results.write(record, record_of(tmp_path / str(number % 2), cell))
    last = cells(GRID)[-1]
    write_text(failure_of(tmp_path / "0", last), "it broke\nTraceback")
    return [tmp_path / "0", tmp_path / "1"]


def test_hypotheses_are_tested_on_bodies_that_no_training_saw(folders):
    records = [record for folder in folders for record in read_all(folder).values()]
    assert sorted(answers.primary(GRID, records)) == [("no-a", "a"), ("no-b", "b")]
    seen = dataclasses.replace(GRID, primary=("all",))
    assert answers.primary(seen, records) == [("all", "a"), ("all", "b")]
    assert answers.primary(GRID, []) == []


def test_cells_of_one_condition_that_differ_in_more_than_the_seed_are_no_study(folders):
    def measured_with(seed: int, steps: int) -> None:
        (path,) = (p for f in folders if (p := record_of(f, Cell(seed, "no-a", "full"))).exists())
        settings = {"recipe": {"training": {"seed": seed, "steps": steps}, "model": {}}}
        results.write(dataclasses.replace(results.read(path), settings=settings), path)

    measured_with(0, 3000)
    measured_with(1, 3000)
    assert answers.answer(GRID, folders).done == 16
    measured_with(1, 20)
    words = r"^no-a/full/1 was measured under other settings than this grid's: recipe.training.steps was 20"
    with pytest.raises(MorphVlaError, match=words):
        answers.answer(GRID, folders)
    measured_with(1, 3000)
    of_noise = {"sampler": {"noise": 1.0}, "recipe": {"training": {"steps": 3000}}}
    (path,) = (p for f in folders if (p := record_of(f, Cell(1, "no-a", "bare"))).exists())
    results.write(dataclasses.replace(results.read(path), settings=of_noise), path)
    with pytest.raises(MorphVlaError, match=r"^no-a/bare/1 was .*: sampler.noise was 1.0, and the grid"):
        answers.answer(dataclasses.replace(GRID, noise=0.0), folders)


def test_settings_that_a_grid_does_not_change_are_those_of_all_its_cells(folders):
    """A key that the recipe has no longer, or has now, is no difference; that of one seed is."""
    (path,) = (p for f in folders if (p := record_of(f, Cell(0, "no-a", "full"))).exists())
    settings = {"recipe": {"training": {"seed": 0, "gone": 3}, "model": {"gone": 1}}}
    results.write(dataclasses.replace(results.read(path), settings=settings), path)
    words = r"^no-a/full/0 and no-a/full/1 differ in more than the seed: they were measured under several"
    with pytest.raises(MorphVlaError, match=words):
        answers.answer(GRID, folders)


def test_a_cell_with_two_results_is_none(folders, caplog):
    (path,) = (p for f in folders if (p := record_of(f, Cell(0, "no-a", "full"))).exists())
    (other,) = (f for f in folders if not record_of(f, Cell(0, "no-a", "full")).exists())
    record = results.read(path)
    results.write(record, record_of(other, Cell(0, "no-a", "full")))
    assert answers.answer(GRID, folders).done == 16  # the same twice
    turned = dataclasses.replace(record, judged=record.judged[::-1])
    results.write(turned, record_of(other, Cell(0, "no-a", "full")))
    assert answers.answer(GRID, folders).done == 16  # its grid named the bodies in another order
    bodies = tuple(dataclasses.replace(body, rows=body.rows[::-1]) for body in record.judged)
    results.write(dataclasses.replace(record, judged=bodies), record_of(other, Cell(0, "no-a", "full")))
    with pytest.raises(MorphVlaError, match=r"^no-a/full/0 has one result in .*0 and another one in .*1;"):
        answers.answer(GRID, folders)
    path.unlink()
    answers.answer(dataclasses.replace(GRID, seeds=(0,)), folders)
    assert "finished cells whose seed the grid does not name are left out: " in caplog.text
    assert "no-a/full/1" in caplog.text


def test_suites_and_datasets_of_one_name_and_several_contents_are_no_study(folders):
    def change(name: str, *, datasets=None, **digests: str) -> None:
        (path,) = (p for f in folders if (p := f / "records" / f"{name}.json").exists())
        record = results.read(path)
        bodies = tuple(dataclasses.replace(body, **digests) for body in record.judged)
        results.write(dataclasses.replace(record, judged=bodies, datasets=datasets or {}), path)

    def refused(what: str, *names: str) -> None:
        words = rf"^{' and '.join(names)} are of several contents of one name: {what} has SHA-256 aa and bb; "
        with pytest.raises(MorphVlaError, match=words):
            answers.answer(GRID, folders)

    # Not compared by the pairs of a seed: both sides of seed 1 have the other table.
    keys = {"states_sha256": "initial states", "resolved_sha256": "suite", "urdf_sha256": "URDF"}
    for key, what in keys.items():
        for condition in ("full", "matched", "bare"):
            change(f"no-b/{condition}/0", **{key: "aa"})
            change(f"no-b/{condition}/1", **{key: "bb"})
        refused(f"the {what} of body 'b'", "no-b/matched/0", "no-b/matched/1")
        for condition in ("full", "matched", "bare"):
            change(f"no-b/{condition}/1", **{key: "aa"})
    # Of a dataset in whatever split and condition; a record that says nothing of it fits any.
    change("all/full/0", datasets={"a/meta/info.json": "aa", "b/meta/info.json": "cc"})
    assert answers.answer(GRID, folders).done == 16
    change(
        "no-b/matched/1",
        datasets={"a/meta/info.json": "bb", "c/meta/info.json": "cc"},
        states_sha256="aa",
        resolved_sha256="aa",
    )
    refused("a/meta/info.json", "all/full/0", "no-b/matched/1")
    # Seeds may differ where that is asked for, and it is said; conditions of a seed never.
    study = answers.answer(GRID, folders, within_seeds=True)
    assert study.apart == ["a/meta/info.json"]
    assert "\nseeds differ in: a/meta/info.json\n" in str(study)
    change("no-b/full/1", datasets={"a/meta/info.json": "cc", "c/meta/info.json": "cc"}, states_sha256="aa",
           resolved_sha256="aa")  # fmt: skip
    with pytest.raises(MorphVlaError, match=r"several contents of one name: a/meta/info.json.*of them$"):
        answers.answer(GRID, folders, within_seeds=True)


def test_recordings_may_be_told_apart_by_what_they_hold_alone(folders):
    def change(name: str, **datasets: str) -> None:
        path = next(folder / "records" / f"{name}.json" for folder in folders
                    if (folder / "records" / f"{name}.json").exists())  # fmt: skip
        record = dataclasses.replace(results.read(path), datasets={**datasets, "b/meta/info.json": "ee"})
        results.write(record, path)

    change("all/full/0", **{"a/recording.json": "aa", "a/meta/info.json": "cc"})
    change("all/matched/0", **{"a/recording.json": "bb", "a/meta/info.json": "cc"})
    with pytest.raises(MorphVlaError, match=r"several contents of one name: a/recording.json"):
        answers.answer(GRID, folders)
    assert answers.answer(GRID, folders, by_info=True).apart == ["a/recording.json"]
    change("all/matched/0", **{"a/meta/info.json": "dd"})
    with pytest.raises(MorphVlaError, match=r"several contents of one name: a/meta/info.json"):
        answers.answer(GRID, folders, by_info=True)


def test_a_seed_whose_conditions_had_several_contents_is_no_study_within_seeds(folders):
    """Also where another seed had the same: the pairs of this one are of two."""
    for name, sha in (
        ("full/0", "aa"),
        ("matched/0", "aa"),
        ("full/1", "aa"),
        ("matched/1", "bb"),
        ("bare/1", "bb"),
    ):
        path = next(p for folder in folders if (p := folder / "records" / f"no-a/{name}.json").exists())
        datasets = {"b/meta/info.json": sha, "c/meta/info.json": "cc"}
        results.write(dataclasses.replace(results.read(path), datasets=datasets), path)
    words = r"^no-a/(full|matched)/1 and no-a/\w+/1 are of several contents of one name: b/meta/info.json"
    with pytest.raises(MorphVlaError, match=words):
        answers.answer(GRID, folders, within_seeds=True)


def test_conditions_of_a_seed_that_were_judged_on_several_suites_are_no_study(folders):
    """Also in a split and on a body of which no hypothesis is tested, for the rates stand in one table."""
    for name, sha in (("full/0", "aa"), ("matched/0", "bb")):
        path = next(p for folder in folders if (p := folder / "records" / f"all/{name}.json").exists())
        record = results.read(path)
        judged = tuple(dataclasses.replace(body, resolved_sha256=sha) for body in record.judged)
        results.write(dataclasses.replace(record, judged=judged), path)
    words = r"^all/\w+/0 and all/\w+/0 are of several contents of one name: the suite of body 'a' has SHA-256"
    for within_seeds in (False, True):
        with pytest.raises(MorphVlaError, match=words):
            answers.answer(GRID, folders, within_seeds=within_seeds)


def test_records_of_other_bodies_or_amounts_than_the_splits_are_refused(folders):
    path = next(p for folder in folders if (p := record_of(folder, Cell(0, "no-a", "full"))).exists())
    as_it_was = results.read(path)
    entry = {"share": 1.0, "weight": 1.0, "episodes": []}

    def with_settings(datasets=("b", "c"), judge=("a", "b"), amounts=(entry, entry), judged=as_it_was.judged):
        settings = {"judge": {name: name for name in judge}, "recipe": {"data": {"datasets": [*amounts]}}}
        named = {f"{name}/meta/info.json": "x" for name in datasets}
        results.write(dataclasses.replace(as_it_was, settings=settings, datasets=named, judged=judged), path)
        for seed in (1,):  # cells of one condition have one state of the grid
            other = next(p for f in folders if (p := record_of(f, Cell(seed, "no-a", "full"))).exists())
            results.write(dataclasses.replace(results.read(other), settings=settings, datasets=named), other)

    def refused(words, **what):
        with_settings(**what)
        with pytest.raises(
            MorphVlaError, match=rf"^no-a/full/0 was measured under .*: splits.no-a.{words}; report"
        ):
            answers.answer(GRID, folders)

    with_settings()
    assert answers.answer(GRID, folders).done == 16
    refused("train.a was there, and the grid asks for nothing", datasets=("b", "c", "a"))
    refused("train.c was nothing, and the grid asks for c", datasets=("b",))
    refused("judge.c was c, and the grid asks for nothing", judge=("a", "b", "c"))
    refused("judge.b was nothing, and the grid asks for b", judge=("a",))
    refused("judge.b was nothing, and the grid asks for b", judged=as_it_was.judged[:1])
    refused("episodes of 'c' was 2, and the grid asks for 0", amounts=(entry, {**entry, "episodes": [0, 1]}))
    refused("share of 'b' was 0.5, and the grid asks for 1.0", amounts=({**entry, "share": 0.5}, entry))
    refused("weights of 'b' was 3.0, and the grid asks for 1.0", amounts=({**entry, "weight": 3.0}, entry))


def test_bodies_of_a_pattern_are_those_of_its_name_and_as_many_as_it_counts(folders):
    path = next(p for folder in folders if (p := record_of(folder, Cell(0, "no-a", "full"))).exists())
    judged = tuple(dataclasses.replace(results.read(path).judged[0], body=f"arm_{n}") for n in range(3))
    settings = {"judge": {body.body: body.body for body in judged}}
    record = dataclasses.replace(results.read(path), settings=settings, judged=judged)

    def differences(pattern, count):
        bodies = {**GRID.bodies, "arms": Body(pattern, count=count)}
        splits = {"no-a": Split(("b", "c"), ("arms",))}
        grid = dataclasses.replace(GRID, bodies=bodies, splits=splits, conditions={"full": ()})
        return [tuple(difference) for difference in asked._of_split(grid, record)]

    assert differences("arm_*", 3) == differences("arm_*", 0) == []
    assert differences("arm_*", 2) == [("splits.no-a.judge.arms", 3, 2)]
    at = "splits.no-a.judge"
    others = [(f"{at}.arm_{n}", f"arm_{n}", "nothing") for n in range(3)]
    assert differences("leg_*", 0) == [*others, (f"{at}.arms", "nothing", "leg_*")]


def test_folders_in_which_no_cell_of_the_grid_has_ended_are_refused(folders):
    """A page of another study that lies there stays as it is."""
    other = dataclasses.replace(GRID, splits={"one": Split(("a",), ("b",))}, primary=("one",))
    with pytest.raises(
        MorphVlaError, match=r"0, .*1: no cell of this grid has ended there \(16 of other grids\)$"
    ):
        answers.answer(other, folders)


def test_a_record_that_lies_where_anothers_belongs_is_refused(folders):
    path = next(p for folder in folders if (p := record_of(folder, Cell(0, "no-a", "full"))).exists())
    results.write(dataclasses.replace(results.read(path), seed=1), path)
    with pytest.raises(
        MorphVlaError, match=r"0.json: holds the record of no-a/full/1, whose place is another$"
    ):
        answers.answer(GRID, folders)


def test_the_cells_of_several_machines_are_one_study(folders):
    study = answers.answer(GRID, folders)
    assert (study.done, study.asked, study.missing) == (16, 18, ["all/full/1", "all/bare/1"])
    assert study.failures == {"all/bare/1": "it broke"}
    assert study.hours == pytest.approx(16 * 90 / 3600)
    (tested,) = study.hypotheses
    assert tested.estimate is not None
    assert tested.estimate.mean == pytest.approx(0.3)
    assert tested.verdict == "yes"
    (other,) = study.exploratory
    assert (other.better, other.than, other.verdict) == ("bare", "matched", None)
    assert answers.answer(GRID, folders[:1]).done == 8


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ((), ""),
        (("all/full/0",), ""),  # no primary split
        (("no-a/bare/0",), ""),  # no side of the hypothesis
        (("no-a/full/1",), "so far: 1 of 2 seeds"),
        (("no-a/full/1", "no-b/matched/0"), "so far: 0 of 2 seeds"),
        (("no-b/full/0", "no-b/full/1"), "so far: nothing of no-b"),
        (tuple(f"no-b/{c}/{s}" for c in GRID.conditions for s in (0, 1)), "so far: nothing of no-b"),
    ],
)
def test_no_verdict_is_given_before_all_that_the_grid_asks_for_is_there(folders, lost, words):
    for folder in folders:
        for name in lost:
            (folder / "records" / f"{name}.json").unlink(missing_ok=True)
    (tested,) = answers.answer(GRID, folders).hypotheses
    assert (tested.unfinished, tested.verdict) == (words, "undecided" if words else "yes")
    more = dataclasses.replace(GRID, seeds=(0, 1, 2))
    if not words:
        (tested,) = answers.answer(more, folders).hypotheses
        assert str(tested).endswith(": undecided (so far: 2 of 3 seeds)")


def test_seeds_that_one_hypothesis_adds_count_for_it_alone(folders):
    both = {"H1": Hypothesis("full", "matched"), "H2": Hypothesis("bare", "matched")}
    before = answers.answer(dataclasses.replace(GRID, hypotheses=both), folders)
    more = dataclasses.replace(GRID, hypotheses=both | {"H1": Hypothesis("full", "matched", (2, 3))})
    first, second = answers.answer(more, folders).hypotheses
    assert (first.unfinished, first.verdict) == ("so far: 2 of 4 seeds", "undecided")
    assert (second.estimate, second.unfinished) == (before.hypotheses[1].estimate, "")

    # Of the one that the other hypothesis has too, records of these seeds are there as well.
    for cell in cells(dataclasses.replace(GRID, seeds=(2, 3))):
        names = GRID.splits[cell.split].judge
        rows = "1" * measured(cell.condition, cell.seed) + "0" * (100 - measured(cell.condition, cell.seed))
        bodies = tuple(Judged(name, name, name in GRID.splits[cell.split].train, rows) for name in names)
        record = CellRecord(**cell._asdict(), settings_sha256="x", judged=bodies)
        results.write(record, record_of(folders[0], cell))
    study = answers.answer(more, folders)
    first, second = study.hypotheses
    assert (list(first.seeds), first.unfinished, first.verdict) == ([0, 1, 2, 3], "", "yes")
    assert (list(second.seeds), second.estimate) == ([0, 1], before.hypotheses[1].estimate)
    rows = {row.condition: (sorted(row.seeds), row.missing) for row in study.primary}
    assert rows == {"matched": ([0, 1, 2, 3], 0), "full": ([0, 1, 2, 3], 0), "bare": ([0, 1], 0)}


def test_a_folder_without_cells_is_said(run, folders, tmp_path, monkeypatch):
    monkeypatch.setattr("morph_vla.evidence.grid.load", lambda path: GRID)
    typo, empty = tmp_path / "typo", tmp_path / "empty"
    empty.mkdir()
    for folder, why in ((typo, "there is no such folder"), (empty, "it has no 'records'")):
        words = f"error: {folder} holds no cells of a study: {why}\n"
        for arguments in (f"-o {folders[0]} --with {folder}", f"-o {folder} --with {folders[1]}"):
            status, _, err = run(f"evidence report grid.yaml {arguments}")
            assert (status, err) == (2, words)
    assert not typo.exists()
    # One in which every cell failed so far is a study.
    write_text(failure_of(empty, cells(GRID)[0]), "it broke")
    assert answers.answer(GRID, [empty]).failures == {"no-a/matched/0": "it broke"}


def test_report_writes_the_page_its_numbers_and_tables(run, folders, monkeypatch):
    monkeypatch.setattr("morph_vla.evidence.grid.load", lambda path: GRID)
    status, out, _ = run(f"evidence report grid.yaml -o {folders[0]} --with {folders[1]}")
    assert status == 0
    assert out.splitlines()[0].startswith(
        "H1: full - matched: +30.0 points [+17.3, +42.7] (95%, Student's t over 2"
    )
    assert out.splitlines()[-2:] == ["16 of 18 cells, 0.4 h", str(folders[0] / "evidence.html")]
    assert json.loads((folders[0] / "evidence.json").read_text())["done"] == 16
    assert (folders[0] / "evidence.md").read_text().startswith("**Differences**\n")
