"""Conditions, paired differences over seeds, and verdicts, from records of cells."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from morph_vla.errors import MorphVlaError
from morph_vla.results import cells
from morph_vla.results.cells import CellRecord, Judged
from morph_vla.results.evidence import conditions, contrast, judge, paired, pooled
from morph_vla.results.intervals import Mean
from morph_vla.results.record import PolicyCard, Record, SuiteFacts, TaskFacts
from morph_vla.results.trial import Trial

ROWS = 100
PLACES = (("no-a", "a"), ("no-b", "b"))


def body(name: str, successes: int, rows: int = ROWS, states: str = "s", seen: bool = False) -> Judged:
    return Judged(
        name, f"{name}:task", seen, "1" * successes + "0" * (rows - successes), states_sha256=states
    )


def cell(condition: str, seed: int, split: str, *bodies: Judged) -> CellRecord:
    return CellRecord(split=split, condition=condition, seed=seed, settings_sha256="x", judged=bodies)


def study(better: list[tuple[int, int]], than: list[tuple[int, int]]) -> list[CellRecord]:
    """A condition's successes on a and b, seed by seed."""
    return [
        cell(condition, seed, split, body(name, count))
        for condition, rows in (("full", better), ("matched", than))
        for seed, counts in enumerate(rows)
        for (split, name), count in zip(PLACES, counts, strict=True)
    ]


def test_the_estimate_is_students_over_the_means_of_seeds():
    records = study([(60, 40), (70, 30), (50, 55)], [(50, 40), (55, 35), (50, 41)])
    d = contrast(records, "full", "matched", PLACES)
    means = [0.05, 0.05, 0.07]
    np.testing.assert_allclose(list(d.seeds.values()), means)
    theirs: Any = stats.ttest_1samp(means, 0.0)
    assert d.estimate is not None
    np.testing.assert_allclose(d.estimate.low, theirs.confidence_interval().low)
    np.testing.assert_allclose(d.estimate.p_value, theirs.pvalue)
    assert {name: round(value, 4) for name, value in d.bodies.items()} == {"no-a: a": 0.0833, "no-b: b": 0.03}


def test_what_is_common_to_all_bodies_of_a_seed_widens_the_interval_and_bodies_do_not():
    of_bodies = contrast(study([(70, 50), (70, 50)], [(50, 50), (50, 50)]), "full", "matched", PLACES)
    of_seeds = contrast(study([(70, 70), (50, 50)], [(50, 50), (50, 50)]), "full", "matched", PLACES)
    assert of_bodies.estimate is not None
    assert of_seeds.estimate is not None
    assert of_bodies.estimate.mean == of_seeds.estimate.mean == pytest.approx(0.1)
    assert of_bodies.estimate.half_width == 0  # both seeds say the same
    assert of_seeds.estimate.half_width > 1


def test_exchanging_the_sides_changes_the_sign():
    records = study([(60, 40), (70, 30)], [(50, 45), (55, 35)])
    one, other = (contrast(records, *sides, PLACES) for sides in (("full", "matched"), ("matched", "full")))
    assert one.estimate is not None
    assert other.estimate is not None
    np.testing.assert_allclose(
        [one.estimate.mean, one.estimate.low, one.estimate.p_value],
        [-other.estimate.mean, -other.estimate.high, other.estimate.p_value],
    )


def test_a_seed_that_lacks_a_body_of_either_condition_is_left_out():
    records = study([(60, 40), (70, 30), (50, 55)], [(50, 40), (55, 35), (50, 41)])
    del records[3]  # full, seed 1, b
    d = contrast(records, "full", "matched", PLACES)
    assert d.seeds.keys() == {0, 2}
    alone = contrast(records[:1] + records[5:7], "full", "matched", PLACES)
    assert (alone.estimate, alone.bodies) == (None, {})
    assert str(alone) == "full - matched: 0 seeds have every body; two are needed"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"states_sha256": "t"},
            r"^body 'a': the two conditions were judged on other initial states, by anot",
        ),
        ({"rows": "10"}, r"^body 'a': the two conditions were judged on 2 and 100 rows$"),
    ],
)
def test_other_rows_are_no_pair(changes, words):
    with pytest.raises(MorphVlaError, match=words):
        paired(dataclasses.replace(body("a", 3), **changes), body("a", 3))


def test_an_error_is_no_success():
    assert dataclasses.replace(body("a", 3), rows="1e0e").rate == 0.25


