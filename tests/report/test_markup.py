"""How the report words its numbers, and the elements and axes of its charts."""

import pytest

from morph_vla.report.charts import Axis, el
from morph_vla.report.words import bracket, count, duration, percent, points, short, value_words


def test_words_for_numbers():
    assert [percent(0.0), percent(0.7649), percent(None)] == ["0.0%", "76.5%", "not measured"]
    assert bracket(0.0, 0.0370) == "[0.0,\u00a03.7]"
    assert [points(0.74), points(-0.031), points(0.0), points(-0.0001)] == ["+74.0", "−3.1", "0.0", "0.0"]
    assert [duration(4.23), duration(59.99), duration(150), duration(3905)] == [
        "4.2 s",
        "1 min 00 s",
        "2 min 30 s",
        "1 h 05 min",
    ]
    assert [count(1013220), count(7), count("x"), count(None)] == ["1\u202f013\u202f220", "7", "–", "–"]
    assert [short(1.50), short(-0.001), short(12.0)] == ["1.5", "0", "12"]
    assert value_words({"low": [0.5, 1.0], "on": True, "n": None}) == "low 0.5 1, on yes, n none"


def test_an_element_escapes_its_children_and_attributes():
    made = el("text", "a < b", el("title", 3), None, aria_label='say "no"', x=1.504, class_=None)
    assert made == '<text aria-label="say &#34;no&#34;" x="1.5">a &lt; b<title>3</title></text>'


def test_an_axis_maps_its_ends_and_labels_round_values():
    rate, metres = Axis(0.0, 1.0, 230.0, 10.0), Axis(-0.23, 0.31, 7.0, 107.0)
    assert [rate(0.0), rate(0.5), rate(1.0)] == [230.0, 120.0, 10.0]
    assert rate.ticks == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert metres.ticks == pytest.approx([-0.2, 0.0, 0.2])
    loss = Axis(0.02, 3.0, 200.0, 0.0, log=True)
    assert [loss(0.02), loss(3.0)] == pytest.approx([200.0, 0.0])
    assert loss.ticks == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
    assert Axis(1e-5, 1.0, 0.0, 1.0, log=True).ticks == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0])
