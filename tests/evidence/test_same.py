"""What makes two conditions one, a seen body unseen, or a record another's: said before hours are spent."""

import dataclasses

import pytest

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.evidence import grid as grids
from morph_vla.evidence import run as runs
from morph_vla.evidence import same
from morph_vla.evidence.check import check
from morph_vla.evidence.grid import Body, Cell, Split
from morph_vla.evidence.status import status
from morph_vla.results import cells

CELL = Cell(0, "few", "mix")


def quiet(*_):
    raise AssertionError("no cell is run here")


@pytest.fixture
def grid(study):
    return grids.load(study / "grid.yaml")


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("data.share=0.5", "splits.NAME.share"),
        ("data.episodes=[0,1]", "splits.NAME.episodes"),
        ("data.weight=2", "splits.NAME.weights"),
        ("data.datasets=[]", "bodies"),
        ("training.seed=7", "seeds"),
        ("evaluation.episodes=9", "judge, episodes, noise and sampler_steps"),
    ],
)
def test_what_every_cell_has_of_its_split_is_no_override(grid, key, where):
    """It would be replaced, and two conditions that differ in it alone would be one training."""
    name = key.partition("=")[0]
    for place, changes in (
        ("conditions.random", {"conditions": {**grid.conditions, "random": (key,)}}),
        ("overrides", {"overrides": (*grid.overrides, key)}),
    ):
        words = f"^grid.yaml: {place}: {name} is of no condition, every cell has its own; a grid says it in"
        words += f" {where}$"
        with pytest.raises(ConfigError, match=words):
            grids.checked(dataclasses.replace(grid, **changes), "grid.yaml")


def test_two_conditions_that_are_one_training_are_an_error(grid, study):
    twin = dataclasses.replace(grid, conditions={**grid.conditions, "again": ("model.graph=body",)})
    (finding,) = check(twin, [study]).findings
    assert str(finding) == (
        "error: conditions.again: its recipe is that of 'mix', to the last key; leave one of them out"
    )


def test_a_trained_body_is_seen_under_another_name_too(grid, study):
    bodies = {**grid.bodies, "alias": Body(grid.bodies["so101"].suite)}
    split = Split(train=("panda", "so101"), judge=("alias",))
    planned = grids.plan(dataclasses.replace(grid, bodies=bodies, splits={"few": split}), [study])
    assert grids.is_seen(planned.grid, "few", "alias")
    alone = dataclasses.replace(split, train=("panda",))
    planned = grids.plan(dataclasses.replace(grid, bodies=bodies, splits={"few": alone}), [study])
    assert not grids.is_seen(planned.grid, "few", "alias")
    twice = dataclasses.replace(split, judge=("so101", "alias"))
    words = r"^splits\.few\.judge: 'so101' is judged under several names; give it one$"
    with pytest.raises(ConfigError, match=words):
        grids.plan(dataclasses.replace(grid, bodies=bodies, splits={"few": twice}), [study])


def recorded(planned, cell: Cell, **changes) -> cells.CellRecord:
    """A finished cell, as it would have been measured here."""
    (task,) = (facts := same.benchmark.of(planned.tasks["so101"]).facts()).tasks.values()
    body = cells.Judged(
        "so101",
        "small_so101",
        True,
        "10",
        resolved_sha256=task.resolved_sha256,
        urdf_sha256=facts.urdf_sha256,
    )
    facts = planned.settings(cell)
    record = cells.CellRecord(
        split=cell.split, condition=cell.condition, seed=cell.seed, settings_sha256=grids.digest(facts),
        settings=facts, datasets=same.described(planned, cell.split), judged=(body,),
    )  # fmt: skip
    judged = {key: changes.pop(key) for key in ("resolved_sha256", "urdf_sha256") if key in changes}
    return dataclasses.replace(record, judged=(dataclasses.replace(body, **judged),), **changes)


def test_a_cell_that_was_trained_on_another_robot_is_not_taken_for_this_one(grid, study, tmp_path):
    planned = grids.plan(grid, [study])
    record = recorded(planned, CELL)
    settings = runs.Settings(tmp_path, only=[CELL.name], folders=[study])
    path = tmp_path / "records" / f"{CELL.name}.json"
    cells.write(record, path)
    assert runs.run(grid, settings, quiet) == runs.Ran(0, 0, 1)
    for file in ("URDF", "side file"):
        cells.write(dataclasses.replace(record, datasets={**record.datasets, f"so101/{file}": "other"}), path)
        words = (
            rf"^few/mix/0 was trained on another robot under 'so101' than the one that is here \({file} is"
        )
        with pytest.raises(MorphVlaError, match=words):
            runs.run(grid, settings, quiet)


def test_a_suite_that_was_edited_is_said_before_a_cell_is_trained(grid, study, tmp_path, caplog):
    planned = grids.plan(grid, [study])
    missing = [Cell(0, "few", "random")]
    same.check_judged(planned, missing, {CELL.name: recorded(planned, CELL)})
    for key, what in (("resolved_sha256", "suite"), ("urdf_sha256", "URDF")):
        other = recorded(planned, CELL, **{key: "other"})
        words = (
            rf"^few/mix/0 judged 'so101' by another {what} than the one that is here, and few/random/0 is to "
            "be compared with it row by row; bring the earlier one back, or give another folder$"
        )
        with pytest.raises(MorphVlaError, match=words):
            same.check_judged(planned, missing, {CELL.name: other})
        same.check_judged(
            planned, missing, {CELL.name: recorded(planned, CELL, **{key: None})}
        )  # an earlier one
        same.check_judged(planned, [Cell(0, "both", "random")], {CELL.name: other})
        same.check_judged(planned, missing, {"x": dataclasses.replace(other, condition="of another grid")})
    assert caplog.records == []
    same.check_judged(planned, [Cell(1, "few", "random")], {CELL.name: other})
    assert [record.getMessage() for record in caplog.records] == [
        "few/mix/0 judged 'so101' by another URDF than the one that is here: a report on both wants "
        "--within-seeds"
    ]


def test_cells_of_other_settings_do_not_count_in_silence(grid, study, tmp_path):
    planned = grids.plan(grid, [study])
    cells.write(recorded(planned, CELL), tmp_path / "records" / f"{CELL.name}.json")
    assert "warning" not in str(status(grid, tmp_path))
    lines = str(status(dataclasses.replace(grid, episodes=9), tmp_path)).splitlines()
    assert lines[-2] == (
        "warning: few/mix/0 was measured under other settings than this grid's: episodes was 2, and the grid "
        "asks for 9; report on it with the grid that it was run with"
    )
