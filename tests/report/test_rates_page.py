"""Cells of the page's table of rates."""

from typing import Any

from morph_vla.report import rates
from morph_vla.results.comparison import Pairs, RateDifference
from morph_vla.results.statistics import summarise
from morph_vla.results.trial import Trial


def test_gained_stands_before_lost():
    """Of what one policy did and the other not: first what the second did, which is judged by the first."""
    compared: Any = RateDifference.__new__(RateDifference)
    vars(compared).update(paired=Pairs(5, 2, 7, 1, 0.18))
    assert rates._pairs(compared)[1] == "7 / 2"


def test_the_mean_time_is_no_median():
    trials = [Trial(episode=row, success=True, time_s=time_s) for row, time_s in enumerate((1.0, 2.0, 6.0))]
    shown = rates._numbers(summarise(trials), [])
    assert [shown[f"time to success, {name}"] for name in ("median", "mean")] == ["2.00 s", "3.00 s"]
