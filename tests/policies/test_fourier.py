"""Fourier controller: the paper's sizes, what a row sees, and that one row at a time is all rows at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import dense, gelu, layer_norm

from morph_vla import policies
from morph_vla.errors import ConfigError
from morph_vla.pi05 import Observation
from morph_vla.policies import fourier, spectral
from morph_vla.policies.config import FourierConfig
from morph_vla.policies.text import TEXT

pytestmark = pytest.mark.slow

ROWS, JOINTS, HORIZON, POSES, WINDOW = 2, 3, 4, 5, 11
CONFIG = FourierConfig(
    action_dim=JOINTS, horizon=HORIZON, environment=POSES, window=WINDOW, stride=3, modes=4, width=7, depth=2,
    mlp_dim=13, decoder=6,
)  # fmt: skip
WIDTH = JOINTS + POSES + TEXT


def filled():
    """Parameters none of which is zero."""
    rng = np.random.default_rng(0)
    shapes = policies.shapes(CONFIG)
    return jax.tree.map(lambda leaf: (0.5 * rng.normal(size=leaf.shape)).astype(np.float32), shapes)


@pytest.fixture(scope="module")
def params():
    return filled()


def rows_of(count, seed=3):
    return np.random.default_rng(seed).normal(size=(ROWS, count, WIDTH)).astype(np.float32)


@jax.jit
def applied(params, rows, real):
    return fourier.Controller(CONFIG).apply({"params": params}, rows, real)


def chunks(params, rows, real=None):
    """The chunk after each row, from all at once."""
    return np.asarray(applied(params, rows, np.ones(rows.shape[:2], bool) if real is None else real))


def test_the_papers_sizes_make_the_papers_number_of_parameters():
    # Table 5 and C.3.1: 70 values in (its body has one angular velocity of three values), 12 joints out.
    sizes = FourierConfig(
        action_dim=12, horizon=1, environment=70 - 12 - TEXT, window=64, modes=10, width=256, depth=4,
        mlp_dim=256, decoder=128,
    )  # fmt: skip
    assert sum(leaf.size for leaf in jax.tree.leaves(policies.shapes(sizes))) == 787_852


def test_the_controller_is_the_papers_equations(params):
    """Section 3.1 in NumPy but for the convolution, which `test_spectral` holds against the paper's sum."""
    rows, encoder = rows_of(WINDOW), params["encoder"]
    x = dense(params["tokenizer"], rows.astype(np.float64))
    for number in range(CONFIG.depth):
        leaves = encoder[f"layer_{number}"]
        taps = np.asarray(spectral.taps(spectral.readout(jnp.asarray(leaves["modes"]), WINDOW), WINDOW))
        seen, mixed = layer_norm(leaves["norm"], x), np.zeros_like(x)
        for back in range(WINDOW):
            mixed[:, back:] += taps[back] * seen[:, : WINDOW - back]
        y = gelu(mixed) + x
        x = dense(leaves["mlp_out"], gelu(dense(leaves["mlp_in"], layer_norm(leaves["mlp_norm"], y)))) + y
    out = dense(params["detokenizer"]["out"], gelu(dense(params["detokenizer"]["hidden"], x)))
    wanted = out.reshape(ROWS, WINDOW, HORIZON, JOINTS)
    np.testing.assert_allclose(chunks(params, rows), wanted, atol=1e-5 * np.abs(wanted).max())


def test_one_row_at_a_time_gives_what_all_rows_at_once_give(params):
    steps = 5 * WINDOW + 3
    rows = rows_of(steps)[0]

    @jax.jit
    def one_after_another(params, rows):
        readout = fourier.readout(CONFIG, params)

        def forward(memory, row):
            given = memory, readout, row
            return fourier.Controller(CONFIG).apply({"params": params}, *given, method="next")

        return jax.lax.scan(forward, fourier.begin(CONFIG), rows)[1]

    one_by_one = one_after_another(params, rows)
    together = chunks(params, rows[None])[0]
    np.testing.assert_allclose(np.asarray(one_by_one), together, atol=1e-5 * np.abs(together).max())


def test_a_row_sees_what_was_and_not_what_is_to_come(params):
    rows = rows_of(WINDOW)
    before, changed = chunks(params, rows), rows.copy()
    changed[:, 5] += 1
    moved = np.abs(chunks(params, changed) - before).max(axis=(0, 2, 3))
    assert (moved[:5] < 1e-5).all()
    assert (moved[5:] > 1e-3).all()


def test_rows_before_the_episode_are_as_if_they_were_not_there(params):
    rows, real = rows_of(WINDOW), np.arange(WINDOW)[None] >= np.array([[4], [7]])
    wanted = chunks(params, rows, real)
    for row, first in enumerate((4, 7)):
        alone = chunks(params, rows[row : row + 1, first:])
        np.testing.assert_allclose(wanted[row, first:], alone[0], atol=1e-5 * np.abs(alone).max())


def test_it_acts_on_the_windows_last_row_and_its_loss_is_of_that_chunk(params):
    rows, real = rows_of(WINDOW), np.arange(WINDOW)[None] >= np.array([[0], [7]])
    seen = Observation(
        {}, {}, np.zeros((ROWS, 0), np.int32), np.zeros((ROWS, 0), bool), None,
        rows[:, :, :JOINTS], rows[:, :, JOINTS:], real,
    )  # fmt: skip
    noise = jnp.zeros((ROWS, HORIZON, JOINTS))
    asked = policies.Asked(seen, noise, np.ones((ROWS, JOINTS), bool), None)
    acted = jax.jit(fourier.act, static_argnums=(0, 4))(CONFIG, params, None, asked, 10)
    np.testing.assert_allclose(acted, chunks(params, rows, real)[:, -1], atol=1e-6)
    mask = jnp.ones((ROWS, JOINTS), bool)
    drawn = policies.Drawn(seen, noise, mask, noise[:, None], jnp.zeros((ROWS, 1)))
    errors = jax.jit(fourier.loss, static_argnums=0)(CONFIG, params, drawn)
    np.testing.assert_allclose(errors, np.mean(np.square(acted), axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"modes": 7}, r"model\.modes: a window of 11 rows has 6, not 7"),
        ({"modes": 0}, r"model\.modes: must be at least 1, not 0"),
        ({"mlp_dim": 0}, r"model\.mlp_dim: must be at least 1, not 0"),
        ({"decoder": 0}, r"model\.decoder: must be at least 1, not 0"),
        ({"window": 0}, r"model\.window: must be at least 1, not 0"),
    ],
)
def test_sizes_that_make_no_model_are_refused(changes, sentence):
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        dataclasses.replace(CONFIG, **changes).check()
