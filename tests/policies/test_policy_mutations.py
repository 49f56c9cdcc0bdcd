"""Mistakes in the policy families on numbers, and in the head of pi0.5: each one breaks a law."""

import pytest
import test_bet
import test_bins_head
import test_body
import test_fourier
import test_spectral
from mutations import Mutation, is_noticed, law, with_parameters

from morph_vla.morphology import bias, history
from morph_vla.pi05 import head
from morph_vla.policies import bet, bins, body, fourier, graph, spectral, state, text

pytestmark = pytest.mark.slow

PERMUTED = law(test_body.test_permuting_joints_permutes_actions_where_tokenizers_are_shared, "hard", "shared")
OWN = law(test_body.test_a_joint_has_its_own_weights_or_those_of_all, test_body.JOINTS)
MIX = law(test_body.test_mix_masks_the_first_layer_and_not_the_second)
ENCODER = law(test_body.test_the_encoder_is_the_papers_equations)
MLP = law(test_body.test_an_mlp_is_dense_layers_over_the_nodes_that_there_are)
ROOT = law(test_body.test_the_root_of_the_panda_is_beside_its_first_joint)
TEXTS = law(test_body.test_texts_have_numbers_by_their_words)
PLACES = law(test_body.test_places_without_a_joint_change_nothing, "none")

BODIES = {
    "mix masks every layer but the first": Mutation(bias.masked, "% 2 == 0", "% 2 == 1", MIX),
    "the first layer's mask in all layers": Mutation(body.Transformer, "biases[number]", "biases[0]", MIX),
    "padding is seen": Mutation(body.Transformer, "jnp.where(seen, biases", "jnp.where(True, biases", PLACES),
    "padding sees nothing, and is seen": Mutation(
        body.Transformer, "real[:, None, :]", "real[:, :, None]", PLACES
    ),
    "logits scaled by the whole width": Mutation(body.Layer, "heads[1] ** -0.5", "width**-0.5", ENCODER),
    "weights over those that see": Mutation(
        body.Layer, "bias[:, None], axis=-1", "bias[:, None], axis=-2", ENCODER
    ),
    "no mask at all": Mutation(body.Layer, "(logits + bias[:, None],", "(logits,", MIX),
    "values of those that see": Mutation(body.Layer, "bhij,bjhk->bihk", "bhij,bihk->bihk", ENCODER),
    "a norm of what was normalised": Mutation(body.Layer, '"mlp_norm")(x)', '"mlp_norm")(normal)', ENCODER),
    "no way around attention": Mutation(
        body.Layer, "x = x + nn.DenseGeneral", "x = nn.DenseGeneral", ENCODER
    ),
    "the last norm is left out": Mutation(body.Transformer, "return nn", "return x + 0 * nn", ENCODER),
    "a node's neighbours instead of shortest paths": Mutation(
        graph.distances, "return steps", "return np.where(adjacency, np.minimum(steps, 1), UNREACHABLE)", ROOT
    ),
    "one step further": Mutation(graph.distances, "= step\n", "= step + 1\n", ROOT),
    "the root beside the last joint": Mutation(
        graph.rooted, "~np.isin(parents, children)", "~np.isin(children, parents)", ROOT
    ),
    "the root has no loop": Mutation(graph.rooted, "adjacency[0, 0] = True", "adjacency[0, 0] = False", ROOT),
    "the root's embedding acts": Mutation(state.StatePolicy, "nodes[:, 1:]", "nodes[:, :-1]", PERMUTED),
    "horizon and joints mixed up": Mutation(
        state.StatePolicy,
        ".swapaxes(1, 2)",
        ".reshape(-1, self.config.horizon, self.config.action_dim)",
        PERMUTED,
    ),
    "the first joint's weights for all": Mutation(
        state.PerJoint, "broadcast_to(kernel,", "broadcast_to(kernel[:1],", OWN
    ),
    "padding goes into the dense layers": Mutation(
        state.Mlp, "jnp.asarray(body.joint_mask)[:, :, None]", "True", MLP
    ),
    "dense layers in one another's place": Mutation(
        state.Mlp,
        'nn.gelu(nn.Dense(self.config.hidden, name=f"layer_{number}")(flat))',
        'nn.Dense(self.config.hidden, name=f"layer_{number}")(flat)',
        MLP,
    ),
    "the error's sum": Mutation(
        state.loss,
        "jnp.mean(",
        "jnp.sum(",
        law(test_body.test_the_loss_is_the_mean_square_over_the_horizon, test_body.CONFIG),
    ),
    "long texts are loud": Mutation(text.text_features, "max(1, len(words)) ** 0.5", "1", TEXTS),
}

