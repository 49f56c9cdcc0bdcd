"""Normalisation as openpi's, and rows that are tokenised before anything is padded."""

from pathlib import Path

import numpy as np
import pytest
from mutations import Mutation, is_noticed, law

from morph_vla.data import stats, transforms
from morph_vla.data.lerobot import Recordings
from morph_vla.pi05.tokenizer import BytesTokenizer, tokenize

PREPROCESSING = Path(__file__).parents[1] / "pi05/golden/preprocessing.npz"


@pytest.fixture(scope="module")
def recorded():
    with np.load(PREPROCESSING) as data:
        return {name: data[f"quantiles/{name}"] for name in ("q01", "q99", "in", "normal", "back")}


def test_quantile_normalisation_is_openpis(recorded):
    q01, q99 = (tuple(map(float, recorded[name])) for name in ("q01", "q99"))
    result = stats.Stats(q01, q99, q01, q99)
    normal = result.normalise(recorded["in"])
    np.testing.assert_allclose(normal, recorded["normal"], rtol=1e-6, atol=1e-6)
    # Not clipped; and a dimension that never moves explodes, which is why `compute` widens it.
    assert np.abs(normal[:, :2]).max() > 1.3
    assert np.abs(normal[2:, 2]).min() > 15
    np.testing.assert_allclose(result.restore(recorded["normal"]), recorded["back"], rtol=1e-6)
    np.testing.assert_allclose(recorded["back"], recorded["in"], atol=1e-12)


def test_a_dimension_that_never_moves_is_named_and_does_not_explode(recorded, caplog):
    values = np.repeat(recorded["in"], 25, axis=0)
    values[:, 2] = 0.5
    values[0, 2] = 0.50001
    result = stats.widened(stats.measure(values), ("shoulder", "elbow", "wrist"))
    assert caplog.messages == ["wrist (q01 0.5, q99 0.5) hardly moves: its range is widened to 0.01"]
    assert np.abs(result.normalise(values)[:, 2]).max() < 0.01


@pytest.fixture
def recordings():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(2, 7, 3)).astype(np.float32)
    return Recordings(
        Path("nowhere"), "v3.0", 15.0, "arm", values[0], values[1], np.array([0, 4]), np.array([4, 7]),
        np.array([0, 0, 0, 0, 1, 1, 1]), ("pick up_the cube", "go"), (),
    )  # fmt: skip


def test_the_state_is_tokenised_before_it_is_padded(recordings):
    state, names = stats.widened(stats.measure(recordings.state)), BytesTokenizer()
    rows = np.array([5, 2])
    states = state.normalise(recordings.state[rows])
    tokens, masks = transforms.tokens(recordings, rows, states, names, 40)
    for place, row, task in ((1, 2, "pick up the cube"), (0, 5, "go")):
        wanted, mask = tokenize(names, task, state.normalise(recordings.state[row]), 40)
        np.testing.assert_array_equal(tokens[place], wanted)
        np.testing.assert_array_equal(masks[place], mask)
        numbers = (wanted >= names.numbers - 1) & (wanted < names.numbers + 256)
        assert numbers.sum() == 3  # as many as the robot has, not 32


def test_a_chunk_repeats_its_episodes_last_action(recordings):
    result = transforms.chunks(recordings, np.array([2, 5]), 4)
    np.testing.assert_array_equal(result[0], recordings.action[[2, 3, 3, 3]])
    np.testing.assert_array_equal(result[1], recordings.action[[5, 6, 6, 6]])


def test_a_bucket_holds_the_prompt_and_no_more_than_the_model():
    assert [transforms.bucketed(longest, 32, 200) for longest in (0, 1, 32, 33, 192, 193, 200)] == [
        32, 32, 32, 64, 192, 200, 200,
    ]  # fmt: skip
    assert transforms.bucketed(7, 0, 200) == 200


def test_a_window_ends_at_its_row_and_repeats_its_episodes_first_one_before_the_start(recordings):
    rows, mask = transforms.window(recordings, np.array([3, 4, 6, 0]), np.array([4, 2, 0]))
    assert rows.tolist() == [[0, 1, 3], [4, 4, 4], [4, 4, 6], [0, 0, 0]]
    first = [False, False, True]
    assert mask.tolist() == [[False, True, True], first, [False, True, True], first]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("wanted, first = rows[:, None] - lags", "wanted, first = rows[:, None] - lags - 1"),
        ("rows[:, None] - lags", "rows[:, None] - lags[::-1]"),
        ("np.maximum(wanted, first)", "np.maximum(wanted, 0)"),
        ("wanted >= first", "wanted > first"),
        ("wanted >= first", "wanted >= 0"),
    ],
)
def test_a_window_a_row_off_or_of_another_episode_is_noticed(recordings, right, wrong):
    windows = law(
        test_a_window_ends_at_its_row_and_repeats_its_episodes_first_one_before_the_start, recordings
    )
    is_noticed(Mutation(transforms.window, right, wrong, windows))
