"""Implicit attention against attention that is written out; the paper's Lemma 4.2, Theorems 4.3 and 4.4."""

import math
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.pi05 import ranking
from morph_vla.pi05.config import Features

WIDTH, TOKENS = 5, 23
KINDS = get_args(Features)
SOFTMAX = tuple(kind for kind in KINDS if kind != "relu")


def rows(seed: int = 0, count: int = TOKENS, radius: float = 0.0) -> Any:
    """Queries and keys; with a radius, within that ball."""
    both = np.random.default_rng(seed).normal(size=(2, count, WIDTH))
    if radius:
        both *= radius / np.maximum(radius, np.linalg.norm(both, axis=-1, keepdims=True))
    return both.astype(np.float32)


def attention(kind: Features, queries: Any, keys: Any) -> Any:
    """A as it is defined, for plain queries and keys."""
    if kind == "relu":
        return np.maximum(queries, 0) @ np.maximum(keys, 0).T
    return np.exp(queries @ keys.T / WIDTH**0.5)


def implicit(kind: Features, both: Any, gaussians: Any, normalized: bool = False) -> Any:
    """Features of queries and keys."""
    sides = zip(both, ("query", "key"), strict=True)
    return [ranking.features(kind, jnp.asarray(x), side, gaussians, normalized) for x, side in sides]


def error(kind: Features, projections: int, seed: int) -> float:
    """How far the worst score is off."""
    both = rows(seed, radius=1.0)
    gaussians = ranking.draw(seed, WIDTH, projections, 7)
    estimate = ranking.scores(*implicit(kind, both, gaussians))
    return float(np.abs(estimate - attention(kind, *both).mean(axis=0)).max())


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_expected_to_be_the_mean_of_its_column_of_attention(kind):
    both = rows(radius=1.5)
    wanted = attention(kind, *both).mean(axis=0)
    draws = [
        ranking.scores(*implicit(kind, both, ranking.draw(seed, WIDTH, 500, 5)))
        for seed in range(1 if kind == "relu" else 40)
    ]
    deviation = np.std(draws, axis=0) / len(draws) ** 0.5
    assert (np.abs(np.mean(draws, axis=0) - wanted) <= 5 * deviation + 1e-5 * wanted).all()
    assert kind == "relu" or (deviation < 0.03 * wanted).all()


@pytest.mark.parametrize("kind", SOFTMAX)
def test_normalized_queries_are_plain_ones_of_the_length_root_d(kind):
    both, gaussians = rows(), ranking.draw(0, WIDTH, 7, 3)
    stretched = WIDTH**0.5 * both / np.linalg.norm(both, axis=-1, keepdims=True)
    for ours, plain in zip(
        implicit(kind, 3 * both, gaussians, normalized=True),
        implicit(kind, stretched, gaussians),
        strict=True,
    ):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-5)


def test_votes_weigh_the_rows_of_attention():
    queries, keys = implicit("relu", rows(), ranking.draw(0, WIDTH, 3))
    votes = jnp.linspace(-1.0, 2.0, TOKENS)
    wanted = np.asarray(votes) @ attention("relu", *rows()) / TOKENS
    np.testing.assert_allclose(ranking.scores(queries, keys, votes), wanted, rtol=1e-4, atol=1e-6)
    alike = ranking.scores(queries, keys, jnp.ones(TOKENS))
    np.testing.assert_allclose(ranking.scores(queries, keys), alike, rtol=1e-5)


def test_a_score_is_a_mean_over_the_queries_however_many_keys_there_are():
    queries, keys = rows()
    few = [
        ranking.features("relu", jnp.asarray(x), "query", ranking.draw(0, WIDTH, 3))
        for x in (queries[:7], keys)
    ]
    wanted = attention("relu", queries[:7], keys).mean(axis=0)
    np.testing.assert_allclose(ranking.scores(*few), wanted, rtol=1e-4, atol=1e-6)


