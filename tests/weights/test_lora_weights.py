"""Low-rank pairs in checkpoints: read as they are, merged where the model has none, begun anew."""

import dataclasses
import json

import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import Lora, LowRank
from morph_vla.weights.checkpoint import flat, nested
from morph_vla.weights.convert import convert
from morph_vla.weights.names import is_lora

LORA = Lora(LowRank(3, 7.0), LowRank(5, 5.0, ("attention",)))


@pytest.fixture(scope="module")
def model(host):
    return dataclasses.replace(host, lora=LORA)


@pytest.fixture(scope="module")
def paired(model, drawn):
    return drawn(model, 3)


@pytest.fixture(scope="module")
def stored(paired, tmp_path_factory):
    """A checkpoint as training leaves it: the parameters, and the recipe that says alpha."""
    folder = tmp_path_factory.mktemp("run") / "7"
    weights.save_morph_vla(folder, paired)
    plain = {
        "language_model": {"rank": 3, "alpha": 7.0},
        "action_expert": {"rank": 5, "alpha": 5.0},
        "whole": [],
    }
    (folder / "about").mkdir()
    (folder / "about/recipe.json").write_text(json.dumps({"model": {"lora": plain}}))
    return folder


def without(tree):
    return nested({name: leaf for name, leaf in flat(tree).items() if not is_lora(name)})


def by_hand(paired, name, layer=1):
    """A few merged weights, written out."""
    leaves, layers = flat(paired), "PaliGemma/llm/layers/"
    half = lambda module, end: leaves[f"{layers}{module}{end}"][layer]  # noqa: E731
    if name == "mlp/linear":
        return half(name, "") + 7 / 3 * half(name, "_lora_a") @ half(name, "_lora_b")
    if name == "attn/q_einsum_1/w":
        a, b = half("attn/q_einsum_1", "/lora_a"), half("attn/q_einsum_1", "/lora_b")
        return half(name, "") + np.einsum("ndr,nrh->ndh", a, b)
    a, b = half("attn/attn_vec_einsum", "/lora_a"), half("attn/attn_vec_einsum", "/lora_b")
    return half(name, "") + 7 / 3 * np.einsum("nhr,mrd->nhd", a, b)


@pytest.mark.parametrize(("lost", "left"), [("lora_b", "lora_a"), ("lora_a", "lora_b")])
def test_half_a_pair_is_named(paired, tmp_path, lost, left):
    leaves = flat(paired)
    del leaves[f"PaliGemma/llm/layers/mlp/linear_{lost}"]
    weights.save_openpi(tmp_path / "half", nested(leaves))
    words = (
        f"'PaliGemma/llm/layers/mlp/linear_{left}' is there without 'PaliGemma/llm/layers/mlp/linear_{lost}'"
    )
    with pytest.raises(MorphVlaError, match=words):
        convert(tmp_path / "half", tmp_path / "out", "lerobot")
    assert not (tmp_path / "out").exists()


def test_a_run_says_its_own_pairs(stored, paired, model, equal):
    assert weights.lora_of(weights.open_checkpoint(stored)) == LORA
    equal(weights.load(stored, model)[0], paired)
    equal(weights.load(stored)[0], paired)


@pytest.mark.parametrize("name", ["mlp/linear", "attn/q_einsum_1/w", "attn/attn_vec_einsum/w"])
def test_a_model_without_pairs_gets_merged_weights(stored, paired, host, name):
    params, _ = weights.load(stored, host)
    assert not any(map(is_lora, flat(params)))
    wanted = by_hand(paired, name)
    np.testing.assert_allclose(flat(params)[f"PaliGemma/llm/layers/{name}"][1], wanted, atol=1e-5)


@pytest.mark.slow
def test_other_ranks_begin_anew_on_merged_weights(stored, paired, host):
    other = dataclasses.replace(host, lora=Lora(None, LowRank(2, 2.0, ("feed-forward",))))
    params, report = weights.load(stored, other)
    merged = flat(weights.merge_lora(paired, LORA))
    fresh = {name for name in flat(params) if is_lora(name)}
    assert fresh == {row.leaf for row in report.new}
    assert len(fresh) == 4
    for name, leaf in flat(params).items():
        if name not in fresh:
            np.testing.assert_array_equal(leaf, merged[name])
        elif name.endswith("b"):
            assert not leaf.any()
    assert len(report.merged) == 16
    assert "8 low-rank pairs merged into their weights" in report.summary()