@pytest.mark.parametrize(
    ("means", "p_value", "verdict"),
    [
        ((0.06, 0.11, 0.16), 0.02, "yes"),
        ((0.06, 0.11, 0.16), 0.04, "undecided"),  # by Holm 0.08
        ((0.01, 0.04, 0.07), 0.01, "undecided"),  # surely better, not surely by the margin
        ((0.001, 0.02, 0.049), 0.01, "no"),  # surely better, and surely by less than the margin
        ((-0.2, -0.1, 0.0), 0.01, "no"),
        ((-0.2, 0.1, 0.4), 0.5, "undecided"),
    ],
)
def test_verdicts(means, p_value, verdict):
    low, mean, high = means
    some = contrast(study([(60, 40), (70, 30)], [(50, 45), (55, 35)]), "full", "matched", PLACES)
    given = [
        dataclasses.replace(some, name=name, estimate=Mean(low, high, mean, p))
        for name, p in (("H1", p_value), ("H2", 0.9))
    ]
    first, second = judge(given, 0.05)
    assert (first.verdict, first.p_holm) == (verdict, pytest.approx(2 * p_value))
    assert str(first).endswith(f"Holm p {2 * p_value:.4f}: {verdict}")
    assert "Holm p < 0.0001" in str(dataclasses.replace(first, p_holm=1e-5))
    assert second.p_holm == pytest.approx(max(0.9, 2 * p_value))


def test_an_interval_ends_at_what_two_rates_can_differ_by():
    made = contrast(study([(100, 100), (90, 90)], [(0, 0), (0, 0)]), "full", "matched", PLACES, "H1")
    assert made.estimate is not None
    assert made.interval is not None
    assert made.estimate.high > 1
    assert (made.interval.mean, made.interval.high) == (pytest.approx(0.95), 1.0)
    assert "[+31.5, +100.0]" in str(made)
    turned = contrast(study([(0, 0), (0, 0)], [(100, 100), (90, 90)]), "full", "matched", PLACES, "H1")
    assert turned.interval is not None
    assert turned.interval.low == -1.0


def test_a_hypothesis_that_was_not_measured_counts_among_those_that_are_tested():
    records = study([(60, 60), (62, 62), (61, 61)], [(50, 50), (50, 50), (50, 50)])
    measured = contrast(records, "full", "matched", PLACES, "H1")
    unmeasured = contrast(records, "other", "matched", PLACES, "H2")
    first, second = judge([measured, unmeasured], 0.05)
    assert measured.estimate is not None
    assert first.p_holm == pytest.approx(2 * measured.estimate.p_value)
    assert (first.verdict, second.verdict, second.p_holm) == ("yes", "undecided", None)


@pytest.mark.parametrize(
    ("better", "than", "points", "why"),
    [
        (80, 50, "+30.0", "every seed gave the same difference: no interval"),
        (50, 80, "-30.0", "every seed gave the same difference: no interval"),
        (50, 50, "+0.0", "every seed gave the same difference: no interval"),
        (0, 0, "+0.0", "nothing succeeded under either condition: no interval"),
        (100, 100, "+0.0", "every row succeeded under both conditions: no interval"),
    ],
)
def test_seeds_that_all_say_the_same_have_no_interval_and_decide_nothing(better, than, points, why):
    same = contrast(study([(better, better)] * 3, [(than, than)] * 3), "full", "matched", PLACES, "H1")
    other = contrast(study([(60, 60), (62, 62), (61, 61)], [(50, 50)] * 3), "full", "matched", PLACES, "H2")
    first, second = judge([same, other], 0.05)
    assert (first.verdict, first.p_holm) == ("undecided", 1.0)
    assert str(first) == f"H1: full - matched: {points} points, Holm p 1.0000: undecided ({why})"
    # It counts among the hypotheses, with a p value that says nothing.
    assert other.estimate is not None
    assert (second.verdict, second.p_holm) == ("yes", pytest.approx(2 * other.estimate.p_value))


def test_an_unfinished_hypothesis_is_undecided_whatever_it_says_so_far():
    clear = contrast(study([(90, 90), (92, 92), (91, 91)], [(50, 50)] * 3), "full", "matched", PLACES, "H1")
    words = "so far: 3 of 5 seeds"
    (decided,), (open_,) = (judge([dataclasses.replace(clear, unfinished=u)], 0.05) for u in ("", words))
    assert (decided.verdict, open_.verdict) == ("yes", "undecided")
    assert str(decided).endswith("seeds), p 0.0002: yes")  # alone: there is nothing to correct it for
    assert str(open_).endswith("seeds), p 1.0000: undecided (so far: 3 of 5 seeds)")
    (alone,) = judge([contrast([], "full", "matched", PLACES, "H1")], 0.05)
    assert str(dataclasses.replace(alone, unfinished=words)).endswith("two are needed (so far: 3 of 5 seeds)")


