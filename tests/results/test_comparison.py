"""Differences of evaluations: Tango's paired interval against what others computed, and its coverage."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.simulated import suite_facts
from morph_vla.files.plain import to_plain
from morph_vla.results import comparison
from morph_vla.results.intervals import TANGO, constrained, mcnemar, newcombe, paired_score, tango
from morph_vla.results.record import FILE_NAME, record_from_json
from morph_vla.suites import suite


@st.composite
def discordant(draw, largest: int = 211) -> tuple[int, int, int]:
    """(only a, only b, pairs)."""
    pairs = draw(st.integers(1, largest))
    only_a = draw(st.integers(0, pairs))
    return only_a, draw(st.integers(0, pairs - only_a)), pairs


def trial(episode: int, success: bool = False, **fields) -> dict:
    """One trial as `evaluation/rollout.py` writes it."""
    ended = "success" if success else "time"
    place = {"cube": [0.5, 0.01 * episode, 0.3], "bowl": [0.4, -0.2, 0.0]}
    plain = {"episode": episode, "success": success, "time_s": 3.0 if success else None, "ended": ended}
    return {**plain, "failed_clause": None if success else "inside", "initial": place, **fields}


def record(outcomes: list[bool], name: str = "trained", named: str = "droid_panda", **facts) -> dict:
    trials = [trial(episode, success) for episode, success in enumerate(outcomes)]
    about = {"suite": {"name": named, **facts}, "policy": {"name": name}}
    return {"schema": 2, "kind": "evaluation", **about, "trials": trials}


def compare(before: dict, after: dict) -> dict:
    """The comparison of two records as they are read from files, as it is written to one."""
    return to_plain(comparison.compare(record_from_json(before), record_from_json(after)))


def check_comparable(records: dict[str, dict]) -> None:
    comparison.check_comparable({name: record_from_json(plain) for name, plain in records.items()})


def whole(outcomes: list[bool], *overrides: str) -> dict:
    """A record of schema 3, which holds its whole suite."""
    plain = record(outcomes)
    facts = suite_facts(suite.load("droid_panda:cube_in_bowl", overrides), ()).to_json()
    policy = {"name": "trained", "sampler": {"steps": 10, "noise": 1.0}}
    engine = {"name": "mujoco", "version": "3.1"}
    return {**plain, "schema": 3, "suite": facts, "policy": policy, "engine": engine, "open_loop": 8}


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
        solved = optimize.minimize_scalar(loss, bounds=span, method="bounded", options={"xatol": 1e-12})
        ours = constrained(only_a, only_b, pairs, difference)
        assert span[0] <= ours <= span[1]
        assert loss(ours) <= solved.fun + 1e-9


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


@pytest.mark.slow
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
    with pytest.raises(MorphVlaError, match="8 successes of 7 trials are impossible"):
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
            "a, b do not say the whole criterion, objects, servos, cameras and sampler (written before "
            "schema 3): whether these are the same is unknown"
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
        (record([True] * 3, named="g1_red_block"), "the suites differ: droid_panda and g1_red_block"),
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


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("success.dwell_seconds=0.05", "success.dwell_seconds: 0.5 and 0.05"),
        ("success.low=[-0.07, -0.06, 0.0]", "success.low: [-0.06, -0.06, 0.0] and [-0.07, -0.06, 0.0]"),
        ("control_rate=20", "control_rate: 15.0 and 20.0"),
        ("episode_seconds=12", "episode_seconds: 30.0 and 12.0"),
        ("objects.cube.mass=2", "objects.cube.mass: 0.1 and 2.0"),
        ("task=put it there", "task: put the cube in the bowl and put it there"),
    ],
)
def test_rates_of_different_things_are_refused_with_the_key_and_both_values(override: str, words: str):
    first, other = whole([True, False, True]), whole([True, False, True], override)
    with pytest.raises(
        MorphVlaError,
        match=f"^x and y: what is measured differs: {re.escape(words)}; success rates of different tasks are",
    ):
        check_comparable({"x": first, "y": other})
    result = compare(first, other)
    assert (result["difference"], result["reason"]) == (None, f"what is measured differs: {words}")
    assert (result["rate_a"], result["rate_b"]) == (2 / 3, 2 / 3)


def test_another_robot_is_refused_where_records_of_schema_2_say_it():
    first, other = (record([True], robot=robot) for robot in ("panda", "so101"))
    with pytest.raises(MorphVlaError, match="what is measured differs: robot: panda and so101;"):
        check_comparable({"x": first, "y": other})


def test_conditions_may_differ_and_are_named():
    first = whole([True, False, False, True])
    other = whole([True, True, False, True], "variation.light=0.5", "actuators.gripper.stiffness=10")
    other["policy"]["sampler"]["noise"] = 0.0
    other["open_loop"] = 16
    other["engine"] = {"name": "isaaclab", "version": "2.3"}
    check_comparable({"x": first, "y": other})
    result = compare(first, other)
    assert result["paired"]["only_b"] == 1
    assert result["unknown"] is None
    assert result["conditions"] == [
        "variation.light: 0.0 and 0.5",
        "actuators.gripper.stiffness: 1000.0 and 10.0",
        "engine: mujoco 3.1 and isaaclab 2.3",
        "sampler.noise: 1.0 and 0.0",
        "open_loop: 8 and 16",
    ]
    assert compare(first, whole([True] * 4))["conditions"] == []


def test_what_schema_2_leaves_out_is_unknown_and_said():
    result = compare(record([True, False, True]), whole([True] * 3, "success.dwell_seconds=0.05"))
    assert result["paired"]["only_b"] == 1
    assert result["unknown"] == (
        "a does not say the whole criterion, objects, servos, cameras and sampler (written before schema 3): "
        "whether these are the same is unknown"
    )


def test_of_a_record_that_was_stopped_the_common_rows_are_paired():
    first, other = record([True, False, False, True, True, False, True]), record([True, True, False])
    other["stopped"] = {"reason": "decided: this one is better", "episodes": 3, "of": 7}
    for result, gained in ((compare(first, other), "only_b"), (compare(other, first), "only_a")):
        assert (result["common"], result["reason"]) == (3, None)
        assert result["paired"][gained] == 1
        assert {result["rate_a"], result["rate_b"]} == {1 / 3, 2 / 3}
        assert abs(result["difference"]) == pytest.approx(1 / 3)
    del other["stopped"]
    assert compare(first, other)["reason"] == "the episodes differ: 4 only in a, 0 only in b"
    assert compare(first, other)["common"] is None


def test_tasks_are_compared_each_and_pooled():
    a, b = record([]), record([], "other")
    outcomes = {"cube": ("sfsff", "ssssf"), "can": ("fffsfsf", "fffffff")}
    for plain, side in ((a, 0), (b, 1)):
        for task, letters in outcomes.items():
            plain["trials"] += [trial(i, c == "s", task=task) for i, c in enumerate(letters[side])]
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


def test_records_are_compared_from_where_they_lie(tmp_path: Path):
    a, b = record([True, False, False], "untrained"), record([True, False, True])
    for name, plain in (("a", a), ("b", b)):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE_NAME).write_text(json.dumps(plain))
    those = record_from_json(a), record_from_json(b)
    assert comparison.compare(str(tmp_path / "a"), tmp_path / "b" / FILE_NAME) == comparison.compare(*those)
    with pytest.raises(MorphVlaError, match="nowhere"):
        comparison.compare(those[0], "nowhere")


def test_what_is_no_evaluation_record_is_refused_in_words():
    with pytest.raises(MorphVlaError, match="this is not an evaluation record: it has no list of trials"):
        compare({"schema": 3, "kind": "evaluation"}, record([True]))
