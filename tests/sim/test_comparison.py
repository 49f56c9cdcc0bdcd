"""Differences of evaluations: Tango's paired interval against what others computed, and its coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar

from morph_vla.errors import MorphVlaError
from morph_vla.sim.comparison import check_comparable, compare
from morph_vla.sim.intervals import TANGO, constrained, newcombe, paired_score, tango
from morph_vla.sim.statistics import mcnemar


@st.composite
def discordant(draw, largest: int = 211) -> tuple[int, int, int]:
    """(only a, only b, pairs)."""
    pairs = draw(st.integers(1, largest))
    only_a = draw(st.integers(0, pairs))
    return only_a, draw(st.integers(0, pairs - only_a)), pairs


def trial(episode: int, success: bool = False, **fields) -> dict:
    """One trial as `sim/rollout.py` writes it."""
    ended = "success" if success else "time"
    place = {"cube": [0.5, 0.01 * episode, 0.3], "bowl": [0.4, -0.2, 0.0]}
    plain = {"episode": episode, "success": success, "time_s": 3.0 if success else None, "ended": ended}
    return {**plain, "failed_clause": None if success else "inside", "initial": place, **fields}


def record(outcomes: list[bool], name: str = "trained", suite: str = "droid_panda", **facts) -> dict:
    trials = [trial(episode, success) for episode, success in enumerate(outcomes)]
    about = {"suite": {"name": suite, **facts}, "policy": {"name": name}}
    return {"schema": 2, "kind": "evaluation", **about, "trials": trials}


# --- Tango's interval


@pytest.mark.parametrize(
    ("only_a", "only_b", "pairs", "confidence", "low", "high", "digits"),
    [
        # The two examples of Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014) 2850-2875; the
        # second as the authors' R package contingencytables prints it, the third as PropCIs::scoreci.mp does.
        (7, 1, 21, 0.95, -0.517, -0.026, 3),
        (16, 6, 161, 0.95, -0.1240, -0.0054, 4),
        (41, 48, 549, 0.90, -0.0157, 0.0414, 4),
    ],
)
def test_tango_equals_what_others_published(only_a, only_b, pairs, confidence, low, high, digits):
    bounds = tango(only_a, only_b, pairs, confidence)
    assert (round(bounds.low, digits), round(bounds.high, digits)) == (low, high)


@pytest.mark.parametrize(("only_a", "only_b", "pairs"), [(0, 0, 7), (1, 5, 13), (11, 3, 53), (0, 9, 97)])
def test_the_constrained_likelihood_is_the_one_a_solver_finds(only_a: int, only_b: int, pairs: int):
    rest = pairs - only_a - only_b
    for difference in (-0.83, -0.31, 0.0, 0.11, 0.67):

        def loss(q, difference=difference):
            cells = ((only_a, q), (only_b, q + difference), (rest, 1 - difference - 2 * q))
            return -sum(n * math.log(max(p, 1e-300)) for n, p in cells if n)

        span = (max(0.0, -difference), (1 - difference) / 2)
        found = optimize.minimize_scalar(loss, bounds=span, method="bounded", options={"xatol": 1e-12})
        ours = constrained(only_a, only_b, pairs, difference)
        assert span[0] <= ours <= span[1]
        assert loss(ours) <= found.fun + 1e-9


@given(discordant())
def test_tango_excludes_zero_exactly_where_mcnemars_score_test_does(counts):
    only_a, only_b, pairs = counts
    bounds = tango(only_a, only_b, pairs)
    table = [[0, only_a], [only_b, 0]]
    if only_a + only_b:
        p = vars(reference_mcnemar(table, exact=False, correction=False))["pvalue"]
        assert (bounds.low > 0 or bounds.high < 0) == (p < 0.05)
    else:
        assert bounds.low < 0 < bounds.high


@given(discordant())
def test_tango_contains_the_difference_stays_inside_and_changes_sign_on_a_swap(counts):
    only_a, only_b, pairs = counts
    there, back = tango(only_a, only_b, pairs), tango(only_b, only_a, pairs)
    assert -1 <= there.low <= (only_b - only_a) / pairs <= there.high <= 1
    assert there.low < there.high
    assert (there.low, there.high) == (-back.high, -back.low)


@given(discordant())
def test_tangos_bounds_solve_the_score_equation(counts):
    only_a, only_b, pairs = counts
    bounds, z = tango(only_a, only_b, pairs), stats.norm.ppf(0.975)
    for bound, score in ((bounds.low, z), (bounds.high, -z)):
        if abs(bound) < 1 - 1e-9:
            assert paired_score(only_a, only_b, pairs, bound) == pytest.approx(score, abs=1e-6)


def test_tango_covers_as_it_promises_by_enumeration_of_every_outcome():
    pairs = 37
    outcomes = [(a, b) for a in range(pairs + 1) for b in range(pairs + 1 - a)]
    bounds = np.array([(i.low, i.high) for i in (tango(a, b, pairs) for a, b in outcomes)])
    covered = []
    for share in (0.1, 0.2, 0.3, 0.5, 0.8):  # of pairs that exactly one of the two solves
        for difference in np.linspace(0, 0.9 * share, 7):
            cells = [(share - difference) / 2, (share + difference) / 2, 1 - share]
            chances = stats.multinomial.pmf([(a, b, pairs - a - b) for a, b in outcomes], pairs, cells)
            inside = (bounds[:, 0] <= difference + 1e-12) & (difference - 1e-12 <= bounds[:, 1])
            covered.append(float(chances[inside].sum()))
    assert 0.945 < np.mean(covered) < 0.965
    assert min(covered) > 0.925


def test_pairing_narrows_the_interval_where_the_two_agree():
    paired, independent = tango(5, 17, 300), newcombe(120, 300, 132, 300)
    assert paired.half_width < 0.6 * independent.half_width
    with pytest.raises(MorphVlaError, match="0 trials: nothing was measured"):
        tango(0, 0, 0)
    with pytest.raises(MorphVlaError, match="8 successes of 7 trials cannot be"):
        tango(5, 3, 7)


# --- comparisons


def test_a_comparison_pairs_equal_initial_states():
    before = record([True, True, False, False, False, False, False], "untrained")
    after = record([True, False, True, True, True, False, False])
    after["engine"] = {"name": "mujoco", "version": "4.0.0"}
    result = compare(before, after)
    bounds, independent = tango(1, 3, 7), newcombe(2, 7, 4, 7)
    assert result == {
        "a": "untrained",
        "b": "trained",
        "engine_a": None,
        "engine_b": "mujoco 4.0.0",
        "conditions": [],
        "unknown": (
            "a, b do not say the whole criterion, objects, servos and cameras (written before schema 3): "
            "whether these are the same is unknown"
        ),
        "common": None,
        "rate_a": 2 / 7,
        "rate_b": 4 / 7,
        "difference": 4 / 7 - 2 / 7,
        "low": bounds.low,
        "high": bounds.high,
        "confidence": 0.95,
        "interval": TANGO,
        "independent": {
            "low": independent.low,
            "high": independent.high,
            "interval": "Newcombe 1998, method 10",
        },
        "paired": {"both": 1, "only_a": 1, "only_b": 3, "neither": 2, "p_value": mcnemar(1, 3)},
        "reason": None,
        "tasks": {},
    }


def test_a_comparison_pairs_by_episode_not_by_place():
    before, after = record([True, False, False]), record([True, False, True])
    after["trials"].reverse()
    paired = compare(before, after)["paired"]
    assert paired == {"both": 1, "only_a": 0, "only_b": 1, "neither": 1, "p_value": 1.0}


def test_a_comparison_that_cannot_be_paired_says_why():
    before, other = record([True, False, True]), record([True, False, True])
    other["trials"][1]["initial"] = {"cube": [0.1, 0.2, 0.3]}
    apart = compare(before, other)
    assert apart["reason"] == "the initial states differ, first in episode 1"
    assert apart["interval"] == "Newcombe 1998, method 10"
    assert (apart["low"], apart["high"]) == (newcombe(2, 3, 2, 3).low, newcombe(2, 3, 2, 3).high)
    other["trials"][1]["initial"] = None
    assert compare(before, other)["reason"] == "episode 1 does not say from which initial state it started"
    assert compare(before, record([True] * 5))["reason"] == "the episodes differ: 0 only in a, 2 only in b"
    seeds = compare(record([True] * 3, seed=3), record([True] * 3, seed=5))
    assert seeds["reason"] == "the seeds differ, and with them the initial states: 3 and 5"
    assert seeds["difference"] == 0


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (record([True] * 3, suite="g1_red_block"), "the suites differ: droid_panda and g1_red_block"),
        (record([True] * 3, version=2), "the versions of the suite differ: 1 and 2"),
    ],
)
def test_other_suites_and_versions_have_no_difference(other: dict, words: str):
    first = record([True, False, True], version=1)
    result = compare(first, other)
    assert (result["difference"], result["low"], result["paired"], result["interval"]) == (None,) * 4
    assert (result["reason"], result["rate_b"]) == (words, 1.0)
    with pytest.raises(
        MorphVlaError, match=f"x and y: {words}; success rates of different tasks are neither"
    ):
        check_comparable({"x": first, "y": other})


def test_tasks_are_compared_each_and_pooled():
    a, b = record([]), record([], "other")
    outcomes = {"cube": ("sfsff", "ssssf"), "can": ("fffsfsf", "fffffff")}
    for found, side in ((a, 0), (b, 1)):
        for task, letters in outcomes.items():
            found["trials"] += [trial(i, c == "s", task=task) for i, c in enumerate(letters[side])]
    result = compare(a, b)
    assert result["paired"] == {"both": 2, "only_a": 2, "only_b": 2, "neither": 6, "p_value": 1.0}
    assert result["tasks"]["cube"]["difference"] == pytest.approx(2 / 5)
    assert result["tasks"]["can"]["paired"]["only_a"] == 2
    assert (result["tasks"]["can"]["low"], result["tasks"]["can"]["high"]) == (
        tango(2, 0, 7).low,
        tango(2, 0, 7).high,
    )
    b["trials"] = [t for t in b["trials"] if t["task"] == "cube"]
    part = compare(a, b)
    assert (part["difference"], part["reason"]) == (None, "the tasks differ: can, cube and cube")
    assert part["tasks"]["cube"]["paired"]["only_b"] == 2


def test_a_comparison_with_nothing_measured_has_no_difference():
    result = compare(record([]), record([True, False, True]))
    assert all(result[key] is None for key in ("difference", "low", "high", "rate_a", "paired", "interval"))
    assert result["rate_b"] == pytest.approx(2 / 3)
    assert result["reason"] == "one of the two has no trials"


def test_what_is_no_evaluation_record_is_refused_in_words():
    with pytest.raises(MorphVlaError, match="this is no evaluation record: it has no list of trials"):
        compare({"kind": "demo"}, record([True]))