def test_a_width_of_rounding_is_none():
    # 77 successes of 200 in each seed, whose differences are summed to other last bits.
    d = contrast(study([(72, 5), (8, 69), (32, 45)], [(37, 41)] * 3), "full", "matched", PLACES)
    assert d.estimate is not None
    assert d.estimate.half_width > 0
    assert d.interval is None
    assert d.estimate.p_value == 1.0


def test_bodies_that_were_trained_on_are_apart():
    both = [body("a", 10), body("b", 90, seen=True), body("c", 30)]
    nothing = [cell("full", seed, "no-a", body("a", 0)) for seed in range(3)]
    (row,) = conditions(nothing, seeds={"full": 3})
    assert (row.rate, row.interval) == (0, None)  # three zeros say nothing of how far another seed's would be
    rows = conditions([cell("full", 0, "no-a", *both), cell("full", 1, "no-a", *both)], seeds={"full": 5})
    assert [(row.seen, row.rate, row.missing) for row in rows] == [
        (False, pytest.approx(0.2), 3),
        (True, 0.9, 3),
    ]
    assert rows[0].bodies == {"a": 0.1, "c": 0.3}
    assert rows[0].interval is None
    other = cell("full", 2, "no-a", body("a", 11), *both[1:])
    rows = conditions([cell("full", 0, "no-a", *both), other], seeds={"full": 5})
    assert rows[0].interval is not None


def test_places_of_several_splits_are_one_where_a_seed_has_them_all():
    records = study([(60, 40), (70, 30), (50, 55)], [(50, 40), (55, 35), (50, 41)])
    del records[3]  # full, seed 1, b
    full, matched = pooled(records, PLACES, {"full": 5, "matched": 7})
    assert (full.condition, full.seeds, full.missing, full.seen) == ("full", {0: 0.5, 2: 0.525}, 3, False)
    assert (matched.condition, len(matched.seeds), matched.missing) == ("matched", 3, 4)
    assert matched.bodies == {"a": pytest.approx(0.5167, abs=1e-4), "b": pytest.approx(0.3867, abs=1e-4)}
    difference = contrast(records, "full", "matched", PLACES)
    np.testing.assert_allclose(difference.seeds[0], full.seeds[0] - matched.seeds[0])


def test_a_record_keeps_every_row_of_an_evaluation(tmp_path):
    trials = [
        Trial(task="t", episode=1, success=False, touched=True, lifted=False),
        Trial(
            task="t", episode=0, success=True, time_s=3.123456, touched=True, lifted=True, least={"d": 0.01}
        ),
        Trial(task="t", episode=2, success=False, ended="error", error="it broke"),
    ]
    suite = SuiteFacts(name="s", tasks={"t": TaskFacts(initial_states_sha256="abc")})
    record = Record(suite=suite, policy=PolicyCard(sha256="p"), trials=tuple(trials))
    kept = cells.judged(record, "a", seen=False)
    assert (kept.suite, kept.rows, kept.successes, kept.states_sha256) == ("s:t", "10e", 1, "abc")
    assert kept.events == {"touched": "11?", "lifted": "10?"}
    assert kept.seconds == (3.1235, None, None)
    assert kept.least == {"d": (0.01, None, None)}
    whole = dataclasses.replace(
        cell("full", 3, "no-a", kept), settings={"recipe": {"a": 1}}, seconds={"train": 2.5}
    )
    cells.write(whole, tmp_path / "3.json")
    assert cells.read(tmp_path / "3.json") == whole
    assert str(whole) == "no-a/full/3: a 1 of 3 (unseen)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"3\.json: not a record of a cell: "),
        ("[]", r"3\.json: schema None of a cell's record, expected 1$"),
        ('{"schema": 1}', r"3\.json: a cell's record has rows of 1, 0 and e for every body it judged$"),
        ('{"schema": 1, "judged": [{"rows": "12"}]}', r"has rows of 1, 0 and e for every body it judged$"),
        (
            '{"schema": 1, "seed": "1", "judged": [{"rows": "10"}]}',
            r"3\.json: a cell's seed is an integer, not '1'$",
        ),
        ("[" * 100_000, r"3\.json: not a record of a cell: "),
    ],
)
def test_what_is_no_record_of_a_cell(tmp_path, text, words):
    (tmp_path / "3.json").write_text(text)
    with pytest.raises(MorphVlaError, match=words):
        cells.read(tmp_path / "3.json")
