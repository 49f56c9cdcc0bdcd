"""Every format, strictly: what fits is loaded bit by bit, what does not is named."""

import dataclasses
import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import init_params
from morph_vla.weights import names
from morph_vla.weights.checkpoint import flat, nested

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
Q_PROJ = "paligemma_with_expert.paligemma.model.language_model.layers.1.self_attn.q_proj.weight"
HEAD = "paligemma_with_expert.paligemma.lm_head.weight"
EMBEDDING = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"


# ------------------------------------------------------------------------------------------------- what fits


def test_openpis_released_checkpoint(openpi, host, params, equal):
    loaded, report = weights.load(openpi, host)
    equal(loaded, params)
    assert (report.format, len(report.loaded), report.new, report.unused) == ("openpi", 51, (), ())
    assert report.parameters == sum(leaf.size for leaf in flat(params).values())
    assert report.nbytes == 4 * report.parameters


def test_its_params_folder_may_be_named_too(openpi, host, params, equal):
    loaded, report = weights.load(openpi / "params", host)
    equal(loaded, params)
    assert (report.format, report.new, report.unused) == ("openpi", (), ())


def test_openpis_training_checkpoint_has_value_behind_every_name(tmp_path, host, params, equal):
    folder = weights.save_openpi(tmp_path / "trained", params, value_suffix=True)
    assert "('params', 'action_in_proj', 'bias', 'value')" in (folder / "params" / "_METADATA").read_text()
    equal(weights.load(folder, host)[0], params)


@pytest.mark.slow
@pytest.mark.parametrize("ocdbt", [True, False])
@pytest.mark.parametrize("zarr3", [True, False])
def test_every_way_in_which_orbax_stores_arrays(tmp_path, host, params, equal, ocdbt, zarr3):
    from orbax import checkpoint as ocp

    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / "params", args=ocp.args.PyTreeSave({"params": params}))
    loaded, report = weights.load(tmp_path, host)
    equal(loaded, params)
    assert (len(report.loaded), report.new, report.unused) == (len(flat(params)), (), ())


def test_lerobots_checkpoint_in_the_hubs_layout(lerobot, host, params, equal):
    loaded, report = weights.load(lerobot, host)
    equal(loaded, params)
    unused = ("paligemma_with_expert.gemma_expert.lm_head.weight",)
    assert (report.format, len(report.loaded), report.unused) == ("lerobot", 51, unused)
    equal(weights.load(lerobot / "model.safetensors", host)[0], params)


def test_lerobots_own_names_begin_with_model(tmp_path, host, params, entries, equal, write):
    own = {f"model.{name}": value for name, value in entries.items()}
    own[f"model.{EMBEDDING}"] = own[f"model.{HEAD}"]
    write(tmp_path / "pretrained_model" / "model.safetensors", own)
    loaded, report = weights.load(tmp_path, host)
    equal(loaded, params)
    assert HEAD in report.unused


def test_where_the_embedding_stands_twice_the_heads_copy_is_not_read(
    tmp_path, host, params, entries, equal, write
):
    write(tmp_path / "model.safetensors", entries | {EMBEDDING: entries[HEAD], HEAD: entries[HEAD] + 1})
    loaded, report = weights.load(tmp_path, host)
    equal(loaded, params)
    assert HEAD in report.unused


def test_shards(tmp_path, host, params, equal):
    folder = weights.save_lerobot(tmp_path / "sharded", params, host, shard_bytes=20_000)
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 3
    equal(weights.load(folder, host)[0], params)
    shards[1].unlink()
    with pytest.raises(MorphVlaError, match=f"its index names missing shards: {shards[1].name}"):
        weights.load(folder, host)


@pytest.mark.slow
def test_our_own_checkpoint_gives_the_average_or_the_parameters(tmp_path, host, drawn, equal):
    one, other = drawn(host, 1), drawn(host, 2)
    weights.save_openpi(tmp_path / "a", one)
    weights.save_openpi(tmp_path / "b", other)
    (tmp_path / "b" / "params").rename(tmp_path / "a" / "averaged")
    params, report = weights.load(tmp_path / "a", host)
    assert report.format == "morph_vla"
    equal(params, other)
    equal(weights.load(tmp_path / "a", host, kind="params")[0], one)


