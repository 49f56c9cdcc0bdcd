"""Programs compiled ahead: once a name, whichever thread asks, and nothing measured meanwhile."""

import math
import threading

import pytest

from benchmarks import ahead
from benchmarks.harness import take_turns


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(ahead, "_kept", None)


def test_nothing_is_kept_for_who_does_not_ask():
    made = [ahead.kept("a", object) for _ in range(2)]
    assert made[0] is not made[1]
    assert not ahead.keeping()


def test_a_name_is_made_once_and_found_again():
    made, together = [], threading.Barrier(3, timeout=30)

    def part():
        together.wait()
        made.append(ahead.kept("a", object))

    assert ahead.all_of([part] * 3, threads=3) == [None] * 3
    assert ahead.keeping()
    assert len(set(map(id, made))) == 1
    assert ahead.kept("a", object) is made[0]
    assert ahead.kept("b", object) is not made[0]


def test_what_went_wrong_is_told_and_comes_again_when_it_is_asked_for():
    def none():
        raise ValueError("no kernel of seven")

    def part():
        ahead.kept("a", none)

    (error, fine) = ahead.all_of([part, lambda: None], threads=2)
    assert str(error) == "no kernel of seven"
    assert fine is None
    with pytest.raises(ValueError, match="no kernel of seven"):
        ahead.kept("a", none)


def test_nothing_is_measured_while_programs_are_compiled():
    ran, taken = [], []

    def part():
        taken.append(take_turns({"work": lambda: ran.append(1)}, 3))

    ahead.all_of([part], threads=1)
    assert not ran
    assert math.isnan(taken[0]["work"])
    take_turns({"work": lambda: ran.append(1)}, 3)
    assert len(ran) == 4
    assert not ahead.collecting()


def test_a_part_lets_go_of_what_only_it_needs():
    def part():
        ahead.kept("theirs 1", object)
        ahead.kept("ours", object)
        ahead.dropped("theirs")

    ahead.dropped("theirs")  # nothing is kept yet
    ahead.all_of([part], threads=1)
    theirs, ours = ahead.kept("theirs 1", object), ahead.kept("ours", object)
    ahead.dropped("theirs")
    assert ahead.kept("ours", object) is ours
    assert ahead.kept("theirs 1", object) is not theirs