FORMS = law(test_spectral.test_the_three_forms_are_the_papers_sum, (11, 4), 53, 3)
EVEN = law(test_spectral.test_the_three_forms_are_the_papers_sum, (12, 7), 53, 3)
DRIFT = law(
    test_spectral.test_over_10_000_steps_the_forms_stay_equal_only_because_the_sum_is_begun_anew, 61, 11
)
NEWS = law(test_spectral.test_what_is_expected_is_the_output_of_nothing_new)
MODES = law(test_spectral.test_a_joints_low_modes_are_this_windows)
PARAMS = test_fourier.filled()
CONTROLLER = law(test_fourier.test_the_controller_is_the_papers_equations, PARAMS)
STEPWISE = law(test_fourier.test_one_row_at_a_time_gives_what_all_rows_at_once_give, PARAMS)
STARTS = law(test_fourier.test_rows_before_the_episode_are_as_if_they_were_not_there, PARAMS)
LAST = law(test_fourier.test_it_acts_on_the_windows_last_row_and_its_loss_is_of_that_chunk, PARAMS)
PAST = law(test_fourier.test_a_row_sees_what_was_and_not_what_is_to_come, PARAMS)

WAVES = {
    "the modes are turned the other way": Mutation(
        spectral._turned, "u.imag * real + u.real", "u.imag * real - u.real", FORMS
    ),
    "the sliding sum's conjugate": Mutation(
        spectral._turned,
        "u = _turn(context, modes or len(real))",
        "u = np.conj(_turn(context, modes or len(real)))",
        FORMS,
    ),
    "what leaves the window stays": Mutation(spectral.accept, "newest.real - leaves", "newest.real", FORMS),
    "what leaves is the newest": Mutation(spectral.accept, "(inputs, next_place,", "(inputs, place,", FORMS),
    "the sum is never begun anew": Mutation(
        spectral.accept, "next_place == context - 1", "next_place == context", DRIFT
    ),
    "the fresh sum goes on": Mutation(
        spectral.accept, "jnp.where(place == context - 1, 0.0, 1.0)", "1.0", FORMS
    ),
    "the mean counts twice": Mutation(spectral.readout, "(number == 0) | ", "", FORMS),
    "an even window's last mode counts twice": Mutation(
        spectral.readout, " | (2 * number == context)", "", EVEN
    ),
    "transformed back without the conjugate": Mutation(
        spectral.readout, "np.conj(turns(context, modes)[0])", "turns(context, modes)[0]", FORMS
    ),
    "weights transposed": Mutation(spectral.readout, "k,klc->lc", "k,lkc->lc", FORMS),
    "one step less back": Mutation(spectral.turns, "np.arange(1, context + 1)", "np.arange(context)", FORMS),
    "the end comes round to the start": Mutation(
        spectral.parallel, "1 << (steps + len(taps) - 2).bit_length()", "steps", FORMS
    ),
    "what is to come is seen": Mutation(
        spectral.parallel,
        "jnp.fft.rfft(taps, size, axis=-2)",
        "jnp.conj(jnp.fft.rfft(taps, size, axis=-2))",
        PAST,
    ),
    "taps backwards": Mutation(spectral.direct, "taps[::-1]", "taps", FORMS),
    "what comes is expected already": Mutation(
        spectral.stepwise, "now = jnp.real(", "now = 0 * jnp.real(", NEWS
    ),
    "a joint's past, the newest first": Mutation(
        history.waves, "np.arange(count, 0, -1)", "np.arange(1, count + 1)", MODES
    ),
    "a joint's past is a row too new": Mutation(
        history.waves, "np.arange(count, 0, -1)", "np.arange(count)[::-1]", MODES
    ),
    "rows before the episode are read": Mutation(
        fourier.Layer, "jnp.where(real[:, :, None], self.norm(x), 0.0)", "self.norm(x)", STARTS
    ),
    "no way around the convolution": Mutation(
        fourier.Layer, "nn.gelu(mixed) + x", "nn.gelu(mixed)", CONTROLLER
    ),
    "the activation after the sum": Mutation(
        fourier.Layer, "nn.gelu(mixed) + x", "nn.gelu(mixed + x)", CONTROLLER
    ),
    "every layer remembers the first": Mutation(
        fourier.Encoder, "expected[number], readout", "expected[0], readout", STEPWISE
    ),
    "the layers' weights reversed": Mutation(
        fourier.readout, "range(config.depth)", "reversed(range(config.depth))", STEPWISE
    ),
    "the newest row is not heard": Mutation(fourier.Layer, "expected + now * seen", "expected", STEPWISE),
    "the first row acts": Mutation(fourier.Controller, "real)[:, -1]", "real)[:, 0]", LAST),
    "the loss over joints": Mutation(fourier.loss, "axis=1", "axis=2", LAST),
}

