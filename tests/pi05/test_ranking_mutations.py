"""Mistakes in the ranking of tokens and in what is done with it: each one breaks a law."""

import pytest
import test_image_tokens
import test_kept
import test_ranking
from mutations import Mutation, is_noticed, law, with_parameters

from morph_vla.pi05 import image_tokens, ranking

ANGLES = law(test_ranking.test_directions_of_a_block_are_at_right_angles, 13, 7)
GAUSSIAN = law(test_ranking.test_each_direction_is_a_standard_gaussian)
LENGTH = law(test_ranking.test_normalized_queries_are_plain_ones_of_the_length_root_d, "positive")
RELU, POSITIVE, WAVES, HYBRID = (
    law(test_ranking.test_a_score_is_expected_to_be_the_mean_of_its_column_of_attention, kind)
    for kind in ("relu", "positive", "trigonometric", "hybrid")
)
OPPOSITE = law(test_ranking.test_the_hybrid_is_exact_where_query_and_key_are_equal_or_opposite)
SCORES = law(test_ranking.test_scores_of_rows_are_those_of_their_features, "hybrid", True)
QUERIES = law(test_ranking.test_a_score_is_a_mean_over_the_queries_however_many_keys_there_are)
VOTES = law(test_ranking.test_votes_weigh_the_rows_of_attention)
LINEAR = law(test_ranking.test_operations_and_memory_grow_with_the_tokens_and_not_with_their_square, "relu")
TOP = law(test_ranking.test_the_top_tokens_are_those_with_the_largest_scores_in_reading_order, 7, 3)
DRAWN = law(test_ranking.test_sampling_draws_tokens_as_softmax_says)
MASKED = law(test_ranking.test_masking_zeroes_what_the_sub_matrix_leaves_out)
FEW, MANY = (
    law(test_ranking.test_the_transforming_form_is_projected_attention_of_the_values, values)
    for values in (3, 41)
)
HASHES = law(test_ranking.test_chosen_by_hashes_of_the_length_that_theorem_4_3_asks_for)
ANGLE = law(test_ranking.test_two_hashes_tell_the_angle)

RANKING = {
    "directions drawn alone": Mutation(
        ranking.orthogonal_gaussians,
        "np.linalg.qr(rng.standard_normal((width, width)))",
        "rng.standard_normal((2, width, width))",
        ANGLES,
    ),
    "directions of length one": Mutation(ranking.orthogonal_gaussians, "(lengths * np", "(np", GAUSSIAN),
    "directions of one length": Mutation(
        ranking.orthogonal_gaussians, "(lengths * np", "(width**0.5 * np", GAUSSIAN
    ),
    "a basis that is not uniform": Mutation(
        ranking.orthogonal_gaussians, "(basis * np.sign(np.diag(upper)))", "(basis)", GAUSSIAN
    ),
    "queries are never normalised": Mutation(ranking._scaled, "if not normalized", "if True", LENGTH),
    "queries are always normalised": Mutation(ranking._scaled, "if not normalized", "if False", POSITIVE),
    "normalised to another length": Mutation(ranking._scaled, "rows * root *", "rows *", LENGTH),
    "the square of the length without its root": Mutation(ranking._scaled, "jax.lax.rsqrt(", "1 / (", LENGTH),
    "logits without their scale": Mutation(ranking._scaled, "return rows / root", "return rows", WAVES),
    "no length in the positive features": Mutation(ranking._positive, "- half", "", POSITIVE),
    "the length's wrong sign in the waves": Mutation(
        ranking._trigonometric, "keepdims=True) / 2", "keepdims=True) / -2", WAVES
    ),
    "sines alone": Mutation(ranking._trigonometric, "jnp.cos(angles)", "jnp.sin(angles)", WAVES),
    "features not shared among projections": Mutation(ranking._positive, "** -0.5", "** -1.0", POSITIVE),
    "both sides of the hybrid alike": Mutation(ranking.features, 'if side == "key"', "if False", OPPOSITE),
    "the hybrid not halved": Mutation(ranking.features, " * 0.5**0.5", "", HYBRID),
    "negative keys count": Mutation(ranking.features, "jax.nn.relu(rows)", "jnp.abs(rows)", RELU),
    "both halves of the hybrid's scores alike": Mutation(ranking.scores_of, "sign * mixed", "mixed", SCORES),
    "signs of the keys alone": Mutation(ranking.scores_of, "@ left)", "@ jnp.ones_like(left))", SCORES),
    "the hybrid's scores not halved": Mutation(
        ranking.scores_of, "total / (2 * x.shape[-2])", "total / x.shape[-2]", SCORES
    ),
    "a mean over the keys": Mutation(ranking.scores, "/ queries.shape[-2]", "/ keys.shape[-2]", QUERIES),
    "votes are not heard": Mutation(ranking.scores, "if votes is None", "if True", VOTES),
    "the whole matrix is made": Mutation(
        ranking.scores,
        'jnp.einsum("...f,...sf->...s", summed, keys)',
        "(queries @ keys.swapaxes(-1, -2)).sum(axis=-2)",
        LINEAR,
    ),
    "the smallest scores": Mutation(ranking.top, "top_k(scores", "top_k(-scores", TOP),
    "the best first": Mutation(
        ranking.top,
        "jnp.sort(jax.lax.top_k(scores, count)[1], axis=-1)",
        "jax.lax.top_k(scores, count)[1]",
        TOP,
    ),
    "other noise than Gumbel's": Mutation(ranking.sampled, "gumbel", "normal", DRAWN),
    "masked are those that were chosen": Mutation(ranking.masked, "tokens, 0)", "0, tokens)", MASKED),
    "another image's choice": Mutation(
        ranking.submatrix, "chosen[..., None]", "chosen[::-1][..., None]", MASKED
    ),
    "queries in the place of keys": Mutation(
        ranking.transformed, "@ keys.swapaxes(-1, -2)\n", "@ queries.swapaxes(-1, -2)\n", MANY
    ),
    "a sum over the tokens": Mutation(
        ranking.transformed,
        "@ (queries @ (keys.swapaxes(-1, -2) @ values)) / t",
        "@ (queries @ (keys.swapaxes(-1, -2) @ values))",
        FEW,
    ),
    "hashes of another length": Mutation(ranking.hashed, " * len(gaussians) ** -0.5", "", ANGLE),
    "hashes tell half of the angle": Mutation(ranking.scores_of_hashes, "jnp.pi / 2 *", "jnp.pi *", HASHES),
    "hashes without the queries' length": Mutation(
        ranking.scores_of_hashes, "jnp.linalg.norm(summed, axis=-1, keepdims=True) * ", "", HASHES
    ),
}

