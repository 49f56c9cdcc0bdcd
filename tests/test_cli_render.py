"""Answers as tables and as JSON."""

import dataclasses
import json
from pathlib import Path

from morph_vla.cli import render
from morph_vla.wording import count, table


@dataclasses.dataclass(frozen=True)
class Arm:
    name: str
    joints: int
    side: str

    @property
    def hands(self) -> int:
        return 1


ARMS = Arm("panda", 8, "left"), Arm("a_longer_name", 13, "right")


def test_a_table_puts_numbers_right_and_words_left():
    lines = ["arm            joints", "panda               8", "a_longer_name      13"]
    assert table(("arm", "joints"), ARMS) == lines


def test_an_empty_table_is_its_header():
    assert table(("arm", "joints"), []) == ["arm  joints"]


def test_nouns_are_counted():
    assert [count(number, "joint") for number in (0, 1, 2)] == ["0 joints", "1 joint", "2 joints"]


def test_an_answer_is_its_own_words_or_others(capsys):
    render.render(Path("a.urdf"), False)
    render.render(Path("a.urdf"), False, text="another")
    assert capsys.readouterr().out == "a.urdf\nanother\n"


def test_json_has_no_numbers_that_json_lacks(capsys):
    render.print_json({"limits": [float("-inf"), 0.5], "rate": float("nan")})
    assert json.loads(capsys.readouterr().out) == {"limits": [None, 0.5], "rate": None}


def test_json_has_the_fields_and_the_properties_and_more_that_are_named(capsys):
    arm = Arm("panda", 8, "left")
    plain = {"name": "panda", "joints": 8, "side": "left", "hands": 1, "file": "a.urdf"}
    render.render(arm, True, "hands", file=Path("a.urdf"))
    assert json.loads(capsys.readouterr().out) == plain
    render.render((arm, arm), True, "hands", file=Path("a.urdf"))
    assert json.loads(capsys.readouterr().out) == [plain, plain]


def test_words_of_strangers_do_not_steer_a_terminal(capsys):
    render.render("evil\x1b[2J\ttab\u202f1\nnext line", False)
    assert capsys.readouterr().out == "evil\\x1b[2J\ttab\u202f1\nnext line\n"


def test_a_name_that_is_no_utf8_is_answered(capsys):
    render.render({"file": "n\udcff"}, True)
    assert json.loads(capsys.readouterr().out) == {"file": "n\udcff"}
    render.render("n\udcff", False)
    assert capsys.readouterr().out == "n\\udcff\n"