CAUSAL = law(test_bet.test_an_observation_sees_those_before_it_in_its_episode)
ANSWER = law(test_bet.test_it_answers_to_the_last_observation_and_those_of_its_episode_before_it)
CENTRES = law(test_bet.test_centres_are_the_means_of_the_points_nearest_to_them)
FOCAL = law(test_bet.test_with_gamma_0_the_focal_loss_is_cross_entropy)
DRAWN = law(test_bet.test_bins_are_drawn_by_their_probability)
CHUNK = law(test_bet.test_a_drawn_chunk_is_a_bins_centre_and_the_offset_in_that_bin)
OFFSET = law(test_bet.test_bin_and_offset_are_the_action)
TRUE_BIN = law(test_bet.test_only_the_true_bins_offset_learns)
BEGUN = law(test_bet.test_before_the_first_step_both_losses_are_equal)
ONE_BIN = law(test_bet.test_one_bin_is_squared_error)
REFUSED = law(test_bet.test_more_bins_than_different_chunks_are_refused)
EMPTY = law(test_bet.test_an_empty_centre_goes_to_the_point_furthest_from_its_own)
BODILESS = law(test_bet.test_values_that_a_robot_does_not_have_change_no_bin_and_no_weight)
ORDER = law(test_bet.test_an_observation_has_a_place_in_the_window)
TOKENS = law(test_bins_head.test_a_row_of_an_offset_is_read_from_its_token_and_the_logits_from_all)
TABLE = law(test_bins_head.test_its_table_of_modulations_is_what_each_call_computes)

