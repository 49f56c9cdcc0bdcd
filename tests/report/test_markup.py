"""How the report words its numbers and builds its elements."""

from morph_vla.report.markup import bracket, count, duration, el, percent, points, short, value_words


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
    made = el("p", "a < b", el("b", 3), None, title='say "no"', hidden=True, class_=None)
    assert made == '<p title="say &quot;no&quot;" hidden>a &lt; b<b>3</b></p>'
