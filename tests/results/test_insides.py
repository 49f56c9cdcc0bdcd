"""What is said of the inside of policies: shares of variance, and lengths that tokens know."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from morph_vla.results import insides
from morph_vla.results.insides import Inside, Probe

BODIES, JOINTS, WIDTH = 11, 5, 7


def rows(seed: int):
    """(tokens, joints, bodies, a random direction) of every joint of every body."""
    rng = np.random.default_rng(seed)
    bodies, joints = np.divmod(np.arange(BODIES * JOINTS), JOINTS)
    return rng.normal(size=(len(bodies), WIDTH)), joints, bodies, rng.normal(size=WIDTH)


@given(st.integers(0, 99))
def test_the_share_between_groups_is_that_of_an_analysis_of_variance(seed):
    rng = np.random.default_rng(seed)
    groups = [rng.normal(mean, 1, size) for mean, size in ((0, 3), (0.7, 7), (2, 5))]
    share = insides.by_group(np.concatenate(groups)[:, None], ["a"] * 3 + ["b"] * 7 + ["c"] * 5)
    f = stats.f_oneway(*groups).statistic
    assert share == pytest.approx(f * 2 / (f * 2 + 12))


def test_the_share_between_groups_is_all_none_or_of_nothing():
    values = np.array([[1.0, 2], [1, 2], [3, 5], [3, 5]])
    assert insides.by_group(values, ["a", "a", "b", "b"]) == pytest.approx(1)
    assert insides.by_group(values, ["a", "b", "a", "b"]) == 0
    assert insides.by_group(values * 0, ["a", "a", "b", "b"]) == 0


def test_what_differs_at_the_same_joint_leaves_out_padding_and_what_all_bodies_share():
    rng = np.random.default_rng(3)
    shared, real = rng.normal(size=(JOINTS, WIDTH)), np.ones((3, JOINTS), bool)
    real[1, 3:] = False
    values = np.stack([shared] * 3)
    values[1, 3:] = 99  # padding
    assert insides.at_same_joint(values, real) == pytest.approx(0)
    opposite = np.stack([shared, -shared])
    assert insides.at_same_joint(opposite, np.ones((2, JOINTS), bool)) == pytest.approx(1)
    assert insides.at_same_joint(values * 0, real) == 0


@given(st.integers(0, 99), st.floats(0.1, 50))
def test_how_far_answers_move_is_counted_in_their_own_spread(seed, unit):
    rng = np.random.default_rng(seed)
    own, other = rng.normal(size=(2, 13, 3, 5))
    units = np.array([1, unit, 1, unit, 0])  # an action value that never varies counts for nothing
    moved = insides.moved(own * units, other * units)
    assert moved == pytest.approx(insides.moved(own[..., :4], other[..., :4]))
    assert insides.moved(own, own) == 0
    spread = np.sqrt(np.square(own - own.mean(axis=(0, 1))).mean(axis=(0, 1)))
    assert insides.moved(own, own + 0.3 * spread) == pytest.approx(0.3)


def test_a_length_that_is_in_the_tokens_is_known_of_a_body_that_was_left_out():
    tokens, joints, bodies, way = rows(0)
    lengths = tokens @ way + joints  # which the joint's number alone does not say
    by_token, by_number = insides.left_out(tokens, lengths, joints, bodies)
    assert insides.known(lengths, by_token, by_number) > 0.999
    assert insides.known(lengths, by_number, by_number) == 0


@given(st.integers(0, 20))
def test_of_a_length_that_is_not_in_the_tokens_no_more_is_known_than_by_the_joint(seed):
    tokens, joints, bodies, _ = rows(seed)
    lengths = np.random.default_rng(seed + 1000).normal(size=len(tokens)) + joints
    by_token, by_number = insides.left_out(tokens, lengths, joints, bodies)
    assert insides.known(lengths, by_token, by_number) < 0.3
    constant, _ = insides.left_out(tokens * 0 + 3, lengths, joints, bodies)
    np.testing.assert_allclose(constant, by_number)


def test_the_mean_of_the_other_bodies_is_what_a_joints_number_says():
    tokens, joints, bodies, _ = rows(1)
    lengths = np.random.default_rng(2).normal(size=len(tokens))
    _, by_number = insides.left_out(tokens, lengths, joints, bodies)
    others = (bodies != 4) & (joints == 3)
    assert by_number[(bodies == 4) & (joints == 3)] == pytest.approx(lengths[others].mean())


def test_of_a_joint_that_no_other_body_has_the_other_bodies_tell():
    tokens, lengths = np.zeros((5, 2)), np.array([1.0, 1.0, 1.0, 1.0, 101.0])
    _, by_number = insides.left_out(tokens, lengths, np.array([0, 1, 0, 1, 2]), np.array([0, 0, 1, 1, 2]))
    assert by_number[4] == 1
    with pytest.raises(ValueError, match="needs at least two"):
        insides.left_out(tokens, lengths, np.arange(5), np.zeros(5, int))


@pytest.mark.parametrize("body", [0, 6])
def test_a_bodys_own_lengths_do_not_tell_of_it(body):
    tokens, joints, bodies, way = rows(5)
    lengths = tokens @ way
    lied = np.where(bodies == body, 99.0, lengths)
    for told, honest in zip(
        insides.left_out(tokens, lied, joints, bodies),
        insides.left_out(tokens, lengths, joints, bodies),
        strict=True,
    ):
        np.testing.assert_array_equal(told[bodies == body], honest[bodies == body])


def test_the_regression_is_least_squares_with_a_penalty(monkeypatch):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(17, 5)), rng.normal(size=17)
    monkeypatch.setattr(insides, "RIDGES", (0.3,))
    penalty = 0.3 * np.square(np.linalg.svd(x)[1]).mean()
    below = np.sqrt(penalty) * np.eye(5)
    expected = np.linalg.lstsq(np.concatenate([x, below]), np.append(y, np.zeros(5)), rcond=None)[0]
    np.testing.assert_allclose(insides._ridge(x, y), expected)


def test_the_penalty_is_the_one_whose_left_out_errors_are_least(monkeypatch):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(19, 5))
    y = x @ rng.normal(size=5) + rng.normal(size=19)
    ridges, errors = (1e-3, 1e-1, 10.0), []
    for ridge in ridges:
        penalty = ridge * np.square(np.linalg.svd(x)[1]).mean() * np.eye(5)
        keep = [np.arange(19) != row for row in range(19)]
        fits = [np.linalg.solve(x[k].T @ x[k] + penalty, x[k].T @ y[k]) for k in keep]
        errors.append(sum((y[row] - x[row] @ fit) ** 2 for row, fit in enumerate(fits)))
    best = ridges[int(np.argmin(errors))]
    monkeypatch.setattr(insides, "RIDGES", (best,))
    alone = insides._ridge(x, y)
    monkeypatch.setattr(insides, "RIDGES", ridges)
    np.testing.assert_array_equal(insides._ridge(x, y), alone)


def test_its_words_have_a_column_a_layer():
    inside = Inside(
        cell="few/h1/0", bodies=("a", "b", "c"), unseen=("c",), observations=40, read=(0.25, 0.5), even=0.2,
        attention_by_body=(0.1, 0.125), scale=0.25, shift=1.5, film_by_body=0.75, moved=0.5,
        gradients={"morphology": 0.02},
        probes=(
            Probe("joint tokens", "link_length", (0.0, 0.5, 1.0)),
            Probe("action tokens", "reach", (0.25, -7.0)),
        ),
    )  # fmt: skip
    lines = [" ".join(line.split()) for line in str(inside).splitlines()]
    assert lines[0] == "few/h1/0: 3 bodies, 1 of them not trained on; asked 40 times"
    assert "actions' attention to joints (all alike: 0.20) 0.25 0.50" in lines
    assert "link_length known from joint tokens 0.00 0.50 1.00" in lines
    assert "reach known from action tokens 0.25 < -1" in lines
    assert "told of another body, its answers move by 0.500 of their spread" in lines
    assert lines[-1] == "gradient norms at the end: morphology 0.02"