KINDS = {
    "the next observation is seen": Mutation(bet.causal, "| own)", "| own, 1)", CAUSAL),
    "an observation does not see itself": Mutation(
        bet.causal, "jnp.tril(mask[:, None, :] | own)", "jnp.tril(mask[:, None, :], -1) | own", CAUSAL
    ),
    "all of the window is seen": Mutation(
        bet.causal, "jnp.tril(mask[:, None, :] | own)", "jnp.tril(mask[:, None, :] | True)", CAUSAL
    ),
    "observations have no place": Mutation(
        bet.Trunk, "x + jnp.asarray(table)", "x + 0 * jnp.asarray(table)", ORDER
    ),
    "the window's first observation answers": Mutation(
        bet.predicted, "logits[:, -1]", "logits[:, 0]", ANSWER
    ),
    "every row of the window counts": Mutation(
        bet.inputs, "jnp.asarray(mask)", "jnp.ones(mask.shape, bool)", ANSWER
    ),
    "poses are not read": Mutation(
        bet.inputs, "for part in (state, environment)", "for part in (state, 0 * environment)", ANSWER
    ),
    "the last layer begins anywhere": Mutation(
        bet.BetPolicy, ", kernel_init=nn.initializers.zeros", "", BEGUN
    ),
    "centres stay where they began": Mutation(bins.kmeans, "centres = moved", "break", CENTRES),
    "one round of Lloyd's": Mutation(bins.kmeans, "range(ROUNDS)", "range(1)", CENTRES),
    "half of the square": Mutation(bins.nearest_bin, "- 2 * across", "- across", OFFSET),
    "an empty centre goes to the origin": Mutation(bins._means, "if len(empty)", "if not len(empty)", EMPTY),
    "only the last point keeps others away": Mutation(
        bins._spread,
        "np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1))",
        "np.square(points - points[chosen[-1]]).sum(axis=1)",
        REFUSED,
    ),
    "the offset to the centre": Mutation(
        bins.encode, "actions - centres[bins]", "centres[bins] - actions", OFFSET
    ),
    "the offset of the first bin": Mutation(
        bins.of_bin, "bins[:, None, None]", "0 * bins[:, None, None]", TRUE_BIN
    ),
    "the offset of the likeliest bin": Mutation(
        bins.drawn, "-1), chosen)", "-1), jnp.argmax(logits, axis=1))", CHUNK
    ),
    "the centre of the likeliest bin": Mutation(
        bins.drawn, '["centres"][chosen]', '["centres"][jnp.argmax(logits, axis=1)]', CHUNK
    ),
    "gamma is ignored": Mutation(bins.focal, "((-jnp.expm1(log_p)) ** gamma)", "1.0", FOCAL),
    "what is known counts more": Mutation(bins.focal, "(-jnp.expm1(log_p))", "jnp.exp(log_p)", FOCAL),
    "bins in their own order": Mutation(
        bins.draw, "jnp.argsort(-logits, axis=1)", "jnp.argsort(0 * logits, axis=1)", DRAWN
    ),
    "the normal distribution of another width": Mutation(
        bins.draw, "np.float32(2**0.5)", "np.float32(1)", DRAWN
    ),
    "both tails are one": Mutation(bins.draw, "jnp.abs(noise)", "jnp.maximum(noise, 0)", DRAWN),
    "the offsets' loss has no weight": Mutation(bins.errors, 'known["weight"] * ', "", BEGUN),
    "the offsets' sum": Mutation(bins.errors, "squares.mean(axis=1)", "squares.sum(axis=1)", ONE_BIN),
    "padding counts in the weight": Mutation(bins.fitted, "mask.sum(axis=1)", "mask.shape[1]", BODILESS),
    "the weight knows no gamma": Mutation(bins.balance, "** gamma", "** 0", BEGUN),
    "the queries of another time": Mutation(head.Head, "jnp.ones(rows)", "jnp.zeros(rows)", TABLE),
    "the first token names the kind": Mutation(
        head.Head, "jnp.mean(out[..., 0], axis=1)", "out[:, 0, :, 0]", TOKENS
    ),
    "rows of the offsets backwards": Mutation(
        head.Head, "out[..., 1:].swapaxes", "out[:, ::-1, :, 1:].swapaxes", TOKENS
    ),
    "the head begins anywhere": Mutation(
        head.Head,
        ", kernel_init=nn.initializers.zeros",
        "",
        law(test_bins_head.test_before_the_first_step_both_losses_are_equal),
    ),
}

MUTATIONS = {**BODIES, **WAVES, **KINDS}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_noticed(name):
    is_noticed(MUTATIONS[name])


@pytest.mark.parametrize("law", with_parameters(MUTATIONS))
def test_without_a_mutation_the_law_holds(law):
    law()
