"""`morph-vla bench model`: what it compares, in words and as JSON."""

import json

import jax
import numpy as np
import pytest

from benchmarks import model as bench_model
from benchmarks.subject import config_of, joint_loss
from morph_vla.cli import main
from morph_vla.morphology import MorphologyConfig
from morph_vla.pi05 import loss
from morph_vla.pi05.model import count, example, init_params

pytestmark = pytest.mark.slow
SMALL = config_of("small")


@pytest.mark.long
def test_every_comparison_is_measured(capsys):
    assert main(["bench", "model", "--size", "small", "--repeats", "1", "--only", "mix", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["reference"]) for row in answer["rows"]] == [
        ("training step, prefix once", "joint pass"),
        ("sampling, modulations once", "in each call"),
        ("sampling, ready to serve", "as trained"),
        ("training step, mix", "bare host"),
        ("sampling, mix", "bare host"),
    ]
    for row in answer["rows"]:
        assert row["ratio"] == pytest.approx(row["ms"] / row["reference_ms"])
        assert row["temporary_mb"] > 0
        assert row["reference_temporary_mb"] > 0
    # Less is kept for the backward pass when the prefix has none.
    assert answer["rows"][0]["temporary_mb"] < answer["rows"][0]["reference_temporary_mb"]
    assert (answer["batch"], answer["dtype"], answer["repeats"]) == (2, "float32", 1)


def test_the_table_is_printed(capsys, monkeypatch):
    row = bench_model.Row("sampling, mix", 3.0, "bare host", 2.0, 1.5)
    monkeypatch.setattr(bench_model, "comparisons", lambda *_: iter([row]))
    assert main(["bench", "model", "--size", "small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sampling, mix: 1.500 of bare host"
    assert lines[1].startswith("device ")
    assert lines[-2].split() == ["what", "ms", "temporary", "MB", "against", "ms", "temporary", "MB", "ratio"]
    assert lines[-1].split() == ["sampling,", "mix", "3", "bare", "host", "2", "1.500"]


def test_a_variant_that_there_is_none_of(capsys):
    assert main(["bench", "model", "--only", "mixx"]) == 2
    assert "error: no variant 'mixx'; did you mean 'mix'? (tokens alone, " in capsys.readouterr().err


@pytest.mark.parametrize("name", bench_model.VARIANTS)
def test_every_variant_is_one_at_full_size(name):
    full = config_of("full")
    MorphologyConfig(**bench_model.VARIANTS[name]).check(full.horizon, full.action_dim)


def test_the_middle_size_takes_a_second_and_not_a_minute():
    shapes = jax.eval_shape(lambda: init_params(config_of("mid"), jax.random.key(0)))
    assert 20e6 < count(shapes) < 60e6


def test_the_two_losses_that_are_timed_are_equal():
    params = init_params(SMALL, jax.random.key(0))
    observation, actions, _ = example(SMALL, 2)
    noise = jax.random.normal(jax.random.key(1), (1, *actions.shape))
    times = np.array([[0.3, 0.8]], np.float32)
    both = [
        jax.jit(f, static_argnums=0)(SMALL, params, observation, actions, noise, times)
        for f in (loss, joint_loss)
    ]
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-5)
