"""Why a checkpoint does not fit, as findings: their codes and subjects decide, their sentences are shown."""

import dataclasses
import json

import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding
from morph_vla.recipes.fitting import fitting
from morph_vla.weights.inspect import inspect
from morph_vla.weights.load import differences


@pytest.fixture
def spoiled(tmp_path, entries, write):
    """A checkpoint with one problem of each kind."""
    changed = dict(entries)
    changed["time_mlp_im.bias"] = changed.pop("time_mlp_in.bias")
    changed["time_mlp_out.bias"] = np.zeros(21, np.float32)
    changed["action_out_proj.bias"] = np.zeros(7, np.int32)
    write(tmp_path / "model.safetensors", changed)
    return tmp_path


def gist(problems: tuple[Finding, ...] | list[Finding]) -> set[tuple]:
    return {(problem.code, problem.severity, *problem.subject) for problem in problems}


def test_every_reason_has_its_code_and_its_entry(spoiled, host):
    inspection = inspect(spoiled, dataclasses.replace(host, vocab=41))
    head = "paligemma_with_expert.paligemma.lm_head.weight"
    embedding = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
    assert gist(inspection.problems) - {("shape", "error", head), ("shape", "error", embedding)} == {
        ("size", "error", "vocab"),
        ("missing", "error", "time_mlp_in.bias"),
        ("unexpected", "error", "time_mlp_im.bias"),
        ("shape", "error", "time_mlp_out.bias"),
        ("type", "error", "action_out_proj.bias"),
    }


def test_a_checkpoint_of_another_model_is_one_problem(tmp_path, write):
    write(tmp_path / "model.safetensors", {"a": np.zeros(3, np.float32)})
    assert gist(inspect(tmp_path).problems) == {("unreadable", "error", "")}


def test_sizes_that_differ_are_named_by_their_keys(host):
    other = dataclasses.replace(host, depth=2, expert=dataclasses.replace(host.expert, width=20), horizon=3)
    assert gist(differences(host, other)) == {("size", "error", "depth"), ("size", "error", "expert.width")}
    assert differences(host, dataclasses.replace(host, horizon=3, max_tokens=5)) == []


@pytest.mark.slow
def test_other_words_change_nothing(reword, run, spoiled, host):
    def outcome() -> tuple:
        inspection = inspect(spoiled, host)
        status, out, _ = run(f"weights inspect {spoiled} --config panda_demo --json")
        shown = json.loads(out)["problems"]
        with pytest.raises(MorphVlaError) as caught:
            weights.load(spoiled, host)
        lines = str(caught.value).splitlines()
        codes = [(problem["code"], problem["subject"]) for problem in shown]
        return (
            gist(inspection.problems),
            status,
            codes,
            len(lines),
            fitting(host),
            inspection.problems[0].found,
        )

    *before, words = outcome()
    reword()
    *after, other_words = outcome()
    assert after == before
    assert other_words != words