def test_the_hybrid_is_exact_where_query_and_key_are_equal_or_opposite():
    x = rows()[0]
    for sign in (1, -1):
        queries, keys = implicit("hybrid", (x, sign * x), ranking.draw(3, WIDTH, 4, 2), normalized=True)
        exact = np.exp(sign * WIDTH**0.5)
        np.testing.assert_allclose(jnp.sum(queries * keys, axis=-1), exact, rtol=2e-4)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_rows_are_those_of_their_features(kind, normalized):
    both, gaussians = rows(radius=1.5), ranking.draw(5, WIDTH, 7, 3)
    wanted = ranking.scores(*implicit(kind, both, gaussians, normalized))
    queries, keys = map(jnp.asarray, both)
    found = ranking.scores_of(kind, queries, keys, gaussians, normalized)
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    side_by_side = ranking.scores_of(
        kind, jnp.stack([queries, keys]), jnp.stack([keys, queries]), gaussians, normalized
    )
    np.testing.assert_allclose(side_by_side[0], wanted, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_relative_scores_have_the_same_order_and_long_rows_are_finite(kind):
    gaussians = ranking.draw(5, WIDTH, 7, 3)
    queries, keys = map(jnp.asarray, rows(radius=1.5))
    exact, relative = (
        ranking.scores_of(kind, queries, keys, gaussians, False, choice) for choice in (False, True)
    )
    np.testing.assert_allclose(relative / jnp.mean(relative), exact / jnp.mean(exact), rtol=2e-4)
    long = queries * 6 / jnp.sqrt(jnp.mean(queries**2)), keys * 6 / jnp.sqrt(jnp.mean(keys**2))

    def mean(queries, keys):
        return jnp.mean(ranking.scores_of(kind, queries, keys, gaussians, False, True))

    assert np.isfinite(ranking.scores_of(kind, *long, gaussians, False, True)).all()
    assert all(np.isfinite(slope).all() for slope in jax.grad(mean, (0, 1))(*long))


@given(st.integers(1, 17), st.integers(0, 2**31))
def test_directions_of_a_block_are_at_right_angles(count, seed):
    drawn = ranking.orthogonal_gaussians(np.random.default_rng(seed), count, WIDTH)
    for start in range(0, count, WIDTH):
        block = drawn[start : start + WIDTH]
        products = block @ block.T
        off = products - np.diag(np.diag(products))
        assert np.abs(off).max() < 1e-4 * max(1, np.abs(products).max())


def test_each_direction_is_a_standard_gaussian():
    rng = np.random.default_rng(5)
    drawn = np.concatenate([ranking.orthogonal_gaussians(rng, WIDTH, WIDTH) for _ in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), np.eye(WIDTH), atol=0.03)
    assert np.mean(drawn**4) == pytest.approx(3, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOFTMAX)
def test_the_error_falls_with_the_root_of_the_projections(kind):
    counts = np.array([10, 40, 160, 640])
    errors = [np.mean([error(kind, int(count), seed) for seed in range(12)]) for count in counts]
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.12)


def enough_projections(radius: float, share: float, epsilon: float) -> int:
    """The m of Theorem 4.4: scores within epsilon with a chance of 1 - share, for queries in a ball."""
    root = WIDTH**0.5
    more = 10 + math.log(radius**2 * root / (share * epsilon**2)) + radius**2 / root
    return math.ceil(4 * (WIDTH + 2) * more / epsilon**2)


@pytest.mark.parametrize("epsilon", [0.6, 0.3])
def test_as_many_projections_as_theorem_4_4_asks_for_are_enough(epsilon):
    projections = enough_projections(1.0, 0.1, epsilon)
    errors = [error("trigonometric", projections, seed) for seed in range(20)]
    assert np.mean(np.array(errors) <= epsilon) >= 0.9
    # The bound is one of a union over a whole ball: far fewer do.
    assert max(errors) < epsilon / 5