def test_without_a_config_the_sizes_are_read_off_the_checkpoint(
    openpi, lerobot, host, params, equal, tmp_path
):
    equal(weights.load(openpi)[0], params)
    config = weights.open_checkpoint(openpi).config()
    unknown = {"horizon": 6, "max_tokens": 11, "dtype": "float32", "remat": False}
    assert dataclasses.replace(config, **unknown) == host
    # LeRobot's shapes do not tell the heads of SigLIP; our own metadata does.
    assert dataclasses.replace(weights.open_checkpoint(lerobot).config(), **unknown) == dataclasses.replace(
        host, vit=dataclasses.replace(host.vit, heads=16)
    )
    folder = weights.save_lerobot(tmp_path / "ours", params, host)
    assert dataclasses.replace(weights.open_checkpoint(folder).config(), **unknown) == host


# ------------------------------------------------------------------------------------------------- types


def test_types_by_part(openpi, lerobot, host, params):
    for source in (openpi, lerobot):
        loaded, report = weights.load(
            source, host, dtype={"language model": "bfloat16", "vision encoder": "stored"}
        )
        for name, leaf in flat(loaded).items():
            wanted = flat(params)[name]
            if names.part_of(name) == "language model":
                wanted = wanted.astype(BFLOAT16)
            assert leaf.dtype == wanted.dtype, name
            assert leaf.tobytes() == wanted.tobytes(), name
        assert ("language model", "float32 > bfloat16") in [(row[0], row[-1]) for row in report.parts()]


def test_bfloat16_stored_is_read_by_both(tmp_path, host, params, entries, equal, write):
    small = nested({name: leaf.astype(BFLOAT16) for name, leaf in flat(params).items()})
    weights.save_openpi(tmp_path / "a", small)
    write(tmp_path / "b" / "model.safetensors", {n: v.astype(BFLOAT16) for n, v in entries.items()})
    wide = nested({name: leaf.astype(np.float32) for name, leaf in flat(small).items()})
    for folder in (tmp_path / "a", tmp_path / "b"):
        loaded, report = weights.load(folder, host, dtype="stored")
        equal(loaded, small)
        assert report.nbytes == 2 * report.parameters
        equal(weights.load(folder, host, dtype="float32")[0], wide)


