"""Laws of the intervals, and their values against statsmodels and the published tables."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.results import statistics
from morph_vla.results.intervals import (
    Interval,
    mcnemar,
    mean_of_rates,
    median_interval,
    newcombe,
    wilson,
)
from morph_vla.results.trial import list_from_json

SIZES = (1, 2, 3, 7, 10, 13, 53, 100, 101, 300, 1009)


@st.composite
def counts(draw, largest: int = 401) -> tuple[int, int]:
    """(successes, trials)."""
    trials = draw(st.integers(1, largest))
    return draw(st.integers(0, trials)), trials


def trial(episode: int, success: bool = False, **fields) -> dict:
    """One trial as `evaluation/rollout.py` writes it."""
    ended = "success" if success else "time"
    clause = None if success else "inside"
    place = {"cube": [0.5, 0.01 * episode, 0.3], "bowl": [0.4, -0.2, 0.0]}
    plain = {"episode": episode, "success": success, "time_s": 3.0 if success else None, "ended": ended}
    return {**plain, "failed_clause": clause, "initial": place, **fields}


def summarise(trials: list[dict]) -> dict:
    """The summary of trials as they are read from a file, as it is written to one."""
    return to_plain(statistics.summarise(list_from_json(trials, Path())))


# --- Wilson


@pytest.mark.parametrize("trials", SIZES)
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_equals_statsmodels(trials: int, confidence: float):
    for successes in sorted({0, 1, trials // 3, trials // 2, trials - 1, trials}):
        ours = wilson(successes, trials, confidence)
        low, high = proportion_confint(successes, trials, alpha=1 - confidence, method="wilson")
        assert ours.low == pytest.approx(low, abs=1e-12)
        assert ours.high == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3 (Wilson)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_equals_the_published_table(successes: int, trials: int, low: float, high: float):
    bounds = wilson(successes, trials)
    assert (round(bounds.low, 4), round(bounds.high, 4)) == (low, high)


@pytest.mark.parametrize("trials", SIZES)
def test_wilson_is_exact_at_the_edges(trials: int):
    z = 1.959963984540054
    assert wilson(0, trials).low == 0.0
    assert wilson(0, trials).high == pytest.approx(z**2 / (trials + z**2))
    assert wilson(trials, trials).high == 1.0
    assert wilson(trials, trials).low == pytest.approx(trials / (trials + z**2))


@given(counts())
def test_wilson_mirrors_when_successes_and_failures_swap(count: tuple[int, int]):
    successes, trials = count
    ours, mirrored = wilson(successes, trials), wilson(trials - successes, trials)
    assert ours.low == pytest.approx(1 - mirrored.high, abs=1e-15)
    assert ours.high == 1 - mirrored.low


@given(counts())
def test_wilson_stays_in_the_unit_interval_and_contains_the_rate(count: tuple[int, int]):
    successes, trials = count
    bounds = wilson(successes, trials)
    assert 0 <= bounds.low <= successes / trials <= bounds.high <= 1
    assert bounds.low < bounds.high


@given(counts())
def test_wilson_rises_with_successes(count: tuple[int, int]):
    successes, trials = count
    if successes < trials:
        less, more = wilson(successes, trials), wilson(successes + 1, trials)
        assert less.low < more.low
        assert less.high < more.high


@given(counts(), st.integers(2, 11))
def test_wilson_narrows_with_more_trials_at_the_same_rate(count: tuple[int, int], times: int):
    successes, trials = count
    assert wilson(times * successes, times * trials).half_width < wilson(successes, trials).half_width


@given(counts(), st.floats(0.05, 0.9), st.floats(0.01, 0.09))
def test_wilson_widens_with_confidence(count: tuple[int, int], confidence: float, more: float):
    assert wilson(*count, confidence).half_width < wilson(*count, confidence + more).half_width


def test_half_width_is_half_the_width():
    assert Interval(0.25, 0.75).half_width == 0.25


def test_impossible_counts_are_refused_in_words():
    with pytest.raises(MorphVlaError, match="0 trials: nothing was measured, so there is no rate"):
        wilson(0, 0)
    with pytest.raises(MorphVlaError, match="8 successes of 7 trials are impossible"):
        wilson(8, 7)
    with pytest.raises(MorphVlaError, match="-1 successes of 7 trials are impossible"):
        wilson(-1, 7)
    with pytest.raises(
        MorphVlaError, match=r"the confidence must be between 0 and 1, got 95\.0; 95% is 0\.95"
    ):
        wilson(3, 7, 95.0)


# --- Newcombe


@pytest.mark.parametrize("trials_a", [1, 3, 13, 100, 307])
@pytest.mark.parametrize("trials_b", [1, 7, 101])
def test_newcombe_equals_statsmodels(trials_a: int, trials_b: int):
    for a in sorted({0, 1, trials_a // 2, trials_a}):
        for b in sorted({0, 1, trials_b // 3, trials_b}):
            ours = newcombe(a, trials_a, b, trials_b)
            low, high = confint_proportions_2indep(b, trials_b, a, trials_a, method="newcomb", compare="diff")
            assert ours.low == pytest.approx(low, abs=1e-12)
            assert ours.high == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998) 873-890, table II, method 10: first minus second
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0000),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_newcombe_equals_the_published_table(first, second, low: float, high: float):
    bounds = newcombe(*second, *first)
    assert (round(bounds.low, 4), round(bounds.high, 4)) == (low, high)


@given(counts(), counts())
def test_newcombe_changes_sign_when_the_two_swap(a: tuple[int, int], b: tuple[int, int]):
    there, back = newcombe(*a, *b), newcombe(*b, *a)
    assert there.low == -back.high
    assert there.high == -back.low


@given(counts(), counts())
def test_newcombe_contains_the_difference(a: tuple[int, int], b: tuple[int, int]):
    bounds = newcombe(*a, *b)
    difference = b[0] / b[1] - a[0] / a[1]
    assert -1 - 1e-12 <= bounds.low <= difference <= bounds.high <= 1 + 1e-12


@given(counts())
def test_newcombe_of_a_record_with_itself_is_centred_on_zero(a: tuple[int, int]):
    bounds = newcombe(*a, *a)
    assert bounds.low == pytest.approx(-bounds.high)


# --- McNemar


@pytest.mark.parametrize("only_a", [0, 1, 5, 17, 61])
@pytest.mark.parametrize("only_b", [0, 2, 5, 19, 73])
def test_mcnemar_equals_statsmodels(only_a: int, only_b: int):
    expected = reference_mcnemar([[11, only_a], [only_b, 3]], exact=True)
    assert mcnemar(only_a, only_b) == pytest.approx(vars(expected)["pvalue"], abs=1e-12)


@given(st.integers(0, 97), st.integers(0, 97))
def test_mcnemar_is_symmetric_and_a_probability(only_a: int, only_b: int):
    assert 0 < mcnemar(only_a, only_b) <= 1
    assert mcnemar(only_a, only_b) == mcnemar(only_b, only_a)
    assert mcnemar(only_a, only_a) == 1


@pytest.mark.slow
def test_mcnemar_takes_thousands_of_episodes_and_no_negative_count():
    assert 0 <= mcnemar(5003, 4001) < 1e-20
    with pytest.raises(MorphVlaError, match="paired counts cannot be negative: only_a -1, only_b 2"):
        mcnemar(-1, 2)


# --- time to success


RANKS = [(6, 1), (8, 1), (9, 2), (11, 2), (20, 6), (25, 8), (50, 18), (100, 40)]


@pytest.mark.parametrize(("count", "rank"), RANKS)
def test_the_interval_of_the_median_takes_the_published_ranks(count: int, rank: int):
    """Two-sided 95% ranks as tabulated for the sign test."""
    assert median_interval([float(i) for i in range(1, count + 1)]) == Interval(
        float(rank), count + 1.0 - rank
    )


@pytest.mark.parametrize("count", range(60))
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_the_interval_of_the_median_covers_enough_and_not_more_than_it_must(count: int, confidence: float):
    bounds = median_interval([float(value) for value in range(1, count + 1)], confidence)
    rank = int(bounds.low) if bounds else 0
    allowed = (1 - confidence) / 2 + 1e-12
    if rank:
        assert stats.binom.cdf(rank - 1, count, 0.5) <= allowed
    assert rank == count // 2 + count % 2 or stats.binom.cdf(rank, count, 0.5) > allowed - 2e-12


@given(st.lists(st.floats(0.1, 60), min_size=6, max_size=83))
def test_the_interval_of_the_median_contains_it_and_ignores_order(values: list[float]):
    summary = statistics.time_to_success(values)
    assert summary is not None
    assert summary.low is not None
    assert summary.high is not None
    assert summary.low <= summary.median <= summary.high
    assert to_plain(summary) == pytest.approx(to_plain(statistics.time_to_success(values[::-1])))


def test_few_successes_have_a_median_but_no_interval_and_none_has_nothing():
    assert to_plain(statistics.time_to_success([3.0, 5.0])) == {
        "median": 4.0,
        "mean": 4.0,
        "low": None,
        "high": None,
        "count": 2,
        "interval": "order statistics of the median",
    }
    assert statistics.time_to_success([]) is None


# --- summaries


def test_a_summary_counts_every_trial_and_shows_errors_apart():
    trials = [trial(episode, time_s=1.0 + episode, success=True) for episode in range(7)]
    trials += [trial(episode) for episode in range(7, 11)]
    trials[7]["failed_clause"] = "grasped"
    trials[8] |= {"ended": "error", "failed_clause": None, "error": "nan in the actions"}
    summary = summarise(trials)
    expected = wilson(7, 11)
    seconds = summary.pop("time_to_success_s")
    assert seconds.items() >= {"median": 4.0, "mean": 4.0, "low": 1.0, "high": 7.0, "count": 7}.items()
    assert summary == {
        "successes": 7,
        "trials": 11,
        "errors": 1,
        "rate": 7 / 11,
        "low": expected.low,
        "high": expected.high,
        "half_width": expected.half_width,
        "confidence": 0.95,
        "failed_clauses": {"inside": 2, "grasped": 1},
        "tasks": {},
        "average_of_tasks": None,
    }


def test_no_trials_is_not_measured_rather_than_zero():
    summary = summarise([])
    assert (summary["trials"], summary["successes"]) == (0, 0)
    assert all(summary[key] is None for key in ("rate", "low", "high", "half_width", "time_to_success_s"))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"episode": "0"}, "trial 1 has episode '0', expected an integer"),
        ({"episode": 0}, "episode 0 appears twice, expected one trial per episode"),
        ({"success": 1}, "episode 1 has success 1, expected true or false"),
        ({"success": True, "ended": "error"}, "episode 1 ended in an error and yet counts as a success"),
        ({"time_s": math.nan}, "episode 1 has time_s nan, expected seconds or null"),
    ],
)
def test_a_trial_that_cannot_be_is_named(broken: dict, sentence: str):
    with pytest.raises(MorphVlaError, match=sentence):
        summarise([trial(0), {**trial(1), **broken}])


def test_several_tasks_have_a_summary_each_and_an_average():
    trials = [trial(i, i < 3, task="cube") for i in range(7)] + [
        trial(i, i < 5, task="can") for i in range(11)
    ]
    summary = summarise(trials)
    assert list(summary["tasks"]) == ["cube", "can"]
    for name, (successes, count) in {"cube": (3, 7), "can": (5, 11)}.items():
        alone = summarise([t for t in trials if t["task"] == name])
        assert alone["tasks"].pop(name) == summary["tasks"][name]
        assert (summary["tasks"][name]["successes"], summary["tasks"][name]["trials"]) == (successes, count)
    assert summary["rate"] == 8 / 18  # over all trials, which is not the mean of the tasks
    average = summary["average_of_tasks"]
    assert average["rate"] == pytest.approx((3 / 7 + 5 / 11) / 2)
    assert average["low"] < average["rate"] < average["high"]
    assert summarise(trials[:7])["average_of_tasks"] is None


def test_one_number_may_be_an_episode_of_each_task_and_only_once_of_one():
    assert summarise([trial(3, task="cube"), trial(3, task="can")])["trials"] == 2
    with pytest.raises(MorphVlaError, match="episode 3 of task 'can' appears twice"):
        summarise([trial(3, task="can"), trial(3, task="can")])


@given(st.lists(counts(), min_size=1, max_size=5))
def test_the_interval_of_a_mean_contains_it_and_is_wilsons_for_one_rate(several: list[tuple[int, int]]):
    mean, bounds = mean_of_rates(several)
    assert mean == pytest.approx(sum(s / n for s, n in several) / len(several))
    assert -1e-12 <= bounds.low <= mean <= bounds.high <= 1 + 1e-12
    alone = mean_of_rates(several[:1])[1]
    assert (alone.low, alone.high) == pytest.approx(
        (wilson(*several[0]).low, wilson(*several[0]).high), abs=1e-12
    )


@pytest.mark.parametrize(
    ("successes", "shown"), [(17, 2.7), (233, 4.7), (176, 5.5), (142, 5.6), (59, 4.5), (108, 5.4)]
)
def test_half_widths_are_those_of_the_papers_tables(successes: int, shown: float):
    """Table 1: the tasks 5.7, 77.7 and 58.7, and the averages 47.4, 19.7 and 36.0, all as of 300 trials."""
    assert round(100 * wilson(successes, 300).half_width, 1) == shown