def test_two_hashes_tell_the_angle():
    """Equation 14."""
    x, y = rows()[:, 0]
    angle = np.arccos(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    gaussians = np.random.default_rng(1).standard_normal((200_000, WIDTH)).astype(np.float32)
    product = jnp.dot(*(ranking.hashed(jnp.asarray(z), gaussians) for z in (x, y)))
    assert product == pytest.approx(1 - 2 * angle / np.pi, abs=0.01)


def test_chosen_by_hashes_of_the_length_that_theorem_4_3_asks_for():
    share, epsilon, projections = 0.2, 0.1, 16
    length = math.ceil(2 / (share * epsilon**2) * math.log(TOKENS))
    bound = math.exp(WIDTH**0.5) * math.pi / 2 * epsilon
    within = []
    for seed in range(20):
        queries, keys = implicit(
            "trigonometric", rows(seed), ranking.draw(seed, WIDTH, projections), normalized=True
        )
        rng = np.random.default_rng(seed)
        gaussians = rng.standard_normal((length, 2 * projections)).astype(np.float32)
        true = np.asarray(ranking.scores(queries, keys))
        estimate = np.asarray(ranking.scores_of_hashes(queries, keys, gaussians))
        within.append(np.abs(estimate - true).max() <= bound)
        chosen = np.asarray(ranking.top(jnp.asarray(estimate), 5))
        left = np.delete(true, chosen)
        assert not within[-1] or true[chosen].min() >= left.max() - 2 * bound
    assert np.mean(within) >= 1 - share
    assert bound < 2 * np.ptp(true)  # of scores that differ by as much


@given(st.integers(1, TOKENS), st.integers(0, 2**31))
def test_the_top_tokens_are_those_with_the_largest_scores_in_reading_order(count, seed):
    scores = np.random.default_rng(seed).normal(size=(2, TOKENS)).astype(np.float32)
    chosen = np.asarray(ranking.top(jnp.asarray(scores), count))
    for row, places in zip(scores, chosen, strict=True):
        assert (np.diff(places) > 0).all()
        assert set(places) == set(np.argsort(row)[TOKENS - count :])


def test_sampling_draws_tokens_as_softmax_says():
    scores = jnp.asarray([0.0, 1.0, -1.0, 2.0])
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = np.asarray(jax.vmap(lambda key: ranking.sampled(scores, 1, key))(keys))[:, 0]
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), jax.nn.softmax(scores), atol=0.015)
    pairs = np.asarray(jax.vmap(lambda key: ranking.sampled(scores, 2, key))(keys[:100]))
    assert (pairs[:, 0] < pairs[:, 1]).all()  # without putting back


def test_masking_zeroes_what_the_sub_matrix_leaves_out():
    tokens = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7, 3)).astype(np.float32))
    chosen = jnp.asarray([[0, 3, 6], [1, 2, 5]])
    part, whole = ranking.submatrix(tokens, chosen), np.asarray(ranking.masked(tokens, chosen))
    for row in range(2):
        np.testing.assert_array_equal(part[row], tokens[row, chosen[row]])
        np.testing.assert_array_equal(whole[row, chosen[row]], part[row])
        assert not np.delete(whole[row], chosen[row], axis=0).any()


@pytest.mark.parametrize("values", [3, 41])
def test_the_transforming_form_is_projected_attention_of_the_values(values):
    """In either order of its products."""
    rng, kept = np.random.default_rng(0), 11
    projection = jnp.asarray(rng.normal(size=(kept, TOKENS)), jnp.float32)
    value = jnp.asarray(rng.normal(size=(TOKENS, values)), jnp.float32)
    queries, keys = implicit("relu", rows(), ranking.draw(0, WIDTH, 3))
    result = ranking.transformed(projection, queries, keys, value)
    wanted = np.asarray(projection) @ attention("relu", *rows()) @ np.asarray(value) / TOKENS
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_operations_and_memory_grow_with_the_tokens_and_not_with_their_square(kind):
    gaussians = ranking.draw(0, WIDTH, 10, 5)

    def chosen(queries: Any, keys: Any) -> Any:
        left = ranking.features(kind, queries, "query", gaussians)
        return ranking.scores(left, ranking.features(kind, keys, "key", gaussians))

    def cost(count: int) -> tuple[float, float]:
        shape = jax.ShapeDtypeStruct((count, WIDTH), jnp.float32)
        compiled: Any = jax.jit(chosen).lower(shape, shape).compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    few, many = cost(1200), cost(19_200)
    assert many[0] == pytest.approx(16 * few[0], rel=0.01)
    assert many[1] < 32 * few[1]  # the square: 256
    assert many[1] < 19_200**2  # bytes: a quarter of the matrix