@pytest.mark.parametrize(
    ("dtype", "sentence"),
    [
        (
            {"language modle": "bfloat16"},
            r"dtype: no part 'language modle'; did you mean 'language model'\? \(vision encoder, language",
        ),
        ("bfloat15", r"dtype: 'bfloat15' is not one of float32, bfloat16, stored; did you mean 'bfloat16'\?"),
    ],
)
def test_a_type_that_there_is_not(openpi, host, dtype, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        weights.load(openpi, host, dtype=dtype)


# ------------------------------------------------------------------------------------------------- new leaves


@pytest.mark.slow
def test_the_plugins_leaves_are_new_and_begin_as_the_model_initialises_them(openpi, plugin, params, equal):
    loaded, report = weights.load(openpi, plugin, seed=3)
    host_part = {name: leaf for name, leaf in loaded.items() if name != "morphology"}
    equal(host_part, params)
    equal(
        {"morphology": loaded["morphology"]},
        {"morphology": init_params(plugin, jax.random.key(3))["morphology"]},
    )
    assert {row.leaf for row in report.new} == set(flat({"morphology": loaded["morphology"]}))
    assert f"{len(report.new)} new" in report.summary()
    assert f"  new     {report.new[0].leaf} {report.new[0].shape} float32" in str(report)


@pytest.mark.slow
def test_half_a_plugin_is_refused_unless_it_is_allowed(tmp_path, plugin, drawn):
    whole = flat(drawn(plugin))
    missing = sorted(name for name in whole if name.startswith("morphology/"))[0]
    folder = weights.save_openpi(tmp_path / "half", nested({n: v for n, v in whole.items() if n != missing}))
    with pytest.raises(MorphVlaError, match=f"1 leaf does not fit this model\n  missing: {missing}, shape"):
        weights.load(folder, plugin)
    _, report = weights.load(folder, plugin, new=[missing])
    assert [row.leaf for row in report.new] == [missing]


def test_a_leaf_that_is_allowed_to_be_new_must_exist(openpi, host):
    with pytest.raises(
        MorphVlaError, match="new: the model has no leaf 'acton_in_proj'; did you mean 'action_in_proj'"
    ):
        weights.load(openpi, host, new=["acton_in_proj"])


@pytest.mark.slow
def test_a_plugin_that_the_model_does_not_have_is_refused_unless_ignored(
    tmp_path, host, plugin, drawn, equal
):
    whole = drawn(plugin)
    folder = weights.save_openpi(tmp_path / "plugin", whole)
    with pytest.raises(MorphVlaError, match=r"unexpected: morphology/"):
        weights.load(folder, host)
    params, report = weights.load(folder, host, ignore=["morphology"])
    equal(params, {name: leaf for name, leaf in whole.items() if name != "morphology"})
    assert all(name.startswith("morphology/") for name in report.unused)
    equal(weights.load(folder)[0], whole)


@pytest.mark.slow
def test_leaves_can_go_to_their_place_one_by_one(openpi, plugin):
    seen = []

    def place(name, leaf):
        seen.append((name, leaf.size))
        return jax.numpy.asarray(leaf)

    params, report = weights.load(openpi, plugin, place=place)
    assert all(isinstance(leaf, jax.Array) for leaf in flat(params).values())
    assert {name for name, _ in seen} == {row.leaf for row in report.rows}
    loaded = [size for _, size in seen[: len(report.loaded)]]
    assert loaded == sorted(loaded, reverse=True)  # the largest first: each of these is stored as one block


@pytest.mark.parametrize("source", ["openpi", "lerobot"])
def test_stacks_can_come_as_lists_of_their_layers(source, request, host):
    folder = request.getfixturevalue(source)
    whole, layered = (flat(weights.load(folder, host, by_layer=by_layer)[0]) for by_layer in (False, True))
    stacks = {name for name, leaf in layered.items() if isinstance(leaf, list)}
    assert stacks == {name for name in whole if "/layers/" in name or "/encoderblock/" in name}
    for name, leaf in whole.items():
        for one, layer in zip(leaf, layered[name], strict=True) if name in stacks else ():
            assert layer.dtype == one.dtype
            np.testing.assert_array_equal(layer, one)
            assert layer.ctypes.data % 64 == 0  # where JAX takes it over without a copy
        if name not in stacks:
            np.testing.assert_array_equal(layered[name], leaf)


def test_layers_that_are_not_finite_are_refused_as_leaves_are(tmp_path, host, params, equal):
    spoiled = nested({name: leaf.copy() for name, leaf in flat(params).items()})
    leaf = "PaliGemma/llm/layers/mlp_1/linear"
    flat(spoiled)[leaf][1, 2, 3] = np.nan
    folder = weights.save_openpi(tmp_path / "spoiled", spoiled)
    with pytest.raises(MorphVlaError, match=rf"not finite: {leaf} \(3, 17, 22\)"):
        weights.load(folder, host, by_layer=True)


# ------------------------------------------------------------------------------------------------- refusals


def test_everything_that_does_not_fit_is_named_at_once(tmp_path, host, entries, write):
    spoiled = dict(entries)
    del spoiled[Q_PROJ]
    spoiled[f"{Q_PROJ}s"] = entries[Q_PROJ]
    spoiled["time_mlp_in.bias"] = np.zeros(21, np.float32)
    spoiled["action_out_proj.bias"] = np.zeros(7, np.int32)
    write(tmp_path / "model.safetensors", spoiled)
    with pytest.raises(MorphVlaError) as caught:
        weights.load(tmp_path, host)
    lines = str(caught.value).split("\n  ")
    assert lines[0] == f"{tmp_path} (lerobot): 4 leaves do not fit this model"
    assert sorted(lines[1:]) == [
        f"missing: {Q_PROJ} (of PaliGemma/llm/layers/attn/q_einsum/w), shape (32, 32)",
        "shape: time_mlp_in.bias (of time_mlp_in/bias) is (21,), the model has (22,)",
        "type: action_out_proj.bias (of action_out_proj/bias) holds int32, "
        "the model has floating-point numbers",
        f"unexpected: {Q_PROJ}s (32, 32); did you mean '{Q_PROJ}'?",
    ]


def test_another_size_is_said_in_words(openpi, lerobot, host):
    other = dataclasses.replace(host, depth=2, expert=dataclasses.replace(host.expert, width=20))
    for source in (openpi, lerobot):
        with pytest.raises(MorphVlaError) as caught:
            weights.load(source, other)
        first, *rest = str(caught.value).split("\n")
        assert "depth is 3 in the checkpoint, 2 in the model" in first
        assert "expert.width is 22 in the checkpoint, 20 in the model" in first
        assert rest


def test_numbers_that_are_not_finite(tmp_path, host, params, equal):
    spoiled = nested({name: leaf.copy() for name, leaf in flat(params).items()})
    spoiled["time_mlp_in"]["bias"][3] = np.nan
    folder = weights.save_openpi(tmp_path / "nan", spoiled)
    with pytest.raises(
        MorphVlaError, match=r"1 leaf does not fit this model\n  not finite: time_mlp_in/bias \(22,\)"
    ):
        weights.load(folder, host)
    equal(weights.load(folder, host, finite=False)[0], spoiled)


def test_what_is_no_checkpoint(tmp_path, openpi):
    with pytest.raises(MorphVlaError, match="nowhere: there is no such file or folder"):
        weights.load(tmp_path / "nowhere")
    with pytest.raises(
        MorphVlaError,
        match=r"not a checkpoint: expected model.safetensors or params/_METADATA, found nothing$",
    ):
        weights.load(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(MorphVlaError, match=r"found notes.txt$"):
        weights.load(tmp_path)
    with pytest.raises(
        MorphVlaError, match=r"notes.txt is not a checkpoint; expected a safetensors file or a folder$"
    ):
        weights.load(tmp_path / "notes.txt")
    shutil.copytree(openpi, tmp_path / "29999")
    with pytest.raises(MorphVlaError, match=r"is not a checkpoint, but contains some: 29999$"):
        weights.load(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(
        MorphVlaError, match=r"pytorch_model.bin is a pickle, and reading one may run any program"
    ):
        weights.load(tmp_path)


def test_a_checkpoint_that_is_no_pi05(tmp_path, write):
    write(tmp_path / "model.safetensors", {"a": np.zeros(3, np.float32)})
    with pytest.raises(MorphVlaError, match=r"\(lerobot\): the sizes of a pi0.5 cannot be read off it"):
        weights.load(tmp_path)


def damage_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_surplus(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(4))


def damage_header(path: Path) -> None:
    path.write_bytes(b"\x10" + bytes(7) + b'{"a": {"dtype":}' + bytes(100))


def damage_length(path: Path) -> None:
    path.write_bytes(b"\xff" * 8 + b"{}")


def damage_offsets(path: Path) -> None:
    text = json.dumps({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))


def damage_overlap(path: Path) -> None:
    same = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
    text = json.dumps({"a": same, "b": same}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(12))


def header(text: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(4))

    return damage


def damage_depth(path: Path) -> None:
    path.write_bytes((100_000).to_bytes(8, "little") + b"[" * 100_000)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (damage_overlap, r"its tensors overlap or leave a gap at byte \d+$"),
        (damage_depth, "the safetensors header cannot be read"),
        (damage_half, r"damaged or truncated: \d+ bytes, its header expects \d+$"),
        (damage_surplus, r"damaged or truncated: \d+ bytes, its header expects \d+$"),
        (damage_header, "the safetensors header cannot be read"),
        (damage_length, "not a safetensors file, or a truncated one"),
        (damage_offsets, r"bytes 0 to 8 do not hold \(3,\) of float32"),
        *(
            (header(text), "the safetensors header cannot be read")
            for text in (
                '{"__metadata__": null}',
                '{"__metadata__": []}',
                '{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}',
                '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]}}',
            )
        ),
    ],
)
def test_a_damaged_file(tmp_path, lerobot, host, damage, sentence):
    shutil.copy(lerobot / "model.safetensors", tmp_path)
    damage(tmp_path / "model.safetensors")
    with pytest.raises(MorphVlaError, match=sentence):
        weights.load(tmp_path, host)


def test_a_damaged_orbax_item(tmp_path, openpi, host):
    folder = shutil.copytree(openpi, tmp_path / "checkpoint")
    for path in (folder / "params").rglob("d/*"):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(MorphVlaError, match=r"array '\S+' is (damaged|listed but not there)"):
        weights.load(folder, host)
    for metadata in ("{", "[]", '{"tree_metadata": {"5": {}}}', '{"tree_metadata": 7}', "7"):
        (folder / "params" / "_METADATA").write_text(metadata)
        with pytest.raises(MorphVlaError, match="_METADATA cannot be read"):
            weights.load(folder, host)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('{"heads": 0}', "has heads: 0; expected a number above 0"),
        ('{"vit_heads": "4"}', "has vit_heads: '4'; expected a number above 0"),
        ("[1, 2]", "is no mapping"),
        ("5", "is no mapping"),
    ],
)
def test_a_strangers_metadata_is_no_traceback(tmp_path, entries, written, words):
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(value) for name, value in entries.items()}
    save_file(arrays, tmp_path / "model.safetensors", {"morph_vla": written})
    with pytest.raises(MorphVlaError, match=rf"cannot be read off it \(its metadata 'morph_vla' {words}\)"):
        weights.load(tmp_path)


def test_what_is_not_finite_is_found_in_every_part_that_is_looked_at(monkeypatch):
    module = importlib.import_module("morph_vla.weights.load")
    monkeypatch.setattr(module, "AT_ONCE", 4)
    for place in (0, 3, 4, 9):
        values = np.zeros(10, np.float32)
        assert module.is_finite(values)
        values[place] = np.nan
        assert not module.is_finite(values)