@pytest.mark.slow
def test_a_checkpoint_without_pairs_begins_them(openpi, lerobot, model, params, equal):
    for source in (openpi, lerobot):
        loaded, report = weights.load(source, model)
        equal(without(loaded), params)
        assert len(report.new) == 16
        assert all(is_lora(row.leaf) for row in report.new)


def test_openpis_own_pairs_have_alpha_at_rank(tmp_path, paired, host):
    weights.save_openpi(tmp_path / "openpi", paired)
    lora = weights.lora_of(weights.open_checkpoint(tmp_path / "openpi"))
    assert lora == Lora(LowRank(3, 3.0), LowRank(5, 5.0, ("attention",)))


@pytest.mark.slow
def test_convert_merges_and_keeps_when_told(run, stored, paired, tmp_path, equal):
    assert run(f"weights convert {stored} {tmp_path / 'merged'} --to openpi")[0] == 0
    merged = weights.merge_lora(paired, LORA)
    equal(weights.load(tmp_path / "merged")[0], merged)
    assert run(f"weights convert {stored} {tmp_path / 'kept'} --to openpi --keep-lora")[0] == 0
    kept = weights.load(tmp_path / "kept")[0]
    again = weights.lora_of(weights.open_checkpoint(tmp_path / "kept"))
    assert again is not None
    for name, leaf in flat(weights.merge_lora(kept, again)).items():
        np.testing.assert_allclose(leaf, flat(merged)[name], atol=2e-5)
    assert run(f"weights convert {stored} {tmp_path / 'lerobot'} --to lerobot")[0] == 0
    equal(weights.load(tmp_path / "lerobot")[0], merged)
    status, _, err = run(f"weights convert {stored} {tmp_path / 'no'} --to lerobot --keep-lora")
    assert status == 2
    assert "--keep-lora: LeRobot has no low-rank pairs; without this option they are merged" in err


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), 0, None, "x", True])
def test_a_recipes_factor_that_is_none_is_one_sentence(paired, tmp_path, alpha):
    weights.save_morph_vla(tmp_path / "7", paired)
    plain = {"language_model": {"rank": 3, "alpha": alpha}, "action_expert": {"rank": 5, "alpha": 5.0}}
    (tmp_path / "7/about").mkdir()
    (tmp_path / "7/about/recipe.json").write_text(json.dumps({"model": {"lora": plain}}))
    with pytest.raises(
        MorphVlaError, match=r"low-rank pairs of the language_model: rank 3 and alpha .* are none"
    ):
        weights.lora_of(weights.open_checkpoint(tmp_path / "7"))


def test_pairs_are_kept_or_merged_as_the_checkpoint_has_them(stored, model, host, tmp_path):
    other = dataclasses.replace(host, lora=Lora(LowRank(3, 9.0), LORA.action_expert))
    with pytest.raises(MorphVlaError, match=r"^--keep-lora: the pairs of .* are not those of the recipe in"):
        convert(stored, tmp_path / "kept", "morph_vla", other, keep_lora=True)
    convert(stored, tmp_path / "merged", "morph_vla", host)
    recipe = json.loads((tmp_path / "merged/about/recipe.json").read_text())
    assert (recipe["model"]["lora"], recipe["training"]) == (None, {"lora": None, "kind": "full"})
    assert weights.lora_of(weights.open_checkpoint(tmp_path / "merged")) is None


def test_what_cannot_be_said_is_refused(paired, host, tmp_path):
    with pytest.raises(
        MorphVlaError, match=r"no place for 16 leaves of low-rank pairs; merge them into their"
    ):
        weights.save_lerobot(tmp_path / "refused", paired, host)
    leaves = flat(paired)
    name = "PaliGemma/llm/layers/mlp/linear_lora_a"
    weights.save_openpi(tmp_path / "mixed", nested(leaves | {name: leaves[name][..., :2]}))
    with pytest.raises(
        MorphVlaError, match=r"the language model has low-rank pairs of several ranks \(2, 3\)"
    ):
        weights.load(tmp_path / "mixed", host)