START = law(test_image_tokens.test_at_the_start_a_token_unlike_the_others_ranks_first, "positive")
KEPT = law(test_image_tokens.test_ranking_keeps_tokens_as_they_are_in_reading_order)
SLOPES = law(test_image_tokens.test_a_loss_of_the_tokens_that_are_left_reaches_queries_and_keys, "ranking")
UNSEEN = law(test_image_tokens.test_tokens_that_no_query_sees_are_kept_as_they_are)
BEGUN = law(test_image_tokens.test_a_learnt_model_begins_with_means_of_runs)
SQUARES = law(test_image_tokens.test_averages_are_of_squares_in_reading_order)
RANDOM = law(test_image_tokens.test_random_places_are_the_same_of_every_image_and_in_reading_order)
GATED = law(test_kept.test_a_mixture_that_has_learnt_is_measured_with_its_gate)
MIXED = law(test_kept.test_the_matrix_that_is_measured_is_the_one_that_mixes)

LEFT = {
    "queries begin as keys": Mutation(
        image_tokens.FewerTokens,
        "partial(_start, self.config.seed, -1.0)",
        "partial(_start, self.config.seed, 1.0)",
        START,
    ),
    "kept tokens are weighed": Mutation(
        image_tokens.FewerTokens, "1 + (weights - jax.lax.stop_gradient(weights))", "weights", KEPT
    ),
    "choosing has no gradient": Mutation(
        image_tokens.FewerTokens,
        "1 + (weights - jax.lax.stop_gradient(weights))",
        "jnp.ones_like(weights)",
        SLOPES,
    ),
    "nothing divided by nothing": Mutation(
        image_tokens.FewerTokens, "jnp.where(mean > 0, mean, 1.0)", "mean", UNSEEN
    ),
    "attention from the first step on": Mutation(
        image_tokens.FewerTokens, "+ gate * mixed", "+ mixed", BEGUN
    ),
    "sums of runs": Mutation(image_tokens.runs, "share / share.sum(axis=1, keepdims=True)", "share", BEGUN),
    "every third token": Mutation(
        image_tokens.runs, "jnp.arange(count) * keep // count", "jnp.arange(count) % keep", BEGUN
    ),
    "columns of squares": Mutation(
        image_tokens.averaged, "axis=(2, 4)).reshape", "axis=(2, 4)).swapaxes(1, 2).reshape", SQUARES
    ),
    "strips instead of squares": Mutation(
        image_tokens.averaged,
        "tokens.reshape(batch, rows, side // rows, rows, side // rows, width)",
        "tokens.reshape(batch, rows, rows, side // rows, side // rows, width).swapaxes(2, 3)",
        SQUARES,
    ),
    "random places as they were drawn": Mutation(
        image_tokens.FewerTokens,
        "np.sort(rng.choice(self.count, config.keep, replace=False))",
        "rng.choice(self.count, config.keep, replace=False)",
        RANDOM,
    ),
    "one seed for all": Mutation(
        image_tokens.FewerTokens, "np.random.default_rng(config.seed)", "np.random.default_rng(0)", RANDOM
    ),
    "a mixture whose channels are alike": Mutation(
        image_tokens.lengths, "jnp.mean(jnp.square(gate))", "jnp.square(jnp.mean(jnp.asarray(gate)))", GATED
    ),
    "queries and keys exchanged": Mutation(
        image_tokens.FewerTokens,
        "(projection, queries, keys, exact)",
        "(projection, keys, queries, exact)",
        MIXED,
    ),
}
MUTATIONS = {**RANKING, **LEFT}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_noticed(name):
    is_noticed(MUTATIONS[name])


@pytest.mark.parametrize("law", with_parameters(MUTATIONS))
def test_without_a_mutation_the_law_holds(law):
    law()
