"""Learning curves: a line a run, a picture a suite, Wilson's band at every checkpoint."""

from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.results import curves as module
from morph_vla.results import several
from morph_vla.results.curves import curves_if_any, run_of, write
from morph_vla.results.intervals import wilson
from morph_vla.results.record import PolicyCard, Record, record_from_json


def record(run: str, step: int | None, successes: int, trials: int = 13, **fields: object) -> dict:
    listed = [{"episode": i, "success": i < successes, "ended": "time"} for i in range(trials)]
    policy = {"name": str(step), "checkpoint": f"runs/{run}/checkpoints/{step}", "step": step}
    return {"suite": {"name": "cube"}, "policy": policy, "trials": listed, **fields}


def curves(records: list[dict]) -> list[module.Panel]:
    return module.curves([record_from_json(plain) for plain in records])


def test_checkpoints_of_a_run_are_a_line_with_wilsons_bands_in_the_order_of_steps():
    panels = curves([record("a", 30, 11), record("b", 20, 3), record("a", 10, 2)])
    assert [panel.suite for panel in panels] == ["cube"]
    assert [run.run for run in panels[0].runs] == ["runs/a", "runs/b"]
    points = panels[0].runs[0].points
    assert [point.step for point in points] == [10, 30]
    bounds = wilson(11, 13)
    assert (points[1].rate, points[1].low, points[1].high) == (11 / 13, bounds.low, bounds.high)


def test_suites_have_a_picture_each_and_engines_a_line_each():
    other = {"suite": {"name": "orange"}}
    both = [record("a", 10, 2), record("a", 30, 5)]
    both += [{**record("a", step, 1), **other} for step in (10, 30)]
    assert [panel.suite for panel in curves(both)] == ["cube", "orange"]
    engines = [{**plain, "engine": {"name": name}} for plain in both[:2] for name in ("mujoco", "isaaclab")]
    (panel,) = curves(engines)
    assert [run.run for run in panel.runs] == ["runs/a, mujoco", "runs/a, isaaclab"]


def test_what_is_no_curve_has_none():
    assert curves([]) == []
    assert curves([record("a", 10, 2), record("b", 10, 2)]) == []
    assert curves([record("a", None, 2), record("a", 10, 2)]) == []
    measured = curves([record("a", 10, 2), record("a", 20, 0, 0), record("a", 30, 5)])[0].runs[0].points
    assert [point.step for point in measured] == [10, 30]  # not measured is not 0%
    with pytest.raises(MorphVlaError, match="no curve to draw: it needs evaluations of at least two checkpo"):
        write([], Path("nowhere.png"))


def test_a_curve_over_two_versions_of_a_suite_is_none():
    changed = {"suite": {"name": "cube", "version": 4}}
    both = [
        {**record("a", 10, 1), "suite": {"name": "cube", "version": 3}},
        {**record("a", 30, 9), **changed},
    ]
    words = "^cube: the versions of the suite differ: 3 and 4; a curve needs evaluations of one suite$"
    with pytest.raises(MorphVlaError, match=words):
        curves(both)
    assert curves_if_any([record_from_json(plain) for plain in both]) == []
    assert curves([both[0], {**record("b", 10, 9), **changed}]) == []  # no curve, nothing to refuse


def test_a_step_that_was_evaluated_twice_is_refused():
    with pytest.raises(
        MorphVlaError, match="runs/a was evaluated twice on cube at step 10: a curve needs one"
    ):
        curves([record("a", 10, 2), record("a", 10, 5), record("a", 30, 5)])
    with pytest.raises(
        MorphVlaError, match="runs/a was evaluated twice on cube at step 10"
    ):  # beside a curve
        curves([record("a", 10, 2), record("a", 10, 5), record("b", 10, 5), record("b", 30, 5)])


def test_three_conditions_of_one_checkpoint_are_compared_and_have_no_curve():
    conditions = [record_from_json(record("a", 10, count)) for count in (2, 5, 3)]
    assert curves_if_any(conditions) == []
    assert several.side_by_side("abc", conditions).curves == []


@pytest.mark.parametrize(
    ("checkpoint", "run"),
    [
        ("runs/first/checkpoints/1400", "runs/first"),
        ("runs/first/1500", "runs/first"),
        ("1500", "trained"),
        ("runs/exports/small", "runs/exports/small"),
        ("hf://me/first@3f2a", "hf://me/first"),
        ("gs://bucket/run/checkpoints/30000", "gs://bucket/run"),
        (None, "trained"),
    ],
)
def test_the_run_is_where_the_checkpoints_lie(checkpoint: str | None, run: str):
    assert run_of(Record(policy=PolicyCard(name="trained", checkpoint=checkpoint))) == run


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_curve_is_drawn_into_a_file(tmp_path: Path, suffix: str):
    pytest.importorskip("matplotlib")
    panels = curves([record("a", 10, 2), record("a", 30, 5), record("b", 20, 7)])
    path = write(panels, tmp_path / f"deep/curve.{suffix}")
    assert path.stat().st_size > 3000
    if suffix == "png":
        assert write(panels, tmp_path / "again.png").read_bytes() == path.read_bytes()


def test_an_unknown_kind_of_file_is_one_sentence(tmp_path: Path):
    pytest.importorskip("matplotlib")
    with pytest.raises(MorphVlaError, match=r"curve\.xyz: cannot be drawn"):
        write(curves([record("a", 10, 2), record("a", 30, 5)]), tmp_path / "curve.xyz")
