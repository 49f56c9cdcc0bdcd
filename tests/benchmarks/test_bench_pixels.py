"""`morph-vla bench pixels`: what it compares, and that both sides of a ranking estimate the same."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import pixels
from benchmarks.harness import Ratio

pytestmark = pytest.mark.slow


def test_rankings_are_measured_and_their_growth(run, monkeypatch):
    kernels = {name: pixels.KERNELS[name] for name in ("relu", "hybrid (10, 5)")}
    monkeypatch.setattr(pixels, "KERNELS", kernels)  # each compiles two programs a length
    answer = json.loads(run("bench pixels --how none --lengths 300 600 --repeats 1 --json")[1])
    names = [f"ranking {length}, {kernel}" for length in (300, 600) for kernel in kernels]
    assert [row["name"] for row in answer["rows"]] == names
    assert isinstance(answer["relu_grows_as_tokens_to"], float)


@pytest.mark.long
def test_every_way_is_measured(run):
    command = "bench pixels --size small --keep 1 --how average --how ranking --lengths --repeats 1 --json"
    answer = json.loads(run(command)[1])
    wanted = [f"{what}, {how}" for how in ("average", "ranking") for what in ("training step", "sampling")]
    assert [row["name"] for row in answer["rows"]] == wanted
    assert answer["image_tokens"] == "1 of 4 a camera"


@pytest.mark.parametrize("name", pixels.KERNELS)
def test_both_sides_estimate_the_same_scores(name):
    rng, kernel = np.random.default_rng(0), pixels.KERNELS[name]
    rows = [jnp.asarray(rng.normal(size=(600, pixels.WIDTH)), jnp.float32) for _ in range(2)]
    exact = np.asarray(jax.jit(pixels.written_out(kernel))(*rows))
    many = (kernel[0], 4000 if kernel[0] != "hybrid" else 1000, kernel[2])
    estimate = np.asarray(jax.jit(pixels.implicit(many))(*rows))
    off = np.median(np.abs(estimate / exact - 1))  # the softmax kernel's estimate has a heavy tail
    assert off < (1e-4 if name == "relu" else 0.3)


def test_the_growth_is_the_laws():
    rows = [
        Ratio(f"ranking {n}, relu", 0.1 * n**1.25, "brute force", 0.1 * n**2, 1.0) for n in (300, 900, 1200)
    ]
    assert pixels.exponent(rows, "relu") == pytest.approx(1.25)
    assert pixels.exponent(rows, "brute force") == pytest.approx(2)
    assert np.isnan(pixels.exponent(rows[:1], "relu"))


def test_unknown_ways_and_lengths_are_refused(run):
    words = "error: no way 'rankin'; did you mean 'ranking'? (ranking, learnt, average, random, none)\n"
    assert run("bench pixels --how rankin")[::2] == (2, words)
    assert run("bench pixels --lengths 301")[::2] == (2, "error: --lengths: 301 is not a multiple of 300\n")
