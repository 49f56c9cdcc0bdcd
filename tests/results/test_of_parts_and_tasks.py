"""Numbers over parts, tasks and rows: what they are of."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from morph_vla.results import merging
from morph_vla.results.cells import CellRecord, Judged
from morph_vla.results.evidence import conditions
from morph_vla.results.intervals import mean_of_rates
from morph_vla.results.record import Record, SuiteFacts, record_from_json
from morph_vla.results.several import watched
from morph_vla.results.trial import Trial


def test_the_mean_of_rates_has_the_docstrings_bounds():
    """Of three tasks: errors add up as squares, over their number."""
    mean, bound = mean_of_rates([(17, 300), (233, 300), (176, 300)])
    assert [round(100 * value, 1) for value in (mean - bound.low, bound.high - mean)] == [2.6, 2.6]


def test_what_was_stopped_is_of_all_rows_also_of_tasks_that_were_not():
    def of_task(task: str, outcomes: Iterable[bool], **more: Any) -> Record:
        trials = [{"task": task, "episode": row, "success": won} for row, won in enumerate(outcomes)]
        suite = {"name": "d", "version": 1, "seed": 3, "tasks": {task: {"task": f"do {task}"}}}
        plain = {
            "schema": 2, "kind": "evaluation", "policy": {"name": "t", "sha256": "ab"}, "open_loop": 8,
            "engine": {"name": "mujoco", "version": "4"}, "suite": suite, "trials": trials, **more,
        }  # fmt: skip
        return record_from_json(plain, Path("runs/x"))

    stopped = {"episodes": 2, "of": 9, "reason": "decided"}
    whole = merging.combine([of_task("a", [True] * 3), of_task("b", [False] * 2, stopped=stopped)])
    assert str(whole.stopped) == "stopped after 5 of 12 episodes: b: decided"


def test_a_share_is_of_the_rows_of_which_it_is_known():
    body = Judged("b", "u", True, "1000", {"grasped": "10??"})
    cell = CellRecord(split="s", condition="m", seed=0, settings_sha256="x", judged=(body,))
    (condition,) = conditions([cell], {"m": 1})
    assert condition.graded["grasped"] == 0.5


@pytest.mark.parametrize("filmed", ["a", "b"])
def test_a_film_is_kept_whichever_part_has_it(filmed):
    record = Record(suite=SuiteFacts(name="s", version=1))
    trial = Trial(episode=0, success=True)
    parts = {
        name: dataclasses.replace(
            record, folder=Path(name),
            trials=(dataclasses.replace(trial, video=Path(name) / "v.mp4" if name == filmed else None),),
        )
        for name in "ab"
    }  # fmt: skip
    assert merging.merge(parts).trials[0].video == Path(filmed) / "v.mp4"


@pytest.mark.parametrize(
    ("rows_a", "rows_b", "of"),
    [((4, 10), (4, 10), 6), ((0, 300), (150, 300), 150), ((0, 9), (3, 20), 6), ((2, 13), None, 11)],
)
def test_two_evaluations_that_are_watched_end_where_one_of_them_does(rows_a, rows_b, of):
    """Of rows that only one of the two plays there is no pair."""

    def under_way(rows: tuple[int, int] | None) -> Record:
        first = rows[0] if rows else rows_a[0]
        trials = [
            Trial(task="t", episode=row, success=row % 2 == 0, initial={}) for row in (first, first + 1)
        ]
        return Record(suite=SuiteFacts(name="s", version=1, seed=1), rows=rows, trials=(*trials,))

    a, b = under_way(rows_a), under_way(rows_b)
    if rows_b is not None and rows_b[0] > rows_a[0]:
        a = dataclasses.replace(a, trials=b.trials)
    assert watched(a, b, 0.05, 0.1).whole.of == of
