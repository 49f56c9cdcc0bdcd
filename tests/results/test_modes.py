"""The ways in which several objects were sorted: counts, entropy, and how a record keeps them."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.results.modes import label, modes, sorting
from morph_vla.results.record import Record, record_from_json
from morph_vla.results.trial import Trial

RED, GREEN = (("red", "near"), ("green", "far")), (("green", "near"), ("red", "far"))
WAYS = [
    "red in near, green in far",
    "green in near, red in far",
    "red in far, green in near",
    "green in far, x",
]


def trial(episode: int, success: bool, *placed: tuple[str, str]) -> Trial:
    return Trial(episode=episode, success=success, ended="success" if success else "time", placed=placed)


TRIALS = (
    trial(0, True, *RED), trial(1, True, *GREEN), trial(2, True, *RED), trial(3, False, *RED[:1]),
    trial(4, False, ("red", "near"), ("green", "near")), trial(5, False), trial(6, True, *RED),
)  # fmt: skip


@given(st.lists(st.integers(0, 13), min_size=4, max_size=4).filter(any))
def test_the_entropy_is_between_none_and_all_ways_alike(counts):
    found = modes(name for name, count in zip(WAYS, counts, strict=True) for _ in range(count))
    assert found is not None
    assert -1e-9 <= found.entropy <= found.most + 1e-9
    assert (found.entropy < 1e-9) == (sum(map(bool, counts)) == 1)
    assert found.most == 2.0
    if len(set(counts)) == 1:
        assert found.entropy == pytest.approx(2.0)


def test_nothing_that_succeeded_has_no_modes():
    assert modes([]) is None
    assert sorting([trial(0, True), trial(1, False)]) is None
    assert str(sorting([trial(0, False, *RED[:1])])) == "objects placed at the end: 1 in 1 of 1 episodes"


def test_three_objects_have_thirty_six_ways():
    found = modes([label([("a", "x"), ("b", "y"), ("c", "z")])])
    assert found is not None
    assert 2**found.most == pytest.approx(36)


def test_it_is_said_how_many_were_placed_and_in_which_order():
    assert str(sorting(TRIALS)).splitlines() == [
        "objects placed at the end: 2 in 4, 1 in 2, 0 in 1 of 7 episodes",
        "modes of 4 episodes: red in near, green in far 3; green in near, red in far 1; "
        "entropy 0.81 of 2.00 bits",
    ]


def test_a_record_keeps_them_and_says_them():
    record = Record(trials=TRIALS)
    read = record_from_json(record.to_json(), Path())
    assert read.trials == TRIALS
    assert str(record).endswith(str(sorting(TRIALS)))
    plain = dataclasses.replace(record, trials=(trial(0, True),)).to_json()
    assert "placed" not in json.dumps(plain)
    assert "objects placed" not in str(record_from_json(plain, Path()))
