"""The map of a task: where its objects began, how each episode ended, and where a failure's object went."""

import re
from pathlib import Path

import pytest
from report_records import evaluation, shown

from morph_vla.report import episodes, maps
from morph_vla.report.episodes import Clips
from morph_vla.report.maps import TaskMap


def task_map(plain: dict, clauses: tuple[str, ...] = ("grasped", "inside")) -> TaskMap | None:
    evaluations = shown(plain)
    listed = episodes.listed(evaluations, Clips({}))
    return maps.task_map(evaluations[0], "", listed[0][""], clauses, evaluations)


def trips(chart: str) -> dict[str, str]:
    """What is drawn of each episode, by its id."""
    return dict(re.findall(r'<g class="trip" data-trip="([^"]+)">(.*?)</g>', chart))


def drawn(content: str, name: str, class_: str) -> list[list[float]]:
    """The numbers of each element of a class."""
    tags = re.findall(rf'<{name} ([^>]*)class="{class_}"', content)
    return [[float(value) for value in re.findall(r'="([-0-9.]+)"', tag)] for tag in tags]


def ended(outcomes: str, *ends: list[float] | None) -> dict:
    plain = evaluation(outcomes)
    for trial, end in zip(plain["trials"], ends, strict=True):
        trial["final_object"] = end
    return plain


def test_every_episode_has_its_outcome_its_words_and_its_other_objects():
    shown_map = task_map(evaluation("sfe"))
    assert shown_map is not None
    assert (shown_map.moved, shown_map.others) == ("cube", ["bowl"])
    assert (shown_map.shows_ends, shown_map.outside) == (False, 0)
    drawings = trips(shown_map.chart)
    assert list(drawings) == ["clip-0-0", "clip-0-1", "clip-0-2"]
    for name, class_ in (("clip-0-0", "m-success"), ("clip-0-1", "m-failure t-1"), ("clip-0-2", "m-error")):
        assert f'class="{class_}"' in drawings[name]
        assert drawings[name].count('class="m-other"') == drawings[name].count('class="joined"') == 1
    assert "<title>Episode 1: failed, not inside the target</title>" in drawings["clip-0-1"]
    assert "Where cube and bowl began, x and y in metres: 1 success, 1 failure, 1 error" in shown_map.chart


def test_a_failures_line_leads_to_where_its_object_ended():
    # The cubes began at (0.5, 0.01 * episode).
    shown_map = task_map(ended("sff", [0.4, -0.2, 0.1], [0.45, -0.1, 0.02], [0.5, 0.021, 0.02]))
    assert shown_map is not None
    drawings = trips(shown_map.chart)
    (way,) = drawn(drawings["clip-0-1"], "line", "went t-1")
    (dot,) = drawn(drawings["clip-0-1"], "circle", "ended t-1")
    assert way[2:] == dot[:2]
    start, end = way[:2], way[2:]
    scale = (start[0] - end[0]) / (-0.1 - 0.01)  # user units per metre; y runs to the left
    assert (start[1] - end[1]) / scale == pytest.approx(0.45 - 0.5, abs=1e-3)  # x runs up
    assert "went" not in drawings["clip-0-0"]  # it succeeded: its object is in the target
    assert "went" not in drawings["clip-0-2"]  # moved by 1 mm
    assert (shown_map.shows_ends, shown_map.outside) == (True, 0)


def test_an_object_that_left_the_map_is_counted_and_its_line_stops_at_the_edge():
    shown_map = task_map(ended("ff", [0.5, -30.0, -3000.0], [9.0, 0.01, 0.0]))
    assert shown_map is not None
    assert shown_map.outside == 2
    assert "ended" not in shown_map.chart
    for name, class_ in (("clip-0-0", "went beyond t-0"), ("clip-0-1", "went beyond t-1")):
        (way,) = drawn(trips(shown_map.chart)[name], "line", class_)
        assert all(0 <= value <= 460 for value in way)


def test_a_failure_of_a_clause_that_is_not_listed_has_no_color_of_a_clause():
    shown_map = task_map(evaluation("ff"), clauses=("inside",))
    assert shown_map is not None
    assert 'class="m-failure t-failure"' in trips(shown_map.chart)["clip-0-0"]


def test_the_suite_says_which_object_is_moved():
    plain = evaluation("sf")
    plain["suite"]["object"] = "bowl"
    shown_map = task_map(plain)
    assert shown_map is not None
    assert (shown_map.moved, shown_map.others) == ("bowl", ["cube"])


@pytest.mark.parametrize("initial", [None, {}, {"cube": []}, {"cube": [0.5]}, {"cube": "left"}])
def test_without_a_place_there_is_no_map(initial: object):
    plain = evaluation("sf")
    for trial in plain["trials"]:
        trial["initial"] = initial
    assert task_map(plain) is None


def test_all_objects_at_one_place_have_a_map(tmp_path: Path):
    plain = evaluation("sf")
    for trial in plain["trials"]:
        trial["initial"] = {"cube": [0.5, 0.0]}
    shown_map = task_map(plain)
    assert shown_map is not None
    assert "nan" not in shown_map.chart
